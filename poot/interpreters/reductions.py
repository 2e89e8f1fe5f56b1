"""Functions that combine the elements along axes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from poot.core import dtypes
from poot.core.dtypes import DType, Kind
from poot.core.errors import ArgumentError, DTypeError, ShapeError
from poot.core.ops.elementwise import UnaryOp
from poot.core.ops.reduce import ArgReduce, ArgReduceOp, Reduce, ReduceOp
from poot.interpreters.arithmetic import (
    add,
    bitwise_and,
    bitwise_or,
    greater,
    multiply,
    select,
    subtract,
    true_divide,
    unary,
)
from poot.interpreters.promotion import (
    as_value,
    cast_to,
    default_int,
    inexact,
    result_like,
)
from poot.interpreters.rounding import maximum, minimum, refuse_out
from poot.interpreters.shaping import (
    as_element_type,
    broadcast_to,
    canonical_axes,
    canonical_axis,
    reshape,
    transpose,
)

if TYPE_CHECKING:
    from poot.interpreters.methods import Value

_COMBINE = {
    ReduceOp.SUM: add,
    ReduceOp.PROD: multiply,
    ReduceOp.MAX: maximum,
    ReduceOp.MIN: minimum,
    ReduceOp.ANY: bitwise_or,
    ReduceOp.ALL: bitwise_and,
}
_NEUTRAL = {
    ReduceOp.SUM: 0,
    ReduceOp.PROD: 1,
    ReduceOp.ANY: False,
    ReduceOp.ALL: True,
}


def reduce(op: ReduceOp, x: Value, axes: tuple[int, ...], keepdims: bool) -> Value:
    """Combine along `axes` by one Reduce, after bringing them together."""
    if not axes:
        return x
    if len(axes) == 1:
        return result_like(x, Reduce(op, axes[0], keepdims).bind(x))
    axes = tuple(sorted(axes))
    kept = _others(x, axes)
    first = axes[0]
    total = math.prod(x.shape[axis] for axis in axes)
    if axes[-1] - first + 1 == len(axes):
        merged = reshape(x, [*x.shape[:first], total, *x.shape[first + len(axes) :]])
    else:
        first = len(kept)
        moved = transpose(x, [*kept, *axes])
        merged = reshape(moved, [*(x.shape[axis] for axis in kept), total])
    reduced = result_like(x, Reduce(op, first).bind(merged))
    return reshape(reduced, _kept_shape(x, axes)) if keepdims else reduced


def _kept_shape(x: Value, axes: tuple[int, ...]) -> list[int]:
    return [1 if axis in axes else size for axis, size in enumerate(x.shape)]


def _reduction(
    op: ReduceOp, x: Value, axis: Any, keepdims: bool, initial: Any, where: Any
) -> Value:
    """A reduction with NumPy's arguments, in the dtype of `x`."""
    axes = canonical_axes(axis, x.ndim, op.value)
    if where is not None:
        x = _masked(op, x, where, initial)
    if initial is None:
        return reduce(op, x, axes, keepdims)
    dtype = x.aval.type.dtype
    start = cast_to(as_value(initial), dtype).with_weak(False)
    if math.prod(x.shape[axis] for axis in axes) == 0:
        sizes = _kept_shape(x, axes)
        shape = sizes if keepdims else [x.shape[i] for i in _others(x, axes)]
        return broadcast_to(start, shape)
    return _COMBINE[op](start, reduce(op, x, axes, keepdims))


def _others(x: Value, axes: tuple[int, ...]) -> list[int]:
    return [axis for axis in range(x.ndim) if axis not in axes]


def _masked(op: ReduceOp, x: Value, where: Any, initial: Any) -> Value:
    """`x` with a neutral element where the mask is false."""
    neutral = _NEUTRAL.get(op, initial)
    if neutral is None:
        raise ShapeError(
            f"{op.value}: with `where` it needs `initial`, since {op.value} of no "
            "element has no value"
        )
    mask = cast_to(as_value(where, op.value), dtypes.bool_)
    fill = cast_to(as_value(neutral), x.aval.type.dtype)
    return select(mask, x, fill).with_weak(x.weak_type)


# --- sums and products ------------------------------------------------------


