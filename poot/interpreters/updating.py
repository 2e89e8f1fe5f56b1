"""`x.at[index]`: copies of an array with some elements changed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from poot.core import dtypes
from poot.core.dtypes import Scalar
from poot.core.errors import ArgumentError
from poot.core.ops.index_dims import ScatterDims
from poot.core.ops.indexing import GatherMode
from poot.core.ops.scatter import DynamicUpdateSlice, Scatter, ScatterMode, ScatterOp
from poot.core.ops.shape import Iota, Reverse
from poot.interpreters import arithmetic
from poot.interpreters.index_plan import (
    GatherScatterMode,
    IndexPlan,
    is_mask,
    planned,
)
from poot.interpreters.indexing import (
    getitem,
    getitem_by_mode,
    index_vectors,
    static_index,
    vector_part,
)
from poot.interpreters.promotion import (
    as_value,
    cast_to,
    dtype_of,
    join,
    result_like,
    scalar,
)
from poot.interpreters.rounding import maximum, minimum
from poot.interpreters.shaping import broadcast_to, reshape

if TYPE_CHECKING:
    from poot.interpreters.methods import Value


class Promises(TypedDict, total=False):
    """The keyword arguments that all methods of `x.at[index]` have."""

    indices_are_sorted: bool
    unique_indices: bool
    mode: str | GatherScatterMode | None
    wrap_negative_indices: bool


def _require_known(promises: Promises) -> None:
    unknown = promises.keys() - Promises.__annotations__.keys()
    if unknown:
        raise ArgumentError(
            f"x.at[index] takes {', '.join(Promises.__annotations__)}; given "
            f"{', '.join(sorted(unknown))}"
        )


class IndexUpdater:
    """What `x.at` gives: takes an index."""

    __slots__ = ("_array",)

    def __init__(self, array: Value) -> None:
        self._array = array

    def __getitem__(self, index: Any) -> IndexUpdate:
        return IndexUpdate(self._array, index)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._array!r})"


class IndexUpdate:
    """What `x.at[index]` gives: each method makes a changed copy of the array.

    Values broadcast to the elements that the index names, and what comes out is cast
    to the dtype of the array. An element that is named several times gets all updates,
    one after the other; `set` leaves the last. Indices out of range are dropped, or
    with mode "clip" the nearest element is taken. Negative ones count from the end but
    with wrap_negative_indices=False. By indices_are_sorted and unique_indices the
    caller promises what the device then need not find out.
    """

    __slots__ = ("_array", "_index")

    def __init__(self, array: Value, index: Any) -> None:
        self._array = array
        self._index = index

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._array!r}, {self._index!r})"

    def get(self, *, fill_value: Any = None, **promises: Unpack[Promises]) -> Value:
        """The elements: out of range the nearest, or with mode "fill" `fill_value`.

        Without one that is NaN, or of integers the lowest (unsigned: highest) value.
        """
        _require_known(promises)
        x, mode = self._array, promises.get("mode")
        gather = GatherMode.CLIP
        if mode is not None or fill_value is not None:
            gather = GatherScatterMode.from_any(mode).gather
        fill = None if fill_value is None else scalar(fill_value, x.type.dtype)
        wrap, check = promises.get("wrap_negative_indices", True), mode is None
        if check and fill is None and wrap:
            return getitem(x, self._index)
        return getitem_by_mode(x, self._index, gather, fill, wrap, check)

    def set(self, values: Any, **promises: Unpack[Promises]) -> Value:
        """The elements replaced by values."""
        return _updated(self._array, self._index, ScatterOp.SET, values, promises)

    def add(self, values: Any, **promises: Unpack[Promises]) -> Value:
        """The elements plus values."""
        return _updated(self._array, self._index, ScatterOp.ADD, values, promises)

    def subtract(self, values: Any, **promises: Unpack[Promises]) -> Value:
        """The elements less values."""
        negative = arithmetic.negative(as_value(values, "at[…].subtract"))
        return _updated(self._array, self._index, ScatterOp.ADD, negative, promises)

    def multiply(self, values: Any, **promises: Unpack[Promises]) -> Value:
        """The elements times values."""
        return _updated(self._array, self._index, ScatterOp.MUL, values, promises)

    mul = multiply

    def divide(self, values: Any, **promises: Unpack[Promises]) -> Value:
        """All elements as floats, those of the index by the product of their values."""
        return arithmetic.true_divide(self._array, self._factors(values, promises))

    def power(self, values: Any, **promises: Unpack[Promises]) -> Value:
        """The elements to the power of the product of their values."""
        return arithmetic.power(self._array, self._factors(values, promises))

    def min(self, values: Any, **promises: Unpack[Promises]) -> Value:
        """The elements, or values where these are smaller; NaN if one is."""
        return _updated(self._array, self._index, ScatterOp.MIN, values, promises)

    def max(self, values: Any, **promises: Unpack[Promises]) -> Value:
        """The elements, or values where these are larger; NaN if one is."""
        return _updated(self._array, self._index, ScatterOp.MAX, values, promises)

    def apply(self, func: Callable[[Any], Any], **promises: Unpack[Promises]) -> Value:
        """`func` of the elements, once however often an element is named."""
        wrap = promises.get("wrap_negative_indices", True)
        found = getitem_by_mode(self._array, self._index, GatherMode.CLIP, wrap=wrap)
        return self.set(func(found), **promises)

    def _factors(self, values: Any, promises: Promises) -> Value:
        """For each element of the array the product of its values, 1 without any."""
        dtype = join([dtype_of(self._array), dtype_of(values)]).dtype
        ones = broadcast_to(as_value(dtype.numpy.type(1)), self._array.shape)
        return _updated(ones, self._index, ScatterOp.MUL, values, promises)


_FUNCTIONS: dict[ScatterOp, Callable[[Any, Any], Value]] = {
    ScatterOp.SET: lambda x, y: y,
    ScatterOp.ADD: arithmetic.add,
    ScatterOp.MUL: arithmetic.multiply,
    ScatterOp.MIN: minimum,
    ScatterOp.MAX: maximum,
}


def _updated(
    x: Value, index: Any, op: ScatterOp, values: Any, promises: Promises
) -> Value:
    """The array with an update by values, in the dtype in which both meet."""
    _require_known(promises)
    given = as_value(values, f"at[…].{op.value}")
    dtype = x.type.dtype
    if op is not ScatterOp.SET:
        dtype = join([dtype_of(x), dtype_of(values)]).dtype
    wide, given = cast_to(x, dtype), cast_to(given, dtype)
    masked = _masked(wide, index, op, given)
    if masked is None:
        plan = planned(x, index)
        mode = GatherScatterMode.from_any(promises.get("mode")).scatter
        update = _Update(wide, plan, op, mode, promises)
        masked = update.block(given) if update.is_block else update.scatter(given)
    return cast_to(masked, x.type.dtype).with_weak(x.weak_type)


def _masked(x: Value, index: Any, op: ScatterOp, given: Value) -> Value | None:
    """The update of what a lone mask names by one number, which needs no positions."""
    parts = index if isinstance(index, tuple) else (index,)
    if len(parts) != 1 or not is_mask(parts[0]) or given.ndim:
        return None
    mask = as_value(parts[0])
    if mask.shape != x.shape[: mask.ndim]:
        return None
    spread = reshape(mask, (*mask.shape, *[1] * (x.ndim - mask.ndim)))
    return arithmetic.select(spread, _FUNCTIONS[op](x, given), x)


@dataclass(frozen=True, slots=True)
class _Update:
    """One update of an array in the making."""

    x: Value
    plan: IndexPlan
    op: ScatterOp
    mode: ScatterMode
    promises: Promises

    @property
    def wrap(self) -> bool:
        return self.promises.get("wrap_negative_indices", True)

    @property
    def check(self) -> bool:
        """Whether `config.check_bounds` watches the indices."""
        return self.promises.get("mode") is None

    def _place(self, axis: int) -> int:
        index, size = self.plan.indices[axis], self.x.shape[axis]
        return static_index(index, size, axis, self.wrap, self.check)

    @property
    def is_block(self) -> bool:
        """Whether the elements are a block at a place that is known."""
        plan, shape = self.plan, self.x.shape
        known = plan.is_basic and all(
            isinstance(index, int) and 0 <= self._place(axis) < shape[axis]
            for axis, index in plan.indices.items()
        )
        return known and all(abs(s.step) == 1 for s in plan.slices.values() if s)

    def block(self, given: Value) -> Value:
        """Combine values with a block, and put it in."""
        x, plan = self.x, self.plan
        starts, sizes = [0] * x.ndim, [1] * x.ndim
        for axis in plan.indices:
            starts[axis] = self._place(axis)
        turned = []
        for axis, steps in plan.slices.items():
            sizes[axis] = len(steps)
            starts[axis] = min(steps[0], steps[-1]) if steps else 0
            if steps.step < 0:
                turned.append(axis)
        new = [1 if axis is None else sizes[axis] for axis in plan.kept]
        update = reshape(broadcast_to(given, new), sizes)
        if turned:
            update = Reverse(tuple(turned)).bind(update)
        if self.op is not ScatterOp.SET:
            ends = [start + size for start, size in zip(starts, sizes, strict=True)]
            block = getitem(x, tuple(map(slice, starts, ends)))
            update = _FUNCTIONS[self.op](block, update)
        places = [Scalar.of(start, dtypes.int32) for start in starts]
        return result_like(x, DynamicUpdateSlice().bind(x, update, *places))

    def scatter(self, given: Value) -> Value:
        """Combine values with windows at index vectors.

        Axes of the updates are as in the result of the index, but for new ones. A slice
        by steps of more than 1 has an axis of the index vectors.
        """
        x, plan = self.x, self.plan
        batch, kept = plan.batch, plan.kept
        sizes = [1 if a is None else len(plan.slices[a]) for a in kept]
        new = (*sizes[: plan.front], *batch, *sizes[plan.front :])
        ahead = [axis for axis in kept[: plan.front] if axis is not None]
        behind = [axis for axis in kept[plan.front :] if axis is not None]
        order: list[int | None] = [*ahead, *[None] * len(batch), *behind]
        shape = [
            len(plan.slices[a]) if a is not None else batch[i - len(ahead)]
            for i, a in enumerate(order)
        ]
        stepped = [a for a in (*ahead, *behind) if abs(plan.slices[a].step) != 1]
        windows = [i for i, a in enumerate(order) if a is not None and a not in stepped]
        vectors = [i for i in range(len(order)) if i not in windows]
        spread = tuple(shape[i] for i in vectors)
        first = sum(axis in stepped for axis in ahead)
        parts = self._parts(spread, first, [order[i] for i in vectors])
        axes = tuple(sorted(parts))
        dims = ScatterDims(
            tuple(windows),
            tuple(sorted((*plan.indices, *stepped))),
            axes,
        )
        update = reshape(broadcast_to(given, new), shape)
        turned = [i for i in windows if plan.slices[order[i] or 0].step < 0]
        if turned:
            update = Reverse(tuple(turned)).bind(update)
        is_single = not math.prod(batch) > 1
        op = Scatter(
            self.op,
            dims,
            self.mode,
            self.promises.get("indices_are_sorted", False) and not stepped,
            self.promises.get("unique_indices", False) or is_single,
        )
        indices = index_vectors([parts[axis] for axis in axes], spread)
        return result_like(x, op.bind(x, indices, update))

    def _parts(
        self, spread: tuple[int, ...], first: int, order: list[int | None]
    ) -> dict[int, Value]:
        """The components of the index vectors, which have the axes `spread`.

        From `first` on these are those of the index arrays, the others by `order`.
        """
        x, plan = self.x, self.plan
        rank = len(plan.batch)
        ones = (1,) * (len(spread) - first - rank)
        parts: dict[int, Value] = {}
        for axis, index in plan.indices.items():
            size = x.shape[axis]
            part = vector_part(index, size, axis, self.wrap, self.check)
            parts[axis] = reshape(part, (*part.shape, *ones))
        for axis, steps in plan.slices.items():
            if axis in order:
                place = order.index(axis)
                count: Value = Iota(dtypes.int32, spread, place).bind()
                scaled = arithmetic.multiply(count, steps.step)
                parts[axis] = arithmetic.add(scaled, steps.start)
            elif len(steps) != x.shape[axis]:
                start = min(steps[0], steps[-1]) if steps else 0
                number = Scalar.of(start, dtypes.int32)
                parts[axis] = as_value(number.array[()])
        return parts
