"""Walks a graph's equations and makes the Program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from poot.core.dtypes import Scalar
from poot.core.equation import Eqn, ValueId
from poot.core.errors import (
    CapabilityError,
    CompositeRefused,
    LimitError,
    LoweringError,
)
from poot.core.graph import Graph
from poot.core.op import Op
from poot.core.ops.composite import Composite, Fused, FusedRow, Table
from poot.core.ops.contractions import ContractionEpilogue
from poot.core.ops.control import ControlOp
from poot.lowering.device_info import DeviceInfo
from poot.lowering.plan.buffers import lifetimes, place, relocate
from poot.lowering.plan.context import PlanContext
from poot.lowering.plan.frame import Frame, make_frame, tables_of
from poot.lowering.plan.layout import Layout, View, view_layout
from poot.lowering.plan.rules import lower
from poot.lowering.program import BufferRange, Node, Program, Space

# Ops of a region that its label lists.
_MOST_NAMES = 8


def make_program(graph: Graph, info: DeviceInfo, *, generic: bool = False) -> Program:
    """Plan every equation of `graph` on a device.

    With `generic` kernels take sizes from metadata, so that one serves all shapes.
    """
    frame = make_frame(graph)
    ctx = PlanContext(graph, info, generic, frame.homes, frame.stored)
    _place_inputs(ctx, frame)
    plan_equations(ctx, frame)
    return _finish(ctx, frame)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where each value of a planned graph stands, and what each equation launches."""

    graph: Graph
    places: Mapping[ValueId, BufferRange]
    launches: tuple[tuple[Node, ...], ...]


def make_placement(graph: Graph, info: DeviceInfo) -> Placement:
    """Plan as `make_program` does, and tell what became of values and equations."""
    frame = make_frame(graph)
    ctx = PlanContext(graph, info, False, frame.homes, frame.stored)
    _place_inputs(ctx, frame)
    starts = plan_equations(ctx, frame)
    offsets, _ = place(lifetimes(ctx.nodes, ctx.arena, ctx.arena_depths))
    nodes = relocate(ctx.nodes, offsets)
    launches = tuple(nodes[low:high] for low, high in pairwise(starts))
    places = {}
    for value in range(len(graph.values)):
        where = ctx.place_of(ValueId(value))
        if where is not None and where.space is Space.ARENA:
            if where.index not in offsets:
                continue
            start = offsets[where.index] + where.offset
            where = BufferRange(Space.ARENA, 0, start, where.size)
        if where is not None:
            places[ValueId(value)] = where
    return Placement(graph, places, launches)


def plan_equations(ctx: PlanContext, frame: Frame) -> list[int]:
    """Plan all equations of a graph whose inputs are placed, and the copies around.

    The numbers of the nodes with which each equation begins, and the last one ends.
    """
    moved = _copy_inputs(ctx, frame)
    starts = []
    for index, eqn in enumerate(ctx.graph.eqns):
        starts.append(len(ctx.nodes))
        _plan_equation(ctx, index, eqn)
    starts.append(len(ctx.nodes))
    ctx.label = "outputs"
    for value, target in frame.late:
        _deposit(ctx, ctx.output(value), target)
    for view, target in moved:
        _deposit(ctx, view, target)
    return starts


def _place_inputs(ctx: PlanContext, frame: Frame) -> None:
    for value, where in frame.inputs.items():
        type = ctx.type(value)
        ctx.require_size(type, "an input of type ")
        ctx.place(value, View(where, Layout.dense(type.shape), type.dtype))


def _copy_inputs(ctx: PlanContext, frame: Frame) -> list[tuple[View, BufferRange]]:
    """Save what is to be returned of the inputs before state is overwritten."""
    ctx.label = "inputs"
    for value, target in frame.early:
        _deposit(ctx, ctx.output(value), target)
    moved = []
    for value, target in frame.moved:
        saved = ctx.scratch(ctx.type(value))
        _deposit(ctx, ctx.output(value), saved.range)
        moved.append((saved, target))
    return moved


def _deposit(ctx: PlanContext, source: View, target: BufferRange) -> None:
    if source.size:
        ctx.copy(source, View(target, Layout.dense(source.shape), source.dtype))


def _plan_equation(ctx: PlanContext, index: int, eqn: Eqn) -> None:
    ctx.label = f"{_named(eqn.op)} at {ctx.graph.source(index)}"
    ctx.index = index
    if isinstance(eqn.op, Table):
        # Its place is a constant's.
        return
    if all(ctx.type(out).size == 0 for out in eqn.outs):
        for out in eqn.outs:
            ctx.output(out)
        return
    if _as_view(ctx, eqn):
        return
    try:
        _require_types(ctx.graph, ctx.info, eqn)
        lower[eqn.op.key](ctx, eqn)
    except CompositeRefused:
        # Of a sub-graph: it says where.
        raise
    except LoweringError as error:
        raise _refusal(ctx, index, eqn, error) from error


