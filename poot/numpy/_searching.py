"""Places of elements among sorted bins."""

from __future__ import annotations

from typing import Any

from poot.core import dtypes
from poot.core.errors import ShapeError
from poot.interpreters import sorting
from poot.interpreters.arithmetic import greater_equal, select, subtract
from poot.interpreters.methods import Value
from poot.numpy._creation import asarray, zeros
from poot.numpy._moving import flip


def searchsorted(
    a: Any,
    v: Any,
    side: str = "left",
    sorter: Any = None,
    *,
    method: str = "scan",
) -> Value:
    """Where in the sorted `a` each element of `v` is to be put to keep it sorted.

    Before equal elements with side "left", behind them with "right". `sorter` is the
    order of an `a` that is not sorted; `method` is JAX's and changes no result.
    """
    order = None if sorter is None else asarray(sorter)
    return sorting.searchsorted(asarray(a), asarray(v), side, order, method=method)


def digitize(
    x: Any, bins: Any, right: bool = False, *, method: str | None = None
) -> Value:
    """The number of the bin of each element; the edges in `bins` rise or fall.

    Bin i reaches from edge i - 1 to edge i, without that edge, or with `right` without
    the other one.
    """
    edges, values = asarray(bins), asarray(x)
    if edges.ndim != 1:
        raise ShapeError(
            f"poot.numpy.digitize: bins have one axis, given {edges.shape}"
        )
    if not edges.size:
        return zeros(values.shape, dtypes.int32)
    side, how = "left" if right else "right", method or "scan"
    rising = searchsorted(edges, values, side, method=how)
    falling = searchsorted(flip(edges), values, side, method=how)
    is_rising = greater_equal(edges[-1], edges[0])
    return select(is_rising, rising, subtract(edges.size, falling))
