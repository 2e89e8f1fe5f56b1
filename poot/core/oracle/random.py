"""Random words: Threefry-2x32-20 of Salmon et al. (SC 2011), on u32 that wrap."""

from __future__ import annotations

import numpy as np

from poot.core.ops.random import Threefry2x32
from poot.core.oracle.table import Arithmetic, Array, impl

_PARITY = np.uint32(0x1BD11BDA)
# Of the four rounds before an even and before an odd addition of the key.
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def _rotated(x: Array, places: int) -> Array:
    return (x << np.uint32(places)) | (x >> np.uint32(32 - places))


@impl.define(Threefry2x32)
def _threefry(
    op: Threefry2x32, _: Arithmetic, k1: Array, k2: Array, x1: Array, x2: Array
) -> tuple[Array, Array]:
    key = (k1, k2, k1 ^ k2 ^ _PARITY)
    # Together they have the shape of the result from here on.
    x, y = np.broadcast_arrays(x1 + k1, x2 + k2)
    for group in range(5):
        for places in _ROTATIONS[group % 2]:
            x = x + y
            y = _rotated(y, places) ^ x
        x = x + key[(group + 1) % 3]
        y = y + key[(group + 2) % 3] + np.uint32(group + 1)
    return np.asarray(x), np.asarray(y)
