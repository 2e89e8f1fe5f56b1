"""Medians, quantiles and percentiles."""

from __future__ import annotations

import math
from typing import Any

from poot.core import dtypes
from poot.core.dtypes import DType
from poot.core.errors import ArgumentError, ShapeError
from poot.core.ops.elementwise import UnaryOp
from poot.core.ops.sort import Sort
from poot.interpreters import reductions, sorting
from poot.interpreters.arithmetic import (
    add,
    bitwise_or,
    equal,
    less,
    less_equal,
    multiply,
    select,
    subtract,
    true_divide,
    unary,
)
from poot.interpreters.cumulative import cumsum
from poot.interpreters.indexing import take_axis
from poot.interpreters.methods import Value
from poot.interpreters.promotion import cast_to, inexact, promote
from poot.interpreters.rounding import clip, minimum, refuse_out
from poot.interpreters.shaping import (
    broadcast_to,
    canonical_axes,
    expand_dims,
    moveaxis,
    reshape,
    transpose,
)
from poot.numpy._creation import asarray, full
from poot.numpy._taking import take_along_axis

_METHODS = ("linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf")


def quantile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
) -> Value:
    """What the share `q` (0 to 1) of the elements along axes does not exceed.

    Between two elements `method` decides: linear, lower, higher, midpoint, nearest, or
    inverted_cdf, which takes `weights` too: of the array's shape or that of the axes.
    With a NaN among them the result is NaN. Several `q` (one axis) give a first axis.
    """
    options = _Options("quantile", axis, method, keepdims, False)
    return options.refuse(out, overwrite_input).of(a, q, 1, weights)


def nanquantile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
) -> Value:
    """As `quantile`, of the elements that are not NaN; NaN where there is none."""
    options = _Options("nanquantile", axis, method, keepdims, True)
    return options.refuse(out, overwrite_input).of(a, q, 1, weights)


def percentile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
) -> Value:
    """As `quantile`, with `q` from 0 to 100."""
    options = _Options("percentile", axis, method, keepdims, False)
    return options.refuse(out, overwrite_input).of(a, q, 100, weights)


def nanpercentile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
) -> Value:
    """As `nanquantile`, with `q` from 0 to 100."""
    options = _Options("nanpercentile", axis, method, keepdims, True)
    return options.refuse(out, overwrite_input).of(a, q, 100, weights)


def median(
    a: Any,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    keepdims: bool = False,
) -> Value:
    """The element in the middle along axes, or the mean of the two; NaN with a NaN."""
    options = _Options("median", axis, "midpoint", keepdims, False)
    return options.refuse(out, overwrite_input).of(a, 0.5, 1)


def nanmedian(
    a: Any,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    keepdims: bool = False,
) -> Value:
    """The median along axes of what is not NaN; of nothing: NaN."""
    options = _Options("nanmedian", axis, "midpoint", keepdims, True)
    return options.refuse(out, overwrite_input).of(a, 0.5, 1)


