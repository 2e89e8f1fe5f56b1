"""Reductions over one axis."""

from __future__ import annotations

import numpy as np

from poot.core.ops.reduce import ArgReduce, ArgReduceOp, Reduce, ReduceOp
from poot.core.oracle.table import Arithmetic, Array, impl

_R = ReduceOp


def _shaped(op: Reduce | ArgReduce, kept: Array) -> Array:
    """The result without the reduced axis, unless the op keeps it."""
    return kept if op.keepdim else kept.squeeze(op.axis)


@impl.define(Reduce[_R.SUM])
def _sum(op: Reduce, arithmetic: Arithmetic, x: Array) -> Array:
    wide = arithmetic.widen(x)
    total = np.sum(wide, op.axis, wide.dtype, keepdims=True)
    # The sum starts from +0, so that it is never -0, whatever NumPy starts from.
    return _shaped(op, arithmetic.round(total + wide.dtype.type(0), x.dtype))


@impl.define(Reduce[_R.PROD])
def _prod(op: Reduce, arithmetic: Arithmetic, x: Array) -> Array:
    wide = arithmetic.widen(x)
    product = np.prod(wide, op.axis, wide.dtype, keepdims=True)
    return _shaped(op, arithmetic.round(product, x.dtype))


@impl.define(Reduce[_R.MAX], Reduce[_R.MIN])
def _extremum(op: Reduce, _: Arithmetic, x: Array) -> Array:
    """An element, bit for bit: the first NaN, or else the extreme, +0 above -0."""
    largest = op.op is ReduceOp.MAX
    ordered = Arithmetic().widen(x)
    best = (np.max if largest else np.min)(ordered, op.axis, keepdims=True)
    wins = (ordered == best) | (ordered != ordered)
    if ordered.dtype.kind == "f":
        preferred = wins & (np.signbit(ordered) != largest)
        wins = np.where(preferred.any(op.axis, keepdims=True), preferred, wins)
    place = np.argmax(wins, op.axis, keepdims=True)
    return _shaped(op, np.take_along_axis(x, place, op.axis))


@impl.define(Reduce[_R.ANY])
def _any(op: Reduce, _: Arithmetic, x: Array) -> Array:
    return _shaped(op, np.any(x, op.axis, keepdims=True))


@impl.define(Reduce[_R.ALL])
def _all(op: Reduce, _: Arithmetic, x: Array) -> Array:
    return _shaped(op, np.all(x, op.axis, keepdims=True))


@impl.define(ArgReduce[ArgReduceOp.ARGMAX], ArgReduce[ArgReduceOp.ARGMIN])
def _arg_extremum(op: ArgReduce, arithmetic: Arithmetic, x: Array) -> Array:
    """NumPy's argmax and argmin take the first, and a NaN before all."""
    find = np.argmax if op.op is ArgReduceOp.ARGMAX else np.argmin
    place = find(arithmetic.widen(x), op.axis, keepdims=True)
    return _shaped(op, place.astype(np.int32))
