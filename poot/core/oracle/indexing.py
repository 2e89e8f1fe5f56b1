"""Primitives that read at positions which are data. They keep every bit."""

from __future__ import annotations

from typing import Any

import numpy as np

from poot.core import dtypes
from poot.core.ops.indexing import DynamicSlice, Gather, GatherMode
from poot.core.oracle.table import Arithmetic, Array, impl


def _as_int64(index: Array) -> Array:
    """Indices as int64; unsigned ones too large for it stay out of any range."""
    if index.dtype.kind == "u":
        wide = index.astype(np.uint64)
        return np.minimum(wide, np.uint64(np.iinfo(np.int64).max)).astype(np.int64)
    return index.astype(np.int64)


def _fill_value(numpy_dtype: np.dtype[Any]) -> Any:
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
    index, size = _as_int64(idx), src.shape[op.axis]
    shape = src.shape[: op.axis] + idx.shape + src.shape[op.axis + 1 :]
    fill = np.full(shape, _fill_value(src.dtype), src.dtype)
    if size == 0 or not fill.size:
        return fill
    taken = np.asarray(np.take(src, np.clip(index, 0, size - 1), axis=op.axis))
    if op.mode is not GatherMode.FILL:
        return taken
    inside = (index >= 0) & (index < size)
    trailing = (1,) * (src.ndim - op.axis - 1)
    return np.where(inside.reshape(inside.shape + trailing), taken, fill)


@impl.define(DynamicSlice)
def _dynamic_slice(op: DynamicSlice, _: Arithmetic, x: Array, *starts: Array) -> Array:
    block = []
    for start, size, limit in zip(starts, op.sizes, x.shape, strict=True):
        first = int(np.clip(_as_int64(start), 0, limit - size))
        block.append(slice(first, first + size))
    return np.asarray(x[tuple(block)])
