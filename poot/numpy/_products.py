"""Products of vectors and matrices."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from poot.core.errors import ShapeError
from poot.core.ops.elementwise import broadcast_shapes
from poot.interpreters.arithmetic import add, multiply, power, subtract
from poot.interpreters.contraction import dot, dot_general, matmul
from poot.interpreters.methods import Value
from poot.interpreters.promotion import promote
from poot.interpreters.shaping import (
    broadcast_to,
    canonical_axes,
    expand_dims,
    moveaxis,
    ravel,
    reshape,
    squeeze,
)
from poot.numpy._creation import arange, asarray, zeros_like
from poot.numpy._joining import concatenate


def _pair(a: Any, b: Any) -> tuple[Value, Value]:
    return asarray(a), asarray(b)


def vdot(
    a: Any, b: Any, preferred_element_type: Any = None, *, precision: Any = None
) -> Value:
    """The sum of products of all elements."""
    x, y = (ravel(v) for v in _pair(a, b))
    return dot(x, y, preferred_element_type, precision=precision)


def inner(
    a: Any, b: Any, preferred_element_type: Any = None, *, precision: Any = None
) -> Value:
    """The sums of products over the last axes of both."""
    x, y = _pair(a, b)
    if not x.ndim or not y.ndim:
        return dot(x, y, preferred_element_type, precision=precision)
    return tensordot(x, y, ((-1,), (-1,)), preferred_element_type, precision=precision)


def outer(a: Any, b: Any) -> Value:
    """Every element of `a` times every element of `b`."""
    x, y = (ravel(v) for v in _pair(a, b))
    return multiply(expand_dims(x, 1), expand_dims(y, 0))


def kron(a: Any, b: Any) -> Value:
    """Every element of `a` times the whole of `b`, in blocks."""
    x, y = _pair(a, b)
    rank = max(x.ndim, y.ndim)
    sizes = [(1,) * (rank - v.ndim) + v.shape for v in (x, y)]
    left = [size for own in sizes[0] for size in (own, 1)]
    right = [size for own in sizes[1] for size in (1, own)]
    product = multiply(reshape(x, left), reshape(y, right))
    return reshape(product, [m * n for m, n in zip(*sizes, strict=True)])


def tensordot(
    a: Any,
    b: Any,
    axes: Any = 2,
    preferred_element_type: Any = None,
    *,
    precision: Any = None,
) -> Value:
    """The sums of products over pairs of axes, or over so many last and first ones."""
    x, y = _pair(a, b)
    own, other = _contracted(x, y, axes)
    sizes = [x.shape[axis] for axis in own]
    if sizes != [y.shape[axis] for axis in other]:
        raise ShapeError(
            f"tensordot: axes {own} of {x.shape} and {other} of {y.shape} are "
            "contracted; the sizes must be equal"
        )
    return dot_general(
        x,
        y,
        (own, other),
        preferred_element_type=preferred_element_type,
        precision=precision,
    )


def _contracted(x: Value, y: Value, axes: Any) -> tuple[list[int], list[int]]:
    if not isinstance(axes, Sequence):
        count = operator.index(axes)
        if not 0 <= count <= min(x.ndim, y.ndim):
            raise ShapeError(
                f"tensordot: {count} axes of {x.shape} and {y.shape}; both need as many"
            )
        return list(range(x.ndim - count, x.ndim)), list(range(count))
    if len(axes) != 2:
        raise ShapeError(f"tensordot: axes are {axes!r}, takes a number or a pair")
    own = list(canonical_axes(axes[0], x.ndim, "tensordot"))
    other = list(canonical_axes(axes[1], y.ndim, "tensordot"))
    if len(own) != len(other):
        raise ShapeError(
            f"tensordot: {len(own)} axes of the one and {len(other)} of the other; "
            "takes as many of both"
        )
    return own, other


def _vectors(where: str, axis: int, *xs: Any) -> list[Value]:
    """Operands of one dtype with their vectors in the last axis."""
    moved = []
    for x in promote(where, *map(asarray, xs)).operands:
        if not x.ndim:
            raise ShapeError(f"poot.numpy.{where}: a scalar is no vector")
        moved.append(moveaxis(x, axis, -1))
    return moved


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
    x, y = _vectors("vecdot", axis, x1, x2)
    product = matmul(
        expand_dims(x, -2),
        expand_dims(y, -1),
        preferred_element_type,
        precision=precision,
    )
    return squeeze(product, (-2, -1))


def matvec(x1: Any, x2: Any, /) -> Value:
    """Matrices times vectors, both in the last axes; the other axes broadcast."""
    (x,), (y,) = _vectors("matvec", -1, x1), _vectors("matvec", -1, x2)
    if x.ndim < 2:
        raise ShapeError(f"poot.numpy.matvec: {x.shape} is no matrix, needs 2 axes")
    return squeeze(matmul(x, expand_dims(y, -1)), -1)


def vecmat(x1: Any, x2: Any, /) -> Value:
    """Vectors times matrices, both in the last axes; the other axes broadcast."""
    (x,), (y,) = _vectors("vecmat", -1, x1), _vectors("vecmat", -1, x2)
    if y.ndim < 2:
        raise ShapeError(f"poot.numpy.vecmat: {y.shape} is no matrix, needs 2 axes")
    return squeeze(matmul(expand_dims(x, -2), y), -2)


def cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None
) -> Value:
    """The vector product of vectors of 3 (or 2) elements along an axis.

    Of two vectors of 2 elements it is a scalar, what the third element would be.
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = _pair(a, b)
    x, y = moveaxis(x, axisa, -1), moveaxis(y, axisb, -1)
    sizes = {x.shape[-1], y.shape[-1]}
    if not sizes <= {2, 3}:
        raise ShapeError(
            f"poot.numpy.cross: vectors of {x.shape[-1]} and {y.shape[-1]} elements, "
            "takes 2 or 3"
        )

    def term(i: int, j: int) -> Value:
        return subtract(_times(x, y, i, j), _times(x, y, j, i))

    if sizes == {2}:
        return term(0, 1)
    parts = [expand_dims(term(i, j), -1) for i, j in ((1, 2), (2, 0), (0, 1))]
    return moveaxis(concatenate(parts, -1), -1, axisc)


