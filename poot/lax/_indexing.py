"""Windows read and written at positions that are data."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from poot.core import dtypes
from poot.core.errors import ShapeError
from poot.core.ops.index_dims import GatherDims, ScatterDims
from poot.core.ops.indexing import GatherMode, GeneralGather
from poot.core.ops.scatter import DynamicUpdateSlice, Scatter, ScatterOp
from poot.interpreters.arithmetic import negative, remainder
from poot.interpreters.index_plan import GatherScatterMode
from poot.interpreters.indexing import index_vectors
from poot.interpreters.methods import Value
from poot.interpreters.promotion import (
    as_value,
    cast_to,
    is_number,
    result_like,
    scalar,
)
from poot.interpreters.shaping import canonical_axis, expand_dims
from poot.lax._slicing import block_start

_Axes = Sequence[int]


class GatherDimensionNumbers(NamedTuple):
    """What the axes of a gather stand for; the last of the indices holds vectors."""

    offset_dims: _Axes
    collapsed_slice_dims: _Axes
    start_index_map: _Axes
    operand_batching_dims: _Axes = ()
    start_indices_batching_dims: _Axes = ()


class ScatterDimensionNumbers(NamedTuple):
    """What the axes of a scatter stand for; the last of the indices holds vectors."""

    update_window_dims: _Axes
    inserted_window_dims: _Axes
    scatter_dims_to_operand_dims: _Axes
    operand_batching_dims: _Axes = ()
    scatter_indices_batching_dims: _Axes = ()


def _tuples(dimension_numbers: Any) -> list[tuple[int, ...]]:
    return [tuple(map(operator.index, axes)) for axes in dimension_numbers]


def gather(
    operand: Any,
    start_indices: Any,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: str | GatherScatterMode | None = None,
    fill_value: Any = None,
) -> Value:
    """Windows of `slice_sizes` at index vectors, which do not wrap.

    Windows that leave the operand are moved inside; by mode "fill" they are
    `fill_value`: NaN (integers: the lowest or, unsigned, the highest value) if it is
    not given.
    """
    x, indices = as_value(operand, "lax.gather"), as_value(start_indices, "lax.gather")
    promised = GatherScatterMode.PROMISE_IN_BOUNDS
    gather = GatherScatterMode.from_any(promised if mode is None else mode).gather
    fill = None
    if gather is GatherMode.FILL and fill_value is not None:
        fill = scalar(np.asarray(fill_value).item(), x.type.dtype)
    sizes = tuple(map(operator.index, slice_sizes))
    op = GeneralGather(GatherDims(*_tuples(dimension_numbers)), sizes, gather, fill)
    return result_like(x, op.bind(x, indices))


def _scattered(
    op: ScatterOp,
    operand: Any,
    scatter_indices: Any,
    updates: Any,
    dimension_numbers: ScatterDimensionNumbers,
    indices_are_sorted: bool,
    unique_indices: bool,
    mode: Any,
) -> Value:
    where = f"lax.scatter ({op.value})"
    x, indices = as_value(operand, where), as_value(scatter_indices, where)
    given = as_value(updates, where)
    if is_number(updates):
        given = cast_to(given, x.type.dtype)
    made = Scatter(
        op,
        ScatterDims(*_tuples(dimension_numbers)),
        GatherScatterMode.from_any(mode).scatter,
        indices_are_sorted,
        unique_indices,
    )
    return result_like(x, made.bind(x, indices, given))


def scatter(
    operand: Any,
    scatter_indices: Any,
    updates: Any,
    dimension_numbers: ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | GatherScatterMode | None = None,
) -> Value:
    """The operand with windows replaced by updates; the last of several stays.

    Windows that leave the operand are dropped, or moved inside by mode "clip".
    """
    promises = indices_are_sorted, unique_indices, mode
    where = operand, scatter_indices, updates, dimension_numbers
    return _scattered(ScatterOp.SET, *where, *promises)


def scatter_add(
    operand: Any,
    scatter_indices: Any,
    updates: Any,
    dimension_numbers: ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | GatherScatterMode | None = None,
) -> Value:
    """The operand with updates added to windows, the same bits at every run.

    Windows that leave the operand are dropped, or moved inside by mode "clip".
    """
    promises = indices_are_sorted, unique_indices, mode
    where = operand, scatter_indices, updates, dimension_numbers
    return _scattered(ScatterOp.ADD, *where, *promises)


def scatter_mul(
    operand: Any,
    scatter_indices: Any,
    updates: Any,
    dimension_numbers: ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | GatherScatterMode | None = None,
) -> Value:
    """The operand with windows multiplied by updates.

    Windows that leave the operand are dropped, or moved inside by mode "clip".
    """
    promises = indices_are_sorted, unique_indices, mode
    where = operand, scatter_indices, updates, dimension_numbers
    return _scattered(ScatterOp.MUL, *where, *promises)


def scatter_min(
    operand: Any,
    scatter_indices: Any,
    updates: Any,
    dimension_numbers: ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | GatherScatterMode | None = None,
) -> Value:
    """The operand, or updates where these are smaller; NaN if one is.

    Windows that leave the operand are dropped, or moved inside by mode "clip".
    """
    promises = indices_are_sorted, unique_indices, mode
    where = operand, scatter_indices, updates, dimension_numbers
    return _scattered(ScatterOp.MIN, *where, *promises)


def scatter_max(
    operand: Any,
    scatter_indices: Any,
    updates: Any,
    dimension_numbers: ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | GatherScatterMode | None = None,
) -> Value:
    """The operand, or updates where these are larger; NaN if one is.

    Windows that leave the operand are dropped, or moved inside by mode "clip".
    """
    promises = indices_are_sorted, unique_indices, mode
    where = operand, scatter_indices, updates, dimension_numbers
    return _scattered(ScatterOp.MAX, *where, *promises)


def scatter_sub(
    operand: Any,
    scatter_indices: Any,
    updates: Any,
    dimension_numbers: ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | GatherScatterMode | None = None,
) -> Value:
    """The operand with updates subtracted from windows; else as `scatter_add`."""
    promises = indices_are_sorted, unique_indices, mode
    less = negative(updates)
    where = operand, scatter_indices, less, dimension_numbers
    return _scattered(ScatterOp.ADD, *where, *promises)


def dynamic_update_slice(operand: Any, update: Any, start_indices: Any) -> Value:
    """The operand with a block replaced; starts below 0 count from the end, then clamp.

    Starts are integers, one an axis, or an array of them.
    """
    where = "lax.dynamic_update_slice"
    x, given = as_value(operand, where), as_value(update, where)
    starts = list(start_indices)
    if not len(starts) == given.ndim == x.ndim:
        raise ShapeError(
            f"{where}: {len(starts)} starts and an update of {given.ndim} axes for "
            f"{x.ndim} axes; takes one of each an axis"
        )
    for axis, size in enumerate(given.shape):
        if size > x.shape[axis]:
            raise ShapeError(
                f"{where}: an update of size {size} along axis {axis} of {x.shape}"
            )
    if is_number(update):
        given = cast_to(given, x.type.dtype)
    wrapped = [
        block_start(start, x.shape[axis], given.shape[axis], axis, where)
        for axis, start in enumerate(starts)
    ]
    return result_like(x, DynamicUpdateSlice().bind(x, given, *wrapped))


def dynamic_update_slice_in_dim(
    operand: Any, update: Any, start_index: Any, axis: int
) -> Value:
    """The operand with a block of one axis replaced, from a start that is data."""
    x = as_value(operand, "lax.dynamic_update_slice_in_dim")
    place = canonical_axis(axis, x.ndim, "lax.dynamic_update_slice_in_dim")
    starts: list[Any] = [0] * x.ndim
    starts[place] = start_index
    return dynamic_update_slice(x, update, starts)


def dynamic_update_index_in_dim(
    operand: Any, update: Any, index: Any, axis: int
) -> Value:
    """The operand with what stands at one index of an axis replaced.

    The update may do without the axis, or have it with size 1.
    """
    where = "lax.dynamic_update_index_in_dim"
    x, given = as_value(operand, where), as_value(update, where)
    place = canonical_axis(axis, x.ndim, where)
    if given.ndim != x.ndim:
        given = expand_dims(given, place)
    return dynamic_update_slice_in_dim(x, given, index, place)


def index_take(src: Any, idxs: Sequence[Any], axes: Sequence[int]) -> Value:
    """The elements at integer arrays of one axis, one for each of `axes`; they wrap.

    The positions are the first axis of the result.
    """
    x = as_value(src, "lax.index_take")
    places = [canonical_axis(axis, x.ndim, "lax.index_take") for axis in axes]
    by_axis = {
        axis: cast_to(remainder(as_value(i), x.shape[axis]), dtypes.int32)
        for axis, i in zip(places, idxs, strict=True)
    }
    order = sorted(by_axis)
    count = by_axis[order[0]].shape
    offsets = tuple(range(1, x.ndim - len(order) + 1))
    sizes = [1 if axis in by_axis else size for axis, size in enumerate(x.shape)]
    dims = GatherDimensionNumbers(offsets, order, order)
    vectors = index_vectors([by_axis[axis] for axis in order], count)
    return gather(x, vectors, dims, sizes, mode="clip")
