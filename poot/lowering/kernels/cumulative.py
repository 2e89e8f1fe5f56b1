"""Cumulative: in one launch where rows are short or many.

Where workgroups may wait for each other, long rows and columns take one pass too.
Elsewhere they go in stages: the totals of parts of the rows, what lies before each
part, and then the parts, each from there on. Which additions are made in which order
depends on shape, dtype and device only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from poot.core.builder import Builder
from poot.core.dtypes import DType, Scalar, uint32
from poot.core.equation import Eqn
from poot.core.ops.cumulative import Cumulative
from poot.core.types import TensorType
from poot.lowering.kernels.column_look_back import scan_columns_in_one_pass
from poot.lowering.kernels.describe import (
    Described,
    Dims,
    alignment_of,
    describe_values,
)
from poot.lowering.kernels.evaluate import SIZE_LIMIT
from poot.lowering.kernels.look_back import flag_words, look_back_kernel
from poot.lowering.kernels.memory import WORD_BYTES
from poot.lowering.kernels.reduce import column_part
from poot.lowering.kernels.row import convert, writable
from poot.lowering.kernels.scan_columns import column_lanes, launch_columns
from poot.lowering.kernels.scan_kernel import scan_kernel
from poot.lowering.kernels.scan_program import (
    Goal,
    ScanProgram,
    ScanSchedule,
    ScanTarget,
    choose_look_back,
    choose_scan_schedule,
    part_tiles,
)
from poot.lowering.kernels.scan_reducer import scan_reducer
from poot.lowering.kernels.schedule import choose_lanes
from poot.lowering.plan.context import PlanContext
from poot.lowering.plan.layout import Layout, View
from poot.lowering.plan.rules import lower


@lower.define(Cumulative)
def _lower_cumulative(ctx: PlanContext, eqn: Eqn) -> None:
    assert isinstance(eqn.op, Cumulative)
    (source,) = (ctx.in_order(operand) for operand in eqn.inputs)
    assert isinstance(source, View)
    out, op = ctx.output(eqn.out), eqn.op
    inner = math.prod(source.shape[op.axis + 1 :])
    if inner == 1:
        source, flat = _without_ones(source, op.axis), _without_ones(out, op.axis)
        lanes = _row_lanes(source.dtype, source.shape[-1])
        whole = (
            source.shape[-1] % lanes == 0 and lanes * out.dtype.itemsize >= WORD_BYTES
        )
        target = writable(ctx, flat, whole)
        _scan_rows(ctx, op, source, target)
        out = flat
    else:
        lanes = column_lanes(source, inner, out.size // source.shape[op.axis])
        target = writable(ctx, out, inner % lanes == 0)
        _scan_columns(ctx, op, source, target)
    if target is not out:
        convert(ctx, target, out)


def _without_ones(view: View, axis: int) -> View:
    """The tensor without the axes behind `axis`, which are all of size 1."""
    layout = view.layout
    return view.with_layout(
        Layout(layout.shape[: axis + 1], layout.strides[: axis + 1], layout.offset)
    )


# --- rows -------------------------------------------------------------------


def _row_lanes(dtype: DType, length: int) -> int:
    lanes = choose_lanes([dtype], 1, 2)
    while lanes > 1 and lanes // 2 >= length:
        lanes //= 2
    return lanes


def _scan_rows(ctx: PlanContext, op: Cumulative, source: View, target: View) -> None:
    rows, length = math.prod(source.shape[:-1]), source.shape[-1]
    lanes = _row_lanes(source.dtype, length)
    one_pass = choose_look_back(ctx.info, lanes, rows, length)
    if one_pass is not None:
        _launch_look_back(ctx, op, source, target, *one_pass)
        return
    schedule = choose_scan_schedule(ctx.info, lanes, length)
    part = part_tiles(ctx.info, schedule, rows, length)
    if part == 0:
        _launch_rows(ctx, op, [source], source.dtype, [target], Goal.ELEMENTS)
        return
    parts = -(-length // (part * schedule.tile))
    totals = _carriers(ctx, op, source.dtype, (*source.shape[:-1], parts))
    _launch_rows(ctx, op, [source], source.dtype, totals, Goal.TOTALS, part)
    carries = _before_parts(ctx, op, source.dtype, totals)
    _launch_rows(
        ctx, op, [source], source.dtype, [target], Goal.ELEMENTS, part, carries
    )


def _carriers(
    ctx: PlanContext, op: Cumulative, dtype: DType, shape: tuple[int, ...]
) -> list[View]:
    kinds = scan_reducer(op.op, dtype).carrier_dtypes
    return [ctx.scratch(TensorType(shape, kind)) for kind in kinds]


def _before_parts(
    ctx: PlanContext, op: Cumulative, dtype: DType, totals: Sequence[View]
) -> list[View]:
    """What lies before each part of a row, from the totals of the parts."""
    rows = Layout.dense((math.prod(totals[0].shape[:-1]), totals[0].shape[-1]))
    carries = _carriers(ctx, op, dtype, rows.shape)
    along = Cumulative(op.op, 1)
    held = [view.with_layout(rows) for view in totals]
    _launch_rows(ctx, along, held, dtype, carries, Goal.PREFIXES)
    return carries


def _launch_rows(
    ctx: PlanContext,
    op: Cumulative,
    sources: Sequence[View],
    dtype: DType,
    targets: Sequence[View],
    goal: Goal,
    part: int = 0,
    carries: Sequence[View] = (),
) -> None:
    """Launch a scan of rows, or with `part` of parts of so many tiles."""
    shape = sources[0].shape
    rows, length = math.prod(shape[:-1]), shape[-1]
    lanes = _row_lanes(sources[0].dtype, length)
    schedule = choose_scan_schedule(ctx.info, lanes, length, part)
    parts = -(-length // (part * schedule.tile)) if part else 1
    described, dims, program = _describe_rows(
        ctx, op, sources, dtype, targets, goal, lanes
    )
    program = replace(
        program, part=dims(part), parts=dims(parts), carried=bool(carries)
    )
    kernel = scan_kernel(ctx.info, program, schedule)
    ctx.emit(
        kernel,
        [*described.buffers, *carries, *targets],
        schedule.groups(rows * parts),
        metadata=tuple(dims.words) if kernel.uses_metadata else (),
        reads=[*described.reads, *(carry.touched for carry in carries)],
    )


def _describe_rows(
    ctx: PlanContext,
    op: Cumulative,
    sources: Sequence[View],
    dtype: DType,
    targets: Sequence[View],
    goal: Goal,
    lanes: int,
) -> tuple[Described, Dims, ScanProgram]:
    """The program of a scan of whole rows, and what a launch of it reads."""
    builder = Builder()
    for source in sources:
        builder.result(builder.input(source.type))
    graph = builder.finish()
    *axes, length = sources[0].shape
    sizes = [max(view.bound, view.size) for view in (*sources, *targets)]
    dims = Dims(lanes, ctx.generic and max(sizes) < SIZE_LIMIT)
    described, refs = describe_values(graph, list(sources), dims)
    program = ScanProgram(
        described.region,
        tuple(refs[value] for value in graph.inputs),
        op.op,
        dtype,
        goal,
        op.reverse,
        tuple(ScanTarget(t.dtype, alignment_of(t), ctx.indirect(t)) for t in targets),
        dims.of(axes),
        dims(math.prod(axes)),
        dims(length),
        length % lanes == 0,
    )
    return described, dims, program


def _launch_look_back(
    ctx: PlanContext,
    op: Cumulative,
    source: View,
    target: View,
    schedule: ScanSchedule,
    looks: int,
) -> None:
    """Launch a scan of rows in one pass, after what sets its flags to 0."""
    rows, length = math.prod(source.shape[:-1]), source.shape[-1]
    described, dims, program = _describe_rows(
        ctx, op, [source], source.dtype, [target], Goal.ELEMENTS, schedule.lanes
    )
    words = flag_words(ctx.info, program, schedule, rows, length)
    flags = ctx.scratch(TensorType((words,), uint32))
    ctx.copy(Scalar.of(0, uint32), flags)
    kernel = look_back_kernel(ctx.info, program, schedule, looks)
    ctx.emit(
        kernel,
        [*described.buffers, flags, target],
        rows * -(-length // schedule.tile),
        metadata=tuple(dims.words) if kernel.uses_metadata else (),
        reads=[*described.reads, flags.touched],
    )


# --- columns ----------------------------------------------------------------


def _scan_columns(ctx: PlanContext, op: Cumulative, source: View, target: View) -> None:
    shape, axis = source.shape, op.axis
    kept = (*shape[:axis], *shape[axis + 1 :])
    length = shape[axis]
    part = column_part(source, axis, ctx.info)
    if part >= length:
        launch_columns(ctx, op, source, [target], length, Goal.ELEMENTS)
        return
    if scan_columns_in_one_pass(ctx, op, source, target):
        return
    parts = -(-length // part)
    totals = _carriers(ctx, op, source.dtype, (*kept, parts))
    launch_columns(ctx, op, source, totals, part, Goal.TOTALS)
    carries = _before_parts(ctx, op, source.dtype, totals)
    launch_columns(ctx, op, source, [target], part, Goal.ELEMENTS, carries)
