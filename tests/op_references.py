"""What primitives give, by plain Python or NumPy and apart from the oracle."""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from poot.core.dtypes import DType, as_dtype
from poot.core.op import Op
from poot.testing import ordinals
from tests.numerics import Array

Reference = Callable[..., Any]


def native(function: Callable[..., Any]) -> Reference:
    """NumPy's function in f32 (f64 for f64), rounded to the dtype."""

    def reference(op: Op, *operands: Array) -> Array:
        dtype = operands[0].dtype
        wide = np.float64 if dtype == np.float64 else np.float32
        return np.asarray(function(*(x.astype(wide) for x in operands))).astype(dtype)

    return reference


def unchanged(function: Callable[..., Any]) -> Reference:
    """NumPy's function on the operands as they are."""
    return lambda op, *operands: np.asarray(function(*operands))


def on_integers(function: Callable[..., int]) -> Reference:
    """A function of Python's integers, its results taken mod 2^n."""

    def reference(op: Op, *operands: Array) -> Array:
        dtype = operands[0].dtype
        bits = dtype.itemsize * 8
        unsigned = np.dtype(f"u{dtype.itemsize}")
        arrays = np.broadcast_arrays(*operands)
        columns = [x.ravel().tolist() for x in arrays]
        results = [
            function(bits, *numbers) % (1 << bits)
            for numbers in zip(*columns, strict=True)
        ]
        return np.array(results, unsigned).view(dtype).reshape(arrays[0].shape)

    return reference


def on_floats(function: Callable[..., float]) -> Reference:
    """A function of Python's floats whose results the dtype holds exactly."""

    def reference(op: Op, *operands: Array) -> Array:
        arrays = np.broadcast_arrays(*operands)
        columns = [x.astype(np.float64).ravel().tolist() for x in arrays]
        results = [function(*numbers) for numbers in zip(*columns, strict=True)]
        with np.errstate(all="ignore"):
            made = np.array(results, np.float64).astype(operands[0].dtype)
        return made.reshape(arrays[0].shape)

    return reference


def by_kind(
    *, floats: Reference, integers: Reference, bools: Reference | None = None
) -> Reference:
    """One reference for floats, another for integers."""

    def reference(op: Op, *operands: Array) -> Array:
        dtype = as_dtype(operands[0].dtype)
        if dtype.is_float:
            return floats(op, *operands)
        chosen = bools if dtype.is_bool and bools else integers
        return chosen(op, *operands)

    return reference


def sign(x: float) -> float:
    return x if x == 0 or x != x else math.copysign(1.0, x)


def largest(a: float, b: float) -> float:
    if a != a or b != b:
        return math.nan
    return max(a, b, key=lambda x: (x, math.copysign(1.0, x)))


def smallest(a: float, b: float) -> float:
    return -largest(-a, -b)


def clamp(low: float, x: float, high: float) -> float:
    return smallest(largest(x, low), high)


def divide(bits: int, a: int, b: int) -> int:
    if b == 0:
        return 0
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def remainder(bits: int, a: int, b: int) -> int:
    return a - divide(bits, a, b) * b if b else 0


def power(bits: int, a: int, b: int) -> int:
    if b >= 0:
        return pow(a, b, 1 << bits)
    return {1: 1, -1: -1 if b % 2 else 1}.get(a, 0)


def shift_left(bits: int, a: int, b: int) -> int:
    return a << b if 0 <= b < bits else 0


def shift_right(bits: int, a: int, b: int) -> int:
    return a >> (b if 0 <= b < bits else bits)


def shift_right_logical(bits: int, a: int, b: int) -> int:
    return (a % (1 << bits)) >> b if 0 <= b < bits else 0


def leading_zeros(bits: int, a: int) -> int:
    return bits - (a % (1 << bits)).bit_length()


def ones(bits: int, a: int) -> int:
    return (a % (1 << bits)).bit_count()


def greater_equal_unsigned(bits: int, a: int, b: int) -> int:
    return int(a % (1 << bits) >= b % (1 << bits))


def next_after(op: Op, a: Array, b: Array) -> Array:
    """The neighbour of a in the direction of b, by counting floats."""
    here, there = np.broadcast_arrays(ordinals(a), ordinals(b))
    width = a.dtype.itemsize * 8
    place = here + (there > here) - (there < here)
    sign_bit = np.where(place < 0, np.uint64(1) << np.uint64(width - 1), np.uint64(0))
    bits = np.abs(place).astype(np.uint64) | sign_bit
    result = bits.astype(np.dtype(f"u{a.dtype.itemsize}")).view(a.dtype)
    # From the smallest subnormal on to zero, the zero keeps the sign.
    result = np.where((place == 0) & (here != 0), np.copysign(result, a), result)
    result = np.where(here == there, np.broadcast_to(b, here.shape), result)
    either_nan = (a != a) | (b != b)
    return np.where(either_nan, np.array(np.nan, a.dtype), result)


_PRECISION = {
    "f16": (11, -14),
    "bf16": (8, -126),
    "f32": (24, -126),
    "f64": (53, -1022),
}


def nearest(value: Fraction, dtype: DType) -> float:
    """The float of the dtype nearest to an exact number, ties to even."""
    precision, least_exponent = _PRECISION[dtype.name]
    exponent = math.floor(math.log2(abs(value)))
    exponent -= Fraction(2) ** exponent > abs(value)
    exponent += Fraction(2) ** (exponent + 1) <= abs(value)
    unit = Fraction(2) ** (max(exponent, least_exponent) - precision + 1)
    rounded = round(value / unit) * unit
    if abs(rounded) >= Fraction(2) ** (2 - least_exponent):
        return math.copysign(math.inf, value)
    return math.copysign(float(rounded), value)


