"""Arrays as sets: unique elements, and what two arrays have in common.

How many results there are depends on the elements, so that traced code must give
`size`: results are cut or filled up to it.
"""

from __future__ import annotations

import math
import operator
from typing import Any, NamedTuple

from poot.core import dtypes
from poot.core.errors import ArgumentError, ConcretizationError
from poot.core.ops.elementwise import UnaryOp
from poot.core.ops.shape import Iota, Reverse
from poot.core.ops.sort import Sort
from poot.interpreters import reductions, sorting
from poot.interpreters.arithmetic import (
    add,
    bitwise_and,
    bitwise_or,
    equal,
    greater,
    less,
    not_equal,
    select,
    subtract,
    unary,
)
from poot.interpreters.array import Array
from poot.interpreters.cumulative import cumsum
from poot.interpreters.indexing import take_axis
from poot.interpreters.methods import Value
from poot.interpreters.promotion import cast_to, converted, default_int, promote
from poot.interpreters.shaping import canonical_axis, moveaxis, ravel, reshape
from poot.interpreters.tracer import AnyTracer
from poot.numpy._creation import arange, asarray, full, ones, zeros
from poot.numpy._joining import concatenate

_INT = dtypes.int32


def _is_nan(x: Value) -> Value:
    return unary(UnaryOp.ISNAN, x)


# --- positions --------------------------------------------------------------


def _counted(where: str, mask: Value, size: int | None) -> tuple[Value, int]:
    """How many elements of a mask hold, and how many results there are to be."""
    count = reductions.sum(mask, dtype=_INT)
    if size is not None:
        return count, operator.index(size)
    if isinstance(count, AnyTracer):
        raise ConcretizationError(
            f"poot.numpy.{where}: how many results there are depends on the elements, "
            "which are traced here; give size="
        )
    assert isinstance(count, Array)
    return count, int(count)


def _positions(mask: Value, size: int, fill: int) -> Value:
    """Where a mask holds, in order; cut or filled up to `size`."""
    count = mask.shape[0]
    first = sorting.sorted_places(
        "nonzero", [unary(UnaryOp.NOT, mask)], 0, False, dtypes.int32.numpy
    )[:size]
    if size > count:
        first = concatenate([first, zeros((size - count,), _INT)])
    held = reductions.sum(mask, dtype=_INT)
    return select(less(arange(size), held), first, fill)


def _filled(values: Value, count: Value, fill_value: Any) -> Value:
    """`values` with `fill_value` from number `count` on."""
    fill = converted(fill_value, values.type.dtype, "fill_value")
    inside = less(arange(values.shape[0]), count)
    inside = reshape(inside, (values.shape[0],) + (1,) * (values.ndim - 1))
    return select(inside, values, fill)


# --- unique elements --------------------------------------------------------


def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: Any = None,
    sorted: bool = True,
) -> Any:
    """The elements (with `axis`, the slices along it) without repetition, in order.

    Besides, as asked for: where each stands first, which of them each element is, and
    how often each occurs. With `size` the result is cut, or filled up with
    `fill_value`, the smallest element if that is None.
    """
    x = asarray(ar)
    slices = reshape(x, (x.size,)) if axis is None else x
    place = 0 if axis is None else canonical_axis(axis, x.ndim, "unique")
    moved = moveaxis(slices, place, 0)
    if not moved.shape[0] and size and fill_value is None:
        raise ArgumentError(
            "poot.numpy.unique: of no element, filled up to a size, needs fill_value"
        )
    found = _Unique(moved, equal_nan, size, fill_value)
    results = [moveaxis(found.values(), 0, place)]
    if return_index:
        results.append(found.indices())
    if return_inverse:
        inverse = found.inverse()
        results.append(reshape(inverse, x.shape) if axis is None else inverse)
    if return_counts:
        results.append(found.counts())
    return results[0] if len(results) == 1 else tuple(results)


