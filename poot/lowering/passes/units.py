"""Equations that are to run as one, and whether all units can be put in an order."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from dataclasses import dataclass, field

from poot.core.dtypes import Scalar
from poot.core.equation import Operand, ValueId
from poot.core.graph import Graph
from poot.lowering.passes.driver import Reason, Refusal, place_of
from poot.lowering.passes.views import free_views, static_layouts

# Pointers of one kernel: operands and results each.
MOST_OPERANDS = 28
MOST_RESULTS = 28
MOST_EQUATIONS = 256
# In the units of `cost`: drivers take much longer for kernels that are much larger.
MOST_WORK = 1024
# Row programs lose more by being cut.
MOST_ROW_WORK = 4096


def size_refusal(equations: int, work: int, most_work: int) -> Refusal | None:
    """Why so many equations, or what they cost, are too much for one kernel."""
    if equations <= MOST_EQUATIONS and work <= most_work:
        return None
    return Refusal(
        Reason.SIZE_LIMIT,
        f"{equations} equations that cost {work}, takes {MOST_EQUATIONS} that cost "
        f"{most_work}",
    )


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
    # What an element costs.
    work: int = 0


class Units:
    """The units of a graph: at first each equation is one.

    Views that cost nothing have no place in the order while they are outside of open
    units: who reads one reads what it is a view of.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.makers = graph.definitions()
        self.users = graph.uses()
        self.kept = frozenset(output.value for output in graph.outputs)
        self.layouts = static_layouts(graph)
        self._free = free_views(graph, self.layouts)
        self._sources: dict[ValueId, ValueId] = {}
        for index in sorted(self._free):
            source = self.values(graph.eqns[index].inputs)[0]
            out = graph.eqns[index].out
            self._sources[out] = self._sources.get(source, source)
        lone = [self._lone(index) for index in range(len(graph.eqns))]
        # The unit that writes the results of an equation, and all that compute it.
        self.writer: list[Unit] = lone
        self.holders: list[list[Unit]] = [[unit] for unit in lone]

    def _lone(self, index: int) -> Unit:
        eqn = self.graph.eqns[index]
        operands = dict.fromkeys(self.values(eqn.inputs))
        return Unit([index], index, [index], operands, dict.fromkeys(eqn.outs))

    @staticmethod
    def values(operands: Iterable[Operand]) -> list[ValueId]:
        """The operands that are values, once each."""
        found = dict.fromkeys(o for o in operands if not isinstance(o, Scalar))
        return list(found)

    def is_free(self, index: int) -> bool:
        """Whether the equation is a view that needs no launch of its own."""
        return index in self._free

    def order(self, ready: int, due: int) -> Refusal:
        """That what is ready only at one position is due at another."""
        count = len(self.graph.eqns)
        given = "a view of its own results" if ready == count else "nothing"
        if 0 <= ready < count:
            given = place_of(self.graph, ready)
        taker = "nothing" if due == count else place_of(self.graph, due)
        return Refusal(Reason.ORDER, f"it needs {given}, and feeds {taker}")

    def _floats(self, index: int) -> bool:
        return index in self._free and not self.writer[index].is_open

    def _ordered(self, index: int) -> list[Unit]:
        """The units of an equation that have a place in the order."""
        floats = self._floats(index)
        return [unit for unit in self.holders[index] if unit.is_open or not floats]

    def sources(self, operands: Iterable[ValueId]) -> set[ValueId]:
        """What operands are views of, which is what kernels get pointers to."""
        return {self._sources.get(operand, operand) for operand in operands}

    def holding_users(self, value: ValueId) -> list[Unit]:
        """The units that read a value, once each."""
        found: dict[Unit, None] = {}
        for user in self.users.get(value, ()):
            found.update(dict.fromkeys(self.holders[user]))
        return list(found)

    def readers(self, value: ValueId) -> list[tuple[int, int]]:
        """Position and number of the equations that read a value or a view of it."""
        found: dict[int, int] = {}
        values = [value]
        for viewed in values:
            for user in self.users.get(viewed, ()):
                places = [holder.position for holder in self._ordered(user)]
                if places:
                    found[user] = min(places)
                if self._floats(user):
                    values.extend(self.graph.eqns[user].outs)
        return sorted((position, user) for user, position in found.items())

    def ready(self, operands: Iterable[ValueId], *inside: Unit) -> int:
        """The last position at which one of the operands is written elsewhere.

        Past all positions if an operand is a view, made outside, of what is inside.
        """
        last = -1
        for operand in operands:
            value = operand
            maker = self.makers.get(value)
            while (
                maker is not None
                and self._floats(maker)
                and self.writer[maker] not in inside
            ):
                value = self.values(self.graph.eqns[maker].inputs)[0]
                maker = self.makers.get(value)
            if maker is None:
                continue
            if self.writer[maker] not in inside:
                last = max(last, self.writer[maker].position)
            elif value != operand:
                return len(self.graph.eqns)
        return last

    def due(self, results: Iterable[ValueId], *inside: Unit) -> int:
        """The first position at which one of the results is read elsewhere."""
        first = len(self.graph.eqns)
        for result in results:
            for _, user in self.readers(result):
                for holder in self._ordered(user):
                    if holder not in inside:
                        first = min(first, holder.position)
        return first


def place_between(places: list[int], ready: int, due: int) -> int | None:
    """The last of the sorted `places` that lies between the two positions."""
    number = bisect.bisect_left(places, due) - 1
    if number >= 0 and places[number] > ready:
        return places[number]
    return None
