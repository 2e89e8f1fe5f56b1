"""Distances in ulps, special values and random operands for tests of numbers."""

from __future__ import annotations

import zlib
from typing import Any

import ml_dtypes
import numpy as np

from poot.core.dtypes import DType, Kind, as_dtype, bfloat16, float16, float32
from poot.core.types import TensorType
from poot.testing import ulps as distances
from poot.testing._distance import bits_of, is_nan

Array = np.ndarray[Any, Any]

SMALLEST_NORMAL_F32 = 2.0**-126


def rng_of(name: str) -> np.random.Generator:
    """A generator that depends on the name of a test only."""
    return np.random.default_rng(zlib.crc32(name.encode()))


@np.errstate(all="ignore")
def ulps(a: Array, b: Array, floor: float = 0.0) -> Array:
    """How many floats apart; infinitely many where one is NaN, and between zeros.

    Numbers below `floor` are as far apart as there, where floats are not as dense.
    """
    assert a.dtype == b.dtype, (a.dtype, b.dtype)
    distance = distances(a, b)
    if floor:
        spacing = floor * float(ml_dtypes.finfo(a.dtype).eps)
        difference = np.abs(a.astype(np.float64) - b.astype(np.float64))
        small = (difference < 2 * floor) & ~is_nan(a) & ~is_nan(b)
        distance = np.where(small, np.minimum(distance, difference / spacing), distance)
    zeros_differ = (a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b))
    return np.where(zeros_differ, np.inf, distance)


@np.errstate(all="ignore")
def flushed(x: Array, edge: bool = False) -> Array:
    """Subnormals of f32, and of bf16 which shares its exponents, as zeros.

    With `edge` the smallest normal numbers too: devices flush either before rounding
    up to one of these or after.
    """
    if as_dtype(x.dtype) not in (float32, bfloat16):
        return x
    size, normal = np.abs(x.astype(np.float32)), np.float32(SMALLEST_NORMAL_F32)
    tiny = (size <= normal) if edge else (size < normal)
    return np.where(tiny, np.copysign(np.zeros((), x.dtype), x), x)


def assert_same_bits(actual: Any, expected: Array, where: str = "") -> None:
    """Equal in type and in every bit, but for the payloads of NaNs."""
    actual = np.asarray(actual)
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype), where
    same = bits_of(actual) == bits_of(expected)
    if as_dtype(expected.dtype).kind in (Kind.FLOAT, Kind.STORAGE):
        same |= is_nan(actual) & is_nan(expected)
    _report(same, actual, expected, where)


def assert_close(
    actual: Any,
    expected: Array,
    limit: float,
    where: str = "",
    flush: bool = False,
    floor: float = 0.0,
) -> None:
    """Equal in type, and floats within `limit` ulps, or those of `floor` below it.

    `flush` takes subnormals and the smallest normal numbers for zeros.
    """
    if not as_dtype(expected.dtype).is_float:
        assert_same_bits(actual, expected, where)
        return
    actual = np.asarray(actual)
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype), where
    one, other = actual, expected
    if flush:
        one, other = flushed(actual, edge=True), flushed(expected, edge=True)
    _report(ulps(one, other, floor) <= limit, actual, expected, where)


def _report(good: Array, actual: Array, expected: Array, where: str) -> None:
    if good.all():
        return
    bad = np.argwhere(~good)
    lines = [f"{where}: {len(bad)} of {good.size} elements differ"]
    for index in map(tuple, bad[:8]):
        a, e = actual[index], expected[index]
        apart = f" {ulps(a[None], e[None])[0]:.0f} ulps" if _measurable(e) else ""
        lines.append(f"  {list(map(int, index))}: given {a!r}, expected {e!r}{apart}")
    raise AssertionError("\n".join(lines))


def _measurable(element: Any) -> bool:
    return as_dtype(element.dtype).is_float


_COMMON = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.0, -2.5, 3.0, np.pi, 100.0, -1000.0)


def special_values(dtype: DType) -> Array:
    """The values of a dtype at which functions go wrong."""
    if dtype.is_bool:
        return np.array([False, True])
    if dtype.is_integer:
        low, high = int(np.iinfo(dtype.numpy).min), int(np.iinfo(dtype.numpy).max)
        near = {low, low + 1, high, high - 1, 0, 1, -1, 2, -2, 3, 7, -7, 100}
        near |= {dtype.bits - 1, dtype.bits, dtype.bits + 1}
        return np.array(sorted(v for v in near if low <= v <= high), dtype.numpy)
    patterns = _edge_patterns(dtype)
    edges = np.array(patterns, np.dtype(f"u{dtype.itemsize}")).view(dtype.numpy)
    common = np.array(_COMMON).astype(dtype.numpy)
    return np.concatenate([common, edges, -edges])


_EXPONENT_BITS = {"f16": 5, "bf16": 8, "f32": 8, "f64": 11}


def _edge_patterns(dtype: DType) -> list[int]:
    """Inf, NaN, largest, smallest normal, largest and smallest subnormal, next to 1."""
    if dtype.kind is Kind.STORAGE:
        return [1, 0x7F]
    exponent_bits = _EXPONENT_BITS[dtype.name]
    mantissa = dtype.bits - 1 - exponent_bits
    infinity = ((1 << exponent_bits) - 1) << mantissa
    one = ((1 << (exponent_bits - 1)) - 1) << mantissa
    quiet_nan = infinity | 1 << (mantissa - 1)
    smallest = 1 << mantissa
    return [
        infinity,
        quiet_nan,
        infinity - 1,
        smallest,
        smallest - 1,
        1,
        one - 1,
        one + 1,
    ]


def random_bits(rng: np.random.Generator, type: TensorType) -> Array:
    """Any bit patterns: every exponent, NaNs and infinities too."""
    if type.dtype.is_bool:
        return rng.integers(0, 2, type.shape).astype(np.bool_)
    raw = rng.integers(0, 256, (*type.shape, type.dtype.itemsize), np.uint8)
    return np.ascontiguousarray(raw).view(type.dtype.numpy)[..., 0]


def random_in(
    rng: np.random.Generator, type: TensorType, low: float, high: float
) -> Array:
    """Numbers of the dtype, evenly spread in [low, high]."""
    dtype = type.dtype
    if dtype.is_bool:
        return rng.integers(0, 2, type.shape).astype(np.bool_)
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        least, most = max(int(low), int(info.min)), min(int(high), int(info.max))
        return rng.integers(least, most, type.shape, dtype.numpy, endpoint=True)
    if dtype is float16:
        low, high = max(low, -65504.0), min(high, 65504.0)
    return rng.uniform(low, high, type.shape).astype(dtype.numpy)
