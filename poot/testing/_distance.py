"""How far two arrays of one dtype are apart, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from poot.core.dtypes import Kind, as_dtype

Array = np.ndarray[Any, Any]


def bits_of(x: Array) -> Array:
    """The elements as unsigned integers."""
    contiguous = np.ascontiguousarray(x).reshape(x.shape)
    return contiguous.view(np.dtype(f"u{x.dtype.itemsize}"))


# Comparing the small floats of ml_dtypes warns of their NaNs.
@np.errstate(all="ignore")
def is_nan(x: Array) -> Array:
    """Where elements are no numbers."""
    return np.asarray(x != x)


def ordinals(x: Array) -> Array:
    """Integers that count the floats in order, both zeros being 0 (as int64)."""
    width = x.dtype.itemsize * 8
    bits = bits_of(x).astype(np.uint64)
    sign = bits >> np.uint64(width - 1)
    magnitude = (bits & np.uint64((1 << (width - 1)) - 1)).astype(np.int64)
    return np.where(sign == 1, -magnitude, magnitude)


def _apart(one: Array, other: Array) -> Array:
    """The distance of int64 numbers, as f64: it may leave int64 but not uint64."""
    sizes = np.abs(one).astype(np.uint64), np.abs(other).astype(np.uint64)
    apart = np.maximum(*sizes) - np.minimum(*sizes)
    across = (one < 0) != (other < 0)
    return np.where(across, sizes[0] + sizes[1], apart).astype(np.float64)


def _is_number(x: Array) -> bool:
    return as_dtype(x.dtype).kind in (Kind.FLOAT, Kind.STORAGE)


@np.errstate(all="ignore")
def ulps(a: Array, b: Array) -> Array:
    """How many floats lie between, as f64; of integers and bools their difference.

    Both arrays have one dtype. NaN and NaN are 0 apart, NaN and a number infinitely
    far; the two zeros are 0 apart.
    """
    if not _is_number(a):
        return absolute(a, b)
    distance = _apart(ordinals(a), ordinals(b))
    distance = np.where(is_nan(a) & is_nan(b), 0.0, distance)
    return np.where(is_nan(a) != is_nan(b), np.inf, distance)


@np.errstate(all="ignore")
def absolute(a: Array, b: Array) -> Array:
    """The size of the difference, as f64; 0 of NaN and NaN, and of equal infinities."""
    if not _is_number(a):
        if a.dtype == np.uint64:
            return (np.maximum(a, b) - np.minimum(a, b)).astype(np.float64)
        return _apart(a.astype(np.int64), b.astype(np.int64))
    x, y = a.astype(np.float64), b.astype(np.float64)
    same = (x == y) | (is_nan(a) & is_nan(b))
    apart = np.where(is_nan(a) != is_nan(b), np.inf, np.abs(x - y))
    return np.where(same, 0.0, apart)


@np.errstate(all="ignore")
def relative(a: Array, b: Array) -> Array:
    """The size of the difference over that of `b`, as f64; 0 where they are equal."""
    apart = absolute(a, b)
    size = np.abs(b.astype(np.float64))
    return np.where((apart == 0) | np.isinf(apart), apart, apart / size)
