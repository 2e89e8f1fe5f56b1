"""x = n pi/2 + r, for every finite x: what sine, cosine and tangent begin with."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from poot.lowering.kernels.math.arithmetic import FloatMath, Pair
from poot.lowering.spirv.builder import KernelBuilder
from poot.lowering.spirv.types import U32
from poot.lowering.spirv.value import Value

# pi/2 in four parts; n times each of the first three is exact up to _LIMIT.
_PARTS = (
    (
        1.57080078125,
        -4.454515874385834e-06,
        6.077272018956137e-11,
        -1.7151245100058819e-15,
    ),
    (
        1.5707963267341256,
        6.077100506303966e-11,
        2.0222662487111665e-21,
        8.4784276603689e-32,
    ),
)
_LIMIT = (400.0, 1.6e6)
_TWO_OVER_PI = 0.6366197723675814
# pi/2 in two parts; the parts of pi are twice these.
HALF_PI_HIGH = (1.5707963705062866, 1.5707963267948966)
HALF_PI_LOW = (-4.371138828673793e-08, 6.123233995736766e-17)

# The binary digits of 2/pi, 32 a word.
_DIGITS = (
    *(0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041),
    *(0xFE5163AB, 0xDEBBC561, 0xB7246E3A, 0x424DD2E0, 0x06492EEA, 0x09D1921C),
    *(0xFE1DEB1C, 0xB129A73E, 0xE88235F5, 0x2EBB4484, 0xE99C7026, 0xB45F7E41),
    *(0x3991D639, 0x835339F4, 0x9C845F8B, 0xBDF9283B, 0x1FF897FF, 0xDE05980F),
    *(0xEF2F118B, 0x5A0A6D1F, 0x6D367ECF, 0x27CB09B7, 0x4F463F66, 0x9E5FEA2D),
    *(0x7527BAC7, 0xEBE5F17B, 0x3D0739F7, 0x8A5292EA, 0x6BFB5FB1, 0x1F8D5D08),
    *(0x56033046, 0xFC7B6BAB, 0xF0CFBC20, 0x9AF4361D),
)


@dataclass(frozen=True, slots=True)
class Angle:
    """|x| = n pi/2 + r with |r| <= pi/4; n counts modulo 4, as u32."""

    n: Value
    r: Pair


def reduce(m: FloatMath, a: Value) -> Angle:
    """Of finite a >= 0. The long way is taken only where a is large."""
    k = m.k
    near = _subtract(m, a)
    n = k.variable(U32, near.n)
    high = k.variable(m.f.real, near.r.high)
    low = k.variable(m.f.real, near.r.low)
    with k.when(a > m.choose(*_LIMIT)):
        far = _multiply(m, a)
        n.store(far.n)
        high.store(far.r.high)
        low.store(far.r.low)
    return Angle(n.load(), Pair(high.load(), low.load()))


def _subtract(m: FloatMath, a: Value) -> Angle:
    """Cody and Waite: take n pi/2 off in parts whose products are exact."""
    n, shifted = m.round(a * _TWO_OVER_PI)
    first, second, third, fourth = _PARTS[0 if m.single else 1]
    rest = m.sum(a - n * first, n * -second)
    part = n * third
    r = rest.high - part
    error = (rest.high - r) - part
    low = (rest.low + error) - n * fourth
    high = r + low
    return Angle(m.k.convert(shifted, U32), Pair(high, (r - high) + low))


def _multiply(m: FloatMath, a: Value) -> Angle:
    """Payne and Hanek: a times just those digits of 2/pi that matter modulo 4."""
    k, f = m.k, m.f
    count = 3 if m.single else 6
    bits = m.bits(a)
    significand = (bits & f.mantissa_mask) | f.implicit_bit
    factor = [k.convert(significand, U32)]
    if not m.single:
        factor.append(k.convert(significand >> 32, U32))
    # The first digit taken is worth 2; digits above it are multiples of 4. Zeros stand
    # before the first digit, for numbers just past the limit.
    zeros = 1 if m.single else 2
    first = f.bias + f.mantissa_bits + 2 - 32 * zeros
    exponent = k.convert(bits >> f.mantissa_bits, U32)
    window = _window(k, exponent - first, zeros, count, 3 if m.single else 6)
    product = _product(k, factor, window)
    n = product[-1] >> 30
    fraction = [(b << 2) | (a >> 30) for a, b in itertools.pairwise(product)]
    # To the nearest multiple: past one half, count one more and take the complement.
    past = fraction[-1] >> 31
    turned = [word ^ (k.u32(0) - past) for word in fraction[::-1]]
    turns = _as_pair(m, turned)
    r = _times_half_pi(m, turns)
    sign = m.k.convert(past, f.word) << f.word.bits - 1
    return Angle(n + past, Pair(m.flip_sign(r.high, sign), m.flip_sign(r.low, sign)))


def _window(
    k: KernelBuilder, offset: Value, zeros: int, count: int, stages: int
) -> list[Value]:
    """`count` words of digits from bit `offset` on, the last first."""
    digits = [0] * zeros + list(_DIGITS)
    digits += [0] * ((1 << stages) + count + 1 - len(digits))
    words = [k.u32(digit) for digit in digits]
    index = offset >> 5
    for stage in reversed(range(stages)):
        step = 1 << stage
        skip = k.ne(index & step, 0)
        kept = range(step + count)
        words = [k.select(skip, words[i + step], words[i]) for i in kept]
    shift = offset & 31
    window = [
        (words[i] << shift) | ((words[i + 1] >> 1) >> (31 - shift))
        for i in range(count)
    ]
    return window[::-1]


def _product(k: KernelBuilder, a: list[Value], b: list[Value]) -> list[Value]:
    """The lowest words of a product, as many as `b` has; low words first."""
    result = [k.u32(0)] * len(b)
    for i, factor in enumerate(a):
        carry = k.u32(0)
        for j in range(len(b) - i):
            low, high = k.umul_extended(factor, b[j])
            total, first = k.add_carry(result[i + j], low)
            result[i + j], second = k.add_carry(total, carry)
            carry = high + first + second
    return result


def _as_pair(m: FloatMath, words: list[Value]) -> Pair:
    """0.word word … in base 2**32 as a pair."""
    k = m.k
    pieces = words
    if m.single:  # A float holds no 32 bits, so halve the words.
        pieces = [piece for word in words for piece in (word >> 16, word & 0xFFFF)]
    width = 16 if m.single else 32
    numbers = [
        k.convert(piece, m.f.real) * 2.0 ** (-width * (i + 1))
        for i, piece in enumerate(pieces)
    ]
    high, low = numbers[0], m.number(0.0)
    for number in numbers[1:]:
        total = m.ordered_sum(high, number)
        high, low = total.high, low + total.low
    return m.ordered_sum(high, low)


def _times_half_pi(m: FloatMath, turns: Pair) -> Pair:
    product = m.product(turns.high, m.number(m.choose(*HALF_PI_HIGH)))
    low = turns.high * m.choose(*HALF_PI_LOW) + turns.low * m.choose(*HALF_PI_HIGH)
    return m.ordered_sum(product.high, product.low + low)
