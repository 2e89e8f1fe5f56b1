"""Numbers that workgroups of one launch give each other, each word a flag too.

A number is cut into halves of words. A half stands in the low bits of a word of its own
beside a bit that says that it is there, so that a reader needs no order among words. A
launch begins with all words 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from poot.lowering.spirv.builder import KernelBuilder, Pointer, Size, Value
from poot.lowering.spirv.types import U32, ScalarType, vector

# The first word of a record, and how far apart its words stand.
Place = tuple[Value, Value]

_HALF = 16
_LOW = (1 << _HALF) - 1


def record_words(types: Sequence[ScalarType]) -> int:
    """The words that numbers of these types take together."""
    return sum(ty.bits // _HALF for ty in types)


class Records:
    """`count` records of numbers from word `first` on, each of which is given once.

    Words of one place in all records lie side by side, as subgroups read them.
    """

    def __init__(
        self,
        k: KernelBuilder,
        pointer: Pointer,
        types: Sequence[ScalarType],
        first: Size,
        count: Size,
        bound: Size,
    ) -> None:
        self._k = k
        self._pointer = pointer
        self._types = types
        self._first = first
        self._count = count
        self._bound = bound

    def place(self, record: Value) -> Place:
        """Where a record stands."""
        return self._k.add(record, self._first), self._k.value(self._count)

    def give(self, record: Value, numbers: Sequence[Value]) -> None:
        """Let all workgroups see a record."""
        k = self._k
        halves: list[Value] = []
        for each, ty in zip(numbers, self._types, strict=True):
            words = [k.bitcast(each, U32)] if ty.bits == 32 else self._split(each)
            for word in words:
                halves += [k.and_(word, _LOW), k.shr(word, _HALF)]
        first, step = self.place(record)
        for number, half in enumerate(halves):
            at, word = k.add(first, k.mul(step, number)), k.or_(half, 1 << _HALF)
            k.atomic_store(self._pointer, at, word, self._bound)

    def _split(self, number: Value) -> list[Value]:
        pair = self._k.bitcast(number, vector(U32, 2))
        return [self._k.extract(pair, half) for half in range(2)]

    def look(self, place: Place) -> tuple[tuple[Value, ...], Value]:
        """What stands in a record by now, and whether all of it is there.

        The place may be that of a record of another kind with numbers of these types.
        """
        k = self._k
        first, step = place
        found = [
            k.atomic_load(self._pointer, k.add(first, k.mul(step, number)), self._bound)
            for number in range(record_words(self._types))
        ]
        there = found[0]
        for word in found[1:]:
            there = k.and_(there, word)
        words = [
            k.or_(k.and_(low, _LOW), k.shl(high, _HALF))
            for low, high in zip(found[::2], found[1::2], strict=True)
        ]
        numbers: list[Value] = []
        for ty in self._types:
            if ty.bits == 32:
                numbers.append(k.bitcast(words.pop(0), ty))
            else:
                pair = k.construct(vector(U32, 2), words.pop(0), words.pop(0))
                numbers.append(k.bitcast(pair, ty))
        return tuple(numbers), k.ne(k.shr(there, _HALF), 0)
