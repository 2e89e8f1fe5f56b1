"""`x[index]`: slices, integers, new axes, integer arrays and masks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from poot.core import dtypes
from poot.core.dtypes import Scalar
from poot.core.errors import IndexingError
from poot.core.interpreter import current
from poot.core.ops.index_dims import GatherDims
from poot.core.ops.indexing import DynamicSlice, Gather, GatherMode, GeneralGather
from poot.core.ops.shape import Concat, Reverse, Slice
from poot.interpreters.arithmetic import add, bitwise_or, greater_equal, less, select
from poot.interpreters.config import settings
from poot.interpreters.index_plan import IndexPlan, planned
from poot.interpreters.promotion import as_value, cast_to, is_value, result_like
from poot.interpreters.reductions import any as any_
from poot.interpreters.rounding import clip
from poot.interpreters.shaping import broadcast_to, expand_dims, reshape

if TYPE_CHECKING:
    from poot.interpreters.methods import Value


def getitem(x: Value, index: Any) -> Value:
    """The elements that `index` names, as in NumPy; integers out of range clamp."""
    plan = planned(x, index)
    taken = _sliced(x, plan.slices)
    if not plan.is_basic:
        return gathered(taken, plan, GatherMode.CLIP)
    taken = _picked(taken, plan.indices)
    return reshape(taken, [1 if a is None else taken.shape[a] for a in plan.kept])


def getitem_by_mode(
    x: Value,
    index: Any,
    mode: GatherMode,
    fill: Scalar | None = None,
    wrap: bool = True,
    check: bool = False,
) -> Value:
    """The same where integers out of range do what `mode` says."""
    plan = planned(x, index)
    taken = _sliced(x, plan.slices)
    if not plan.indices and not plan.truths:
        return reshape(taken, [1 if a is None else taken.shape[a] for a in plan.kept])
    return gathered(taken, plan, mode, fill, wrap, check)


# --- slices -----------------------------------------------------------------


def _sliced(x: Value, slices: dict[int, range]) -> Value:
    for axis, steps in slices.items():
        if steps != range(x.shape[axis]):
            first, last = sorted((steps[0], steps[-1])) if steps else (0, -1)
            stride = abs(steps.step)
            x = result_like(x, Slice(axis, first, last + 1, stride).bind(x))
    turned = [a for a, steps in slices.items() if steps.step < 0 and len(steps) > 1]
    return result_like(x, Reverse(tuple(turned)).bind(x)) if turned else x


# --- integers ---------------------------------------------------------------


def _picked(x: Value, indices: dict[int, Any]) -> Value:
    """One element of each indexed axis, which stays with size 1."""
    for axis in indices:
        if x.shape[axis] == 0:
            raise IndexingError(f"axis {axis} of {x.shape} has no element to take")
    for axis, index in indices.items():
        if isinstance(index, int):
            size = x.shape[axis]
            start = min(max(static_index(index, size, axis), 0), size - 1)
            if size > 1:
                x = result_like(x, Slice(axis, start, start + 1).bind(x))
    dynamic = {a: i for a, i in indices.items() if not isinstance(i, int)}
    if not dynamic:
        return x
    sizes = tuple(1 if axis in dynamic else s for axis, s in enumerate(x.shape))
    starts: list[Any] = [Scalar.of(0, dtypes.int32)] * x.ndim
    for axis, index in dynamic.items():
        starts[axis] = checked_index(index, x.shape[axis], axis)
    return result_like(x, DynamicSlice(sizes).bind(x, *starts))


def static_index(
    index: int, size: int, axis: int, wrap: bool = True, check: bool = True
) -> int:
    """A Python int counted from the front; outside it is -1 or `size`."""
    if check and not -size <= index < size and settings().check_bounds:
        raise IndexingError(_out_of_bounds(axis, size) + f"; given {index}")
    wrapped = index + size if index < 0 and wrap else index
    return min(max(wrapped, -1), size)


def _out_of_bounds(axis: int, size: int) -> str:
    return f"an index is out of bounds for axis {axis} with size {size}"


def checked_index(
    index: Value, size: int, axis: int, wrap: bool = True, check: bool = True
) -> Value:
    """The index with negatives wrapped; `config.check_bounds` watches its range.

    Without `check`, since the caller says what is to become of indices out of range.
    """
    dtype = index.aval.type.dtype
    if dtype.itemsize < 4:
        index = cast_to(index, dtypes.int32)
    if dtype.is_signed and wrap:
        index = select(less(index, 0), add(index, size), index)
    if check and settings().check_bounds:
        outside = bitwise_or(less(index, 0), greater_equal(index, size))
        failed = cast_to(any_(outside), dtypes.int32)
        message = _out_of_bounds(axis, size)
        (index,) = current().witness(failed, message, [index])
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


def gathered(
    x: Value,
    plan: IndexPlan,
    mode: GatherMode,
    fill: Scalar | None = None,
    wrap: bool = True,
    check: bool = True,
) -> Value:
    """The elements at the integers and arrays of a plan whose slices were taken."""
    batch, kept, front = plan.batch, plan.kept, plan.front
    empty = [axis for axis in plan.indices if not x.shape[axis]]
    if empty and 0 not in batch and mode is not GatherMode.FILL:
        raise IndexingError(f"axis {empty[0]} of {x.shape} has no element to take")
    own = list(plan.indices.items())
    if len(own) == 1 and is_value(own[0][1]) and fill is None and not plan.truths:
        axis, index = own[0]
        index = checked_index(index, x.shape[axis], axis, wrap, check)
        taken = result_like(x, Gather(axis, mode).bind(x, index))
    else:
        parts = {
            axis: vector_part(plan.indices[axis], x.shape[axis], axis, wrap, check)
            for axis in sorted(plan.indices)
        }
        taken = _general(x, plan, parts, mode, fill)
    sizes = [1 if axis is None else x.shape[axis] for axis in kept]
    return reshape(taken, (*sizes[:front], *batch, *sizes[front:]))


def _general(
    x: Value,
    plan: IndexPlan,
    parts: dict[int, Value],
    mode: GatherMode,
    fill: Scalar | None,
) -> Value:
    """By index vectors, with the axes where NumPy has them but for the new ones."""
    batch = plan.batch
    ahead = sum(axis is not None for axis in plan.kept[: plan.front])
    windows = [axis for axis in plan.kept if axis is not None]
    places = [i if i < ahead else i + len(batch) for i in range(len(windows))]
    dims = GatherDims(tuple(places), tuple(parts), tuple(parts))
    sizes = tuple(1 if a in parts else size for a, size in enumerate(x.shape))
    vectors = index_vectors(list(parts.values()), batch)
    return result_like(x, GeneralGather(dims, sizes, mode, fill).bind(x, vectors))


def vector_part(index: Any, size: int, axis: int, wrap: bool, check: bool) -> Value:
    """An int or integer array as a component of index vectors, an i32 that wraps."""
    if isinstance(index, int):
        place = static_index(index, size, axis, wrap, check)
        return as_value(current().lift(Scalar.of(place, dtypes.int32)))
    index = checked_index(index, size, axis, wrap, check)
    dtype = index.aval.type.dtype
    if dtype is not dtypes.int32:
        # What is outside stays outside.
        index = clip(index, -1 if dtype.is_signed else None, size)
    return cast_to(index, dtypes.int32)


def index_vectors(parts: list[Value], batch: tuple[int, ...]) -> Value:
    """Index vectors of these components, i32 [*batch, components]."""
    spread = [expand_dims(broadcast_to(part, batch), -1) for part in parts]
    if not spread:
        zero = as_value(current().lift(Scalar.of(0, dtypes.int32)))
        return broadcast_to(zero, (*batch, 0))
    if len(spread) == 1:
        return spread[0]
    vectors: Value = Concat(len(batch)).bind(*spread)
    return vectors
