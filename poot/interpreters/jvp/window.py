"""Combinations of what lies under a moving window."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from poot.core import dtypes
from poot.core.dtypes import Scalar
from poot.core.ops.elementwise import BinaryOp, CompareOp
from poot.core.ops.indexing import Gather, GatherMode
from poot.core.ops.reduce import ArgReduce, ArgReduceOp, Reduce, ReduceOp
from poot.core.ops.shape import Pad
from poot.core.ops.window import ReduceWindow, WindowOp, window_identity
from poot.interpreters.jvp.definitions import One, define_linear, like, total
from poot.interpreters.jvp.products import product_of_others
from poot.interpreters.jvp.table import Tangent, jvp
from poot.interpreters.primitives import (
    add,
    binary,
    broadcast,
    cast,
    compare,
    iota,
    mul,
    number,
    reshape,
    select,
    slice_axis,
    transpose,
    type_of,
)

_W = WindowOp

define_linear(ReduceWindow[_W.SUM])


def _padded(op: ReduceWindow, x: Any, value: Scalar) -> Any:
    """With what padding and dilation put around and between the elements."""
    config = tuple(
        (low, high, dilation - 1)
        for (low, high), dilation in zip(op.padding, op.base_dilation, strict=True)
    )
    return Pad(config).bind(x, value) if any(map(any, config)) else x


def _places(op: ReduceWindow, axis: int, count: int) -> Any:
    """Where along an axis each of `count` windows has its elements: [count, window]."""
    shape = count, op.window[axis]
    steps = (op.strides[axis], op.window_dilation[axis])
    first, second = (
        mul(iota(dtypes.int32, shape, part), number(step, dtypes.int32))
        for part, step in enumerate(steps)
    )
    return add(first, second)


def _tiles(op: ReduceWindow, axis: int) -> bool:
    """Whether windows lie side by side along an axis, none over another."""
    size = op.window[axis]
    return size == op.strides[axis] and (size == 1 or op.window_dilation[axis] == 1)


def _under(op: ReduceWindow, padded: Any, counts: Sequence[int]) -> Any:
    """The elements under each window along a new last axis, the last of its own axes
    fastest."""
    for axis in reversed(range(len(counts))):
        if _tiles(op, axis):
            size = op.window[axis]
            padded = slice_axis(padded, axis, 0, counts[axis] * size)
            before, after = type_of(padded).shape[:axis], type_of(padded).shape[axis:]
            padded = reshape(padded, (*before, counts[axis], size, *after[1:]))
        else:
            take = Gather(axis, GatherMode.PROMISE)
            padded = take.bind(padded, _places(op, axis, counts[axis]))
    rank = len(counts)
    apart = transpose(padded, (*range(0, 2 * rank, 2), *range(1, 2 * rank, 2)))
    return reshape(apart, (*counts, math.prod(op.window)))


@jvp.define(ReduceWindow[_W.PROD])
def _prod(op: ReduceWindow, primals: Sequence[Any], tangents: Sequence[Tangent]) -> One:
    (x,), (dx,) = primals, tangents
    y = op.bind(x)
    counts = type_of(y).shape
    elements = _under(op, _padded(op, x, like(x, 1)), counts)
    moved = _under(op, _padded(op, dx, like(x, 0)), counts)
    weighted = mul(moved, product_of_others(elements, len(counts)))
    return (y,), (Reduce(ReduceOp.SUM, len(counts)).bind(weighted),)


@jvp.define(ReduceWindow[_W.MAX], ReduceWindow[_W.MIN])
def _extremum(
    op: ReduceWindow, primals: Sequence[Any], tangents: Sequence[Tangent]
) -> One:
    """The tangent of the first of the largest elements, row by row, as in JAX."""
    (x,), (dx,) = primals, tangents
    y = op.bind(x)
    counts, dtype = type_of(y).shape, type_of(x).dtype
    elements = _under(op, _padded(op, x, window_identity(op.op, dtype)), counts)
    best = ArgReduceOp.ARGMAX if op.op is _W.MAX else ArgReduceOp.ARGMIN
    chosen = ArgReduce(best, len(counts)).bind(elements)
    moved = _padded(op, dx, like(x, 0))
    if all(_tiles(op, axis) for axis in range(len(counts))):
        return (y,), (_of_chosen(_under(op, moved, counts), chosen),)
    places = _flat_places(op, chosen, type_of(moved).shape)
    flat = reshape(moved, (type_of(moved).size,))
    return (y,), (Gather(0, GatherMode.PROMISE).bind(flat, places),)


def _of_chosen(elements: Any, chosen: Any) -> Any:
    """The element `chosen` of each row, by a choice: its transpose scatters nothing."""
    *counts, _ = shape = type_of(elements).shape
    last = len(counts)
    number_of = iota(type_of(chosen).dtype, shape, last)
    wanted = broadcast(reshape(chosen, (*counts, 1)), shape)
    is_chosen = compare(CompareOp.EQ, number_of, wanted)
    others = broadcast(like(elements, 0), shape)
    return Reduce(ReduceOp.SUM, last).bind(select(is_chosen, elements, others))


def _flat_places(op: ReduceWindow, chosen: Any, padded: Sequence[int]) -> Any:
    """Where in the padded operand, row by row, a window's element `chosen` stands."""
    counts = type_of(chosen).shape
    dtype = dtypes.int32 if math.prod(padded) < 2**31 else dtypes.int64
    chosen = cast(chosen, dtype)
    terms = []
    for axis, count in enumerate(counts):
        row = math.prod(padded[axis + 1 :])
        if count > 1:
            first = iota(dtype, counts, axis)
            terms.append(mul(first, number(op.strides[axis] * row, dtype)))
        if op.window[axis] > 1:
            within = _along(chosen, op.window, axis)
            terms.append(mul(within, number(op.window_dilation[axis] * row, dtype)))
    # The one element of a window of one is number 0.
    return total(terms, counts) if terms else chosen


def _along(chosen: Any, window: Sequence[int], axis: int) -> Any:
    """The part along one axis of a number that counts all elements of the window."""
    dtype = type_of(chosen).dtype
    rows = binary(BinaryOp.DIV, chosen, number(math.prod(window[axis + 1 :]), dtype))
    return binary(BinaryOp.REM, rows, number(window[axis], dtype))