class _Unique:
    """The unique slices along the first axis."""

    def __init__(
        self, x: Value, equal_nan: bool, size: int | None, fill_value: Any
    ) -> None:
        self.length = x.shape[0]
        self.given_size, self.fill_value = size, fill_value
        self.x = x
        if self.length:
            self.order = _order_of_slices(x)
            self.sorted = take_axis(x, self.order, 0)
            self.starts = _starts(self.sorted, equal_nan)
        else:
            self.order, self.sorted = zeros((0,), _INT), x
            self.starts = zeros((0,), dtypes.bool_)
        self.count, self.size = _counted("unique", self.starts, size)
        # Where in the order each unique slice begins.
        self.positions = self._positions(self.size, 0)

    def _positions(self, size: int, fill: int) -> Value:
        if not self.length:
            return full((size,), fill, _INT)
        return _positions(self.starts, size, fill)

    def values(self) -> Value:
        if not self.length:
            shape = (self.size, *self.x.shape[1:])
            return full(
                shape, 0 if self.fill_value is None else self.fill_value, self.x.dtype
            )
        values = take_axis(self.sorted, self.positions, 0)
        if self.given_size is None or self.fill_value is None:
            return values
        return _filled(values, self.count, self.fill_value)

    def indices(self) -> Value:
        """The first slice of each kind, since the sort is stable."""
        if not self.length:
            return zeros((self.size,), default_int())
        return cast_to(take_axis(self.order, self.positions, 0), default_int())

    def inverse(self) -> Value:
        """Which unique slice each one is: numbers in order, brought back."""
        if not self.length:
            return zeros((0,), default_int())
        numbers = subtract(cumsum(self.starts, dtype=_INT), 1)
        _, inverse = Sort(0).bind(self.order, numbers)
        return cast_to(inverse, default_int())

    def counts(self) -> Value:
        """From where each kind begins to where the next one does."""
        ends = self._positions(self.size + 1, self.length)[1:]
        begins = self._positions(self.size, self.length)
        return cast_to(subtract(ends, begins), default_int())


def _order_of_slices(x: Value) -> Value:
    """The stable order of slices by their elements, the first of which decides."""
    width = math.prod(x.shape[1:])
    rows = reshape(x, (x.shape[0], width))
    keys = [rows[:, column] for column in range(width)] or [arange(x.shape[0])]
    if not width:
        keys = [zeros((x.shape[0],), _INT)]
    return sorting.sorted_places("unique", keys, 0, False, _INT.numpy)


def _starts(x: Value, equal_nan: bool) -> Value:
    """Where in sorted slices one differs from that before it."""
    differs = not_equal(x[1:], x[:-1])
    if equal_nan and x.type.dtype.is_float:
        numbers = unary(UnaryOp.NOT, bitwise_and(_is_nan(x[1:]), _is_nan(x[:-1])))
        differs = bitwise_and(differs, numbers)
    if x.ndim > 1:
        differs = reductions.any(differs, tuple(range(1, x.ndim)))
    return concatenate([ones((1,), dtypes.bool_), differs])


class UniqueAll(NamedTuple):
    """What `unique_all` returns."""

    values: Value
    indices: Value
    inverse_indices: Value
    counts: Value


class UniqueCounts(NamedTuple):
    """What `unique_counts` returns."""

    values: Value
    counts: Value


class UniqueInverse(NamedTuple):
    """What `unique_inverse` returns."""

    values: Value
    inverse_indices: Value


