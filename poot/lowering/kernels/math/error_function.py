"""erf and erfc."""

from __future__ import annotations

from poot.lowering.kernels.math.arithmetic import FloatMath
from poot.lowering.kernels.math.coefficients import ERF, ERFC, EXP
from poot.lowering.kernels.math.exponential import LN2_HIGH, LN2_LOW, LOG2_E
from poot.lowering.kernels.math.quotient import quotient
from poot.lowering.spirv.value import Value

# Beyond, erfc is zero even where subnormals are kept.
_END = (10.06, 27.3)


def erf(m: FloatMath, x: Value) -> Value:
    a = m.abs(x)
    square = x * x
    small = x + x * m.polynomial(square, ERF)
    large = m.with_sign(1.0 - _erfc_of_positive(m, a), m.sign(x))
    return m.k.select(a >= 1.0, large, small)


def erfc(m: FloatMath, x: Value) -> Value:
    k = m.k
    a = m.abs(x)
    near = 1.0 - (x + x * m.polynomial(x * x, ERF))
    right = _erfc_of_positive(m, a)
    far = k.select(x < 0.0, 2.0 - right, right)
    # Just below 1/4 is where 1 - erf is accurate; left of 0 it stays so up to -1.
    is_near = k.logical_and(x < 0.25, x > -1.0)
    return k.select(is_near, near, far)


def _erfc_of_positive(m: FloatMath, a: Value) -> Value:
    """erfc for a >= 1/4, or NaN; anything below."""
    k = m.k
    end = m.choose(*_END)
    a = k.select(a > end, end, a)
    t = (a - 2.0) * quotient(m, m.number(1.0), a + 2.0)
    scaled = m.polynomial(t, ERFC)
    # exp(-a^2) = 2^n (1 + w), with a^2 and the remainder in two parts.
    square = m.product(a, a)
    n, shifted = m.round(square.high * -LOG2_E)
    high = (m.number(-0.0) - square.high) - n * m.choose(*LN2_HIGH)
    low = n * m.choose(*LN2_LOW) + square.low
    r = high - low
    w = r + (r * r * m.polynomial(r, EXP) + ((high - r) - low))
    total = scaled + scaled * w
    return m.scale(total * 16.0, m.rounded_integer(shifted) - 4)
