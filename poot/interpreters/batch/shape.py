"""Batching of the primitives that move elements to places known beforehand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from poot.core import dtypes
from poot.core.dtypes import Scalar
from poot.core.ops.elementwise import Select
from poot.core.ops.shape import (
    Broadcast,
    Concat,
    Iota,
    Pad,
    Reshape,
    Reverse,
    Slice,
    Transpose,
)
from poot.interpreters.batch.elementwise import aligned
from poot.interpreters.batch.table import (
    Axis,
    Batched,
    all_lifted,
    batch,
    example_type,
    front_with_rank,
    inserted,
    lifted,
    only,
    placed,
)
from poot.interpreters.primitives import (
    broadcast,
    concat,
    move_axis,
    number,
    reshape,
    transpose,
    type_of,
)


@batch.define(Broadcast)
def _broadcast(
    op: Broadcast, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> Batched:
    """New axes go behind a batch in front, and in front of one that is elsewhere."""
    x, axis = only(operands, axes)
    ndim = len(op.shape)
    if axis == 0:
        x, place = front_with_rank(x, 0, ndim), 0
    else:
        place = ndim - (example_type(x, axis).ndim - axis)
    return (broadcast(x, inserted(op.shape, place, size)),), (place,)


@batch.define(Reshape)
def _reshape(
    op: Reshape, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> Batched:
    """The batch stays where the axes before and after it are reshaped on their own."""
    x, axis = only(operands, axes)
    shape = type_of(x).shape
    before = math.prod(shape[:axis])
    for place in range(len(op.shape) + 1):
        if math.prod(op.shape[:place]) == before:
            return (reshape(x, inserted(op.shape, place, size)),), (place,)
    return (reshape(move_axis(x, axis, 0), (size, *op.shape)),), (0,)


@batch.define(Transpose)
def _transpose(
    op: Transpose, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> Batched:
    x, axis = only(operands, axes)
    perm = inserted(all_lifted(op.perm, axis), axis, axis)
    return (transpose(x, perm),), (axis,)


@batch.define(Slice)
def _slice(
    op: Slice, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> Batched:
    x, axis = only(operands, axes)
    return (replace(op, axis=lifted(op.axis, axis)).bind(x),), (axis,)


@batch.define(Reverse)
def _reverse(
    op: Reverse, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> Batched:
    x, axis = only(operands, axes)
    return (Reverse(all_lifted(op.axes, axis)).bind(x),), (axis,)


@batch.define(Concat)
def _concat(
    op: Concat, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> Batched:
    """The batch stands where the largest of the operands that have it has it."""
    pairs = list(zip(operands, axes, strict=True))
    batched = [(x, axis) for x, axis in pairs if axis is not None]
    _, target = max(batched, key=lambda pair: type_of(pair[0]).size)
    moved = [placed(x, axis, target, size) for x, axis in pairs]
    return (concat(moved, lifted(op.axis, target)),), (target,)


@batch.define(Pad)
def _pad(op: Pad, size: int, operands: Sequence[Any], axes: Sequence[Axis]) -> Batched:
    (x, value), (axis, value_axis) = operands, axes
    config = op.config if axis is None else inserted(op.config, axis, (0, 0, 0))
    if value_axis is None:
        return (Pad(config).bind(x, value),), (axis,)
    # Each example has a value of its own: it goes where the mask of elements is false.
    type = example_type(x, axis)
    mask = op.bind(
        broadcast(number(True, dtypes.bool_), type.shape), number(False, dtypes.bool_)
    )
    padded = Pad(config).bind(x, Scalar(type.dtype, 0))
    chosen, place = aligned((mask, padded, value), (None, axis, value_axis))
    return (Select().bind(*chosen),), (place,)


@batch.define(Iota)
def _iota(
    op: Iota, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> Batched:
    """It has no operands, so that it is the same for all of the batch."""
    return (op.bind(),), (None,)
