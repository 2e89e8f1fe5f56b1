"""Float arithmetic that the functions of this package share, in one precision.

Every function is written once, for f32 and f64: what differs is a FloatFormat and the
coefficients. Nothing here assumes fused multiply-add or exact division; addition,
subtraction and multiplication are taken to round to nearest even.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from poot.lowering.kernels.math.coefficients import Coefficients
from poot.lowering.spirv.builder import KernelBuilder
from poot.lowering.spirv.types import F32, F64, I32, I64, U32, U64, ScalarType
from poot.lowering.spirv.value import Operand, Value


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """How a float type lays out its bits."""

    real: ScalarType
    word: ScalarType  # unsigned integer of the same size
    integer: ScalarType  # signed integer of the same size
    mantissa_bits: int  # stored ones
    bias: int

    @property
    def sign_bit(self) -> int:
        return 1 << self.word.bits - 1

    @property
    def implicit_bit(self) -> int:
        return 1 << self.mantissa_bits

    @property
    def mantissa_mask(self) -> int:
        return self.implicit_bit - 1

    @property
    def one(self) -> int:
        """The bits of 1.0."""
        return self.bias << self.mantissa_bits

    @property
    def infinity(self) -> int:
        """The bits of infinity; those of a NaN, without its sign, are above."""
        return (2 * self.bias + 1) << self.mantissa_bits

    @property
    def nan(self) -> int:
        return self.infinity | self.implicit_bit >> 1

    @property
    def smallest_normal(self) -> float:
        return 2.0 ** (1 - self.bias)

    @property
    def lift(self) -> int:
        """2**lift makes a subnormal number normal; two and three divide it."""
        return -(-self.mantissa_bits // 6) * 6

    @property
    def magic(self) -> float:
        """Adding and subtracting it rounds to an integer, kept in its low bits."""
        return 1.5 * 2.0**self.mantissa_bits

    @property
    def upper_half_mask(self) -> int:
        """Keeps so few mantissa bits that products of two such numbers are exact."""
        dropped = (self.mantissa_bits + 2) // 2
        return (1 << self.word.bits) - (1 << dropped)


SINGLE = FloatFormat(F32, U32, I32, 23, 127)
DOUBLE = FloatFormat(F64, U64, I64, 52, 1023)


@dataclass(frozen=True, slots=True)
class Pair:
    """An unevaluated sum of two floats, the second below the first's last bit."""

    high: Value
    low: Value


