"""FusedRow: one launch for all that a body computes over its rows.

Rows that are too long and too few for a workgroup each are reduced in parts, whose
results a second launch combines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from poot.core import dtypes
from poot.core.builder import Builder
from poot.core.dtypes import Scalar
from poot.core.equation import Eqn, Operand, ValueId
from poot.core.graph import Graph
from poot.core.op import Op
from poot.core.ops.composite import FusedRow
from poot.core.ops.elementwise import (
    Binary,
    BinaryOp,
    Cast,
    Compare,
    CompareOp,
    Select,
    Unary,
    UnaryOp,
)
from poot.core.ops.reduce import ArgReduce, ArgReduceOp, Reduce, ReduceOp
from poot.core.types import TensorType
from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.reducers import reducer
from poot.lowering.kernels.row_cut import Cut, row_domain
from poot.lowering.kernels.row_launch import launch_rows
from poot.lowering.plan.blocks import needs_words
from poot.lowering.plan.context import PlanContext
from poot.lowering.plan.layout import View
from poot.lowering.plan.rows import needs_stages
from poot.lowering.plan.rules import lower

# Elements of a part are at least this many.
_SHORTEST_PART = 1 << 13
# So many parts a compute unit keep a device busy.
_PARTS_PER_UNIT = 16


@lower.define(FusedRow)
def _lower_fused_row(ctx: PlanContext, eqn: Eqn) -> None:
    assert isinstance(eqn.op, FusedRow)
    first, *rest = eqn.op.body.eqns
    alone = not rest and len(eqn.outs) == 1
    if alone and isinstance(first.op, Reduce | ArgReduce):
        # Nothing but a reduction may go along another axis of the memory.
        lower[first.op.key](ctx, Eqn(first.op, eqn.inputs, eqn.outs))
        return
    operands = [ctx.in_order(operand) for operand in eqn.inputs]
    outs = [ctx.output(out) for out in eqn.outs]
    lower_rows(ctx, eqn.op.body, operands, outs)


def lower_rows(
    ctx: PlanContext,
    body: Graph,
    operands: Sequence[View | Scalar],
    outs: Sequence[View],
) -> None:
    """Launch what writes the results of a row body to `outs`."""
    axes, length = row_domain(body)
    if needs_stages(math.prod(axes), length, ctx.info):
        _lower_stages(ctx, body, operands, outs)
        return
    targets = [
        writable(ctx, out, out.shape == (*axes, length) and length % 8 == 0)
        for out in outs
    ]
    cut = Cut.of(body, [target.dtype for target in targets])
    launch_rows(ctx, cut, operands, targets)
    for target, out in zip(targets, outs, strict=True):
        if target is not out:
            convert(ctx, target, out)


def writable(ctx: PlanContext, out: View, whole_words: bool) -> View:
    """Where a result is written: small elements that share words go by a detour."""
    if whole_words or not needs_words(out.dtype, ctx.info):
        return out
    wide = dtypes.float32 if out.dtype.is_float else dtypes.int32
    return ctx.scratch(TensorType(out.shape, wide))


def convert(ctx: PlanContext, source: View, target: View) -> None:
    """Write the elements of `source` in the dtype of `target`."""
    builder = Builder()
    value = builder.input(source.type)
    builder.result(*builder.emit(Cast(target.dtype), (value,)))
    ctx.run(builder.finish(), [source], [target])


# --- stages -----------------------------------------------------------------


def _lower_stages(
    ctx: PlanContext,
    body: Graph,
    operands: Sequence[View | Scalar],
    outs: Sequence[View],
) -> None:
    """Reduce parts of the rows, then rows of parts."""
    cut = Cut.of(body, None)
    ((op, dtype, _, _),) = cut.reductions
    part = _part(math.prod(cut.axes), cut.length, ctx.info)
    shape = (*cut.axes, -(-cut.length // part))
    stored = [
        ctx.scratch(TensorType(shape, kept)) for kept in reducer(op, dtype).part_dtypes
    ]
    launch_rows(ctx, cut, operands, stored, part)
    rest, used = combination(body, [view.type for view in stored])
    kept_operands = [operands[number] for number in used]
    lower_rows(ctx, rest, [*stored, *kept_operands], outs)


def _part(rows: int, length: int, info: DeviceInfo) -> int:
    """The elements of a part: enough parts to fill the device, none too short."""
    wanted = max(_PARTS_PER_UNIT * info.compute_units // rows, 1)
    if info.max_loop_trips is not None:
        # Teams on such devices are small: keep their walks well within the limit.
        wanted = max(wanted, -(-length // (info.max_loop_trips + 1)))
    part = max(-(-length // wanted), _SHORTEST_PART)
    return -(-part // _SHORTEST_PART) * _SHORTEST_PART


def combination(body: Graph, parts: Sequence[TensorType]) -> tuple[Graph, list[int]]:
    """The row body that combines the parts of the only reduction of `body`.

    Its inputs are the parts, then the inputs of `body` with the numbers returned.
    """
    builder = Builder()
    stored = [builder.input(type) for type in parts]
    (cut,) = (e for e in body.eqns if isinstance(e.op, Reduce | ArgReduce))
    needed = _needed_after(body, cut)
    names: dict[ValueId, ValueId] = {}
    used = [n for n, value in enumerate(body.inputs) if value in needed]
    for number in used:
        value = body.inputs[number]
        names[value] = builder.input(body.type(value))
    names[cut.out] = _combined(builder, cut.op, stored, body.type(cut.out))

    def renamed(operand: Operand) -> Operand:
        return operand if isinstance(operand, Scalar) else names[operand]

    for eqn in body.eqns:
        if eqn is not cut and needed.intersection(eqn.outs):
            operands = tuple(renamed(operand) for operand in eqn.inputs)
            names.update(zip(eqn.outs, builder.emit(eqn.op, operands), strict=True))
    for value in body.results:
        builder.result(names[value])
    return builder.finish(), used


def _needed_after(body: Graph, cut: Eqn) -> set[ValueId]:
    """The values that the results need once the reduction's result is known."""
    needed = set(body.results)
    for eqn in reversed(body.eqns):
        if eqn is not cut and needed.intersection(eqn.outs):
            needed.update(o for o in eqn.inputs if not isinstance(o, Scalar))
    return needed


