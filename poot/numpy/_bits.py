"""Ufuncs on the parts of floats, and on the bits of integers."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from poot.core import dtypes
from poot.core.dtypes import DType
from poot.core.errors import DTypeError
from poot.core.ops.elementwise import Binary, BinaryOp, BitcastConvert, UnaryOp
from poot.interpreters import arithmetic
from poot.interpreters.arithmetic import (
    add,
    binary,
    binary_inexact,
    equal,
    greater_equal,
    less,
    less_equal,
    multiply,
    promote_numbers,
    select,
    subtract,
    unary,
    with_sign_of_zero,
)
from poot.interpreters.methods import Value
from poot.interpreters.promotion import (
    Promoted,
    as_value,
    cast_to,
    dtype_of,
    promote_inexact,
    result_of,
)
from poot.interpreters.rounding import clip, maximum, minimum
from poot.numpy._operands import bound, ufunc

# --- integers ---------------------------------------------------------------

bitwise_and = ufunc(arithmetic.bitwise_and)
bitwise_or = ufunc(arithmetic.bitwise_or)
bitwise_xor = ufunc(arithmetic.bitwise_xor)
invert = bitwise_not = bitwise_invert = ufunc(arithmetic.invert)


def _shifted(op: BinaryOp, x: Any, y: Any) -> Value:
    promoted = promote_numbers(op.value, x, y)
    return result_of(promoted, bound(Binary(op), *promoted.operands))


@ufunc
def left_shift(x: Any, y: Any) -> Value:
    """Bits moved up by y; 0 once all are out."""
    return _shifted(BinaryOp.SHL, x, y)


@ufunc
def right_shift(x: Any, y: Any) -> Value:
    """Bits moved down by y, with copies of the sign bit if the dtype is signed."""
    return _shifted(BinaryOp.SHR, x, y)


bitwise_left_shift = left_shift
bitwise_right_shift = right_shift


@ufunc
def bitwise_count(x: Any) -> Value:
    """The number of ones in the absolute value, as u8."""
    given = dtype_of(x, "bitwise_count").dtype
    x = as_value(x)
    if given.is_bool:
        return cast_to(x, dtypes.uint8)
    if given.is_signed:
        x = unary(UnaryOp.ABS, x)
    return cast_to(unary(UnaryOp.POPCOUNT, x), dtypes.uint8).with_weak(False)


@ufunc
def gcd(x: Any, y: Any) -> Value:
    """The greatest common divisor, which is 0 of two zeros."""
    promoted = promote_numbers("gcd", x, y)
    return result_of(promoted, bound(Binary(BinaryOp.GCD), *promoted.operands))


@ufunc
def lcm(x: Any, y: Any) -> Value:
    """The least common multiple, which is 0 where one of the two is."""
    promoted = promote_numbers("lcm", x, y)
    x, y = promoted.operands
    if promoted.dtype.is_signed:
        x, y = unary(UnaryOp.ABS, x), unary(UnaryOp.ABS, y)
    divisor = bound(Binary(BinaryOp.GCD), x, y)
    # Of two zeros the divisor is 0, and a quotient by 0 is 0.
    return result_of(promoted, multiply(binary(BinaryOp.DIV, x, divisor), y))


# --- floats in parts --------------------------------------------------------


class _Format(NamedTuple):
    """How a float dtype is laid out in bits, read as signed integers."""

    integer: DType
    mantissa_bits: int
    # The exponent field of infinities and NaN.
    top: int

    @property
    def bias(self) -> int:
        return self.top >> 1

    @property
    def mantissa_mask(self) -> int:
        return (1 << self.mantissa_bits) - 1

    @property
    def sign_mask(self) -> int:
        return -(1 << (self.integer.bits - 1))


_FORMATS = {
    dtypes.float16: _Format(dtypes.int16, 10, 31),
    dtypes.bfloat16: _Format(dtypes.int16, 7, 255),
    dtypes.float32: _Format(dtypes.int32, 23, 255),
    dtypes.float64: _Format(dtypes.int64, 52, 2047),
}


def _bits(x: Value, form: _Format) -> tuple[Value, Value]:
    """The bits of floats and their exponent fields."""
    bits = bound(BitcastConvert(form.integer), x)
    field = bitwise_and(right_shift(bits, form.mantissa_bits), form.top)
    return bits, field


def _operand(where: str, x: Any) -> tuple[Promoted, Value]:
    promoted = promote_inexact(where, as_value(x, where))
    return promoted, promoted.operands[0]


@ufunc
def modf(x: Any) -> tuple[Value, Value]:
    """The fraction and the whole part, both with the sign of x."""
    promoted, x = _operand("modf", x)
    whole = unary(UnaryOp.TRUNC, x)
    rest = subtract(x, whole)
    # Nothing is left of an infinity, though inf - inf is NaN.
    rest = select(unary(UnaryOp.ISINF, x), 0.0, rest)
    rest = with_sign_of_zero(rest, x, dtype_of(rest).dtype)
    return result_of(promoted, rest), result_of(promoted, whole)


@ufunc
def frexp(x: Any) -> tuple[Value, Value]:
    """m with 0.5 <= abs(m) < 1 and an i32 n with x = m * 2**n; 0, inf, NaN stay.

    By integers, so that subnormals count on devices that flush them.
    """
    promoted, x = _operand("frexp", x)
    form = _FORMATS[promoted.dtype]
    bits, field = _bits(x, form)
    mantissa = bitwise_and(bits, form.mantissa_mask)
    # How far a subnormal's highest one is below where a normal number has its own.
    used = form.integer.bits - form.mantissa_bits
    shift = subtract(unary(UnaryOp.CLZ, mantissa), used - 1)
    is_small = equal(field, 0)
    scaled = bitwise_and(left_shift(mantissa, shift), form.mantissa_mask)
    mantissa = select(is_small, scaled, mantissa)
    exponent = subtract(select(is_small, subtract(1, shift), field), form.bias - 1)
    half = (form.bias - 1) << form.mantissa_bits
    sign = bitwise_and(bits, form.sign_mask)
    fraction = bitwise_or(bitwise_or(sign, half), mantissa)
    stays = _is_special(bits, form)
    fraction = bound(BitcastConvert(promoted.dtype), fraction)
    exponent = cast_to(select(stays, 0, exponent), dtypes.int32).with_weak(False)
    return result_of(promoted, select(stays, x, fraction)), exponent


def _is_special(bits: Value, form: _Format) -> Value:
    """Zeros, infinities and NaN, by their bits."""
    magnitude = bitwise_and(bits, ~form.sign_mask)
    infinity = form.top << form.mantissa_bits
    return bitwise_or(equal(magnitude, 0), greater_equal(magnitude, infinity))


# Beyond 2**(this) and its inverse every number is inf or 0, f64 too.
_LARGEST_SCALE = 4200


@ufunc
def ldexp(x: Any, n: Any) -> Value:
    """x * 2**n, rounded once; n is an integer."""
    given = dtype_of(n, "ldexp").dtype
    if not (given.is_integer or given.is_bool):
        raise DTypeError(
            f"ldexp: the exponent is {given}, takes integers; use x * exp2(n)"
        )
    promoted, x = _operand("ldexp", x)
    compute = promoted.dtype.compute
    form = _FORMATS[compute]
    lowest, highest = 1 - form.bias, form.bias
    # A step down ends so far above the subnormals that it rounds nothing away, unless
    # nothing is left of the number anyway.
    careful = lowest + form.mantissa_bits + 1
    result, left = cast_to(x, compute), _limited_scale(n)
    for _ in range(2):
        step = select(less(left, lowest), careful, minimum(left, highest))
        result = multiply(result, _power_of_two(step, compute))
        left = subtract(left, step)
    result = multiply(result, _power_of_two(clip(left, lowest, highest), compute))
    return result_of(promoted, cast_to(result, promoted.dtype))


def _limited_scale(n: Any) -> Value:
    """The exponent as i32."""
    n = as_value(n, "ldexp")
    if n.type.dtype.itemsize >= 4:
        n = minimum(n, _LARGEST_SCALE)
        if n.type.dtype.is_signed:
            n = maximum(n, -_LARGEST_SCALE)
    return cast_to(n, dtypes.int32)


def _power_of_two(exponent: Value, dtype: DType) -> Value:
    """2**exponent for the exponents of normal numbers."""
    form = _FORMATS[dtype]
    field = add(cast_to(exponent, form.integer), form.bias)
    return bound(BitcastConvert(dtype), left_shift(field, form.mantissa_bits))


@ufunc
def spacing(x: Any) -> Value:
    """The distance to the next float away from zero, with the sign of x.

    That of the largest number is inf, that of inf NaN. By integers, so that subnormal
    distances count on devices that flush them.
    """
    promoted, x = _operand("spacing", x)
    form = _FORMATS[promoted.dtype]
    bits, field = _bits(x, form)
    subnormal = left_shift(1, maximum(subtract(field, 1), 0))
    normal = left_shift(subtract(field, form.mantissa_bits), form.mantissa_bits)
    distance = select(less_equal(field, form.mantissa_bits), subnormal, normal)
    infinity = form.top << form.mantissa_bits
    is_largest = equal(bitwise_and(bits, ~form.sign_mask), infinity - 1)
    distance = select(is_largest, infinity, distance)
    distance = bitwise_or(distance, bitwise_and(bits, form.sign_mask))
    step = bound(BitcastConvert(promoted.dtype), distance)
    return result_of(promoted, select(unary(UnaryOp.ISFINITE, x), step, math.nan))


@ufunc
def nextafter(x: Any, y: Any) -> Value:
    """The float next to x on the side of y."""
    return binary_inexact(BinaryOp.NEXTAFTER, x, y)


@ufunc
def copysign(x: Any, y: Any) -> Value:
    """x with the sign of y, as a float."""
    return binary_inexact(BinaryOp.COPYSIGN, x, y)


@ufunc
def signbit(x: Any) -> Value:
    """Whether the sign is negative, that of -0.0 and NaN too."""
    given = dtype_of(x, "signbit").dtype
    if given.is_bool:
        x = cast_to(as_value(x), dtypes.uint8)
    if not given.is_float:
        return less(x, 0)
    return unary(UnaryOp.SIGNBIT, x).with_weak(False)
