"""JAX's `numpy.linalg`, as far as sums of products go: nothing is decomposed."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from poot.core.errors import ArgumentError, ShapeError
from poot.interpreters import reductions
from poot.interpreters.arithmetic import absolute, multiply, not_equal, power
from poot.interpreters.contraction import matmul as _matmul
from poot.interpreters.methods import Value
from poot.interpreters.promotion import cast_to
from poot.interpreters.shaping import (
    broadcast_to,
    canonical_axes,
    canonical_axis,
    reshape,
    swapaxes,
)
from poot.numpy import _diagonal, _products
from poot.numpy._creation import asarray, eye
from poot.numpy._einsum import einsum
from poot.numpy._elementwise import sqrt
from poot.numpy._operands import in_compute_dtype

__all__ = [
    "cross",
    "diagonal",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_transpose",
    "multi_dot",
    "norm",
    "outer",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Value:
    """The norm of vectors along one axis or of matrices along two, in a float dtype.

    Of vectors: `ord` 2 (the default), inf, -inf, 0 or any power. Of matrices: "fro"
    (the default), 1, -1, inf and -inf; those that need singular values are not there.
    """
    value = asarray(x)
    if axis is None:
        if ord is None:
            return vector_norm(value, axis=None, keepdims=keepdims)
        if value.ndim not in (1, 2):
            raise ShapeError(
                f"poot.numpy.linalg.norm: ord {ord!r} of {value.ndim} axes; name one "
                "axis or two"
            )
    axes = canonical_axes(axis, value.ndim, "poot.numpy.linalg.norm")
    if len(axes) == 1:
        order = 2 if ord is None else ord
        return vector_norm(value, axis=axes[0], keepdims=keepdims, ord=order)
    if len(axes) == 2:
        return _matrix_norm(value, "fro" if ord is None else ord, axes, keepdims)
    raise ShapeError(
        f"poot.numpy.linalg.norm: {len(axes)} axes; takes 1 for vectors, 2 for matrices"
    )


def vector_norm(
    x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2
) -> Value:
    """The norm of vectors along axes, of all elements without `axis`."""
    value = asarray(x)
    axes = canonical_axes(axis, value.ndim, "poot.numpy.linalg.vector_norm")
    if isinstance(ord, str):
        raise ArgumentError(
            f"poot.numpy.linalg.vector_norm: ord is {ord!r}, takes a number"
        )

    def found(v: Value) -> Value:
        return _vector_norm(v, ord, axes, keepdims)

    return in_compute_dtype("linalg.vector_norm", found, value)


def _vector_norm(x: Value, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Value:
    if ord == 2:
        return sqrt(reductions.sum(multiply(x, x), axes, keepdims=keepdims))
    if ord == math.inf:
        return reductions.max(absolute(x), axes, keepdims=keepdims)
    if ord == -math.inf:
        return reductions.min(absolute(x), axes, keepdims=keepdims)
    if ord == 0:
        count = cast_to(not_equal(x, 0), x.type.dtype)
        return reductions.sum(count, axes, keepdims=keepdims)
    size = absolute(x)
    if ord == 1:
        return reductions.sum(size, axes, keepdims=keepdims)
    total = reductions.sum(power(size, ord), axes, keepdims=keepdims)
    return power(total, 1 / ord)


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Value:
    """The norm of matrices in the last two axes."""
    value = asarray(x)
    if value.ndim < 2:
        raise ShapeError(
            f"poot.numpy.linalg.matrix_norm: {value.shape} is no matrix, needs 2 axes"
        )
    return _matrix_norm(value, ord, (value.ndim - 2, value.ndim - 1), keepdims)


def _matrix_norm(
    value: Value, ord: Any, axes: tuple[int, ...], keepdims: bool
) -> Value:
    if ord in ("fro", "f"):
        return vector_norm(value, axis=axes, keepdims=keepdims)
    if ord not in (1, -1, math.inf, -math.inf):
        raise ArgumentError(
            f"poot.numpy.linalg: ord is {ord!r}; takes 'fro', 1, -1, inf and -inf of "
            "matrices: singular values are not there"
        )
    row, column = axes
    along, across = (row, column) if abs(ord) == 1 else (column, row)
    choose: Callable[..., Value] = reductions.max if ord > 0 else reductions.min

    def found(v: Value) -> Value:
        sums = reductions.sum(absolute(v), along, keepdims=True)
        chosen = choose(sums, across, keepdims=True)
        sizes = [n for axis, n in enumerate(chosen.shape) if axis not in axes]
        return chosen if keepdims else reshape(chosen, sizes)

    return in_compute_dtype("linalg.norm", found, value)


def matrix_power(a: Any, n: int) -> Value:
    """The product of `n` copies of the matrices in the last two axes, for n >= 0."""
    x, count = asarray(a), operator.index(n)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError(
            f"poot.numpy.linalg.matrix_power: {x.shape} holds no square matrices"
        )
    if count < 0:
        raise ArgumentError(
            f"poot.numpy.linalg.matrix_power: n is {count}; negative powers need an "
            "inverse, which is not there"
        )
    if count == 0:
        return broadcast_to(eye(x.shape[-1], dtype=x.type.dtype), x.shape)
    result: Value | None = None
    while True:
        if count % 2:
            result = x if result is None else _matmul(result, x)
        count //= 2
        if not count:
            assert result is not None
            return result
        x = _matmul(x, x)


def multi_dot(arrays: Sequence[Any], *, precision: Any = None) -> Value:
    """The product of matrices in the cheapest order; the ends may be vectors."""
    values = [asarray(array) for array in arrays]
    count = len(values)
    if count < 2 or count > len(_LETTERS) - 1:
        raise ArgumentError(
            f"poot.numpy.linalg.multi_dot: {count} arrays, takes 2 to "
            f"{len(_LETTERS) - 1}"
        )
    terms = [_LETTERS[place : place + 2] for place in range(count)]
    if values[0].ndim == 1:
        terms[0] = terms[0][1]
    if values[-1].ndim == 1:
        terms[-1] = terms[-1][0]
    ends = terms[0][: len(terms[0]) - 1] + terms[-1][1:]
    return einsum(f"{','.join(terms)}->{ends}", *values, precision=precision)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Value:
    """The sums of the diagonals of matrices in the last two axes."""
    return _diagonal.trace(x, offset, -2, -1, dtype)


def diagonal(x: Any, /, *, offset: int = 0) -> Value:
    """The diagonals of matrices in the last two axes."""
    return _diagonal.diagonal(x, offset, -2, -1)


def matrix_transpose(x: Any, /) -> Value:
    """Matrices with rows and columns exchanged."""
    value = asarray(x)
    if value.ndim < 2:
        raise ShapeError(
            f"poot.numpy.linalg.matrix_transpose: {value.shape} is no matrix, needs 2 "
            "axes"
        )
    return swapaxes(value, -1, -2)


def outer(x1: Any, x2: Any, /) -> Value:
    """Every element of a vector times every element of another."""
    x, y = asarray(x1), asarray(x2)
    if x.ndim != 1 or y.ndim != 1:
        raise ShapeError(
            f"poot.numpy.linalg.outer: {x.shape} and {y.shape}, takes vectors"
        )
    return _products.outer(x, y)


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Value:
    """The vector product of vectors of 3 elements along an axis."""
    x, y = asarray(x1), asarray(x2)
    for v in (x, y):
        if v.shape[canonical_axis(axis, v.ndim, "poot.numpy.linalg.cross")] != 3:
            raise ShapeError(
                f"poot.numpy.linalg.cross: {x.shape} and {y.shape} along axis {axis}; "
                "takes vectors of 3 elements"
            )
    return _products.cross(x, y, axis=axis)


def tensordot(
    x1: Any,
    x2: Any,
    /,
    *,
    axes: Any = 2,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Value:
    """The sums of products over pairs of axes, or over so many last and first ones."""
    return _products.tensordot(
        x1, x2, axes, preferred_element_type, precision=precision
    )


def matmul(
    x1: Any, x2: Any, /, *, precision: Any = None, preferred_element_type: Any = None
) -> Value:
    """The product of matrices in the last two axes; leading axes broadcast."""
    return _matmul(x1, x2, preferred_element_type, precision=precision)


def vecdot(
    x1: Any,
    x2: Any,
    /,
    *,
    axis: int = -1,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Value:
    """The sums of products of vectors along an axis; the other axes broadcast."""
    return _products.vecdot(
        x1,
        x2,
        axis=axis,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )
