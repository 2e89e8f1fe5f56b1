"""Loops and branches: their bodies as plans of their own in the same arena."""

from __future__ import annotations

from collections.abc import Mapping

from poot.core import dtypes
from poot.core.builder import Builder
from poot.core.dtypes import Scalar
from poot.core.equation import Eqn, Operand, ValueId
from poot.core.graph import Graph
from poot.core.ops.control import Cond, ControlOp, Scan, While
from poot.core.ops.loops import INDEX, CountedLoop, FlagLoop, StateLoop, Switch
from poot.core.ops.shape import Broadcast
from poot.core.types import TensorType
from poot.lowering.kernels.cursor import (
    Rows,
    advance,
    begin,
    cursor_bytes,
    entry_of,
    index_of,
)
from poot.lowering.kernels.describe import alignment_of
from poot.lowering.kernels.whole_loop import (
    Step,
    element_step,
    lower_counted,
    lower_flagged,
)
from poot.lowering.opened import opened
from poot.lowering.plan.context import PlanContext
from poot.lowering.plan.frame import make_inner_frame
from poot.lowering.plan.layout import ALIGNMENT, Layout, View
from poot.lowering.plan.planner import plan_equations, require_types
from poot.lowering.plan.rules import lower
from poot.lowering.plan.state import initial_state
from poot.lowering.program import Branch, Loop, Node, Space
from poot.lowering.program import While as WhileNode


@lower.define(Scan, While, Cond)
def lower_control(ctx: PlanContext, eqn: Eqn) -> None:
    """Plan the loops and choices that the equation stands for."""
    assert isinstance(eqn.op, ControlOp)
    types = [ctx.type(operand) for operand in eqn.inputs]
    graph = opened(eqn.op, types, ctx.graph.source(ctx.index))
    views = [_placed(ctx, operand) for operand in eqn.inputs]
    places = dict(zip(graph.inputs, views, strict=True))
    outs = [ctx.output(out) for out in eqn.outs]
    ctx.nodes += _planned(ctx, graph, places, outs, deeper=False).nodes


@lower.define(CountedLoop)
def lower_counted_loop(ctx: PlanContext, eqn: Eqn) -> None:
    """Plan a Loop, whose body ends with the step of its cursor."""
    op, label = eqn.op, ctx.label
    assert isinstance(op, CountedLoop)
    step = _element_step(ctx, op) if op.trips else None
    if step is not None and lower_counted(ctx, eqn, step):
        return
    inputs = op.body.inputs
    places = _state_places(ctx, eqn)
    xs = [_contiguous(ctx, x) for x in eqn.inputs[len(eqn.inputs) - op.rows :]]
    ys = [ctx.output(out) for out in eqn.outs[len(op.states) :]]
    if not op.trips:
        return
    rows = [Rows(view) for view in (*xs, *ys)]
    moves = bool(rows or op.body.uses().get(inputs[0]))
    cursor = ctx.scratch(TensorType((cursor_bytes(rows),), dtypes.uint8)).range
    ctx.label = f"{label}: cursor"
    if moves:
        begin(ctx, cursor, rows, op.trips - 1 if op.reverse else 0)
    places[inputs[0]] = View(index_of(cursor), Layout.dense(()), INDEX.dtype)
    moving = [
        ctx.row(each.view, entry_of(cursor, number)) for number, each in enumerate(rows)
    ]
    places.update(zip(inputs[len(inputs) - op.rows :], moving[: op.rows], strict=True))
    body = _planned(ctx, op.body, places, moving[op.rows :])
    if moves:
        body.label = ctx.label
        advance(body, cursor, rows, -1 if op.reverse else 1)
    ctx.nodes.append(Loop(op.trips, tuple(body.nodes)))


def _element_step(ctx: PlanContext, op: StateLoop) -> Step | None:
    """The iteration of a loop that works element by element, on what the device can."""
    step = element_step(op)
    if step is not None:
        require_types(op.body, ctx.info)
    return step


def _contiguous(ctx: PlanContext, operand: Operand) -> View:
    """Where a tensor of rows stands without gaps, each at a multiple of 16 bytes."""
    view = ctx.view(operand)
    if isinstance(view, View) and view.layout.is_contiguous:
        offset = view.layout.offset * view.dtype.itemsize
        if offset % ALIGNMENT == 0 and alignment_of(view) == ALIGNMENT:
            return view
    return ctx.dense(operand)


