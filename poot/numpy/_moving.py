"""Elements turned, rolled, repeated and padded."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from poot.core import dtypes
from poot.core.dtypes import DType, Scalar
from poot.core.errors import ArgumentError, DTypeError, ShapeError
from poot.core.ops.elementwise import broadcast_shapes
from poot.core.ops.indexing import GatherMode
from poot.core.ops.shape import Concat, Pad, Reverse, Slice
from poot.interpreters import arithmetic, moving
from poot.interpreters.indexing import take_axis
from poot.interpreters.methods import Value
from poot.interpreters.promotion import as_value, converted, is_value, result_like
from poot.interpreters.shaping import (
    broadcast_to,
    canonical_axes,
    canonical_axis,
    canonical_shape,
    moveaxis,
    ravel,
    reshape,
    swapaxes,
    transpose,
)
from poot.lax import broadcasted_iota
from poot.numpy._creation import asarray, triangle, zeros
from poot.numpy._joining import concatenate
from poot.numpy._operands import bound

# --- axes -------------------------------------------------------------------


def rollaxis(a: Any, axis: int, start: int = 0) -> Value:
    """Move an axis back until it stands before axis `start`."""
    x = asarray(a)
    source = canonical_axis(axis, x.ndim, "rollaxis")
    target = operator.index(start)
    if not -x.ndim <= target <= x.ndim:
        raise ShapeError(
            f"rollaxis: start {target} is not in {-x.ndim}..{x.ndim} for {x.shape}"
        )
    target += x.ndim if target < 0 else 0
    order = [i for i in range(x.ndim) if i != source]
    order.insert(target - (source < target), source)
    return transpose(x, order)


def matrix_transpose(x: Any, /) -> Value:
    """Exchange the last two axes."""
    return swapaxes(x, -1, -2)


def broadcast_arrays(*args: Any) -> list[Value]:
    """All arrays, repeated to the shape in which they meet."""
    items = [asarray(x) for x in args]
    shape = broadcast_shapes("broadcast_arrays", *(x.shape for x in items))
    return [broadcast_to(x, shape) for x in items]


# --- turning ----------------------------------------------------------------


def flip(m: Any, axis: Any = None) -> Value:
    """Turn the order of elements along axes; None: along all."""
    x = asarray(m)
    axes = canonical_axes(axis, x.ndim, "flip")
    return result_like(x, bound(Reverse(axes), x)) if axes else x


def _with_axes(x: Value, ndim: int, where: str) -> Value:
    if x.ndim < ndim:
        raise ShapeError(
            f"poot.numpy.{where}: given shape {x.shape}, needs {ndim} axes"
        )
    return x


def flipud(m: Any) -> Value:
    """Turn the order along the first axis."""
    return flip(_with_axes(asarray(m), 1, "flipud"), 0)


def fliplr(m: Any) -> Value:
    """Turn the order along the second axis."""
    return flip(_with_axes(asarray(m), 2, "fliplr"), 1)


def rot90(m: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Value:
    """Turn by k quarters from the first of two axes towards the second."""
    x = asarray(m)
    first, second = canonical_axes(axes, x.ndim, "rot90")
    quarters = operator.index(k) % 4
    if quarters == 1:
        return swapaxes(flip(x, second), first, second)
    if quarters == 3:
        return flip(swapaxes(x, first, second), second)
    return flip(x, (first, second)) if quarters else x


def roll(a: Any, shift: Any, axis: Any = None) -> Value:
    """Move elements along axes by shifts; what leaves at an end enters at the other.

    Without an axis the elements are taken in row-major order.
    """
    x = asarray(a)
    if axis is None:
        return reshape(roll(ravel(x), shift, 0), x.shape)
    axes = list(axis) if isinstance(axis, Sequence) else [axis]
    is_list = isinstance(shift, Sequence | np.ndarray) and np.ndim(shift) > 0
    shifts = list(shift) if is_list else [shift]
    count = max(len(axes), len(shifts))
    if not (len(axes) in (1, count) and len(shifts) in (1, count)):
        raise ShapeError(
            f"poot.numpy.roll: {len(shifts)} shifts for {len(axes)} axes; takes one of "
            "each, or one for all"
        )
    axes, shifts = (v * count if len(v) == 1 else v for v in (axes, shifts))
    for place, amount in zip(axes, shifts, strict=True):
        x = _rolled(x, amount, canonical_axis(place, x.ndim, "roll"))
    return x


def _rolled(x: Value, shift: Any, axis: int) -> Value:
    size = x.shape[axis]
    if not size:
        return x
    if is_value(shift):
        moved = arithmetic.subtract(broadcasted_iota(dtypes.int32, (size,), 0), shift)
        source = arithmetic.remainder(moved, size)
        return take_axis(x, source, axis, GatherMode.PROMISE)
    cut = -operator.index(shift) % size
    if not cut:
        return x
    parts = [bound(Slice(axis, *ends), x) for ends in ((cut, size), (0, cut))]
    return result_like(x, bound(Concat(axis), *parts))


# --- repeating --------------------------------------------------------------


def repeat(
    a: Any, repeats: Any, axis: int | None = None, *, total_repeat_length: Any = None
) -> Value:
    """Each element so many times in a row; `repeats` is known while tracing."""
    return moving.repeat(
        asarray(a), repeats, axis, total_repeat_length=total_repeat_length
    )


def tile(A: Any, reps: Any) -> Value:
    """The whole array so many times along each axis, missing axes in front."""
    x = asarray(A)
    given = reps if isinstance(reps, Sequence) else (reps,)
    counts = [operator.index(count) for count in given]
    if any(count < 0 for count in counts):
        raise ShapeError(f"poot.numpy.tile: repeats {tuple(counts)}, takes 0 or more")
    rank = max(x.ndim, len(counts))
    counts = [1] * (rank - len(counts)) + counts
    sizes = [1] * (rank - x.ndim) + list(x.shape)
    split = [size for pair in zip([1] * rank, sizes, strict=True) for size in pair]
    spread = [size for pair in zip(counts, sizes, strict=True) for size in pair]
    whole = [count * size for count, size in zip(counts, sizes, strict=True)]
    return reshape(broadcast_to(reshape(x, split), spread), whole)


def resize(a: Any, new_shape: Any) -> Value:
    """The elements in row-major order, from the first again as often as it takes."""
    x, sizes = ravel(asarray(a)), canonical_shape(new_shape, "resize")
    wanted = math.prod(sizes)
    if any(size < 0 for size in sizes):
        raise ShapeError(f"poot.numpy.resize: {sizes} is no shape")
    if not x.size:
        return zeros(sizes, x.type.dtype)
    repeated = tile(x, -(-wanted // x.size))
    return reshape(repeated[:wanted], sizes)


# --- padding ----------------------------------------------------------------

_INDEX_MODES = ("edge", "reflect", "symmetric", "wrap")


def pad(
    array: Any, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0
) -> Value:
    """Put elements around: a constant, or some of the array's own.

    `pad_width` is one number, (before, after), or such a pair an axis.
    """
    x = asarray(array)
    widths = _pairs("pad_width", np.asarray(pad_width), x.ndim)
    if widths.dtype.kind not in "iu" or (widths < 0).any():
        raise ShapeError(
            f"poot.numpy.pad: widths are {widths.tolist()}, takes integers from 0 up"
        )
    pairs = [(int(low), int(high)) for low, high in widths]
    if mode == "constant":
        return _padded(x, pairs, constant_values)
    if mode not in _INDEX_MODES:
        raise ArgumentError(
            f"poot.numpy.pad: mode is {mode!r}, takes 'constant', "
            f"{', '.join(map(repr, _INDEX_MODES))}"
        )
    for axis, ends in enumerate(pairs):
        if ends == (0, 0):
            continue
        if not x.shape[axis]:
            raise ShapeError(
                f"poot.numpy.pad: axis {axis} of {x.shape} has no element for mode "
                f"{mode!r}; use 'constant'"
            )
        positions = np.arange(x.shape[axis])
        x = moving.gathered(x, np.pad(positions, ends, mode), axis)  # type: ignore[call-overload]
    return x


def _pairs(name: str, given: np.ndarray[Any, Any], ndim: int) -> np.ndarray[Any, Any]:
    """One value, one pair, or a pair an axis, as a pair an axis."""
    try:
        return np.broadcast_to(given, (ndim, 2))
    except ValueError:
        raise ShapeError(
            f"poot.numpy.pad: {name} has shape {given.shape}; takes one value, a pair "
            f"(before, after), or a pair for each of {ndim} axes"
        ) from None


def _padded(x: Value, pairs: list[tuple[int, int]], constants: Any) -> Value:
    dtype = x.type.dtype
    if (is_value(constants) and not constants.ndim) or np.isscalar(constants):
        value = _element(constants, dtype)
        config = tuple((low, high, 0) for low, high in pairs)
        return result_like(x, bound(Pad(config), x, value)) if x.ndim else x
    # Axis by axis, so that corners have the constants of the later axis.
    values = _pairs("constant_values", np.asarray(constants), x.ndim)
    for axis, ends in enumerate(pairs):
        for side, width in enumerate(ends):
            config = tuple(
                ((width, 0, 0), (0, width, 0))[side] if i == axis else (0, 0, 0)
                for i in range(x.ndim)
            )
            value = _element(values[axis, side], dtype)
            x = result_like(x, bound(Pad(config), x, value))
    return x


def _element(constant: Any, dtype: DType) -> Value | Scalar:
    """A constant in the array's dtype, saturating as casts do."""
    if dtype.is_float:
        return converted(constant, dtype)
    return converted(as_value(constant), dtype)


