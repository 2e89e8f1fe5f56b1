"""What an index names: the parts of `x[index]`, each with the axis that it is for."""

from __future__ import annotations

import enum
import operator
from dataclasses import dataclass, field
from types import EllipsisType
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from poot.core.errors import (
    ArgumentError,
    ConcretizationError,
    IndexingError,
    NonConcreteBooleanIndexError,
)
from poot.core.ops.elementwise import broadcast_shapes
from poot.core.ops.indexing import GatherMode
from poot.core.ops.scatter import ScatterMode
from poot.core.ops.shape import Iota
from poot.core.source import user_source
from poot.interpreters.promotion import as_value, dtype_of, is_value

if TYPE_CHECKING:
    from poot.interpreters.methods import Value

# In a layout, where a truth value stands, which is for no axis.
_NO_AXIS = -1


class GatherScatterMode(enum.Enum):
    """What indices out of range do, by JAX's names."""

    CLIP = "clip"
    FILL_OR_DROP = "fill"
    PROMISE_IN_BOUNDS = "promise_in_bounds"

    @classmethod
    def from_any(cls, mode: Any) -> GatherScatterMode:
        """A mode by its name, "drop" included; None is FILL_OR_DROP."""
        if isinstance(mode, cls):
            return mode
        for member in cls:
            if mode == member.value:
                return member
        if mode is None or mode == "drop":
            return cls.FILL_OR_DROP
        raise ArgumentError(
            f"mode is {mode!r}; takes 'clip', 'fill', 'drop', 'promise_in_bounds'"
        )

    @property
    def gather(self) -> GatherMode:
        return GatherMode(_GATHERS[self])

    @property
    def scatter(self) -> ScatterMode:
        return ScatterMode(_SCATTERS[self])


_GATHERS = {
    GatherScatterMode.CLIP: GatherMode.CLIP,
    GatherScatterMode.FILL_OR_DROP: GatherMode.FILL,
    GatherScatterMode.PROMISE_IN_BOUNDS: GatherMode.PROMISE,
}
_SCATTERS = {
    GatherScatterMode.CLIP: ScatterMode.CLIP,
    GatherScatterMode.FILL_OR_DROP: ScatterMode.DROP,
    GatherScatterMode.PROMISE_IN_BOUNDS: ScatterMode.PROMISE,
}


@dataclass(slots=True)
class IndexPlan:
    """An index sorted by what each part does to which axis of the operand."""

    # Start, stop and step of each axis that no integer takes.
    slices: dict[int, range] = field(default_factory=dict)
    # Integers and integer arrays: Python ints, or values.
    indices: dict[int, Any] = field(default_factory=dict)
    # Truth values, which count as index arrays of one element or none.
    truths: list[bool] = field(default_factory=list)
    # The result's axes before indices take theirs away: an operand axis, or None: new.
    layout: list[int | None] = field(default_factory=list)
    # Where in `layout` each index array stands.
    places: list[int] = field(default_factory=list)
    # Whether these are neighbours in the index; an Ellipsis parts them even if it
    # stands for no axis.
    adjacent: bool = True

    @property
    def is_basic(self) -> bool:
        """Whether there are but slices and single integers."""
        return not self.truths and not any(
            is_value(index) and index.ndim for index in self.indices.values()
        )

    @property
    def batch(self) -> tuple[int, ...]:
        """The shape of all index arrays together."""
        shapes = [i.shape for i in self.indices.values() if is_value(i)]
        counts = [(int(truth),) for truth in self.truths]
        return broadcast_shapes("index", *shapes, *counts)

    @property
    def kept(self) -> list[int | None]:
        """The axes of the layout that no index array takes away."""
        layout = enumerate(self.layout)
        return [axis for place, axis in layout if place not in self.places]

    @property
    def front(self) -> int:
        """Where among the kept axes those of the index arrays stand, as in NumPy."""
        return self.places[0] if self.places and self.adjacent else 0


def planned(x: Value, index: Any) -> IndexPlan:
    """Read an index of `x`: one part, or a tuple of them."""
    given = list(index) if isinstance(index, tuple) else [index]
    if sum(part is Ellipsis for part in given) > 1:
        raise IndexingError("an index holds one Ellipsis (...) at most")
    used = sum(_axes_of(part) for part in given)
    if used > x.ndim:
        raise IndexingError(
            f"{used} indices are too many for an array of {x.ndim} axes"
        )
    if not any(part is Ellipsis for part in given):
        given.append(Ellipsis)
    plan, parts, axis = IndexPlan(), [], 0
    for part in given:
        found = _expanded(part, x.shape[axis:], x.ndim - used)
        parts += [Ellipsis] if part is Ellipsis else found
        for each in found:
            axis += _place(plan, each, axis, x.shape)
    # An Ellipsis put at the end parts nothing.
    plan.adjacent = _are_neighbours(parts)
    return plan


