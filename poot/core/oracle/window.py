"""The elements under a moving window, combined."""

from __future__ import annotations

from typing import Any

import numpy as np

from poot.core.dtypes import as_dtype
from poot.core.ops.window import ReduceWindow, WindowOp, window_identity
from poot.core.oracle.order import from_order, in_order
from poot.core.oracle.table import Arithmetic, Array, impl

_W = WindowOp


def _under_windows(
    op: ReduceWindow, x: Array, neutral: Any, combine: np.ufunc
) -> Array:
    """All axes one after the other, in the dtype of `x`."""
    for axis in range(x.ndim):
        x = _along(op, axis, x, neutral, combine)
    return x


def _along(
    op: ReduceWindow, axis: int, x: Array, neutral: Any, combine: np.ufunc
) -> Array:
    lifted = _filled(op, axis, np.moveaxis(x, axis, -1), neutral)
    dilation = op.window_dilation[axis]
    reach = (op.window[axis] - 1) * dilation + 1
    if lifted.shape[-1] < reach:
        empty = np.empty((*lifted.shape[:-1], 0), x.dtype)
        return np.moveaxis(empty, -1, axis)
    views = np.lib.stride_tricks.sliding_window_view(lifted, reach, -1)
    taken = views[..., :: op.strides[axis], ::dilation]
    with np.errstate(all="ignore"):
        combined = combine.reduce(taken, -1, x.dtype)
    return np.moveaxis(combined, -1, axis)


def _filled(op: ReduceWindow, axis: int, x: Array, neutral: Any) -> Array:
    """The last axis with what padding and base dilation put between and around."""
    (low, high), dilation = op.padding[axis], op.base_dilation[axis]
    count = (x.shape[-1] - 1) * dilation + 1 if x.shape[-1] else 0
    ends = max(low, 0), max(high, 0)
    full = np.full((*x.shape[:-1], sum(ends) + count), neutral, x.dtype)
    full[..., ends[0] : ends[0] + count : dilation] = x
    return full[..., max(-low, 0) : full.shape[-1] - max(-high, 0)]


@impl.define(ReduceWindow[_W.SUM])
def _sum(op: ReduceWindow, arithmetic: Arithmetic, x: Array) -> Array:
    wide = _under_windows(op, arithmetic.widen(x), 0, np.add)
    # A sum starts from +0, so that it is never -0.
    return arithmetic.round(wide + wide.dtype.type(0), x.dtype)


@impl.define(ReduceWindow[_W.PROD])
def _prod(op: ReduceWindow, arithmetic: Arithmetic, x: Array) -> Array:
    wide = _under_windows(op, arithmetic.widen(x), 1, np.multiply)
    return arithmetic.round(wide, x.dtype)


@impl.define(ReduceWindow[_W.MAX], ReduceWindow[_W.MIN])
def _extremum(op: ReduceWindow, _: Arithmetic, x: Array) -> Array:
    """An element, bit for bit: +0 is above -0, and a NaN beats all."""
    largest = op.op is _W.MAX
    identity = window_identity(op.op, as_dtype(x.dtype)).array
    (neutral,) = in_order(identity.reshape(1), largest)
    combine = np.maximum if largest else np.minimum
    found = _under_windows(op, in_order(x, largest), neutral, combine)
    return from_order(found, x.dtype)