def _to_float(number: float, to: DType) -> float:
    if number != number or math.isinf(number) or number == 0:
        return number
    return nearest(Fraction(number), to)


def _to_integer(number: float, to: DType, wraps: bool) -> int:
    info = np.iinfo(to.numpy)
    if wraps:
        return int(number) % (1 << to.bits)
    if number != number:
        return 0
    limited = min(max(number, float(info.min)), float(info.max))
    return min(max(int(limited), int(info.min)), int(info.max)) % (1 << to.bits)


def convert(x: Array, to: DType) -> Array:
    """What Cast gives, element by element."""
    given = as_dtype(x.dtype)
    is_exact = given.is_integer or given.is_bool
    if to.name == "f8e8m0":
        with np.errstate(all="ignore"):
            return x.astype(np.float32).astype(to.numpy)
    numbers = x.ravel().tolist() if is_exact else x.astype(np.float64).ravel().tolist()
    if to.is_bool:
        return np.array([n != 0 for n in numbers], np.bool_).reshape(x.shape)
    if to.is_integer:
        made = [_to_integer(n, to, is_exact) for n in numbers]
        unsigned = np.array(made, np.dtype(f"u{to.itemsize}"))
        return unsigned.view(to.numpy).reshape(x.shape)
    if to.name.startswith("f8"):
        codes = [_to_float8(n, to) for n in numbers]
        return np.array(codes, np.uint8).view(to.numpy).reshape(x.shape)
    rounded = np.array([_to_float(n, to) for n in numbers], np.float64)
    return rounded.astype(to.numpy).reshape(x.shape)


@functools.cache
def _float8_table(to: DType) -> tuple[list[Fraction], int]:
    """The numbers from 0 up, by code, and the code of what is larger."""
    numbers = np.arange(128, dtype=np.uint8).view(to.numpy).astype(np.float64)
    finite = [Fraction(float(number)) for number in numbers[np.isfinite(numbers)]]
    # One more step on is where overflow begins to be nearer.
    return [*finite, 2 * finite[-1] - finite[-2]], len(finite)


def _to_float8(number: float, to: DType) -> int:
    """The code of the nearest 8-bit float, ties to even."""
    table, overflow = _float8_table(to)
    sign = 0x80 if math.copysign(1, number) < 0 else 0
    if number != number:
        return overflow if to.name == "f8e4m3fn" else overflow + 2
    if math.isinf(number) or abs(number) >= table[-1]:
        return sign | overflow
    exact = abs(Fraction(number))
    above = bisect.bisect_left(table, exact)
    below = max(above - 1, 0)
    up, down = table[above] - exact, exact - table[below]
    code = min((down, below % 2, below), (up, above % 2, above))[2]
    return sign | code


def bitcast(op: Any, x: Array) -> Array:
    """The bytes of x, read anew."""
    wanted = op.to.numpy
    given, size = x.dtype.itemsize, wanted.itemsize
    shape = x.shape
    if given > size:
        shape = (*shape, given // size)
    elif given < size:
        shape = shape[:-1]
    return np.frombuffer(x.tobytes(), wanted).reshape(shape)


def pad(op: Any, x: Array, value: Array) -> Array:
    """One axis after the other: spread out, then extend or cut both ends."""
    for axis, (low, high, interior) in enumerate(op.config):
        moved = np.moveaxis(x, axis, 0)
        pieces: list[Array] = []
        filler = np.full((1, *moved.shape[1:]), value)
        for row in range(moved.shape[0]):
            pieces += [filler] * (interior if row else 0) + [moved[row : row + 1]]
        pieces = [filler] * low + pieces + [filler] * high
        pieces = pieces[max(-low, 0) : len(pieces) - max(-high, 0)]
        joined = np.concatenate(pieces) if pieces else moved[:0]
        x = np.moveaxis(joined, 0, axis)
    return x


def gather(op: Any, src: Array, idx: Array) -> Array:
    """Index by index, in Python's integers."""
    size, rows = src.shape[op.axis], []
    empty_row = np.zeros(src.shape[: op.axis] + src.shape[op.axis + 1 :], src.dtype)
    for position in idx.ravel().tolist():
        if op.mode.value == "fill" and not 0 <= position < size:
            rows.append(np.full_like(empty_row, fill_value(src.dtype)))
        else:
            rows.append(np.take(src, min(max(position, 0), size - 1), op.axis))
    shape = src.shape[: op.axis] + idx.shape + src.shape[op.axis + 1 :]
    return (
        np.stack(rows, op.axis).reshape(shape) if rows else np.zeros(shape, src.dtype)
    )


def fill_value(numpy_dtype: np.dtype[Any]) -> Any:
    dtype = as_dtype(numpy_dtype)
    if dtype.is_bool:
        return True
    if dtype.is_integer:
        info = np.iinfo(numpy_dtype)
        return info.min if dtype.is_signed else info.max
    return math.nan


def dynamic_slice(op: Any, x: Array, *starts: Array) -> Array:
    for axis, (start, size) in enumerate(zip(starts, op.sizes, strict=True)):
        first = min(max(int(start), 0), x.shape[axis] - size)
        x = np.take(x, range(first, first + size), axis)
    return x