def _place(plan: IndexPlan, part: Any, axis: int, shape: tuple[int, ...]) -> int:
    """Add one plain part, for the axis that is next; how many axes it takes."""
    if part is None:
        plan.layout.append(None)
        return 0
    if isinstance(part, slice):
        plan.slices[axis] = _steps(part, shape[axis])
        plan.layout.append(axis)
        return 1
    plan.places.append(len(plan.layout))
    if isinstance(part, bool):
        plan.truths.append(part)
        plan.layout.append(_NO_AXIS)
        return 0
    plan.indices[axis] = part
    plan.layout.append(axis)
    return 1


def _steps(part: slice, size: int) -> range:
    def plain(bound: Any) -> Any:
        return None if bound is None else operator.index(bound)

    step = plain(part.step)
    if step == 0:
        raise IndexingError("the step of a slice is not zero")
    steps = range(*slice(plain(part.start), plain(part.stop), step).indices(size))
    return steps or range(0)


def _are_neighbours(parts: list[Any]) -> bool:
    """Whether nothing stands between the integers and integer arrays of an index."""
    taken = [
        place
        for place, part in enumerate(parts)
        if part is not None and not isinstance(part, slice | EllipsisType)
    ]
    return not taken or taken[-1] - taken[0] + 1 == len(taken)


def is_mask(part: Any) -> bool:
    """Whether a part of an index is an array of truth values, with an axis at least."""
    has_dtype = is_value(part) or isinstance(part, np.ndarray)
    return has_dtype and part.dtype == np.bool_ and part.ndim > 0


def _axes_of(part: Any) -> int:
    """How many axes of the operand a part is for."""
    if part is None or part is Ellipsis or _is_truth(part):
        return 0
    return part.ndim if is_mask(part) else 1


def _is_truth(part: Any) -> bool:
    if isinstance(part, bool | np.bool_):
        return True
    has_dtype = is_value(part) or isinstance(part, np.ndarray)
    return has_dtype and part.dtype == np.bool_ and part.ndim == 0


def _expanded(part: Any, shape: tuple[int, ...], missing: int) -> list[Any]:
    """One part of an index in its plain form; a mask becomes an index an axis."""
    if part is Ellipsis:
        return [slice(None)] * missing
    if part is None or isinstance(part, slice):
        return [part]
    if _is_truth(part):
        return [bool(_known(part))]
    if isinstance(part, int | np.integer):
        return [operator.index(part)]
    if isinstance(part, list):
        raise IndexingError(
            "a list is no index; use a tuple for several axes or "
            "poot.numpy.array(list) for one"
        )
    if not is_value(part) and not isinstance(part, np.ndarray):
        raise IndexingError(
            f"{type(part).__name__} is no index; takes integers, slices, None, "
            "Ellipsis, bools and arrays of integers or bools"
        )
    if is_mask(part):
        return _of_mask(part, shape)
    index = _iota(part) if _counts(part) else as_value(part)
    if not index.aval.type.dtype.is_integer:
        raise IndexingError(f"indices are integers; given an array of {part.dtype}")
    if isinstance(part, np.ndarray) and not part.shape:
        return [operator.index(part.item())]
    return [index]


def _counts(part: Any) -> TypeGuard[np.ndarray[Any, Any]]:
    """Whether a NumPy array holds 0, 1, 2 … along its one axis that is longer."""
    if not isinstance(part, np.ndarray) or part.dtype.kind not in "iu":
        return False
    is_line = part.size > 1 and part.size == max(part.shape)
    return is_line and bool((part.ravel() == np.arange(part.size)).all())


def _iota(part: np.ndarray[Any, Any]) -> Value:
    """The same, as passes know it: x[arange(n), k] takes one element of each row."""
    dtype, _ = dtype_of(part, "index")
    value: Value = Iota(dtype, part.shape, part.shape.index(part.size)).bind()
    return value


def _of_mask(mask: Any, shape: tuple[int, ...]) -> list[Any]:
    if mask.shape != shape[: mask.ndim]:
        raise IndexingError(
            f"a mask of shape {mask.shape} is an index for axes of sizes "
            f"{shape[: mask.ndim]}; takes as many truth values"
        )
    return [
        as_value(axis.astype(np.int32)) for axis in np.nonzero(np.asarray(_known(mask)))
    ]


def _known(part: Any) -> Any:
    """Truth values, which the shape of the result depends on, by NumPy."""
    try:
        return np.asarray(part)
    except ConcretizationError as error:
        raise NonConcreteBooleanIndexError(
            "the shape of x[mask] depends on the mask's truth values at "
            f"{user_source()}, but {error.why}. Use poot.numpy.where(mask, x, other) "
            "or x.at[mask].set(number), which keep the shape"
        ) from error
