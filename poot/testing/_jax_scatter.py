"""Primitives that write at positions which are data, in JAX."""

from __future__ import annotations

from typing import Any

import numpy as np

from poot.core.ops.scatter import (
    DynamicUpdateSlice,
    Scatter,
    ScatterMode,
    ScatterOp,
    ScatterUpdate,
)
from poot.testing._jax_table import jax

_NAMES = {
    ScatterOp.SET: "scatter",
    ScatterOp.ADD: "scatter_add",
    ScatterOp.MUL: "scatter_mul",
    ScatterOp.MIN: "scatter_min",
    ScatterOp.MAX: "scatter_max",
}
_MODES = {
    ScatterMode.CLIP: "clip",
    ScatterMode.DROP: "drop",
    ScatterMode.PROMISE: "promise_in_bounds",
}


@jax.define(Scatter)
def _scatter(op: Scatter, j: Any, operand: Any, indices: Any, updates: Any) -> Any:
    dims = j.lax.ScatterDimensionNumbers(
        op.dims.update_window_dims,
        op.dims.inserted_window_dims,
        op.dims.scatter_dims_to_operand_dims,
        op.dims.operand_batching_dims,
        op.dims.scatter_indices_batching_dims,
    )
    scatter = getattr(j.lax, _NAMES[op.op])
    return scatter(operand, indices, updates, dims, mode=_MODES[op.mode])


@jax.define(DynamicUpdateSlice)
def _dynamic_update_slice(
    op: DynamicUpdateSlice, j: Any, x: Any, update: Any, *starts: Any
) -> Any:
    """A negative start of JAX's counts from the end: here it is clamped to 0."""
    clamped = [j.numpy.maximum(start, 0) for start in starts]
    return j.lax.dynamic_update_slice(x, update, clamped)


@jax.define(ScatterUpdate)
def _scatter_update(op: ScatterUpdate, j: Any, base: Any, src: Any, slots: Any) -> Any:
    """A negative index of JAX's counts from the end: here it lies outside."""
    wide = slots.astype(np.int64)
    return base.at[j.numpy.where(wide < 0, base.shape[0], wide)].set(src, mode="drop")
