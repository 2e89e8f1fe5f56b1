"""The table of rules of batching."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from poot.core.op import RuleTable
from poot.core.types import TensorType
from poot.interpreters.primitives import broadcast, move_axis, reshape, type_of

# Where the batch stands in a value; None: the value is the same for all of the batch.
Axis = int | None

# Results and their axes.
Batched = tuple[tuple[Any, ...], tuple[Axis, ...]]

# (op, size of the batch, operands, their axes) -> (results, their axes). At least one
# axis is not None; operands without one may be Scalars.
BatchRule = Callable[[Any, int, Sequence[Any], Sequence[Axis]], Batched]
batch: RuleTable[BatchRule] = RuleTable("batch")


def only(operands: Sequence[Any], axes: Sequence[Axis]) -> tuple[Any, int]:
    """The one operand, which has the batch then, and its axis."""
    (x,), (axis,) = operands, axes
    assert axis is not None
    return x, axis


def lifted(axis: int, batch: Axis) -> int:
    """Where axis `axis` of an example stands in the value with the batch."""
    return axis if batch is None or axis < batch else axis + 1


def all_lifted(axes: Sequence[int], batch: Axis) -> tuple[int, ...]:
    return tuple(lifted(axis, batch) for axis in axes)


def inserted(items: Sequence[Any], place: int, item: Any) -> tuple[Any, ...]:
    """The items, one an axis of an example, with one for the batch at `place`."""
    return (*items[:place], item, *items[place:])


def example_type(x: Any, axis: Axis) -> TensorType:
    """The type of one example."""
    type = type_of(x)
    if axis is None:
        return type
    return TensorType((*type.shape[:axis], *type.shape[axis + 1 :]), type.dtype)


def placed(x: Any, axis: Axis, target: int, size: int) -> Any:
    """The value with the batch as axis `target`, repeated there if it has none."""
    if axis is not None:
        return move_axis(x, axis, target)
    shape = type_of(x).shape
    if target:
        x = reshape(x, inserted(shape, target, 1))
    return broadcast(x, inserted(shape, target, size))


class _Named(threading.local):
    name: str | None = None


_named = _Named()


@contextmanager
def naming(name: str | None) -> Iterator[None]:
    """Within the block rules batch sub-graphs under this name."""
    before = _named.name
    _named.name = name
    try:
        yield
    finally:
        _named.name = before


def batch_name() -> str | None:
    """The name of the batch that the rule which asks works on."""
    return _named.name


def in_front(x: Any, axis: Axis, size: int) -> Any:
    """The value with the batch as axis 0, repeated there if it has none."""
    return placed(x, axis, 0, size)


def front_with_rank(x: Any, axis: int, ndim: int) -> Any:
    """The batch as axis 0, then axes of size 1 so that `ndim` axes follow it."""
    moved = move_axis(x, axis, 0)
    size, *shape = type_of(moved).shape
    return reshape(moved, (size, *[1] * (ndim - len(shape)), *shape))


def split(x: Any, axis: int, sizes: Sequence[int]) -> Any:
    """One axis as several of these sizes."""
    shape = type_of(x).shape
    return reshape(x, (*shape[:axis], *sizes, *shape[axis + 1 :]))


def merged(x: Any, axis: int, count: int = 2) -> Any:
    """`count` axes from `axis` on as one."""
    shape = type_of(x).shape
    whole = math.prod(shape[axis : axis + count])
    return reshape(x, (*shape[:axis], whole, *shape[axis + count :]))
