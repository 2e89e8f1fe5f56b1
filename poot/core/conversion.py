"""What a conversion of elements means, on NumPy arrays: one rounding, from any dtype.

NumPy and ml_dtypes convert to the small floats by way of f32, which rounds twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# NumPy's own floats: those to which `astype` rounds f64 once.
_NATIVE_FLOATS = (np.dtype("f2"), np.dtype("f4"), np.dtype("f8"))
_EXACT_IN_F64 = 53


def convert(x: Array, to: np.dtype[Any]) -> Array:
    """The elements in another dtype, as `Cast` says.

    Floats round to nearest even; float to integer saturates and NaN gives 0; integer
    to integer wraps; to bool: not equal to zero. Subnormals stay.
    """
    if x.dtype == to:
        return x
    if to.kind == "b":
        is_wide = x.dtype.itemsize == 8
        return np.asarray(x != 0 if is_wide else x.astype(np.float64) != 0)
    if x.dtype.kind in "biu":
        return x.astype(to) if to.kind in "iu" else _integer_to_float(x, to)
    wide = x.astype(np.float64)
    return _saturate(wide, to) if to.kind in "iu" else round_float(wide, to)


def round_float(x: Array, to: np.dtype[Any]) -> Array:
    """F64 to another float dtype with one rounding, to nearest even."""
    if to in _NATIVE_FLOATS:
        return x.astype(to)
    # Rounding to odd on the way leaves enough of the lost bits that the second rounding
    # is the only one that counts.
    return _to_odd_f32(x).astype(to)


def _to_odd_f32(x: Array) -> Array:
    nearest = x.astype(np.float32)
    beyond = np.abs(nearest.astype(np.float64)) > np.abs(x)
    toward_zero = np.where(beyond, np.nextafter(nearest, np.float32(0)), nearest)
    inexact = (toward_zero != x) & ~np.isnan(x)
    odd: Array = toward_zero.view(np.uint32) | inexact
    return odd.view(np.float32)


def _integer_to_float(x: Array, to: np.dtype[Any]) -> Array:
    if x.dtype.itemsize < 8 or to == np.float64:
        return round_float(x.astype(np.float64), to)
    negative = x < 0
    magnitude = np.where(negative, np.negative(x), x).astype(np.uint64)
    # Beyond 2^53 an f64 loses bits: a sticky bit keeps the later rounding right.
    sticky = ((magnitude & 0x7FF) != 0).astype(np.uint64) << np.uint64(11)
    rounded = (magnitude & ~np.uint64(0x7FF)) | sticky
    exact = np.where(magnitude >> np.uint64(_EXACT_IN_F64) == 0, magnitude, rounded)
    signed = np.where(negative, -1.0, 1.0) * exact.astype(np.float64)
    return round_float(signed, to)


def int_to_odd_f64(x: int) -> float:
    """A Python int as f64, cut, with an odd last bit if that lost anything.

    So a further rounding to a narrower float is the only one that counts.
    OverflowError beyond f64.
    """
    excess = abs(x).bit_length() - _EXACT_IN_F64
    if excess <= 0:
        return float(x)
    kept, lost = divmod(abs(x), 1 << excess)
    magnitude = float((kept | bool(lost)) << excess)
    return -magnitude if x < 0 else magnitude


def _saturate(x: Array, to: np.dtype[Any]) -> Array:
    """F64 to an integer dtype: cut the fraction, saturate; NaN gives 0."""
    low, high = np.iinfo(to).min, np.iinfo(to).max
    cut = np.trunc(x)
    # high + 1 is a power of two, and exact in f64 where `high` need not be.
    above, below = cut >= float(high + 1), cut <= float(low)
    inside = ~(above | below | np.isnan(x))
    result = np.where(inside, cut, 0.0).astype(to)
    return np.where(above, to.type(high), np.where(below, low, result)).astype(to)
