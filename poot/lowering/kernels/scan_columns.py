"""Scans along an axis that is not the last: each invocation walks some columns.

Neighbouring invocations take neighbouring columns, so that they read and write
neighbouring addresses. Long axes are walked in parts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from poot.core.builder import Builder
from poot.core.dtypes import DType
from poot.core.ops.cumulative import Cumulative, CumulativeOp
from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.cache import kernel_cache
from poot.lowering.kernels.column_walk import part_end, walk_column
from poot.lowering.kernels.coordinates import Coordinates, Linear, Strided
from poot.lowering.kernels.describe import (
    Described,
    Dims,
    alignment_of,
    describe_values,
)
from poot.lowering.kernels.elements import store_element
from poot.lowering.kernels.evaluate import SIZE_LIMIT, Evaluator
from poot.lowering.kernels.index import Block, Index
from poot.lowering.kernels.memory import load_element
from poot.lowering.kernels.operands import source_operands, target_operands
from poot.lowering.kernels.pack import Pack, lane_of
from poot.lowering.kernels.reducers import Carriers
from poot.lowering.kernels.region import Dim, Region
from poot.lowering.kernels.scan_program import Goal, ScanTarget
from poot.lowering.kernels.scan_reducer import scan_reducer
from poot.lowering.kernels.scan_tile import finished
from poot.lowering.kernels.schedule import (
    ColumnSchedule,
    choose_column_schedule,
    choose_lanes,
)
from poot.lowering.plan.context import PlanContext
from poot.lowering.plan.layout import View
from poot.lowering.program import Access, Kernel
from poot.lowering.spirv.builder import (
    KernelBuilder,
    Pointer,
    Size,
    Value,
    Variable,
)


@dataclass(frozen=True, slots=True)
class ColumnScan:
    """All that shapes the code of a scan of columns but its schedule."""

    region: Region
    op: CumulativeOp
    dtype: DType
    # ELEMENTS, or TOTALS of parts.
    goal: Goal
    reverse: bool
    targets: tuple[ScanTarget, ...]
    # The axes but the one that is scanned, of which `before` stand before it.
    kept: tuple[Dim, ...]
    before: int
    # The columns, those behind the axis, and the elements of the axis.
    total: Dim
    inner: Dim
    length: Dim
    # Whether the columns behind the axis are whole chunks.
    whole_chunks: bool
    # Where columns are walked in parts: the elements of a part, the parts of the axis.
    part: Dim = 0
    parts: Dim = 1
    # Whether each part begins with carriers that buffers hold at column * parts + part.
    carried: bool = False


def column_lanes(source: View, inner: int, total: int) -> int:
    """Neighbouring columns of an invocation: whole chunks if that is possible."""
    lanes = choose_lanes([source.dtype], 1, total)
    while lanes > 4 and inner % lanes:
        lanes //= 2
    return lanes


def launch_columns(
    ctx: PlanContext,
    op: Cumulative,
    source: View,
    targets: Sequence[View],
    part: int,
    goal: Goal,
    carries: Sequence[View] = (),
) -> None:
    """Launch a scan of the parts of the columns."""
    described, dims, program = describe_columns(ctx, op, source, targets, goal)
    length = source.shape[op.axis]
    total, parts = source.size // length, -(-length // part)
    program = replace(
        program, part=dims(part), parts=dims(parts), carried=bool(carries)
    )
    schedule = choose_column_schedule(ctx.info, source.dtype, dims.lanes, total)
    kernel = column_scan_kernel(ctx.info, program, schedule)
    ctx.emit(
        kernel,
        [*described.buffers, *carries, *targets],
        schedule.groups(total) * parts,
        metadata=tuple(dims.words) if kernel.uses_metadata else (),
        reads=[*described.reads, *(carry.touched for carry in carries)],
    )


def describe_columns(
    ctx: PlanContext,
    op: Cumulative,
    source: View,
    targets: Sequence[View],
    goal: Goal,
) -> tuple[Described, Dims, ColumnScan]:
    """The program of a scan of whole columns, and what a launch of it reads."""
    builder = Builder()
    builder.result(builder.input(source.type))
    shape, axis = source.shape, op.axis
    kept = (*shape[:axis], *shape[axis + 1 :])
    total, inner = math.prod(kept), math.prod(shape[axis + 1 :])
    lanes = column_lanes(source, inner, total)
    generic = ctx.generic and max(source.bound, source.size) < SIZE_LIMIT
    dims = Dims(lanes, generic)
    described, _ = describe_values(builder.finish(), [source], dims)
    program = ColumnScan(
        described.region,
        op.op,
        source.dtype,
        goal,
        op.reverse,
        tuple(ScanTarget(t.dtype, alignment_of(t), ctx.indirect(t)) for t in targets),
        dims.of(kept),
        axis,
        dims(total),
        dims(inner),
        dims(shape[axis]),
        inner % lanes == 0,
    )
    return described, dims, program


@kernel_cache
def column_scan_kernel(
    info: DeviceInfo, program: ColumnScan, schedule: ColumnSchedule
) -> Kernel:
    """Operands: the buffers read, the carries if there are any, then the targets."""
    return _ColumnKernel(info, program, schedule).build()


class ColumnAccess:
    """Reads and writes columns inside one kernel, a chunk of them at a time."""

    def __init__(
        self,
        k: KernelBuilder,
        program: ColumnScan,
        lanes: int,
        sources: Sequence[Pointer],
        targets: Sequence[Pointer],
    ) -> None:
        self.k = k
        self.program = program
        self.lanes = lanes
        self.kind = scan_reducer(program.op, program.dtype)
        self.coordinates = Coordinates(k, lanes)
        self.evaluator = Evaluator(self.coordinates, program.region, sources)
        self.targets = targets
        size = self.evaluator.size
        self.total, self.inner = size(program.total), size(program.inner)
        self.length = size(program.length)
        self.chunks = k.ceil_div(self.total, lanes)

    def column(self, chunk: Value, lane: int) -> Value:
        return self.k.add(self.k.mul(chunk, self.lanes), lane)

    def stored(self, place: Value) -> Value:
        """Where in memory what stands at a place of the scan is."""
        if not self.program.reverse:
            return place
        return self.k.value(self.k.sub(self.k.sub(self.length, 1), place))

    def load(self, chunk: Value, place: Value) -> Pack:
        """The elements of a chunk of columns at a place in memory."""
        maps, program = self.evaluator.maps, self.program
        kept = self.evaluator.sizes(program.kept)
        flat = Strided(Linear(((chunk, self.lanes),)), 1 if self.lanes > 1 else 0)
        columns = Index((Block(kept, flat),))
        along = Block((self.length,), self.coordinates.uniform(place))
        before = maps.take(columns, 0, program.before)
        after = maps.take(columns, program.before, len(kept))
        return self.evaluator.value(0, Index((*before, along, *after)))

    def store(self, chunk: Value, place: Value, lanes: Sequence[Carriers]) -> None:
        """Write the elements of a chunk of columns at a place in memory."""
        k, target = self.k, self.program.targets[0]
        pack = tuple(
            finished(k, self.kind, carriers, target.dtype.is_bool) for carriers in lanes
        )
        total = self.coordinates.product((self.total, self.length))
        if self.program.whole_chunks:
            at = self._moved(chunk, place, k.index_div(self.inner, len(lanes)))
            memory = self.evaluator.memory
            pointer = self.targets[0]
            memory.store(pointer, target.dtype, at, pack, total, target.alignment)
        else:
            self._store_lanes(chunk, place, pack, total)

    def _store_lanes(self, chunk: Value, place: Value, pack: Pack, total: Size) -> None:
        k, dtype = self.k, self.program.targets[0].dtype
        for lane in range(self.lanes):
            column = self.column(chunk, lane)
            with k.when(k.lt(column, self.total)):
                at = self._moved(column, place, self.inner)
                value = lane_of(pack, lane)
                store_element(k, self.targets[0], dtype, at, value, total)

    def _moved(self, number: Value, place: Value, inner: Size) -> Value:
        """From the number of a column to that of its element at a place."""
        k = self.k
        row = k.add(k.mul(k.index_div(number, inner), self.length), place)
        return k.add(k.mul(row, inner), k.index_rem(number, inner))


class _ColumnKernel:
    """One kernel under construction."""

    def __init__(
        self, info: DeviceInfo, program: ColumnScan, schedule: ColumnSchedule
    ) -> None:
        name = f"column_scan_{program.op.value}_{program.goal.value}"
        self.k = k = KernelBuilder(name, info, (schedule.workgroup, 1, 1))
        self.program = program
        self.schedule = schedule
        sources = source_operands(k, program.region)
        self.kind = scan_reducer(program.op, program.dtype)
        carries = self.kind.types if program.carried else ()
        self.carries = [
            k.operand(f"c{number}", Access.READ) for number in range(len(carries))
        ]
        self.targets = target_operands(k, program.targets)
        self.access = ColumnAccess(k, program, schedule.lanes, sources, self.targets)
        self.parts = self.access.evaluator.size(program.parts)
        groups = k.ceil_div(self.access.chunks, schedule.workgroup)
        number = k.workgroup_index()
        self.part, group = k.index_div(number, groups), k.index_rem(number, groups)
        local = k.local_index()
        self.chunk = k.add(k.mul(group, schedule.workgroup), local)

    def build(self) -> Kernel:
        k = self.k
        chunk_there = k.lt(self.chunk, self.access.chunks)
        with k.when(k.logical_and(chunk_there, k.lt(self.part, self.parts))):
            lanes = [self._variables(lane) for lane in range(self.schedule.lanes)]
            self._walk(lanes)
            if self.program.goal is Goal.TOTALS:
                self._write_totals(lanes)
        return k.finish(f"column scan, {self.schedule}")

    # --- carriers -----------------------------------------------------------

    def _variables(self, lane: int) -> list[Variable]:
        k, kind = self.k, self.kind
        start = self._carry(lane) if self.program.carried else kind.start(k)
        pairs = zip(kind.types, start, strict=True)
        return [k.variable(ty, value) for ty, value in pairs]

    def _carry(self, lane: int) -> Carriers:
        pairs = zip(self.carries, self.kind.carrier_dtypes, strict=True)
        at, bound = self._task(lane), self.k.mul(self.access.total, self.parts)
        return tuple(
            load_element(self.k, pointer, dtype, at, bound) for pointer, dtype in pairs
        )

    def _task(self, lane: int) -> Value:
        column = self.access.column(self.chunk, lane)
        return self.k.add(self.k.mul(column, self.parts), self.part)

    def _write_totals(self, lanes: Sequence[Sequence[Variable]]) -> None:
        k, total = self.k, self.access.total
        bound = k.mul(total, self.parts)
        for lane, held in enumerate(lanes):
            with k.when(k.lt(self.access.column(self.chunk, lane), total)):
                kept = zip(self.targets, self.kind.carrier_dtypes, held, strict=True)
                for pointer, dtype, variable in kept:
                    at = self._task(lane)
                    store_element(k, pointer, dtype, at, variable.load(), bound)

    # --- the walk -----------------------------------------------------------

    def _walk(self, lanes: Sequence[Sequence[Variable]]) -> None:
        k, kind, access = self.k, self.kind, self.access
        most = access.evaluator.size(self.program.part)
        first = k.mul(self.part, most)
        end = part_end(k, access.length, most, first)

        def load(at: Value) -> tuple[Value, Pack]:
            place = access.stored(k.add(first, at))
            return place, access.load(self.chunk, place)

        def visit(loaded: tuple[Value, Pack]) -> None:
            place, pack = loaded
            found: list[Carriers] = []
            for lane, held in enumerate(lanes):
                before = tuple(variable.load() for variable in held)
                lifted = kind.lift(k, lane_of(pack, lane), place)
                combined = kind.combine(k, before, lifted)
                for variable, value in zip(held, combined, strict=True):
                    variable.store(value)
                found.append(combined)
            if self.program.goal is Goal.ELEMENTS:
                access.store(self.chunk, place, found)

        walk_column(access.evaluator, self.schedule, end, load, visit)
