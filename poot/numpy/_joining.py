"""Arrays joined and cut apart."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from poot.core.errors import ShapeError
from poot.core.ops.shape import Concat, Slice
from poot.interpreters.methods import Value
from poot.interpreters.promotion import (
    as_value,
    converted,
    is_value,
    promote,
    result_like,
    result_of,
)
from poot.interpreters.shaping import (
    as_element_type,
    canonical_axis,
    expand_dims,
    ravel,
    reshape,
    squeeze,
    transpose,
)
from poot.numpy._creation import asarray
from poot.numpy._operands import bound

# --- joining ----------------------------------------------------------------


def _items(where: str, arrays: Any) -> list[Value]:
    """The arrays to join; of one array, its rows."""
    if not (isinstance(arrays, Sequence) or is_value(arrays)) and np.ndim(arrays) == 0:
        raise ShapeError(f"poot.numpy.{where}: takes a sequence of arrays")
    items = [as_value(x, f"poot.numpy.{where}") for x in arrays]
    if not items:
        raise ShapeError(f"poot.numpy.{where}: needs at least one array, given none")
    return items


def _joined(where: str, items: Sequence[Value], axis: int, dtype: Any = None) -> Value:
    """Concatenate along an axis that all items have."""
    promoted = promote(where, *items)
    if dtype is not None:
        wanted = as_element_type(dtype)
        operands = tuple(converted(x, wanted) for x in items)
        promoted = promoted._replace(operands=operands, dtype=wanted, weak=False)
    if len(items) == 1:
        only: Value = promoted.operands[0]
        return only.with_weak(promoted.weak)
    return result_of(promoted, Concat(axis).bind(*promoted.operands))


def concatenate(arrays: Any, axis: int | None = 0, dtype: Any = None) -> Value:
    """Join along an axis that all arrays have; None: all elements in one axis."""
    items = _items("concatenate", arrays)
    if axis is None:
        return _joined("concatenate", [ravel(x) for x in items], 0, dtype)
    if any(not x.ndim for x in items):
        raise ShapeError(
            "poot.numpy.concatenate: an array without axes cannot be joined; use "
            "stack, hstack, or expand_dims"
        )
    place = canonical_axis(axis, items[0].ndim, "concatenate")
    return _joined("concatenate", items, place, dtype)


concat = concatenate


def stack(arrays: Any, axis: int = 0, dtype: Any = None) -> Value:
    """Join along a new axis; all arrays have one shape."""
    items = _items("stack", arrays)
    _require_one_shape(items)
    place = canonical_axis(axis, items[0].ndim + 1, "stack")
    return _joined("stack", [expand_dims(x, place) for x in items], place, dtype)


def _require_one_shape(items: list[Value]) -> None:
    shapes = list(dict.fromkeys(x.shape for x in items))
    if len(shapes) > 1:
        given = ", ".join(map(str, shapes))
        raise ShapeError(f"poot.numpy.stack: given shapes {given}, takes equal ones")


def _filled_up(x: Any, ndim: int) -> Value:
    """The array with `ndim` axes at least, new ones in front."""
    value = asarray(x)
    if value.ndim >= ndim:
        return value
    return reshape(value, (1,) * (ndim - value.ndim) + value.shape)


def _raised(ndim: int, *arrays: Any) -> Any:
    raised = [_filled_up(x, ndim) for x in arrays]
    return raised[0] if len(raised) == 1 else raised


def atleast_1d(*arrays: Any) -> Any:
    """Arrays with one axis at least."""
    return _raised(1, *arrays)


def atleast_2d(*arrays: Any) -> Any:
    """Arrays with two axes at least, new ones in front."""
    return _raised(2, *arrays)


def atleast_3d(*arrays: Any) -> Any:
    """Arrays with three axes at least: a vector in the middle one."""
    raised = [_in_three_axes(asarray(x)) for x in arrays]
    return raised[0] if len(raised) == 1 else raised


def _in_three_axes(x: Value) -> Value:
    if x.ndim >= 3:
        return x
    return reshape(x, (*x.shape, 1) if x.ndim == 2 else (1, x.size, 1))


def vstack(tup: Any, dtype: Any = None) -> Value:
    """Join rows, which vectors are, one above the other."""
    rows = [_filled_up(x, 2) for x in _items("vstack", tup)]
    return _joined("vstack", rows, 0, dtype)


def hstack(tup: Any, dtype: Any = None) -> Value:
    """Join along the second axis, or the only one."""
    items = [_filled_up(x, 1) for x in _items("hstack", tup)]
    return _joined("hstack", items, 0 if items[0].ndim == 1 else 1, dtype)


def dstack(tup: Any, dtype: Any = None) -> Value:
    """Join along the third axis."""
    items = [_in_three_axes(x) for x in _items("dstack", tup)]
    return _joined("dstack", items, 2, dtype)


def column_stack(tup: Any) -> Value:
    """Join columns, which vectors are, side by side."""
    items = _items("column_stack", tup)
    columns = [transpose(_filled_up(x, 2)) if x.ndim < 2 else x for x in items]
    return _joined("column_stack", columns, 1)


def append(arr: Any, values: Any, axis: int | None = None) -> Value:
    """`values` behind `arr`; without an axis, both in one axis."""
    return concatenate([asarray(arr), asarray(values)], axis)


def block(arrays: Any) -> Value:
    """Arrays in nested lists, joined: the innermost lists along the last axis."""
    depth = _list_depth(arrays)
    result = _block(arrays, depth, depth)
    return result if result.ndim >= depth else _with_rank(result, depth)


def _list_depth(arrays: Any) -> int:
    if not isinstance(arrays, list):
        return 0
    depths = {_list_depth(part) for part in arrays}
    if len(depths) != 1:
        raise ShapeError(
            "poot.numpy.block: the lists are nested to different depths, or empty; "
            "nest all alike"
        )
    return 1 + depths.pop()


def _block(arrays: Any, axis: int, rank: int) -> Value:
    if not isinstance(arrays, list):
        return _with_rank(asarray(arrays), rank)
    parts = [_block(part, axis - 1, rank) for part in arrays]
    rank = max(part.ndim for part in parts)
    return concatenate([_with_rank(part, rank) for part in parts], -axis)


def _with_rank(x: Value, rank: int) -> Value:
    return reshape(x, (1,) * max(rank - x.ndim, 0) + x.shape)


# --- cutting ----------------------------------------------------------------


def _pieces(x: Value, bounds: list[int], axis: int) -> list[Value]:
    """The parts between consecutive bounds, counted as Python's slices do."""
    size = x.shape[axis]
    parts = []
    for low, high in pairwise(bounds):
        start, end, _ = slice(low, high).indices(size)
        piece = bound(Slice(axis, start, max(start, end)), x)
        parts.append(result_like(x, piece))
    return parts


