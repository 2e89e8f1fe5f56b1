"""exp, exp2, expm1: 2**n times a polynomial on the remainder."""

from __future__ import annotations

import math
from dataclasses import dataclass

from poot.lowering.kernels.math.arithmetic import FloatMath
from poot.lowering.kernels.math.coefficients import EXP, EXP2
from poot.lowering.spirv.value import Value

LOG2_E = 1.4426950408889634
# ln 2 in two parts, the first with so few bits that n * LN2_HIGH is exact.
LN2_HIGH = (0.693145751953125, 0.6931471805598903)
LN2_LOW = (1.428606765330187e-06, 5.497923018708371e-14)
LN2 = 0.6931471805599453


@dataclass(frozen=True, slots=True)
class Reduced:
    """x = n ln2 + r: r with its rounding error, and n with offset in low bits."""

    r: Value
    error: Value
    shifted: Value


def reduce(m: FloatMath, x: Value) -> Reduced:
    """Split a moderate x by the multiple of ln 2 nearest to it."""
    n, shifted = m.round(x * LOG2_E)
    high = x - n * m.choose(*LN2_HIGH)
    low = n * m.choose(*LN2_LOW)
    r = high - low
    return Reduced(r, (high - r) - low, shifted)


def exp(m: FloatMath, x: Value) -> Value:
    reduced = reduce(m, x)
    r = reduced.r
    y = (r * r * m.polynomial(r, EXP) + r) + 1.0
    bits = 1 + m.f.bias
    low = math.log(2.0) * (1 - m.f.bias)
    if m.keeps_subnormals:
        low -= math.log(2.0) * (m.f.mantissa_bits + 1)
    return _finish(m, x, y, reduced.shifted, low, bits * LN2)


def exp2(m: FloatMath, x: Value) -> Value:
    n, shifted = m.round(x)
    r = x - n
    y = r * m.polynomial(r, EXP2) + 1.0
    low = 1.0 - m.f.bias
    if m.keeps_subnormals:
        low -= m.f.mantissa_bits + 1
    return _finish(m, x, y, shifted, low, 1.0 + m.f.bias)


def _finish(
    m: FloatMath, x: Value, y: Value, shifted: Value, low: float, high: float
) -> Value:
    """y * 2**n; 0 for x < low, infinity for x >= high, NaN for NaN."""
    k = m.k
    if m.keeps_subnormals:
        scaled = m.scale(y, m.rounded_integer(shifted))
    else:
        scaled = m.real(m.bits(y) + (shifted << m.f.mantissa_bits))
    scaled = k.select(x < high, scaled, x + math.inf)
    return k.select(x < low, 0.0, scaled)


def expm1(m: FloatMath, x: Value) -> Value:
    k = m.k
    reduced = reduce(m, x)
    r = reduced.r
    e = r + (r * r * m.polynomial(r, EXP) + reduced.error)
    # 2^n (1 + e) - 1, with half of 2^n since n may be one too large for it.
    half = m.real((reduced.shifted << m.f.mantissa_bits) + (m.f.one - m.f.implicit_bit))
    result = (half * e + (half - 0.5)) * 2.0
    result = k.select(x < (1 + m.f.bias) * LN2, result, x + math.inf)
    result = k.select(x < -(m.f.mantissa_bits + 3) * LN2, -1.0, result)
    return k.select(m.abs(x) < 2.0 ** -(m.f.mantissa_bits + 2), x, result)


def scaled_exp(m: FloatMath, x: Value, exponent: int) -> Value:
    """exp(x) * 2**exponent for x >= 0 and n + exponent <= bias + 1 or NaN."""
    reduced = reduce(m, x)
    r = reduced.r
    y = (r * r * m.polynomial(r, EXP) + r) + 1.0
    offset = (m.f.bias + exponent) << m.f.mantissa_bits
    return y * m.real((reduced.shifted << m.f.mantissa_bits) + offset)
