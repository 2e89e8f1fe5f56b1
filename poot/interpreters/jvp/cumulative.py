"""Combinations of each element with all before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from poot.core import dtypes
from poot.core.ops.cumulative import Cumulative, CumulativeOp
from poot.core.ops.elementwise import CompareOp, UnaryOp
from poot.interpreters.jvp.along import take_along
from poot.interpreters.jvp.definitions import One, define_linear, like
from poot.interpreters.jvp.products import product_of_earlier, shifted
from poot.interpreters.jvp.table import Tangent, jvp
from poot.interpreters.primitives import (
    add,
    cast,
    compare,
    iota,
    mul,
    number,
    pad,
    select,
    slice_axis,
    sub,
    type_of,
    unary,
)

_C = CumulativeOp

define_linear(Cumulative[_C.SUM])


@jvp.define(Cumulative[_C.MAX], Cumulative[_C.MIN])
def _extremum(
    op: Cumulative, primals: Sequence[Any], tangents: Sequence[Tangent]
) -> One:
    """The tangent of the first of the elements that are largest so far.

    An element is a new one unless that before it has it already; a NaN always is.
    """
    (x,), (dx,) = primals, tangents
    y = op.bind(x)
    is_max, size = op.op is _C.MAX, type_of(x).shape[op.axis]
    before = shifted(y, op.axis, op.reverse, float("-inf" if is_max else "inf"))
    is_old = compare(CompareOp.LE if is_max else CompareOp.GE, x, before)
    start = number(max(size - 1, 0) if op.reverse else 0, dtypes.int32)
    places = iota(dtypes.int32, type_of(x).shape, op.axis)
    latest = Cumulative(_C.MIN if op.reverse else _C.MAX, op.axis, op.reverse)
    chosen = latest.bind(select(is_old, start, places))
    return (y,), (take_along(dx, chosen, op.axis),)


# --- recurrences ------------------------------------------------------------


def _spans(op: Cumulative, size: int) -> Iterator[tuple[int, slice, slice]]:
    """1, 2, 4, ... below `size`; the places that have one so far before them, and
    these."""
    span = 1
    while span < size:
        late, early = slice(span, size), slice(0, size - span)
        yield (span, early, late) if op.reverse else (span, late, early)
        span *= 2


def _part(x: Any, axis: int, places: slice) -> Any:
    return slice_axis(x, axis, places.start, places.stop)


def _accumulated(op: Cumulative, terms: Any, weights: Sequence[Any]) -> Any:
    """Each term with all before it, each of these times the weights on its way.

    Weight i is of the steps of 2^i places, one for each place where one ends.
    """
    spans = _spans(op, type_of(terms).shape[op.axis])
    for weight, (span, _, before) in zip(weights, spans, strict=True):
        config = [(0, 0, 0)] * type_of(terms).ndim
        config[op.axis] = (0, span, 0) if op.reverse else (span, 0, 0)
        carried = mul(_part(terms, op.axis, before), weight)
        terms = add(terms, pad(carried, config))
    return terms


def _products(op: Cumulative, x: Any) -> Iterator[Any]:
    """The products of 2^i elements, up to each place that has one 2^i before it."""
    product = x
    for span, there, _ in _spans(op, type_of(x).shape[op.axis]):
        if span == 1:
            product = _part(x, op.axis, there)
        else:
            size, half = type_of(product).shape[op.axis], span // 2
            ends = (slice(half, size), slice(0, size - half))
            product = mul(*(_part(product, op.axis, end) for end in ends))
        yield product


@jvp.define(Cumulative[_C.PROD])
def _prod(op: Cumulative, primals: Sequence[Any], tangents: Sequence[Tangent]) -> One:
    """The weight of a step is the product of the elements that it goes over.

    So nothing is divided by a zero. Narrow floats are kept in f32 on the way.
    """
    (x,), (dx,) = primals, tangents
    dtype = type_of(x).dtype
    wide, moved = cast(x, dtype.compute), cast(dx, dtype.compute)
    terms = mul(moved, product_of_earlier(wide, op.axis, op.reverse))
    total = _accumulated(op, terms, list(_products(op, wide)))
    return (op.bind(x),), (cast(total, dtype),)


@jvp.define(Cumulative[_C.LOGSUMEXP])
def _logsumexp(
    op: Cumulative, primals: Sequence[Any], tangents: Sequence[Tangent]
) -> One:
    """The weight of a step is exp(earlier result - later result), which is 1 at most.

    So no sum of exponentials overflows. Narrow floats are kept in f32 on the way.
    """
    (x,), (dx,) = primals, tangents
    dtype = type_of(x).dtype
    y = op.bind(x)
    wide = cast(y, dtype.compute)
    own = _exp_of_difference(cast(x, dtype.compute), wide)
    weights = [
        _exp_of_difference(_part(wide, op.axis, before), _part(wide, op.axis, there))
        for _, there, before in _spans(op, type_of(x).shape[op.axis])
    ]
    total = _accumulated(op, mul(cast(dx, dtype.compute), own), weights)
    return (y,), (cast(total, dtype),)


def _exp_of_difference(a: Any, b: Any) -> Any:
    """exp(a - b), 1 where both are the same infinity."""
    is_same = compare(CompareOp.EQ, a, b)
    return unary(UnaryOp.EXP, select(is_same, like(a, 0), sub(a, b)))
