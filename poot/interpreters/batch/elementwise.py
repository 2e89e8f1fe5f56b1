"""Batching of elementwise primitives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from poot.core.op import Op
from poot.core.ops.elementwise import (
    Binary,
    BitcastConvert,
    Cast,
    Clamp,
    Compare,
    Select,
    Unary,
)
from poot.core.ops.random import Threefry2x32
from poot.interpreters.batch.table import (
    Axis,
    Batched,
    batch,
    example_type,
    front_with_rank,
    inserted,
    only,
)
from poot.interpreters.primitives import move_axis, reshape, type_of


@batch.define(Unary, Cast)
def _unary(
    op: Unary | Cast, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> Batched:
    return (op.bind(*operands),), tuple(axes)


@batch.define(Binary, Compare, Select, Clamp)
def _broadcasting(
    op: Op, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> Batched:
    moved, axis = aligned(operands, axes)
    return (op.bind(*moved),), (axis,)


@batch.define(Threefry2x32)
def _threefry(
    op: Threefry2x32, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> Batched:
    moved, axis = aligned(operands, axes)
    return op.bind(*moved), (axis, axis)


def aligned(operands: Sequence[Any], axes: Sequence[Axis]) -> tuple[list[Any], int]:
    """Operands that broadcast to what each example's broadcast to; the batch's axis.

    NumPy aligns shapes at their ends, so what counts is how many axes of an example
    follow the batch: that number must be the same in all.
    """
    rank = max(type.ndim for type in map(example_type, operands, axes))
    after = _axes_after(operands, axes, rank)
    moved = [
        _with_axes_after(x, axis, after) for x, axis in zip(operands, axes, strict=True)
    ]
    return moved, rank - after


def _axes_after(operands: Sequence[Any], axes: Sequence[Axis], rank: int) -> int:
    """How many axes follow the batch in the result, so that little is transposed."""
    batched = [
        (x, axis) for x, axis in zip(operands, axes, strict=True) if axis is not None
    ]
    # In front of all axes, where examples without an axis need no place for it.
    if all(axis == 0 for _, axis in batched):
        return rank
    numbers = {example_type(x, axis).ndim - axis for x, axis in batched}
    if len(numbers) == 1:
        return numbers.pop()
    largest, axis = max(batched, key=lambda one: type_of(one[0]).size)
    return rank if axis == 0 else example_type(largest, axis).ndim - axis


def _with_axes_after(x: Any, axis: Axis, after: int) -> Any:
    ndim = example_type(x, axis).ndim
    if axis is None:
        if ndim <= after:
            return x
        return reshape(x, inserted(type_of(x).shape, ndim - after, 1))
    if ndim < after:
        return front_with_rank(x, axis, after)
    return move_axis(x, axis, ndim - after)


@batch.define(BitcastConvert)
def _bitcast(
    op: BitcastConvert, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> Batched:
    """An example's last axis must be the last one where a wider dtype consumes it."""
    x, axis = only(operands, axes)
    type = type_of(x)
    if op.to.itemsize > type.dtype.itemsize and axis == type.ndim - 1:
        x, axis = move_axis(x, axis, 0), 0
    return (op.bind(x),), (axis,)
