"""pow and hypot."""

from __future__ import annotations

import math

from poot.lowering.kernels.math import logarithm
from poot.lowering.kernels.math.arithmetic import FloatMath, Pair
from poot.lowering.kernels.math.coefficients import EXP2, LOG2
from poot.lowering.spirv.value import Value

# 2/ln2 and 2/(3 ln2), each in two parts.
_SCALE_HIGH = (2.885390043258667, 2.8853900817779268)
_SCALE_LOW = (3.851926067000022e-08, 4.0710547481862066e-17)
_CUBIC_HIGH = (0.9617967009544373, 0.9617966939259756)
_CUBIC_LOW = (-7.028461812552678e-09, 5.0577616648125907e-17)


def _log2(m: FloatMath, x: Value) -> Pair:
    """log2 of positive, finite x to nearly double precision."""
    k = m.k
    reduced = logarithm.reduce(m, x)
    f = reduced.f
    # s = f / (2 + f) in two parts, and log2((1 + s) / (1 - s)) as a series in s.
    divisor = m.ordered_sum(m.number(2.0), f)
    inverse = k.fdiv(1.0, divisor.high)
    s = f * inverse
    back = m.product(s, divisor.high)
    s_low = (((f - back.high) - back.low) - s * divisor.low) * inverse
    square = m.product(s, s)
    square = Pair(square.high, square.low + (s + s) * s_low)
    cubic_high = m.number(m.choose(*_CUBIC_HIGH))
    inner = m.ordered_sum(cubic_high, square.high * m.polynomial(square.high, LOG2))
    inner = Pair(inner.high, inner.low + m.choose(*_CUBIC_LOW))
    tail = _times(m, square, inner)
    scale = m.ordered_sum(m.number(m.choose(*_SCALE_HIGH)), tail.high)
    scale = Pair(scale.high, scale.low + (tail.low + m.choose(*_SCALE_LOW)))
    fraction = _times(m, Pair(s, s_low), scale)
    total = m.ordered_sum(m.to_real(reduced.n), fraction.high)
    return m.ordered_sum(total.high, total.low + fraction.low)


def _times(m: FloatMath, a: Pair, b: Pair) -> Pair:
    product = m.product(a.high, b.high)
    return Pair(product.high, product.low + (a.high * b.low + a.low * b.high))


def _exp2(m: FloatMath, x: Pair) -> Value:
    """2**(high + low), where high may be of any size."""
    k = m.k
    # Beyond these limits the result is zero or infinity.
    bottom = -(m.f.bias + m.f.mantissa_bits + 2.0)
    top = m.f.bias + 2.0
    high = k.select(x.high < bottom, bottom, k.select(x.high > top, top, x.high))
    low = k.select(k.eq(high, x.high), x.low, 0.0)
    n, shifted = m.round(high)
    r = (high - n) + low
    y = r * m.polynomial(r, EXP2) + 1.0
    return m.scale(y, m.rounded_integer(shifted))


def power(m: FloatMath, x: Value, y: Value) -> Value:
    """pow with IEEE 754's special cases."""
    k = m.k
    a = m.abs(x)
    logarithm2 = _log2(m, a)
    # A larger exponent changes nothing, but its product might not be finite.
    bound = m.choose(2.0**40, 2.0**80)
    exponent = k.select(y > bound, bound, k.select(y < -bound, -bound, y))
    product = m.product(exponent, logarithm2.high)
    low = product.low + exponent * logarithm2.low
    result = _exp2(m, m.ordered_sum(product.high, low))
    result = _extremes(m, a, y, result)
    result = _signed(m, x, y, result)
    nan = k.logical_or(m.is_nan(x), m.is_nan(y))
    result = k.select(nan, m.nan, result)
    one = k.logical_or(k.eq(x, 1.0), m.is_zero(y))
    return k.select(one, 1.0, result)


def _extremes(m: FloatMath, a: Value, y: Value, result: Value) -> Value:
    """|x|**y where |x| is 0 or infinite, or y is infinite."""
    k = m.k
    grows = k.eq(a > 1.0, y > 0.0)
    extreme = k.select(grows, m.infinity, 0.0)
    infinite = m.is_infinite(y)
    special = k.logical_or(infinite, k.logical_or(m.is_zero(a), m.is_infinite(a)))
    result = k.select(special, extreme, result)
    return k.select(k.logical_and(infinite, k.eq(a, 1.0)), 1.0, result)


def _signed(m: FloatMath, x: Value, y: Value, result: Value) -> Value:
    """The power of a negative x: NaN unless y is an integer, odd ones turn it."""
    k = m.k
    half = y * 0.5
    integral = k.eq(k.trunc(y), y)
    odd = k.logical_and(integral, k.ne(k.trunc(half), half))
    turned = m.flip_sign(result, m.sign(x))
    result = k.select(odd, turned, result)
    finite_negative = k.logical_and(x < 0.0, m.is_finite(x))
    no_root = k.logical_and(finite_negative, k.logical_not(integral))
    return k.select(no_root, m.nan, result)


def hypot(m: FloatMath, x: Value, y: Value) -> Value:
    k = m.k
    ax, ay = m.abs(x), m.abs(y)
    swap = ay > ax
    a, b = k.select(swap, ay, ax), k.select(swap, ax, ay)
    # Powers of two that keep the squares in range.
    high, low = m.choose(2.0**60, 2.0**500), m.choose(2.0**-40, 2.0**-400)
    down, up = m.choose(2.0**-80, 2.0**-600), m.choose(2.0**100, 2.0**700)
    factor = k.select(a > high, down, k.select(a < low, m.number(up), 1.0))
    back = k.select(a > high, 1.0 / down, k.select(a < low, m.number(1.0 / up), 1.0))
    a, b = a * factor, b * factor
    p, q = m.product(a, a), m.product(b, b)
    total = m.ordered_sum(p.high, q.high)
    root = k.sqrt(total.high)
    square = m.product(root, root)
    rest = ((total.high - square.high) - square.low) + (total.low + (p.low + q.low))
    root = root + k.select(root > 0.0, k.fdiv(rest * 0.5, root), 0.0)
    result = root * back
    nan = k.logical_or(m.is_nan(x), m.is_nan(y))
    result = k.select(nan, m.nan, result)
    infinite = k.logical_or(m.is_infinite(x), m.is_infinite(y))
    return k.select(infinite, math.inf, result)