def unique_all(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> Any:
    """As `unique` with all that it can return; each NaN is one of its own."""
    return UniqueAll(
        *unique(x, True, True, True, equal_nan=False, size=size, fill_value=fill_value)
    )


def unique_counts(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> Any:
    """Unique elements and how often each occurs; each NaN is one of its own."""
    return UniqueCounts(
        *unique(
            x, return_counts=True, equal_nan=False, size=size, fill_value=fill_value
        )
    )


def unique_inverse(
    x: Any, /, *, size: int | None = None, fill_value: Any = None
) -> Any:
    """Unique elements and which of them each is; each NaN is one of its own."""
    return UniqueInverse(
        *unique(
            x, return_inverse=True, equal_nan=False, size=size, fill_value=fill_value
        )
    )


def unique_values(
    x: Any, /, *, size: int | None = None, fill_value: Any = None
) -> Value:
    """Unique elements; each NaN is one of its own."""
    values: Value = unique(x, equal_nan=False, size=size, fill_value=fill_value)
    return values


def union1d(
    ar1: Any, ar2: Any, *, size: int | None = None, fill_value: Any = None
) -> Value:
    """The elements of both arrays, without repetition, in order."""
    both = concatenate([ravel(asarray(ar1)), ravel(asarray(ar2))])
    values: Value = unique(both, size=size, fill_value=fill_value)
    return values


# --- two arrays -------------------------------------------------------------


class _Merged:
    """The elements of two arrays in one order; equal ones of the first come first.

    Of each array equal elements stand from the last to the first, or the first to the
    last, so that the first occurrences of a value meet in the middle.
    """

    def __init__(self, where: str, ar1: Any, ar2: Any) -> None:
        promoted = promote(where, ravel(asarray(ar1)), ravel(asarray(ar2)))
        first, second = promoted.operands
        self.dtype = promoted.dtype
        self.sizes = (first.size, second.size)
        together = concatenate([Reverse((0,)).bind(first), second])
        places = Iota(_INT, together.shape, 0).bind()
        self.values, self.places = Sort(0).bind(together, places)
        self.is_second = greater(self.places, first.size - 1)

    def followed(self) -> tuple[Value, Value]:
        """Whether an element's successor is equal, and whether its predecessor is.

        NaN of one array are equal, as in `unique`, but not to NaN of the other.
        """
        values, tags = self.values, self.is_second
        same = equal(values[1:], values[:-1])
        if self.dtype.is_float:
            nans = bitwise_and(_is_nan(values[1:]), _is_nan(values[:-1]))
            same = bitwise_or(same, bitwise_and(nans, equal(tags[1:], tags[:-1])))
        end = zeros((1,), dtypes.bool_)
        return concatenate([same, end]), concatenate([end, same])

    def meets(self) -> Value:
        """Where the first array's last equal is followed by one of the second."""
        after, _ = self.followed()
        tags = self.is_second
        next_tag = concatenate([tags[1:], zeros((1,), dtypes.bool_)])
        return _all(after, _not(tags), next_tag)


def _all(*masks: Value) -> Value:
    result = masks[0]
    for mask in masks[1:]:
        result = bitwise_and(result, mask)
    return result


def _not(mask: Value) -> Value:
    return unary(UnaryOp.NOT, mask)


def intersect1d(
    ar1: Any,
    ar2: Any,
    assume_unique: bool = False,
    return_indices: bool = False,
    *,
    size: int | None = None,
    fill_value: Any = None,
) -> Any:
    """The elements that both arrays have, in order; with where each has them first.

    Filled up to `size` with `fill_value`, the smallest of them if that is None, and
    indices with the sizes of the arrays.
    """
    merged = _Merged("intersect1d", ar1, ar2)
    total = sum(merged.sizes)
    mask = merged.meets() if total else zeros((0,), dtypes.bool_)
    values, at, count = _chosen("intersect1d", merged, mask, size, fill_value)
    if not return_indices:
        return values
    one, other = merged.sizes
    if not total:
        return (
            values,
            full(at.shape, 0, default_int()),
            full(at.shape, 0, default_int()),
        )
    inside = less(arange(at.shape[0]), count)
    first = subtract(one - 1, take_axis(merged.places, at, 0))
    second = subtract(take_axis(merged.places, add(at, 1), 0), one)
    return (
        values,
        cast_to(select(inside, first, one), default_int()),
        cast_to(select(inside, second, other), default_int()),
    )


def _chosen(
    where: str, merged: _Merged, mask: Value, size: int | None, fill_value: Any
) -> tuple[Value, Value, Value]:
    """The elements where the mask holds, their places in the order, their number."""
    count, wanted = _counted(where, mask, size)
    if not mask.shape[0]:
        fill = 0 if fill_value is None else fill_value
        at = zeros((wanted,), _INT)
        return full((wanted,), fill, merged.dtype.numpy), at, count
    at = _positions(mask, wanted, 0)
    values = take_axis(merged.values, at, 0)
    if size is None or not wanted:
        return values, at, count
    if fill_value is not None:
        return _filled(values, count, fill_value), at, count
    smallest = select(greater(count, 0), values[:1], full((1,), 0, merged.dtype.numpy))
    inside = less(arange(wanted), count)
    return select(inside, values, smallest), at, count


def setdiff1d(
    ar1: Any,
    ar2: Any,
    assume_unique: bool = False,
    *,
    size: int | None = None,
    fill_value: Any = None,
) -> Value:
    """The elements of the first array that the second has not, without repetition.

    They are in order. Filled up to `size` with `fill_value`, 0 if that is None.
    """
    first = asarray(ar1)
    merged = _Merged("setdiff1d", first, ar2)
    mask = zeros((0,), dtypes.bool_)
    if sum(merged.sizes):
        after, _ = merged.followed()
        mask = bitwise_and(_not(merged.is_second), _not(after))
    fill = 0 if fill_value is None else fill_value
    values, _, _ = _chosen("setdiff1d", merged, mask, size, fill)
    return cast_to(values, first.type.dtype)


def setxor1d(
    ar1: Any,
    ar2: Any,
    assume_unique: bool = False,
    *,
    size: int | None = None,
    fill_value: Any = None,
) -> Value:
    """The elements that one of two arrays has and the other has not, in order.

    Filled up to `size` with `fill_value`, the smallest of them if that is None.
    """
    merged = _Merged("setxor1d", ar1, ar2)
    mask = zeros((0,), dtypes.bool_)
    if sum(merged.sizes):
        after, before = merged.followed()
        ends_in_first = bitwise_and(_not(merged.is_second), _not(after))
        begins_in_second = bitwise_and(merged.is_second, _not(before))
        mask = bitwise_or(ends_in_first, begins_in_second)
    return _chosen("setxor1d", merged, mask, size, fill_value)[0]
