"""What every interpreter does with records and with calls of the host's functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from poot.core.errors import BatchingError, NoDerivativeError
from poot.core.interpreter import current
from poot.core.ops.host import HostCall, Record
from poot.interpreters.batch.table import Axis, Batched, batch, in_front
from poot.interpreters.eager import transient
from poot.interpreters.jvp.table import Tangent, jvp
from poot.interpreters.primitives import reshape, type_of


def _arrays(operands: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(current().lift(operand)) for operand in operands]


@transient.define(Record)
def _record_now(op: Record, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    for function in op.site.functions:
        function(op, _arrays(operands))
    return (current().lift(np.zeros((), np.int32)),)


@transient.define(HostCall)
def _call_now(op: HostCall, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    (function,) = op.site.functions
    return tuple(map(current().lift, function(op, _arrays(operands))))


@jvp.define(Record)
def _record_jvp(
    op: Record, primals: Sequence[Any], tangents: Sequence[Tangent]
) -> tuple[tuple[Any, ...], tuple[Tangent, ...]]:
    """The values are recorded, not how they move."""
    return (op.bind(*primals),), (None,)


@jvp.define(HostCall)
def _call_jvp(op: HostCall, primals: Any, tangents: Any) -> Any:
    raise NoDerivativeError(
        f"pure_callback of `{op.site.name}`: poot cannot see into the host's function; "
        "give its derivative by custom_jvp or custom_vjp, or stop it by stop_gradient"
    )


@batch.define(Record)
def _record_batch(
    op: Record, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> Batched:
    if op.ordered:
        raise BatchingError(
            f"{op.site.name}: ordered=True does not go with vmap, whose examples have "
            "no order; leave it out"
        )
    over = replace(op, batch=(size, *op.batch))
    return (over.bind(*_fronted(size, operands, axes)),), (None,)


def _fronted(size: int, operands: Any, axes: Any) -> list[Any]:
    return [in_front(x, axis, size) for x, axis in zip(operands, axes, strict=True)]


@batch.define(HostCall)
def _call_batch(
    op: HostCall, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> Batched:
    if not op.method:
        raise BatchingError(
            f"pure_callback of `{op.site.name}` is under vmap; say by vmap_method what "
            'to do: "sequential" calls it for each example, "expand_dims" and '
            '"broadcast_all" once with arrays that have leading axes'
        )
    if op.method == "sequential":
        given = _fronted(size, operands, axes)
        over = replace(op, batch=(size, *op.batch))
    else:
        given = [
            _one_in_front(x)
            if axis is None and op.method == "expand_dims"
            else in_front(x, axis, size)
            for x, axis in zip(operands, axes, strict=True)
        ]
        over = replace(op, shapes=tuple((size, *shape) for shape in op.shapes))
    outs = tuple(over.bind(*given))
    return outs, (0,) * len(outs)


def _one_in_front(x: Any) -> Any:
    return reshape(x, (1, *type_of(x).shape))
