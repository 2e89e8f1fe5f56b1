"""Batching of the primitives that write at positions which are data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from poot.core import dtypes
from poot.core.dtypes import Scalar
from poot.core.ops.elementwise import BinaryOp, CompareOp
from poot.core.ops.index_dims import GatherDims, ScatterDims
from poot.core.ops.scatter import (
    DynamicUpdateSlice,
    Scatter,
    ScatterMode,
    ScatterOp,
    ScatterUpdate,
)
from poot.interpreters.batch.index_dims import (
    paired,
    vector_place,
    window_place,
    windowed,
    windows_before,
)
from poot.interpreters.batch.index_numbers import (
    index_vectors,
    into_pool,
    number_dtype,
)
from poot.interpreters.batch.indexing import before_vectors
from poot.interpreters.batch.table import (
    Axis,
    Batched,
    all_lifted,
    batch,
    example_type,
    in_front,
    inserted,
    merged,
    placed,
    split,
)
from poot.interpreters.primitives import (
    binary,
    cast,
    compare,
    move_axis,
    number,
    select,
    type_of,
)


@batch.define(Scatter)
def _scatter(
    op: Scatter, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> Batched:
    operand, indices, updates = operands
    axis, indices_axis, updates_axis = axes
    if axis is None:
        operand, axis = in_front(operand, None, size), 0
    if indices_axis is None:
        place = _window_place(op.dims.gather, operand, axis, updates_axis)
        dims, is_sorted = windowed(op.dims.gather, axis, place), op.indices_are_sorted
    else:
        indices, indices_axis, place = _matched(
            op.dims.gather, indices, indices_axis, updates, updates_axis
        )
        dims = paired(op.dims.gather, axis, indices_axis, place)
        # They are so within each example only.
        is_sorted = False
    whole = replace(op, dims=dims.scatter, indices_are_sorted=is_sorted)
    updates = placed(updates, updates_axis, place, size)
    return (whole.bind(operand, indices, updates),), (axis,)


def _window_place(dims: GatherDims, operand: Any, axis: int, updates_axis: Axis) -> int:
    """Where updates have the batch as an axis of windows: where it is, if it may be."""
    ndim = example_type(operand, axis).ndim
    if updates_axis is not None:
        before = sum(other < updates_axis for other in dims.offset_dims)
        if before == windows_before(dims, ndim, axis):
            return updates_axis
    return window_place(dims, ndim, axis)


def _matched(
    dims: GatherDims, indices: Any, axis: int, updates: Any, updates_axis: Axis
) -> tuple[Any, int, int]:
    """Indices with the batch where updates have it among their axes; both places."""
    ndim = example_type(updates, updates_axis).ndim
    if updates_axis is None:
        indices, axis = before_vectors(indices, axis)
        return indices, axis, vector_place(dims, ndim, axis)
    # Indices are moved rather than updates: they are fewer.
    target = sum(other < updates_axis for other in dims.batch_dims(ndim))
    return move_axis(indices, axis, target), target, updates_axis


@batch.define(DynamicUpdateSlice)
def _dynamic_update_slice(
    op: DynamicUpdateSlice, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> Batched:
    (x, update, *starts), (axis, update_axis, *start_axes) = operands, axes
    whole = example_type(x, axis).shape
    block = example_type(update, update_axis).shape
    if whole == block:
        place = 0 if update_axis is None else update_axis
        return (placed(update, update_axis, place, size),), (place,)
    if all(start is None for start in start_axes):
        target = update_axis if axis is None else axis
        assert target is not None
        x, update = (
            placed(x, axis, target, size),
            placed(update, update_axis, target, size),
        )
        here = number(0, dtypes.int32)
        return (op.bind(x, update, *inserted(starts, target, here)),), (target,)
    if axis is None:
        x, axis = in_front(x, None, size), 0
    if update_axis is None:
        update, update_axis = in_front(update, None, size), 0
    # What spans an axis starts at 0 always.
    led = [n for n, taken in enumerate(block) if taken < whole[n]]
    vectors = index_vectors(
        size,
        [starts[n] for n in led],
        [start_axes[n] for n in led],
        [whole[n] - block[n] for n in led],
    )
    dims = ScatterDims(
        all_lifted(range(len(block)), update_axis),
        (),
        all_lifted(led, axis),
        (axis,),
        (0,),
    )
    # One window an example.
    write = Scatter(ScatterOp.SET, dims, ScatterMode.CLIP, True, True)
    return (write.bind(x, vectors, update),), (axis,)


@batch.define(ScatterUpdate)
def _scatter_update(
    op: ScatterUpdate, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> Batched:
    """The examples' rows as one pool, but where all write to the same slots of it."""
    (base, rows, slots), (axis, rows_axis, slots_axis) = operands, axes
    target = rows_axis if axis is None else axis
    if slots_axis is None and target:
        base = placed(base, axis, target, size)
        rows = placed(rows, rows_axis, target, size)
        return (op.bind(base, rows, slots),), (target,)
    base, rows = in_front(base, axis, size), in_front(rows, rows_axis, size)
    slots = in_front(slots, slots_axis, size)
    count = type_of(base).shape[1]
    pool = op.bind(merged(base, 0), merged(rows, 0), merged(_pooled(slots, count), 0))
    return (split(pool, 0, (size, count)),), (0,)


def _pooled(slots: Any, count: int) -> Any:
    """Slots [size, n] of examples as slots of the pool; those outside stay outside."""
    given = type_of(slots)
    dtype = number_dtype(given.dtype, given.shape[0] * count)
    slots = cast(slots, dtype)
    inside = compare(CompareOp.LT, slots, number(count, dtype))
    if dtype.is_signed:
        other = compare(CompareOp.GE, slots, number(0, dtype))
        inside = binary(BinaryOp.AND, inside, other)
    # -1, or as an unsigned number the largest.
    nowhere = Scalar(dtype, (1 << dtype.bits) - 1)
    return select(inside, into_pool(slots, count), nowhere)
