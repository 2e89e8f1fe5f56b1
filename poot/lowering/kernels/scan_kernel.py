"""The kernel that scans rows, or parts of them, tile after tile."""

from __future__ import annotations

from functools import partial

from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.cache import kernel_cache
from poot.lowering.kernels.elements import store_element
from poot.lowering.kernels.memory import load_element
from poot.lowering.kernels.operands import source_operands, target_operands
from poot.lowering.kernels.reducers import Carriers, Team, reduce_team
from poot.lowering.kernels.scan_program import (
    Goal,
    ScanProgram,
    ScanSchedule,
    longest_walk,
)
from poot.lowering.kernels.scan_reducer import scan_reducer
from poot.lowering.kernels.scan_tile import TileScan
from poot.lowering.program import Access, Kernel
from poot.lowering.spirv.builder import KernelBuilder, Value


@kernel_cache
def scan_kernel(
    info: DeviceInfo, program: ScanProgram, schedule: ScanSchedule
) -> Kernel:
    """Operands: the buffers read, the carries if there are any, then the targets."""
    return _ScanKernel(info, program, schedule).build()


class _ScanKernel:
    """One kernel under construction."""

    def __init__(
        self, info: DeviceInfo, program: ScanProgram, schedule: ScanSchedule
    ) -> None:
        name = f"scan_{program.op.value}_{program.goal.value}"
        self.k = k = KernelBuilder(name, info, (schedule.workgroup, 1, 1))
        self.program = program
        self.schedule = schedule
        self.kind = scan_reducer(program.op, program.dtype)
        sources = source_operands(k, program.region)
        carries = self.kind.types if program.carried else ()
        self.carries = [
            k.operand(f"c{number}", Access.READ) for number in range(len(carries))
        ]
        self.targets = target_operands(k, program.targets)
        self.tiles = TileScan(k, program, schedule, self.kind, sources, self.targets)
        self._place()

    def _place(self) -> None:
        """Find the row, the part of it and its tiles."""
        k, size = self.k, self.tiles.evaluator.size
        local, team = k.local_index(), self.schedule.team
        number = k.mul(k.workgroup_index(), self.schedule.workgroup // team)
        number = k.add(number, k.index_div(local, team))
        parts = size(self.program.parts)
        self.member = k.index_rem(local, team)
        self.tasks = k.value(k.mul(size(self.program.rows), parts))
        self.inside = k.lt(number, self.tasks)
        self.task = k.min(number, k.sub(self.tasks, 1))
        self.row = k.index_div(self.task, parts)
        self.walk = k.ceil_div(self.tiles.length, self.schedule.tile)
        self.first = k.u32(0)
        if self.program.part != 0:
            self.walk = size(self.program.part)
            self.first = k.mul(k.index_rem(self.task, parts), self.walk)

    def build(self) -> Kernel:
        k = self.k
        start = self._carry() if self.program.carried else self.kind.start(k)
        held = [
            k.variable(ty, value)
            for ty, value in zip(self.kind.types, start, strict=True)
        ]
        step = self._add if self.program.goal is Goal.TOTALS else self._scan

        def visit(tile: Value) -> None:
            carry = tuple(variable.load() for variable in held)
            for variable, value in zip(held, step(tile, carry), strict=True):
                variable.store(value)

        if self.schedule.looped:
            loop = partial(k.loop, max_trips=longest_walk(k.info))
            with loop(self.walk) as at, self.tiles.evaluator.scope():
                visit(k.add(self.first, at))
        else:
            visit(self.first)
        if self.program.goal is Goal.TOTALS:
            self._write_totals(tuple(variable.load() for variable in held))
        return k.finish(str(self.schedule))

    def _carry(self) -> Carriers:
        pairs = zip(self.carries, self.kind.carrier_dtypes, strict=True)
        return tuple(
            load_element(self.k, pointer, dtype, self.task, self.tasks)
            for pointer, dtype in pairs
        )

    def _add(self, tile: Value, carry: Carriers) -> Carriers:
        """What an invocation holds, with its elements of one more tile."""
        for chunk in self.tiles.load(self.row, tile):
            whole = self.tiles.summed(chunk)[-1]
            carry = self.kind.combine(self.k, carry, whole)
        return carry

    def _scan(self, tile: Value, carry: Carriers) -> Carriers:
        tiles = self.tiles
        sums = [tiles.summed(chunk) for chunk in tiles.load(self.row, tile)]
        prefixes = tiles.prefixes(sums)
        results = tiles.results(sums, prefixes, carry)
        tiles.store(self.row, tile, results, self.inside)
        return self.kind.combine(self.k, carry, prefixes.total)

    def _write_totals(self, carriers: Carriers) -> None:
        k = self.k
        team = Team(self.schedule.team, self.schedule.workgroup)
        total = reduce_team(k, team, self.kind, carriers)
        with k.when(k.logical_and(k.lt(self.member, 1), self.inside)):
            kept = zip(self.targets, self.kind.carrier_dtypes, total, strict=True)
            for pointer, dtype, value in kept:
                store_element(k, pointer, dtype, self.task, value, self.tasks)
