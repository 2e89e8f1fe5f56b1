"""Transposes of what writes at positions which are data.

An operand loses the cotangent of what was overwritten; the update that stayed has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from poot.core import dtypes
from poot.core.dtypes import DType, Scalar
from poot.core.ops.elementwise import CompareOp
from poot.core.ops.index_dims import GatherDims
from poot.core.ops.indexing import DynamicSlice, GatherMode, GeneralGather
from poot.core.ops.scatter import (
    DynamicUpdateSlice,
    Scatter,
    ScatterMode,
    ScatterOp,
    ScatterUpdate,
)
from poot.interpreters.primitives import (
    compare,
    full,
    iota,
    mul,
    number,
    reshape,
    select,
    type_of,
    zeros,
)
from poot.interpreters.transpose.indexing import is_one_vector
from poot.interpreters.transpose.table import (
    Cotangent,
    Linear,
    not_linear,
    operand_type,
    transpose,
)


@transpose.define(Scatter[ScatterOp.ADD])
def _scatter_add(
    op: Scatter, cts: Sequence[Any], operands: Sequence[Any]
) -> tuple[Cotangent, ...]:
    operand, indices, updates = operands
    kept = cts[0] if isinstance(operand, Linear) else None
    taken = _read(op, cts[0], indices, updates) if isinstance(updates, Linear) else None
    return kept, None, taken


@transpose.define(Scatter[ScatterOp.MUL])
def _scatter_mul(
    op: Scatter, cts: Sequence[Any], operands: Sequence[Any]
) -> tuple[Cotangent, ...]:
    operand, indices, updates = operands
    if not isinstance(updates, Linear):
        return op.bind(cts[0], indices, updates), None, None
    if isinstance(operand, Linear):
        raise not_linear(op, "in both factors at once")
    if not _is_unique(op, indices):
        raise not_linear(op, "in the updates, unless unique_indices says so,")
    return None, None, _read(op, mul(cts[0], operand), indices, updates)


@transpose.define(Scatter[ScatterOp.SET])
def _scatter_set(
    op: Scatter, cts: Sequence[Any], operands: Sequence[Any]
) -> tuple[Cotangent, ...]:
    operand, indices, updates = operands
    (ct,) = cts
    kept = taken = None
    if isinstance(operand, Linear):
        kept = op.bind(ct, indices, zeros(operand_type(updates)))
    if isinstance(updates, Linear):
        taken = _read(op, ct, indices, updates)
        if not _is_unique(op, indices):
            stays = _stays(op, type_of(ct).shape, indices, updates)
            taken = select(stays, taken, number(0, updates.type.dtype))
    return kept, None, taken


def _is_unique(op: Scatter, indices: Any) -> bool:
    return op.unique_indices or is_one_vector(indices)


def _read(
    op: Scatter, x: Any, indices: Any, updates: Linear, fill: Scalar | None = None
) -> Any:
    """What `x` has where each update goes; `fill`, or 0, for those that are dropped."""
    type = type_of(x)
    clips = op.mode is ScatterMode.CLIP and type.size
    gather = GeneralGather(
        op.dims.gather,
        op.dims.window(type.ndim, updates.type.shape),
        GatherMode.CLIP if clips else GatherMode.FILL,
        None if clips else number(0, type.dtype) if fill is None else fill,
    )
    return gather.bind(x, indices)


def _stays(op: Scatter, shape: Sequence[int], indices: Any, updates: Linear) -> Any:
    """Whether each update is the one that stays: their numbers, set and read again."""
    count = updates.type.size
    dtype = _numbering(count)
    numbers = reshape(iota(dtype, (count,), 0), updates.type.shape)
    none = number(-1, dtype)
    last = op.bind(full(none, shape), indices, numbers)
    return compare(CompareOp.EQ, _read(op, last, indices, updates, none), numbers)


def _numbering(count: int) -> DType:
    """Signed, so that -1 is the number of none."""
    return dtypes.int32 if count < 1 << 31 else dtypes.int64


@transpose.define(ScatterUpdate)
def _scatter_update(
    op: ScatterUpdate, cts: Sequence[Any], operands: Sequence[Any]
) -> tuple[Cotangent, ...]:
    base, src, slots = operands
    (ct,) = cts
    kept = taken = None
    if isinstance(base, Linear):
        kept = op.bind(ct, zeros(operand_type(src)), slots)
    if isinstance(src, Linear):
        taken = _rows(ct, slots, number(0, src.type.dtype))
        count = src.type.shape[0]
        if count > 1:
            taken = _if_last(op, taken, slots, type_of(ct).shape[0])
    return kept, taken, None


def _rows(x: Any, slots: Any, fill: Scalar) -> Any:
    """The rows of `x` that slots name; of slots outside `fill`."""
    rest = type_of(x).shape[1:]
    dims = GatherDims(tuple(range(1, len(rest) + 1)), (0,), (0,))
    gather = GeneralGather(dims, (1, *rest), GatherMode.FILL, fill)
    return gather.bind(x, reshape(slots, (*type_of(slots).shape, 1)))


def _if_last(op: ScatterUpdate, taken: Any, slots: Any, rows: int) -> Any:
    """`taken` for the last slot of a row, zeros for the others."""
    count, *rest = type_of(taken).shape
    dtype = _numbering(count)
    numbers, none = iota(dtype, (count,), 0), number(-1, dtype)
    last = op.bind(full(none, (rows,)), numbers, slots)
    stays = compare(CompareOp.EQ, _rows(last, slots, none), numbers)
    spread = reshape(stays, (count, *[1] * len(rest)))
    return select(spread, taken, number(0, type_of(taken).dtype))


@transpose.define(DynamicUpdateSlice)
def _dynamic_update_slice(
    op: DynamicUpdateSlice, cts: Sequence[Any], operands: Sequence[Any]
) -> tuple[Cotangent, ...]:
    operand, update, *starts = operands
    (ct,) = cts
    whole, block = type_of(ct).shape, operand_type(update)
    kept = taken = None
    if isinstance(operand, Linear) and block.shape != whole:
        kept = op.bind(ct, zeros(block), *starts)
    if isinstance(update, Linear):
        is_whole = block.shape == whole
        taken = ct if is_whole else DynamicSlice(block.shape).bind(ct, *starts)
    return kept, taken, *[None] * len(starts)
