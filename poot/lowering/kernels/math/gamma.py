"""log|gamma(x)|, and its derivative.

Up to 5/2 from zero the recurrences of both lead to a polynomial around 2. Farther out
Stirling's series in 1/x^2 serves, and on the left what the reflection adds to it. The
results are good to a few ulps of max(|f|, 1): between two poles on the left large terms
cancel, so these are kept in two parts each.
"""

from __future__ import annotations

import math

from poot.lowering.kernels.math.arithmetic import FloatMath, Pair
from poot.lowering.kernels.math.coefficients import (
    COT_PI,
    DIGAMMA,
    DIGAMMA_FAR,
    LGAMMA,
    LGAMMA_FAR,
    SINC_PI,
)
from poot.lowering.kernels.math.logarithm import log_pair
from poot.lowering.spirv.value import Value

_FAR = 2.5
# From here on terms in 1/x are lost, and Vulkan says little of 1/x much farther out.
_LARGE = 2.0**60
# (log(2 pi) - 1) / 2
_STIRLING = 0.4189385332046727


def lgamma(m: FloatMath, x: Value) -> Value:
    k = m.k
    a = m.abs(x)
    whole = k.round_even(x)
    t = x - whole
    near = a < _FAR
    logarithm = log_pair(m, k.select(near, m.abs(_product(m, x, whole, t)), a))
    close = (t * m.polynomial(t, LGAMMA) - logarithm.low) - logarithm.high
    far = _stirling(m, a, logarithm)
    # The high part may be too large for a float, and then the low one is NaN.
    distant = k.select(far.high < math.inf, far.high + far.low, far.high)
    result = k.variable(m.f.real, k.select(near, close, distant))
    with k.when(x <= -_FAR):
        result.store(_reflected_lgamma(m, a, t, far))
    pole = k.logical_or(m.is_zero(t), m.is_infinite(x))
    return k.select(k.logical_and(pole, x < 0.5), math.inf, result.load())


def _product(m: FloatMath, x: Value, whole: Value, t: Value) -> Value:
    """gamma(2 + t) / gamma(x) for x = whole + t with -2 <= whole <= 2."""
    k = m.k
    # Of the factors x, x + 1 ... 1 + t only the last may be inexact.
    product = k.select(whole < 2.0, t + 1.0, 1.0)
    product = product * k.select(whole < 1.0, t, 1.0)
    product = product * k.select(whole < 0.0, x, 1.0)
    return product * k.select(whole < -1.0, x + 1.0, 1.0)


def _stirling(m: FloatMath, a: Value, logarithm: Pair) -> Pair:
    """lgamma(a) for a >= 5/2, the second part being what rounding leaves and more."""
    k = m.k
    inverse = k.fdiv(1.0, k.select(a > _LARGE, _LARGE, a))
    tail = inverse * m.polynomial(inverse * inverse, LGAMMA_FAR)
    shifted = a - 0.5
    product = m.product(shifted, logarithm.high - 1.0)
    low = product.low + shifted * logarithm.low
    return Pair(product.high, low + (tail + _STIRLING))


def _reflected_lgamma(m: FloatMath, a: Value, t: Value, right: Pair) -> Value:
    """lgamma(-a) = -lgamma(a) - log(a |sin(pi t)| / pi)"""
    wave = m.abs(t) * m.polynomial(t * t, SINC_PI)
    logarithm = log_pair(m, a * wave)
    total = m.sum(right.high, logarithm.high)
    return m.k.neg(total.high + (total.low + (right.low + logarithm.low)))


def digamma(m: FloatMath, x: Value) -> Value:
    """NaN at 0 and at negative integers, as in JAX."""
    k = m.k
    a = m.abs(x)
    whole = k.round_even(x)
    t = x - whole
    # Below -1/2 the reflection leads to 1 - x.
    reflects = whole < 0.0
    right = _right_digamma(m, a, whole, t, reflects)
    wave = k.select(reflects, t * m.polynomial(t * t, COT_PI), 0.0)
    left = k.select(m.is_zero(t), m.nan, _with_pole(m, t, right, wave))
    result = k.select(whole < 1.0, left, right.high + right.low)
    return k.select(k.eq(x, math.inf), x, result)


def _right_digamma(
    m: FloatMath, a: Value, whole: Value, t: Value, reflects: Value
) -> Pair:
    """digamma of 1 - x where that `reflects`, else of x, or of 1 + x next to 0.

    The second part may be as large as the first.
    """
    k = m.k
    near = a < _FAR
    # Where it is near the argument is 1, 2 or 3 and an offset from -1/2 to 1/2.
    offset = k.select(reflects, k.neg(t), t)
    place = k.select(reflects, 1.0 - whole, whole)
    low, high = place < 2.0, place > 2.0
    divisor = k.select(low, offset + 1.0, offset + 2.0)
    divisor = k.select(near, divisor, k.select(a > _LARGE, _LARGE, a))
    parts = _inverse(m, divisor)
    inverse = parts.high + parts.low
    step = k.select(low, k.neg(inverse), k.select(high, inverse, 0.0))
    # digamma(1 + a) = digamma(a) + 1/a
    half = inverse * 0.5
    half = k.select(reflects, half, k.neg(half))
    square = inverse * inverse
    logarithm = log_pair(m, a)
    tail = half - square * m.polynomial(square, DIGAMMA_FAR)
    return Pair(
        k.select(near, m.polynomial(offset, DIGAMMA), logarithm.high),
        k.select(near, step, logarithm.low + tail),
    )


def _with_pole(m: FloatMath, t: Value, right: Pair, wave: Value) -> Value:
    """right - 1/t + wave for t != 0"""
    k = m.k
    # Next to zero the pole is all, and its inverse is scaled lest Vulkan says nothing
    # of it.
    tiny = m.abs(t) < 2.0**-60
    scale = k.select(tiny, m.number(2.0**64), 1.0)
    pole = _inverse(m, t * scale)
    total = m.sum(right.high, k.neg(pole.high))
    result = (total.high + wave) + (right.low + (total.low - pole.low))
    return k.select(tiny, (pole.high + pole.low) * -(2.0**64), result)


def _inverse(m: FloatMath, x: Value) -> Pair:
    """1/x and what is missing, for moderate x."""
    inverse = m.k.fdiv(1.0, x)
    product = m.product(inverse, x)
    return Pair(inverse, inverse * ((1.0 - product.high) - product.low))