def summed_dtype(dtype: DType) -> DType:
    """Narrow integers and bools add up in the default width."""
    if dtype.is_bool:
        return default_int()
    if not dtype.is_integer or dtype.itemsize >= default_int().itemsize:
        return dtype
    if dtype.is_signed:
        return default_int()
    return dtypes.uint64 if default_int() is dtypes.int64 else dtypes.uint32


def _accumulated(
    op: ReduceOp, x: Any, dtype: Any, promote: bool, options: dict[str, Any]
) -> Value:
    x = as_value(x, op.value)
    wanted = x.aval.type.dtype
    if dtype is not None:
        wanted = as_element_type(dtype)
    elif promote or wanted.is_bool:
        wanted = summed_dtype(wanted)
    return _reduction(op, cast_to(x, wanted).with_weak(False), **options)


def sum(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
    promote_integers: bool = True,
) -> Value:
    """The sum along axes; floats are added in f32 at least and rounded once.

    Narrow integers are added in the default width, or else as they are.
    """
    refuse_out("sum", out)
    options = _options(axis, keepdims, initial, where)
    return _accumulated(ReduceOp.SUM, a, dtype, promote_integers, options)


def prod(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
    promote_integers: bool = True,
) -> Value:
    """The product along axes; integers as in `sum`."""
    refuse_out("prod", out)
    options = _options(axis, keepdims, initial, where)
    return _accumulated(ReduceOp.PROD, a, dtype, promote_integers, options)


def _options(axis: Any, keepdims: bool, initial: Any, where: Any) -> dict[str, Any]:
    return {"axis": axis, "keepdims": keepdims, "initial": initial, "where": where}


# --- extrema and truth ------------------------------------------------------


