"""erf, erfc and the inverse of erf."""

from __future__ import annotations

from poot.lowering.kernels.math.arithmetic import FloatMath
from poot.lowering.kernels.math.coefficients import (
    ERF,
    ERF_INV,
    ERF_INV_FAR,
    ERFC,
    EXP,
)
from poot.lowering.kernels.math.exponential import LN2_HIGH, LN2_LOW, LOG2_E
from poot.lowering.kernels.math.logarithm import log
from poot.lowering.kernels.math.quotient import quotient
from poot.lowering.spirv.value import Value

# Beyond, erfc is zero even where subnormals are kept.
_END = (10.06, 27.3)
# The derivative of erf at 0.
_SLOPE = 1.1283791670955126


def erf(m: FloatMath, x: Value) -> Value:
    k = m.k
    a = m.abs(x)
    small = x + x * m.polynomial(x * x, ERF)
    # The second term may be flushed where the first is not.
    tiny = m.f.smallest_normal * 2.0**m.f.mantissa_bits
    small = k.select(a < tiny, x * _SLOPE, small)
    large = m.with_sign(1.0 - _erfc_of_positive(m, a), m.sign(x))
    return k.select(a >= 1.0, large, small)


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
    shifted = m.sum(a, m.number(2.0))
    inverse = quotient(m, m.number(1.0), shifted.high)
    scaled = m.polynomial((a - 2.0) * inverse, ERFC) * inverse
    # exp(-a^2) = 2^n (1 + w), with a^2 and the remainder in two parts.
    square = m.product(a, a)
    n, steps = m.round(square.high * -LOG2_E)
    high = (m.number(-0.0) - square.high) - n * m.choose(*LN2_HIGH)
    low = n * m.choose(*LN2_LOW) + square.low
    r = high - low
    w = r + (r * r * m.polynomial(r, EXP) + ((high - r) - low))
    total = scaled + scaled * (w - shifted.low * inverse)
    return m.scale(total * 16.0, m.rounded_integer(steps) - 4)


def erf_inv(m: FloatMath, x: Value) -> Value:
    """x times a function of log(1 - x^2), which is smooth up to +-1."""
    k = m.k
    a = m.abs(x)
    # NaN beyond 1, which all that follows keeps.
    w = m.flip_sign(log(m, (1.0 - a) * (1.0 + a)), k.const(m.f.word, m.f.sign_bit))
    near = m.polynomial(w, ERF_INV)
    far = m.polynomial(k.fdiv(w - 11.0, w + 16.0), ERF_INV_FAR)
    result = x * k.select(w < 5.0, near, far)
    return k.select(k.eq(a, 1.0), m.with_sign(m.infinity, m.sign(x)), result)
