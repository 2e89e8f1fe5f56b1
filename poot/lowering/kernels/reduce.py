"""Reduce and ArgReduce that no pass has put into a row body.

Over the last axis they are row bodies of one reduction. Over another axis each
invocation reduces neighbouring columns; long axes are reduced in parts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from poot.core.builder import Builder
from poot.core.dtypes import DType, Scalar
from poot.core.equation import Eqn, Operand
from poot.core.graph import Graph
from poot.core.op import Op
from poot.core.ops.reduce import ArgReduce, Reduce, ReduceOp
from poot.core.ops.shape import Reshape
from poot.core.types import TensorType
from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.cache import kernel_cache
from poot.lowering.kernels.column_walk import LONGEST_PART, part_end, walk_column
from poot.lowering.kernels.coordinates import Coordinates, Linear, Strided
from poot.lowering.kernels.describe import Dims, alignment_of, describe_values
from poot.lowering.kernels.elements import store_element
from poot.lowering.kernels.evaluate import SIZE_LIMIT, Evaluator
from poot.lowering.kernels.index import Block, Index
from poot.lowering.kernels.operands import source_operands, target_operands
from poot.lowering.kernels.pack import Pack, lane_of
from poot.lowering.kernels.reducers import Carriers, Reducer, reducer
from poot.lowering.kernels.region import Dim, Region
from poot.lowering.kernels.row import combination, lower_rows
from poot.lowering.kernels.schedule import (
    MOST_AHEAD,
    ColumnSchedule,
    choose_column_schedule,
    choose_lanes,
)
from poot.lowering.plan.context import PlanContext
from poot.lowering.plan.layout import Layout, View
from poot.lowering.plan.rules import lower
from poot.lowering.program import Kernel
from poot.lowering.spirv.builder import KernelBuilder, Pointer, Value

# Elements of an axis that one invocation reduces, where there are enough of them.
_PART, _PART_ON_CPU = 1 << 7, 1 << 8
# Invocations that keep a compute unit busy, each with some loads under way.
_INVOCATIONS_PER_UNIT = 1 << 9


@lower.define(Reduce, ArgReduce)
def _lower_reduce(ctx: PlanContext, eqn: Eqn) -> None:
    assert isinstance(eqn.op, Reduce | ArgReduce)
    out = ctx.output(eqn.out)
    source, axis = _along_memory(ctx, eqn.inputs[0], eqn.op.axis)
    shape, op = source.shape, _on_axis(eqn.op, axis)
    if shape[axis] == 0:
        ctx.copy(_identity(op, out.dtype), out)
    elif math.prod(shape[axis + 1 :]) == 1:
        kept = _reshaped(out, shape[:axis])
        lower_rows(ctx, _row_body(op, source.type), [source], [kept])
    else:
        kept = _reshaped(out, (*shape[:axis], *shape[axis + 1 :]))
        _lower_columns(ctx, op, source, kept)


def _along_memory(ctx: PlanContext, operand: Operand, axis: int) -> tuple[View, int]:
    """The operand such that a GPU reads neighbours together, and the axis there.

    The axis moves to the end or the front where it is rather a row or a column in
    memory; the other axes keep their order. What this does not help is copied.
    """
    source = ctx.view(operand)
    assert isinstance(source, View)
    others = [n for n in range(len(source.shape)) if n != axis]
    steps = source.layout.strides
    inner = [n for n in others if source.shape[n] > 1][-1:]
    if ctx.info.is_cpu or not inner or not source.crosses:
        return source, axis
    perm = [axis, *others] if axis > inner[0] else [*others, axis]
    moved = source.with_layout(source.layout.transpose(perm))
    if steps[perm[-1]] > 0 and not moved.crosses:
        return moved, perm.index(axis)
    return ctx.dense(operand), axis


def _identity(op: Op, dtype: DType) -> Scalar:
    assert isinstance(op, Reduce)
    return Scalar.of(op.op in (ReduceOp.PROD, ReduceOp.ALL), dtype)


def _reshaped(view: View, shape: tuple[int, ...]) -> View:
    """A dense tensor under another shape."""
    return view.with_layout(Layout.dense(shape))


def _row_body(op: Reduce | ArgReduce, type: TensorType) -> Graph:
    """The reduction over what is the last axis but for axes of size 1."""
    builder = Builder()
    value = builder.input(type)
    if op.axis != type.ndim - 1:
        (value,) = builder.emit(Reshape(type.shape[: op.axis + 1]), (value,))
    builder.result(*builder.emit(_on_axis(op, op.axis), (value,)))
    return builder.finish()


def _on_axis(op: Reduce | ArgReduce, axis: int) -> Reduce | ArgReduce:
    """The same reduction of another axis, which is dropped."""
    if isinstance(op, Reduce):
        return Reduce(op.op, axis)
    return ArgReduce(op.op, axis)


# --- other axes -------------------------------------------------------------


def _lower_columns(
    ctx: PlanContext, op: Reduce | ArgReduce, source: View, out: View
) -> None:
    """Reduce along an axis that is not the last, in parts if it is long.

    `out` has the shape of the kept axes.
    """
    shape, axis = source.shape, op.axis
    kept = (*shape[:axis], *shape[axis + 1 :])
    length = shape[axis]
    part = column_part(source, axis, ctx.info)
    if part >= length:
        _launch_columns(ctx, op, source, [out], 0)
        return
    count = -(-length // part)
    stored = [
        ctx.scratch(TensorType((*kept, count), dtype))
        for dtype in reducer(op, source.dtype).part_dtypes
    ]
    _launch_columns(ctx, op, source, stored, part)
    moved = TensorType((*kept, length), source.dtype)
    body = _row_body(_on_axis(op, len(kept)), moved)
    rest, _ = combination(body, [view.type for view in stored])
    lower_rows(ctx, rest, stored, [out])


def column_part(source: View, axis: int, info: DeviceInfo) -> int:
    """The elements of a part of an axis, at least all of it where parts do not pay."""
    length = source.shape[axis]
    if info.is_cpu:
        return min(max(length, _PART_ON_CPU), LONGEST_PART)
    columns = source.size // length
    lanes = choose_lanes([source.dtype], 1, columns)
    wanted = max(_INVOCATIONS_PER_UNIT * info.compute_units * lanes // columns, 1)
    part = max(-(-length // wanted), _PART)
    # Whole rounds of what is loaded at a time.
    return min(-(-part // MOST_AHEAD) * MOST_AHEAD, LONGEST_PART)


@dataclass(frozen=True, slots=True)
class ColumnTarget:
    """Where results go, or the carriers of parts."""

    dtype: DType
    alignment: int
    indirect: bool


@dataclass(frozen=True, slots=True)
class ColumnProgram:
    """All that shapes the code of a column kernel but its schedule."""

    region: Region
    op: Reduce | ArgReduce
    dtype: DType
    targets: tuple[ColumnTarget, ...]
    kept: tuple[Dim, ...]
    total: Dim
    length: Dim
    # The elements of a part, or 0, and the parts of the axis.
    part: Dim
    parts: Dim


def _launch_columns(
    ctx: PlanContext,
    op: Reduce | ArgReduce,
    source: View,
    targets: Sequence[View],
    part: int,
) -> None:
    builder = Builder()
    value = builder.input(source.type)
    builder.result(value)
    shape, axis = source.shape, op.axis
    kept = (*shape[:axis], *shape[axis + 1 :])
    total, length = math.prod(kept), shape[axis]
    generic = ctx.generic and source.bound < SIZE_LIMIT
    lanes = choose_lanes([source.dtype, *(t.dtype for t in targets)], 1, total)
    dims = Dims(lanes, generic)
    described, _ = describe_values(builder.finish(), [source], dims)
    parts = -(-length // part) if part else 1
    program = ColumnProgram(
        described.region,
        op,
        source.dtype,
        tuple(ColumnTarget(t.dtype, alignment_of(t), ctx.indirect(t)) for t in targets),
        dims.of(kept),
        dims(total),
        dims(length),
        dims(part),
        dims(parts),
    )
    schedule = choose_column_schedule(ctx.info, source.dtype, lanes, total)
    kernel = column_kernel(ctx.info, program, schedule)
    ctx.emit(
        kernel,
        [*described.buffers, *targets],
        schedule.groups(total) * parts,
        metadata=tuple(dims.words) if kernel.uses_metadata else (),
        reads=described.reads,
    )


@kernel_cache
def column_kernel(
    info: DeviceInfo, program: ColumnProgram, schedule: ColumnSchedule
) -> Kernel:
    """Each invocation reduces a chunk of neighbouring columns over a part."""
    k = KernelBuilder("columns", info, (schedule.workgroup, 1, 1))
    sources = source_operands(k, program.region)
    targets = target_operands(k, program.targets)
    coordinates = Coordinates(k, schedule.lanes)
    evaluator = Evaluator(coordinates, program.region, sources)
    total, parts = evaluator.size(program.total), evaluator.size(program.parts)
    chunks = k.ceil_div(total, schedule.lanes)
    groups = k.ceil_div(chunks, schedule.workgroup)
    number = k.workgroup_index()
    part, group = k.index_div(number, groups), k.index_rem(number, groups)
    chunk = k.add(k.mul(group, schedule.workgroup), k.local_index())
    with k.when(k.logical_and(k.lt(k.value(chunk), chunks), k.lt(part, parts))):
        lanes = _reduce_chunk(evaluator, program, schedule, chunk, part)
        _store_chunk(evaluator, program, targets, chunk, part, lanes)
    return k.finish(f"columns, {schedule}")


def _reduce_chunk(
    evaluator: Evaluator,
    program: ColumnProgram,
    schedule: ColumnSchedule,
    chunk: Value,
    part: Value,
) -> list[Carriers]:
    """The carriers of each lane's column over one part of the axis."""
    k, maps = evaluator.k, evaluator.maps
    kind = reducer(program.op, program.dtype)
    kept = evaluator.sizes(program.kept)
    step = 1 if schedule.lanes > 1 else 0
    flat = Strided(Linear(((chunk, schedule.lanes),)), step)
    columns = Index((Block(kept, flat),))
    before = maps.take(columns, 0, program.op.axis)
    after = maps.take(columns, program.op.axis, len(kept))
    length = evaluator.size(program.length)
    walk = evaluator.size(program.part) if program.part != 0 else length
    first = k.mul(part, walk)
    variables = [
        [k.variable(ty, v) for ty, v in zip(kind.types, kind.start(k), strict=True)]
        for _ in range(schedule.lanes)
    ]
    end = part_end(k, length, walk, first)

    def load(at: Value) -> tuple[Value, Pack]:
        place = k.add(first, at)
        along = Block((length,), evaluator.coordinates.uniform(place))
        return place, evaluator.value(0, Index((*before, along, *after)))

    def visit(loaded: tuple[Value, Pack]) -> None:
        place, pack = loaded
        for lane, kept_here in enumerate(variables):
            held = tuple(variable.load() for variable in kept_here)
            lifted = kind.lift(k, lane_of(pack, lane), place)
            combined = kind.combine(k, held, lifted)
            for variable, value in zip(kept_here, combined, strict=True):
                variable.store(value)

    walk_column(evaluator, schedule, end, load, visit)
    return [tuple(variable.load() for variable in lane) for lane in variables]


def _store_chunk(
    evaluator: Evaluator,
    program: ColumnProgram,
    targets: Sequence[Pointer],
    chunk: Value,
    part: Value,
    lanes: Sequence[Carriers],
) -> None:
    k = evaluator.k
    kind: Reducer = reducer(program.op, program.dtype)
    total, parts = evaluator.size(program.total), evaluator.size(program.parts)
    if program.part == 0:
        pack = tuple(kind.finish(k, carriers) for carriers in lanes)
        target = program.targets[0]
        evaluator.memory.store(
            targets[0], target.dtype, chunk, pack, total, target.alignment
        )
        return
    for lane, carriers in enumerate(lanes):
        column = k.add(k.mul(chunk, len(lanes)), lane)
        with k.when(k.lt(column, total)):
            at = k.add(k.mul(column, parts), part)
            bound = k.mul(total, parts)
            kept = zip(targets, kind.part_dtypes, kind.parts(k, carriers), strict=True)
            for pointer, dtype, value in kept:
                store_element(k, pointer, dtype, at, value, bound)
