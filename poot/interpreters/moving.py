"""Diagonals and repetition, behind the methods of arrays."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from poot.core.errors import ShapeError
from poot.core.ops.indexing import GatherMode
from poot.core.ops.shape import Slice
from poot.interpreters import reductions
from poot.interpreters.indexing import take_axis
from poot.interpreters.promotion import as_value, result_like
from poot.interpreters.shaping import (
    broadcast_to,
    canonical_axes,
    canonical_axis,
    ravel,
    reshape,
    transpose,
)

if TYPE_CHECKING:
    from poot.interpreters.methods import Value


def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Value:
    """The elements where two axes have one index (plus `offset`), as the last axis."""
    x = as_value(a, "diagonal")
    if x.ndim < 2:
        raise ShapeError(f"poot.numpy.diagonal: given shape {x.shape}, needs 2 axes")
    first, second = canonical_axes((axis1, axis2), x.ndim, "diagonal")
    others = [axis for axis in range(x.ndim) if axis not in (first, second)]
    rows, columns = x.shape[first], x.shape[second]
    moved = transpose(x, [*others, first, second])
    flat = reshape(moved, (*(x.shape[axis] for axis in others), rows * columns))
    # In row-major order the next element is one row and one column further.
    step = columns + 1
    start, length = course(rows, columns, operator.index(offset))
    end = start + (length - 1) * step + 1 if length else start
    return result_like(x, Slice(len(others), start, end, step).bind(flat))


def course(rows: int, columns: int, offset: int) -> tuple[int, int]:
    """Where a diagonal starts in row-major order, and how long it is."""
    above, left = max(offset, 0), max(-offset, 0)
    length = max(0, min(rows - left, columns - above))
    return (left * columns + above if length else 0), length


def trace(
    a: Any,
    offset: int = 0,
    axis1: int = 0,
    axis2: int = 1,
    dtype: Any = None,
    out: None = None,
) -> Value:
    """The sum of a diagonal."""
    return reductions.sum(diagonal(a, offset, axis1, axis2), -1, dtype, out)


def repeat(
    a: Any, repeats: Any, axis: int | None = None, *, total_repeat_length: Any = None
) -> Value:
    """Each element so many times in a row; `repeats` is known while tracing."""
    x = as_value(a, "repeat")
    if axis is None:
        x, axis = ravel(x), 0
    place = canonical_axis(axis, x.ndim, "repeat")
    counts = np.asarray(repeats)
    if counts.dtype.kind not in "iu" or counts.ndim > 1 or (counts < 0).any():
        raise ShapeError(
            f"poot.numpy.repeat: repeats are {counts!r}, takes integers from 0 up, one "
            "for all or one an element"
        )
    if counts.size == 1 and total_repeat_length is None:
        return _repeated(x, int(counts.reshape(())), place)
    if counts.size not in (1, x.shape[place]):
        raise ShapeError(
            f"poot.numpy.repeat: {counts.size} repeats for axis {place} of {x.shape}; "
            "takes one for all or one an element"
        )
    source = np.repeat(np.arange(x.shape[place]), counts)
    if total_repeat_length is not None:
        source = _of_length(source, operator.index(total_repeat_length))
    return gathered(x, source, place)


def _of_length(source: np.ndarray[Any, Any], length: int) -> np.ndarray[Any, Any]:
    """Cut, or go on with the last."""
    if length > source.size and not source.size:
        raise ShapeError("poot.numpy.repeat: no element is repeated to fill the length")
    return source[np.minimum(np.arange(length), source.size - 1)]


def _repeated(x: Value, count: int, axis: int) -> Value:
    before, after = x.shape[: axis + 1], x.shape[axis + 1 :]
    spread = broadcast_to(reshape(x, (*before, 1, *after)), (*before, count, *after))
    return reshape(spread, (*before[:-1], before[-1] * count, *after))


def gathered(x: Value, source: np.ndarray[Any, Any], axis: int) -> Value:
    """`x` at positions inside an axis that are known without data."""
    index = as_value(source.astype(np.int32))
    return take_axis(x, index, axis, GatherMode.PROMISE)
