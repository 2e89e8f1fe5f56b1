"""Correctly rounded quotient and square root, and what follows from them.

The device's division and square root give a first estimate (Vulkan allows 2.5 ulp and
more). The exact remainder fits an integer of the float's size, since wrapping
arithmetic loses only bits that cancel; from it follows the correctly rounded result.
Where multiplication and addition round once, the remainder is a float and the result
comes from it by Markstein's theorem (Computation of elementary functions on the IBM
RISC System/6000 processor, 1990). A device that was found to divide exactly is taken at
its word.
"""

from __future__ import annotations

import math

from poot.lowering.kernels.math.arithmetic import FloatMath, Pair
from poot.lowering.spirv.value import Value


def _significand(m: FloatMath, bits: Value) -> Value:
    """The significand with its implicit bit, as an integer."""
    return (bits & m.f.mantissa_mask) | m.f.implicit_bit


def _fraction(m: FloatMath, bits: Value) -> Value:
    """The significand as a float in [1, 2)."""
    return m.real((bits & m.f.mantissa_mask) | m.f.one)


def _whole(m: FloatMath, x: Value) -> Value:
    """x * 2**mantissa_bits for x near [1, 2], roughly where it is outside."""
    return m.integer(m.bits(x)) - (m.f.one - m.f.implicit_bit)


class Quotient:
    """a/b of significands, from an estimate of the device's.

    `estimate` is what the device gives for the fractions `a` and `b` in [1, 2), or for
    what stands in their place. `q` is the integer nearest to the quotient times
    2**mantissa_bits, and twice that where the quotient is below one; its remainder
    says on which side of the quotient it is.
    """

    __slots__ = ("below_one", "estimate", "q", "remainder")

    def __init__(
        self, m: FloatMath, a_bits: Value, b_bits: Value, a: Value, b: Value
    ) -> None:
        k, unit = m.k, m.f.implicit_bit
        numerator, divisor = _significand(m, a_bits), _significand(m, b_bits)
        inverse = k.fdiv(1.0, b)
        self.estimate = a * inverse
        self.below_one = numerator < divisor
        double = self.estimate + self.estimate
        q = _whole(m, k.select(self.below_one, double, self.estimate))
        numerator = k.select(self.below_one, numerator + numerator, numerator)
        remainder = (numerator << m.f.mantissa_bits) - q * divisor
        # A second quotient, a hair too low, corrects q to the nearest or one below.
        steps = m.to_real(remainder) * (inverse * (1.0 / unit)) - 2.0**-18
        step = m.rounded_integer(m.round(steps)[1])
        remainder = remainder - step * divisor
        # All ones where the remainder is more than half of the divisor.
        low = k.sar(divisor - (remainder + remainder), m.f.word.bits - 1)
        self.q = q + (step - low)
        self.remainder = remainder - (low & divisor)


def _fused(m: FloatMath, a: Value, b: Value) -> Pair:
    """a / b for b in [1, 2), correctly rounded; and the first estimate.

    a is so far from the ends of the range that no remainder is subnormal.
    """
    k = m.k
    minus_b, inverse = k.neg(b), k.fdiv(1.0, b)
    for _ in range(2):
        inverse = k.fma(k.fma(minus_b, inverse, 1.0), inverse, inverse)
    # Correctly rounded now, but for the largest b: its inverse nearly lies midway
    # between a half and the next number.
    least = m.f.one - m.f.implicit_bit + 1
    inverse = m.real(m.word(k.max(m.integer(m.bits(inverse)), least)))
    q = estimate = a * inverse
    for _ in range(2):
        q = k.fma(k.fma(minus_b, q, a), inverse, q)
    return Pair(q, estimate)


