"""How often numbers come, one by one or in bins."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from poot.core.errors import ArgumentError, ShapeError
from poot.interpreters import reductions
from poot.interpreters.arithmetic import equal, select, true_divide
from poot.interpreters.methods import Value
from poot.interpreters.promotion import (
    as_value,
    cast_to,
    default_int,
    inexact,
    promote_inexact,
    type_of,
)
from poot.interpreters.rounding import maximum
from poot.interpreters.shaping import ravel
from poot.interpreters.taking import integer_index
from poot.lax import full
from poot.numpy._creation import asarray, linspace, ones_like
from poot.numpy._logic import where
from poot.numpy._moving import diff
from poot.numpy._searching import searchsorted


def bincount(
    x: Any, weights: Any = None, minlength: int = 0, *, length: int | None = None
) -> Value:
    """How often each whole number from 0 up comes, or the sum of its weights.

    With `length` numbers beyond are left out; without, the numbers must be known.
    Negative ones count as 0.
    """
    index = integer_index("bincount", asarray(x))
    if index.ndim != 1:
        raise ShapeError(f"poot.numpy.bincount: given {index.type}, takes one axis")
    if length is None:
        known = np.asarray(index)
        length = max(int(known.max(initial=-1)) + 1, operator.index(minlength))
    one: Any = asarray(1, default_int().numpy) if weights is None else asarray(weights)
    if weights is not None and one.shape != index.shape:
        raise ShapeError(
            f"poot.numpy.bincount: weights {one.shape} for numbers {index.shape}"
        )
    empty = full((length,), 0, one.dtype)
    return empty.at[maximum(index, 0)].add(one, mode="drop")


def histogram_bin_edges(
    a: Any, bins: Any = 10, range: Any = None, weights: Any = None
) -> Value:
    """The edges of so many bins of one width over a range, or over all elements.

    An array of `bins` are the edges themselves.
    """
    x = asarray(a)
    dtype = inexact(x.type.dtype)
    if isinstance(bins, str):
        raise ArgumentError(
            "poot.numpy.histogram_bin_edges: bins is a name, takes a number or edges"
        )
    if type_of(asarray(bins)).ndim == 1:
        return cast_to(asarray(bins), dtype).with_weak(False)
    ends = (x.min(), x.max()) if range is None else range
    low, high = (cast_to(as_value(end), dtype) for end in ends)
    is_point = equal(low, high)
    low, high = where(is_point, low - 0.5, low), where(is_point, high + 0.5, high)
    edges: Value = linspace(low, high, operator.index(bins) + 1, dtype=dtype.numpy)
    return edges


def histogram(
    a: Any,
    bins: Any = 10,
    range: Any = None,
    weights: Any = None,
    density: bool | None = None,
) -> tuple[Value, Value]:
    """How many elements, or what weight of them, each bin has, and the edges.

    The last bin has its upper edge too. With `density` the integral over all is 1.
    """
    x = asarray(a)
    if weights is not None and asarray(weights).shape != x.shape:
        raise ShapeError(
            f"poot.numpy.histogram: weights {asarray(weights).shape} for {x.shape}"
        )
    given = promote_inexact("histogram", x, *([] if weights is None else [weights]))
    x = ravel(as_value(given.operands[0]))
    weight = ones_like(x) if weights is None else ravel(as_value(given.operands[1]))
    edges = histogram_bin_edges(x, bins, range)
    last = edges.size - 1
    place = searchsorted(edges, x, side="right")
    place = select(equal(x, edges[last]), last, place)
    counts = full((edges.size,), 0, weight.dtype).at[place].add(weight)[1:]
    if density:
        counts = true_divide(true_divide(counts, diff(edges)), reductions.sum(counts))
    return counts, edges
