"""Where elements are, and arrays with elements put in, taken out or chosen."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from poot.core import dtypes
from poot.core.errors import ArgumentError, IndexingError, ShapeError
from poot.core.ops.elementwise import broadcast_shapes
from poot.interpreters.arithmetic import (
    floor_divide,
    less,
    not_equal,
    remainder,
    select,
    subtract,
)
from poot.interpreters.cumulative import cumsum
from poot.interpreters.methods import Value
from poot.interpreters.moving import gathered
from poot.interpreters.promotion import as_value, cast_to, default_int, is_value
from poot.interpreters.rounding import clip, refuse_out
from poot.interpreters.shaping import (
    broadcast_to,
    canonical_axis,
    moveaxis,
    ravel,
    reshape,
)
from poot.interpreters.taking import integer_index
from poot.lax import broadcasted_iota, full
from poot.numpy._creation import asarray
from poot.numpy._joining import concatenate, stack
from poot.numpy._logic import where

# --- where elements are -----------------------------------------------------


def nonzero(
    a: Any, *, size: int | None = None, fill_value: Any = None
) -> tuple[Value, ...]:
    """The positions of elements that are not zero, an array an axis, row by row.

    With `size` there are so many, the first or those that there are and `fill_value`
    (0; one for all axes or one each); without, the elements must be known.
    """
    x = asarray(a)
    if not x.ndim:
        raise ShapeError("poot.numpy.nonzero: a scalar has no axes; use atleast_1d")
    places = _truths(not_equal(x, 0), size)
    steps = [math.prod(x.shape[axis + 1 :]) for axis in range(x.ndim)]
    outside = less(places, 0)
    found = []
    for axis, (step, length) in enumerate(zip(steps, x.shape, strict=True)):
        place = remainder(floor_divide(places, max(step, 1)), max(length, 1))
        given = fill_value[axis] if isinstance(fill_value, tuple) else fill_value
        other = 0 if given is None else given
        found.append(place if size is None else select(outside, other, place))
    return tuple(cast_to(as_value(place), default_int()) for place in found)


def _truths(mask: Value, size: int | None) -> Value:
    """Row-major positions of True; with a size, -1 behind the last of them."""
    flat = ravel(mask)
    if size is None:
        return as_value(np.flatnonzero(np.asarray(flat)).astype(np.int32))
    count = operator.index(size)
    if not flat.size or not count:
        return full((count,), -1, np.int32)
    # Each goes to the place that says how many came before.
    before = subtract(cumsum(flat, dtype=np.int32), 1)
    target = select(flat, before, count)
    numbers = broadcasted_iota(dtypes.int32, flat.shape, 0)
    empty = full((count,), -1, np.int32)
    return empty.at[target].set(numbers, mode="drop", unique_indices=True)


def flatnonzero(a: Any, *, size: int | None = None, fill_value: Any = None) -> Value:
    """The row-major positions of elements that are not zero; see `nonzero`."""
    return nonzero(ravel(asarray(a)), size=size, fill_value=fill_value)[0]


def argwhere(a: Any, *, size: int | None = None, fill_value: Any = None) -> Value:
    """The positions of elements that are not zero, a row each; see `nonzero`."""
    x = asarray(a)
    if not x.ndim:
        count = len(argwhere(reshape(x, (1,)), size=size, fill_value=fill_value))
        return full((count, 0), 0, default_int().numpy)
    return stack(nonzero(x, size=size, fill_value=fill_value), -1)


def mask_indices(
    n: int, mask_func: Callable[..., Any], k: int = 0, *, size: int | None = None
) -> tuple[Value, ...]:
    """The positions in an (n, n) array that `mask_func(ones, k)` leaves."""
    return nonzero(mask_func(full((n, n), 1, np.int32), k), size=size)


# --- elements by masks and choices ------------------------------------------


def compress(
    condition: Any,
    a: Any,
    axis: int | None = None,
    *,
    size: int | None = None,
    fill_value: Any = 0,
    out: None = None,
) -> Value:
    """The slices along an axis for which a condition holds, as far as it goes.

    With `size` there are so many, `fill_value` behind the last.
    """
    refuse_out("compress", out)
    x, mask = asarray(a), asarray(condition)
    if mask.ndim != 1:
        raise ShapeError(f"poot.numpy.compress: condition {mask.type}, takes one axis")
    if axis is None:
        x, axis = ravel(x), 0
    place = canonical_axis(axis, x.ndim, "compress")
    if mask.size > x.shape[place]:
        raise ShapeError(
            f"poot.numpy.compress: a condition of {mask.size} for axis {place} of "
            f"{x.shape}; takes {x.shape[place]} at most"
        )
    index = _truths(not_equal(mask, 0), size)
    parts: list[Any] = [slice(None)] * x.ndim
    parts[place] = index
    if size is None:
        return x[tuple(parts)]
    # -1 is beyond both ends unless it wraps.
    return x.at[tuple(parts)].get(
        mode="fill", fill_value=fill_value, wrap_negative_indices=False
    )


def extract(
    condition: Any, arr: Any, *, size: int | None = None, fill_value: Any = 0
) -> Value:
    """The elements where a condition holds, row by row; see `compress`."""
    return compress(
        ravel(asarray(condition)), ravel(asarray(arr)), size=size, fill_value=fill_value
    )


def choose(a: Any, choices: Any, out: None = None, mode: str = "raise") -> Value:
    """For each integer the element that stands there in that one of the choices.

    Beyond both ends `mode` "clip" takes the nearest, "wrap" starts anew, and "raise" is
    an error, for which the integers must not be traced.
    """
    refuse_out("choose", out)
    index = integer_index("choose", asarray(a))
    arrays = [asarray(choice) for choice in choices]
    count = len(arrays)
    if mode == "wrap":
        index = remainder(index, count)
    elif mode == "clip":
        index = clip(index, 0, count - 1)
    elif mode != "raise":
        raise ArgumentError(
            f"poot.numpy.choose: mode is {mode!r}, takes 'raise', 'wrap', 'clip'"
        )
    elif ((known := np.asarray(index)) < 0).any() or (known >= count).any():
        raise IndexingError(f"poot.numpy.choose: an integer is not in 0..{count - 1}")
    shape = broadcast_shapes("choose", index.shape, *(each.shape for each in arrays))
    table = stack([broadcast_to(each, shape) for each in arrays])
    places = [broadcasted_iota(dtypes.int32, shape, axis) for axis in range(len(shape))]
    return table[(broadcast_to(index, shape), *places)]


def piecewise(
    x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any
) -> Value:
    """By the last condition that holds at an element, a function or number of it.

    One function more than conditions is for elements where none holds; else 0.
    """
    value = asarray(x)
    given = [condlist]
    if isinstance(condlist, list | tuple):
        given = list(condlist)
    elif (conditions := asarray(condlist)).ndim > value.ndim:
        given = [conditions[number] for number in range(len(conditions))]
    functions = list(funclist)
    if len(functions) == len(given):
        functions.append(0)
    if len(functions) != len(given) + 1:
        raise ArgumentError(
            f"poot.numpy.piecewise: {len(funclist)} functions for {len(given)} "
            "conditions; takes as many, or one more"
        )

    def part(function: Any) -> Value:
        found = function(value, *args, **kw) if callable(function) else function
        return cast_to(as_value(found), value.type.dtype)

    result = broadcast_to(part(functions[-1]), value.shape)
    for condition, function in zip(given, functions[:-1], strict=True):
        result = where(condition, part(function), result)
    return result


# --- elements put in and taken out ------------------------------------------


def _refuse_inplace(where: str, inplace: bool) -> None:
    if inplace:
        raise ArgumentError(
            f"poot.numpy.{where}: arrays never change; pass inplace=False and use the "
            "result"
        )


def put_along_axis(
    arr: Any,
    indices: Any,
    values: Any,
    axis: int | None,
    inplace: bool = True,
    *,
    mode: Any = None,
) -> Value:
    """Row by row of an axis, values put at integer positions; inplace must be False."""
    _refuse_inplace("put_along_axis", inplace)
    x, index = asarray(arr), integer_index("put_along_axis", asarray(indices))
    if axis is None:
        flat = put_along_axis(
            ravel(x), ravel(index), ravel(asarray(values)), 0, False, mode=mode
        )
        return reshape(flat, x.shape)
    if x.ndim != index.ndim:
        raise ShapeError(
            f"poot.numpy.put_along_axis: the array has {x.ndim} axes, the indices "
            f"{index.ndim}; takes as many of both"
        )
    place = canonical_axis(axis, x.ndim, "put_along_axis")
    shape = list(x.shape)
    shape[place] = index.shape[place]
    index = broadcast_to(index, shape)
    parts = [broadcasted_iota(dtypes.int32, shape, other) for other in range(x.ndim)]
    parts[place] = index
    return x.at[tuple(parts)].set(values, mode=mode)


def put(
    a: Any, ind: Any, v: Any, mode: str | None = None, *, inplace: bool = True
) -> Value:
    """Values put at row-major positions, over and over if they are too few.

    Beyond both ends mode None drops them, "clip" takes the nearest place, "wrap" starts
    anew. `inplace` must be False.
    """
    _refuse_inplace("put", inplace)
    x, index = asarray(a), ravel(integer_index("put", asarray(ind)))
    values = ravel(asarray(v))
    if not index.size or not values.size:
        return x
    if mode == "wrap":
        index = remainder(index, x.size)
    elif mode == "clip":
        index = clip(index, 0, x.size - 1)
    elif mode is not None:
        raise ArgumentError(
            f"poot.numpy.put: mode is {mode!r}, takes None, 'wrap', 'clip'"
        )
    repeated = gathered(values, np.arange(index.size) % values.size, 0)
    return reshape(ravel(x).at[index].set(repeated), x.shape)


def place(arr: Any, mask: Any, vals: Any, *, inplace: bool = True) -> Value:
    """Values put one by one where a mask holds, over and over; inplace: False."""
    _refuse_inplace("place", inplace)
    x, truth, values = asarray(arr), asarray(mask), ravel(asarray(vals))
    if truth.size != x.size:
        raise ShapeError(
            f"poot.numpy.place: a mask {truth.shape} for an array {x.shape}; takes as "
            "many elements"
        )
    if not values.size:
        raise ShapeError("poot.numpy.place: there is no value to put")
    flat = not_equal(ravel(truth), 0)
    number = remainder(subtract(cumsum(flat, dtype=np.int32), 1), values.size)
    chosen = cast_to(values[number], x.type.dtype)
    return reshape(select(flat, chosen, ravel(x)), x.shape)


def fill_diagonal(
    a: Any, val: Any, wrap: bool = False, *, inplace: bool = True
) -> Value:
    """The elements with one index along all axes replaced; `inplace` must be False."""
    _refuse_inplace("fill_diagonal", inplace)
    x = asarray(a)
    if x.ndim < 2 or (x.ndim > 2 and len(set(x.shape)) != 1):
        raise ShapeError(
            f"poot.numpy.fill_diagonal: given shape {x.shape}, takes 2 axes, or more "
            "of one size"
        )
    if wrap:
        raise ArgumentError("poot.numpy.fill_diagonal: wrap must be False")
    count = min(x.shape)
    values = ravel(asarray(val))
    if values.size > 1:
        values = gathered(values, np.arange(count) % values.size, 0)
    numbers = broadcasted_iota(dtypes.int32, (count,), 0)
    return x.at[(numbers,) * x.ndim].set(values, unique_indices=True)


def delete(
    arr: Any,
    obj: Any,
    axis: int | None = None,
    *,
    assume_unique_indices: bool = False,
) -> Value:
    """The array without what stands at positions along an axis.

    The positions are known, but a single integer or, with `assume_unique_indices`, an
    array of different ones may be traced.
    """
    x = asarray(arr)
    if axis is None:
        x, axis = ravel(x), 0
    along = canonical_axis(axis, x.ndim, "delete")
    size = x.shape[along]
    if is_value(obj) and (not obj.ndim or assume_unique_indices):
        return _without(x, integer_index("delete", ravel(obj)), along)
    kept = np.ones(size, np.bool_)
    positions = obj if isinstance(obj, slice) else np.asarray(obj)
    if not isinstance(positions, slice) and positions.dtype.kind not in "iub":
        if positions.size:
            raise IndexingError(
                f"poot.numpy.delete: the positions are {positions.dtype}, takes "
                "integers, a mask or a slice"
            )
        return x
    if isinstance(positions, np.ndarray) and positions.dtype.kind != "b":
        inside = (positions >= -size) & (positions < size)
        if positions.ndim == 0 and not inside:
            raise IndexingError(
                f"poot.numpy.delete: {positions} is not in axis {along} of size {size}"
            )
        positions = positions[inside]
    kept[positions] = False
    return gathered(x, np.flatnonzero(kept), along)


def _without(x: Value, index: Value, axis: int) -> Value:
    """Without different positions that are data: each place skips those before."""
    size = x.shape[axis]
    wrapped = select(less(index, 0), index + size, index)
    clipped = clip(wrapped, 0, size - 1)
    gone = full((size,), False).at[clipped].set(True)
    places = _truths(not_equal(gone, True), size - index.size)
    parts: list[Any] = [slice(None)] * x.ndim
    parts[axis] = places
    return x[tuple(parts)]


def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Value:
    """The array with values put in before positions along an axis, which are known."""
    x = asarray(arr)
    if axis is None:
        x, axis = ravel(x), 0
    along = canonical_axis(axis, x.ndim, "insert")
    size = x.shape[along]
    given = np.arange(size)[obj] if isinstance(obj, slice) else np.asarray(obj)
    if given.dtype == np.bool_:
        given = np.flatnonzero(given)
    if given.size and given.dtype.kind not in "iu":
        raise IndexingError(
            f"poot.numpy.insert: the positions are {given.dtype}, takes integers"
        )
    put = cast_to(asarray(values), x.type.dtype)
    if given.ndim == 0:
        # One position takes all values there are along the axis.
        put = reshape(put, (1,) * (x.ndim - put.ndim) + put.shape)
        put = moveaxis(put, 0, along)
    given = given.astype(np.int64)
    given = np.where(given < 0, given + size, given)
    if ((given < 0) | (given > size)).any():
        raise IndexingError(
            f"poot.numpy.insert: a position is not in axis {along} of size {size}"
        )
    positions = given.ravel()
    count = put.shape[along] if positions.size == 1 and put.ndim else positions.size
    shape = list(x.shape)
    shape[along] = count
    positions = np.broadcast_to(positions, (count,))
    order = np.argsort(positions, kind="stable")
    # Places among both: those of the array follow the values put in before them.
    source = np.concatenate([np.arange(size), size + order])
    keys = np.concatenate([np.arange(size) * 2 + 1, positions[order] * 2])
    merged = concatenate([x, broadcast_to(put, shape)], along)
    return gathered(merged, source[np.argsort(keys, kind="stable")], along)
