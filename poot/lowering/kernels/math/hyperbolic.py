"""tanh, sinh, cosh and their inverses."""

from __future__ import annotations

import math

from poot.lowering.kernels.math.arithmetic import FloatMath, Pair
from poot.lowering.kernels.math.coefficients import (
    ASINH,
    ATANH,
    SINH,
    TANH,
    Coefficients,
)
from poot.lowering.kernels.math.exponential import LN2, fused_expm1, scaled_exp
from poot.lowering.kernels.math.logarithm import log_of_sum
from poot.lowering.kernels.math.quotient import near_quotient, quotient
from poot.lowering.spirv.value import Value


def odd_polynomial(m: FloatMath, x: Value, table: Coefficients) -> Value:
    """x + x^3 p(x^2) for x >= 0 (the result for -0 may be +0)"""
    square = x * x
    return m.multiply_add(square * m.polynomial(square, table), x, x)


def tanh(m: FloatMath, x: Value) -> Value:
    k = m.k
    a = m.abs(x)
    # From here on the result is one.
    end = m.choose(9.02, 19.1)
    if m.fuses:
        # tanh(a) = t / (t + 2) with t = expm1(2a): accurate for small a too, until the
        # quotient's remainder is lost.
        t = fused_expm1(m, k.select(a > end, end, a) * 2.0)
        result = k.select(a < 2.0**-13, a, near_quotient(m, t, t + 2.0))
        return m.with_sign(result, m.sign(x))
    e = scaled_exp(m, k.select(a < end, a, end) * 2.0, 0)
    large = 1.0 - k.fdiv(2.0, e + 1.0)
    result = k.select(a >= 0.55, large, odd_polynomial(m, a, TANH))
    return m.with_sign(result, m.sign(x))


def _half_exp(m: FloatMath, a: Value) -> Value:
    """exp(a) / 2 for a >= 0, also where exp(a) is too large."""
    # Beyond, half of it is too large too. One doubling is left for the end, since
    # the largest power of two that is needed is no number.
    end = (m.f.bias + 2.1) * LN2
    return scaled_exp(m, m.k.select(a > end, end, a), -2) * 2.0


def sinh(m: FloatMath, x: Value) -> Value:
    a = m.abs(x)
    e = _half_exp(m, a)
    large = e - m.k.fdiv(0.25, e)
    result = m.k.select(a > 1.0, large, odd_polynomial(m, a, SINH))
    return m.with_sign(result, m.sign(x))


def cosh(m: FloatMath, x: Value) -> Value:
    e = _half_exp(m, m.abs(x))
    return e + m.k.fdiv(0.25, e)


def _sqrt_of_sum(m: FloatMath, x: Pair) -> Pair:
    """The square root of high + low to nearly double precision; for normal sums."""
    root = m.k.sqrt(x.high)
    square = m.product(root, root)
    rest = ((x.high - square.high) - square.low) + x.low
    return m.ordered_sum(root, m.k.fdiv(rest * 0.5, root))


def asinh(m: FloatMath, x: Value) -> Value:
    k = m.k
    a = m.abs(x)
    far = a > 2.0 ** (m.f.mantissa_bits // 2 + 2)
    # log(a + sqrt(a^2 + 1)), which far out is log(2a).
    square = m.product(a, a)
    total = m.sum(square.high, m.number(1.0))
    root = _sqrt_of_sum(m, Pair(total.high, total.low + square.low))
    near = m.sum(a, root.high)
    large = _log_far(m, far, a, Pair(near.high, near.low + root.low))
    large = k.select(a < math.inf, large, a)
    result = k.select(a >= 0.5, large, odd_polynomial(m, a, ASINH))
    return m.with_sign(result, m.sign(x))


def _log_far(m: FloatMath, far: Value, a: Value, near: Pair) -> Value:
    """log(2a) where `far` holds, else log(near)."""
    k = m.k
    high = k.select(far, a, near.high)
    low = k.select(far, 0.0, near.low)
    one, zero = k.const(m.f.integer, 1), k.const(m.f.integer, 0)
    return log_of_sum(m, Pair(high, low), k.select(far, one, zero))


def acosh(m: FloatMath, x: Value) -> Value:
    k = m.k
    far = x > 2.0 ** (m.f.mantissa_bits // 2 + 2)
    # log1p(t + sqrt(t (t + 2))) with t = x - 1, which far out is log(2x).
    t = x - 1.0
    more = m.ordered_sum(m.number(2.0), t)
    radicand = m.product(t, more.high)
    root = _sqrt_of_sum(m, Pair(radicand.high, radicand.low + t * more.low))
    near = m.sum(t, root.high)
    total = m.sum(m.number(1.0), near.high)
    low = total.low + (near.low + root.low)
    large = _log_far(m, far, x, Pair(total.high, low))
    result = k.select(x < math.inf, large, x)
    result = k.select(k.eq(x, 1.0), 0.0, result)
    return k.select(x < 1.0, m.nan, result)


def atanh(m: FloatMath, x: Value) -> Value:
    k = m.k
    a = m.abs(x)
    ratio = quotient(m, a + 1.0, 1.0 - a)
    large = log_of_sum(m, Pair(ratio, m.number(0.0))) * 0.5
    large = k.select(k.eq(a, 1.0), math.inf, large)
    result = k.select(a >= 0.5, large, odd_polynomial(m, a, ATANH))
    return m.with_sign(k.select(a > 1.0, m.nan, result), m.sign(x))