def _combined(
    builder: Builder, op: Op, stored: Sequence[ValueId], type: TensorType
) -> ValueId:
    """Emit the reduction of the parts along their last axis."""
    assert isinstance(op, Reduce | ArgReduce)
    axis = len(builder.type(stored[0]).shape) - 1
    if isinstance(op, ArgReduce):
        return _first_place(builder, op, stored, axis)
    dtype = builder.type(stored[0]).dtype
    kind = op.op
    if type.dtype.is_bool:
        any = kind in (ReduceOp.ANY, ReduceOp.MAX)
        kind = ReduceOp.MAX if any else ReduceOp.MIN
    (total,) = builder.emit(Reduce(kind, axis, op.keepdim), (stored[0],))
    if dtype is not type.dtype:
        (total,) = builder.emit(Cast(type.dtype), (total,))
    return total


def _first_place(
    builder: Builder, op: ArgReduce, stored: Sequence[ValueId], axis: int
) -> ValueId:
    """The smallest place among the parts that hold the best value."""
    values, places = stored
    largest = op.op is ArgReduceOp.ARGMAX
    kind = ReduceOp.MAX if largest else ReduceOp.MIN
    (best,) = builder.emit(Reduce(kind, axis, True), (values,))
    (is_best,) = builder.emit(Compare(CompareOp.EQ), (values, best))
    if builder.type(values).dtype.is_float:
        (nan,) = builder.emit(Unary(UnaryOp.ISNAN), (values,))
        (is_best,) = builder.emit(Binary(BinaryOp.OR), (is_best, nan))
    nowhere = Scalar.of((1 << 32) - 1, dtypes.uint32)
    (candidates,) = builder.emit(Select(), (is_best, places, nowhere))
    (place,) = builder.emit(Reduce(ReduceOp.MIN, axis, op.keepdim), (candidates,))
    return builder.emit(Cast(dtypes.int32), (place,))[0]
