"""Where each element of a value's last axes comes from, through moves and casts.

However slices, reshapes, transposes and concatenations spell it, the same choice of
elements has the same origin.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from poot.core import dtypes
from poot.core.dtypes import DType, Scalar
from poot.core.equation import Eqn, Operand, ValueId
from poot.core.graph import Graph
from poot.core.ops.elementwise import Cast, Unary, UnaryOp
from poot.core.ops.shape import (
    Broadcast,
    Concat,
    Reshape,
    Reverse,
    Slice,
    Transpose,
)

# Of last axes with more elements nothing is known, nor behind so many moves.
MOST_ELEMENTS = 1 << 12
_MOST_MOVES = 24

Array = np.ndarray[Any, Any]

MOVES = (Broadcast, Concat, Reshape, Reverse, Slice, Transpose)
_WIDER: dict[DType, tuple[DType, ...]] = {
    dtypes.float16: (dtypes.float32, dtypes.float64),
    dtypes.bfloat16: (dtypes.float32, dtypes.float64),
    dtypes.float32: (dtypes.float64,),
}


def holds_all_of(wide: DType, narrow: DType) -> bool:
    """Whether a float dtype has every number of another one."""
    return wide in _WIDER.get(narrow, ())


def is_move(graph: Graph, eqn: Eqn) -> bool:
    """Whether an equation changes neither elements, but for their sign or dtype."""
    if isinstance(eqn.op, Cast):
        values = (*eqn.inputs, *eqn.outs)
        return all(graph.type(value).dtype.is_float for value in values)
    return isinstance(eqn.op, MOVES) or eqn.op == Unary(UnaryOp.NEG)


@dataclass(frozen=True, slots=True)
class Base:
    """A value that elements come from, and the dtypes that they are cast to."""

    value: ValueId
    # Axes before those that are looked at.
    lead: int
    casts: tuple[DType, ...] = ()


@dataclass(frozen=True, slots=True)
class Origin:
    """For each element: which base it is of, its number among the base's, its sign."""

    bases: tuple[Base, ...]
    which: Array
    at: Array
    sign: Array

    @classmethod
    def itself(cls, base: Base, shape: Sequence[int]) -> Origin:
        at = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
        return cls((base,), np.zeros_like(at), at, np.ones_like(at))

    def apply(self, function: Any) -> Origin:
        """The origin after the same move of all three arrays."""
        moved = map(function, (self.which, self.at, self.sign))
        return Origin(self.bases, *moved)

    def base(self, place: int) -> Base:
        """The base of an element, by its number."""
        return self.bases[int(self.which.flat[place])]


class Origins:
    """The origins of the values of one graph, each found once."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.makers = graph.definitions()
        self._known: dict[tuple[ValueId, int], Origin] = {}

    def of(self, value: ValueId, lead: int, moves: int = 0) -> Origin:
        """Of the elements along the axes of `value` behind the first `lead`."""
        key = value, lead
        found = self._known.get(key)
        if found is None:
            found = self._find(value, lead, moves)
            self._known[key] = found
        return found

    def aligned(self, operand: Operand, lead: int, shape: Sequence[int]) -> Origin:
        """Of an operand that is repeated to `shape`, whose first `lead` axes vary."""
        assert not isinstance(operand, Scalar)
        own = self.graph.type(operand).shape
        before = max(0, lead - (len(shape) - len(own)))
        origin = self.of(operand, before)
        return origin.apply(lambda a: np.broadcast_to(a, tuple(shape[lead:])))

    def itself(self, operand: Operand, lead: int, shape: Sequence[int]) -> Origin:
        """As `aligned`, of the operand's own elements."""
        assert not isinstance(operand, Scalar)
        own = self.graph.type(operand).shape
        before = max(0, lead - (len(shape) - len(own)))
        origin = Origin.itself(Base(operand, before), own[before:])
        return origin.apply(lambda a: np.broadcast_to(a, tuple(shape[lead:])))

    def _find(self, value: ValueId, lead: int, moves: int) -> Origin:
        shape = self.graph.type(value).shape
        maker = self.makers.get(value)
        if maker is not None and moves < _MOST_MOVES:
            eqn = self.graph.eqns[maker]
            sizes = [math.prod(self.graph.type(o).shape[lead:]) for o in eqn.inputs]
            if is_move(self.graph, eqn) and max(sizes) <= MOST_ELEMENTS:
                found = self._through(eqn, shape, lead, moves + 1)
                if found is not None:
                    return found
        return Origin.itself(Base(value, lead), shape[lead:])

    def _through(
        self, eqn: Eqn, shape: tuple[int, ...], lead: int, moves: int
    ) -> Origin | None:
        """The origin of what a move gives; None if it mixes the axes in front."""
        if any(isinstance(operand, Scalar) for operand in eqn.inputs):
            return None
        given = [ValueId(o) for o in eqn.inputs if not isinstance(o, Scalar)]
        source = given[0]
        own = self.graph.type(source).shape
        match eqn.op:
            case Unary():
                found = self.of(source, lead, moves)
                return Origin(found.bases, found.which, found.at, -found.sign)
            case Cast(to):
                return self._cast(self.of(source, lead, moves), to)
            case Concat(axis) if axis >= lead:
                parts = [self.of(operand, lead, moves) for operand in given]
                return _joined(parts, axis - lead)
            case Broadcast():
                before = max(0, lead - (len(shape) - len(own)))
                found = self.of(source, before, moves)
                return found.apply(lambda a: np.broadcast_to(a, shape[lead:]))
            case Reshape() if own[:lead] == shape[:lead] and 0 not in own:
                found = self.of(source, lead, moves)
                return found.apply(lambda a: a.reshape(shape[lead:]))
            case Slice(axis, start, end, stride) if axis >= lead:
                taken = (slice(None),) * (axis - lead) + (slice(start, end, stride),)
                return self.of(source, lead, moves).apply(lambda a: a[taken])
            case Reverse(axes) if min(axes, default=lead) >= lead:
                turned = tuple(axis - lead for axis in axes)
                found = self.of(source, lead, moves)
                return found.apply(lambda a: np.flip(a, turned))
            case Transpose(perm) if perm[:lead] == tuple(range(lead)):
                order = [axis - lead for axis in perm[lead:]]
                found = self.of(source, lead, moves)
                return found.apply(lambda a: a.transpose(order))
        return None

    def _cast(self, origin: Origin, to: DType) -> Origin:
        bases = []
        for base in origin.bases:
            casts = (*base.casts, to)
            dtype = self.graph.type(base.value).dtype
            bases.append(Base(base.value, base.lead, shortened(dtype, casts)))
        return Origin(tuple(bases), origin.which, origin.at, origin.sign)


def shortened(dtype: DType, casts: tuple[DType, ...]) -> tuple[DType, ...]:
    """Casts without those that change nothing, there and back again among them."""
    kept: list[DType] = [dtype]
    for to in casts:
        if len(kept) > 1 and kept[-2] is to and holds_all_of(kept[-1], to):
            kept.pop()
        elif to is not kept[-1]:
            kept.append(to)
    return tuple(kept[1:])


def _joined(parts: Sequence[Origin], axis: int) -> Origin:
    bases: dict[Base, int] = {}
    which = []
    for part in parts:
        numbers = [bases.setdefault(base, len(bases)) for base in part.bases]
        which.append(np.asarray(numbers, np.int32)[part.which])
    return Origin(
        tuple(bases),
        np.concatenate(which, axis),
        np.concatenate([part.at for part in parts], axis),
        np.concatenate([part.sign for part in parts], axis),
    )