def max(
    a: Any,
    axis: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Value:
    """The largest element along axes; NaN if there is one."""
    refuse_out("max", out)
    options = _options(axis, keepdims, initial, where)
    return _reduction(ReduceOp.MAX, as_value(a, "max").with_weak(False), **options)


def min(
    a: Any,
    axis: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Value:
    """The smallest element along axes; NaN if there is one."""
    refuse_out("min", out)
    options = _options(axis, keepdims, initial, where)
    return _reduction(ReduceOp.MIN, as_value(a, "min").with_weak(False), **options)


def any(
    a: Any,
    axis: Any = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: Any = None,
) -> Value:
    """Whether an element along axes is not zero."""
    refuse_out("any", out)
    truth = cast_to(as_value(a, "any"), dtypes.bool_).with_weak(False)
    return _reduction(ReduceOp.ANY, truth, axis, keepdims, None, where)


def all(
    a: Any,
    axis: Any = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: Any = None,
) -> Value:
    """Whether no element along axes is zero."""
    refuse_out("all", out)
    truth = cast_to(as_value(a, "all"), dtypes.bool_).with_weak(False)
    return _reduction(ReduceOp.ALL, truth, axis, keepdims, None, where)


def argmax(a: Any, axis: Any = None, out: None = None, keepdims: bool = False) -> Value:
    """The index of the first largest element (the first NaN, if there is one)."""
    refuse_out("argmax", out)
    return _arg_reduction(ArgReduceOp.ARGMAX, a, axis, keepdims)


def argmin(a: Any, axis: Any = None, out: None = None, keepdims: bool = False) -> Value:
    """The index of the first smallest element (the first NaN, if there is one)."""
    refuse_out("argmin", out)
    return _arg_reduction(ArgReduceOp.ARGMIN, a, axis, keepdims)


def _arg_reduction(op: ArgReduceOp, x: Any, axis: Any, keepdims: bool) -> Value:
    x = as_value(x, op.value)
    if axis is None:
        flat = reshape(x, (x.size,))
        index: Value = ArgReduce(op, 0).bind(flat)
        index = reshape(index, (1,) * x.ndim) if keepdims else index
    else:
        index = ArgReduce(op, canonical_axis(axis, x.ndim, op.value), keepdims).bind(x)
    return cast_to(index, default_int())


def ptp(a: Any, axis: Any = None, out: None = None, keepdims: bool = False) -> Value:
    """The largest element along axes minus the smallest."""
    refuse_out("ptp", out)
    x = as_value(a, "ptp")
    highest = max(x, axis, keepdims=keepdims)
    return subtract(highest, min(x, axis, keepdims=keepdims))


# --- moments ----------------------------------------------------------------


def _moment_dtypes(x: Value, dtype: Any, where: str) -> tuple[DType, DType]:
    """The dtype of the result and the one to calculate in."""
    given = x.aval.type.dtype
    if given.kind is Kind.STORAGE:
        raise DTypeError(f"{where}: {given} is for storage only; cast it first")
    result = inexact(given) if dtype is None else as_element_type(dtype)
    if not result.is_float:
        raise DTypeError(f"{where}: the result is no {result}; give a float dtype")
    return result, result.compute


def _count(x: Value, axes: tuple[int, ...], where: Any) -> Any:
    """How many elements a result takes in: an int, or with a mask, values."""
    if where is None:
        return math.prod(x.shape[axis] for axis in axes)
    mask = broadcast_to(cast_to(as_value(where), dtypes.bool_), x.shape)
    return sum(mask, axes, keepdims=True)


def mean(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: Any = None,
) -> Value:
    """The average along axes; of no element: NaN. Halves are added up in f32."""
    refuse_out("mean", out)
    x = as_value(a, "mean")
    result, compute = _moment_dtypes(x, dtype, "mean")
    axes = canonical_axes(axis, x.ndim, "mean")
    average = _mean(cast_to(x, compute), axes, where)
    return _without(cast_to(average, result).with_weak(False), axes, keepdims)


def _mean(x: Value, axes: tuple[int, ...], where: Any) -> Value:
    total = sum(x, axes, keepdims=True, where=where)
    return _over(total, _count(x, axes, where))


def _over(total: Value, count: Any) -> Value:
    """`total / count`, the count as a float of the total's dtype."""
    if isinstance(count, int):
        return true_divide(total, float(count))
    return true_divide(total, cast_to(count, total.aval.type.dtype))


def _without(x: Value, axes: tuple[int, ...], keepdims: bool) -> Value:
    """Drop the axes that a reduction kept with size 1."""
    if keepdims:
        return x
    return reshape(x, [x.shape[axis] for axis in _others(x, axes)])


def var(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: Any = None,
    mean: Any = None,
    correction: float | None = None,
) -> Value:
    """The mean squared distance from the mean, over `count - ddof`.

    `correction` is the array API's name of `ddof`. `mean` is the mean if it is known,
    with the axes that are gone as size 1.
    """
    refuse_out("var", out)
    x = as_value(a, "var")
    ddof = _degrees("var", ddof, correction)
    result, compute = _moment_dtypes(x, dtype, "var")
    axes = canonical_axes(axis, x.ndim, "var")
    variance = _variance(cast_to(x, compute), axes, ddof, where, mean)
    return _without(cast_to(variance, result).with_weak(False), axes, keepdims)


def _degrees(where: str, ddof: float, correction: float | None) -> float:
    """How many degrees of freedom the mean takes, by either of its names."""
    if correction is None:
        return ddof
    if ddof:
        raise ArgumentError(f"{where}: ddof and correction are one thing; give one")
    return correction


def _variance(
    x: Value, axes: tuple[int, ...], ddof: float, where: Any, mean: Any
) -> Value:
    centred = subtract(x, _mean(x, axes, where) if mean is None else mean)
    squares = sum(multiply(centred, centred), axes, keepdims=True, where=where)
    count = _count(x, axes, where)
    if isinstance(count, int):
        degrees = float(count - ddof) if count > ddof else math.nan
        return true_divide(squares, degrees)
    some = cast_to(subtract(count, ddof), x.aval.type.dtype)
    return true_divide(squares, select(greater(some, 0), some, math.nan))


def std(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: Any = None,
    mean: Any = None,
    correction: float | None = None,
) -> Value:
    """The square root of the variance."""
    refuse_out("std", out)
    x = as_value(a, "std")
    ddof = _degrees("std", ddof, correction)
    result, compute = _moment_dtypes(x, dtype, "std")
    axes = canonical_axes(axis, x.ndim, "std")
    variance = _variance(cast_to(x, compute), axes, ddof, where, mean)
    deviation = cast_to(unary(UnaryOp.SQRT, variance), result).with_weak(False)
    return _without(deviation, axes, keepdims)
