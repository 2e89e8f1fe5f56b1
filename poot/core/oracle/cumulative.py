"""Each element combined with all before it along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from poot.core.ops.cumulative import Cumulative, CumulativeOp
from poot.core.oracle.order import from_order, in_order
from poot.core.oracle.table import Arithmetic, Array, impl

_C = CumulativeOp


def _accumulate(combine: np.ufunc, op: Cumulative, x: Array) -> Array:
    """`combine` along the axis in the dtype of `x`, from its end if `op` says so."""
    turned = np.flip(x, op.axis) if op.reverse else x
    with np.errstate(all="ignore"):
        held: Any = combine.accumulate(turned, op.axis, turned.dtype)
    return np.flip(held, op.axis) if op.reverse else held


@impl.define(Cumulative[_C.SUM])
def _sum(op: Cumulative, arithmetic: Arithmetic, x: Array) -> Array:
    wide = _accumulate(np.add, op, arithmetic.widen(x))
    # A sum starts from +0, so that it is never -0.
    return arithmetic.round(wide + wide.dtype.type(0), x.dtype)


@impl.define(Cumulative[_C.PROD])
def _prod(op: Cumulative, arithmetic: Arithmetic, x: Array) -> Array:
    return arithmetic.round(_accumulate(np.multiply, op, arithmetic.widen(x)), x.dtype)


@impl.define(Cumulative[_C.MAX], Cumulative[_C.MIN])
def _extremum(op: Cumulative, _: Arithmetic, x: Array) -> Array:
    """An element, bit for bit: +0 is above -0, and a NaN beats all."""
    largest = op.op is _C.MAX
    combine = np.maximum if largest else np.minimum
    return from_order(_accumulate(combine, op, in_order(x, largest)), x.dtype)


@impl.define(Cumulative[_C.LOGSUMEXP])
def _logsumexp(op: Cumulative, arithmetic: Arithmetic, x: Array) -> Array:
    wide = _accumulate(np.logaddexp, op, arithmetic.widen(x))
    # log(exp(-0)) is +0.
    return arithmetic.round(wide + 0.0, x.dtype)
