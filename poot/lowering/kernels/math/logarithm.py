"""log, log2, log10, log1p: the exponent, and a polynomial around one."""

from __future__ import annotations

import math
from dataclasses import dataclass

from poot.lowering.kernels.math.arithmetic import FloatMath, Pair
from poot.lowering.kernels.math.coefficients import LOG
from poot.lowering.kernels.math.exponential import LN2_HIGH, LN2_LOW
from poot.lowering.spirv.value import Value

_ROOT_HALF = {23: 0x3F3504F3, 52: 0x3FE6A09E667F3BCD}


@dataclass(frozen=True, slots=True)
class Scaled:
    """x = 2**n (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2)."""

    n: Value
    f: Value


def reduce(m: FloatMath, x: Value) -> Scaled:
    """Split off the exponent of positive, finite x."""
    x, shift = m.normal(x)
    offset = m.integer(m.bits(x) - _ROOT_HALF[m.f.mantissa_bits])
    n = m.k.sar(offset, m.f.mantissa_bits)
    mantissa = m.real(m.bits(x) - m.word(n << m.f.mantissa_bits))
    return Scaled(n + shift, mantissa - 1.0)


def log(m: FloatMath, x: Value) -> Value:
    reduced = reduce(m, x)
    return _specials(m, x, _combine(m, reduced, None))


def _combine(m: FloatMath, reduced: Scaled, correction: Value | None) -> Value:
    """n ln2 + log(1 + f + correction)"""
    f, n = reduced.f, m.to_real(reduced.n)
    square = f * f
    tail = f * square * m.polynomial(f, LOG) + n * m.choose(*LN2_LOW)
    if correction is not None:
        tail = tail + correction
    return (f + (tail - square * 0.5)) + n * m.choose(*LN2_HIGH)


def _specials(m: FloatMath, x: Value, result: Value) -> Value:
    """The logarithm where x is 0, negative, infinite or NaN."""
    k = m.k
    result = k.select(x < math.inf, result, x)
    result = k.select(x < 0.0, m.nan, result)
    return k.select(m.is_zero(x), -math.inf, result)


def _in_base(
    m: FloatMath, x: Value, scale: Pair, base_high: float, base_low: float
) -> Value:
    """n * base + log(1 + f) * scale, products with the leading bits being exact."""
    reduced = reduce(m, x)
    f, n = reduced.f, m.to_real(reduced.n)
    half_square = f * f * 0.5
    tail = f * f * f * m.polynomial(f, LOG)
    high, _ = m.split(f - half_square)
    low = ((f - high) - half_square) + tail
    total = n * base_low + ((low + high) * scale.low + low * scale.high)
    return _specials(m, x, (total + high * scale.high) + n * base_high)


def log2(m: FloatMath, x: Value) -> Value:
    scale = Pair(
        m.number(m.choose(1.44287109375, 1.4426950514316559)),
        m.number(m.choose(-1.7605285393e-04, -1.0542692476429138e-08)),
    )
    return _in_base(m, x, scale, 1.0, 0.0)


def log10(m: FloatMath, x: Value) -> Value:
    scale = Pair(
        m.number(m.choose(0.434326171875, 0.4342944845557213)),
        m.number(m.choose(-3.1689971365e-05, -2.6524694553078553e-09)),
    )
    high = m.choose(0.301025390625, 0.30102999566395283)
    low = m.choose(4.6050390665e-06, 2.8363394551044964e-14)
    return _in_base(m, x, scale, high, low)


def log_of_sum(m: FloatMath, x: Pair, doublings: Value | None = None) -> Value:
    """log(2**doublings (high + low)) for normal high and |low| <= ulp(high)."""
    reduced = reduce(m, x.high)
    # 2**-n; where that is no normal number 0, as the correction does not matter there.
    negated = m.k.max(m.f.bias - reduced.n, m.k.const(m.f.integer, 0))
    inverse = m.real(m.word(negated << m.f.mantissa_bits))
    f = m.sum(reduced.f, x.low * inverse)
    n = reduced.n if doublings is None else reduced.n + doublings
    return _combine(m, Scaled(n, f.high), f.low)


def log_pair(m: FloatMath, x: Value) -> Pair:
    """log(x) for positive, finite x, with an error far below a float's last bit."""
    reduced = reduce(m, x)
    f, n = reduced.f, m.to_real(reduced.n)
    square = m.product(f, f)
    near = m.ordered_sum(f, square.high * -0.5)
    tail = f * square.high * m.polynomial(f, LOG) - square.low * 0.5
    total = m.ordered_sum(n * m.choose(*LN2_HIGH), near.high)
    low = total.low + (near.low + (tail + n * m.choose(*LN2_LOW)))
    return m.ordered_sum(total.high, low)


def log1p(m: FloatMath, x: Value) -> Value:
    k = m.k
    result = log_of_sum(m, m.sum(m.number(1.0), x))
    result = k.select(x < math.inf, result, x)
    result = k.select(x < -1.0, m.nan, result)
    result = k.select(k.eq(x, -1.0), -math.inf, result)
    return k.select(m.abs(x) < 2.0 ** -(m.f.mantissa_bits + 2), x, result)
