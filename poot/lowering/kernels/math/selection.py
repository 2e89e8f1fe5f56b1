"""Extremes, signs, whole and next numbers: what a look at the bits decides."""

from __future__ import annotations

from collections.abc import Callable

from poot.lowering.kernels.math.arithmetic import FloatMath
from poot.lowering.spirv.builder import KernelBuilder
from poot.lowering.spirv.value import Value


def maximum(m: FloatMath, a: Value, b: Value) -> Value:
    """IEEE 754-2019 maximum: a NaN wins, and +0 is above -0."""
    return _extreme(m, a, b, m.k.max, m.k.min)


def minimum(m: FloatMath, a: Value, b: Value) -> Value:
    """IEEE 754-2019 minimum: a NaN wins, and -0 is below +0."""
    return _extreme(m, a, b, m.k.min, m.k.max)


def _extreme(
    m: FloatMath,
    a: Value,
    b: Value,
    mixed: Callable[[Value, Value], Value],
    negative: Callable[[Value, Value], Value],
) -> Value:
    """By the bits, read as integers: their order is that of the floats unless both
    are negative; so subnormals and signed zeros count on every device.

    Each operand is asked by itself whether it is NaN: NVIDIA's compiler gets that wrong
    of the larger one of two 64-bit magnitudes.
    """
    k = m.k
    x, y = m.integer(m.bits(a)), m.integer(m.bits(b))
    chosen = k.select((x & y) < 0, negative(x, y), mixed(x, y))
    nan = k.logical_or(m.is_nan(a), m.is_nan(b))
    return k.select(nan, m.nan, m.real(m.word(chosen)))


def sign(m: FloatMath, x: Value) -> Value:
    """-1 or 1; zeros and NaN stay as they are."""
    k = m.k
    unit = m.with_sign(m.number(1.0), m.sign(x))
    stays = k.logical_or(m.is_zero(x), m.is_nan(x))
    zero = m.with_sign(m.number(0.0), m.sign(x))
    return k.select(stays, k.select(m.is_nan(x), x, zero), unit)


def floor(m: FloatMath, x: Value) -> Value:
    """The largest whole number that is not above x: -1 for a negative subnormal."""
    return _whole(m, x, m.k.floor(x), m.f.sign_bit, -1.0)


def ceil(m: FloatMath, x: Value) -> Value:
    """The smallest whole number that is not below x: 1 for a positive subnormal."""
    return _whole(m, x, m.k.ceil(x), 0, 1.0)


def _whole(m: FloatMath, x: Value, whole: Value, sign_bit: int, unit: float) -> Value:
    """`whole`, or `unit` for subnormals of this sign, which some devices take for 0."""
    if m.keeps_subnormals:
        return whole
    subnormal = (m.bits(x) - (sign_bit + 1)) < m.f.implicit_bit - 1
    return m.k.select(subnormal, m.number(unit), whole)


def copysign(m: FloatMath, magnitude: Value, sign: Value) -> Value:
    return m.with_sign(m.abs(magnitude), m.sign(sign))


def next_after(
    k: KernelBuilder, a: Value, b: Value, *, sign_bit: int, infinity: int
) -> Value:
    """The bits of the neighbour of a on the side of b, all given as unsigned bits."""
    magnitude_a, magnitude_b = a & (sign_bit - 1), b & (sign_bit - 1)
    zero_a = k.eq(magnitude_a, 0)
    same = k.logical_or(k.eq(a, b), k.eq(magnitude_a | magnitude_b, 0))
    # b lies farther from zero than a if it has a's sign and a larger magnitude.
    outward = k.logical_and(k.eq((a ^ b) & sign_bit, 0), magnitude_b > magnitude_a)
    stepped = k.select(outward, a + 1, a - 1)
    stepped = k.select(zero_a, (b & sign_bit) | 1, stepped)
    nan = k.logical_or(magnitude_a > infinity, magnitude_b > infinity)
    quiet = k.const(a.ty, infinity | infinity >> 1)
    return k.select(nan, quiet, k.select(same, b, stepped))


def float_next_after(m: FloatMath, a: Value, b: Value) -> Value:
    stepped = next_after(
        m.k, m.bits(a), m.bits(b), sign_bit=m.f.sign_bit, infinity=m.f.infinity
    )
    return m.real(stepped)
