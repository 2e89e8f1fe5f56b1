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
    """x = n ln2 + rest, rest = high - n LN2_LOW; and n with offset in low bits."""

    n: Value
    high: Value
    rest: Value
    shifted: Value


def reduce(m: FloatMath, x: Value) -> Reduced:
    """Split a moderate x by the multiple of ln 2 nearest to it."""
    n, shifted = m.round(x, LOG2_E)
    high = m.multiply_add(n, -m.choose(*LN2_HIGH), x)
    rest = m.multiply_add(n, -m.choose(*LN2_LOW), high)
    return Reduced(n, high, rest, shifted)


def _unscaled_exp(m: FloatMath, reduced: Reduced) -> Value:
    """exp(rest)"""
    r = reduced.rest
    return m.multiply_add(r * r, m.polynomial(r, EXP), r) + 1.0


def exp(m: FloatMath, x: Value) -> Value:
    bounded = _bounded(m, x, LN2)
    reduced = reduce(m, bounded)
    return _finish(m, bounded, _unscaled_exp(m, reduced), reduced.shifted, LN2)


def exp2(m: FloatMath, x: Value) -> Value:
    bounded = _bounded(m, x, 1.0)
    n, shifted = m.round(bounded)
    r = bounded - n
    y = m.multiply_add(r, m.polynomial(r, EXP2), 1.0)
    return _finish(m, bounded, y, shifted, 1.0)


def _bounded(m: FloatMath, x: Value, unit: float) -> Value:
    """x, or something smaller whose power is infinity already."""
    if not m.keeps_subnormals:
        return x
    high = (1.5 + m.f.bias) * unit
    return m.k.select(x > high, high, x)


def _finish(m: FloatMath, x: Value, y: Value, shifted: Value, unit: float) -> Value:
    """y * 2**n, rounded once; x in multiples of `unit` is log2 of the result."""
    k, f = m.k, m.f
    lowest = (1 - f.bias) * unit
    if not m.keeps_subnormals:
        result = m.real(m.bits(y) + (shifted << f.mantissa_bits))
        result = k.select(x < (1 + f.bias) * unit, result, x + math.inf)
        return k.select(x < lowest, 0.0, result)
    # Twice half of the power, since the largest power of two is no number.
    offset, factor = f.one - f.implicit_bit, m.number(2.0)
    # Subnormal results are lifted, and lowered by the product that rounds them.
    lift = f.mantissa_bits + 10
    lifted = k.const(f.word, f.one + (lift << f.mantissa_bits))
    small = x < lowest + unit
    offset_bits = k.select(small, lifted, k.const(f.word, offset))
    factor = k.select(small, m.number(2.0**-lift), factor)
    result = y * m.real((shifted << f.mantissa_bits) + offset_bits) * factor
    return k.select(x < lowest - (f.mantissa_bits + 1) * unit, 0.0, result)


def expm1(m: FloatMath, x: Value) -> Value:
    k = m.k
    reduced = reduce(m, x)
    r = reduced.rest
    error = m.multiply_add(reduced.n, -m.choose(*LN2_LOW), reduced.high - r)
    e = r + m.multiply_add(r * r, m.polynomial(r, EXP), error)
    # 2^n (1 + e) - 1, with half of 2^n since n may be one too large for it.
    half = m.real((reduced.shifted << m.f.mantissa_bits) + (m.f.one - m.f.implicit_bit))
    result = (half * e + (half - 0.5)) * 2.0
    result = k.select(x < (1 + m.f.bias) * LN2, result, x + math.inf)
    result = k.select(x < -(m.f.mantissa_bits + 3) * LN2, -1.0, result)
    return k.select(m.abs(x) < 2.0 ** -(m.f.mantissa_bits + 2), x, result)


def fused_expm1(m: FloatMath, x: Value) -> Value:
    """expm1(x) for 0 <= x < bias ln 2 or NaN, on a device that fuses."""
    reduced = reduce(m, x)
    r = reduced.rest
    e = m.multiply_add(r * r, m.polynomial(r, EXP), r)
    power = m.real((reduced.shifted << m.f.mantissa_bits) + m.f.one)
    return m.multiply_add(power, e, power - 1.0)


def scaled_exp(m: FloatMath, x: Value, exponent: int) -> Value:
    """exp(x) * 2**exponent for x >= 0 and n + exponent <= bias + 1 or NaN."""
    reduced = reduce(m, x)
    offset = (m.f.bias + exponent) << m.f.mantissa_bits
    power = m.real((reduced.shifted << m.f.mantissa_bits) + offset)
    return _unscaled_exp(m, reduced) * power
