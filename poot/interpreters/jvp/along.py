"""Gathers of tangents along one axis, by positions that the primals give."""

from __future__ import annotations

from typing import Any

from poot.core.ops.index_dims import GatherDims
from poot.core.ops.indexing import GatherMode, GeneralGather
from poot.interpreters.primitives import reshape, type_of


def take_along(x: Any, indices: Any, axis: int) -> Any:
    """Element i of each line of `x` along an axis is the one at its indices[i].

    All other axes of both have equal sizes; all indices are in range.
    """
    ndim = type_of(x).ndim
    others = tuple(other for other in range(ndim) if other != axis)
    dims = GatherDims((), (axis,), (axis,), others, others)
    op = GeneralGather(dims, (1,) * ndim, GatherMode.PROMISE)
    return op.bind(x, reshape(indices, (*type_of(indices).shape, 1)))