def _flushed(m: FloatMath, a: Value, b: Value) -> Value:
    """a / b with IEEE 754's special cases, where subnormal numbers are 0.

    For a device that fuses. What needs b alone is found once, if many share it. What
    is within half a subnormal unit below the least normal number is 0, or that number
    where the device rounds before it flushes.
    """
    k, f = m.k, m.f
    half = f.bias // 2
    # 2 by the power of two in b: infinite if b is 0, and 0 if it is infinite.
    exponent = m.bits(b) & f.infinity
    scale = m.with_sign(m.real(f.infinity - exponent), m.sign(b))
    scale = k.select(m.is_nan(b), b, scale)
    size = m.magnitude(a)
    small = size < (f.bias - half + 1) << f.mantissa_bits
    # Where the scale is 0 for a small a, the quotient is subnormal.
    scale = k.select(small, scale * 2.0 ** -(half + 1), scale)
    moved = a * k.select(small, m.number(2.0**half), 0.5)
    q = _fused(m, moved, _fraction(m, m.bits(b)))
    plain = k.logical_and(size >= f.implicit_bit, size < f.infinity)
    return k.select(plain, q.high, q.low) * scale


def near_quotient(m: FloatMath, a: Value, b: Value) -> Value:
    """a / b within an ulp for moderate a and b, on a device that fuses."""
    inverse = m.k.fdiv(1.0, b)
    q = a * inverse
    return m.k.fma(m.k.fma(m.k.neg(b), q, a), inverse, q)


def quotient(m: FloatMath, a: Value, b: Value) -> Value:
    """a / b, correctly rounded, for positive a and b with a normal quotient."""
    if m.divides_exactly:
        return m.k.fdiv(a, b)
    a_bits, b_bits = m.integer(m.bits(a)), m.integer(m.bits(b))
    a_fraction, b_fraction = _fraction(m, a_bits), _fraction(m, b_bits)
    if m.fuses:
        q = m.integer(m.bits(_fused(m, a_fraction, b_fraction).high))
        return m.real(q + _difference(m, a_bits, b_bits))
    exact = Quotient(m, a_bits, b_bits, a_fraction, b_fraction)
    return m.real(exact.q + (_exponent(m, a_bits, b_bits, exact) + _base(m)))


def _base(m: FloatMath) -> int:
    """What makes a float's bits of its exponent and the whole significand."""
    return m.f.one - m.f.implicit_bit


def _difference(m: FloatMath, a: Value, b: Value) -> Value:
    """That of the exponents of two magnitudes, in the place of the exponent."""
    return (a & m.f.infinity) - (b & m.f.infinity)


def _exponent(m: FloatMath, a: Value, b: Value, exact: Quotient) -> Value:
    """The true exponent of the quotient, in the place of the biased one."""
    k, f = m.k, m.f
    one, zero = k.const(f.integer, f.implicit_bit), k.const(f.integer, 0)
    return _difference(m, a, b) - k.select(exact.below_one, one, zero)


def divide(m: FloatMath, a: Value, b: Value) -> Value:
    """a / b, correctly rounded, with IEEE 754's special cases."""
    k, f = m.k, m.f
    if m.divides_exactly:
        return k.fdiv(a, b)
    if m.fuses and not m.keeps_subnormals:
        return _flushed(m, a, b)
    sign = (m.bits(a) ^ m.bits(b)) & f.sign_bit
    a_bits, b_bits = _lifted(m, m.magnitude(a), m.magnitude(b))
    a_plain, b_plain = _is_plain(m, a_bits), _is_plain(m, b_bits)
    # In the place of zero, infinity and NaN the fractions are these themselves: so the
    # device's estimate is the quotient then.
    a_fraction = k.select(a_plain, _fraction(m, a_bits), m.real(a_bits))
    b_fraction = k.select(b_plain, _fraction(m, b_bits), m.real(b_bits))
    plain = k.logical_and(a_plain, b_plain)
    exact = Quotient(m, a_bits, b_bits, a_fraction, b_fraction)
    exponent = _exponent(m, a_bits, b_bits, exact)
    result = exact.q + (exponent + _base(m))
    small = exponent < (1 - f.bias) << f.mantissa_bits
    result = k.select(small, _subnormal(m, exact, exponent), result)
    large = exponent > f.bias << f.mantissa_bits
    result = k.select(large, k.const(f.integer, f.infinity), result)
    return m.with_sign(k.select(plain, m.real(result), exact.estimate), sign)


