"""`x[index]`: slices, integers, new axes, and integer arrays through Gather."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, field
from types import EllipsisType
from typing import TYPE_CHECKING, Any

import numpy as np

from poot.core import dtypes
from poot.core.dtypes import Scalar
from poot.core.errors import IndexingError
from poot.core.interpreter import current
from poot.core.ops.elementwise import broadcast_shapes
from poot.core.ops.indexing import DynamicSlice, Gather, GatherMode
from poot.core.ops.shape import Reverse, Slice
from poot.interpreters.arithmetic import (
    add,
    bitwise_or,
    greater_equal,
    less,
    multiply,
    select,
)
from poot.interpreters.config import settings
from poot.interpreters.promotion import as_value, cast_to, is_value, result_like
from poot.interpreters.reductions import any as any_
from poot.interpreters.rounding import clip
from poot.interpreters.shaping import broadcast_to, reshape, transpose

if TYPE_CHECKING:
    from poot.interpreters.methods import Value


@dataclass(slots=True)
class _Plan:
    """An index sorted by what each part does to which axis of the operand."""

    slices: dict[int, slice] = field(default_factory=dict)
    # Integers and integer arrays: Python ints, or values.
    indices: dict[int, Any] = field(default_factory=dict)
    # The result's axes before indices take theirs away: an operand axis, or None: new.
    layout: list[int | None] = field(default_factory=list)
    # Where in `layout` each index array stands.
    places: list[int] = field(default_factory=list)
    # Whether these are neighbours in the index; an Ellipsis parts them even if it
    # stands for no axis.
    adjacent: bool = True


def getitem(x: Value, index: Any) -> Value:
    """The elements that `index` names, as in NumPy; integers out of range clamp."""
    plan = _planned(x, index if isinstance(index, tuple) else (index,))
    taken = _sliced(x, plan.slices)
    if any(is_value(i) and i.ndim for i in plan.indices.values()):
        return _gathered(taken, plan)
    taken = _picked(taken, plan.indices)
    kept = [axis for axis in plan.layout if axis not in plan.indices]
    return reshape(taken, [1 if axis is None else taken.shape[axis] for axis in kept])


# --- reading the index ------------------------------------------------------


def _planned(x: Value, index: tuple[Any, ...]) -> _Plan:
    parts = [part for item in index for part in _expanded(item)]
    used = sum(part is not None and part is not Ellipsis for part in parts)
    if used > x.ndim:
        raise IndexingError(
            f"{used} indices are too many for an array of {x.ndim} axes"
        )
    ellipses = [i for i, part in enumerate(parts) if part is Ellipsis]
    if len(ellipses) > 1:
        raise IndexingError("an index holds one Ellipsis (...) at most")
    plan = _Plan(adjacent=_are_neighbours(parts))
    place = ellipses[0] if ellipses else len(parts)
    whole = [slice(None)] * (x.ndim - used)
    parts[place : place + 1] = whole
    axis = 0
    for part in parts:
        if part is None:
            plan.layout.append(None)
            continue
        if isinstance(part, slice):
            plan.slices[axis] = part
        else:
            plan.indices[axis] = part
            plan.places.append(len(plan.layout))
        plan.layout.append(axis)
        axis += 1
    return plan


def _are_neighbours(parts: list[Any]) -> bool:
    """Whether nothing stands between the integers and integer arrays of an index."""
    taken = [
        place
        for place, part in enumerate(parts)
        if part is not None and not isinstance(part, slice | EllipsisType)
    ]
    return not taken or taken[-1] - taken[0] + 1 == len(taken)


def _expanded(part: Any) -> list[Any]:
    """One part of an index in its plain form; a mask becomes an index an axis."""
    if part is None or isinstance(part, slice | EllipsisType):
        return [part]
    if isinstance(part, bool | np.bool_):
        raise IndexingError(
            "a bool is no index; use an integer, or poot.numpy.where for a choice"
        )
    if isinstance(part, int | np.integer):
        return [operator.index(part)]
    if isinstance(part, list):
        raise IndexingError(
            "a list is no index; use a tuple for several axes or "
            "poot.numpy.array(list) for one"
        )
    if not is_value(part) and not isinstance(part, np.ndarray | np.generic):
        raise IndexingError(
            f"{type(part).__name__} is no index; takes integers, slices, None, "
            "Ellipsis and integer arrays"
        )
    if part.dtype == np.bool_:
        return [as_value(axis) for axis in np.nonzero(np.asarray(part))]
    if not as_value(part).aval.type.dtype.is_integer:
        raise IndexingError(f"indices are integers; given an array of {part.dtype}")
    if isinstance(part, np.ndarray | np.generic) and not part.shape:
        return [operator.index(part.item())]
    return [as_value(part)]


# --- slices -----------------------------------------------------------------


def _sliced(x: Value, slices: dict[int, slice]) -> Value:
    reversed_axes = []
    for axis, part in slices.items():
        size = x.shape[axis]
        start, stop, step = _bounds(part, size)
        count = len(range(start, stop, step))
        if count == size and step == 1:
            continue
        if not count:
            start, end, stride = 0, 0, 1
        elif step > 0:
            end, stride = start + (count - 1) * step + 1, step
        else:
            start, end, stride = start + (count - 1) * step, start + 1, -step
        if step < 0 and count > 1:
            reversed_axes.append(axis)
        x = result_like(x, Slice(axis, start, end, stride).bind(x))
    if reversed_axes:
        x = result_like(x, Reverse(tuple(reversed_axes)).bind(x))
    return x


def _bounds(part: slice, size: int) -> tuple[int, int, int]:
    def plain(bound: Any) -> Any:
        return None if bound is None else operator.index(bound)

    step = plain(part.step)
    if step == 0:
        raise IndexingError("the step of a slice is not zero")
    return slice(plain(part.start), plain(part.stop), step).indices(size)


# --- integers ---------------------------------------------------------------


def _picked(x: Value, indices: dict[int, Any]) -> Value:
    """One element of each indexed axis, which stays with size 1."""
    for axis in indices:
        if x.shape[axis] == 0:
            raise IndexingError(f"axis {axis} of {x.shape} has no element to take")
    for axis, index in indices.items():
        if isinstance(index, int):
            start = _static_index(index, x.shape[axis], axis)
            if x.shape[axis] > 1:
                x = result_like(x, Slice(axis, start, start + 1).bind(x))
    dynamic = {a: i for a, i in indices.items() if not isinstance(i, int)}
    if not dynamic:
        return x
    sizes = tuple(1 if axis in dynamic else s for axis, s in enumerate(x.shape))
    starts: list[Any] = [Scalar.of(0, dtypes.int32)] * x.ndim
    for axis, index in dynamic.items():
        starts[axis] = checked_index(index, x.shape[axis], axis)
    return result_like(x, DynamicSlice(sizes).bind(x, *starts))


def _static_index(index: int, size: int, axis: int) -> int:
    if not -size <= index < size and settings().check_bounds:
        raise IndexingError(_out_of_bounds(axis, size) + f"; given {index}")
    wrapped = index + size if index < 0 else index
    return min(max(wrapped, 0), size - 1)


def _out_of_bounds(axis: int, size: int) -> str:
    return f"an index is out of bounds for axis {axis} with size {size}"


def checked_index(index: Value, size: int, axis: int) -> Value:
    """The index with negatives wrapped; `config.check_bounds` watches its range."""
    dtype = index.aval.type.dtype
    if dtype.itemsize < 4:
        index = cast_to(index, dtypes.int32)
    if dtype.is_signed:
        index = select(less(index, 0), add(index, size), index)
    if settings().check_bounds:
        outside = bitwise_or(less(index, 0), greater_equal(index, size))
        failed = cast_to(any_(outside), dtypes.int32)
        message = _out_of_bounds(axis, size)
        index = current().witness(failed, message, index)
    return index


# --- integer arrays ---------------------------------------------------------


def take_axis(
    x: Value, index: Value, axis: int, mode: GatherMode = GatherMode.CLIP
) -> Value:
    """`x` at an integer array of positions along one axis; negatives wrap."""
    if mode is not GatherMode.FILL and not x.shape[axis] and index.size:
        raise IndexingError(f"axis {axis} of {x.shape} has no element to take")
    index = checked_index(index, x.shape[axis], axis)
    return result_like(x, Gather(axis, mode).bind(x, index))


def _gathered(x: Value, plan: _Plan) -> Value:
    """Integer arrays on one axis by Gather; on several, which count as one axis."""
    axes = list(plan.indices)
    places = plan.places
    front = places[0] if plan.adjacent else 0
    if len(axes) == 1:
        (index,) = plan.indices.values()
        axis = axes[0]
        taken = take_axis(x, index, axis)
    else:
        others = [axis for axis in range(x.ndim) if axis not in axes]
        axis = 0
        index = _combined(x, plan.indices)
        moved = transpose(x, [*axes, *others])
        merged = math.prod(x.shape[a] for a in axes)
        flat = reshape(moved, [merged, *(x.shape[a] for a in others)])
        taken = result_like(x, Gather(0).bind(flat, index))
    return _placed(taken, axis, index.ndim, front, plan)


def _combined(x: Value, indices: dict[int, Any]) -> Value:
    """Row-major positions in the axes together, each index wrapped and clamped."""
    values = {axis: as_value(index) for axis, index in indices.items()}
    shape = broadcast_shapes("index", *(v.shape for v in values.values()))
    total: Any = 0
    for axis, value in values.items():
        size = x.shape[axis]
        if not size and 0 not in shape:
            raise IndexingError(f"axis {axis} of {x.shape} has no element to take")
        inside = clip(checked_index(value, size, axis), 0, size - 1)
        inside = cast_to(inside, dtypes.int32)
        total = add(multiply(total, size), inside)
    return broadcast_to(total, shape)


def _placed(taken: Value, axis: int, rank: int, front: int, plan: _Plan) -> Value:
    """Move the index's axes where NumPy has them, and put in the new axes."""
    own = list(range(axis, axis + rank))
    rest = [i for i in range(taken.ndim) if i not in own]
    kept = [a for place, a in enumerate(plan.layout) if place not in plan.places]
    sizes: list[int] = []
    order: list[int] = []
    remaining = iter(rest)
    for place in range(len(kept) + 1):
        if place == front:
            order += own
            sizes += [taken.shape[i] for i in own]
        if place < len(kept):
            if kept[place] is None:
                sizes.append(1)
            else:
                order.append(next(remaining))
                sizes.append(taken.shape[order[-1]])
    return reshape(transpose(taken, order), sizes)
