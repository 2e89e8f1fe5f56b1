"""Where the lanes of a chunk stand: coordinates as sums, divided without dividing.

A chunk is V neighbouring elements that one invocation computes. A coordinate is known
for all V lanes at once, as `base + lane * step` wherever that can be, so that lanes
which stand side by side are loaded together and equal ones are loaded once.

Coordinates of lanes that are in range are true numbers. Those of lanes outside (past
the end of the tensor, in the padding) may have wrapped: their loads are bounded and
their values dropped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from poot.lowering.kernels.pack import Pack
from poot.lowering.spirv.builder import KernelBuilder, Size, Value


@dataclass(frozen=True, slots=True)
class Linear:
    """`constant` plus the sum of coefficient times atom; an atom is a u32."""

    terms: tuple[tuple[Value, int], ...] = ()
    constant: int = 0

    @property
    def rises(self) -> bool:
        """Whether nothing is subtracted, so that it cannot have wrapped."""
        return self.constant >= 0 and all(factor > 0 for _, factor in self.terms)

    def plus(self, other: Linear) -> Linear:
        factors = dict(self.terms)
        for atom, factor in other.terms:
            factors[atom] = factors.get(atom, 0) + factor
        # In one order, so that equal sums are equal.
        kept = [(atom, factor) for atom, factor in factors.items() if factor]
        terms = tuple(sorted(kept, key=lambda term: term[0].id))
        return Linear(terms, self.constant + other.constant)

    def times(self, factor: int) -> Linear:
        if not factor:
            return Linear()
        terms = tuple((atom, each * factor) for atom, each in self.terms)
        return Linear(terms, self.constant * factor)


@dataclass(frozen=True, slots=True)
class Strided:
    """Lane v stands at base + v * step."""

    base: Linear
    step: int


@dataclass(frozen=True, slots=True)
class Lanes:
    """Each lane stands somewhere of its own."""

    places: tuple[Linear, ...]


Coordinate = Strided | Lanes
ZERO = Strided(Linear(), 0)


class Coordinates:
    """Arithmetic on coordinates of `lanes` lanes, emitted into a kernel."""

    def __init__(self, k: KernelBuilder, lanes: int) -> None:
        self.k = k
        self.lanes = lanes
        # What atoms and sizes that only the running kernel knows are multiples of.
        self._multiples: dict[Value, int] = {}

    # --- numbers ------------------------------------------------------------

    def note_multiple(self, value: Value, multiple: int) -> Value:
        """Record that `value` is always a multiple of `multiple`."""
        self._multiples[value] = math.lcm(self._multiples.get(value, 1), multiple)
        return value

    def linear(self, size: Size) -> Linear:
        if isinstance(size, Value):
            if size.const is None:
                return Linear(((size, 1),))
            size = size.const
        return Linear((), size)

    def multiple(self, number: Linear | Size) -> int:
        """The largest known divisor; 0 for a constant 0, which all divide."""
        if isinstance(number, int):
            return abs(number)
        if isinstance(number, Value):
            return self._multiples.get(number, 1)
        parts = [factor * self.multiple(atom) for atom, factor in number.terms]
        return math.gcd(number.constant, *parts)

    def value(self, number: Linear) -> Value:
        """The number as a Value."""
        k = self.k
        total: Value | None = None
        for atom, factor in number.terms:
            term = k.mul(atom, factor % (1 << 32))
            total = term if total is None else k.add(total, term)
        constant = number.constant % (1 << 32)
        return k.u32(constant) if total is None else k.add(total, constant)

    def _limit(self, number: Linear) -> int | None:
        """Exclusive upper bound, where one is known."""
        if not number.rises:
            return None
        limit = number.constant + 1
        for atom, factor in number.terms:
            most = atom.limit
            if most is None:
                return None
            limit += factor * (most - 1)
        return limit

    def product(self, sizes: Iterable[Size]) -> Size:
        """The product of sizes, with what it is known to be a multiple of."""
        total: Size = 1
        for size in sizes:
            multiple = self.multiple(total) * self.multiple(size)
            total = self.k.mul(total, size)
            if isinstance(total, Value):
                self.note_multiple(total, multiple)
        return total

    # --- coordinates --------------------------------------------------------

    def uniform(self, number: Linear | Size) -> Strided:
        """The same place for all lanes."""
        return Strided(number if isinstance(number, Linear) else self.linear(number), 0)

    def place(self, at: Coordinate, lane: int) -> Linear:
        if isinstance(at, Lanes):
            return at.places[lane]
        return at.base.plus(Linear((), at.step * lane))

    def places(self, at: Coordinate) -> tuple[Linear, ...]:
        return tuple(self.place(at, lane) for lane in range(self.lanes))

    def add(self, a: Coordinate, b: Coordinate) -> Coordinate:
        if isinstance(a, Strided) and isinstance(b, Strided):
            return Strided(a.base.plus(b.base), a.step + b.step)
        pairs = zip(self.places(a), self.places(b), strict=True)
        return Lanes(tuple(x.plus(y) for x, y in pairs))

    def shift(self, at: Coordinate, distance: Size) -> Coordinate:
        return self.add(at, self.uniform(distance))

    def scale(self, at: Coordinate, factor: Size) -> Coordinate:
        if isinstance(factor, Value):
            if isinstance(at, Strided) and at.step == 0:
                return Strided(self._scaled(at.base, factor), 0)
            return Lanes(tuple(self._scaled(p, factor) for p in self.places(at)))
        if isinstance(at, Strided):
            return Strided(at.base.times(factor), at.step * factor)
        return Lanes(tuple(p.times(factor) for p in at.places))

    def _scaled(self, number: Linear, factor: Value) -> Linear:
        """Each atom times a factor that is known only when the kernel runs."""
        result = self.linear(factor).times(number.constant)
        for atom, times in number.terms:
            product = self.linear(self.product((atom, factor)))
            result = result.plus(product.times(times))
        return result

    def mirror(self, at: Coordinate, last: Size) -> Coordinate:
        """last - at."""
        return self.shift(self.scale(at, -1), last)

    def distinct(self, at: Coordinate) -> Pack:
        """The places as Values: one if all lanes stand at the same."""
        if isinstance(at, Strided) and at.step == 0:
            return (self.value(at.base),)
        return tuple(self.value(place) for place in self.places(at))

    def below(self, at: Coordinate, bound: Size) -> Pack:
        """Whether each place is below `bound`; decided once where it can be."""
        k = self.k
        aligned = isinstance(at, Strided) and self.is_aligned(at, bound)
        if aligned:
            return (k.lt(self.value(self.place(at, 0)), bound),)
        return tuple(k.lt(place, bound) for place in self.distinct(at))

    def divide(self, at: Coordinate, divisor: Size) -> Coordinate:
        """The quotient, rounded down."""
        return self._split(at, divisor, 0)

    def remainder(self, at: Coordinate, divisor: Size) -> Coordinate:
        return self._split(at, divisor, 1)

    def _split(self, at: Coordinate, divisor: Size, part: int) -> Coordinate:
        if divisor == 1:
            return ZERO if part else at
        if isinstance(at, Strided):
            if at.step == 0:
                return Strided(self._divmod(at.base, divisor)[part], 0)
            if self.is_aligned(at, divisor):
                # The lanes stand within one block of `divisor` elements.
                return Strided(self._divmod(at.base, divisor)[part], part * at.step)
        return Lanes(tuple(self._divmod(p, divisor)[part] for p in self.places(at)))

    def is_aligned(self, at: Strided, size: Size) -> bool:
        """Whether no boundary between blocks of `size` elements parts the lanes."""
        span = at.step * (self.lanes - 1)
        if span < 0:
            return False
        common = math.gcd(self.multiple(at.base), self.multiple(size))
        if common > span or common == 0:
            return True
        limit = self._limit(at.base)
        return isinstance(size, int) and limit is not None and limit + span <= size

    def _divmod(self, number: Linear, divisor: Size) -> tuple[Linear, Linear]:
        if isinstance(divisor, Value):
            return self._divmod_value(number, divisor)
        whole, rest = self._whole_part(number, divisor)
        limit = self._limit(rest)
        if limit is not None and limit <= divisor:
            return whole, rest
        # (common * x + low) // divisor = x // (divisor / common)
        common = math.gcd(divisor, *(factor for _, factor in rest.terms))
        low = rest.constant % common
        core = Linear(
            tuple((atom, factor // common) for atom, factor in rest.terms),
            rest.constant // common,
        )
        quotient, remainder = self._divmod_value(core, divisor // common)
        low_part = Linear((), low)
        return whole.plus(quotient), remainder.times(common).plus(low_part)

    def _whole_part(self, number: Linear, divisor: int) -> tuple[Linear, Linear]:
        """whole and rest with number = divisor * whole + rest and rest >= 0."""
        whole = [(a, f // divisor) for a, f in number.terms if f % divisor == 0]
        rest = tuple((a, f) for a, f in number.terms if f % divisor)
        if any(factor < 0 for _, factor in rest):
            return Linear(), number
        quotient, remainder = divmod(number.constant, divisor)
        return Linear(tuple(whole), quotient), Linear(rest, remainder)

    def _divmod_value(self, number: Linear, divisor: Size) -> tuple[Linear, Linear]:
        k = self.k
        if divisor == 1:
            return number, Linear()
        if not number.terms and isinstance(divisor, int):
            quotient, remainder = divmod(number.constant % (1 << 32), divisor)
            return Linear((), quotient), Linear((), remainder)
        value = self.value(number)
        common = math.gcd(self.multiple(number), self.multiple(divisor))
        quotient_value = k.index_div(value, divisor)
        remainder_value = k.index_rem(value, divisor)
        if remainder_value is not value:
            self.note_multiple(remainder_value, common or 1)
        return self.linear(quotient_value), self.linear(remainder_value)
