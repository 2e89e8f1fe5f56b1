"""Primitives that read at positions which are data, in JAX."""

from __future__ import annotations

from typing import Any

import numpy as np

from poot.core.dtypes import as_dtype
from poot.core.ops.indexing import DynamicSlice, Gather, GatherMode, GeneralGather
from poot.core.oracle.indexing import fill_value
from poot.core.types import TensorType
from poot.testing._jax_table import jax

_MODES = {
    GatherMode.CLIP: "clip",
    GatherMode.FILL: "fill",
    GatherMode.PROMISE: "promise_in_bounds",
}


@jax.define(Gather)
def _gather(op: Gather, j: Any, src: Any, idx: Any) -> Any:
    """A negative index of JAX's `take` counts from the end: here it lies outside."""
    size = src.shape[op.axis]
    if op.mode is not GatherMode.FILL:
        return j.numpy.take(src, idx, op.axis, mode="clip")
    wide = idx.astype(np.int64)
    outside = j.numpy.where(wide < 0, size, wide)
    return j.numpy.take(src, outside, op.axis, mode="fill")


@jax.define(DynamicSlice)
def _dynamic_slice(op: DynamicSlice, j: Any, x: Any, *starts: Any) -> Any:
    """A negative start of JAX's counts from the end: here it is clamped to 0."""
    clamped = [j.numpy.maximum(start, 0) for start in starts]
    return j.lax.dynamic_slice(x, clamped, op.sizes)


@jax.define(GeneralGather)
def _general_gather(op: GeneralGather, j: Any, operand: Any, indices: Any) -> Any:
    fill = fill_value(operand.dtype) if op.fill is None else op.fill.array[()]
    if not operand.size:
        # JAX refuses operands without elements.
        types = (TensorType(x.shape, as_dtype(x.dtype)) for x in (operand, indices))
        return j.numpy.full(op.infer(*types).shape, fill, operand.dtype)
    dims = j.lax.GatherDimensionNumbers(
        op.dims.offset_dims,
        op.dims.collapsed_slice_dims,
        op.dims.start_index_map,
        op.dims.operand_batching_dims,
        op.dims.start_indices_batching_dims,
    )
    mode = _MODES[op.mode]
    sizes = op.slice_sizes
    return j.lax.gather(operand, indices, dims, sizes, mode=mode, fill_value=fill)
