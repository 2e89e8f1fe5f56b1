"""Transposes of what reads at positions which are data: they add up there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from poot.core.ops.index_dims import GatherDims
from poot.core.ops.indexing import DynamicSlice, Gather, GatherMode, GeneralGather
from poot.core.ops.scatter import (
    DynamicUpdateSlice,
    Scatter,
    ScatterMode,
    ScatterOp,
)
from poot.core.types import TensorType
from poot.interpreters.primitives import reshape, type_of, zeros
from poot.interpreters.transpose.table import Cotangent, transpose

# Where a gather reads, a scatter adds: what is filled is dropped. A promise is read as
# clip, so that a broken one has a transpose too.
_MODES = {
    GatherMode.CLIP: ScatterMode.CLIP,
    GatherMode.FILL: ScatterMode.DROP,
    GatherMode.PROMISE: ScatterMode.CLIP,
}


@transpose.define(Gather)
def _gather(
    op: Gather, cts: Sequence[Any], operands: Sequence[Any]
) -> tuple[Cotangent, None]:
    src, idx = operands
    given = type_of(idx).shape
    behind = range(op.axis + len(given), type_of(cts[0]).ndim)
    dims = GatherDims((*range(op.axis), *behind), (op.axis,), (op.axis,))
    indices = reshape(idx, (*given, 1))
    return _added(cts[0], src.type, dims, indices, op.mode), None


@transpose.define(GeneralGather)
def _general_gather(
    op: GeneralGather, cts: Sequence[Any], operands: Sequence[Any]
) -> tuple[Cotangent, None]:
    operand, indices = operands
    return _added(cts[0], operand.type, op.dims, indices, op.mode), None


def _added(
    ct: Any, type: TensorType, dims: GatherDims, indices: Any, mode: GatherMode
) -> Any:
    """The cotangent added to zeros where the gather with these dims reads."""
    is_one = is_one_vector(indices)
    scatter = Scatter(
        ScatterOp.ADD,
        dims.scatter,
        _MODES[mode],
        indices_are_sorted=is_one,
        unique_indices=is_one,
    )
    return scatter.bind(zeros(type), indices, ct)


def is_one_vector(indices: Any) -> bool:
    """Whether there is one index vector at most, so that no element is met twice."""
    return math.prod(type_of(indices).shape[:-1]) <= 1


@transpose.define(DynamicSlice)
def _dynamic_slice(
    op: DynamicSlice, cts: Sequence[Any], operands: Sequence[Any]
) -> tuple[Cotangent, ...]:
    x, *starts = operands
    nothing = (None,) * len(starts)
    if op.sizes == x.type.shape:
        return cts[0], *nothing
    return DynamicUpdateSlice().bind(zeros(x.type), cts[0], *starts), *nothing