def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Value]:
    """Cut into so many parts of nearly equal size, or before the given indices."""
    x = asarray(ary)
    place = canonical_axis(axis, x.ndim, "array_split")
    size = x.shape[place]
    if np.ndim(indices_or_sections) > 0:
        cuts = [operator.index(i) for i in indices_or_sections]
        return _pieces(x, [0, *cuts, size], place)
    parts = operator.index(indices_or_sections)
    if parts < 1:
        raise ShapeError(f"poot.numpy.array_split: {parts} parts, needs one at least")
    small, more = divmod(size, parts)
    bounds = [i * small + min(i, more) for i in range(parts + 1)]
    return _pieces(x, bounds, place)


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Value]:
    """Cut into so many equal parts, or before the given indices."""
    x = asarray(ary)
    place = canonical_axis(axis, x.ndim, "split")
    if np.ndim(indices_or_sections) == 0:
        parts = operator.index(indices_or_sections)
        if parts < 1 or x.shape[place] % parts:
            raise ShapeError(
                f"poot.numpy.split: axis {place} of {x.shape} does not divide into "
                f"{parts} equal parts; use array_split"
            )
    return array_split(x, indices_or_sections, place)


def _split_along(
    name: str, axis: int, ndim: int, doc: str
) -> Callable[[Any, Any], list[Value]]:
    def function(ary: Any, indices_or_sections: Any) -> list[Value]:
        x = asarray(ary)
        if x.ndim < ndim:
            raise ShapeError(
                f"poot.numpy.{name}: given shape {x.shape}, needs {ndim} axes"
            )
        # The first of one axis counts as the second.
        return split(x, indices_or_sections, min(axis, x.ndim - 1))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


vsplit = _split_along("vsplit", 0, 2, "Cut along the first axis.")
hsplit = _split_along("hsplit", 1, 1, "Cut along the second axis, or the only one.")
dsplit = _split_along("dsplit", 2, 3, "Cut along the third axis.")


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Value, ...]:
    """The arrays of which an axis is made up."""
    x = asarray(x)
    place = canonical_axis(axis, x.ndim, "unstack")
    rows = _pieces(x, list(range(x.shape[place] + 1)), place)
    return tuple(squeeze(row, place) for row in rows)
