"""Diagonals of matrices."""

from __future__ import annotations

import operator
from typing import Any

from poot.core.dtypes import Scalar
from poot.core.errors import ShapeError
from poot.core.ops.shape import Pad
from poot.interpreters import moving
from poot.interpreters.methods import Value
from poot.interpreters.promotion import result_like
from poot.interpreters.shaping import ravel, reshape
from poot.numpy._creation import asarray
from poot.numpy._operands import bound


def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Value:
    """The elements where two axes have one index (plus `offset`), as the last axis."""
    return moving.diagonal(asarray(a), offset, axis1, axis2)


def diag(v: Any, k: int = 0) -> Value:
    """The k-th diagonal of a matrix, or a matrix with this k-th diagonal."""
    x = asarray(v)
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1:
        raise ShapeError(f"poot.numpy.diag: given shape {x.shape}, takes 1 or 2 axes")
    offset = operator.index(k)
    size = x.size + abs(offset)
    start, length = moving.course(size, size, offset)
    covered = (length - 1) * (size + 1) + 1 if length else 0
    config = ((start, size * size - start - covered, size),)
    zero = Scalar.of(0, x.type.dtype)
    return reshape(result_like(x, bound(Pad(config), x, zero)), (size, size))


def diagflat(v: Any, k: int = 0) -> Value:
    """A matrix with the elements of any array, in row-major order, as its diagonal."""
    return diag(ravel(asarray(v)), k)


def trace(
    a: Any,
    offset: int = 0,
    axis1: int = 0,
    axis2: int = 1,
    dtype: Any = None,
    out: None = None,
) -> Value:
    """The sum of a diagonal."""
    return moving.trace(asarray(a), offset, axis1, axis2, dtype, out)
