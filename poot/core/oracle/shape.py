"""Shape primitives. They move elements, so every bit stays."""

from __future__ import annotations

import numpy as np

from poot.core.conversion import convert
from poot.core.ops.shape import (
    Broadcast,
    Concat,
    Iota,
    Pad,
    Reshape,
    Reverse,
    Slice,
    Transpose,
)
from poot.core.oracle.table import Arithmetic, Array, impl


@impl.define(Broadcast)
def _broadcast(op: Broadcast, _: Arithmetic, x: Array) -> Array:
    return np.broadcast_to(x, op.shape)


@impl.define(Reshape)
def _reshape(op: Reshape, _: Arithmetic, x: Array) -> Array:
    return x.reshape(op.shape)


@impl.define(Transpose)
def _transpose(op: Transpose, _: Arithmetic, x: Array) -> Array:
    return x.transpose(op.perm)


@impl.define(Slice)
def _slice(op: Slice, _: Arithmetic, x: Array) -> Array:
    taken = slice(op.start, op.end, op.stride)
    return x[(slice(None),) * op.axis + (taken,)]


@impl.define(Concat)
def _concat(op: Concat, _: Arithmetic, *xs: Array) -> Array:
    return np.concatenate(xs, axis=op.axis)


@impl.define(Pad)
def _pad(op: Pad, _: Arithmetic, x: Array, value: Array) -> Array:
    shape, sources, targets = [], [], []
    for size, (low, high, interior) in zip(x.shape, op.config, strict=True):
        padded = size + max(size - 1, 0) * interior + low + high
        source = np.arange(size)
        target = low + source * (interior + 1)
        stays = (target >= 0) & (target < padded)
        shape.append(padded)
        sources.append(source[stays])
        targets.append(target[stays])
    result = np.full(shape, value)
    result[np.ix_(*targets)] = x[np.ix_(*sources)]
    return result


@impl.define(Reverse)
def _reverse(op: Reverse, _: Arithmetic, x: Array) -> Array:
    return np.flip(x, op.axes)


@impl.define(Iota)
def _iota(op: Iota, _: Arithmetic) -> Array:
    shape = [1] * len(op.shape)
    shape[op.axis] = op.shape[op.axis]
    indices = np.arange(op.shape[op.axis], dtype=np.int64)
    return np.broadcast_to(convert(indices, op.dtype.numpy).reshape(shape), op.shape)
