"""Random bits, and numbers of which each in a range is as likely as any other."""

from __future__ import annotations

from typing import Any

import numpy as np

from poot import lax
from poot import numpy as pnp
from poot.core import dtypes
from poot.core.dtypes import DType, Scalar
from poot.core.errors import DTypeError
from poot.interpreters.methods import Value
from poot.interpreters.promotion import (
    as_value,
    cast_to,
    default_float,
    default_int,
    is_number,
)
from poot.interpreters.shaping import as_element_type
from poot.random._arguments import (
    draw_shape,
    float_dtype,
    integer_dtype,
    parameter,
    parameter_shape,
    probability_dtype,
    require_choice,
)
from poot.random._keys import KeyArray, child, random_words, single_key

UNSIGNED = {8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.uint32, 64: dtypes.uint64}


def bits(key: Any, shape: Any = (), dtype: Any = None) -> Value:
    """Random bits of an unsigned dtype (u32; u64 with enable_x64)."""
    wanted = UNSIGNED[integer_dtype("bits", None).bits]
    wanted = wanted if dtype is None else as_element_type(dtype)
    if not wanted.is_unsigned:
        raise DTypeError(
            f"poot.random.bits: dtype is {wanted}, takes an unsigned integer dtype"
        )
    sizes = draw_shape("bits", shape)
    return random_bits(single_key("bits", key), sizes, wanted.bits)


def random_bits(key: KeyArray, shape: tuple[int, ...], width: int) -> Value:
    """Random bits for each key and each element of a shape."""
    first, second = random_words(key, shape)
    if width < 64:
        return cast_to(lax.bitwise_xor(first, second), UNSIGNED[width])
    upper = lax.shift_left(cast_to(first, dtypes.uint64), 32)
    return lax.bitwise_or(upper, cast_to(second, dtypes.uint64))


# --- floats -----------------------------------------------------------------


def uniform(
    key: Any,
    shape: Any = (),
    dtype: Any = None,
    minval: Any = 0.0,
    maxval: Any = 1.0,
) -> Value:
    """Floats from `minval` on and below `maxval`, which are repeated to the shape."""
    wanted = float_dtype("uniform", dtype)
    sizes = parameter_shape("uniform", shape, minval, maxval)
    return between(single_key("uniform", key), sizes, wanted, minval, maxval)


def unit(key: KeyArray, shape: tuple[int, ...], dtype: DType) -> Value:
    """Floats from 0 on and below 1, for each key and each element of a shape.

    As many of the upper bits as the dtype's mantissa has, and one of 8 bits at least,
    are the numerator of a fraction, which the dtype holds.
    """
    mantissa = _mantissa_bits(dtype)
    width = dtype.bits if mantissa >= 8 else 8
    numerator = lax.shift_right_logical(
        random_bits(key, shape, width), width - mantissa
    )
    return lax.mul(cast_to(numerator, dtype), 2.0**-mantissa)


def _mantissa_bits(dtype: DType) -> int:
    return int(pnp.finfo(dtype.numpy).nmant)


def between(
    key: KeyArray, shape: tuple[int, ...], dtype: DType, minval: Any, maxval: Any
) -> Value:
    """Floats from `minval` on and below `maxval`, for each key and each element."""
    drawn = unit(key, shape, dtype)
    if is_number(minval) and is_number(maxval):
        if (minval, maxval) == (0, 1):
            return drawn
        start, span = _start_and_span(float(minval), float(maxval), dtype)
        return lax.max(start, drawn * span + start)
    lower = parameter("uniform", minval, dtype)
    upper = parameter("uniform", maxval, dtype)
    return pnp.maximum(lower, drawn * (upper - lower) + lower)


def _start_and_span(minval: float, maxval: float, dtype: DType) -> tuple[float, float]:
    """The lower bound and the distance to the upper one, rounded to the dtype."""
    lower, upper = (Scalar.of(bound, dtype).array for bound in (minval, maxval))
    with np.errstate(all="ignore"):
        return float(lower), float(upper - lower)


# --- integers ---------------------------------------------------------------


def randint(key: Any, shape: Any, minval: Any, maxval: Any, dtype: Any = None) -> Value:
    """Integers from `minval` on and below `maxval`, which are repeated to the shape.

    A `maxval` above all numbers of the dtype includes the last; if it is not above
    `minval`, all are `minval`.
    """
    wanted = integer_dtype("randint", dtype)
    sizes = parameter_shape("randint", shape, minval, maxval)
    given = single_key("randint", key)
    if is_number(minval) and is_number(maxval):
        return _between_numbers(given, sizes, int(minval), int(maxval), wanted)
    return _between_values(given, sizes, minval, maxval, wanted)


