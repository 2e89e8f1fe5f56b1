"""The stable order of keys: of short rows by a block sort, of long ones by radix.

A radix pass sorts by one digit of 8 bits in three launches: how often each tile of a
row has each digit; for each digit the running sum over the tiles; and a stable scatter
that ranks the elements of a tile inside its workgroup. No workgroup waits for another.
"""

from __future__ import annotations

from collections.abc import Sequence

from poot.core import dtypes
from poot.core.builder import Builder
from poot.core.dtypes import Scalar
from poot.core.equation import ValueId
from poot.core.errors import LimitError
from poot.core.ops.elementwise import Binary, BinaryOp
from poot.core.ops.indexing import Gather, GatherMode
from poot.core.ops.shape import Iota, Reshape
from poot.core.types import TensorType
from poot.lowering.kernels.block_sort import (
    MOST_WORDS,
    largest_block,
    require_places,
    sort_blocks,
)
from poot.lowering.kernels.radix_kernels import (
    DIGITS,
    MOST_ROUNDS,
    RadixSchedule,
    choose_radix_schedule,
    count_kernel,
    place_kernel,
    sum_kernel,
)
from poot.lowering.plan.context import PlanContext
from poot.lowering.plan.layout import View

_DIGIT_BITS = DIGITS.bit_length() - 1


def plan_order(ctx: PlanContext, keys: View, bits: int) -> View:
    """Plan what finds the stable permutation that sorts the rows of `keys`.

    `keys` is u32, dense, [rows, n] with rows and n at least 1; only its low `bits` bits
    count, and those above them must be 0. The result is a dense u32 [rows, n] in
    scratch: element i of it says where in its row the i-th smallest key stands.
    """
    return plan_order_by_words(ctx, [(keys, bits)])


def plan_order_by_words(ctx: PlanContext, words: Sequence[tuple[View, int]]) -> View:
    """As `plan_order`, by several words of given bits, the most significant first."""
    rows, length = words[0][0].shape
    require_places(rows, length)
    order: View | None = None
    if length <= largest_block(ctx.info):
        views = [view for view, _ in words]
        while views:
            views, part = views[:-MOST_WORDS], views[-MOST_WORDS:]
            order = sort_blocks(ctx, permuted(ctx, part, order), order)
    else:
        for view, bits in reversed(words):
            (keys,) = permuted(ctx, [view], order)
            order = _plan_passes(ctx, keys, bits, order)
    assert order is not None
    return order


def permuted(
    ctx: PlanContext, words: Sequence[View], order: View | None
) -> Sequence[View]:
    """The u32 [rows, n] words with the elements of each row in `order`."""
    if order is None:
        return words
    builder = Builder()
    inputs = [builder.input(word.type) for word in words]
    places = row_places(builder, builder.input(order.type), words[0].shape[1])
    for value in inputs:
        (flat,) = builder.emit(Reshape((words[0].size,)), (value,))
        builder.result(*builder.emit(Gather(0, GatherMode.PROMISE), (flat, places)))
    outs = [ctx.scratch(order.type) for _ in words]
    ctx.run(builder.finish(), [*words, order], outs)
    return outs


def row_places(builder: Builder, order: ValueId, length: int) -> ValueId:
    """Emit the places in all rows, of `length` elements, of places in each row."""
    type = builder.type(order)
    if type.shape[0] == 1:
        return order
    (row,) = builder.emit(Iota(type.dtype, type.shape, 0), ())
    scale = Scalar.of(length, type.dtype)
    (first,) = builder.emit(Binary(BinaryOp.MUL), (row, scale))
    return builder.emit(Binary(BinaryOp.ADD), (first, order))[0]


def _plan_passes(ctx: PlanContext, keys: View, bits: int, payload: View | None) -> View:
    """Sort by all digits; gives the payload in order, without one the permutation."""
    schedule = choose_radix_schedule(ctx.info)
    for shift in range(0, bits, _DIGIT_BITS):
        last = shift + _DIGIT_BITS >= bits
        digit = min(bits - shift, _DIGIT_BITS)
        sorted_keys, payload = _plan_pass(
            ctx, schedule, keys, payload, (shift, (1 << digit) - 1), last
        )
        keys = sorted_keys or keys
    assert payload is not None
    return payload


def _require_tiles(length: int, schedule: RadixSchedule) -> int:
    """The tiles of a row, or a LimitError if a workgroup cannot add up so many."""
    tiles = -(-length // schedule.tile)
    most = MOST_ROUNDS * schedule.workgroup
    if tiles > most:
        raise LimitError(
            f"a sort of rows of {length} elements; in {schedule} the most is "
            f"{most * schedule.tile}. Sort parts and merge them"
        )
    return tiles


def _plan_pass(
    ctx: PlanContext,
    schedule: RadixSchedule,
    keys: View,
    payload: View | None,
    digit: tuple[int, int],
    last: bool,
) -> tuple[View | None, View]:
    """Sort by the digit of this shift and mask; the last pass writes no keys."""
    rows, length = keys.shape
    tiles = _require_tiles(length, schedule)
    counts = ctx.scratch(TensorType((rows, DIGITS, tiles), dtypes.uint32))
    totals = ctx.scratch(TensorType((rows, DIGITS), dtypes.uint32))
    moved = ctx.scratch(keys.type)
    sorted_keys = None if last else ctx.scratch(keys.type)
    sizes = (rows * tiles, length, tiles, rows * length, *digit, counts.size, rows)
    indirect = ctx.indirect(keys)
    count = count_kernel(ctx.info, schedule, indirect)
    ctx.emit(count, [keys, counts], rows * tiles, metadata=sizes)
    ctx.emit(
        sum_kernel(ctx.info, schedule),
        [counts, totals],
        rows * DIGITS,
        metadata=(rows * DIGITS, tiles, counts.size),
    )
    given = [] if payload is None else [payload]
    written = [moved] if sorted_keys is None else [sorted_keys, moved]
    ctx.emit(
        place_kernel(ctx.info, schedule, indirect, payload is not None, not last),
        [keys, counts, totals, *given, *written],
        rows * tiles,
        metadata=sizes,
    )
    return sorted_keys, moved
