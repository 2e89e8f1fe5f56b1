"""The kernel that runs iterations of a loop whose body works element by element."""

from __future__ import annotations

import math
from dataclasses import dataclass

from poot.core.dtypes import DType
from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.cache import kernel_cache
from poot.lowering.kernels.coordinates import Coordinates, Linear, Strided
from poot.lowering.kernels.elements import store_element
from poot.lowering.kernels.evaluate import Evaluator, GivenValue
from poot.lowering.kernels.index import SCALAR_INDEX, Block, Index
from poot.lowering.kernels.math import form
from poot.lowering.kernels.operands import source_operands, target_operands
from poot.lowering.kernels.pack import Pack, lane_of
from poot.lowering.kernels.region import Ref, Region
from poot.lowering.kernels.schedule import PointwiseSchedule
from poot.lowering.program import Kernel
from poot.lowering.spirv.builder import KernelBuilder, Value, Variable
from poot.lowering.spirv.types import I32


@dataclass(frozen=True, slots=True)
class LoopTarget:
    """Where last states go, or ys."""

    dtype: DType
    alignment: int
    indirect: bool
    # Whether invocations share its elements out; else it is a scalar.
    spread: bool


@dataclass(frozen=True, slots=True)
class LoopProgram:
    """All that shapes the code of the kernel but its schedule."""

    region: Region
    # What the region is given, in order: 0 is the index, n + 1 state number n.
    held: tuple[int, ...]
    # What the invocations share out; states and ys have it, or are scalars.
    shape: tuple[int, ...]
    following: tuple[Ref, ...]
    ys: tuple[Ref, ...]
    begun: tuple[Ref, ...]
    # What is computed before the loop, and whether at the scalar index.
    invariant: tuple[tuple[Ref, bool], ...]
    # Of the last states, then of the ys.
    targets: tuple[LoopTarget, ...]
    # Of all launches together; None: as long as the first state is not 0.
    trips: int | None
    reverse: bool


@kernel_cache
def loop_kernel(
    info: DeviceInfo, program: LoopProgram, schedule: PointwiseSchedule, most: int
) -> Kernel:
    """Operands: the buffers read, the last states, the ys.

    Metadata: how many iterations were before, and how many to run, up to `most`.
    """
    return _LoopKernel(info, program, schedule).build(most)


class _LoopKernel:
    def __init__(
        self, info: DeviceInfo, program: LoopProgram, schedule: PointwiseSchedule
    ) -> None:
        self.program, self.lanes = program, schedule.lanes
        self.schedule = schedule
        self.k = k = KernelBuilder("whole_loop", info, (schedule.workgroup, 1, 1))
        self.sources = source_operands(k, program.region)
        self.targets = target_operands(k, program.targets)
        self.coordinates = Coordinates(k, self.lanes)
        group = k.mul(k.workgroup_index(), schedule.workgroup)
        self.chunk = k.add(group, k.local_index())
        flat = Strided(Linear(((self.chunk, self.lanes),)), 1 if self.lanes > 1 else 0)
        self.index = Index((Block(program.shape, flat),) if program.shape else ())
        self.total = math.prod(program.shape)
        self.at: Value | None = None
        self.variables: list[list[Variable]] = []

    def build(self, most: int) -> Kernel:
        k, program = self.k, self.program
        given = [self._given(number) for number in program.held]
        evaluator = Evaluator(self.coordinates, program.region, self.sources, given)
        first, count = k.metadata(0), k.metadata(1)
        with k.when(k.lt(self.chunk, k.ceil_div(self.total, self.lanes))):
            for number in range(len(program.begun)):
                self.variables.append(self._started(evaluator, number))
            for ref, is_scalar in program.invariant:
                index = SCALAR_INDEX if is_scalar else self.index
                evaluator.value(ref, evaluator.operand_index(ref, index))
            count = k.min(count, most)
            with k.loop(count, max_trips=most) as at, evaluator.scope():
                if program.trips is None:
                    k.break_if(k.eq(self.variables[0][0].load(), 0))
                self._iterate(evaluator, k.add(first, at))
            self._store_states(evaluator)
        return k.finish(f"whole loop, {self.schedule}")

    # --- what is held -------------------------------------------------------

    def _given(self, number: int) -> GivenValue:
        def index(_: Index) -> Pack:
            assert self.at is not None
            return (self.k.bitcast(self.at, I32),)

        def state(_: Index) -> Pack:
            return tuple(variable.load() for variable in self.variables[number - 1])

        return state if number else index

    def _index(self, target: LoopTarget) -> Index:
        """Where the invocation's elements of a state or y stand."""
        return self.index if target.spread else SCALAR_INDEX

    def _started(self, evaluator: Evaluator, number: int) -> list[Variable]:
        """A variable a lane; one where the state is a scalar."""
        target = self.program.targets[number]
        pack = evaluator.value(self.program.begun[number], self._index(target))
        ty = form(target.dtype)
        count = self.lanes if target.spread else 1
        return [self.k.variable(ty, lane_of(pack, lane)) for lane in range(count)]

    # --- an iteration -------------------------------------------------------

    def _iterate(self, evaluator: Evaluator, number: Value) -> None:
        k, program = self.k, self.program
        self.at = number
        if program.reverse:
            assert program.trips is not None
            self.at = k.sub(program.trips - 1, number)
        states = len(program.following)
        values = [
            evaluator.value(ref, self._index(target))
            for ref, target in zip(
                (*program.following, *program.ys), program.targets, strict=True
            )
        ]
        for place, pack in enumerate(values[states:], states):
            self._store_row(evaluator, place, pack)
        for variables, pack in zip(self.variables, values[:states], strict=True):
            for lane, variable in enumerate(variables):
                variable.store(lane_of(pack, lane))

    def _store_row(self, evaluator: Evaluator, place: int, pack: Pack) -> None:
        k, program = self.k, self.program
        target, pointer = program.targets[place], self.targets[place]
        assert self.at is not None and program.trips is not None
        if target.spread:
            row = k.mul(self.at, self.total // self.lanes)
            evaluator.memory.store(
                pointer,
                target.dtype,
                k.add(row, self.chunk),
                pack,
                program.trips * self.total,
                target.alignment,
            )
            return
        with k.when(k.eq(self.chunk, 0)):
            store_element(k, pointer, target.dtype, self.at, pack[0], program.trips)

    def _store_states(self, evaluator: Evaluator) -> None:
        k = self.k
        pairs = zip(self.variables, self.targets, self.program.targets, strict=False)
        for variables, pointer, target in pairs:
            pack = tuple(variable.load() for variable in variables)
            store = evaluator.memory.store
            if target.spread:
                store(
                    pointer,
                    target.dtype,
                    self.chunk,
                    pack,
                    self.total,
                    target.alignment,
                )
            else:
                with k.when(k.eq(self.chunk, 0)):
                    store(pointer, target.dtype, self.chunk, pack, 1, target.alignment)