class _Options:
    """The arguments that all of these functions share."""

    def __init__(
        self, where: str, axis: Any, method: str, keepdims: bool, skips_nan: bool
    ) -> None:
        if method not in _METHODS:
            raise ArgumentError(
                f"poot.numpy.{where}: method is {method!r}, takes "
                f"{', '.join(map(repr, _METHODS))}"
            )
        self.where, self.axis, self.method = where, axis, method
        self.keepdims, self.skips_nan = keepdims, skips_nan

    def refuse(self, out: Any, overwrite_input: bool) -> _Options:
        refuse_out(self.where, out)
        if overwrite_input:
            raise ArgumentError(
                f"poot.numpy.{self.where}: arrays never change, so that there is no "
                "overwrite_input"
            )
        return self

    def of(self, a: Any, q: Any, whole: float, weights: Any = None) -> Value:
        """The quantiles; `q` is out of `whole`."""
        x, share = asarray(a), asarray(q)
        if share.ndim > 1:
            raise ShapeError(
                f"poot.numpy.{self.where}: q has one axis at most, given {share.shape}"
            )
        dtype = inexact(x.type.dtype)
        compute = inexact(promote(self.where, x, share).dtype).compute
        share = cast_to(share, compute).with_weak(False)
        share = share if whole == 1 else true_divide(share, float(whole))
        axes = canonical_axes(self.axis, x.ndim, self.where)
        rows = _rows(cast_to(x, dtype).with_weak(False), axes)
        flat = reshape(share, (share.size,))
        if weights is None:
            found = self._of_rows(sorting.sort(rows), flat, compute)
        else:
            spread = self._spread(cast_to(asarray(weights), compute), x, axes)
            found = self._of_weighted(rows, _rows(spread, axes), flat)
        found = cast_to(found, dtype)
        kept = [1 if i in axes else size for i, size in enumerate(x.shape)]
        if not self.keepdims:
            kept = [size for i, size in enumerate(x.shape) if i not in axes]
        return reshape(moveaxis(found, -1, 0), (*share.shape, *kept))

    def _spread(self, weights: Value, x: Value, axes: tuple[int, ...]) -> Value:
        """The weights of all elements."""
        if self.method != "inverted_cdf":
            raise ArgumentError(
                f"poot.numpy.{self.where}: method {self.method!r} takes no weights; "
                "'inverted_cdf' does"
            )
        if weights.shape == x.shape:
            return weights
        sizes = tuple(x.shape[i] for i in axes)
        if self.axis is None or weights.shape != sizes:
            raise ShapeError(
                f"poot.numpy.{self.where}: weights have shape {weights.shape}, takes "
                f"{x.shape}" + (f" or {sizes}" if self.axis is not None else "")
            )
        order = sorted(range(len(axes)), key=axes.__getitem__)
        shape = [size if i in axes else 1 for i, size in enumerate(x.shape)]
        return broadcast_to(reshape(transpose(weights, order), shape), x.shape)

    def _of_weighted(self, rows: Value, weights: Value, share: Value) -> Value:
        """The first element at which the weights so far reach their share."""
        values, heavy = Sort(rows.ndim - 1).bind(rows, weights)
        nan = unary(UnaryOp.ISNAN, values)
        bad = bitwise_or(less(heavy, 0.0), unary(UnaryOp.ISNAN, heavy))
        so_far = cumsum(select(bitwise_or(bad, nan), 0.0, heavy), -1)
        target = multiply(share, so_far[..., -1:])
        below = less(expand_dims(so_far, -2), expand_dims(target, -1))
        numbers = reductions.sum(unary(UnaryOp.NOT, nan), -1, keepdims=True)
        last = clip(subtract(numbers, 1), 0)
        place = minimum(reductions.sum(below, -1, dtype=dtypes.int32.numpy), last)
        spoiled = reductions.any(bad, -1, keepdims=True)
        without = equal(numbers, 0) if self.skips_nan else nan[..., -1:]
        result = take_along_axis(values, place, -1)
        return select(bitwise_or(spoiled, without), math.nan, result)

    def _of_rows(self, rows: Value, share: Value, compute: DType) -> Value:
        """For each row of sorted elements all quantiles, along the last axis."""
        length, lead = rows.shape[-1], rows.shape[:-1]
        if not length:
            return full((*lead, share.size), math.nan, compute)
        nan = unary(UnaryOp.ISNAN, rows)
        if self.skips_nan:
            numbers = reductions.sum(unary(UnaryOp.NOT, nan), -1, keepdims=True)
            count: Any = cast_to(numbers, compute)
            spoiled = equal(numbers, 0)
        else:
            # NaN comes last.
            count, spoiled = float(length), nan[..., -1:]
        place, low, high = self._places(share, count)
        values = [self._taken(rows, at, count) for at in (low, high)]
        result = self._between(place, low, *(cast_to(v, compute) for v in values))
        return select(spoiled, math.nan, result)

    def _places(self, share: Value, count: Any) -> tuple[Value, Value, Value]:
        """Where in a row a quantile lies, and the whole places around it."""
        last = subtract(count, 1.0)
        if self.method == "inverted_cdf":
            place = subtract(unary(UnaryOp.CEIL, multiply(share, count)), 1.0)
            place = clip(place, 0.0, last)
        else:
            place = multiply(share, last)
        low, high = unary(UnaryOp.FLOOR, place), unary(UnaryOp.CEIL, place)
        return place, low, high

    def _taken(self, rows: Value, place: Value, count: Any) -> Value:
        inside = clip(place, 0.0, clip(subtract(count, 1.0), 0.0))
        index = cast_to(inside, dtypes.int32)
        if not self.skips_nan:
            return take_axis(rows, index, rows.ndim - 1)
        return take_along_axis(rows, index, -1)

    def _between(self, place: Value, low: Value, a: Value, b: Value) -> Value:
        """The result between the elements `a` and `b` at the places around it."""
        part = subtract(place, low)
        match self.method:
            case "lower" | "inverted_cdf":
                return a
            case "higher":
                return b
            case "nearest":
                return select(less_equal(part, 0.5), a, b)
            case "midpoint":
                middle = multiply(add(a, b), 0.5)
            case _:
                middle = add(multiply(a, subtract(1.0, part)), multiply(b, part))
        # At a whole place the element itself, infinity too.
        return select(equal(part, 0.0), a, middle)


def _rows(x: Value, axes: tuple[int, ...]) -> Value:
    """The elements that each result is of, along a new last axis."""
    others = [i for i in range(x.ndim) if i not in axes]
    count = math.prod(x.shape[i] for i in axes)
    moved = transpose(x, [*others, *axes])
    return reshape(moved, [*(x.shape[i] for i in others), count])
