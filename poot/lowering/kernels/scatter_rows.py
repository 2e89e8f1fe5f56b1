"""Updates, row by row, to rows of a target by their keys.

Equal keys are brought together by a stable order; then each chunk of rows is combined
on its own, and what is incomplete at its ends by the next, smaller level. So nothing
depends on timing, and no workgroup waits for another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from poot.core import dtypes
from poot.core.builder import Builder
from poot.core.dtypes import DType
from poot.core.equation import Eqn
from poot.core.errors import LimitError
from poot.core.op import Op
from poot.core.ops.elementwise import BitcastConvert, Cast
from poot.core.ops.scatter import ScatterOp
from poot.core.types import TensorType
from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.describe import alignment_of
from poot.lowering.kernels.memory import WORD_BYTES
from poot.lowering.kernels.radix_sort import plan_order
from poot.lowering.kernels.scatter_kernels import (
    MOST_ASKED,
    PLACES_END,
    CombineProgram,
    Repeats,
    carrier,
    choose_combine_schedule,
    combine_kernel,
    set_kernel,
)
from poot.lowering.plan.blocks import needs_words
from poot.lowering.plan.context import PlanContext
from poot.lowering.plan.layout import Layout, View

_UNIT_BYTES = 16
_MOST_LANES = 8
_MOST_UNITS = (1 << 32) - (1 << 16)
# Dtypes of the same bits.
_BITS = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32}


@dataclass(frozen=True, slots=True)
class Rows:
    """Updates as `count` rows of `width` elements, and where they go."""

    # u32 [1, count]: rows of the target; `rows` and above mean none.
    keys: View
    updates: View
    width: int
    # Of the target.
    rows: int
    repeats: Repeats

    @property
    def count(self) -> int:
        return self.keys.size


def started(ctx: PlanContext, eqn: Eqn) -> View:
    """The place of the result, which has the elements of operand 0 as yet.

    That is the operand's own place if the operand is of no use afterwards.
    """
    operand, *others = eqn.inputs
    source = ctx.view(operand)
    is_free = operand not in others and not ctx.is_stored(eqn.out)
    if is_free and isinstance(source, View) and source.is_dense and ctx.dies(operand):
        ctx.place(eqn.out, source)
        return source
    out = ctx.output(eqn.out)
    if source != out:
        ctx.copy(source, out)
    return out


def plan_rows(ctx: PlanContext, op: ScatterOp, rows: Rows, target: View) -> None:
    """Plan what brings rows into the dense target."""
    _require_places(rows)

    def plan(target: View, updates: View) -> None:
        moved = replace(rows, updates=updates)
        if op is ScatterOp.SET:
            _plan_set(ctx, moved, target)
        else:
            _plan_combined(ctx, op, moved, target)

    wide = dtypes.uint32 if op is ScatterOp.SET else carrier(target.dtype)
    write_units(ctx, plan, target, rows.updates, rows.width, wide)


def _require_places(rows: Rows) -> None:
    most = max(rows.rows, rows.count) * rows.width
    if max(rows.rows, rows.count) >= PLACES_END or most > _MOST_UNITS:
        raise LimitError(
            f"a scatter of {rows.count} rows into {rows.rows} rows of {rows.width} "
            f"elements; the most is {PLACES_END - 1} rows and {_MOST_UNITS} elements "
            "in all. Scatter in parts"
        )


# --- elements and units -----------------------------------------------------


def write_units(
    ctx: PlanContext,
    plan: Callable[[View, View], None],
    target: View,
    updates: View,
    width: int,
    wide: DType,
) -> None:
    """Have `plan` write updates, in units that divide `width` elements, to a target.

    Where units end inside words and the device can store whole words only, that is
    done on copies with an element of dtype `wide` a word, and packed.
    """
    dtype = target.dtype
    ends_inside = width * dtype.itemsize % WORD_BYTES != 0
    if not (ends_inside and needs_words(dtype, ctx.info)):
        plan(target, updates)
        return
    narrow = dtype
    if wide is dtypes.uint32 and not dtype.is_bool:
        narrow = _BITS[dtype.itemsize]
    spread = ctx.scratch(TensorType(target.shape, wide))
    source = ctx.scratch(TensorType(updates.shape, wide))
    _convert(ctx, target, (narrow, wide), spread)
    _convert(ctx, updates, (narrow, wide), source)
    plan(spread, source)
    _convert(ctx, spread, (narrow, dtype), target)


def _convert(
    ctx: PlanContext, view: View, through: tuple[DType, DType], out: View
) -> None:
    """Read `view` as one dtype after the other, by its bits where that keeps them."""
    builder = Builder()
    value = builder.input(view.type)
    for dtype in through:
        given = builder.type(value).dtype
        if given is dtype:
            continue
        same_bits = dtype.itemsize == given.itemsize and not (
            dtype.is_bool or given.is_bool
        )
        op: Op = BitcastConvert(dtype) if same_bits else Cast(dtype)
        (value,) = builder.emit(op, (value,))
    builder.result(value)
    ctx.run(builder.finish(), [view], [out])


def choose_lanes(dtype: DType, width: int, *views: View) -> int:
    """The elements of a unit: as many as 16 bytes hold and divide the rows."""
    lanes = min(_UNIT_BYTES // dtype.itemsize, _MOST_LANES)
    alignment = min(alignment_of(view) for view in views)
    while lanes > 1 and (width % lanes or alignment % (lanes * dtype.itemsize)):
        lanes //= 2
    return lanes if lanes * dtype.itemsize >= WORD_BYTES else 1


def choose_workgroup(info: DeviceInfo) -> int:
    """How many invocations a workgroup has, each with a unit of its own."""
    most = min(info.max_workgroup_invocations, info.max_workgroup_size[0])
    return min(64 if info.is_cpu else 128, most)


def _order(ctx: PlanContext, rows: Rows) -> View | None:
    if rows.repeats is not Repeats.ORDERED:
        return None
    return plan_order(ctx, rows.keys, rows.rows.bit_length())


def as_bits(view: View) -> tuple[View, int]:
    """The view as unsigned elements, and how many of these are one of its own."""
    factor = max(view.dtype.itemsize // WORD_BYTES, 1)
    bits = _BITS[view.dtype.itemsize // factor]
    return View(view.range, Layout.dense((view.size * factor,)), bits), factor


def _plan_set(ctx: PlanContext, rows: Rows, target: View) -> None:
    info = ctx.info
    into, factor = as_bits(target)
    updates, _ = as_bits(rows.updates)
    width, dtype = rows.width * factor, into.dtype
    lanes = choose_lanes(dtype, width, into, updates)
    repeats = rows.repeats
    if repeats is Repeats.ORDERED and rows.count <= MOST_ASKED:
        repeats = Repeats.ASKED
    order = _order(ctx, rows) if repeats is Repeats.ORDERED else None
    indirect = ctx.indirect(updates), ctx.indirect(into)
    workgroup = choose_workgroup(info)
    kernel = set_kernel(info, dtype, lanes, repeats, indirect, workgroup)
    units = width // lanes
    ctx.emit(
        kernel,
        [rows.keys, *([order] if order else []), updates, into],
        -(-rows.count * units // workgroup),
        metadata=(units, rows.count, rows.rows),
    )


def _plan_combined(ctx: PlanContext, op: ScatterOp, rows: Rows, target: View) -> None:
    """Level by level, until one chunk is left."""
    held, lanes = (
        carrier(target.dtype),
        choose_lanes(target.dtype, rows.width, target, rows.updates),
    )
    distinct = rows.repeats is Repeats.NEVER
    schedule = choose_combine_schedule(ctx.info, lanes, distinct)
    units = rows.width // lanes
    keys, updates, order = rows.keys, rows.updates, _order(ctx, rows)
    while True:
        count = keys.size
        chunks = -(-count // schedule.rows)
        is_last = distinct or chunks == 1
        program = CombineProgram(
            op,
            target.dtype,
            updates.dtype,
            order is not None,
            is_last,
            (ctx.indirect(updates), ctx.indirect(target)),
        )
        operands = [keys, *([order] if order else []), updates, target]
        if not is_last:
            keys = ctx.scratch(TensorType((1, 2 * chunks), dtypes.uint32))
            updates = ctx.scratch(TensorType((2 * chunks, rows.width), held))
            operands += [keys, updates]
        ctx.emit(
            combine_kernel(ctx.info, program, schedule),
            operands,
            -(-chunks * units // schedule.workgroup),
            metadata=(units, count, rows.rows, chunks),
            flops=count * rows.width,
        )
        if is_last:
            return
        order = None
