"""Numbers that workgroups of one launch give each other, each word a flag too.

A launch begins with all words 0, and a word that is not 0 is there: readers need no
order among words. An f32 stands in one word, its bits inverted; the only bits that give
0 are those of a NaN, and all NaNs are given as another one. Other numbers are cut into
halves of words, each in the low bits of a word of its own beside a bit that is set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from poot.lowering.spirv.builder import KernelBuilder, Pointer, Size, Value, Variable
from poot.lowering.spirv.types import F32, U32, ScalarType, vector

_HALF = 16
_LOW = (1 << _HALF) - 1
_NAN = 0x7FC00000


def _words(ty: ScalarType) -> int:
    return 1 if ty is F32 else ty.bits // _HALF


def record_words(types: Sequence[ScalarType]) -> int:
    """The words that numbers of these types take together."""
    return sum(_words(ty) for ty in types)


class Records:
    """Records of numbers from word `first` on, each of which is given once."""

    def __init__(
        self,
        k: KernelBuilder,
        pointer: Pointer,
        types: Sequence[ScalarType],
        first: Size,
        bound: Size,
    ) -> None:
        self._k = k
        self._pointer = pointer
        self._types = types
        self._first = first
        self._bound = bound

    def place(self, record: Value) -> Value:
        """The number of the first word of a record."""
        k = self._k
        return k.add(k.mul(record, record_words(self._types)), self._first)

    def give(self, record: Value, numbers: Sequence[Value]) -> None:
        """Let all workgroups see a record."""
        k = self._k
        words: list[Value] = []
        for number in numbers:
            words += self._inverted(number) if number.ty is F32 else self._cut(number)
        first = self.place(record)
        for place, word in enumerate(words):
            k.atomic_store(self._pointer, k.add(first, place), word, self._bound)

    def _inverted(self, number: Value) -> list[Value]:
        k = self._k
        return [k.not_(k.select(k.is_nan(number), k.u32(_NAN), k.bitcast(number, U32)))]

    def _cut(self, number: Value) -> list[Value]:
        k = self._k
        whole = [k.bitcast(number, U32)] if number.ty.scalar.bits == 32 else []
        if not whole:
            pair = k.bitcast(number, vector(U32, 2))
            whole = [k.extract(pair, part) for part in range(2)]
        halves = [h for word in whole for h in (k.and_(word, _LOW), k.shr(word, _HALF))]
        return [k.or_(half, 1 << _HALF) for half in halves]

    def look(self, place: Value) -> tuple[tuple[Value, ...], Value]:
        """What stands in the record at a place by now, and whether all of it is there.

        It may be the place of records of another kind with numbers of these types.
        """
        k = self._k
        found = [
            k.atomic_load(self._pointer, k.add(place, word), self._bound)
            for word in range(record_words(self._types))
        ]
        there = k.ne(found[0], 0)
        for word in found[1:]:
            there = k.logical_and(there, k.ne(word, 0))
        numbers: list[Value] = []
        for ty in self._types:
            parts = [found.pop(0) for _ in range(_words(ty))]
            numbers.append(self._joined(ty, parts))
        return tuple(numbers), there

    def _joined(self, ty: ScalarType, parts: Sequence[Value]) -> Value:
        k = self._k
        if ty is F32:
            return k.bitcast(k.not_(parts[0]), F32)
        whole = [
            k.or_(k.and_(low, _LOW), k.shl(high, _HALF))
            for low, high in zip(parts[::2], parts[1::2], strict=True)
        ]
        if len(whole) == 1:
            return k.bitcast(whole[0], ty)
        return k.bitcast(k.construct(vector(U32, 2), *whole), ty)


@dataclass(slots=True)
class Wish:
    """Where lanes wait for a record, which of them still do, and what it held."""

    place: Value
    missing: Variable
    held: Sequence[Variable]


def wait_for(
    k: KernelBuilder, records: Records, wishes: Sequence[Wish], looks: int
) -> Value:
    """Look until no lane of the subgroup misses anything, but not for ever.

    Gives whether it is so. Every invocation of the subgroup must get here.
    """
    waiting = k.variable(U32, 1)
    with k.loop(looks):
        # Lanes that have all leave the memory to the others.
        with k.when(_missing(k, wishes)):
            # All loads before anything hangs on one.
            found = [records.look(wish.place) for wish in wishes]
            for wish, (numbers, there) in zip(wishes, found, strict=True):
                asked = k.ne(wish.missing.load(), 0)
                with k.when(k.logical_and(there, asked)):
                    for variable, number in zip(wish.held, numbers, strict=True):
                        variable.store(number)
                    wish.missing.store(0)
        some = k.subgroup_any(_missing(k, wishes))
        waiting.store(k.convert(some, U32))
        k.break_if(k.logical_not(some))
    return k.eq(waiting.load(), 0)


def _missing(k: KernelBuilder, wishes: Sequence[Wish]) -> Value:
    missing = wishes[0].missing.load()
    for wish in wishes[1:]:
        missing = k.or_(missing, wish.missing.load())
    return k.ne(missing, 0)
