"""Scans of columns in one pass, on devices whose workgroups all make progress.

A workgroup takes the next tile, some elements of some columns, and holds it in
registers. It tells the totals of the tile, and looks back at those of the tiles before
it in its group of tiles and at what lies before the group, which the last tile of the
group before has told. So the elements are read once, and what is combined is combined
from the first tile to the last, whatever the timing.

Waiting is bounded. A workgroup that has waited for too long computes what it waits for
from the elements, by the same combinations.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.core.dtypes import Scalar, uint32
from poot.core.ops.cumulative import Cumulative
from poot.core.types import TensorType
from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels import scan_program
from poot.lowering.kernels.cache import kernel_cache
from poot.lowering.kernels.flags import Records, Wish, record_words, wait_for
from poot.lowering.kernels.operands import source_operands, target_operands
from poot.lowering.kernels.reducers import Carriers
from poot.lowering.kernels.scan_columns import (
    ColumnAccess,
    ColumnScan,
    describe_columns,
)
from poot.lowering.kernels.scan_program import Goal, longest_walk
from poot.lowering.kernels.scan_reducer import scan_reducer
from poot.lowering.kernels.scan_team import chosen
from poot.lowering.plan.context import PlanContext
from poot.lowering.plan.layout import View
from poot.lowering.program import Access, Kernel
from poot.lowering.spirv.builder import KernelBuilder, Value
from poot.lowering.spirv.types import U32

# Chunks of columns side by side in a tile, strips of rows below each other, and the
# bytes of carriers that an invocation holds.
_ACROSS, _DOWN = 16, 16
_HELD_BYTES = 256
# Words before the records: the number of the next tile stands in the first.
_HEAD = 32

Lanes = list[Carriers]


@dataclass(frozen=True, slots=True)
class ColumnTiles:
    """A tile is `down` strips of `rows` elements of `across` chunks of columns.

    As many tiles make a group: each strip looks at another record.
    """

    lanes: int
    across: int
    down: int
    rows: int

    @property
    def workgroup(self) -> int:
        return self.across * self.down

    @property
    def height(self) -> int:
        """The elements of a column in a tile."""
        return self.down * self.rows

    def counts(self, length: int, total: int) -> tuple[int, int, int]:
        """Tiles along the axis, groups of them, and blocks of columns."""
        tiles = -(-length // self.height)
        return tiles, -(-tiles // self.down), -(-total // (self.lanes * self.across))

    def __str__(self) -> str:
        return (
            f"one pass, {self.lanes} lanes, tiles of {self.height} x "
            f"{self.across * self.lanes} by {self.workgroup} invocations"
        )


def scan_columns_in_one_pass(
    ctx: PlanContext, op: Cumulative, source: View, target: View
) -> bool:
    """Plan the scan, after what sets its flags to 0, if the device is able to."""
    described, dims, program = describe_columns(
        ctx, op, source, [target], Goal.ELEMENTS
    )
    length = source.shape[op.axis]
    total = source.size // length
    types = scan_reducer(op.op, source.dtype).types
    held = dims.lanes * sum(ty.size_bytes for ty in types)
    schedule = ColumnTiles(dims.lanes, _ACROSS, _DOWN, max(_HELD_BYTES // held, 1))
    tiles, groups, blocks = schedule.counts(length, total)
    if not (program.whole_chunks and _is_able(ctx.info, schedule, tiles)):
        return False
    looks = scan_program.most_looks(ctx.info)
    words = _HEAD + (tiles + groups) * total * record_words(types)
    flags = ctx.scratch(TensorType((words,), uint32))
    ctx.copy(Scalar.of(0, uint32), flags)
    kernel = column_look_back_kernel(ctx.info, program, schedule, looks)
    ctx.emit(
        kernel,
        [*described.buffers, flags, target],
        tiles * blocks,
        metadata=tuple(dims.words) if kernel.uses_metadata else (),
        reads=[*described.reads, flags.touched],
    )
    return True


def _is_able(info: DeviceInfo, schedule: ColumnTiles, tiles: int) -> bool:
    most = min(info.max_workgroup_invocations, info.max_workgroup_size[0])
    return (
        info.forward_progress
        and info.subgroup_ballot
        and schedule.workgroup <= most
        and 1 < tiles <= longest_walk(info)
    )


@kernel_cache
def column_look_back_kernel(
    info: DeviceInfo, program: ColumnScan, schedule: ColumnTiles, looks: int
) -> Kernel:
    """Operands: the buffer read, the flags, then the result."""
    return _ColumnLookBack(info, program, schedule, looks).build()


class _ColumnLookBack:
    """One kernel under construction."""

    def __init__(
        self, info: DeviceInfo, program: ColumnScan, schedule: ColumnTiles, looks: int
    ) -> None:
        name = f"column_look_back_{program.op.value}"
        self.k = k = KernelBuilder(name, info, (schedule.workgroup, 1, 1))
        self.schedule, self.looks = schedule, looks
        sources = source_operands(k, program.region)
        self.flags = k.operand("flags", Access.UPDATE)
        targets = target_operands(k, program.targets)
        self.access = ColumnAccess(k, program, schedule.lanes, sources, targets)
        self.kind = self.access.kind
        self.tiles = k.ceil_div(self.access.length, schedule.height)
        self.groups = k.ceil_div(self.tiles, schedule.down)
        self.blocks = k.ceil_div(self.access.chunks, schedule.across)
        types, total = self.kind.types, self.access.total
        record = record_words(types)
        second = k.add(k.mul(k.mul(self.tiles, total), record), _HEAD)
        bound = k.add(second, k.mul(k.mul(self.groups, total), record))
        self.bound = bound
        self.tile_records = Records(k, self.flags, types, _HEAD, bound)
        self.group_records = Records(k, self.flags, types, second, bound)
        self.strip = k.index_div(k.local_index(), schedule.across)
        self.side = k.index_rem(k.local_index(), schedule.across)
        self._number, self._late = k.shared(U32, 1), k.shared(U32, 1)
        count = schedule.workgroup * schedule.lanes
        self._shared = [k.shared(ty, count) for ty in types]

    def build(self) -> Kernel:
        k = self.k
        with k.when(k.lt(k.local_index(), 1)):
            self._number.store(0, k.atomic_add(self.flags, k.u32(0), 1, self.bound))
            self._late.store(0, 0)
        k.barrier()
        number = self._number.load(0)
        # All columns of a tile before the next, for which it has to wait.
        with k.when(k.lt(number, k.mul(self.tiles, self.blocks))):
            self._scan(k.index_div(number, self.blocks), number)
        return k.finish(str(self.schedule))

    def _scan(self, tile: Value, number: Value) -> None:
        k, access, schedule = self.k, self.access, self.schedule
        block = k.index_rem(number, self.blocks)
        self.chunk = k.add(k.mul(block, schedule.across), self.side)
        self.is_column = k.lt(self.chunk, access.chunks)
        sums = self._summed(tile)
        before, total = self._across(sums[-1])
        group = k.index_div(tile, schedule.down)
        in_group = k.index_rem(tile, schedule.down)
        ends_group = k.eq(in_group, schedule.down - 1)
        tells = k.logical_and(self.is_column, k.lt(self.strip, 1))
        with k.when(k.logical_and(tells, k.logical_not(ends_group))):
            self._give(self.tile_records, tile, total)
        carry = self._carry(tile, group, in_group)
        following = k.add(group, 1)
        leads = k.logical_and(ends_group, k.lt(following, self.groups))
        with k.when(k.logical_and(tells, leads)):
            self._give(self.group_records, following, self._both(carry, total))
        base = self._both(carry, before)
        for row, place in enumerate(self._places(tile)):
            inside = k.logical_and(self.is_column, self._is_row(place))
            with k.when(inside):
                lanes = self._both(base, sums[row])
                access.store(self.chunk, access.stored(place), lanes)

    def _give(self, records: Records, number: Value, totals: Lanes) -> None:
        for record, carriers in zip(self._records(number), totals, strict=True):
            records.give(record, carriers)

    def _records(self, number: Value) -> list[Value]:
        """Of the columns of this invocation, those of a tile or a group."""
        k, access = self.k, self.access
        first = k.mul(number, access.total)
        lanes = range(self.schedule.lanes)
        return [k.add(first, access.column(self.chunk, lane)) for lane in lanes]

    def _both(self, a: Lanes, b: Lanes) -> Lanes:
        return [self.kind.combine(self.k, *pair) for pair in zip(a, b, strict=True)]

    def _start(self) -> Lanes:
        return [self.kind.start(self.k)] * self.schedule.lanes

    # --- within a tile ------------------------------------------------------

    def _places(self, tile: Value) -> list[Value]:
        """The rows of this invocation in a tile."""
        k, schedule = self.k, self.schedule
        first = k.mul(tile, schedule.height)
        first = k.add(first, k.mul(self.strip, schedule.rows))
        return [k.add(first, row) for row in range(schedule.rows)]

    def _is_row(self, place: Value) -> Value:
        length = self.access.length
        if isinstance(length, int) and length % self.schedule.height == 0:
            return self.k.bool_(True)
        return self.k.lt(place, length)

    def _summed(self, tile: Value) -> list[Lanes]:
        """Each row of this invocation combined with its rows before."""
        k, kind, access = self.k, self.kind, self.access
        places = self._places(tile)
        # All loads before anything waits for one.
        packs = [access.load(self.chunk, access.stored(place)) for place in places]
        sums: list[Lanes] = []
        for place, pack in zip(places, packs, strict=True):
            lanes = [kind.lift(k, value, place) for value in pack]
            inside = self._is_row(place)
            if inside.const is None:
                lanes = [chosen(k, inside, lane, kind.start(k)) for lane in lanes]
            sums.append(self._both(sums[-1], lanes) if sums else lanes)
        return sums

    def _share(self, lanes: Lanes) -> None:
        """Let all strips see what this one has; after the barrier they do."""
        for lane, carriers in enumerate(lanes):
            for array, carrier in zip(self._shared, carriers, strict=True):
                array.store(self._shared_place(self.strip, lane), carrier)

    def _shared_by(self, strip: int) -> Lanes:
        """What a strip has shared of the columns of this invocation."""
        return [
            tuple(
                array.load(self._shared_place(self.k.u32(strip), lane))
                for array in self._shared
            )
            for lane in range(self.schedule.lanes)
        ]

    def _shared_place(self, strip: Value, lane: int) -> Value:
        k, schedule = self.k, self.schedule
        line = k.add(k.mul(strip, schedule.lanes), lane)
        return k.add(k.mul(line, schedule.across), self.side)

    def _across(self, own: Lanes) -> tuple[Lanes, Lanes]:
        """What lies before this strip in the tile, and all of the tile."""
        k = self.k
        self._share(own)
        k.barrier()
        before = total = self._start()
        for strip in range(self.schedule.down):
            mine = k.eq(self.strip, strip)
            pairs = zip(total, before, strict=True)
            before = [chosen(k, mine, now, then) for now, then in pairs]
            total = self._both(total, self._shared_by(strip))
        k.barrier()
        return before, total

    # --- what lies before a tile --------------------------------------------

    def _carry(self, tile: Value, group: Value, in_group: Value) -> Lanes:
        """Each strip looks at one tile of the group, the last at the group before."""
        k, schedule = self.k, self.schedule
        last = k.eq(self.strip, schedule.down - 1)
        other = k.add(k.sub(tile, in_group), self.strip)
        needed = k.logical_or(
            k.lt(self.strip, in_group), k.logical_and(last, k.gt(group, 0))
        )
        needed = k.logical_and(needed, self.is_column)
        pairs = zip(self._records(other), self._records(group), strict=True)
        wishes = []
        for of_tile, of_group in pairs:
            place = k.select(
                last,
                self.group_records.place(of_group),
                self.tile_records.place(of_tile),
            )
            start = zip(self.kind.types, self.kind.start(k), strict=True)
            held = [k.variable(ty, value) for ty, value in start]
            missing = k.variable(U32, k.convert(needed, U32))
            wishes.append(Wish(place, missing, held))
        done = wait_for(k, self.tile_records, wishes, self.looks)
        with k.when(k.logical_not(done)):
            self._late.atomic_add(0, 1)
        self._share([_loaded(wish) for wish in wishes])
        k.barrier()
        carry = self._shared_by(schedule.down - 1)
        for strip in range(schedule.down - 1):
            carry = self._both(carry, self._shared_by(strip))
        return self._or_recomputed(tile, carry)

    def _or_recomputed(self, tile: Value, carry: Lanes) -> Lanes:
        """What was told, or what the elements before the tile give."""
        k = self.k
        held = [
            [k.variable(ty, c) for ty, c in zip(self.kind.types, lane, strict=True)]
            for lane in carry
        ]
        with k.when(k.ne(self._late.load(0), 0)):
            for lane in held:
                for variable, value in zip(lane, self.kind.start(k), strict=True):
                    variable.store(value)
            loop = k.loop(tile, max_trips=longest_walk(k.info))
            with loop as other, self.access.evaluator.scope():
                k.barrier()
                _, total = self._across(self._summed(other)[-1])
                so_far = [tuple(v.load() for v in lane) for lane in held]
                for lane, carriers in zip(held, self._both(so_far, total), strict=True):
                    for variable, value in zip(lane, carriers, strict=True):
                        variable.store(value)
        return [tuple(variable.load() for variable in lane) for lane in held]


def _loaded(wish: Wish) -> Carriers:
    return tuple(variable.load() for variable in wish.held)
