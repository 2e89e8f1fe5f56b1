"""Batching of the primitives that bring elements into order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from poot.core.ops.sort import ArgTopK, Sort, TopK
from poot.interpreters.batch.table import Axis, Batched, batch, lifted, only, placed
from poot.interpreters.primitives import move_axis, type_of


@batch.define(Sort)
def _sort(
    op: Sort, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> Batched:
    """All operands have one shape, so that each must have the batch at one place."""
    target = next(axis for axis in axes if axis is not None)
    moved = [
        placed(x, axis, target, size) for x, axis in zip(operands, axes, strict=True)
    ]
    results = replace(op, axis=lifted(op.axis, target)).bind(*moved)
    return results, (target,) * len(results)


@batch.define(TopK)
def _top_k(
    op: TopK, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> Batched:
    x, axis = _not_last(operands, axes)
    return op.bind(x), (axis, axis)


@batch.define(ArgTopK)
def _arg_top_k(
    op: ArgTopK, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> Batched:
    x, axis = _not_last(operands, axes)
    return (op.bind(x),), (axis,)


def _not_last(operands: Sequence[Any], axes: Sequence[Axis]) -> tuple[Any, int]:
    """The operand with the axis that is searched as its last."""
    x, axis = only(operands, axes)
    if axis == type_of(x).ndim - 1:
        return move_axis(x, axis, 0), 0
    return x, axis
