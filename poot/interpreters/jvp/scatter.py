"""Updates at positions that are data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from poot.core.errors import NoDerivativeError
from poot.core.ops.elementwise import CompareOp
from poot.core.ops.indexing import GatherMode, GeneralGather
from poot.core.ops.scatter import Scatter, ScatterMode, ScatterOp
from poot.interpreters.jvp.definitions import One, define_jointly_linear, like
from poot.interpreters.jvp.table import Tangent, instantiated, jvp
from poot.interpreters.primitives import (
    broadcast,
    compare,
    div,
    mul,
    select,
    type_of,
)

_MODES = {
    ScatterMode.CLIP: GatherMode.CLIP,
    ScatterMode.DROP: GatherMode.FILL,
    ScatterMode.PROMISE: GatherMode.PROMISE,
}

# Of several updates of one element SET takes the last, and so the last's tangent.
define_jointly_linear(Scatter[ScatterOp.SET], Scatter[ScatterOp.ADD])


def _ones(x: Any) -> Any:
    return broadcast(like(x, 1), type_of(x).shape)


def _read(op: Scatter, x: Any, indices: Any, updates: Any) -> Any:
    """What stands where each update goes, 1 for those that go nowhere."""
    window = op.dims.window(type_of(x).ndim, type_of(updates).shape)
    mode = _MODES[op.mode]
    fill = like(x, 1) if mode is GatherMode.FILL else None
    return GeneralGather(op.dims.gather, window, mode, fill).bind(x, indices)


def _added(
    op: Scatter, x: Any, indices: Any, updates: Any, weights: tuple[Any, Any]
) -> Any:
    """The sum of tangents, each times its weight."""
    on_x, on_updates = weights
    terms = mul(x, on_x), mul(updates, on_updates)
    return replace(op, op=ScatterOp.ADD).bind(terms[0], indices, terms[1])


@jvp.define(Scatter[ScatterOp.MIN], Scatter[ScatterOp.MAX])
def _extremum(op: Scatter, primals: Sequence[Any], tangents: Sequence[Tangent]) -> One:
    """The mean of the tangents of all that are the result: updates and the operand."""
    x, indices, updates = primals
    y = op.bind(x, indices, updates)
    if not type_of(x).size:
        return (y,), (None,)
    loses = CompareOp.LT if op.op is ScatterOp.MAX else CompareOp.GT

    def chosen(mine: Any, result: Any) -> Any:
        """1 or 0; of a NaN all that takes part in it is chosen."""
        return select(compare(loses, mine, result), like(x, 0), like(x, 1))

    kept = chosen(x, y)
    taken = chosen(updates, _read(op, y, indices, updates))
    count = replace(op, op=ScatterOp.ADD).bind(kept, indices, taken)
    shares = div(kept, count), div(taken, _read(op, count, indices, updates))
    dx, _, moved = map(instantiated, tangents, primals)
    return (y,), (_added(op, dx, indices, moved, shares),)


@jvp.define(Scatter[ScatterOp.MUL])
def _mul(op: Scatter, primals: Sequence[Any], tangents: Sequence[Tangent]) -> One:
    """Refuses the derivative by updates of which several may meet in one element."""
    x, indices, updates = primals
    dx, _, moved = tangents
    y = op.bind(x, indices, updates)
    if not type_of(x).size:
        return (y,), (None,)
    factor = op.bind(_ones(x), indices, updates)
    if moved is None:
        return (y,), (mul(dx, factor),)
    if not op.unique_indices and math.prod(type_of(indices).shape[:-1]) > 1:
        raise NoDerivativeError(
            "scatter[mul]: no derivative by updates that may meet in one element; "
            "give unique_indices=True if none do, or multiply after a scatter[set]"
        )
    weights = factor, _read(op, x, indices, updates)
    return (y,), (_added(op, instantiated(dx, x), indices, moved, weights),)
