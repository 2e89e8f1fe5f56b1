"""Attention: one launch for many queries, one or two for few."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from poot.core import dtypes
from poot.core.dtypes import Scalar
from poot.core.equation import Eqn, Operand
from poot.core.errors import CapabilityError, LimitError
from poot.core.ops.attention import Attention
from poot.core.types import TensorType
from poot.lowering.kernels.attention_bounds import find_bounds
from poot.lowering.kernels.attention_keys import EXTRA_PARTS, attention_keys_kernel
from poot.lowering.kernels.attention_merge import (
    attention_merge_kernel,
    merge_groups,
    merge_workgroup,
)
from poot.lowering.kernels.attention_program import (
    AttentionProgram,
    AttentionSchedule,
    Stand,
    Visible,
    attention_candidates,
    choose_attention_schedule,
)
from poot.lowering.kernels.attention_rows import attention_rows_kernel
from poot.lowering.kernels.attention_teams import attention_teams_kernel
from poot.lowering.kernels.contraction import CHUNK
from poot.lowering.kernels.describe import (
    Described,
    Dims,
    Held,
    alignment_of,
    describe_values,
)
from poot.lowering.kernels.evaluate import SIZE_LIMIT
from poot.lowering.kernels.row import convert, writable
from poot.lowering.plan.context import PlanContext
from poot.lowering.plan.layout import ALIGNMENT, View
from poot.lowering.plan.rules import lower
from poot.lowering.program import BufferRange
from poot.lowering.tuned import digest

_KERNELS = {
    "rows": attention_rows_kernel,
    "keys": attention_keys_kernel,
    "teams": attention_teams_kernel,
}
ATTENTION_DTYPES = (dtypes.float16, dtypes.bfloat16, dtypes.float32)


@lower.define(Attention)
def _lower_attention(ctx: PlanContext, eqn: Eqn) -> None:
    assert isinstance(eqn.op, Attention)
    _Launch(ctx, eqn, eqn.op).run()


class _Launch:
    """The launches of one attention."""

    def __init__(self, ctx: PlanContext, eqn: Eqn, op: Attention) -> None:
        self.ctx, self.eqn, self.op = ctx, eqn, op
        self.q, self.k, self.v = (self._view(operand) for operand in eqn.inputs[:3])
        types = [ctx.type(operand) for operand in (*eqn.inputs[:3], *eqn.outs)]
        score = op.score.result_types[0]
        for type in (*types, op.score.input_types[0], score):
            if type.dtype not in ATTENTION_DTYPES:
                raise CapabilityError(
                    f"attention on {type.dtype}; takes "
                    f"{', '.join(map(str, ATTENTION_DTYPES))}"
                )

    def _view(self, operand: Operand) -> View:
        view = self.ctx.view(operand)
        return self.ctx.dense(operand) if isinstance(view, Scalar) else view

    def run(self) -> None:
        ctx, eqn = self.ctx, self.eqn
        out = ctx.output(eqn.outs[0])
        target = writable(ctx, out, False)
        described, program = self._program(target, tile=1)
        usual = choose_attention_schedule(ctx.info, program)
        schedule = ctx.info.tuned.pick(
            "attention",
            lambda: digest(program),
            usual,
            lambda: attention_candidates(ctx.info, usual, program),
        )
        if schedule.tile > 1:
            described, program = self._program(target, schedule.tile)
        heads = self.q, self.k, self.v
        operands: list[View | BufferRange] = [*described.buffers, *heads]
        reads = [*described.reads, *(x.touched for x in heads)]
        flops = 2 * program.batches * program.row_count * program.keys
        flops *= program.features + program.values
        if schedule.splits > 1:
            self._split(program, schedule, operands, reads, target, flops)
        else:
            kernel = _KERNELS[schedule.kind](ctx.info, program, schedule)
            groups = schedule.groups(program)
            ctx.emit(kernel, [*operands, target], groups, flops=flops, reads=reads)
        if target is not out:
            convert(ctx, target, out)

    def _split(
        self,
        program: AttentionProgram,
        schedule: AttentionSchedule,
        operands: Sequence[View | BufferRange],
        reads: Sequence[BufferRange],
        target: View,
        flops: int,
    ) -> None:
        """Splits leave parts in scratch memory; a second launch merges them."""
        ctx, info = self.ctx, self.ctx.info
        rows, width = program.batches * program.row_count, program.values + EXTRA_PARTS
        shape = (rows, schedule.splits, width)
        parts = ctx.scratch(TensorType(shape, dtypes.float32))
        kernel = _KERNELS[schedule.kind](
            info, replace(program, target=_stand(ctx, parts, range(3))), schedule
        )
        groups = schedule.groups(program)
        ctx.emit(kernel, [*operands, parts], groups, flops=flops, reads=reads)
        workgroup = merge_workgroup(info, program)
        merge = attention_merge_kernel(info, program, schedule.splits, workgroup)
        ctx.emit(merge, [parts, target], merge_groups(program, workgroup))

    # --- the program --------------------------------------------------------

    def _program(self, target: View, tile: int) -> tuple[Described, AttentionProgram]:
        """What is computed, with scores of `tile` keys at a time."""
        ctx, op = self.ctx, self.op
        bounds = find_bounds(op.score)
        graph = op.score if bounds is None else bounds.graph
        extras = [ctx.view(operand) for operand in self.eqn.inputs[3:]]
        products = Held(graph.input_types[0])
        described, refs = describe_values(
            graph, [products, *extras], Dims(tile, generic=False)
        )
        shape, batch = self.q.shape, op.batch
        order = [op.order.index(axis) for axis in range(len(op.order))]
        visible = None
        if bounds is not None:
            first, end = refs[bounds.first], refs[bounds.end]
            visible = Visible(first, end, bounds.masked)
        q, k, v = (
            _stand(ctx, x, range(len(x.shape))) for x in (self.q, self.k, self.v)
        )
        program = AttentionProgram(
            described.region,
            refs[graph.results[0]],
            visible,
            shape[:batch],
            shape[batch:-1],
            self.k.shape[-2],
            shape[-1],
            self.v.shape[-1],
            q,
            k,
            v,
            _stand(ctx, target, order),
        )
        return described, program


def _stand(ctx: PlanContext, view: View, axes: Sequence[int]) -> Stand:
    """How the elements of a view stand, by some order of its axes."""
    if view.bound >= SIZE_LIMIT:
        raise LimitError(
            f"attention: a buffer of {view.bound} elements; the most is {SIZE_LIMIT}"
        )
    strides = tuple(view.layout.strides[axis] for axis in axes)
    others = (*strides[:-1], view.layout.offset)
    return Stand(
        view.dtype,
        ctx.indirect(view),
        view.bound,
        view.layout.offset,
        strides,
        strides[-1] == 1
        and not any(step % CHUNK for step in others)
        and alignment_of(view) == ALIGNMENT,
    )
