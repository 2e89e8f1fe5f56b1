"""asin, acos, atan, atan2."""

from __future__ import annotations

from poot.lowering.kernels.math.arithmetic import FloatMath
from poot.lowering.kernels.math.coefficients import ASIN, ATAN
from poot.lowering.kernels.math.hyperbolic import odd_polynomial
from poot.lowering.kernels.math.quotient import divide, quotient
from poot.lowering.kernels.math.range_reduction import HALF_PI_HIGH, HALF_PI_LOW
from poot.lowering.spirv.value import Value


def _half_angle(m: FloatMath, a: Value) -> tuple[Value, Value]:
    """asin of sqrt((1 - a) / 2) for a in [1/2, 1], as the root and what to add."""
    k = m.k
    z = (1.0 - a) * 0.5
    root = k.sqrt(z)
    square = m.product(root, root)
    rest = k.fdiv((z - square.high) - square.low, root + root)
    tail = root * (z * m.polynomial(z, ASIN)) + k.select(root > 0.0, rest, 0.0)
    return root, tail


def asin(m: FloatMath, x: Value) -> Value:
    k = m.k
    a = m.abs(x)
    root, tail = _half_angle(m, a)
    high, low = m.choose(*HALF_PI_HIGH), m.choose(*HALF_PI_LOW)
    large = high - ((root + (tail - low * 0.5)) * 2.0)
    result = k.select(a > 0.5, large, odd_polynomial(m, a, ASIN))
    return m.with_sign(k.select(a > 1.0, m.nan, result), m.sign(x))


def acos(m: FloatMath, x: Value) -> Value:
    k = m.k
    a = m.abs(x)
    high, low = m.choose(*HALF_PI_HIGH), m.choose(*HALF_PI_LOW)
    square = x * x
    small = high - (x - (low - x * (square * m.polynomial(square, ASIN))))
    root, tail = _half_angle(m, a)
    right = (root + tail) * 2.0
    left = (high - (root + (tail - low))) * 2.0
    large = k.select(m.is_negative(x), left, right)
    result = k.select(a > 0.5, large, small)
    return k.select(a > 1.0, m.nan, result)


def atan(m: FloatMath, x: Value) -> Value:
    k = m.k
    a = m.abs(x)
    steep = a > 1.0
    # Farther out the angle does not change any more.
    bounded = k.select(a < 2.0**60, a, 2.0**60)
    inverse = quotient(m, m.number(1.0), bounded)
    angle = odd_polynomial(m, k.select(steep, inverse, a), ATAN)
    high, low = m.choose(*HALF_PI_HIGH), m.choose(*HALF_PI_LOW)
    angle = k.select(steep, high - (angle - low), angle)
    angle = k.select(m.is_nan(x), x, angle)
    return m.with_sign(angle, m.sign(x))


def atan2(m: FloatMath, y: Value, x: Value) -> Value:
    k = m.k
    ay, ax = m.abs(y), m.abs(x)
    steep = ay > ax
    small, large = k.select(steep, ax, ay), k.select(steep, ay, ax)
    slope = divide(m, small, large)
    slope = k.select(m.is_zero(large), 0.0, slope)
    slope = k.select(m.is_infinite(small), 1.0, slope)
    angle = odd_polynomial(m, slope, ATAN)
    high, low = m.choose(*HALF_PI_HIGH), m.choose(*HALF_PI_LOW)
    angle = k.select(steep, high - (angle - low), angle)
    angle = k.select(m.is_negative(x), 2.0 * high - (angle - 2.0 * low), angle)
    angle = m.with_sign(m.abs(angle), m.sign(y))
    nan = k.logical_or(m.is_nan(x), m.is_nan(y))
    return k.select(nan, m.nan, angle)
