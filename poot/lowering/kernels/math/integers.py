"""Functions of integers. Those under 32 bits come extended to 32."""

from __future__ import annotations

from poot.lowering.kernels.math import loops
from poot.lowering.kernels.math.loops import State
from poot.lowering.spirv.builder import KernelBuilder
from poot.lowering.spirv.types import U32, ScalarType, unsigned
from poot.lowering.spirv.value import Value

# Steps of Euclid's algorithm on numbers below 2**n: Fibonacci numbers take the most.
_GCD_STEPS = {32: 47, 64: 93}


def _scalar(x: Value) -> ScalarType:
    return x.ty.scalar


def _word(k: KernelBuilder, x: Value) -> Value:
    return k.bitcast(x, unsigned(_scalar(x).bits))


def _absolute_word(k: KernelBuilder, x: Value) -> Value:
    """|x| as unsigned, also of the lowest value."""
    if not _scalar(x).is_signed:
        return x
    return _word(k, k.select(x < 0, k.neg(x), x))


def absolute(k: KernelBuilder, x: Value) -> Value:
    """|x|; the lowest value stays."""
    return k.bitcast(_absolute_word(k, x), _scalar(x))


def sign(k: KernelBuilder, x: Value) -> Value:
    if not _scalar(x).is_signed:
        return k.select(k.eq(x, 0), k.const(x.ty, 0), k.const(x.ty, 1))
    # From the sign bits of x and -x: NVIDIA's compiler gives up on comparisons of
    # 64-bit integers with zero that choose between these results.
    last = _scalar(x).bits - 1
    return k.sar(x, last) | k.bitcast(_word(k, k.neg(x)) >> last, x.ty)


def _own_bits(k: KernelBuilder, x: Value, bits: int) -> Value:
    """The low `bits` bits of x as unsigned."""
    word = _word(k, x)
    return word & ((1 << bits) - 1) if bits < 32 else word


def leading_zeros(k: KernelBuilder, x: Value, bits: int) -> Value:
    """Of an integer of `bits` bits."""
    word = _own_bits(k, x, bits)
    if bits <= 32:
        return k.bitcast(k.clz(word) - (32 - bits), x.ty)
    high, low = k.convert(word >> 32, U32), k.convert(word, U32)
    zeros = k.select(k.eq(high, 0), k.clz(low) + 32, k.clz(high))
    return k.convert(zeros, x.ty)


def ones(k: KernelBuilder, x: Value, bits: int) -> Value:
    """How many of the `bits` bits are set."""
    word = _own_bits(k, x, bits)
    if bits <= 32:
        return k.bitcast(k.popcount(word), x.ty)
    high, low = k.convert(word >> 32, U32), k.convert(word, U32)
    return k.convert(k.popcount(high) + k.popcount(low), x.ty)


def shift_left(k: KernelBuilder, a: Value, amount: Value, bits: int) -> Value:
    """0 where the amount, read as unsigned, is not below `bits`."""
    shifted = k.shl(a, amount)
    if bits >= 32:
        return shifted
    return k.select(_word(k, amount) < bits, shifted, k.const(a.ty, 0))


def shift_right(k: KernelBuilder, a: Value, amount: Value, bits: int) -> Value:
    """Fills with the sign; extended operands need no more care than whole ones."""
    if not _scalar(a).is_signed:
        return shift_right_logical(k, a, amount, bits)
    return k.sar(a, amount)


def shift_right_logical(k: KernelBuilder, a: Value, amount: Value, bits: int) -> Value:
    """Fills with zeros from bit `bits` on."""
    return k.bitcast(k.shr(_own_bits(k, a, bits), _word(k, amount)), a.ty)


def greatest_common_divisor(k: KernelBuilder, a: Value, b: Value) -> Value:
    """Euclid's; not negative but where the lowest value is the answer."""

    def go_on(state: State) -> Value:
        return k.ne(state[1], 0)

    def step(state: State) -> State:
        larger, smaller = state
        return smaller, k.rem(larger, smaller)

    words = (_absolute_word(k, a), _absolute_word(k, b))
    steps = _GCD_STEPS[_scalar(a).bits]
    divisor, _ = loops.iterate(k, words, go_on, step, steps)
    return k.bitcast(divisor, a.ty)


def power(k: KernelBuilder, base: Value, exponent: Value) -> Value:
    """By squaring, and wrapping. Of a negative exponent the reciprocal cut to an
    integer: 0 unless the base is 1 or -1."""

    def go_on(state: State) -> Value:
        return k.ne(state[2], 0)

    def step(state: State) -> State:
        result, square, left = state
        taken = k.select(k.ne(left & 1, 0), result * square, result)
        return taken, square * square, left >> 1

    scalar = _scalar(base)
    state = (k.const(base.ty, 1), base, _word(k, exponent))
    result = loops.iterate(k, state, go_on, step, scalar.bits)[0]
    if not scalar.is_signed:
        return result
    one, zero = k.const(base.ty, 1), k.const(base.ty, 0)
    minus_one = k.eq(base, -1)
    odd = k.ne(exponent & 1, 0)
    turned = k.select(k.logical_and(minus_one, odd), k.neg(one), one)
    is_unit = k.logical_or(minus_one, k.eq(base, 1))
    return k.select(exponent < 0, k.select(is_unit, turned, zero), result)


def at_least_unsigned(k: KernelBuilder, a: Value, b: Value) -> Value:
    """1 where a >= b as unsigned numbers, else 0. Extending keeps that order."""
    return k.convert(_word(k, a) >= _word(k, b), a.ty)
