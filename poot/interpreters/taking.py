"""Elements at positions that are data, along one axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from poot.core import dtypes
from poot.core.errors import ArgumentError, IndexingError
from poot.core.ops.indexing import GatherMode
from poot.interpreters.arithmetic import (
    bitwise_and,
    greater_equal,
    less,
    remainder,
    select,
)
from poot.interpreters.indexing import take_axis
from poot.interpreters.promotion import as_value, cast_to, converted
from poot.interpreters.rounding import refuse_out
from poot.interpreters.shaping import canonical_axis, ravel, reshape

if TYPE_CHECKING:
    from poot.interpreters.methods import Value

_MODES = {
    None: GatherMode.FILL,
    "fill": GatherMode.FILL,
    "clip": GatherMode.CLIP,
    "promise_in_bounds": GatherMode.PROMISE,
    "wrap": GatherMode.PROMISE,
}


def gather_mode(where: str, mode: Any) -> GatherMode:
    """What a gather does for the mode of this name."""
    if mode not in _MODES:
        names = ", ".join(repr(name) for name in _MODES if name)
        raise ArgumentError(f"poot.numpy.{where}: mode is {mode!r}, takes {names}")
    return _MODES[mode]


def integer_index(where: str, indices: Any) -> Value:
    """Positions as a value of a dtype that holds the size of any axis."""
    index = as_value(indices, f"poot.numpy.{where}")
    if not index.type.dtype.is_integer:
        raise IndexingError(
            f"poot.numpy.{where}: the indices are {index.type.dtype}, takes integers"
        )
    return cast_to(index, dtypes.int32) if index.type.dtype.itemsize < 4 else index


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
    """What `poot.numpy.take` does, and the method of arrays."""
    refuse_out("take", out)
    x = as_value(a, "take")
    if axis is None:
        x, axis = ravel(x), 0
    place = canonical_axis(axis, x.ndim, "take")
    index, gather = integer_index("take", indices), gather_mode("take", mode)
    size = x.shape[place]
    if mode == "wrap" and size:
        index = remainder(index, size)
    taken = take_axis(x, index, place, gather)
    if gather is not GatherMode.FILL or fill_value is None:
        return taken
    inside = bitwise_and(greater_equal(index, -size), less(index, size))
    rank = x.ndim - place - 1
    inside = reshape(inside, inside.shape + (1,) * rank)
    return select(inside, taken, converted(fill_value, x.type.dtype, "take"))
