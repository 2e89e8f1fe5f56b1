"""Floats as integers of the same order, -0 before +0 and NaN beyond all."""

from __future__ import annotations

from typing import Any

import numpy as np

from poot.core.oracle.table import Arithmetic, Array

_MAGNITUDE = np.int64(2**63 - 1)


def in_order(x: Array, nan_above: bool) -> Array:
    """Integers that compare as the elements do; NaN above all, or else below."""
    wide = Arithmetic().widen(x)
    if wide.dtype.kind != "f":
        return wide
    bits = wide.view(np.int64)
    beyond = _MAGNITUDE if nan_above else ~_MAGNITUDE
    return np.where(wide != wide, beyond, _flipped(bits))


def from_order(order: Array, dtype: np.dtype[Any]) -> Array:
    """The elements of which `in_order` made these integers."""
    if Arithmetic().widen(np.empty(0, dtype)).dtype.kind != "f":
        return order.astype(dtype)
    with np.errstate(all="ignore"):
        return _flipped(order).view(np.float64).astype(dtype)


def _flipped(bits: Array) -> Array:
    """Negative floats grow in magnitude as their order falls; its own inverse."""
    flipped: Array = bits ^ (bits >> np.int64(63) & _MAGNITUDE)
    return flipped
