"""The exact remainder of floats, with the sign of the dividend."""

from __future__ import annotations

from poot.lowering.kernels.math import loops
from poot.lowering.kernels.math.arithmetic import FloatMath
from poot.lowering.kernels.math.loops import State
from poot.lowering.spirv.value import Value

# Quotient bits that one step takes off: so few that the step's estimate of the
# quotient, good to two or three ulp, is never off by more than one.
_BITS_A_STEP = (18, 47)


def remainder(m: FloatMath, x: Value, y: Value) -> Value:
    """C's fmod: long division of the significands, many bits a step.

    f32 takes at most 16 steps, f64 at most 45.
    """
    k, f = m.k, m.f
    (a, a_exponent), (b, b_exponent) = _parts(m, x), _parts(m, y)
    zero = k.const(f.integer, 0)
    behind = a_exponent < b_exponent
    left = k.select(behind, zero, a_exponent - b_exponent)
    inverse = k.fdiv(1.0, k.convert(b, f.real))
    most = m.choose(*_BITS_A_STEP)

    def go_on(state: State) -> Value:
        return state[1] > 0

    def step(state: State) -> State:
        rest, left = state
        bits = k.min(left, k.const(f.integer, int(most)))
        return _divide_step(m, rest, bits, b, inverse), left - bits

    steps = -(-(2 * f.bias + f.mantissa_bits) // int(most))
    rest = k.select(a >= b, a - b, a)
    rest, _ = loops.iterate(k, (rest, left), go_on, step, steps)
    result = k.select(behind, m.abs(x), _assemble(m, rest, b_exponent))
    result = k.select(m.is_infinite(y), m.abs(x), result)
    undefined = k.logical_or(m.is_zero(y), k.logical_not(m.is_finite(x)))
    undefined = k.logical_or(undefined, m.is_nan(y))
    result = k.select(m.is_zero(x), 0.0, result)
    return k.select(undefined, m.nan, m.with_sign(result, m.sign(x)))


def _parts(m: FloatMath, x: Value) -> tuple[Value, Value]:
    """|x| = significand * 2**(exponent - bias - mantissa_bits), normalized."""
    magnitude, shift = m.normal(m.abs(x))
    bits = m.bits(magnitude)
    significand = (bits & m.f.mantissa_mask) | m.f.implicit_bit
    return significand, m.integer(bits >> m.f.mantissa_bits) + shift


def _divide_step(
    m: FloatMath, rest: Value, bits: Value, divisor: Value, inverse: Value
) -> Value:
    """(rest * 2**bits) mod divisor, for rest < divisor.

    What wraps in the products cancels in their difference.
    """
    k = m.k
    estimate = k.convert(rest, m.f.real) * inverse * m.power_of_two(bits)
    quotient = k.convert_raw(estimate, m.f.integer)
    rest = m.integer((rest << m.word(bits)) - m.word(quotient) * divisor)
    signed = m.integer(divisor)
    rest = k.select(rest < 0, rest + signed, rest)
    return m.word(k.select(rest >= signed, rest - signed, rest))


def _assemble(m: FloatMath, rest: Value, exponent: Value) -> Value:
    """rest * 2**(exponent - bias - mantissa_bits), which is exact."""
    k, f = m.k, m.f
    fraction = k.convert(rest, f.real) * 2.0**-f.mantissa_bits
    n = exponent - f.bias
    return m.scale(fraction, n)
