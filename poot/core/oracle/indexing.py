"""Primitives that read at positions which are data. They keep every bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from poot.core import dtypes
from poot.core.ops.index_dims import GatherDims
from poot.core.ops.indexing import DynamicSlice, Gather, GatherMode, GeneralGather
from poot.core.oracle.table import Arithmetic, Array, impl


def as_int64(index: Array) -> Array:
    """Indices as int64; unsigned ones too large for it stay out of any range."""
    if index.dtype.kind == "u":
        wide = index.astype(np.uint64)
        return np.minimum(wide, np.uint64(np.iinfo(np.int64).max)).astype(np.int64)
    return index.astype(np.int64)


def fill_value(numpy_dtype: np.dtype[Any]) -> Any:
    """What stands for elements outside in mode FILL, if nothing else is given."""
    dtype = dtypes.as_dtype(numpy_dtype)
    if dtype.is_bool:
        return True
    if dtype.is_signed:
        return np.iinfo(numpy_dtype).min
    if dtype.is_unsigned:
        return np.iinfo(numpy_dtype).max
    return np.nan


@impl.define(Gather)
def _gather(op: Gather, _: Arithmetic, src: Array, idx: Array) -> Array:
    index, size = as_int64(idx), src.shape[op.axis]
    shape = src.shape[: op.axis] + idx.shape + src.shape[op.axis + 1 :]
    fill = np.full(shape, fill_value(src.dtype), src.dtype)
    if size == 0 or not fill.size:
        return fill
    taken = np.asarray(np.take(src, np.clip(index, 0, size - 1), axis=op.axis))
    if op.mode is not GatherMode.FILL:
        return taken
    inside = (index >= 0) & (index < size)
    trailing = (1,) * (src.ndim - op.axis - 1)
    return np.where(inside.reshape(inside.shape + trailing), taken, fill)


@impl.define(GeneralGather)
def _general_gather(
    op: GeneralGather, _: Arithmetic, operand: Array, indices: Array
) -> Array:
    fill = fill_value(operand.dtype) if op.fill is None else op.fill.array
    places, inside = window_places(op.dims, op.slice_sizes, operand.shape, indices)
    shape = np.broadcast_shapes(inside.shape, *(place.shape for place in places))
    if not operand.size:
        return np.full(shape, fill, operand.dtype)
    taken = operand[tuple(places)]
    if op.mode is GatherMode.FILL:
        taken = np.where(inside, taken, np.asarray(fill, operand.dtype))
    return np.broadcast_to(taken, shape)


def window_places(
    dims: GatherDims, window: Sequence[int], operand: Sequence[int], indices: Array
) -> tuple[list[Array], Array]:
    """Where a gather reads: a place along each axis of an operand of that shape.

    Also whether the window lies wholly inside; the places are those of windows that are
    moved there. All broadcast to the shape of the result.
    """
    ndim, rank = len(operand), len(dims.offset_dims) + indices.ndim - 1
    batch_dims = dims.batch_dims(rank)

    def spread(per_vector: Array) -> Array:
        """An array of one element an index vector, along the axes of the result."""
        shape = [1] * rank
        for axis, size in zip(batch_dims, per_vector.shape, strict=True):
            shape[axis] = size
        return per_vector.reshape(shape)

    places: list[Array] = [np.zeros((1,) * rank, np.int64) for _ in range(ndim)]
    inside: Array = spread(np.ones(indices.shape[:-1], np.bool_))
    for axis, place in zip(dims.window_dims(ndim), dims.offset_dims, strict=True):
        along = [-1 if other == place else 1 for other in range(rank)]
        places[axis] = np.arange(window[axis]).reshape(along)
    for axis, start in zip(
        dims.start_index_map, np.moveaxis(indices, -1, 0), strict=True
    ):
        first, last = spread(as_int64(start)), operand[axis] - window[axis]
        inside = inside & (first >= 0) & (first <= last)
        places[axis] = places[axis] + np.clip(first, 0, max(last, 0))
    counts = np.indices(indices.shape[:-1], sparse=True)
    batching = zip(
        dims.operand_batching_dims, dims.start_indices_batching_dims, strict=True
    )
    for axis, other in batching:
        places[axis] = spread(counts[other])
    return places, inside


@impl.define(DynamicSlice)
def _dynamic_slice(op: DynamicSlice, _: Arithmetic, x: Array, *starts: Array) -> Array:
    block = []
    for start, size, limit in zip(starts, op.sizes, x.shape, strict=True):
        first = int(np.clip(as_int64(start), 0, limit - size))
        block.append(slice(first, first + size))
    return np.asarray(x[tuple(block)])
