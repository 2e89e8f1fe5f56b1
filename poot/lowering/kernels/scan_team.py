"""Prefixes over the invocations of a team, in one fixed order of combinations."""

from __future__ import annotations

from poot.lowering.kernels.reducers import Carriers, Reducer, Team
from poot.lowering.spirv.builder import KernelBuilder, Value

# So many parts in shared memory every invocation combines by itself.
_LINEAR = 8


def subgroup_width(k: KernelBuilder, team: Team) -> int:
    """How many invocations of a team shuffle among themselves."""
    return min(k.info.subgroup_size, team.size) if k.info.subgroup_shuffle else 1


def chosen(k: KernelBuilder, condition: Value, a: Carriers, b: Carriers) -> Carriers:
    """`a` where the condition holds, else `b`."""
    return tuple(k.select(condition, x, y) for x, y in zip(a, b, strict=True))


def scan_subgroup(
    k: KernelBuilder, kind: Reducer, width: int, carriers: Carriers
) -> tuple[Carriers, Carriers]:
    """What lies before an invocation among its `width` neighbours, and all of it.

    Every invocation of the subgroup must get here.
    """
    if width == 1:
        return kind.start(k), carriers
    local = k.local_index()
    lane = k.index_rem(local, width)
    place = k.index_rem(local, k.info.subgroup_size)
    step = 1
    while step < width:
        inside = k.ge(lane, step)
        source = k.select(inside, k.sub(place, step), place)
        other = tuple(k.subgroup_shuffle(c, source) for c in carriers)
        carriers = chosen(k, inside, kind.combine(k, other, carriers), carriers)
        step *= 2
    first = k.lt(lane, 1)
    source = k.select(first, place, k.sub(place, 1))
    before = tuple(k.subgroup_shuffle(c, source) for c in carriers)
    last = k.or_(place, width - 1)
    total = tuple(k.subgroup_shuffle(c, last) for c in carriers)
    return chosen(k, first, kind.start(k), before), total


class GroupScan:
    """Prefixes over the groups of `width` invocations of a team, by shared memory."""

    def __init__(self, k: KernelBuilder, kind: Reducer, team: Team, width: int) -> None:
        self._k = k
        self._kind = kind
        self._width = width
        self._parts = team.size // width
        if self._parts > 1:
            groups = team.workgroup // width
            self._arrays = [k.shared(ty, groups) for ty in kind.types]

    def scan(self, carriers: Carriers) -> tuple[Carriers, Carriers]:
        """What lies before a group, all invocations of which give its carriers.

        With the combination of all groups. Every invocation of the workgroup must get
        here.
        """
        k, parts = self._k, self._parts
        if parts == 1:
            return self._kind.start(k), carriers
        place = k.index_div(k.local_index(), self._width)
        number = k.index_rem(place, parts)
        self._keep(place, carriers)
        k.barrier()
        if parts <= _LINEAR:
            found = self._walk(k.sub(place, number), number)
        else:
            found = self._double(place, number, carriers)
        # Before the next scan, or whatever else uses the memory.
        k.barrier()
        return found

    def _keep(self, place: Value, carriers: Carriers) -> None:
        k = self._k
        with k.when(k.lt(k.index_rem(k.local_index(), self._width), 1)):
            for array, carrier in zip(self._arrays, carriers, strict=True):
                array.store(place, carrier)

    def _kept(self, place: Value) -> Carriers:
        return tuple(array.load(place) for array in self._arrays)

    def _walk(self, first: Value, number: Value) -> tuple[Carriers, Carriers]:
        k, kind = self._k, self._kind
        before, held = kind.start(k), self._kept(first)
        for part in range(1, self._parts):
            before = chosen(k, k.eq(number, part), held, before)
            held = kind.combine(k, held, self._kept(k.add(first, part)))
        return before, held

    def _double(
        self, place: Value, number: Value, carriers: Carriers
    ) -> tuple[Carriers, Carriers]:
        """Each takes in what its forerunner holds, then twice as far, and so on."""
        k, kind = self._k, self._kind
        step = 1
        while step < self._parts:
            inside = k.ge(number, step)
            other = self._kept(k.select(inside, k.sub(place, step), place))
            carriers = chosen(k, inside, kind.combine(k, other, carriers), carriers)
            k.barrier()
            self._keep(place, carriers)
            k.barrier()
            step *= 2
        first = k.lt(number, 1)
        before = self._kept(k.select(first, place, k.sub(place, 1)))
        last = k.add(k.sub(place, number), self._parts - 1)
        return chosen(k, first, kind.start(k), before), self._kept(last)
