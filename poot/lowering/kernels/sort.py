"""Sort, TopK and ArgTopK: words of the keys, the order of the words, the elements."""

from __future__ import annotations

import math
from collections.abc import Sequence

from poot.core import dtypes
from poot.core.builder import Builder
from poot.core.equation import Eqn, Operand, ValueId
from poot.core.ops.elementwise import BitcastConvert
from poot.core.ops.indexing import Gather, GatherMode
from poot.core.ops.shape import Reshape, Transpose
from poot.core.ops.sort import ArgTopK, Sort, TopK
from poot.core.types import TensorType
from poot.lowering.kernels.block_sort import largest_block, sort_blocks
from poot.lowering.kernels.radix_sort import plan_order_by_words, row_places
from poot.lowering.kernels.sort_keys import KeyOrder, emit_words, word_bits
from poot.lowering.plan.context import PlanContext
from poot.lowering.plan.layout import View
from poot.lowering.plan.rules import lower

# A block shrinks to its largest elements by this factor at least, or all are sorted.
_LEAST_SHRINKAGE = 8


@lower.define(Sort)
def _lower_sort(ctx: PlanContext, eqn: Eqn) -> None:
    op = eqn.op
    assert isinstance(op, Sort)
    views = [_view(ctx, operand) for operand in eqn.inputs]
    keys, order = views[: op.num_keys], KeyOrder(op.descending, zeros_are_equal=True)
    words = _plan_words(ctx, keys, op.axis, order)
    bits = [bits for key in keys for bits in word_bits(key.dtype)]
    found = plan_order_by_words(ctx, list(zip(words, bits, strict=True)))
    outs = [ctx.output(out) for out in eqn.outs]
    _plan_elements(ctx, views, op.axis, found, outs)


@lower.define(TopK)
def _lower_top_k(ctx: PlanContext, eqn: Eqn) -> None:
    assert isinstance(eqn.op, TopK)
    x = _view(ctx, eqn.inputs[0])
    found = _plan_largest(ctx, x, eqn.op.k, None)
    values, indices = (ctx.output(out) for out in eqn.outs)
    _plan_elements(ctx, [x], len(x.shape) - 1, found, [values])
    _plan_indices(ctx, found, indices)


@lower.define(ArgTopK)
def _lower_arg_top_k(ctx: PlanContext, eqn: Eqn) -> None:
    assert isinstance(eqn.op, ArgTopK)
    x, out = _view(ctx, eqn.inputs[0]), ctx.output(eqn.out)
    found = _plan_largest(ctx, x, eqn.op.k, out)
    if found is not out:
        _plan_indices(ctx, found, out)


def _view(ctx: PlanContext, operand: Operand) -> View:
    """An operand has an axis at least, so it is no literal."""
    view = ctx.view(operand)
    assert isinstance(view, View)
    return view


def _rows(shape: Sequence[int], axis: int) -> tuple[int, int]:
    return math.prod(shape[:axis]) * math.prod(shape[axis + 1 :]), shape[axis]


# --- keys and elements ------------------------------------------------------


def _emit_rows(builder: Builder, value: ValueId, axis: int) -> ValueId:
    """Emit the tensor as [rows, elements along the axis]."""
    shape = builder.type(value).shape
    if axis != len(shape) - 1:
        others = [i for i in range(len(shape)) if i != axis]
        (value,) = builder.emit(Transpose((*others, axis)), (value,))
    return builder.emit(Reshape(_rows(shape, axis)), (value,))[0]


def _emit_back(
    builder: Builder, rows: ValueId, shape: tuple[int, ...], axis: int
) -> ValueId:
    """Undo `_emit_rows` for a tensor of this shape."""
    others = [size for i, size in enumerate(shape) if i != axis]
    (value,) = builder.emit(Reshape((*others, shape[axis])), (rows,))
    if axis == len(shape) - 1:
        return value
    perm = list(range(len(shape) - 1))
    perm.insert(axis, len(shape) - 1)
    return builder.emit(Transpose(tuple(perm)), (value,))[0]


def _plan_words(
    ctx: PlanContext, keys: Sequence[View], axis: int, order: KeyOrder
) -> list[View]:
    """The words of all keys, in scratch as [rows, n], the first to decide first."""
    builder = Builder()
    for value in [builder.input(key.type) for key in keys]:
        for word in emit_words(builder, _emit_rows(builder, value, axis), order):
            builder.result(word)
    body = builder.finish()
    outs = [ctx.scratch(type) for type in body.result_types]
    ctx.run(body, keys, outs)
    return outs


def _plan_elements(
    ctx: PlanContext,
    sources: Sequence[View],
    axis: int,
    order: View,
    outs: Sequence[View],
) -> None:
    """The elements of each row that `order` names, one launch for all operands."""
    sources, outs = [_as_bits(x) for x in sources], [_as_bits(x) for x in outs]
    builder = Builder()
    values = [builder.input(source.type) for source in sources]
    rows, length = _rows(sources[0].shape, axis)
    places = row_places(builder, builder.input(order.type), length)
    for value, out in zip(values, outs, strict=True):
        ranked = _emit_rows(builder, value, axis)
        (flat,) = builder.emit(Reshape((rows * length,)), (ranked,))
        (taken,) = builder.emit(Gather(0, GatherMode.PROMISE), (flat, places))
        builder.result(_emit_back(builder, taken, out.shape, axis))
    ctx.run(builder.finish(), [*sources, order], outs)


def _as_bits(view: View) -> View:
    """Halves as integers, since floats on the way through f32 may change a NaN."""
    is_half = view.dtype.is_float and view.dtype.itemsize == 2
    dtype = dtypes.uint16 if is_half else view.dtype
    return View(view.range, view.layout, dtype)


def _plan_indices(ctx: PlanContext, order: View, out: View) -> None:
    """The order as i32 in the shape of the result."""
    builder = Builder()
    value = builder.input(order.type)
    (signed,) = builder.emit(BitcastConvert(dtypes.int32), (value,))
    builder.result(*builder.emit(Reshape(out.shape), (signed,)))
    ctx.run(builder.finish(), [order], [out])


# --- the largest ------------------------------------------------------------


def _plan_largest(ctx: PlanContext, x: View, k: int, out: View | None) -> View:
    """Where in its row each of the k largest elements stands: [rows, k].

    It is written to `out` where the last launch can do that.
    """
    axis = len(x.shape) - 1
    order = KeyOrder(descending=True, zeros_are_equal=False)
    words = _plan_words(ctx, [x], axis, order)
    block = largest_block(ctx.info)
    length = x.shape[axis]
    if length > block and k * _LEAST_SHRINKAGE > block:
        bits = word_bits(x.dtype)
        found = plan_order_by_words(ctx, list(zip(words, bits, strict=True)))
        return found.with_layout(found.layout.slice(1, 0, k, 1))
    places: View | None = None
    while length > block:
        rows = words[0].shape[0]
        length = -(-length // block) * k
        kept = TensorType((rows, length), dtypes.uint32)
        largest = [ctx.scratch(kept) for _ in words]
        places = sort_blocks(ctx, words, places, first=k, keys_out=largest)
        words = largest
    return sort_blocks(ctx, words, places, first=k, out=out)