def _times(x: Value, y: Value, i: int, j: int) -> Value:
    """Element i of one vector times j of the other; a missing third one is 0."""
    left = x[..., i] if i < x.shape[-1] else 0
    right = y[..., j] if j < y.shape[-1] else 0
    product = multiply(left, right)
    shape = broadcast_shapes("cross", x.shape[:-1], y.shape[:-1])
    return broadcast_to(product, shape)


def vander(x: Any, N: int | None = None, increasing: bool = False) -> Value:
    """The powers of each element of a vector as a row: from N - 1 down to 0."""
    vector = asarray(x)
    if vector.ndim != 1:
        raise ShapeError(
            f"poot.numpy.vander: given shape {vector.shape}, takes one axis"
        )
    count = vector.size if N is None else operator.index(N)
    if count < 0:
        raise ShapeError(f"poot.numpy.vander: N is {count}, takes 0 or more")
    exponents = arange(count)
    if not increasing:
        exponents = exponents[::-1]
    return power(expand_dims(vector, -1), exponents)


def polyval(p: Any, x: Any) -> Value:
    """The polynomial with the coefficients `p`, highest power first, at `x`."""
    coefficients, at = _pair(p, x)
    if coefficients.ndim != 1:
        raise ShapeError(
            f"poot.numpy.polyval: the coefficients have shape {coefficients.shape}, "
            "take one axis"
        )
    result = multiply(zeros_like(at), zeros_like(coefficients[:1].sum()))
    for place in range(coefficients.size):
        result = add(multiply(result, at), coefficients[place])
    return result
