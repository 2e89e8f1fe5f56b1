"""Primitives that write at positions which are data."""

from __future__ import annotations

import math

import numpy as np

from poot.core.ops.scatter import (
    DynamicUpdateSlice,
    Scatter,
    ScatterMode,
    ScatterOp,
    ScatterUpdate,
)
from poot.core.oracle.indexing import as_int64, window_places
from poot.core.oracle.order import from_order, in_order
from poot.core.oracle.table import Arithmetic, Array, impl


@impl.define(Scatter)
def _scatter(
    op: Scatter, arithmetic: Arithmetic, operand: Array, indices: Array, updates: Array
) -> Array:
    """By flat places in the operand, one an update, in the order of the updates."""
    window = op.dims.window(operand.ndim, updates.shape)
    dims = op.dims.gather
    places, inside = window_places(dims, window, operand.shape, indices)
    steps = [math.prod(operand.shape[axis + 1 :]) for axis in range(operand.ndim)]
    zero = np.zeros(updates.shape, np.int64)
    flat = sum((p * s for p, s in zip(places, steps, strict=True)), zero).ravel()
    kept = np.broadcast_to(inside, updates.shape).ravel()
    if op.mode is ScatterMode.CLIP:
        kept = np.full(flat.shape, bool(operand.size))
    result = operand.ravel().copy()
    _combine(op.op, arithmetic, result, flat[kept], updates.ravel()[kept])
    return result.reshape(operand.shape)


def _combine(
    op: ScatterOp, arithmetic: Arithmetic, result: Array, places: Array, updates: Array
) -> None:
    """Combine each update into the element at its place, one after the other."""
    if op is ScatterOp.SET:
        _set(result, places, updates)
        return
    met = np.unique(places)
    if op in (ScatterOp.ADD, ScatterOp.MUL):
        wide, values = arithmetic.widen(result), arithmetic.widen(updates)
        wide = wide.copy()
        with np.errstate(all="ignore"):
            (np.add if op is ScatterOp.ADD else np.multiply).at(wide, places, values)
        result[met] = arithmetic.round(wide[met], result.dtype)
        return
    largest = op is ScatterOp.MAX
    wide, values = in_order(result, largest).copy(), in_order(updates, largest)
    (np.maximum if largest else np.minimum).at(wide, places, values)
    result[met] = from_order(wide[met], result.dtype)


def _set(result: Array, places: Array, updates: Array) -> None:
    """Write updates; of several for one place, the last."""
    order = np.argsort(places, kind="stable")
    sorted_ = places[order]
    is_last = np.append(sorted_[1:] != sorted_[:-1], True)[: places.size]
    result[sorted_[is_last]] = updates[order[is_last]]


@impl.define(DynamicUpdateSlice)
def _dynamic_update_slice(
    op: DynamicUpdateSlice, _: Arithmetic, x: Array, update: Array, *starts: Array
) -> Array:
    result, block = x.copy(), []
    for start, size, limit in zip(starts, update.shape, x.shape, strict=True):
        first = int(np.clip(as_int64(start), 0, limit - size))
        block.append(slice(first, first + size))
    result[tuple(block)] = update
    return result


@impl.define(ScatterUpdate)
def _scatter_update(
    op: ScatterUpdate, _: Arithmetic, base: Array, src: Array, slots: Array
) -> Array:
    result, places = base.copy(), as_int64(slots)
    inside = (places >= 0) & (places < base.shape[0])
    _set(result, places[inside], src[inside])
    return result
