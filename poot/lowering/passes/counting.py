"""Which values count places: iotas, and what is only another shape of one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from poot.core.dtypes import DType, Scalar
from poot.core.equation import Eqn, Operand
from poot.core.graph import Graph
from poot.core.ops.elementwise import (
    Binary,
    BinaryOp,
    Cast,
    Compare,
    CompareOp,
    Select,
)
from poot.core.ops.shape import Broadcast, Iota, Reshape


def holds_places(dtype: DType, size: int) -> bool:
    """Whether the places 0..size-1 are numbers of an integer dtype."""
    return dtype.is_integer and size - 1 <= np.iinfo(dtype.numpy).max


@dataclass(frozen=True, slots=True)
class Count:
    """Element p, in row-major order, is p // step % size."""

    step: int
    size: int

    def repeated(self, given: tuple[int, ...], shape: tuple[int, ...]) -> Count | None:
        """The same of a value of shape `given` that is broadcast, if it still counts.

        All that is counted has to lie behind an axis that is repeated, or nothing.
        """
        step, behind = self.step, 1
        padded = (1,) * (len(shape) - len(given)) + given
        for old, new in zip(reversed(padded), reversed(shape), strict=True):
            if old != new and behind % (step * self.size):
                if step % behind:
                    return None
                step *= new
            behind *= new
        return Count(step, self.size)


def count_of_axis(shape: tuple[int, ...], axis: int) -> Count:
    """The place along an axis of each element of a tensor."""
    size = shape[axis]
    return Count(math.prod(shape[axis + 1 :]) if size > 1 else 1, size)


def counts_in(graph: Graph) -> dict[Operand, Count]:
    """The values of a graph that count, by one walk over it."""
    return _Walk(graph).run()


class _Walk:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.found: dict[Operand, Count] = {}
        # Conditions that never hold.
        self.never: set[Operand] = set()

    def run(self) -> dict[Operand, Count]:
        for eqn in self.graph.eqns:
            if eqn.op == Compare(CompareOp.LT):
                self._compare(eqn)
            elif not eqn.op.multiple_results and self.graph.type(eqn.out).size:
                count = self._count(eqn)
                if count is not None:
                    self.found[eqn.out] = count
        return self.found

    def _compare(self, eqn: Eqn) -> None:
        x, bound = eqn.inputs
        if x in self.found and isinstance(bound, Scalar) and bound.value <= 0:
            self.never.add(eqn.out)

    def _count(self, eqn: Eqn) -> Count | None:
        match eqn.op:
            case Iota(dtype, shape, axis):
                return (
                    count_of_axis(shape, axis)
                    if holds_places(dtype, shape[axis])
                    else None
                )
            case Cast(dtype):
                found = self.found.get(eqn.inputs[0])
                return found if found and holds_places(dtype, found.size) else None
            case Reshape():
                return self.found.get(eqn.inputs[0])
            case Broadcast():
                return self._repeated(eqn.inputs[0], eqn)
            case Select():
                condition, _, other = eqn.inputs
                return self._repeated(other, eqn) if condition in self.never else None
            case Binary(BinaryOp.MAX | BinaryOp.MIN):
                return self._bounded(eqn)
        return None

    def _repeated(self, operand: Operand, eqn: Eqn) -> Count | None:
        """An operand that is the result, broadcast."""
        found = self.found.get(operand)
        if found is None:
            return None
        shapes = self.graph.type(operand).shape, self.graph.type(eqn.out).shape
        return found.repeated(*shapes)

    def _bounded(self, eqn: Eqn) -> Count | None:
        """An operand beside a bound that no place passes."""
        bound, x = eqn.inputs
        if not isinstance(bound, Scalar):
            bound, x = x, bound
        if not isinstance(bound, Scalar) or x not in self.found:
            return None
        if eqn.op == Binary(BinaryOp.MAX):
            passes = bound.value > 0
        else:
            passes = bound.value < self.found[x].size - 1
        return None if passes else self.found[x]
