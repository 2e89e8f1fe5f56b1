"""Integer functions that NumPy has not, or defines otherwise. All wrap mod 2^n."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def _unsigned(x: Array) -> np.dtype[Any]:
    return np.dtype(f"u{x.dtype.itemsize}")


def divide(a: Array, b: Array) -> Array:
    """The quotient cut towards zero; 0 where b is 0; the lowest value over -1 wraps."""
    # NumPy's own result of the lowest value over -1 differs between versions.
    minus_one = (b == -1) if a.dtype.kind == "i" else np.zeros(b.shape, np.bool_)
    divisor = np.where((b == 0) | minus_one, b.dtype.type(1), b)
    floor = a // divisor
    inexact = floor * divisor != a
    cut = floor + (inexact & ((a < 0) != (divisor < 0))).astype(a.dtype)
    return np.where(b == 0, a.dtype.type(0), np.where(minus_one, np.negative(a), cut))


def remainder(a: Array, b: Array) -> Array:
    """What `divide` leaves, with the sign of a; 0 where b is 0."""
    rest: Array = np.where(b == 0, a.dtype.type(0), a - divide(a, b) * b)
    return rest


def integer_power(a: Array, b: Array) -> Array:
    """a to the b; for b < 0 the reciprocal cut towards zero, and 0 where a is 0."""
    base, exponent = np.broadcast_arrays(a, b)
    left = exponent.astype(_unsigned(b))
    result = np.ones(base.shape, a.dtype)
    square = base
    while left.any():
        result = np.where(left & 1, result * square, result)
        square = square * square
        left = left >> 1
    if a.dtype.kind == "u":
        return result
    sign = np.where((base == -1) & (exponent & 1 == 1), -1, 1)
    reciprocal = np.where(np.abs(base) == 1, sign, 0).astype(a.dtype)
    return np.where(exponent < 0, reciprocal, result)


def _shift(x: Array, amount: Array, left: bool) -> Array:
    """Shift the bits of unsigned x; nothing stays where `amount` is not in 0..n-1."""
    bits = x.dtype.itemsize * 8
    too_far = amount >= bits
    shift = np.where(too_far, 0, amount).astype(x.dtype)
    shifted = np.left_shift(x, shift) if left else np.right_shift(x, shift)
    return np.where(too_far, 0, shifted).astype(x.dtype)


def shift_left(a: Array, b: Array) -> Array:
    unsigned = _unsigned(a)
    return _shift(a.view(unsigned), b.view(unsigned), left=True).view(a.dtype)


def shift_right_logical(a: Array, b: Array) -> Array:
    unsigned = _unsigned(a)
    return _shift(a.view(unsigned), b.view(unsigned), left=False).view(a.dtype)


def shift_right_arithmetic(a: Array, b: Array) -> Array:
    """Copies of the sign come in from the left; unsigned numbers have sign 0."""
    if a.dtype.kind == "u":
        return shift_right_logical(a, b)
    most = a.dtype.itemsize * 8 - 1
    amount = np.minimum(b.view(_unsigned(b)), most).astype(a.dtype)
    shifted: Array = np.right_shift(a, amount)
    return shifted


def count_ones(x: Array) -> Array:
    flat = np.ascontiguousarray(x).reshape(-1, 1).view(np.uint8)
    ones: Array = np.unpackbits(flat, axis=1).sum(1)
    return ones.astype(x.dtype).reshape(x.shape)


def count_leading_zeros(x: Array) -> Array:
    """The zeros above the highest one; all n of them for 0."""
    smeared = x.view(_unsigned(x))
    bits = x.dtype.itemsize * 8
    for shift in (1, 2, 4, 8, 16, 32):
        if shift < bits:
            smeared = smeared | (smeared >> smeared.dtype.type(shift))
    zeros: Array = bits - count_ones(smeared).astype(np.int64)
    return zeros.astype(x.dtype)
