"""Batching of the primitives that read at positions which are data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from poot.core import dtypes
from poot.core.ops.index_dims import GatherDims
from poot.core.ops.indexing import DynamicSlice, Gather, GatherMode, GeneralGather
from poot.interpreters.batch.index_dims import (
    paired,
    vector_place,
    window_place,
    windowed,
)
from poot.interpreters.batch.index_numbers import index_vectors
from poot.interpreters.batch.table import (
    Axis,
    Batched,
    batch,
    inserted,
    lifted,
)
from poot.interpreters.primitives import move_axis, number, reshape, type_of


@batch.define(Gather)
def _gather(
    op: Gather, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> Batched:
    (source, idx), (axis, indices_axis) = operands, axes
    taken = lifted(op.axis, axis)
    if indices_axis is not None:
        if axis is not None:
            return _gather_both(op, operands, axis, indices_axis)
        return (op.bind(source, idx),), (op.axis + indices_axis,)
    assert axis is not None
    place = axis if axis < taken else axis + type_of(idx).ndim - 1
    return (replace(op, axis=taken).bind(source, idx),), (place,)


def _gather_both(
    op: Gather, operands: Sequence[Any], axis: int, indices_axis: int
) -> Batched:
    """Windows of one element along the axis, of the example that the index is of."""
    source, idx = operands
    taken, shape, rank = lifted(op.axis, axis), type_of(source).shape, type_of(idx).ndim
    behind = range(op.axis + rank, rank + len(shape) - 2)
    general = GeneralGather(
        GatherDims(
            (*range(op.axis), *behind), (taken,), (taken,), (axis,), (indices_axis,)
        ),
        tuple(1 if n in (axis, taken) else size for n, size in enumerate(shape)),
        op.mode,
    )
    vectors = reshape(idx, (*type_of(idx).shape, 1))
    return (general.bind(source, vectors),), (op.axis + indices_axis,)


@batch.define(GeneralGather)
def _general_gather(
    op: GeneralGather, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> Batched:
    (operand, indices), (axis, indices_axis) = operands, axes
    if indices_axis is None:
        assert axis is not None
        place = window_place(op.dims, len(op.slice_sizes), axis)
        dims = windowed(op.dims, axis, place)
        window = inserted(op.slice_sizes, axis, size)
    else:
        indices, indices_axis = before_vectors(indices, indices_axis)
        rank = len(op.dims.offset_dims) + type_of(indices).ndim - 2
        place = vector_place(op.dims, rank, indices_axis)
        dims = paired(op.dims, axis, indices_axis, place)
        sizes = op.slice_sizes
        window = sizes if axis is None else inserted(sizes, axis, 1)
    general = replace(op, dims=dims, slice_sizes=window)
    return (general.bind(operand, indices),), (place,)


def before_vectors(indices: Any, axis: int) -> tuple[Any, int]:
    """Indices whose last axis holds the index vectors, and their batch's axis."""
    if axis == type_of(indices).ndim - 1:
        return move_axis(indices, axis, 0), 0
    return indices, axis


@batch.define(DynamicSlice)
def _dynamic_slice(
    op: DynamicSlice, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> Batched:
    (x, *starts), (axis, *start_axes) = operands, axes
    if all(start is None for start in start_axes):
        assert axis is not None
        whole = DynamicSlice(inserted(op.sizes, axis, size))
        here = number(0, dtypes.int32)
        return (whole.bind(x, *inserted(starts, axis, here)),), (axis,)
    shape = type_of(x).shape
    at = [lifted(n, axis) for n in range(len(op.sizes))]
    # What spans an axis starts at 0 always.
    led = [n for n, taken in enumerate(op.sizes) if taken < shape[at[n]]]
    if not led:
        return (x,), (axis,)
    vectors = index_vectors(
        size,
        [starts[n] for n in led],
        [start_axes[n] for n in led],
        [shape[at[n]] - op.sizes[n] for n in led],
    )
    pairs: tuple[tuple[int, ...], ...] = ((), ())
    window = op.sizes
    if axis is not None:
        pairs, window = ((axis,), (0,)), inserted(op.sizes, axis, 1)
    behind = tuple(range(1, 1 + len(op.sizes)))
    dims = GatherDims(behind, (), tuple(at[n] for n in led), *pairs)
    general = GeneralGather(dims, window, GatherMode.CLIP)
    return (general.bind(x, vectors),), (0,)
