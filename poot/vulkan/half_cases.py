"""Hard cases of the conversions of 16-bit floats, and whether results are right."""

from __future__ import annotations

from typing import Any

import numpy as np

from poot.core.dtypes import DType, float16

Array = np.ndarray[Any, Any]

_SPECIAL32 = np.array(
    [
        *(0x00000000, 0x7F800000, 0x7F7FFFFF, 0x00000001, 0x007FFFFF, 0x00800000),
        # NaNs: quiet, signalling, and those whose upper bits alone are infinity's.
        *(0x7FC00000, 0x7F800001, 0x7F801FFF, 0x7F80FFFF, 0x7FFFFFFF),
        *(0x3F800000, 0x477FE000, 0x47800000, 0x33000000, 0x33800000, 0x38800000),
    ],
    np.uint32,
)


def half_bits(count: int) -> Array:
    """Bits of f16: all subnormals and zeros, infinities, NaNs, and of every exponent.

    An even number of at least 4096; each stands beside its negative.
    """
    special = np.array([0x7C00, 0x7C01, 0x7D55, 0x7E00, 0x7FFF])
    normal = np.linspace(0x0400, 0x7BFF, count // 2 - 0x400 - len(special))
    positive = [np.arange(0x400), special, normal.astype(np.int64)]
    return _with_negatives(np.concatenate(positive).astype(np.uint16), 0x8000)


def hard_roundings(dtype: DType, count: int) -> Array:
    """F32 midway between neighbours of f16 or bf16, next to that, and special ones.

    All midpoints of subnormals, that beyond which numbers round to infinity, and some
    of every exponent. An even number of at least 8192; each beside its negative.
    """
    mantissa = 10 if dtype is float16 else 7
    largest = 0x7BFF if dtype is float16 else 0x7F7F
    places = (count // 2 - len(_SPECIAL32)) // 3
    normal = np.linspace(1 << mantissa, largest, places - (1 << mantissa))
    below = np.concatenate([np.arange(1 << mantissa), normal.astype(np.int64)])
    # The step to the next number, at the largest to what it would be.
    start = below - (below == largest)
    step = _numbers(start + 1, dtype) - _numbers(start, dtype)
    middle = (_numbers(below, dtype) + step / 2).astype(np.float32).view(np.uint32)
    near = [middle - 1, middle, middle + 1]
    filled = np.resize(_SPECIAL32, count // 2 - 3 * places)
    bits = _with_negatives(np.concatenate([*near, filled]), 0x80000000)
    return bits.view(np.float32)


def same_numbers(found: Array, right: Array) -> bool:
    """Equal in every bit, but for the payloads of NaNs."""
    bits = np.dtype(f"u{right.itemsize}")
    same = found.view(bits) == right.view(bits)
    nan = np.isnan(found) & np.isnan(right)
    return bool(np.all(same | (nan & (np.signbit(found) == np.signbit(right)))))


def _numbers(bits: Array, dtype: DType) -> Array:
    wide: Array = bits.astype(np.uint16).view(dtype.numpy).astype(np.float64)
    return wide


def _with_negatives(bits: Array, sign: int) -> Array:
    pairs: Array = np.stack([bits, bits | bits.dtype.type(sign)], axis=1).reshape(-1)
    return pairs
