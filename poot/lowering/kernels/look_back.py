"""Scans of long rows in one pass, on devices whose workgroups all make progress.

A workgroup takes the next tile, tells its total, and looks back at the totals of those
before it: of the tiles in its group of tiles, of the groups in its block of groups, and
at what lies before the block. The last tile of a group tells the total of the group,
that of a block what lies before the next. So it is fixed which numbers are combined in
which order, whatever the timing.

Waiting is bounded. A workgroup that has waited for too long computes all that it waits
for from the elements, by the same combinations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.cache import kernel_cache
from poot.lowering.kernels.flags import Records, Wish, record_words, wait_for
from poot.lowering.kernels.operands import source_operands
from poot.lowering.kernels.reducers import Carriers
from poot.lowering.kernels.scan_program import ScanProgram, ScanSchedule, longest_walk
from poot.lowering.kernels.scan_reducer import scan_reducer
from poot.lowering.kernels.scan_team import chosen, scan_subgroup
from poot.lowering.kernels.scan_tile import TileScan
from poot.lowering.program import Access, Kernel
from poot.lowering.spirv.builder import KernelBuilder, Size, Value, Variable
from poot.lowering.spirv.types import U32

Held = Sequence[Variable]

# Words before the records: the number of the next tile stands in the first.
_HEAD = 32


@dataclass(frozen=True, slots=True)
class Levels:
    """How many tiles, groups of tiles and blocks of groups a row has."""

    tiles: int
    groups: int
    blocks: int

    @classmethod
    def of(cls, length: int, schedule: ScanSchedule, info: DeviceInfo) -> Levels:
        tiles = -(-length // schedule.tile)
        groups = -(-tiles // info.subgroup_size)
        return cls(tiles, groups, -(-groups // info.subgroup_size))

    def words(self, rows: int, record: int) -> int:
        """Of all records and what stands before them."""
        return _HEAD + rows * (self.tiles + self.groups + self.blocks) * record


def flag_words(
    info: DeviceInfo, program: ScanProgram, schedule: ScanSchedule, rows: int, n: int
) -> int:
    """The u32 words, 0 at first, that a launch over rows of n elements needs."""
    record = record_words(scan_reducer(program.op, program.dtype).types)
    return Levels.of(n, schedule, info).words(rows, record)


@kernel_cache
def look_back_kernel(
    info: DeviceInfo, program: ScanProgram, schedule: ScanSchedule, looks: int
) -> Kernel:
    """Operands: the buffer read, the flags, then the result."""
    return _LookBack(info, program, schedule, looks).build()


@dataclass(slots=True)
class _Before:
    """What lies before a tile, by the lanes of a subgroup.

    Of each tile in its group and each group in its block, and of all before the block.
    """

    tiles: Carriers
    groups: Carriers
    block: Carriers


class _LookBack:
    """One kernel under construction."""

    def __init__(
        self,
        info: DeviceInfo,
        program: ScanProgram,
        schedule: ScanSchedule,
        looks: int,
    ) -> None:
        name = f"look_back_{program.op.value}"
        self.k = k = KernelBuilder(name, info, (schedule.workgroup, 1, 1))
        self.program = program
        self.schedule = schedule
        self.looks = looks
        self.kind = kind = scan_reducer(program.op, program.dtype)
        sources = source_operands(k, program.region)
        self.flags = k.operand("flags", Access.UPDATE)
        target = k.operand("y", Access.WRITE, indirect=program.targets[0].indirect)
        self.tiles = TileScan(k, program, schedule, kind, sources, [target])
        self.width = info.subgroup_size
        self.lane = k.index_rem(k.local_index(), self.width)
        self._number = k.shared(U32, 1)
        self._done = k.shared(U32, 1)
        self._found = [k.shared(ty, 1) for ty in kind.types]
        self._count()

    def _count(self) -> None:
        """Count tiles, groups and blocks, and lay out their records."""
        k = self.k
        self.rows = self.tiles.evaluator.size(self.program.rows)
        self.per_row = k.ceil_div(self.tiles.length, self.schedule.tile)
        self.groups = k.ceil_div(self.per_row, self.width)
        self.blocks = k.ceil_div(self.groups, self.width)
        record = record_words(self.kind.types)
        counts = [k.mul(self.rows, n) for n in (self.per_row, self.groups, self.blocks)]
        starts: list[Size] = [_HEAD]
        for count in counts:
            starts.append(k.add(starts[-1], k.mul(count, record)))
        self.bound = starts.pop()
        self.tile_records, self.group_records, self.block_records = (
            Records(k, self.flags, self.kind.types, start, self.bound)
            for start in starts
        )

    def build(self) -> Kernel:
        k = self.k
        with k.when(k.lt(k.local_index(), 1)):
            self._number.store(0, k.atomic_add(self.flags, k.u32(0), 1, self.bound))
        k.barrier()
        number = self._number.load(0)
        with k.when(k.lt(number, k.mul(self.rows, self.per_row))):
            self._scan(k.index_div(number, self.per_row), number)
        return k.finish(f"one pass, {self.schedule}")

    def _scan(self, row: Value, number: Value) -> None:
        """Scan tile `number` of all, which is in this row."""
        k, tiles = self.k, self.tiles
        self.row = row
        self.tile = k.index_rem(number, self.per_row)
        self.group, self.in_group = self._cut(self.tile)
        self.block, self.in_block = self._cut(self.group)
        self.ends_group = k.eq(self.in_group, self.width - 1)
        self.ends_block = k.logical_and(
            self.ends_group, k.eq(self.in_block, self.width - 1)
        )
        sums = [tiles.summed(chunk) for chunk in tiles.load(row, self.tile)]
        prefixes = tiles.prefixes(sums)
        with k.when(k.lt(k.local_index(), 1)):
            record = k.add(k.mul(row, self.per_row), self.tile)
            self.tile_records.give(record, prefixes.total)
        carry = self._carry(prefixes.total)
        results = tiles.results(sums, prefixes, carry)
        tiles.store(row, self.tile, results, k.bool_(True))

    def _cut(self, number: Value) -> tuple[Value, Value]:
        return self.k.index_div(number, self.width), self.k.index_rem(
            number, self.width
        )

    def _carry(self, total: Carriers) -> Carriers:
        """What lies before the tile, for all invocations of the workgroup."""
        k = self.k
        with k.when(k.lt(k.local_index(), self.width)):
            done, before = self._waited(total)
            with k.when(k.lt(k.local_index(), 1)):
                self._done.store(0, k.convert(done, U32))
            with k.when(done):
                self._share(self._combined(before, total))
        k.barrier()
        with k.when(k.ne(self._done.load(0), 1)):
            self._share(self._combined(self._recomputed(), total))
            k.barrier()
        return tuple(array.load(0) for array in self._found)

    def _share(self, carry: Carriers) -> None:
        with self.k.when(self.k.lt(self.k.local_index(), 1)):
            for array, carrier in zip(self._found, carry, strict=True):
                array.store(0, carrier)

    def _combined(self, before: _Before, total: Carriers) -> Carriers:
        """What lies before a tile of this total; tells what is known by that."""
        k, kind = self.k, self.kind
        tiles, group_total = self._scanned(before.tiles, self.in_group, total)
        groups, block_total = self._scanned(before.groups, self.in_block, group_total)
        with k.when(k.lt(k.local_index(), 1)):
            with k.when(self.ends_group):
                record = k.add(k.mul(self.row, self.groups), self.group)
                self.group_records.give(record, group_total)
            following = k.add(self.block, 1)
            more = k.lt(following, self.blocks)
            with k.when(k.logical_and(self.ends_block, more)):
                record = k.add(k.mul(self.row, self.blocks), following)
                held = kind.combine(k, before.block, block_total)
                self.block_records.give(record, held)
        return kind.combine(k, kind.combine(k, before.block, groups), tiles)

    def _scanned(
        self, lanes: Carriers, own: Value, total: Carriers
    ) -> tuple[Carriers, Carriers]:
        """What lies before lane `own`, which gets `total`, and all up to it."""
        k = self.k
        mine = k.eq(self.lane, own)
        full = chosen(k, mine, total, lanes)
        before, whole = scan_subgroup(k, self.kind, self.width, full)
        return tuple(k.subgroup_shuffle(c, own) for c in before), whole

    # --- waiting ------------------------------------------------------------

    def _waited(self, total: Carriers) -> tuple[Value, _Before]:
        """Whether what lies before the tile was told in time, and what it is.

        Each lane waits for a tile of the group and for a group of the block; the last
        one, which has none, for what lies before the block.
        """
        k, last = self.k, self.width - 1
        first_tile = k.sub(self.tile, self.in_group)
        tile = k.add(k.add(k.mul(self.row, self.per_row), first_tile), self.lane)
        first_group = k.sub(self.group, self.in_block)
        group = k.add(k.add(k.mul(self.row, self.groups), first_group), self.lane)
        block = k.add(k.mul(self.row, self.blocks), self.block)
        follows = k.logical_and(k.eq(self.lane, last), k.gt(self.block, 0))
        member = k.lt(self.lane, self.in_block)
        place = k.select(
            k.eq(self.lane, last),
            self.block_records.place(block),
            self.group_records.place(group),
        )
        tiles = self._wish(
            self.tile_records.place(tile), k.lt(self.lane, self.in_group)
        )
        groups = self._wish(place, k.logical_or(member, follows))
        # Those behind wait for the total of the group: it comes before all else.
        with k.when(self.ends_group):
            self._tell_group(tiles, total)
        done = self._poll([tiles, groups])
        start, lanes = self.kind.start(k), self._loaded(groups.held)
        ahead = tuple(k.subgroup_shuffle(lane, last) for lane in lanes)
        before = _Before(
            self._loaded(tiles.held), chosen(k, member, lanes, start), ahead
        )
        return done, before

    def _tell_group(self, tiles: Wish, total: Carriers) -> None:
        """Wait for the other tiles of the group alone, and tell its total."""
        k = self.k
        with k.when(self._poll([tiles])):
            lanes = self._loaded(tiles.held)
            _, whole = self._scanned(lanes, self.in_group, total)
            with k.when(k.lt(k.local_index(), 1)):
                record = k.add(k.mul(self.row, self.groups), self.group)
                self.group_records.give(record, whole)

    def _wish(self, place: Value, needed: Value) -> Wish:
        missing = self.k.variable(U32, self.k.convert(needed, U32))
        return Wish(place, missing, self._neutral())

    def _neutral(self) -> Held:
        k = self.k
        pairs = zip(self.kind.types, self.kind.start(k), strict=True)
        return [k.variable(ty, value) for ty, value in pairs]

    def _loaded(self, held: Held) -> Carriers:
        return tuple(variable.load() for variable in held)

    def _keep(self, held: Held, carriers: Carriers) -> None:
        for variable, value in zip(held, carriers, strict=True):
            variable.store(value)

    def _poll(self, wishes: Sequence[Wish]) -> Value:
        return wait_for(self.k, self.tile_records, wishes, self.looks)

    # --- the slow way -------------------------------------------------------

    def _recomputed(self) -> _Before:
        """What lies before the tile, from the elements, by the whole workgroup."""
        k, kind = self.k, self.kind
        tiles, groups, block = (self._neutral() for _ in range(3))
        loop = k.loop(self.tile, max_trips=longest_walk(k.info))
        with loop as tile, self.tiles.evaluator.scope():
            chunks = self.tiles.load(self.row, tile)
            sums = [self.tiles.summed(chunk) for chunk in chunks]
            total = self.tiles.prefixes(sums).total
            group, in_group = self._cut(tile)
            _, whole = self._scanned(self._loaded(tiles), in_group, total)
            mine = k.eq(self.lane, in_group)
            self._keep(tiles, chosen(k, mine, total, self._loaded(tiles)))
            with k.when(k.eq(in_group, self.width - 1)):
                _, in_block = self._cut(group)
                lanes = self._loaded(groups)
                _, block_total = self._scanned(lanes, in_block, whole)
                mine = k.eq(self.lane, in_block)
                self._keep(groups, chosen(k, mine, whole, lanes))
                self._keep(tiles, kind.start(k))
                with k.when(k.eq(in_block, self.width - 1)):
                    held = kind.combine(k, self._loaded(block), block_total)
                    self._keep(block, held)
                    self._keep(groups, kind.start(k))
        return _Before(*(self._loaded(held) for held in (tiles, groups, block)))
