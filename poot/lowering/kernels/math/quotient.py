"""Correctly rounded quotient and square root, and what follows from them.

The device's division and square root give a first estimate (Vulkan allows 2.5 ulp and
more). The exact remainder fits an integer of the float's size, since wrapping
arithmetic loses only bits that cancel; from it follows the correctly rounded result.
"""

from __future__ import annotations

import math

from poot.lowering.kernels.math.arithmetic import FloatMath
from poot.lowering.spirv.value import Value


def _significand(m: FloatMath, bits: Value) -> Value:
    """The significand with its implicit bit, as an integer."""
    return (bits & m.f.mantissa_mask) | m.f.implicit_bit


def _fraction(m: FloatMath, bits: Value) -> Value:
    """The significand as a float in [1, 2)."""
    return m.real((bits & m.f.mantissa_mask) | m.f.one)


def _whole(m: FloatMath, x: Value) -> Value:
    """x * 2**mantissa_bits for x near [1, 2], roughly where it is outside."""
    return m.bits(x) - (m.f.one - m.f.implicit_bit)


class Quotient:
    """Integer q nearest to a/b * 2**shift, for the significands of a and b."""

    __slots__ = ("below_one", "q", "remainder")

    def __init__(self, m: FloatMath, a: Value, b: Value) -> None:
        """`a` and `b` are bits of normal numbers."""
        k, unit = m.k, m.f.implicit_bit
        numerator, divisor = _significand(m, a), _significand(m, b)
        self.below_one = numerator < divisor
        inverse = k.fdiv(1.0, _fraction(m, b))
        estimate = _fraction(m, a) * inverse
        q = _whole(m, k.select(self.below_one, estimate + estimate, estimate))
        shifted = numerator << m.f.mantissa_bits
        shifted = k.select(self.below_one, shifted + shifted, shifted)
        remainder = m.integer(shifted - q * divisor)
        # A second quotient corrects q to within one, and two tests to the nearest.
        _, steps = m.round(m.to_real(remainder) * (inverse * (1.0 / unit)))
        step = m.rounded_integer(steps)
        signed_divisor = m.integer(divisor)
        remainder = remainder - step * signed_divisor
        twice = remainder + remainder
        zero, one = k.const(m.f.integer, 0), k.const(m.f.integer, 1)
        up = k.select(twice > signed_divisor, one, zero)
        up = k.select(twice < k.neg(signed_divisor), k.neg(one), up)
        self.q = m.integer(q) + (step + up)
        self.remainder = remainder - up * signed_divisor


def quotient(m: FloatMath, a: Value, b: Value) -> Value:
    """a / b, correctly rounded, for positive a and b with a normal quotient."""
    a_bits, b_bits = m.bits(a), m.bits(b)
    exact = Quotient(m, a_bits, b_bits)
    exponent = _exponent(m, a_bits, b_bits, exact)
    return m.real(m.word(exact.q + (exponent << m.f.mantissa_bits)))


def _exponent(m: FloatMath, a: Value, b: Value, exact: Quotient) -> Value:
    """The biased exponent of the quotient, less one; `a`, `b` bits without a sign."""
    k = m.k
    difference = m.integer(a >> m.f.mantissa_bits) - m.integer(b >> m.f.mantissa_bits)
    return difference + k.select(
        exact.below_one,
        k.const(m.f.integer, m.f.bias - 2),
        k.const(m.f.integer, m.f.bias - 1),
    )


def divide(m: FloatMath, a: Value, b: Value) -> Value:
    """a / b, correctly rounded, with IEEE 754's special cases."""
    k = m.k
    sign = (m.bits(a) ^ m.bits(b)) & m.f.sign_bit
    (a_bits, a_shift), (b_bits, b_shift) = _normalized(m, a), _normalized(m, b)
    exact = Quotient(m, a_bits, b_bits)
    exponent = _exponent(m, a_bits, b_bits, exact) + (a_shift - b_shift)
    result = m.word(exact.q + (exponent << m.f.mantissa_bits))
    result = k.select(exponent >= 2 * m.f.bias, k.const(m.f.word, m.f.infinity), result)
    small = _subnormal(m, exact, exponent)
    result = k.select(exponent < 0, small, result)
    plain = k.logical_and(_is_plain(m, a), _is_plain(m, b))
    return k.select(plain, m.real(result | sign), _special_quotient(m, a, b))


def _normalized(m: FloatMath, x: Value) -> tuple[Value, Value]:
    """Bits of |x| scaled to be normal, and the exponent taken out by that."""
    magnitude, shift = m.normal(m.abs(x))
    return m.bits(magnitude), shift


def _is_plain(m: FloatMath, x: Value) -> Value:
    """Whether x is neither zero (or flushed to it) nor infinite nor NaN."""
    lowest = 1 if m.keeps_subnormals else m.f.implicit_bit
    return (m.magnitude_bits(x) - lowest) < (m.f.infinity - lowest)


