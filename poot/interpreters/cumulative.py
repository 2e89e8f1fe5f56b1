"""Sums and products of each element of an axis and those before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from poot.core.ops.cumulative import Cumulative, CumulativeOp
from poot.interpreters.promotion import as_value, cast_to
from poot.interpreters.reductions import summed_dtype
from poot.interpreters.rounding import refuse_out
from poot.interpreters.shaping import as_element_type, canonical_axis, reshape

if TYPE_CHECKING:
    from poot.interpreters.methods import Value


def cumsum(a: Any, axis: Any = None, dtype: Any = None, out: None = None) -> Value:
    """The sum of each element and those before it, of all elements without `axis`.

    Floats are added up in f32 at least, and each sum is rounded once.
    """
    return accumulated("cumsum", CumulativeOp.SUM, a, axis, dtype, out)


def cumprod(a: Any, axis: Any = None, dtype: Any = None, out: None = None) -> Value:
    """The product of each element and those before it, of all without `axis`."""
    return accumulated("cumprod", CumulativeOp.PROD, a, axis, dtype, out)


def accumulated(
    where: str,
    op: CumulativeOp,
    a: Any,
    axis: Any,
    dtype: Any,
    out: None = None,
    *,
    widen: bool = False,
) -> Value:
    """The scan with NumPy's arguments, in the dtype of `a` unless another is given.

    Bools, and with `widen` all narrow integers, are counted in the default width. With
    the dtype bool it is a scan of truth values, which are counted.
    """
    refuse_out(where, out)
    x = as_value(a, where)
    if axis is None or x.ndim == 0:
        x = reshape(x, (x.size,))
    place = canonical_axis(0 if axis is None else axis, x.ndim, where)
    given = x.aval.type.dtype
    wanted = given if dtype is None else as_element_type(dtype)
    if dtype is None and (widen or given.is_bool):
        wanted = summed_dtype(given)
    compute = wanted
    if wanted.is_bool:
        x, compute = cast_to(x, wanted), summed_dtype(wanted)
    found: Value = Cumulative(op, place).bind(cast_to(x, compute))
    return cast_to(found, wanted).with_weak(False)