class FloatMath:
    """A builder and a float format: what the functions of this package work with."""

    __slots__ = ("divides_exactly", "f", "fuses", "k", "keeps_subnormals", "single")

    def __init__(self, k: KernelBuilder, f: FloatFormat) -> None:
        self.k = k
        self.f = f
        self.single = f is SINGLE
        # No device is known that flushes those of f64.
        self.keeps_subnormals = not self.single or k.info.keeps_subnormals32
        # Whether the device's own division and square root are correctly rounded.
        self.divides_exactly = self.single and k.info.exact_division32
        # Whether the device multiplies and adds with one rounding.
        self.fuses = self.single and k.info.fused_multiply_add32

    # --- constants ----------------------------------------------------------

    def number(self, value: float) -> Value:
        return self.k.const(self.f.real, value)

    def choose(self, single: float, double: float) -> float:
        """The constant of this precision."""
        return single if self.single else double

    @property
    def nan(self) -> Value:
        return self.k.bits(self.f.real, self.f.nan)

    @property
    def infinity(self) -> Value:
        return self.k.bits(self.f.real, self.f.infinity)

    def coefficients(self, table: Coefficients) -> tuple[float, ...]:
        return table.single if self.single else table.double

    # --- bits ---------------------------------------------------------------

    def bits(self, x: Value) -> Value:
        return self.k.bitcast(x, self.f.word)

    def real(self, bits: Value) -> Value:
        return self.k.bitcast(bits, self.f.real)

    def integer(self, bits: Value) -> Value:
        return self.k.bitcast(bits, self.f.integer)

    def word(self, integer: Value) -> Value:
        return self.k.bitcast(integer, self.f.word)

    def magnitude(self, x: Value) -> Value:
        """The bits but for the sign, as a signed integer: such are quick to compare."""
        return self.integer(self.bits(x)) & (self.f.sign_bit - 1)

    def sign(self, x: Value) -> Value:
        """The sign bit, in its place."""
        return self.bits(x) & self.f.sign_bit

    def abs(self, x: Value) -> Value:
        return self.real(self.magnitude(x))

    def with_sign(self, magnitude: Value, sign: Value) -> Value:
        """`magnitude`, whose sign bit is clear, with `sign` for sign bit."""
        return self.real(self.bits(magnitude) | sign)

    def flip_sign(self, x: Value, sign: Value) -> Value:
        """-x where the sign bit `sign` is set."""
        return self.real(self.bits(x) ^ sign)

    def is_nan(self, x: Value) -> Value:
        return self.magnitude(x) > self.f.infinity

    def is_infinite(self, x: Value) -> Value:
        return self.k.eq(self.magnitude(x), self.f.infinity)

    def is_finite(self, x: Value) -> Value:
        return self.magnitude(x) < self.f.infinity

    def is_negative(self, x: Value) -> Value:
        """Whether the sign bit is set."""
        return self.integer(self.bits(x)) < 0

    def power_of_two(self, n: Value) -> Value:
        """2**n for an integer -bias < n <= bias + 1 (the last is infinity)."""
        return self.real(self.word((n + self.f.bias) << self.f.mantissa_bits))

    def to_real(self, n: Value) -> Value:
        """An integer of less than `mantissa_bits` bits as a float."""
        return self.k.convert(n, self.f.real)

    # --- rounding and scaling -----------------------------------------------

    def round(self, x: Value, factor: float = 1.0) -> tuple[Value, Value]:
        """The integer next to a moderate x * factor: as a float, with offset in bits.

        The second has the integer in its low bits; `rounded_integer` takes it out.
        """
        magic = self.f.magic
        shifted = x + magic if factor == 1.0 else self.multiply_add(x, factor, magic)
        return shifted - self.f.magic, self.bits(shifted)

    def rounded_integer(self, shifted: Value) -> Value:
        magic = self.k.bitcast(self.number(self.f.magic), self.f.word)
        return self.integer(shifted - magic)

    def scale(self, x: Value, n: Value) -> Value:
        """x * 2**n, rounded once, for normal x not far from 1 and |n| <= 1.2 bias."""
        half = self.k.sar(n, 1)
        return x * self.power_of_two(half) * self.power_of_two(n - half)

    def normal(self, x: Value) -> tuple[Value, Value]:
        """Positive finite x, times 2**-shift, with a normal number as first result.

        Where subnormals are flushed they are zero, and the caller deals with zero.
        """
        if not self.keeps_subnormals:
            return x, self.k.const(self.f.integer, 0)
        shift = self.f.lift
        small = x < self.f.smallest_normal
        lifted = self.k.select(small, x * 2.0**shift, x)
        return lifted, self.k.select(
            small,
            self.k.const(self.f.integer, -shift),
            self.k.const(self.f.integer, 0),
        )

    def is_zero(self, x: Value) -> Value:
        """Whether x counts as zero: subnormals do where they are flushed."""
        bits = self.magnitude(x)
        if self.keeps_subnormals:
            return self.k.eq(bits, 0)
        return bits < self.f.implicit_bit

    # --- polynomials and exact sums -----------------------------------------

    def polynomial(self, x: Value, table: Coefficients) -> Value:
        return self.horner(x, self.coefficients(table))

    def horner(self, x: Value, coefficients: Sequence[float]) -> Value:
        """The polynomial with these coefficients, lowest power first."""
        total: Operand = coefficients[-1]
        for coefficient in coefficients[-2::-1]:
            total = self.multiply_add(x, total, coefficient)
        return total if isinstance(total, Value) else self.number(total)

    def multiply_add(self, a: Value, b: Operand, c: Operand) -> Value:
        """a * b + c, with one rounding where that is as quick as one instruction."""
        if self.fuses:
            return self.k.fma(a, b, c)
        return self.k.mul(a, b) + c

    def sum(self, a: Value, b: Value) -> Pair:
        """a + b exactly."""
        total = a + b
        part = total - a
        return Pair(total, (a - (total - part)) + (b - part))

    def ordered_sum(self, a: Value, b: Value) -> Pair:
        """a + b exactly, where |a| >= |b| or a is zero."""
        total = a + b
        return Pair(total, b - (total - a))

    def split(self, x: Value) -> tuple[Value, Value]:
        """x as the sum of two numbers of half as many bits."""
        high = self.real(self.bits(x) & self.f.upper_half_mask)
        return high, x - high

    def product(self, a: Value, b: Value) -> Pair:
        """a * b exactly, but for underflow (in f64 to 2^-106)."""
        total = a * b
        if self.fuses:
            return Pair(total, self.k.fma(a, b, self.k.neg(total)))
        a_high, a_low = self.split(a)
        b_high, b_low = self.split(b)
        error = (a_high * b_high - total) + a_high * b_low
        return Pair(total, (error + a_low * b_high) + a_low * b_low)
