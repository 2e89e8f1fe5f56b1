"""The table of rules of batching."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from poot.core.op import RuleTable
from poot.interpreters.primitives import broadcast, move_axis, reshape, type_of

# Where the batch stands in a value; None: the value is the same for all of the batch.
Axis = int | None

# (op, size of the batch, operands, their axes) -> (results, their axes). At least one
# axis is not None; operands without one may be Scalars.
BatchRule = Callable[
    [Any, int, Sequence[Any], Sequence[Axis]],
    tuple[tuple[Any, ...], tuple[Axis, ...]],
]
batch: RuleTable[BatchRule] = RuleTable("batch")


def in_front(x: Any, axis: Axis, size: int) -> Any:
    """The value with the batch as axis 0, repeated there if it has none."""
    if axis is not None:
        return move_axis(x, axis, 0)
    shape = type_of(x).shape
    return broadcast(x, (size, *shape))


def front_with_rank(x: Any, axis: int, ndim: int) -> Any:
    """The batch as axis 0, then axes of size 1 so that `ndim` axes follow it."""
    moved = move_axis(x, axis, 0)
    size, *shape = type_of(moved).shape
    return reshape(moved, (size, *[1] * (ndim - len(shape)), *shape))
