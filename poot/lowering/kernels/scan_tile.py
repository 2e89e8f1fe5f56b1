"""One tile of a row: loaded, scanned by its team, stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from poot.lowering.kernels.coordinates import Coordinates, Linear, Strided
from poot.lowering.kernels.elements import store_element
from poot.lowering.kernels.evaluate import Evaluator
from poot.lowering.kernels.index import Block, Index
from poot.lowering.kernels.memory import WORD_BYTES
from poot.lowering.kernels.pack import Pack, lane_of
from poot.lowering.kernels.reducers import Carriers, Reducer, Team
from poot.lowering.kernels.scan_program import Goal, ScanProgram, ScanSchedule
from poot.lowering.kernels.scan_team import (
    GroupScan,
    chosen,
    scan_subgroup,
    subgroup_width,
)
from poot.lowering.spirv.builder import KernelBuilder, Pointer, Value, When
from poot.lowering.spirv.types import U32

# The carriers of the lanes of a chunk, in the order of the scan.
Chunk = Sequence[Carriers]


@dataclass(slots=True)
class TilePrefixes:
    """What lies before each chunk of an invocation within the tile, and all of it."""

    # Of the groups before, of the rounds before in the group, and of the chunks before
    # in the round.
    group: Carriers
    rounds: list[Carriers]
    chunks: list[Carriers]
    total: Carriers


class TileScan:
    """Loads, scans and stores tiles inside one kernel."""

    def __init__(
        self,
        k: KernelBuilder,
        program: ScanProgram,
        schedule: ScanSchedule,
        kind: Reducer,
        sources: Sequence[Pointer],
        targets: Sequence[Pointer],
    ) -> None:
        self.k = k
        self.program = program
        self.schedule = schedule
        self.kind = kind
        self.coordinates = Coordinates(k, schedule.lanes)
        self.evaluator = Evaluator(self.coordinates, program.region, sources)
        self._targets = targets
        self.length = self.evaluator.size(program.length)
        self._chunks = k.ceil_div(self.length, schedule.lanes)
        self._axes = self.evaluator.sizes(program.axes)
        team = Team(schedule.team, schedule.workgroup)
        self._width = subgroup_width(k, team)
        self._groups = GroupScan(k, kind, team, self._width)
        self._own = self._first_own_chunk()

    def _first_own_chunk(self) -> Value:
        """The number in a tile of the first chunk of this invocation."""
        k, width = self.k, self._width
        member = k.index_rem(k.local_index(), self.schedule.team)
        group = k.index_div(member, width)
        lane = k.index_rem(member, width)
        return k.add(k.mul(group, width * self.schedule.rounds), lane)

    # --- where chunks stand -------------------------------------------------

    def _chunk(self, tile: Value, number: int) -> Value:
        """The number in the row of a chunk of this invocation, in scan order."""
        k = self.k
        own = k.add(self._own, number * self._width)
        return k.add(k.mul(tile, self.schedule.chunks), own)

    def _stored(self, chunk: Value) -> Value:
        """The number in memory of a chunk of the row."""
        if not self.program.reverse:
            return chunk
        return self.k.value(self.k.sub(self.k.sub(self._chunks, 1), chunk))

    def _index(self, row: Value, chunk: Value) -> Index:
        lanes = self.schedule.lanes
        flat = Strided(Linear(((self._stored(chunk), lanes),)), 1 if lanes > 1 else 0)
        along = Block((self.length,), flat)
        if not self._axes:
            return Index((along,))
        return Index((Block(self._axes, self.coordinates.uniform(row)), along))

    def _valid(self, chunk: Value) -> list[Value | None]:
        """Which lanes of a chunk, in the order of memory, lie in the row."""
        k, lanes = self.k, self.schedule.lanes
        if isinstance(self.length, int) and self.length % self.schedule.tile == 0:
            return [None] * lanes
        inside = k.lt(chunk, self._chunks)
        if self.program.whole_chunks:
            return [inside] * lanes
        start = k.mul(self._stored(chunk), lanes)
        places = [k.lt(k.add(start, lane), self.length) for lane in range(lanes)]
        return [k.logical_and(inside, place) for place in places]

    def _in_order(self, lanes: Sequence[Carriers]) -> list[Carriers]:
        """Lanes from the order of memory to the order of the scan, or back."""
        return list(reversed(lanes)) if self.program.reverse else list(lanes)

    # --- loads --------------------------------------------------------------

    def load(self, row: Value, tile: Value) -> list[Chunk]:
        """The carriers of a tile of the row, those past its end neutral."""
        chunks = [self._chunk(tile, n) for n in range(self.schedule.rounds)]
        # All loads before anything waits for one.
        loaded = [
            [
                self.evaluator.value(value, self._index(row, chunk))
                for value in self.program.values
            ]
            for chunk in chunks
        ]
        return [
            self._in_order(self._lifted(packs, chunk))
            for packs, chunk in zip(loaded, chunks, strict=True)
        ]

    def _lifted(self, packs: Sequence[Pack], chunk: Value) -> list[Carriers]:
        k, kind = self.k, self.kind
        lanes: list[Carriers] = []
        for lane, inside in enumerate(self._valid(chunk)):
            values = tuple(lane_of(pack, lane) for pack in packs)
            if self.program.goal is not Goal.PREFIXES:
                values = kind.lift(k, values[0], chunk)
            if inside is not None:
                values = chosen(k, inside, values, kind.start(k))
            lanes.append(values)
        return lanes

    # --- combination --------------------------------------------------------

    def summed(self, chunk: Chunk) -> list[Carriers]:
        """Each lane of a chunk combined with those before it."""
        sums = [chunk[0]]
        for carriers in chunk[1:]:
            sums.append(self.kind.combine(self.k, sums[-1], carriers))
        return sums

    def prefixes(self, sums: Sequence[Chunk]) -> TilePrefixes:
        """Of the chunks of a tile that were summed up each."""
        k, kind = self.k, self.kind
        found = [scan_subgroup(k, kind, self._width, chunk[-1]) for chunk in sums]
        chunks = [before for before, _ in found]
        held = found[0][1]
        rounds = [kind.start(k)]
        for _, total in found[1:]:
            rounds.append(held)
            held = kind.combine(k, held, total)
        group, total = self._groups.scan(held)
        return TilePrefixes(group, rounds, chunks, total)

    def results(
        self, sums: Sequence[Chunk], prefixes: TilePrefixes, carry: Carriers
    ) -> list[list[Carriers]]:
        """Each element of a tile combined with all before it, the carry first.

        For the goal PREFIXES without the element itself.
        """
        k, kind = self.k, self.kind
        base = kind.combine(k, carry, prefixes.group)
        found = []
        for number, chunk in enumerate(sums):
            before = base
            if number:
                before = kind.combine(k, base, prefixes.rounds[number])
            before = kind.combine(k, before, prefixes.chunks[number])
            full = [kind.combine(k, before, held) for held in chunk]
            if self.program.goal is Goal.PREFIXES:
                full = [before, *full[:-1]]
            found.append(full)
        return found

    # --- stores -------------------------------------------------------------

    def store(
        self,
        row: Value,
        tile: Value,
        results: Sequence[Sequence[Carriers]],
        inside: Value,
    ) -> None:
        """Write a tile of the row where `inside` holds."""
        k = self.k
        with k.when(inside):
            for number, lanes in enumerate(results):
                chunk = self._chunk(tile, number)
                self._store_chunk(row, chunk, self._in_order(lanes))

    def _store_chunk(self, row: Value, chunk: Value, lanes: Sequence[Carriers]) -> None:
        program = self.program
        if program.goal is Goal.PREFIXES:
            for number in range(len(self._targets)):
                pack = tuple(carriers[number] for carriers in lanes)
                self._store_lanes(row, chunk, number, pack)
            return
        pack = tuple(
            finished(self.k, self.kind, carriers, program.targets[0].dtype.is_bool)
            for carriers in lanes
        )
        itemsize = program.targets[0].dtype.itemsize
        if program.whole_chunks and len(pack) * itemsize % WORD_BYTES == 0:
            self._store_whole(row, chunk, pack)
        else:
            self._store_lanes(row, chunk, 0, pack)

    def _when(self, inside: Value | None) -> When:
        return self.k.when(True if inside is None else inside)

    def _store_whole(self, row: Value, chunk: Value, pack: Pack) -> None:
        k, target = self.k, self.program.targets[0]
        rows = self.evaluator.size(self.program.rows)
        total = self.coordinates.product((rows, self.length))
        per_row = k.index_div(self.length, self.schedule.lanes)
        at = k.add(k.mul(row, per_row), self._stored(chunk))
        with self._when(self._valid(chunk)[0]):
            self.evaluator.memory.store(
                self._targets[0], target.dtype, at, pack, total, target.alignment
            )

    def _store_lanes(self, row: Value, chunk: Value, number: int, pack: Pack) -> None:
        k, dtype = self.k, self.program.targets[number].dtype
        rows = self.evaluator.size(self.program.rows)
        total = self.coordinates.product((rows, self.length))
        first = k.mul(self._stored(chunk), self.schedule.lanes)
        start = k.add(k.mul(row, self.length), first)
        for lane, inside in enumerate(self._valid(chunk)):
            with self._when(inside):
                at = k.add(start, lane)
                pointer = self._targets[number]
                store_element(k, pointer, dtype, at, lane_of(pack, lane), total)


def finished(k: KernelBuilder, kind: Reducer, carriers: Carriers, truth: bool) -> Value:
    """The element that is stored; one that is no `truth` value as a number."""
    value = kind.finish(k, carriers)
    return value if truth or not kind.dtype.is_bool else k.convert(value, U32)
