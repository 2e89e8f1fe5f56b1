"""Loops whose bodies work element by element: one kernel runs iterations.

Each invocation keeps its elements of the carries and walks through the iterations on
its own, so that nothing waits for anything. Scalars that change from iteration to
iteration, every invocation computes for itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from poot.core.builder import Builder
from poot.core.dtypes import Scalar
from poot.core.equation import Eqn, ValueId
from poot.core.errors import LimitError
from poot.core.graph import Graph
from poot.core.op import Op
from poot.core.ops.composite import Fused
from poot.core.ops.indexing import DynamicSlice
from poot.core.ops.loops import INDEX, CountedLoop, StateLoop
from poot.core.ops.shape import Reshape
from poot.core.types import TensorType
from poot.lowering.kernels.describe import (
    Described,
    Dims,
    Held,
    alignment_of,
    describe_values,
)
from poot.lowering.kernels.loop_kernel import LoopProgram, LoopTarget, loop_kernel
from poot.lowering.kernels.region import Ref
from poot.lowering.kernels.schedule import choose_lanes, choose_schedule
from poot.lowering.plan.context import PlanContext
from poot.lowering.plan.layout import View
from poot.lowering.plan.state import ELEMENTWISE, POINTWISE
from poot.lowering.program import Kernel

# Iterations of one launch: drivers end what takes seconds, and some count loops, those
# in the body among them.
_TRIPS = (4096, 256, 16)
# Equations times elements of one launch, unless a few iterations take more.
_MOST_WORK = 1 << 33
_MOST_EQUATIONS = 192
_MOST_POINTERS = 28
_MOST_ELEMENTS = (1 << 32) - (1 << 16)


@dataclass(frozen=True, slots=True)
class Step:
    """One iteration as a graph of primitives.

    Inputs: the index if it counts, the states, the device inputs, whole tensors of
    rows, and what each state begins as. Results: the next states, the ys, and what
    states begin as.
    """

    graph: Graph
    counts: bool
    states: int
    ys: int
    # Of what the invocations share out among themselves.
    shape: tuple[int, ...]

    @property
    def held(self) -> tuple[ValueId, ...]:
        """What an invocation holds: the index and its elements of the states."""
        return self.graph.inputs[: self.counts + self.states]


def element_step(op: StateLoop) -> Step | None:
    """The iteration of a loop that works element by element; None for other loops."""
    body = op.body
    types = [body.type(v) for v in (*op.states, *body.results)]
    shapes = {type.shape for type in types} - {()}
    if op.started < len(op.states) or len(shapes) > 1:
        return None
    if not types or not all(type.size for type in types):
        return None
    shape = shapes.pop() if shapes else ()
    trips = op.trips if isinstance(op, CountedLoop) else 1
    if max(1, trips) * math.prod(shape) > _MOST_ELEMENTS:
        return None
    graph = _step_graph(op)
    if graph is None or len(graph.eqns) > _MOST_EQUATIONS:
        return None
    counts = isinstance(op, CountedLoop)
    step = Step(graph, counts, len(op.states), len(body.results), shape)
    return step if _stays_in_place(step) else None


def _is_pointwise(op: Op) -> bool:
    if isinstance(op, Fused):
        return all(isinstance(eqn.op, POINTWISE) for eqn in op.body.eqns)
    return isinstance(op, POINTWISE)


def _step_graph(op: StateLoop) -> Graph | None:
    """The body in primitives, with rows as slices; None if it has others."""
    body = op.body
    if not all(_is_pointwise(eqn.op) for eqn in body.eqns):
        return None
    builder = Builder(composites=True)
    rows = op.rows if isinstance(op, CountedLoop) else 0
    first_row = len(body.inputs) - rows
    known = {v: builder.input(body.type(v)) for v in body.inputs[:first_row]}
    if isinstance(op, CountedLoop):
        index = known[body.inputs[0]]
        for row in body.inputs[first_row:]:
            known[row] = _row(builder, body.type(row), op.trips, index)
    begun = [builder.input(body.type(state)) for state in op.states]
    for index_of_eqn, eqn in enumerate(body.eqns):
        inputs = tuple(o if isinstance(o, Scalar) else known[o] for o in eqn.inputs)
        if isinstance(eqn.op, Fused):
            # Regions have literals inside, so that all their operands are values.
            given = [known[o] for o in eqn.inputs if not isinstance(o, Scalar)]
            inner = builder.inline(eqn.op.body, given)
            outs = tuple(inner[value] for value in eqn.op.body.results)
        else:
            outs = builder.emit(eqn.op, inputs, body.source(index_of_eqn))
        known.update(zip(eqn.outs, outs, strict=True))
    for state in op.states:
        builder.result(known[op.next_values[state]])
    for value in body.results:
        builder.result(known[value])
    for value in begun:
        builder.result(value)
    return builder.finish()


def _row(builder: Builder, type: TensorType, trips: int, index: ValueId) -> ValueId:
    """Row `index` of a tensor that is the next input."""
    whole = builder.input(TensorType((trips, *type.shape), type.dtype))
    zeros = (Scalar.of(0, INDEX.dtype),) * len(type.shape)
    (block,) = builder.emit(DynamicSlice((1, *type.shape)), (whole, index, *zeros))
    (row,) = builder.emit(Reshape(type.shape), (block,))
    return row


def _stays_in_place(step: Step) -> bool:
    """Whether what comes of an element of the states stays at its place."""
    graph, shape = step.graph, step.shape
    spread: set[ValueId] = set()
    if shape:
        spread = {v for v in step.held if graph.type(v).shape == shape}
    for eqn in graph.eqns:
        if not any(not isinstance(o, Scalar) and o in spread for o in eqn.inputs):
            continue
        if not isinstance(eqn.op, ELEMENTWISE):
            return False
        if any(graph.type(out).shape != shape for out in eqn.outs):
            return False
        spread.update(eqn.outs)
    return True


def lower_counted(ctx: PlanContext, eqn: Eqn, step: Step) -> bool:
    """Plan the launches of a counted loop; False if none fits the device."""
    assert isinstance(eqn.op, CountedLoop)
    launch = _Launch(ctx, eqn, step)
    begun = [ctx.view(operand) for operand in eqn.inputs[: step.states]]
    trips = launch.longest(begun)
    if trips is None:
        return False
    for first in range(0, eqn.op.trips, trips):
        launch.emit(begun, first, trips)
        begun = list(launch.outs[: step.states])
    return True


def lower_flagged(ctx: PlanContext, eqn: Eqn, step: Step) -> bool:
    """Plan a launch that goes on with a loop on a flag, from its states to its states.

    False if none fits the device.
    """
    launch = _Launch(ctx, eqn, step)
    begun = launch.outs[: step.states]
    trips = launch.longest(begun)
    if trips is None:
        return False
    launch.emit(begun, 0, trips)
    return True


class _Launch:
    """The launches of one loop in the making."""

    def __init__(self, ctx: PlanContext, eqn: Eqn, step: Step) -> None:
        assert isinstance(eqn.op, StateLoop)
        self.ctx, self.eqn, self.step, self.op = ctx, eqn, step, eqn.op
        self.total = math.prod(step.shape)
        self.trips: int | None = None
        if isinstance(eqn.op, CountedLoop):
            self.trips = eqn.op.trips
        dtypes = [ctx.type(out).dtype for out in eqn.outs]
        wanted = choose_lanes(dtypes, len(step.graph.eqns), self.total)
        # The rows of ys are whole chunks.
        self.lanes = math.gcd(self.total, wanted) if step.ys else wanted
        self.schedule = choose_schedule(ctx.info, self.lanes, self.total)
        self.outs = [ctx.output(out) for out in eqn.outs]
        # Which of the results the invocations share out.
        made = step.graph.results[: len(eqn.outs)]
        self.spread = [bool(step.graph.type(value).shape) for value in made]

    def _fits(self) -> bool:
        """Whether chunks are whole words, and all addresses can be given."""
        words = all(
            self.lanes * out.dtype.itemsize % 4 == 0
            for out, spread in zip(self.outs, self.spread, strict=True)
            if spread
        )
        pointers = len(self.step.graph.inputs) + len(self.outs)
        return words and pointers <= _MOST_POINTERS

    def longest(self, begun: Sequence[View | Scalar]) -> int | None:
        """How many iterations a launch may run within the device's limits, if any."""
        if not self._fits():
            return None
        program, _ = self._described(begun)
        work = self.total * max(1, len(self.step.graph.eqns))
        for trips in _TRIPS:
            if trips != _TRIPS[-1] and work * self._count(trips) > _MOST_WORK:
                continue
            try:
                self._kernel(program, trips)
            except LimitError:
                continue
            return trips
        return None

    def _apart(self, view: View | Scalar, out: View) -> View | Scalar:
        """What a scalar begins as, where no invocation overwrites it for others."""
        if isinstance(view, Scalar) or view.range != out.range:
            return view
        if view.shape == self.step.shape:
            return view
        copy = self.ctx.scratch(view.type)
        self.ctx.copy(view, copy)
        return copy

    def _count(self, trips: int, first: int = 0) -> int:
        """How many iterations a launch of `trips` at most runs from `first` on."""
        return trips if self.trips is None else min(trips, self.trips - first)

    def _kernel(self, program: LoopProgram, trips: int) -> Kernel:
        most = self._count(trips)
        return loop_kernel(self.ctx.info, program, self.schedule, most)

    def _described(
        self, begun: Sequence[View | Scalar]
    ) -> tuple[LoopProgram, Described]:
        step, graph = self.step, self.step.graph
        held = [Held(graph.type(value)) for value in step.held]
        others = map(self.ctx.view, self.eqn.inputs[step.states :])
        dims = Dims(self.lanes, generic=False)
        described, refs = describe_values(graph, [*held, *others, *begun], dims)
        results = [refs[value] for value in graph.results]
        end = step.states + step.ys
        program = LoopProgram(
            region=described.region,
            held=tuple(
                n for n, v in enumerate(step.held, 1 - step.counts) if v in refs
            ),
            shape=step.shape,
            following=tuple(results[: step.states]),
            ys=tuple(results[step.states : end]),
            begun=tuple(results[end:]),
            invariant=tuple(_invariant(step, refs)),
            targets=tuple(map(self._target, self.outs, self.spread)),
            trips=self.trips,
            reverse=isinstance(self.op, CountedLoop) and self.op.reverse,
        )
        return program, described

    def _target(self, view: View, spread: bool) -> LoopTarget:
        return LoopTarget(
            view.dtype, alignment_of(view), self.ctx.indirect(view), spread
        )

    def emit(self, begun: Sequence[View | Scalar], first: int, trips: int) -> None:
        pairs = zip(begun, self.outs, strict=False)
        program, described = self._described([self._apart(*pair) for pair in pairs])
        count = self._count(trips, first)
        self.ctx.emit(
            self._kernel(program, trips),
            [*described.buffers, *self.outs],
            self.schedule.groups(self.total),
            metadata=(first, count),
            flops=len(self.step.graph.eqns) * self.total * count,
            reads=described.reads,
        )


def _invariant(step: Step, refs: Mapping[ValueId, Ref]) -> Iterator[tuple[Ref, bool]]:
    """What no iteration changes and elementwise equations read; if at the scalar index.

    It is computed once, before the loop.
    """
    graph = step.graph
    changing = set(step.held)
    for eqn in graph.eqns:
        operands = [o for o in eqn.inputs if not isinstance(o, Scalar)]
        if changing.isdisjoint(operands):
            continue
        changing.update(eqn.outs)
        shape = graph.type(eqn.outs[0]).shape
        if isinstance(eqn.op, ELEMENTWISE) and shape in ((), step.shape):
            for operand in operands:
                if operand not in changing and operand in refs:
                    yield refs[operand], shape == ()
