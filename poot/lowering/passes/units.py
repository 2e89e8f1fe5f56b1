"""Equations that are to run as one, and whether all units can be put in an order."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from dataclasses import dataclass, field

from poot.core.dtypes import Scalar
from poot.core.equation import ValueId
from poot.core.graph import Graph

# Pointers of one kernel: operands and results each.
MOST_OPERANDS = 28
MOST_RESULTS = 28
MOST_EQUATIONS = 256


@dataclass(slots=True, eq=False)
class Unit:
    """Equations that run as one, at a position among all equations.

    The position is the number of an equation that only this unit holds, so no two units
    share one. Whatever a unit reads stands at a lower one.
    """

    members: list[int]
    position: int
    # Numbers of equations that this unit alone holds, sorted.
    places: list[int]
    # The values that it reads and writes, in order.
    operands: dict[ValueId, None] = field(default_factory=dict)
    results: dict[ValueId, None] = field(default_factory=dict)
    # Whether it is open to further equations.
    is_open: bool = False


class Units:
    """The units of a graph: at first each equation is one."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.makers = graph.definitions()
        self.users = graph.uses()
        self.kept = frozenset(output.value for output in graph.outputs)
        lone = [self._lone(index) for index in range(len(graph.eqns))]
        # The unit that writes the results of an equation, and all that compute it.
        self.writer: list[Unit] = lone
        self.holders: list[list[Unit]] = [[unit] for unit in lone]

    def _lone(self, index: int) -> Unit:
        eqn = self.graph.eqns[index]
        operands = dict.fromkeys(self.values(eqn.inputs))
        return Unit([index], index, [index], operands, dict.fromkeys(eqn.outs))

    @staticmethod
    def values(operands: Iterable[object]) -> list[ValueId]:
        """The operands that are values, once each."""
        found = dict.fromkeys(o for o in operands if not isinstance(o, Scalar))
        return list(found)  # type: ignore[arg-type]

    def holding_users(self, value: ValueId) -> list[Unit]:
        """The units that read a value, once each."""
        found: dict[Unit, None] = {}
        for user in self.users.get(value, ()):
            found.update(dict.fromkeys(self.holders[user]))
        return list(found)

    def ready(self, operands: Iterable[ValueId], *inside: Unit) -> int:
        """The last position at which one of the operands is written elsewhere."""
        last = -1
        for operand in operands:
            maker = self.makers.get(operand)
            if maker is not None and self.writer[maker] not in inside:
                last = max(last, self.writer[maker].position)
        return last

    def due(self, results: Iterable[ValueId], *inside: Unit) -> int:
        """The first position at which one of the results is read elsewhere."""
        first = len(self.graph.eqns)
        for result in results:
            for user in self.holding_users(result):
                if user not in inside:
                    first = min(first, user.position)
        return first


def place_between(places: list[int], ready: int, due: int) -> int | None:
    """The last of the sorted `places` that lies between the two positions."""
    number = bisect.bisect_left(places, due) - 1
    if number >= 0 and places[number] > ready:
        return places[number]
    return None
