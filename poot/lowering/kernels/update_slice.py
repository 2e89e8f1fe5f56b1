"""DynamicUpdateSlice: a block written into a target, which is left alone elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from poot.core import dtypes
from poot.core.dtypes import DType, Scalar
from poot.core.equation import Eqn, Operand
from poot.core.ops.scatter import DynamicUpdateSlice
from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.cache import kernel_cache
from poot.lowering.kernels.elements import clamped_index
from poot.lowering.kernels.memory import load_element
from poot.lowering.kernels.scatter_kernels import PLACES_END, load_unit, store_unit
from poot.lowering.kernels.scatter_rows import (
    as_bits,
    choose_lanes,
    choose_workgroup,
    started,
    write_units,
)
from poot.lowering.plan.blocks import BlockAxis, block_axes
from poot.lowering.plan.context import PlanContext
from poot.lowering.plan.layout import View
from poot.lowering.plan.rules import lower
from poot.lowering.program import Access, Kernel
from poot.lowering.spirv.builder import KernelBuilder, Value


@lower.define(DynamicUpdateSlice)
def lower_update_slice(ctx: PlanContext, eqn: Eqn) -> None:
    """Plan the launch that writes the block, wherever it starts."""
    operand, update, *starts = eqn.inputs
    whole, block = ctx.type(operand).shape, ctx.type(update).shape
    if whole == block:
        ctx.copy(ctx.view(update), ctx.output(eqn.out))
        return
    target = started(ctx, eqn)
    if not ctx.type(update).size:
        return
    axes = block_axes(whole, block)

    def plan(target: View, update: View) -> None:
        _plan_block(ctx, axes, starts, target, update)

    width = axes[-1].start_step
    write_units(ctx, plan, target, ctx.dense(update), width, dtypes.uint32)


def _plan_block(
    ctx: PlanContext,
    axes: Sequence[BlockAxis],
    starts: Sequence[Operand],
    target: View,
    update: View,
) -> None:
    into, factor = as_bits(target)
    source, _ = as_bits(update)
    lanes = choose_lanes(into.dtype, axes[-1].start_step * factor, into, source)
    total = rest = update.size * factor // lanes
    walk: list[int] = []
    for axis in axes[:-1]:
        rest //= axis.size
        walk += [rest, axis.step * factor // lanes]
    base = 0
    scalars: list[View] = []
    places: list[int] = []
    for axis in axes:
        start, step = starts[axis.number], axis.start_step * factor // lanes
        view = ctx.view(start)
        if not axis.room:
            continue
        if isinstance(view, Scalar):
            base += min(max(int(view.value), 0), axis.room) * step
            continue
        scalars.append(view)
        places += [view.layout.offset, view.bound, axis.room + 1, step]
    operands = [*scalars, source, into]
    program = BlockProgram(
        into.dtype,
        lanes,
        len(axes),
        tuple(view.dtype for view in scalars),
        tuple(ctx.indirect(view) for view in operands),
    )
    workgroup = choose_workgroup(ctx.info)
    ctx.emit(
        block_kernel(ctx.info, program, workgroup),
        operands,
        -(-total // workgroup),
        metadata=(total, into.size // lanes, base, *walk, *places),
    )


@dataclass(frozen=True, slots=True)
class BlockProgram:
    """All that shapes the code of a kernel that writes a block."""

    dtype: DType
    lanes: int
    # Axes that the block is walked along.
    rank: int
    # Of the starts that are data.
    starts: tuple[DType, ...]
    # Whether the addresses of starts, update and target come through the table.
    indirect: tuple[bool, ...]


@kernel_cache
def block_kernel(info: DeviceInfo, program: BlockProgram, workgroup: int) -> Kernel:
    """Write each unit of an update to its place in the target.

    Operands: the starts that are data, update, target. Metadata: units of the update
    and of the target; the place that the other starts make up; of each axis but the
    last the units behind it in the update, and the step; and of each start its place in
    its buffer, the buffer's elements, how many starts there can be, and the step.
    """
    k = KernelBuilder(f"update_slice_{program.dtype}", info, (workgroup, 1, 1))
    *flags, update_flag, target_flag = program.indirect
    scalars = [
        k.operand(f"start{number}", Access.READ, indirect=flag)
        for number, flag in enumerate(flags)
    ]
    update = k.operand("update", Access.READ, indirect=update_flag)
    target = k.operand("target", Access.WRITE, indirect=target_flag)
    words = iter(range(3 + 2 * (program.rank - 1) + 4 * len(program.starts)))

    def word() -> Value:
        return k.metadata(next(words), limit=PLACES_END)

    total, bound, place = word(), word(), word()
    axes = [(word(), word()) for _ in range(program.rank - 1)]
    for pointer, dtype in zip(scalars, program.starts, strict=True):
        start = load_element(k, pointer, dtype, word(), word())
        start = clamped_index(k, start, dtype, word())
        place = k.add(place, k.mul(start, word()))
    number = k.add(k.mul(k.workgroup_index(), workgroup), k.local_index())
    with k.when(k.lt(number, total)):
        rest = number
        for behind, step in axes:
            behind = k.max(behind, 1)
            place = k.add(place, k.mul(k.index_div(rest, behind), step))
            rest = k.index_rem(rest, behind)
        values = load_unit(k, update, program.dtype, number, program.lanes, total)
        store_unit(k, target, program.dtype, k.add(place, rest), values, bound)
    return k.finish(f"{program.lanes} lanes, {workgroup} invocations")