def _refusal(
    ctx: PlanContext, index: int, eqn: Eqn, error: LoweringError
) -> LoweringError:
    """The error with the equation's place; another one if its parts may be planned."""
    text = f"{_where(ctx.graph, index)}: {error}"
    if isinstance(eqn.op, Composite) and not isinstance(eqn.op, Fused | FusedRow):
        types = tuple(map(ctx.type, eqn.inputs))
        return CompositeRefused(text, eqn.op, types)
    return type(error)(text)


def require_types(graph: Graph, info: DeviceInfo) -> None:
    """Raise CapabilityError where the device cannot calculate what a graph does."""
    for index, eqn in enumerate(graph.eqns):
        try:
            _require_types(graph, info, eqn)
        except LoweringError as error:
            raise type(error)(f"{_where(graph, index)}: {error}") from error


def _as_view(ctx: PlanContext, eqn: Eqn) -> bool:
    """Let the result of a view op stand in its operand's buffer, if it may."""
    if len(eqn.inputs) != 1 or ctx.is_stored(eqn.outs[0]):
        return False
    source = ctx.view(eqn.inputs[0])
    if isinstance(source, Scalar):
        return False
    layout = view_layout(eqn.op, source.layout)
    if layout is None:
        return False
    ctx.place(eqn.out, source.with_layout(layout))
    return True


def _named(op: Op) -> str:
    """The op, a composite with the ops in it."""
    if not isinstance(op, Fused | FusedRow | ContractionEpilogue):
        return str(op)
    heads = op.heads if isinstance(op, ContractionEpilogue) else ()
    inner = [str(each) for each in (*heads, *(eqn.op for eqn in op.body.eqns))]
    more = ["…"] if len(inner) > _MOST_NAMES else []
    return f"{type(op).__name__}({', '.join(inner[:_MOST_NAMES] + more)})"


def _where(graph: Graph, index: int) -> str:
    eqn = graph.eqns[index]
    operands = ", ".join(str(graph.type(o)) for o in eqn.inputs)
    results = ", ".join(str(graph.type(o)) for o in eqn.outs)
    return (
        f"equation {index} (`{_named(eqn.op)}` of ({operands}) to {results}) made at "
        f"{graph.source(index)}"
    )


def _require_types(graph: Graph, info: DeviceInfo, eqn: Eqn) -> None:
    """Raise CapabilityError where the device cannot calculate with a dtype."""
    if isinstance(eqn.op, ControlOp):
        # It moves elements; what calculates are the equations of its sub-graphs.
        return
    eqns: tuple[Eqn, ...] = (eqn,)
    if isinstance(eqn.op, ContractionEpilogue):
        require_types(eqn.op.body, info)
    if isinstance(eqn.op, Fused | FusedRow):
        graph, eqns = eqn.op.body, eqn.op.body.eqns
    for inner in eqns:
        for value in (*inner.inputs, *inner.outs):
            dtype = graph.type(value).dtype
            has = info.float64 if dtype.is_float else info.int64
            if dtype.itemsize == 8 and not has:
                feature = "float64" if dtype.is_float else "int64"
                raise CapabilityError(
                    f"{inner.op} on {dtype} needs the feature {feature}, which "
                    f"{info.name} lacks. Use a 32-bit dtype"
                )


def _finish(ctx: PlanContext, frame: Frame) -> Program:
    spans = lifetimes(ctx.nodes, ctx.arena, ctx.arena_depths)
    offsets, size = place(spans)
    limit = min(ctx.info.max_allocation_bytes, ctx.info.max_buffer_bytes)
    if size > limit:
        raise LimitError(
            f"the graph's intermediate values need {size} B of scratch memory at "
            f"once; {ctx.info.name} allocates at most {limit} B. Split the computation"
        )
    graph = ctx.graph
    return Program(
        body=relocate(ctx.nodes, offsets),
        inputs=tuple(graph.type(v) for v in graph.arguments),
        results=tuple(frame.results),
        donated=frame.donated,
        consts=tuple(graph.type(v) for v in (*graph.consts, *tables_of(graph))),
        slots=tuple(frame.slots),
        witnesses=tuple(frame.witnesses),
        arena_bytes=size,
        exports=dict(frame.exports),
    )