# --- triangles and differences ----------------------------------------------


def tril(m: Any, k: Any = 0) -> Value:
    """Zeros above the k-th diagonal of the last two axes."""
    return _triangular("tril", m, k, keeps_lower=True)


def triu(m: Any, k: Any = 0) -> Value:
    """Zeros below the k-th diagonal of the last two axes."""
    return _triangular("triu", m, k - 1, keeps_lower=False)


def _triangular(where: str, m: Any, k: Any, keeps_lower: bool) -> Value:
    x = _with_axes(asarray(m), 2, where)
    zero = Scalar.of(0, x.type.dtype)
    choices = (x, zero) if keeps_lower else (zero, x)
    rows, columns = x.shape[-2:]
    kept = arithmetic.select(triangle(rows, columns, k), *choices)
    return kept.with_weak(x.weak_type)


def diff(
    a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None
) -> Value:
    """Differences of neighbours along an axis, n times; of bools: where they differ."""
    x = _with_axes(asarray(a), 1, "diff")
    times = operator.index(n)
    if times < 0:
        raise ShapeError(f"poot.numpy.diff: {times} times, takes 0 or more")
    place = canonical_axis(axis, x.ndim, "diff")
    ends = [_end(end, x, place) for end in (prepend, append)]
    parts = [part for part in (ends[0], x, ends[1]) if part is not None]
    x = concatenate(parts, place) if len(parts) > 1 else x
    is_bool = x.type.dtype.is_bool
    subtract = arithmetic.not_equal if is_bool else arithmetic.subtract
    for _ in range(min(times, x.shape[place])):
        size = x.shape[place]
        later = bound(Slice(place, 1, size), x)
        x = subtract(later, bound(Slice(place, 0, size - 1), x))
    return x


