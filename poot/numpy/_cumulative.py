"""Scans along an axis: without NaN, and by the array API's names."""

from __future__ import annotations

from typing import Any

from poot.core.errors import ShapeError
from poot.core.ops.cumulative import CumulativeOp
from poot.interpreters.arithmetic import not_equal, select
from poot.interpreters.cumulative import accumulated, cumprod, cumsum
from poot.interpreters.methods import Value
from poot.interpreters.promotion import as_value
from poot.interpreters.shaping import canonical_axis
from poot.numpy._creation import full
from poot.numpy._joining import concatenate


def _without_nan(a: Any, where: str, neutral: int) -> Value:
    x = as_value(a, where)
    if not x.type.dtype.is_float:
        return x
    return select(not_equal(x, x), neutral, x).with_weak(x.weak_type)


def nancumsum(a: Any, axis: Any = None, dtype: Any = None, out: None = None) -> Value:
    """`cumsum` with NaN as 0."""
    return cumsum(_without_nan(a, "nancumsum", 0), axis, dtype, out)


def nancumprod(a: Any, axis: Any = None, dtype: Any = None, out: None = None) -> Value:
    """`cumprod` with NaN as 1."""
    return cumprod(_without_nan(a, "nancumprod", 1), axis, dtype, out)


def cumulative_sum(
    x: Any, /, *, axis: Any = None, dtype: Any = None, include_initial: bool = False
) -> Value:
    """The sum of each element and those before it; narrow integers are widened.

    Arrays of several axes need `axis`. With `include_initial` a 0 stands in front.
    """
    return _standard(CumulativeOp.SUM, x, axis, dtype, include_initial)


def cumulative_prod(
    x: Any, /, *, axis: Any = None, dtype: Any = None, include_initial: bool = False
) -> Value:
    """The product of each element and those before it; narrow integers are widened.

    Arrays of several axes need `axis`. With `include_initial` a 1 stands in front.
    """
    return _standard(CumulativeOp.PROD, x, axis, dtype, include_initial)


def _standard(
    op: CumulativeOp, x: Any, axis: Any, dtype: Any, include_initial: bool
) -> Value:
    where = f"cumulative_{op.value}"
    x = as_value(x, where)
    if x.ndim == 0 or (axis is None and x.ndim > 1):
        raise ShapeError(
            f"poot.numpy.{where}: given an array of {x.ndim} axes; takes one of one "
            "axis, or of several and the number of one of them as `axis`"
        )
    place = canonical_axis(0 if axis is None else axis, x.ndim, where)
    found = accumulated(where, op, x, place, dtype, widen=True)
    if not include_initial:
        return found
    shape = [1 if i == place else size for i, size in enumerate(x.shape)]
    first = full(shape, 0 if op is CumulativeOp.SUM else 1, found.dtype)
    return concatenate((first, found), place)
