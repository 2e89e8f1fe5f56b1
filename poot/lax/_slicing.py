"""Blocks of arrays: at static bounds, and at starts that are data."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

from poot.core import dtypes
from poot.core.dtypes import Scalar
from poot.core.errors import DTypeError, ShapeError
from poot.core.interpreter import current
from poot.core.ops.indexing import DynamicSlice
from poot.core.ops.shape import Slice
from poot.interpreters.arithmetic import add, bitwise_or, greater, less
from poot.interpreters.arithmetic import select as choose
from poot.interpreters.config import settings
from poot.interpreters.methods import Value
from poot.interpreters.promotion import as_value, cast_to, is_number, result_like
from poot.interpreters.shaping import canonical_axis, squeeze


def slice(
    operand: Any,
    start_indices: Sequence[int],
    limit_indices: Sequence[int],
    strides: Sequence[int] | None = None,
) -> Value:
    """Elements start, start + stride, … before limit along each axis."""
    x = as_value(operand, "lax.slice")
    steps = [1] * x.ndim if strides is None else list(strides)
    starts, limits = list(start_indices), list(limit_indices)
    if not len(starts) == len(limits) == len(steps) == x.ndim:
        raise ShapeError(
            f"lax.slice: {len(starts)} starts, {len(limits)} limits and {len(steps)} "
            f"strides given for {x.ndim} axes; takes one of each an axis"
        )
    for axis, bounds in enumerate(zip(starts, limits, steps, strict=True)):
        x = _sliced(x, axis, *map(operator.index, bounds))
    return x


def _sliced(x: Value, axis: int, start: int, limit: int, stride: int) -> Value:
    if (start, limit, stride) == (0, x.shape[axis], 1):
        return x
    return result_like(x, Slice(axis, start, limit, stride).bind(x))


def slice_in_dim(
    operand: Any,
    start_index: int | None,
    limit_index: int | None,
    stride: int = 1,
    axis: int = 0,
) -> Value:
    """Elements start:limit:stride of one axis, bounds counted as in Python."""
    x = as_value(operand, "lax.slice_in_dim")
    axis = canonical_axis(axis, x.ndim, "lax.slice_in_dim")
    step = operator.index(stride)
    if step < 1:
        raise ShapeError(f"lax.slice_in_dim: stride {step} is not positive")
    start, limit, _ = builtins.slice(start_index, limit_index).indices(x.shape[axis])
    return _sliced(x, axis, start, limit, step)


def split(operand: Any, sizes: Sequence[int], axis: int = 0) -> list[Value]:
    """Consecutive parts of these sizes, which make up the whole axis."""
    x = as_value(operand, "lax.split")
    axis = canonical_axis(axis, x.ndim, "lax.split")
    widths = [operator.index(size) for size in sizes]
    if sum(widths) != x.shape[axis] or min(widths, default=0) < 0:
        raise ShapeError(
            f"lax.split: sizes {tuple(widths)} do not make up axis {axis} of {x.shape}"
        )
    ends = [0, *accumulate(widths)]
    return [_sliced(x, axis, *bounds, 1) for bounds in pairwise(ends)]


def index_in_dim(
    operand: Any, index: int, axis: int = 0, keepdims: bool = True
) -> Value:
    """The elements at one index of an axis."""
    x = as_value(operand, "lax.index_in_dim")
    axis = canonical_axis(axis, x.ndim, "lax.index_in_dim")
    size = x.shape[axis]
    number = operator.index(index)
    if not -size <= number < size:
        raise ShapeError(
            f"lax.index_in_dim: index {number} is not in axis {axis} of size {size}"
        )
    taken = _sliced(x, axis, number % size, number % size + 1, 1)
    return taken if keepdims else squeeze(taken, axis)


def dynamic_slice(
    operand: Any, start_indices: Sequence[Any], slice_sizes: Sequence[int]
) -> Value:
    """A block of static sizes; starts below 0 count from the end, then clamp."""
    x = as_value(operand, "lax.dynamic_slice")
    starts = list(start_indices)
    sizes = tuple(operator.index(size) for size in slice_sizes)
    if not len(starts) == len(sizes) == x.ndim:
        raise ShapeError(
            f"lax.dynamic_slice: {len(starts)} starts and {len(sizes)} sizes given for "
            f"{x.ndim} axes; takes one of each an axis"
        )
    wrapped = [
        block_start(start, x.shape[axis], sizes[axis], axis, "lax.dynamic_slice")
        for axis, start in enumerate(starts)
    ]
    return result_like(x, DynamicSlice(sizes).bind(x, *wrapped))


def block_start(
    start: Any, size: int, taken: int, axis: int, where: str
) -> Value | Scalar:
    """A start that counts from the front; `config.check_bounds` watches its range."""
    value = as_value(start, where)
    if value.ndim or not value.type.dtype.is_integer:
        raise DTypeError(
            f"{where}: the start of axis {axis} is {value.type}, takes integer scalars"
        )
    if is_number(start) and not settings().check_bounds:
        number = operator.index(start)
        number += size if number < 0 else 0
        inside = builtins.min(builtins.max(number, 0), size)
        return Scalar.of(inside, dtypes.int32)
    if value.type.dtype.itemsize < 4:
        value = cast_to(value, dtypes.int32)
    if value.type.dtype.is_signed:
        value = choose(less(value, 0), add(value, size), value)
    if settings().check_bounds:
        outside = bitwise_or(less(value, 0), greater(value, size - taken))
        message = f"a block of {taken} leaves axis {axis} of size {size}"
        failed = cast_to(outside, dtypes.int32)
        (value,) = current().witness(failed, message, [value])
    return value


def dynamic_slice_in_dim(
    operand: Any, start_index: Any, slice_size: int, axis: int = 0
) -> Value:
    """`slice_size` elements of one axis from a start that is data."""
    x = as_value(operand, "lax.dynamic_slice_in_dim")
    axis = canonical_axis(axis, x.ndim, "lax.dynamic_slice_in_dim")
    starts: list[Any] = [0] * x.ndim
    sizes = list(x.shape)
    starts[axis], sizes[axis] = start_index, slice_size
    return dynamic_slice(x, starts, sizes)


def dynamic_index_in_dim(
    operand: Any, index: Any, axis: int = 0, keepdims: bool = True
) -> Value:
    """The elements at one index, which is data, of an axis."""
    x = as_value(operand, "lax.dynamic_index_in_dim")
    axis = canonical_axis(axis, x.ndim, "lax.dynamic_index_in_dim")
    taken = dynamic_slice_in_dim(x, index, 1, axis)
    return taken if keepdims else squeeze(taken, axis)