@lower.define(FlagLoop)
def lower_flag_loop(ctx: PlanContext, eqn: Eqn) -> None:
    """Plan a While on the flag, which its body sets."""
    op = eqn.op
    assert isinstance(op, FlagLoop)
    places = _state_places(ctx, eqn)
    flag = asked = places[op.body.inputs[0]]
    predicate: list[Node] = []
    if not _is_word_of_arena(flag):
        # A flag that is a result too.
        asked = ctx.scratch(INDEX)
        with ctx.body() as predicate:
            ctx.copy(flag, asked)
    step = _element_step(ctx, op)
    with ctx.body() as body:
        if step is None or not lower_flagged(ctx, eqn, step):
            body += _planned(ctx, op.body, places, deeper=False).nodes
    ctx.nodes.append(WhileNode(tuple(predicate), asked.range, tuple(body)))


@lower.define(Switch)
def lower_switch(ctx: PlanContext, eqn: Eqn) -> None:
    """Plan a Branch: each body writes the results."""
    op = eqn.op
    assert isinstance(op, Switch)
    index, *operands = eqn.inputs
    selector = _in_arena(ctx, _placed(ctx, index))
    views = [_placed(ctx, operand) for operand in operands]
    outs = [ctx.output(out) for out in eqn.outs]
    bodies: list[tuple[Node, ...]] = []
    for branch in op.branches:
        places = dict(zip(branch.inputs, views, strict=True))
        bodies.append(tuple(_planned(ctx, branch, places, outs).nodes))
    ctx.nodes.append(Branch(selector.range, tuple(bodies)))


def _planned(
    ctx: PlanContext,
    graph: Graph,
    places: Mapping[ValueId, View],
    outs: list[View] | None = None,
    *,
    deeper: bool = True,
) -> PlanContext:
    """The plan of a sub-graph whose inputs and results have places."""
    ranges = {value: view.range for value, view in places.items()}
    frame = make_inner_frame(graph, ranges, [out.range for out in outs or ()])
    inner = ctx.inner(graph, frame, deeper=deeper)
    for value, view in places.items():
        inner.place(value, view)
    plan_equations(inner, frame)
    return inner


def _placed(ctx: PlanContext, operand: Operand) -> View:
    """Where an operand stands; a literal is written somewhere."""
    view = ctx.view(operand)
    if isinstance(view, View):
        return view
    place = ctx.scratch(ctx.type(operand))
    ctx.copy(view, place)
    return place


def _in_arena(ctx: PlanContext, view: View) -> View:
    """A word in the arena, where the runtime looks for what decides."""
    if _is_word_of_arena(view):
        return view
    place = ctx.scratch(view.type)
    ctx.copy(view, place)
    return place


def _is_word_of_arena(view: View) -> bool:
    return view.range.space is Space.ARENA and view.is_dense


def _state_places(ctx: PlanContext, eqn: Eqn) -> dict[ValueId, View]:
    """The places of states and consts; states hold what they begin as."""
    op = eqn.op
    assert isinstance(op, StateLoop)
    places: dict[ValueId, View] = {}
    rows = op.rows if isinstance(op, CountedLoop) else 0
    consts = eqn.inputs[op.started : len(eqn.inputs) - rows]
    end = len(op.body.inputs) - rows
    # Before any state is written, whose buffer may be that of a const's operand.
    for value, operand in zip(
        op.body.inputs[end - len(consts) : end], consts, strict=True
    ):
        places[value] = _placed(ctx, operand)
    for state, out in zip(op.states, eqn.outs, strict=False):
        places[state] = _begun(ctx, eqn, out)
    _fill(ctx, eqn)
    return places


def _fill(ctx: PlanContext, eqn: Eqn) -> None:
    """Write all states that begin as literals, by one launch."""
    assert isinstance(eqn.op, StateLoop)
    builder = Builder()
    outs = []
    for operand, out in zip(eqn.inputs[: eqn.op.started], eqn.outs, strict=False):
        if isinstance(operand, Scalar):
            builder.result(*builder.emit(Broadcast(()), (operand,)))
            outs.append(ctx.output(out))
    if outs:
        ctx.run(builder.finish(), [], outs)


def _begun(ctx: PlanContext, eqn: Eqn, out: ValueId) -> View:
    """The place of a state, in the operand's own buffer where it is of no more use."""
    operand = initial_state(eqn, out)
    if operand is None or isinstance(operand, Scalar):
        return ctx.output(out)
    source = ctx.view(operand)
    assert isinstance(source, View)
    is_free = not ctx.is_stored(out) and eqn.inputs.count(operand) == 1
    if is_free and source.is_dense and ctx.dies(operand):
        ctx.place(out, source)
        return source
    target = ctx.output(out)
    if source != target and ctx.type(out).size:
        ctx.copy(source, target)
    return target
