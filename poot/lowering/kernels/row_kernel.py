"""The kernel of a row program, made from its region."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.cache import kernel_cache
from poot.lowering.kernels.coordinates import ZERO, Coordinates, Linear, Strided
from poot.lowering.kernels.elements import store_element
from poot.lowering.kernels.evaluate import Evaluator
from poot.lowering.kernels.index import Block, Index
from poot.lowering.kernels.memory import WORD_BYTES
from poot.lowering.kernels.operands import source_operands, target_operands
from poot.lowering.kernels.pack import Pack, lane_of
from poot.lowering.kernels.reducers import (
    Carriers,
    Reducer,
    Team,
    reduce_team,
    reducer,
)
from poot.lowering.kernels.region import Ref
from poot.lowering.kernels.row_program import RowProgram, RowSchedule, RowTarget
from poot.lowering.program import Kernel
from poot.lowering.spirv.builder import KernelBuilder, Pointer, Size, Value


@kernel_cache
def row_kernel(info: DeviceInfo, program: RowProgram, schedule: RowSchedule) -> Kernel:
    """The kernel of a row program. Operands: the buffers read, then the targets."""
    return _RowKernel(info, program, schedule).build()


class RowWalk:
    """How a team walks a row, phase by phase, in a kernel under construction.

    Whoever makes one says where it is: `row`, `member` of the team, and the part of the
    row from `first` to `end`, of `walk` elements.
    """

    row: Size
    member: Value
    first: Size
    end: Size
    walk: Size

    def __init__(
        self, k: KernelBuilder, program: RowProgram, schedule: RowSchedule
    ) -> None:
        self.k = k
        self.program = program
        self.schedule = schedule
        sources = source_operands(k, program.region)
        self.coordinates = Coordinates(k, schedule.lanes)
        self._held: dict[int, Value] = {}
        given = [partial(self._given, n) for n in range(len(program.reductions))]
        self.evaluator = Evaluator(self.coordinates, program.region, sources, given)
        self.team = Team(schedule.team, schedule.workgroup)
        self.length = self.evaluator.size(program.length)

    def _given(self, number: int, index: Index) -> Pack:
        return (self._held[number],)

    # --- indices ------------------------------------------------------------

    def _row_blocks(self) -> tuple[Block, ...]:
        axes = self.evaluator.sizes(self.program.axes)
        row = self.coordinates.uniform(self.row)
        return (Block(axes, row),) if axes else ()

    def chunk_index(self, chunk: Value) -> Index:
        lanes = self.schedule.lanes
        flat = Strided(Linear(((chunk, lanes),)), 1 if lanes > 1 else 0)
        place = self.coordinates.shift(flat, self.first)
        return Index((*self._row_blocks(), Block((self.length,), place)))

    def row_index(self, ref: Ref) -> Index:
        """The index at which a value with one element a row is asked for."""
        shape = self.evaluator.shape(ref)
        blocks = self._row_blocks()
        if len(shape) == len(self.program.axes):
            return Index(blocks)
        whole = Index((*blocks, Block((self.length,), ZERO)))
        return self.evaluator.maps.broadcast(whole, shape)

    def each_chunk(self, visit: Callable[[Value], None]) -> None:
        """Call `visit` for every chunk of this invocation, those past the end too."""
        k, schedule = self.k, self.schedule
        for number in range(schedule.resident):
            visit(k.add(self.member, number * schedule.team))
        if schedule.resident:
            return
        rounds = k.ceil_div(self.walk, schedule.lanes * schedule.team)
        most = self._most_trips()
        with k.loop(rounds, max_trips=most) as at, self.evaluator.scope():
            visit(k.add(k.mul(at, schedule.team), self.member))

    def _most_trips(self) -> int:
        """Trips of one walk, so that all walks keep within the device's limit."""
        limit = self.k.info.max_loop_trips or 1 << 24
        return limit // (self.program.phases + 2)

    def valid(self, chunk: Value) -> list[Value | None]:
        """Which lanes of a chunk lie in the part; None: surely."""
        k, lanes = self.k, self.schedule.lanes
        step = lanes * self.schedule.team
        reach = step * self.schedule.resident
        if isinstance(self.end, int) and self.end % step == 0 and self.end >= reach:
            return [None] * lanes
        place = k.add(k.mul(chunk, lanes), self.first)
        if self.program.whole_chunks:
            return [k.lt(k.value(place), self.end)] * lanes
        return [k.lt(k.value(k.add(place, i)), self.end) for i in range(lanes)]

    # --- phases -------------------------------------------------------------

    def prepare(self, phase: int) -> None:
        for ref, ready in self.program.prepared:
            if ready == phase:
                self.evaluator.value(ref, self.row_index(ref))

    def reduce(self, phase: int) -> None:
        k = self.k
        kinds = {
            number: reducer(reduction.op, reduction.dtype)
            for number, reduction in enumerate(self.program.reductions)
            if reduction.phase == phase
        }
        sums = {number: _Sums(k, kind) for number, kind in kinds.items()}

        def visit(chunk: Value) -> None:
            index, valid = self.chunk_index(chunk), self.valid(chunk)
            places = self.coordinates.distinct(index.blocks[-1].flat)
            for number, kind in kinds.items():
                value = self.program.reductions[number].value
                pack = self.evaluator.value(value, index)
                sums[number].add(self._lifted(kind, pack, valid, places))

        self.each_chunk(visit)
        for number, kind in kinds.items():
            total = reduce_team(k, self.team, kind, sums[number].total())
            self.reduced(number, kind, total)

    def reduced(self, number: int, kind: Reducer, total: Carriers) -> None:
        """Keep a reduction's result for what is computed next."""
        self._held[number] = kind.finish(self.k, total)

    def _lifted(
        self,
        kind: Reducer,
        pack: Pack,
        valid: list[Value | None],
        places: Pack,
    ) -> Carriers:
        """The lanes of a chunk, combined; those past the end change nothing."""
        k = self.k
        parts = []
        for lane, inside in enumerate(valid):
            carriers = kind.lift(k, lane_of(pack, lane), lane_of(places, lane))
            if inside is not None:
                pairs = zip(carriers, kind.start(k), strict=True)
                carriers = tuple(k.select(inside, c, s) for c, s in pairs)
            parts.append(carriers)
        while len(parts) > 1:
            half = len(parts) // 2
            rest = parts[2 * half :]
            parts = [
                kind.combine(k, parts[2 * i], parts[2 * i + 1]) for i in range(half)
            ]
            parts += rest
        return parts[0]


