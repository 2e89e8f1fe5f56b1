"""Functions that move elements or make them from indices, under lax's names."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from poot.core.errors import ShapeError
from poot.core.ops import elementwise
from poot.core.ops.shape import Broadcast, Concat, Iota, Pad, Reverse
from poot.interpreters import shaping
from poot.interpreters.methods import Value
from poot.interpreters.promotion import (
    as_value,
    converted,
    dtype_of,
    is_weak,
    result_like,
    result_of,
    type_of,
)
from poot.interpreters.shaping import (
    as_element_type,
    broadcast_to,
    canonical_axes,
    canonical_axis,
    canonical_shape,
)
from poot.lax._operands import same_dtype


def broadcast(operand: Any, sizes: Sequence[int]) -> Value:
    """Repeat along new axes in front, of the given sizes."""
    x = as_value(operand, "lax.broadcast")
    return broadcast_to(x, (*canonical_shape(sizes, "lax.broadcast"), *x.shape))


def broadcast_in_dim(
    operand: Any, shape: Sequence[int], broadcast_dimensions: Sequence[int]
) -> Value:
    """Repeat to `shape`, where axis i stands at broadcast_dimensions[i]."""
    x = as_value(operand, "lax.broadcast_in_dim")
    sizes = canonical_shape(shape, "lax.broadcast_in_dim")
    places = tuple(operator.index(axis) for axis in broadcast_dimensions)
    rising = all(a < b for a, b in pairwise(places))
    inside = all(0 <= place < len(sizes) for place in places)
    if len(places) != x.ndim or not rising or not inside:
        raise ShapeError(
            f"lax.broadcast_in_dim: axes {places} place {x.shape} in {sizes}; takes "
            f"one axis of the result for each of {x.ndim}, in rising order"
        )
    placed = [1] * len(sizes)
    for place, size in zip(places, x.shape, strict=True):
        placed[place] = size
    return broadcast_to(shaping.reshape(x, placed), sizes)


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape that arrays of these shapes broadcast to."""
    plain = [canonical_shape(shape, "lax.broadcast_shapes") for shape in shapes]
    return elementwise.broadcast_shapes("lax.broadcast_shapes", *plain)


def reshape(
    operand: Any, new_sizes: Sequence[int], dimensions: Sequence[int] | None = None
) -> Value:
    """The elements, read in the order of `dimensions`, in another shape."""
    if dimensions is not None:
        operand = shaping.transpose(operand, dimensions)
    return shaping.reshape(operand, new_sizes)


def collapse(operand: Any, start_dimension: int, stop_dimension: Any = None) -> Value:
    """Axes start to stop - 1 as one."""
    x = as_value(operand, "lax.collapse")
    first, last, _ = slice(start_dimension, stop_dimension).indices(x.ndim)
    if first >= last:
        raise ShapeError(
            f"lax.collapse: axes {start_dimension} to {stop_dimension} of {x.shape} "
            "are none; takes start < stop"
        )
    merged = math.prod(x.shape[first:last])
    return shaping.reshape(x, (*x.shape[:first], merged, *x.shape[last:]))


def transpose(operand: Any, permutation: Sequence[int]) -> Value:
    """Reorder axes: axis i of the result is axis permutation[i]."""
    return shaping.transpose(operand, permutation)


def rev(operand: Any, dimensions: Sequence[int]) -> Value:
    """Turn the order of elements along axes."""
    x = as_value(operand, "lax.rev")
    axes = canonical_axes(dimensions, x.ndim, "lax.rev")
    return result_like(x, Reverse(axes).bind(x)) if axes else x


def expand_dims(array: Any, dimensions: Sequence[int]) -> Value:
    """Put in axes of size 1."""
    return shaping.expand_dims(array, dimensions)


def squeeze(array: Any, dimensions: Sequence[int]) -> Value:
    """Drop axes of size 1."""
    return shaping.squeeze(array, dimensions)


def concatenate(operands: Any, dimension: int) -> Value:
    """Join along an axis."""
    arrays = list(operands)
    if not arrays:
        raise ShapeError("lax.concatenate: needs at least one array")
    promoted = same_dtype("concatenate", *map(as_value, arrays))
    axis = canonical_axis(dimension, promoted.operands[0].ndim, "lax.concatenate")
    if len(arrays) == 1:
        return as_value(arrays[0])
    return result_of(promoted, Concat(axis).bind(*promoted.operands))


def pad(
    operand: Any, padding_value: Any, padding_config: Sequence[tuple[int, int, int]]
) -> Value:
    """Put (low, high, interior) copies of a value around and between the elements."""
    x = as_value(operand, "lax.pad")
    promoted = same_dtype("pad", x, padding_value)
    config = []
    for amounts in padding_config:
        low, high, interior = map(operator.index, amounts)
        config.append((low, high, interior))
    return result_of(promoted, Pad(tuple(config)).bind(*promoted.operands))


def iota(dtype: Any, size: int) -> Value:
    """0, 1, 2 … size - 1."""
    return broadcasted_iota(dtype, (size,), 0)


def broadcasted_iota(dtype: Any, shape: Sequence[int], dimension: int) -> Value:
    """The index along one axis, as numbers."""
    sizes = canonical_shape(shape, "lax.broadcasted_iota")
    axis = canonical_axis(dimension, len(sizes), "lax.broadcasted_iota")
    value: Value = Iota(as_element_type(dtype), sizes, axis).bind()
    return value


def filled(where: str, sizes: tuple[int, ...], value: Any, dtype: Any) -> Value:
    """`value` broadcast to `sizes`, weak if it is and no dtype is given."""
    given, weak = dtype_of(value, where)
    wanted = given if dtype is None else as_element_type(dtype)
    if given.is_float and not wanted.is_float:
        # Python's own conversion fails on inf and NaN, where a cast saturates.
        value = as_value(value)
    element = converted(value, wanted, where)
    result: Value = Broadcast(sizes).bind(element)
    return result.with_weak(weak and dtype is None)


def full(shape: Any, fill_value: Any, dtype: Any = None) -> Value:
    """An array with the same element everywhere, weak if a Python number gives it."""
    given = type_of(fill_value)
    if given.shape:
        raise ShapeError(
            f"lax.full: fills with a scalar, given {given}; use poot.numpy.full, which "
            "broadcasts"
        )
    return filled("lax.full", canonical_shape(shape, "lax.full"), fill_value, dtype)


def full_like(x: Any, fill_value: Any, dtype: Any = None, shape: Any = None) -> Value:
    """As `full`, with the dtype and shape of `x` where none is given."""
    like = type_of(x)
    sizes = like.shape if shape is None else shape
    result = full(sizes, fill_value, like.dtype if dtype is None else dtype)
    return result.with_weak(dtype is None and is_weak(x))
