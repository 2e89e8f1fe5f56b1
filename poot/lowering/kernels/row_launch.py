"""From a row body that was cut to a launch."""

from __future__ import annotations

import math
from collections.abc import Sequence

from poot.core.dtypes import Scalar
from poot.core.equation import ValueId
from poot.core.errors import LimitError
from poot.lowering.kernels.describe import (
    Dims,
    Held,
    alignment_of,
    describe_values,
)
from poot.lowering.kernels.evaluate import SIZE_LIMIT
from poot.lowering.kernels.region import Apply, Ref
from poot.lowering.kernels.row_cut import Cut
from poot.lowering.kernels.row_kernel import row_kernel
from poot.lowering.kernels.row_program import (
    Reduction,
    RowProgram,
    RowSchedule,
    RowTarget,
    choose_row_schedule,
    row_candidates,
)
from poot.lowering.kernels.schedule import choose_lanes
from poot.lowering.plan.context import PlanContext
from poot.lowering.plan.layout import View
from poot.lowering.tuned import digest


def launch_rows(
    ctx: PlanContext,
    cut: Cut,
    operands: Sequence[View | Scalar],
    targets: Sequence[View],
    part: int = 0,
) -> None:
    """Launch the kernel of `cut`; with `part`, of its reduction over such parts."""
    rows, length = math.prod(cut.axes), cut.length
    views = [view for view in (*operands, *targets) if isinstance(view, View)]
    generic = ctx.generic and all(view.bound < SIZE_LIMIT for view in views)
    lanes = row_lanes(views, len(cut.graph.eqns), length)
    dims = Dims(lanes, generic)
    described, refs = describe_values(
        cut.graph, [*operands, *(Held(type) for type in cut.given)], dims
    )
    parts = -(-length // part) if part else 1
    program = RowProgram(
        described.region,
        tuple(
            Reduction(op, dtype, refs[value], phase)
            for op, dtype, value, phase in cut.reductions
        ),
        _row_targets(ctx, cut, refs, targets),
        cut.prepared(refs),
        dims.of(cut.axes),
        dims(rows),
        dims(length),
        length % lanes == 0,
        dims(part),
        dims(parts),
    )
    walk = part or length
    equations = len(cut.graph.eqns)
    schedule = choose_row_schedule(
        ctx.info, lanes, walk, equations, generic, rows * parts
    )
    if not generic and not part:
        schedule = ctx.info.tuned.pick(
            "rows",
            lambda: f"{rows}x{length} {digest(program)}",
            schedule,
            lambda: row_candidates(ctx.info, lanes, walk, equations),
        )
    if part:
        schedule = RowSchedule(lanes, schedule.team, schedule.workgroup)
    _require_trips(ctx, program, schedule, walk)
    kernel = row_kernel(ctx.info, program, schedule)
    applied = sum(isinstance(step.action, Apply) for step in described.region.steps)
    ctx.emit(
        kernel,
        [*described.buffers, *targets],
        schedule.groups(rows * parts),
        metadata=tuple(dims.words) if kernel.uses_metadata else (),
        flops=(applied + len(cut.reductions)) * rows * length,
        reads=described.reads,
    )


def _row_targets(
    ctx: PlanContext, cut: Cut, refs: dict[ValueId, Ref], targets: Sequence[View]
) -> tuple[RowTarget, ...]:
    """The results, or the carriers of a part, which have no value in the region."""
    values: Sequence[Ref] = [refs[value] for value in cut.results]
    whole = (*cut.axes, cut.length)
    return tuple(
        RowTarget(
            ref,
            target.dtype,
            alignment_of(target),
            ctx.indirect(target),
            target.shape == whole and bool(cut.results),
        )
        for ref, target in zip(values or [0] * len(targets), targets, strict=True)
    )


def row_lanes(views: Sequence[View], equations: int, length: int) -> int:
    """Elements of a chunk, of rows of this length."""
    lanes = choose_lanes([view.dtype for view in views], equations, 2)
    while lanes > 1 and lanes // 2 >= length:
        lanes //= 2
    return lanes


def _require_trips(
    ctx: PlanContext, program: RowProgram, schedule: RowSchedule, walk: int
) -> None:
    limit = ctx.info.max_loop_trips
    need = schedule.trips(walk) * (program.phases + 2)
    if limit is not None and not schedule.resident and need > limit:
        raise LimitError(
            f"rows of {walk} elements need {need} loop trips an invocation; "
            f"{ctx.info.name} takes {limit}. Split the rows"
        )
