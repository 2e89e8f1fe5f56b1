"""What every interpreter does with ops over a named batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from poot.core import dtypes
from poot.core.errors import ArgumentError
from poot.core.interpreter import current
from poot.core.ops.collectives import (
    AllGather,
    AllReduce,
    AxisIndex,
    Collective,
    CollectiveOp,
    PPermute,
)
from poot.core.ops.elementwise import CompareOp
from poot.core.ops.indexing import Gather
from poot.core.ops.reduce import Reduce, ReduceOp
from poot.interpreters.batch.interpreter import collect
from poot.interpreters.batch.table import Axis, batch, in_front
from poot.interpreters.eager import transient
from poot.interpreters.jvp.table import Tangent, jvp
from poot.interpreters.primitives import (
    cast,
    compare,
    div,
    iota,
    move_axis,
    mul,
    number,
    reshape,
    select,
    type_of,
    zeros,
)
from poot.interpreters.transpose.table import Cotangent, transpose

Results = tuple[tuple[Any, ...], tuple[Axis, ...]]
_REDUCES = {
    CollectiveOp.SUM: ReduceOp.SUM,
    CollectiveOp.MAX: ReduceOp.MAX,
    CollectiveOp.MIN: ReduceOp.MIN,
}
_KINDS = (AllReduce, AllGather, PPermute, AxisIndex)


@transient.define(*_KINDS)
def _unbound(op: Collective, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    raise ArgumentError(
        f"{op.name}: no batch is called {op.axis_name!r} here; give vmap "
        f"axis_name={op.axis_name!r}"
    )


# --- over the batch itself --------------------------------------------------


@collect.define(AllReduce)
def _all_reduce(
    op: AllReduce, operands: Sequence[Any], axes: Sequence[Axis]
) -> Results:
    (x,), (axis,) = operands, axes
    if axis is not None:
        return (Reduce(_REDUCES[op.reduce], axis).bind(x),), (None,)
    if op.reduce is CollectiveOp.SUM:
        x = mul(x, number(op.size, type_of(x).dtype))
    return (x,), (None,)


@collect.define(AllGather)
def _all_gather(
    op: AllGather, operands: Sequence[Any], axes: Sequence[Axis]
) -> Results:
    whole = in_front(operands[0], axes[0], op.size)
    return (move_axis(whole, 0, op.axis),), (None,)


@collect.define(PPermute)
def _ppermute(op: PPermute, operands: Sequence[Any], axes: Sequence[Axis]) -> Results:
    whole = in_front(operands[0], axes[0], op.size)
    source = [-1] * op.size
    for start, end in op.perm:
        source[end] = start
    taken = _rows(whole, source)
    return (taken,), (0,)


def _rows(whole: Any, source: Sequence[int]) -> Any:
    """Rows of `whole` by number, zeros for -1."""
    index = current().lift(np.asarray([max(s, 0) for s in source], np.int32))
    found = Gather(0).bind(whole, index)
    if min(source, default=0) >= 0:
        return found
    there = current().lift(np.asarray([s >= 0 for s in source]))
    ndim = type_of(whole).ndim
    spread = reshape(there, (len(source), *[1] * (ndim - 1)))
    return select(spread, found, zeros(type_of(found)))


@collect.define(AxisIndex)
def _axis_index(
    op: AxisIndex, operands: Sequence[Any], axes: Sequence[Axis]
) -> Results:
    return (iota(dtypes.int32, (op.size,), 0),), (0,)


# --- over other batches -----------------------------------------------------


@batch.define(AllReduce, PPermute)
def _same_axis(
    op: Collective, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> Results:
    return (op.bind(*operands),), tuple(axes)


@batch.define(AllGather)
def _gather_other(
    op: AllGather, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> Results:
    x = in_front(operands[0], axes[0], size)
    return (replace(op, axis=op.axis + 1).bind(x),), (0,)


@batch.define(AxisIndex)
def _index_other(
    op: AxisIndex, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> Results:
    return (op.bind(),), (None,)


# --- derivatives ------------------------------------------------------------


@jvp.define(AllReduce)
def _reduce_jvp(
    op: AllReduce, primals: Sequence[Any], tangents: Sequence[Tangent]
) -> tuple[tuple[Any], tuple[Any]]:
    (x,), (t,) = primals, tangents
    result = op.bind(x)
    total = replace(op, reduce=CollectiveOp.SUM)
    if op.reduce is CollectiveOp.SUM:
        return (result,), (total.bind(t),)
    # As for a reduction: those that reach the extremum share it.
    dtype = type_of(x).dtype
    reached = cast(compare(CompareOp.EQ, x, result), dtype)
    share = div(reached, total.bind(reached))
    return (result,), (total.bind(mul(t, share)),)


@jvp.define(AllGather, PPermute)
def _linear_jvp(
    op: Collective, primals: Sequence[Any], tangents: Sequence[Tangent]
) -> tuple[tuple[Any], tuple[Any]]:
    return (op.bind(*primals),), (op.bind(*tangents),)


@transpose.define(AllReduce)
def _reduce_back(
    op: AllReduce, cotangents: Sequence[Cotangent], operands: Sequence[Any]
) -> tuple[Cotangent, ...]:
    return (op.bind(cotangents[0]),)


@transpose.define(AllGather)
def _gather_back(
    op: AllGather, cotangents: Sequence[Cotangent], operands: Sequence[Any]
) -> tuple[Cotangent, ...]:
    """Each example gets its own part of the sum of all cotangents."""
    total = AllReduce(op.axis_name, op.size, CollectiveOp.SUM).bind(cotangents[0])
    own = reshape(AxisIndex(op.axis_name, op.size).bind(), (1,))
    part = Gather(op.axis).bind(total, own)
    shape = type_of(part).shape
    return (reshape(part, (*shape[: op.axis], *shape[op.axis + 1 :])),)


@transpose.define(PPermute)
def _permute_back(
    op: PPermute, cotangents: Sequence[Cotangent], operands: Sequence[Any]
) -> tuple[Cotangent, ...]:
    back = tuple((end, start) for start, end in op.perm)
    return (replace(op, perm=back).bind(cotangents[0]),)