def _end(end: Any, x: Value, axis: int) -> Value | None:
    """What `diff` puts in front or behind: an array, or one number for all rows."""
    if end is None:
        return None
    value = asarray(end)
    if value.ndim:
        return value
    shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    return broadcast_to(value, shape)


def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Value:
    """Differences of neighbours in row-major order, between what is put at the ends."""
    x = ravel(asarray(ary))
    inner = arithmetic.subtract(x[1:], x[:-1])
    ends = [None if end is None else ravel(asarray(end)) for end in (to_begin, to_end)]
    parts = [part for part in (ends[0], inner, ends[1]) if part is not None]
    for part in parts:
        if part.type.dtype is not x.type.dtype and not part.weak_type:
            raise DTypeError(
                f"poot.numpy.ediff1d: an end is {part.type.dtype}, the array "
                f"{x.type.dtype}; takes one dtype"
            )
    return concatenate([part.astype(x.dtype) for part in parts])


def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Value:
    """The area under `y` along an axis by the trapezoid rule, at `x` or steps of dx."""
    heights = moveaxis(asarray(y), axis, -1)
    if not heights.type.dtype.is_float:
        heights = heights.astype(float)
    if x is not None:
        places = asarray(x)
        dx = diff(places if places.ndim == 1 else moveaxis(places, axis, -1))
    sums = arithmetic.add(heights[..., 1:], heights[..., :-1])
    return arithmetic.multiply(arithmetic.multiply(sums, dx).sum(-1), 0.5)
