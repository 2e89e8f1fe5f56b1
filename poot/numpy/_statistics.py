"""Reductions beyond those that arrays have as methods."""

from __future__ import annotations

import math
from typing import Any

from poot.core.errors import ShapeError
from poot.core.ops.elementwise import UnaryOp
from poot.core.ops.reduce import ReduceOp
from poot.interpreters import arithmetic, reductions
from poot.interpreters.arithmetic import bitwise_and, select, unary
from poot.interpreters.methods import Value
from poot.interpreters.promotion import as_value, cast_to, inexact, promote
from poot.interpreters.shaping import (
    broadcast_to,
    canonical_axes,
    canonical_axis,
    reshape,
    transpose,
)
from poot.numpy._creation import asarray, full
from poot.numpy._logic import truth


def count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Value:
    """How many elements along axes are not zero."""
    return reductions.sum(truth(a, "count_nonzero"), axis, keepdims=keepdims)


# --- weighted means ---------------------------------------------------------


def average(
    a: Any,
    axis: Any = None,
    weights: Any = None,
    returned: bool = False,
    *,
    keepdims: bool = False,
) -> Any:
    """The mean along axes, weighted; with the sum of weights if `returned`."""
    x = asarray(a)
    if weights is None:
        mean = reductions.mean(x, axis, keepdims=keepdims)
        axes = canonical_axes(axis, x.ndim, "average")
        count = math.prod(x.shape[i] for i in axes)
        return (mean, full(mean.shape, count, mean.dtype)) if returned else mean
    x, w = promote("average", x, _spread(asarray(weights), x, axis)).operands
    dtype = inexact(x.type.dtype)
    x, w = (cast_to(v, dtype.compute).with_weak(False) for v in (x, w))
    scale = reductions.sum(broadcast_to(w, x.shape), axis, keepdims=keepdims)
    total = reductions.sum(arithmetic.multiply(x, w), axis, keepdims=keepdims)
    mean = cast_to(arithmetic.true_divide(total, scale), dtype)
    return (mean, cast_to(scale, dtype)) if returned else mean


def _spread(weights: Value, x: Value, axis: Any) -> Value:
    """Weights of the array's shape, or of the shape of the averaged axes."""
    if weights.shape == x.shape:
        return weights
    axes = () if axis is None else canonical_axes(axis, x.ndim, "average")
    if weights.shape != tuple(x.shape[i] for i in axes):
        raise ShapeError(
            f"poot.numpy.average: weights have shape {weights.shape}, takes "
            f"{x.shape}, or the sizes of the axes that are averaged"
        )
    # The weights' axes in rising order of where they stand in the array.
    order = sorted(range(len(axes)), key=axes.__getitem__)
    sizes = [size if i in axes else 1 for i, size in enumerate(x.shape)]
    return reshape(transpose(weights, order), sizes)


# --- without NaN ------------------------------------------------------------


def _not_nan(x: Value, where: Any) -> Any:
    """The mask of what counts: of floats without NaN."""
    if not x.type.dtype.is_float:
        return where
    numbers = unary(UnaryOp.NOT, unary(UnaryOp.ISNAN, x).with_weak(False))
    return numbers if where is None else bitwise_and(numbers, truth(where, "where"))


def nansum(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    *,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Value:
    """The sum along axes, NaN counting as 0."""
    x = as_value(a, "nansum")
    mask = _not_nan(x, where)
    return reductions.sum(
        x, axis, dtype, keepdims=keepdims, initial=initial, where=mask
    )


def nanprod(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    *,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Value:
    """The product along axes, NaN counting as 1."""
    x = as_value(a, "nanprod")
    mask = _not_nan(x, where)
    return reductions.prod(
        x, axis, dtype, keepdims=keepdims, initial=initial, where=mask
    )


def nanmean(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    *,
    keepdims: bool = False,
    where: Any = None,
) -> Value:
    """The mean along axes of what is not NaN; of nothing: NaN."""
    x = as_value(a, "nanmean")
    return reductions.mean(x, axis, dtype, keepdims=keepdims, where=_not_nan(x, where))


def nanvar(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    *,
    ddof: int = 0,
    keepdims: bool = False,
    where: Any = None,
    mean: Any = None,
) -> Value:
    """The variance along axes of what is not NaN."""
    x = as_value(a, "nanvar")
    mask = _not_nan(x, where)
    options = {"ddof": ddof, "keepdims": keepdims, "where": mask, "mean": mean}
    return reductions.var(x, axis, dtype, **options)


def nanstd(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    *,
    ddof: int = 0,
    keepdims: bool = False,
    where: Any = None,
    mean: Any = None,
) -> Value:
    """The standard deviation along axes of what is not NaN."""
    x = as_value(a, "nanstd")
    mask = _not_nan(x, where)
    options = {"ddof": ddof, "keepdims": keepdims, "where": mask, "mean": mean}
    return reductions.std(x, axis, dtype, **options)


def nanmax(
    a: Any,
    axis: Any = None,
    *,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Value:
    """The largest element along axes that is not NaN; NaN if all are."""
    return _nan_extremum(ReduceOp.MAX, a, axis, keepdims, initial, where)


def nanmin(
    a: Any,
    axis: Any = None,
    *,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Value:
    """The smallest element along axes that is not NaN; NaN if all are."""
    return _nan_extremum(ReduceOp.MIN, a, axis, keepdims, initial, where)


def _nan_extremum(
    op: ReduceOp, a: Any, axis: Any, keepdims: bool, initial: Any, where: Any
) -> Value:
    x = as_value(a, f"nan{op.value}")
    reduce = reductions.max if op is ReduceOp.MAX else reductions.min
    if not x.type.dtype.is_float or (initial is None and where is not None):
        return reduce(x, axis, keepdims=keepdims, initial=initial, where=where)
    numbers = _not_nan(x, None)
    least = -math.inf if op is ReduceOp.MAX else math.inf
    filled = select(numbers, x, least)
    result = reduce(filled, axis, keepdims=keepdims, initial=initial, where=where)
    if initial is not None:
        return result
    return select(reductions.any(numbers, axis, keepdims=keepdims), result, math.nan)


def nanargmax(a: Any, axis: Any = None, *, keepdims: bool = False) -> Value:
    """The index of the first largest element that is not NaN; -1 if all are."""
    return _nan_position(ReduceOp.MAX, a, axis, keepdims)


def nanargmin(a: Any, axis: Any = None, *, keepdims: bool = False) -> Value:
    """The index of the first smallest element that is not NaN; -1 if all are."""
    return _nan_position(ReduceOp.MIN, a, axis, keepdims)


def _nan_position(op: ReduceOp, a: Any, axis: Any, keepdims: bool) -> Value:
    x = as_value(a, f"nanarg{op.value}")
    find = reductions.argmax if op is ReduceOp.MAX else reductions.argmin
    if not x.type.dtype.is_float:
        return find(x, axis, keepdims=keepdims)
    if axis is not None:
        axis = canonical_axis(axis, x.ndim, f"nanarg{op.value}")
    numbers = _not_nan(x, None)
    least = -math.inf if op is ReduceOp.MAX else math.inf
    found = find(select(numbers, x, least), axis, keepdims=keepdims)
    return select(reductions.any(numbers, axis, keepdims=keepdims), found, -1)
