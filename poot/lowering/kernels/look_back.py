"""Scans of long rows in one pass, on devices whose workgroups all make progress.

Each workgroup takes the next tile and tells its total. With subgroups of w invocations
w tiles are a group, and the last tile of a group tells the group's total. The first one
tells what lies before the group: what lies before a block of w - 1 groups, and the
groups of that block up to here. Any other tile takes what lies before its group, and
the tiles of the group up to here. So it is fixed which numbers are combined in which
order, whatever the timing, and few workgroups look at one word.

Waiting is bounded. A workgroup that has waited for too long computes all that it waits
for from the elements, by the same combinations.
"""

from __future__ import annotations

from collections.abc import Sequence

from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.cache import kernel_cache
from poot.lowering.kernels.flags import Place, Records, record_words
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


def flag_words(
    info: DeviceInfo, program: ScanProgram, schedule: ScanSchedule, rows: int, n: int
) -> int:
    """The u32 words, 0 at first, that a launch over rows of n elements needs."""
    record = record_words(scan_reducer(program.op, program.dtype).types)
    tiles = -(-n // schedule.tile)
    groups = -(-tiles // info.subgroup_size)
    return _HEAD + rows * (tiles + 2 * groups) * record


@kernel_cache
def look_back_kernel(
    info: DeviceInfo, program: ScanProgram, schedule: ScanSchedule, looks: int
) -> Kernel:
    """Operands: the buffer read, the flags, then the result."""
    return _LookBack(info, program, schedule, looks).build()


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
        sources = [
            k.operand(f"x{number}", Access.READ, indirect=indirect)
            for number, indirect in enumerate(program.region.pointers)
        ]
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
        """Count tiles and groups, and lay out their records."""
        k = self.k
        self.rows = self.tiles.evaluator.size(self.program.rows)
        self.per_row = k.ceil_div(self.tiles.length, self.schedule.tile)
        self.groups = k.ceil_div(self.per_row, self.width)
        words = record_words(self.kind.types)
        counts = [k.mul(self.rows, n) for n in (self.per_row, self.groups, self.groups)]
        starts: list[Size] = [_HEAD]
        for count in counts:
            starts.append(k.add(starts[-1], k.mul(count, words)))
        self.bound = starts.pop()
        self.tile_totals, self.group_totals, self.group_prefixes = (
            Records(k, self.flags, self.kind.types, start, count, self.bound)
            for start, count in zip(starts, counts, strict=True)
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
        self.group = k.index_div(self.tile, self.width)
        self.in_group = k.index_rem(self.tile, self.width)
        self.first_group = k.mul(row, self.groups)
        self.opens = k.eq(self.in_group, 0)
        sums = [tiles.summed(chunk) for chunk in tiles.load(row, self.tile)]
        prefixes = tiles.prefixes(sums)
        with k.when(k.lt(k.local_index(), 1)):
            self.tile_totals.give(number, prefixes.total)
        carry = self._carry(prefixes.total)
        results = tiles.results(sums, prefixes, carry)
        tiles.store(row, self.tile, results, k.bool_(True))

    def _carry(self, total: Carriers) -> Carriers:
        """What lies before the tile, for all invocations of the workgroup."""
        k = self.k
        with k.when(k.lt(k.local_index(), self.width)):
            done, carry = self._waited(total)
            with k.when(k.lt(k.local_index(), 1)):
                self._done.store(0, k.convert(done, U32))
                with k.when(done):
                    self._tell(carry)
        k.barrier()
        with k.when(k.ne(self._done.load(0), 1)):
            carry = self._recomputed()
            with k.when(k.lt(k.local_index(), 1)):
                self._tell(carry)
            k.barrier()
        return tuple(array.load(0) for array in self._found)

    def _tell(self, carry: Carriers) -> None:
        """To the workgroup; to the group too if the tile is the first of it."""
        with self.k.when(self.opens):
            record = self.k.add(self.first_group, self.group)
            self.group_prefixes.give(record, carry)
        for array, carrier in zip(self._found, carry, strict=True):
            array.store(0, carrier)

    def _total(self, lanes: Carriers) -> Carriers:
        return scan_subgroup(self.k, self.kind, self.width, lanes)[1]

    # --- waiting ------------------------------------------------------------

    def _waited(self, total: Carriers) -> tuple[Value, Carriers]:
        """Whether what lies before the tile was told in time, and what it is.

        Each lane of a subgroup waits for one number, the last for what all others
        follow.
        """
        k, last = self.k, self.width - 1
        block = self._block_before()
        groups = k.sub(self.group, block)
        member = k.lt(self.lane, k.select(self.opens, groups, self.in_group))
        follows = k.logical_and(k.eq(self.lane, last), k.gt(self.group, 0))
        first_tile = k.sub(
            k.add(k.mul(self.row, self.per_row), self.tile), self.in_group
        )
        tile = self.tile_totals.place(k.add(first_tile, self.lane))
        group = self.group_totals.place(
            k.add(k.add(self.first_group, block), self.lane)
        )
        before = self.group_prefixes.place(
            k.add(self.first_group, k.select(self.opens, block, self.group))
        )
        spot = self._either(self.opens, group, tile)
        spot = self._either(k.eq(self.lane, last), before, spot)
        held = self._neutral()
        missing = k.variable(U32, k.convert(member, U32))
        # Those behind wait for the total of the group: it comes before all else.
        with k.when(k.eq(self.in_group, last)):
            self._tell_group(spot, held, missing, total)
        missing.store(k.select(follows, k.u32(1), missing.load()))
        done = self._poll(spot, held, missing)
        lanes = self._loaded(held)
        start = self.kind.start(k)
        ahead = tuple(k.subgroup_shuffle(lane, last) for lane in lanes)
        within = self._total(chosen(k, member, lanes, start))
        return done, self.kind.combine(k, ahead, within)

    def _either(self, condition: Value, a: Place, b: Place) -> Place:
        select = self.k.select
        return select(condition, a[0], b[0]), select(condition, a[1], b[1])

    def _block_before(self) -> Value:
        """The first group of the block that the group before this one is in."""
        k, size = self.k, self.width - 1
        before = k.sub(k.max(self.group, 1), 1)
        return k.sub(before, k.index_rem(before, size))

    def _tell_group(
        self, spot: Place, held: Held, missing: Variable, total: Carriers
    ) -> None:
        """Wait for the other tiles of the group alone, and tell its total."""
        k = self.k
        with k.when(self._poll(spot, held, missing)):
            mine = k.eq(self.lane, self.width - 1)
            whole = self._total(chosen(k, mine, total, self._loaded(held)))
            with k.when(k.lt(k.local_index(), 1)):
                record = k.add(self.first_group, self.group)
                self.group_totals.give(record, whole)

    def _neutral(self) -> Held:
        k = self.k
        pairs = zip(self.kind.types, self.kind.start(k), strict=True)
        return [k.variable(ty, value) for ty, value in pairs]

    def _loaded(self, held: Held) -> Carriers:
        return tuple(variable.load() for variable in held)

    def _keep(self, held: Held, carriers: Carriers) -> None:
        for variable, value in zip(held, carriers, strict=True):
            variable.store(value)

    def _poll(self, spot: Place, held: Held, missing: Variable) -> Value:
        """Look until no lane misses its number, but not for ever; whether it is so."""
        k = self.k
        waiting = k.variable(U32, 1)
        with k.loop(self.looks):
            # Lanes that have their number leave the memory to the others.
            with k.when(k.ne(missing.load(), 0)):
                numbers, there = self.tile_totals.look(spot)
                with k.when(there):
                    self._keep(held, numbers)
                    missing.store(0)
            some = k.subgroup_any(k.ne(missing.load(), 0))
            waiting.store(k.convert(some, U32))
            k.break_if(k.logical_not(some))
        return k.eq(waiting.load(), 0)

    # --- the slow way -------------------------------------------------------

    def _recomputed(self) -> Carriers:
        """What lies before the tile, from the elements, by the whole workgroup."""
        k, kind = self.k, self.kind
        tiles, groups, block = (self._neutral() for _ in range(3))
        loop = k.loop(self.tile, max_trips=longest_walk(k.info))
        with loop as tile, self.tiles.evaluator.scope():
            chunks = self.tiles.load(self.row, tile)
            sums = [self.tiles.summed(chunk) for chunk in chunks]
            total = self.tiles.prefixes(sums).total
            place = k.index_rem(tile, self.width)
            mine = k.eq(self.lane, place)
            self._keep(tiles, chosen(k, mine, total, self._loaded(tiles)))
            with k.when(k.eq(place, self.width - 1)):
                self._close_group(k.index_div(tile, self.width), tiles, groups, block)
        within = self._total(self._loaded(groups))
        before = kind.combine(k, self._loaded(block), within)
        return kind.combine(k, before, self._total(self._loaded(tiles)))

    def _close_group(
        self, group: Value, tiles: Held, groups: Held, block: Held
    ) -> None:
        """Go on from a group that is full, and from a block with it."""
        k, kind = self.k, self.kind
        place = k.index_rem(group, self.width - 1)
        whole = self._total(self._loaded(tiles))
        mine = k.eq(self.lane, place)
        self._keep(groups, chosen(k, mine, whole, self._loaded(groups)))
        self._keep(tiles, kind.start(k))
        with k.when(k.eq(place, self.width - 2)):
            within = self._total(self._loaded(groups))
            self._keep(block, kind.combine(k, self._loaded(block), within))
            self._keep(groups, kind.start(k))
