"""Diagonals of matrices."""

from __future__ import annotations

import operator
from typing import Any

from poot.core.dtypes import Scalar
from poot.core.errors import ShapeError
from poot.core.ops.shape import Pad, Slice
from poot.interpreters import reductions
from poot.interpreters.methods import Value
from poot.interpreters.promotion import result_like
from poot.interpreters.shaping import canonical_axes, reshape, transpose
from poot.numpy._creation import asarray
from poot.numpy._operands import bound


def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Value:
    """The elements where two axes have one index (plus `offset`), as the last axis."""
    x = asarray(a)
    if x.ndim < 2:
        raise ShapeError(f"poot.numpy.diagonal: given shape {x.shape}, needs 2 axes")
    first, second = canonical_axes((axis1, axis2), x.ndim, "diagonal")
    others = [axis for axis in range(x.ndim) if axis not in (first, second)]
    rows, columns = x.shape[first], x.shape[second]
    moved = transpose(x, [*others, first, second])
    flat = reshape(moved, (*(x.shape[axis] for axis in others), rows * columns))
    # In row-major order the next element is one row and one column further.
    step = columns + 1
    start, length = _course(rows, columns, operator.index(offset))
    end = start + (length - 1) * step + 1 if length else start
    return result_like(x, bound(Slice(len(others), start, end, step), flat))


def _course(rows: int, columns: int, offset: int) -> tuple[int, int]:
    """Where a diagonal starts in row-major order, and how long it is."""
    above, left = max(offset, 0), max(-offset, 0)
    length = max(0, min(rows - left, columns - above))
    return (left * columns + above if length else 0), length


def diag(v: Any, k: int = 0) -> Value:
    """The k-th diagonal of a matrix, or a matrix with this k-th diagonal."""
    x = asarray(v)
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1:
        raise ShapeError(f"poot.numpy.diag: given shape {x.shape}, takes 1 or 2 axes")
    offset = operator.index(k)
    size = x.size + abs(offset)
    start, length = _course(size, size, offset)
    covered = (length - 1) * (size + 1) + 1 if length else 0
    config = ((start, size * size - start - covered, size),)
    zero = Scalar.of(0, x.type.dtype)
    return reshape(result_like(x, bound(Pad(config), x, zero)), (size, size))


def trace(
    a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None
) -> Value:
    """The sum of a diagonal."""
    return reductions.sum(diagonal(a, offset, axis1, axis2), -1, dtype)
