"""Functions that bring the elements of an axis into order, or find places in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from poot.core import dtypes
from poot.core.errors import ArgumentError, DTypeError, ShapeError
from poot.core.ops.elementwise import UnaryOp
from poot.core.ops.indexing import Gather
from poot.core.ops.shape import Iota
from poot.core.ops.sort import Sort
from poot.interpreters.arithmetic import (
    add,
    bitwise_and,
    bitwise_or,
    less,
    less_equal,
    right_shift,
    select,
    unary,
)
from poot.interpreters.indexing import take_axis
from poot.interpreters.promotion import (
    as_value,
    cast_to,
    default_int,
    promote,
    result_like,
)
from poot.interpreters.shaping import (
    as_element_type,
    canonical_axis,
    ravel,
    zeros_of,
)

if TYPE_CHECKING:
    from poot.interpreters.methods import Value


def _ordered(where: str, kind: Any, order: Any) -> None:
    """Raise ArgumentError where NumPy's own arguments ask for what there is not."""
    if kind is not None:
        raise ArgumentError(
            f"{where}: kind={kind!r} chooses nothing; every sort here is stable, so "
            "leave it out"
        )
    if order is not None:
        raise ArgumentError(f"{where}: arrays have no fields to order by")


def _on_axis(where: str, a: Any, axis: int | None) -> tuple[Value, int]:
    """The array and the axis, all elements as one if there is none."""
    x = as_value(a, where)
    if axis is None:
        return ravel(x), 0
    return x, canonical_axis(axis, x.ndim, where)


def sort(
    a: Any,
    axis: int | None = -1,
    *,
    kind: None = None,
    order: None = None,
    stable: bool = True,
    descending: bool = False,
) -> Value:
    """The elements of an axis in order, NaN above all numbers, -0 equal to +0."""
    _ordered("sort", kind, order)
    x, place = _on_axis("sort", a, axis)
    (ordered,) = Sort(place, 1, descending).bind(x)
    return result_like(x, ordered)


def argsort(
    a: Any,
    axis: int | None = -1,
    *,
    kind: None = None,
    order: None = None,
    stable: bool = True,
    descending: bool = False,
    dtype: Any = None,
) -> Value:
    """The places of the elements of an axis in order; equal ones as they stand."""
    _ordered("argsort", kind, order)
    x, place = _on_axis("argsort", a, axis)
    return sorted_places("argsort", [x], place, descending, dtype)


def sorted_places(
    where: str, keys: list[Value], axis: int, descending: bool, dtype: Any = None
) -> Value:
    """The places along an axis in the order of the keys, the first decides first."""
    counted = Iota(dtypes.int32, keys[0].shape, axis).bind()
    *_, places = Sort(axis, len(keys), descending).bind(*keys, counted)
    wanted = default_int() if dtype is None else as_element_type(dtype)
    if not wanted.is_integer:
        raise DTypeError(f"{where}: {wanted} is no dtype of an index")
    return cast_to(places, wanted)


# --- places in what is sorted -----------------------------------------------


def searchsorted(
    a: Any,
    v: Any,
    side: str = "left",
    sorter: Any = None,
    *,
    method: str = "scan",
) -> Value:
    """Where in the sorted `a` each element of `v` is to be put to keep it sorted.

    Before equal elements with side "left", behind them with "right". `sorter` is the
    order of an `a` that is not sorted. All methods give the same; they name ways of
    searching, of which there is one here, by halves.
    """
    if side not in ("left", "right"):
        raise ArgumentError(f"searchsorted: side is {side!r}, takes 'left' or 'right'")
    if method not in _METHODS:
        names = ", ".join(map(repr, _METHODS))
        raise ArgumentError(f"searchsorted: method is {method!r}, takes {names}")
    promoted = promote("searchsorted", as_value(a), as_value(v))
    x, wanted = promoted.operands
    if x.ndim != 1:
        raise ShapeError(f"searchsorted: searches one axis, given {x.shape}")
    if sorter is not None:
        x = take_axis(x, as_value(sorter, "searchsorted"), 0)
    return _halved(x, wanted, side == "left")


_METHODS = ("scan", "scan_unrolled", "sort", "compare_all", "default")


def _halved(x: Value, wanted: Value, before_equal: bool) -> Value:
    """The first place whose element does not come before what is wanted."""
    low = zeros_of(wanted).astype(dtypes.int32)
    high = add(low, x.shape[0])
    for _ in range(x.shape[0].bit_length()):
        middle = right_shift(add(low, high), 1)
        # Where the search has ended, `middle` may stand behind the end, and is clipped.
        found = Gather(0).bind(x, middle)
        comes_before = _comes_before(found, wanted, before_equal)
        goes_on = less(low, high)
        low = select(bitwise_and(goes_on, comes_before), add(middle, 1), low)
        high = select(comes_before, high, middle)
    return low


def _comes_before(found: Value, wanted: Value, before_equal: bool) -> Value:
    """Whether an element stands before the place of what is wanted; NaN is largest."""
    if not found.type.dtype.is_float:
        return (less if before_equal else less_equal)(found, wanted)
    nan = unary(UnaryOp.ISNAN, wanted)
    if before_equal:
        number = unary(UnaryOp.NOT, unary(UnaryOp.ISNAN, found))
        return bitwise_or(less(found, wanted), bitwise_and(nan, number))
    return bitwise_or(less_equal(found, wanted), nan)