def _subnormal(m: FloatMath, exact: Quotient, exponent: Value) -> Value:
    """Bits of the quotient where its exponent is too small for a normal number."""
    k = m.k
    if not m.keeps_subnormals:
        return k.const(m.f.word, 0)
    zero, one = k.const(m.f.integer, 0), k.const(m.f.integer, 1)
    # Twice the quotient rounded down, with the lowest bit for anything that is left.
    floor = exact.q - k.select(exact.remainder < 0, one, zero)
    sticky = k.select(k.ne(exact.remainder, 0), one, zero)
    wide = m.word((floor << 1) | sticky)
    drop = m.word(k.min(zero - exponent, k.const(m.f.integer, m.f.mantissa_bits + 3)))
    kept = wide >> drop
    lost = k.select(
        k.ne(kept << drop, wide), k.const(m.f.word, 1), k.const(m.f.word, 0)
    )
    # `kept` has one bit to round off; ties go to even.
    return (kept >> 1) + (kept & (lost | (kept >> 1)) & 1)


def _special_quotient(m: FloatMath, a: Value, b: Value) -> Value:
    """a / b where one is zero, infinite or NaN: the other counts by its sign."""
    k = m.k

    def shape(x: Value) -> Value:
        unit = m.with_sign(m.number(1.0), m.sign(x))
        return k.select(_is_plain(m, x), unit, x)

    return k.fdiv(shape(a), shape(b))


def recip(m: FloatMath, x: Value) -> Value:
    return divide(m, m.number(1.0), x)


def sqrt(m: FloatMath, x: Value) -> Value:
    """Correctly rounded."""
    k = m.k
    magnitude, shift = m.normal(x)
    root = _root(m, m.bits(magnitude))
    if m.keeps_subnormals:
        # The scale is made even, so that its root is a power of two.
        root = root + m.word(k.sar(shift, 1) << m.f.mantissa_bits)
    result = k.select(x < math.inf, m.real(root), x)
    result = k.select(x < 0.0, m.nan, result)
    return k.select(m.is_zero(x), m.real(m.sign(x)), result)


def _root(m: FloatMath, bits: Value) -> Value:
    """Bits of the square root of a positive normal number, given by its bits."""
    k, f = m.k, m.f
    exponent = bits >> f.mantissa_bits
    # The radicand as a significand in [1, 4): the bias is odd, so an odd biased
    # exponent is an even true one.
    odd = k.eq(exponent & 1, 0)
    offset = k.select(
        odd, k.const(f.word, f.one + f.implicit_bit), k.const(f.word, f.one)
    )
    s = k.sqrt(m.real((bits & f.mantissa_mask) + offset))
    q = m.integer(_whole(m, s))
    radicand = m.integer(_significand(m, bits) << f.mantissa_bits)
    radicand = k.select(odd, radicand + radicand, radicand)
    remainder = radicand - q * q
    _, steps = m.round(m.to_real(remainder) * k.fdiv(0.5 / f.implicit_bit, s))
    q = q + m.rounded_integer(steps)
    remainder = radicand - q * q
    zero, one = k.const(f.integer, 0), k.const(f.integer, 1)
    up = k.select(remainder > q, one, zero)
    up = k.select(remainder <= k.neg(q), k.neg(one), up)
    half = (exponent + (f.bias - 2)) >> 1
    return m.word(q + up) + (half << f.mantissa_bits)


def rsqrt(m: FloatMath, x: Value) -> Value:
    """Two roundings: of the root, and of its inverse."""
    k = m.k
    root = sqrt(m, x)
    result = quotient(m, m.number(1.0), m.abs(root))
    result = k.select(k.eq(root, math.inf), 0.0, result)
    result = k.select(m.is_nan(root), root, result)
    infinity = m.with_sign(m.infinity, m.sign(x))
    return k.select(m.is_zero(x), infinity, result)


# Initial cube root on [1, 8]: within 1 %.
_CBRT_START = (0.71, 0.31, -0.0232)


def cbrt(m: FloatMath, x: Value) -> Value:
    k, f = m.k, m.f
    magnitude, shift = m.normal(m.abs(x))
    bits = m.bits(magnitude)
    # x = value * 2**(3 * third - bias - offset) with value in [1, 8).
    offset = -f.bias % 3 + 60
    exponent = m.integer(bits >> f.mantissa_bits) + shift + offset
    # A third, rounded down: the product is exact enough for 12 bits.
    third = k.sar(exponent * 21846, 16)
    rest = exponent - third * 3
    scale = m.word((rest + f.bias) << f.mantissa_bits)
    value = m.real((bits & f.mantissa_mask) | scale)
    t = m.horner(value, _CBRT_START)
    for _ in range(1 if m.single else 2):  # Halley: three times the bits
        cube = t * t * t
        t = t * k.fdiv(cube + value * 2.0, cube * 2.0 + value)
    # With half its bits t has an exact square, so that one more step is accurate.
    t, _ = m.split(t)
    ratio = k.fdiv(value, t * t)
    t = t + t * k.fdiv(ratio - t, t + t + ratio)
    root_exponent = third - (f.bias + offset) // 3
    result = m.real(m.bits(t) + m.word(root_exponent << f.mantissa_bits))
    result = m.with_sign(result, m.sign(x))
    result = k.select(m.is_finite(x), result, x)
    return k.select(m.is_zero(x), m.real(m.sign(x)), result)
