"""Convolution: one matrix product for each place in the window."""

from __future__ import annotations

import math

import numpy as np

from poot.core import dtypes
from poot.core.ops.conv import Conv
from poot.core.oracle.matmul import rounded_sums, wide_matmul
from poot.core.oracle.table import Arithmetic, Array, impl
from poot.core.types import TensorType


@impl.define(Conv)
def _conv(op: Conv, arithmetic: Arithmetic, x: Array, w: Array) -> Array:
    types = (TensorType(v.shape, dtypes.as_dtype(v.dtype)) for v in (x, w))
    shape = op.infer(*types).shape
    groups, parts = op.feature_group_count, op.batch_group_count
    padded = _padded(op, x)
    # [groups, N, C, *spatial] and [groups, O, C, *window], groups of either kind.
    images = padded.reshape(
        (parts, x.shape[0] // parts, groups, w.shape[1], *padded.shape[2:])
    )
    images = images[0].swapaxes(0, 1) if parts == 1 else images[:, :, 0]
    count = groups * parts
    weights = w.reshape((count, w.shape[0] // count, *w.shape[1:]))
    places = shape[2:]
    total = np.zeros(
        (count, weights.shape[1], shape[0] * math.prod(places)), np.float64
    )
    if x.dtype.kind in "iu":
        total = total.astype(np.uint64)
    for window in np.ndindex(w.shape[2:]):
        seen = images[
            (slice(None),) * 3
            + tuple(
                slice(
                    at * hole,
                    at * hole + (size - 1) * step + 1 if size else at * hole,
                    step,
                )
                for at, hole, size, step in zip(
                    window, op.rhs_dilation, places, op.strides, strict=True
                )
            )
        ]
        # [groups, C, N, *places], of which the last axes are the columns.
        columns = seen.swapaxes(1, 2).reshape((count, w.shape[1], total.shape[2]))
        total += wide_matmul(arithmetic, weights[(..., *window)], columns)
    made = total.reshape((count, weights.shape[1], shape[0], *places))
    made = np.moveaxis(made, 2, 0).reshape(shape)
    return rounded_sums(arithmetic, op.out, x, made)


def _padded(op: Conv, x: Array) -> Array:
    """`x` with its holes and padding filled with zeros, or cropped."""
    for axis, ((low, high), hole) in enumerate(
        zip(op.padding, op.lhs_dilation, strict=True), 2
    ):
        size = x.shape[axis]
        whole = (size - 1) * hole + 1 if size else 0
        spread = np.zeros((*x.shape[:axis], whole, *x.shape[axis + 1 :]), x.dtype)
        spread[(slice(None),) * axis + (slice(None, None, hole),)] = x
        widths = [(0, 0)] * x.ndim
        widths[axis] = (max(low, 0), max(high, 0))
        wide = np.pad(spread, widths)
        kept = slice(max(-low, 0), wide.shape[axis] - max(-high, 0))
        x = wide[(slice(None),) * axis + (kept,)]
    return x