def _lifted(m: FloatMath, a: Value, b: Value) -> tuple[Value, Value]:
    """Bits of two magnitudes, times a power of two that makes subnormal ones normal.

    If that makes the other one infinite, the quotient is infinite or zero anyway.
    """
    if not m.keeps_subnormals:
        return a, b
    k = m.k
    small = k.min(a, b) < m.f.implicit_bit
    factor = k.select(small, m.number(2.0**m.f.lift), 1.0)
    a, b = m.real(a) * factor, m.real(b) * factor
    return m.integer(m.bits(a)), m.integer(m.bits(b))


def _is_plain(m: FloatMath, magnitude: Value) -> Value:
    """Whether the bits are those of a positive normal number."""
    above_zero = magnitude >= m.f.implicit_bit
    return m.k.logical_and(above_zero, magnitude < m.f.infinity)


def _subnormal(m: FloatMath, exact: Quotient, exponent: Value) -> Value:
    """Bits of the quotient where its exponent is too small for a normal number."""
    k, f = m.k, m.f
    if not m.keeps_subnormals:
        return k.const(f.integer, 0)
    one, minus_one = k.const(f.integer, 1), k.const(f.integer, -1)
    # The last bit says that something is left, so that only true ties look like one.
    side = k.max(k.min(exact.remainder, one), minus_one)
    wide = m.word(exact.q + exact.q + side)
    drop = (2 - f.bias) - k.sar(exponent, f.mantissa_bits)
    drop = k.min(m.word(drop), k.const(f.word, f.mantissa_bits + 4))
    half = (k.const(f.word, 1) << drop) >> 1
    odd = (wide >> drop) & 1
    return m.integer((wide + (half - 1) + odd) >> drop)


def recip(m: FloatMath, x: Value) -> Value:
    return divide(m, m.number(1.0), x)


def sqrt(m: FloatMath, x: Value) -> Value:
    """Correctly rounded."""
    k = m.k
    if m.divides_exactly:
        return k.sqrt(x)
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
    value = m.real((bits & f.mantissa_mask) + offset)
    if m.fuses:
        q, up = _fused_root(m, value)
    else:
        radicand = m.integer(_significand(m, bits) << f.mantissa_bits)
        radicand = k.select(odd, radicand + radicand, radicand)
        q, up = _whole_root(m, value, radicand)
    half = (exponent + (f.bias - 2)) >> 1
    return m.word(q + up) + (half << f.mantissa_bits)


def _whole_root(m: FloatMath, x: Value, radicand: Value) -> tuple[Value, Value]:
    """The root of x, given as an integer too, times 2**mantissa_bits; and a last step.

    The step leads to the nearest integer.
    """
    k = m.k
    s = k.sqrt(x)
    q = _whole(m, s)
    remainder = radicand - q * q
    _, steps = m.round(m.to_real(remainder) * k.fdiv(0.5 / m.f.implicit_bit, s))
    q = q + m.rounded_integer(steps)
    remainder = radicand - q * q
    return q, _step(m, remainder > q, remainder <= k.neg(q))


def _fused_root(m: FloatMath, x: Value) -> tuple[Value, Value]:
    """The same by floats: the remainders are exact."""
    k = m.k
    s = k.sqrt(x)
    s = k.fma(k.fma(k.neg(s), s, x), k.fdiv(0.5, s), s)
    remainder = k.fma(k.neg(s), s, x)
    place = s * 2.0**-m.f.mantissa_bits
    return _whole(m, s), _step(m, remainder > place, remainder <= k.neg(place))


def _step(m: FloatMath, up: Value, down: Value) -> Value:
    k = m.k
    zero, one = k.const(m.f.integer, 0), k.const(m.f.integer, 1)
    return k.select(down, k.neg(one), k.select(up, one, zero))


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
