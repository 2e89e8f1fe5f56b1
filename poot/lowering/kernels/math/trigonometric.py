"""sin, cos, tan."""

from __future__ import annotations

from poot.lowering.kernels.math.arithmetic import FloatMath, Pair
from poot.lowering.kernels.math.coefficients import COS, SIN, TAN
from poot.lowering.kernels.math.quotient import quotient
from poot.lowering.kernels.math.range_reduction import reduce
from poot.lowering.spirv.value import Value


def _sine(m: FloatMath, r: Pair) -> Value:
    """Of |r| <= pi/4."""
    square = r.high * r.high
    tail = r.high * (square * m.polynomial(square, SIN))
    return r.high + (tail + r.low * (1.0 - square * 0.5))


def _cosine(m: FloatMath, r: Pair) -> Value:
    square = r.high * r.high
    half = square * 0.5
    total = 1.0 - half
    tail = square * square * m.polynomial(square, COS) - r.high * r.low
    return total + (((1.0 - total) - half) + tail)


def _top_bit(m: FloatMath, bit: Value) -> Value:
    """The sign bit from a u32 that is 0 or 1."""
    return m.k.convert(bit, m.f.word) << m.f.word.bits - 1


def sin(m: FloatMath, x: Value) -> Value:
    angle = reduce(m, m.abs(x))
    return _wave(m, x, angle.n, angle.r, m.sign(x))


def cos(m: FloatMath, x: Value) -> Value:
    angle = reduce(m, m.abs(x))
    return _wave(m, x, angle.n + 1, angle.r, m.k.const(m.f.word, 0))


def _wave(m: FloatMath, x: Value, n: Value, r: Pair, sign: Value) -> Value:
    """sin(n pi/2 + r) with `sign` turned; NaN where x is not finite."""
    k = m.k
    result = k.select(k.eq(n & 1, 0), _sine(m, r), _cosine(m, r))
    sign = sign ^ _top_bit(m, (n >> 1) & 1)
    return k.select(m.is_finite(x), m.flip_sign(result, sign), m.nan)


def tan(m: FloatMath, x: Value) -> Value:
    k = m.k
    angle = reduce(m, m.abs(x))
    r = angle.r
    square = r.high * r.high
    tail = r.high * (square * m.polynomial(square, TAN)) + r.low * (1.0 + square)
    tangent = m.ordered_sum(r.high, tail)
    # In odd quadrants -1/tangent, corrected by what the high part leaves out.
    positive = m.abs(tangent.high)
    inverse = quotient(m, m.number(1.0), positive)
    low = m.flip_sign(tangent.low, m.sign(tangent.high))
    inverse = m.flip_sign(inverse - inverse * (inverse * low), m.sign(tangent.high))
    odd = angle.n & 1
    result = k.select(k.eq(odd, 0), tangent.high, inverse)
    result = m.flip_sign(result, m.sign(x) ^ _top_bit(m, odd))
    return k.select(m.is_finite(x), result, m.nan)