def _between_numbers(
    key: KeyArray, shape: tuple[int, ...], minval: int, maxval: int, dtype: DType
) -> Value:
    drawn = _drawn_dtype(dtype)
    smallest, largest = _range(dtype)
    lower = min(max(minval, smallest), largest)
    upper = min(max(maxval, smallest), largest + 1)
    span = max(upper - lower, 1) % (1 << drawn.bits)
    offset = cast_to(_offset(key, shape, span, drawn.bits), drawn)
    return cast_to(lax.add(offset, lower), dtype)


def _between_values(
    key: KeyArray, shape: tuple[int, ...], minval: Any, maxval: Any, dtype: DType
) -> Value:
    drawn = _drawn_dtype(dtype)
    lower, upper, is_beyond = _clipped_bounds(minval, maxval, dtype)
    is_range = upper > lower
    span = pnp.where(is_range, cast_to(upper - lower, UNSIGNED[drawn.bits]), 1)
    span = pnp.where(is_range & is_beyond, span + 1, span)
    offset = cast_to(_offset(key, shape, span, drawn.bits), drawn)
    return cast_to(offset + lower, dtype)


def _drawn_dtype(dtype: DType) -> DType:
    """A narrow dtype is drawn as i32, which holds the number after its last."""
    return dtypes.int32 if dtype.bits < 32 else dtype


def _range(dtype: DType) -> tuple[int, int]:
    found = np.iinfo(dtype.numpy)
    return int(found.min), int(found.max)


def _clipped_bounds(minval: Any, maxval: Any, dtype: DType) -> tuple[Value, Value, Any]:
    """Bounds within the dtype, and whether the upper one was above it."""
    drawn = _drawn_dtype(dtype)
    smallest, largest = _range(dtype)
    lower = _clipped(minval, smallest, largest, drawn)
    if drawn is not dtype:
        return lower, _clipped(maxval, smallest, largest + 1, drawn), False
    is_beyond = _value(maxval) > largest
    return lower, _clipped(maxval, smallest, largest, drawn), is_beyond


def _value(bound: Any) -> Value:
    return as_value(bound, "poot.random.randint")


def _clipped(bound: Any, smallest: int, largest: int, dtype: DType) -> Value:
    value = _value(bound).with_weak(False)
    if not value.type.dtype.is_integer:
        value = cast_to(value, dtype)
    least, most = _range(value.type.dtype)
    return cast_to(lax.clamp(max(smallest, least), value, min(largest, most)), dtype)


def _offset(key: KeyArray, shape: tuple[int, ...], span: Any, width: int) -> Value:
    """Unsigned numbers below `span`, of which 0 stands for 2 to the power `width`.

    Twice as many bits as a number has, taken modulo the span.
    """
    upper = random_bits(child(key, 0), shape, width)
    lower = random_bits(child(key, 1), shape, width)
    if is_number(span):
        if not span:
            return lower
        half = (1 << width // 2) % span
        factor = (half * half) % (1 << width) % span
        if not factor:
            return pnp.remainder(lower, span)
        return pnp.remainder(
            pnp.remainder(upper, span) * factor + pnp.remainder(lower, span), span
        )
    half = pnp.remainder(1 << width // 2, span)
    factor = pnp.remainder(half * half, span)
    mixed = pnp.remainder(upper, span) * factor + pnp.remainder(lower, span)
    return pnp.where(span == 0, lower, pnp.remainder(mixed, span))


# --- bools and signs --------------------------------------------------------


def bernoulli(key: Any, p: Any = 0.5, shape: Any = None, mode: str = "low") -> Value:
    """True with probability `p`, which is repeated to the shape.

    With mode "high" a `p` near 0 is met to twice as many bits. DTypeError unless `p`
    is a float.
    """
    require_choice("bernoulli", "mode", mode, "low", "high")
    dtype = probability_dtype("bernoulli", p)
    sizes = parameter_shape("bernoulli", shape, p)
    given = single_key("bernoulli", key)
    if mode == "low":
        return pnp.less(unit(given, sizes, dtype), p)
    drawn = unit(given, (2, *sizes), dtype)
    remainder = drawn[1] * float(pnp.finfo(dtype.numpy).eps)
    return pnp.less(remainder, p - drawn[0])


def rademacher(key: Any, shape: Any = (), dtype: Any = None) -> Value:
    """1 or -1, one as likely as the other; integers unless `dtype` is another."""
    wanted = default_int() if dtype is None else as_element_type(dtype)
    if not (wanted.is_integer or wanted.is_float):
        raise DTypeError(
            f"poot.random.rademacher: dtype is {wanted}, takes one of signed numbers"
        )
    sizes = draw_shape("rademacher", shape)
    return random_sign(single_key("rademacher", key), sizes, wanted)


def random_sign(key: KeyArray, shape: tuple[int, ...], dtype: DType) -> Value:
    """1 or -1 for each element of a shape."""
    positive = pnp.less(unit(key, shape, default_float()), 0.5)
    return cast_to(positive, dtype) * 2 - 1
