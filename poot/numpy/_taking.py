"""Elements at positions that are data."""

from __future__ import annotations

import math
from typing import Any

from poot.core import dtypes
from poot.core.errors import ShapeError
from poot.core.ops.elementwise import broadcast_shapes
from poot.core.ops.indexing import GatherMode
from poot.interpreters import taking
from poot.interpreters.arithmetic import (
    add,
    bitwise_and,
    greater_equal,
    less,
    multiply,
    remainder,
    select,
)
from poot.interpreters.indexing import checked_index, take_axis
from poot.interpreters.methods import Value
from poot.interpreters.promotion import cast_to, converted
from poot.interpreters.rounding import clip
from poot.interpreters.shaping import (
    broadcast_to,
    canonical_axis,
    moveaxis,
    ravel,
    reshape,
)
from poot.interpreters.taking import gather_mode, integer_index
from poot.lax import broadcasted_iota
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
    """By one index into all elements: where the row starts, and the place in it."""
    gather, size = gather_mode("take_along_axis", mode), x.shape[-1]
    if mode == "wrap" and size:
        index = remainder(index, size)
    index = checked_index(index, size, x.ndim - 1)
    inside = bitwise_and(greater_equal(index, 0), less(index, size))
    lead = x.shape[:-1]
    row = reshape(broadcasted_iota(dtypes.int32, (math.prod(lead),), 0), (*lead, 1))
    place = cast_to(clip(index, 0, size - 1), dtypes.int32)
    flat = add(multiply(row, size), place)
    if gather is GatherMode.FILL:
        flat = select(inside, flat, x.size)
    taken = take_axis(ravel(x), flat, 0, gather)
    if fill_value is None or gather is not GatherMode.FILL:
        return taken
    return select(inside, taken, converted(fill_value, x.type.dtype, "take_along_axis"))