class _RowKernel(RowWalk):
    """One row kernel under construction."""

    def __init__(
        self, info: DeviceInfo, program: RowProgram, schedule: RowSchedule
    ) -> None:
        name = f"row_{len(program.region.steps)}_{program.phases}"
        k = KernelBuilder(name, info, (schedule.workgroup, 1, 1))
        super().__init__(k, program, schedule)
        self.targets = target_operands(k, program.targets)
        self._place()

    def _place(self) -> None:
        """Find the row, the part of it and the number in the team."""
        k, size, program = self.k, self.evaluator.size, self.program
        local, per_group = k.local_index(), self.team.workgroup // self.team.size
        self.member = k.index_rem(local, self.team.size)
        number = k.mul(k.workgroup_index(), per_group)
        number = k.add(number, k.index_div(local, self.team.size))
        parts = size(program.parts)
        tasks = k.mul(size(program.rows), parts)
        self.inside = k.lt(number, tasks)
        self.task = k.min(number, k.value(k.sub(tasks, 1)))
        self.row = k.index_div(self.task, parts)
        self.first = 0
        self.end = self.length
        self.walk = self.length
        if program.part != 0:
            self.walk = size(program.part)
            self.first = k.mul(k.index_rem(self.task, parts), self.walk)
            if isinstance(self.first, Value):
                self.coordinates.note_multiple(self.first, self.schedule.lanes)
            self.end = k.min(self.length, k.add(self.first, self.walk))

    def build(self) -> Kernel:
        for phase in range(self.program.phases):
            self.prepare(phase)
            self.reduce(phase)
        if self.program.part == 0:
            self.prepare(self.program.phases)
            self._write_full()
            self._write_rows()
        return self.k.finish(str(self.schedule))

    def reduced(self, number: int, kind: Reducer, total: Carriers) -> None:
        if self.program.part == 0:
            super().reduced(number, kind, total)
        else:
            self._write_part(kind, total)

    # --- results ------------------------------------------------------------

    def _write_part(self, kind: Reducer, total: Carriers) -> None:
        k = self.k
        tasks = k.mul(
            self.evaluator.size(self.program.rows),
            self.evaluator.size(self.program.parts),
        )
        with k.when(k.logical_and(k.lt(self.member, 1), self.inside)):
            kept = zip(
                self.targets, kind.part_dtypes, kind.parts(k, total), strict=True
            )
            for pointer, dtype, value in kept:
                store_element(k, pointer, dtype, self.task, value, tasks)

    def _write_rows(self) -> None:
        k = self.k
        rows = self.evaluator.size(self.program.rows)
        found = [
            (pointer, target, self._element(target.value))
            for pointer, target in zip(self.targets, self.program.targets, strict=True)
            if not target.full
        ]
        with k.when(k.logical_and(k.lt(self.member, 1), self.inside)):
            for pointer, target, value in found:
                at = k.value(self.row)
                store_element(k, pointer, target.dtype, at, value, rows)

    def _element(self, ref: Ref) -> Value:
        return self.evaluator.value(ref, self.row_index(ref))[0]

    def _write_full(self) -> None:
        k = self.k
        pairs = zip(self.targets, self.program.targets, strict=True)
        full = [(pointer, target) for pointer, target in pairs if target.full]
        if not full:
            return

        def visit(chunk: Value) -> None:
            index = self.chunk_index(chunk)
            packs = [self.evaluator.value(target.value, index) for _, target in full]
            with k.when(self.inside):
                # Only now, since a result may overwrite an operand.
                for (pointer, target), pack in zip(full, packs, strict=True):
                    self._store(pointer, target, chunk, pack)

        self.each_chunk(visit)

    def _store(
        self, pointer: Pointer, target: RowTarget, chunk: Value, pack: Pack
    ) -> None:
        k, lanes, dtype = self.k, self.schedule.lanes, target.dtype
        rows, length = self.evaluator.size(self.program.rows), self.length
        total = self.coordinates.product((rows, length))
        valid = [k.bool_(True) if v is None else v for v in self.valid(chunk)]
        # A chunk of less than a word shares its word with the next row.
        whole_words = lanes * dtype.itemsize % WORD_BYTES == 0
        if self.program.whole_chunks and whole_words:
            at = k.add(k.mul(self.row, k.index_div(length, lanes)), chunk)
            with k.when(valid[0]):
                memory = self.evaluator.memory
                memory.store(pointer, dtype, at, pack, total, target.alignment, True)
            return
        start = k.add(k.mul(self.row, length), k.mul(chunk, lanes))
        for lane, inside in enumerate(valid):
            with k.when(inside):
                at = k.add(start, lane)
                store_element(k, pointer, dtype, at, lane_of(pack, lane), total)


class _Sums:
    """What an invocation has combined so far: in a variable, across loop rounds."""

    def __init__(self, k: KernelBuilder, kind: Reducer) -> None:
        self._k = k
        self._kind = kind
        self._variables = [
            k.variable(ty, start)
            for ty, start in zip(kind.types, kind.start(k), strict=True)
        ]

    def add(self, carriers: Carriers) -> None:
        for variable, value in zip(
            self._variables,
            self._kind.combine(self._k, self.total(), carriers),
            strict=True,
        ):
            variable.store(value)

    def total(self) -> Carriers:
        return tuple(variable.load() for variable in self._variables)
