"""Elements at positions that are data."""

from __future__ import annotations

from typing import Any

from poot.core.errors import IndexingError, ShapeError
from poot.core.ops.elementwise import broadcast_shapes
from poot.core.ops.index_dims import GatherDims
from poot.core.ops.indexing import GatherMode, GeneralGather
from poot.interpreters import taking
from poot.interpreters.arithmetic import (
    bitwise_and,
    greater_equal,
    less,
    remainder,
    select,
)
from poot.interpreters.indexing import checked_index
from poot.interpreters.methods import Value
from poot.interpreters.promotion import converted, result_like
from poot.interpreters.shaping import (
    broadcast_to,
    canonical_axis,
    expand_dims,
    moveaxis,
    ravel,
)
from poot.interpreters.taking import gather_mode, integer_index
from poot.numpy._creation import asarray


def take(
    a: Any,
    indices: Any,
    axis: int | None = None,
    out: None = None,
    mode: str | None = None,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    fill_value: Any = None,
) -> Value:
    """`a` at integer positions along an axis, or in row-major order.

    Negative positions count from the end. Beyond both ends `mode` "fill", the default,
    gives NaN (integers: the lowest or, unsigned, the highest value) or `fill_value`,
    "clip" the nearest element, "wrap" starts anew. Nothing hangs on the promises.
    """
    promises = unique_indices, indices_are_sorted
    return taking.take(asarray(a), indices, axis, out, mode, *promises, fill_value)


def take_along_axis(
    arr: Any,
    indices: Any,
    axis: int | None = -1,
    mode: str | None = None,
    fill_value: Any = None,
) -> Value:
    """Row by row of an axis, elements at integer positions; modes are those of `take`.

    The other axes of both arrays broadcast.
    """
    x, index = asarray(arr), integer_index("take_along_axis", indices)
    if axis is None:
        x, axis = ravel(x), 0
    if x.ndim != index.ndim:
        raise ShapeError(
            f"poot.numpy.take_along_axis: the array has {x.ndim} axes, the indices "
            f"{index.ndim}; takes as many of both"
        )
    place = canonical_axis(axis, x.ndim, "take_along_axis")
    x, index = moveaxis(x, place, -1), moveaxis(index, place, -1)
    lead = broadcast_shapes("take_along_axis", x.shape[:-1], index.shape[:-1])
    x = broadcast_to(x, (*lead, x.shape[-1]))
    index = broadcast_to(index, (*lead, index.shape[-1]))
    taken = _along_last(x, index, mode, fill_value)
    return moveaxis(taken, -1, place)


def _along_last(x: Value, index: Value, mode: Any, fill_value: Any) -> Value:
    """Elements of each row of the last axis, at the indices of the same row."""
    gather, (*lead, size) = gather_mode("take_along_axis", mode), x.shape
    if gather is not GatherMode.FILL and not size and index.size:
        raise IndexingError(f"the last axis of {x.shape} has no element to take")
    if mode == "wrap" and size:
        index = remainder(index, size)
    last = len(lead)
    index = checked_index(index, size, last)
    rows = tuple(range(last))
    dims = GatherDims((), (last,), (last,), rows, rows)
    taken = result_like(
        x, GeneralGather(dims, (1,) * x.ndim, gather).bind(x, expand_dims(index, -1))
    )
    if fill_value is None or gather is not GatherMode.FILL:
        return taken
    inside = bitwise_and(greater_equal(index, 0), less(index, size))
    return select(inside, taken, converted(fill_value, x.type.dtype, "take_along_axis"))
