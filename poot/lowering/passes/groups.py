"""A group: a unit of elementwise and shape equations that becomes one Fused."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from poot.core.equation import ValueId
from poot.core.graph import Graph
from poot.lowering.passes.cost import (
    CHEAP,
    MOST_WAYS,
    NEGLIGIBLE,
    cost,
    reads,
)
from poot.lowering.passes.driver import Reason, Refusal, named
from poot.lowering.passes.units import (
    MOST_OPERANDS,
    MOST_RESULTS,
    MOST_WORK,
    Unit,
    Units,
    size_refusal,
)


@dataclass(slots=True, eq=False)
class Group(Unit):
    """A unit that grows from its last equation to what this reads."""

    shape: tuple[int, ...] = ()
    # How often the elements of each value are computed, for each way from the index of
    # a result to the value's own. Way 0: the two are the same.
    ways: dict[ValueId, dict[int, int]] = field(default_factory=dict)
    # What is computed again an element, along the path from the results.
    debts: dict[ValueId, float] = field(default_factory=dict)
    _steps: dict[tuple[object, int], int] = field(default_factory=dict)

    def ways_of(self, outs: Iterable[ValueId]) -> dict[int, int]:
        """The ways to the results of one equation, which are computed together."""
        found: dict[int, int] = {}
        for out in outs:
            found |= self.ways.get(out, {})
        return found

    def debt_of(self, outs: Iterable[ValueId]) -> float:
        return max(self.debts.get(out, 0) for out in outs)

    def take_ways(self, other: Group) -> None:
        """Add the ways and debts of a group that becomes part of this one."""
        names = {0: 0}
        for (step, way), name in other._steps.items():
            key = (step, names[way])
            names[name] = self._steps.setdefault(key, len(self._steps) + 1)
        for value, ways in other.ways.items():
            known = self.ways.setdefault(value, {})
            known.update((names[way], count) for way, count in ways.items())
        for value, debt in other.debts.items():
            self.debts[value] = max(self.debts.get(value, 0), debt)

    def note_reads(self, graph: Graph, index: int) -> None:
        """Record how a new member reads its operands."""
        outs = graph.eqns[index].outs
        debt = self.debt_of(outs)
        for way, count in self.ways_of(outs).items():
            for operand, step, points in reads(graph, index, count):
                if step is None:
                    onward = way
                else:
                    key = (step, way)
                    onward = self._steps.setdefault(key, len(self._steps) + 1)
                self.ways.setdefault(operand, {})[onward] = points
                self.debts[operand] = max(self.debts.get(operand, 0), debt)


def open_group(units: Units, index: int) -> Group:
    """A group whose result is that of the equation."""
    graph = units.graph
    lone = units.writer[index]
    outs = graph.eqns[index].outs
    type = graph.type(outs[0])
    read = [out for out in outs if out in units.users or out in units.kept]
    results = dict.fromkeys(read or outs)
    group = Group([index], index, [index], dict(lone.operands), results, True)
    group.shape = type.shape
    group.work = cost(graph.eqns[index].op)
    for out in results:
        group.ways[out] = {0: type.size}
    group.note_reads(graph, index)
    units.writer[index] = group
    holders = units.holders[index]
    holders[holders.index(lone)] = group
    return group


def refusal(units: Units, group: Group, index: int, result: bool) -> Refusal | None:
    """Why the equation cannot join the group, as a result too or not."""
    graph = units.graph
    eqn = graph.eqns[index]
    if units.is_free(index):
        return None
    operands = [v for v in group.operands if v not in eqn.outs]
    operands += units.values(eqn.inputs)
    sources = len(units.sources(operands))
    if sources > MOST_OPERANDS:
        detail = f"{sources} operands, takes {MOST_OPERANDS}"
        return Refusal(Reason.OPERAND_LIMIT, detail)
    work = group.work + cost(eqn.op) * len(group.ways_of(eqn.outs))
    too_large = size_refusal(len(group.members) + 1, work, MOST_WORK)
    if too_large is not None:
        return too_large
    if result and graph.type(eqn.outs[0]).shape != group.shape:
        others = named(graph, *group.results)
        detail = f"{named(graph, eqn.outs[0])} beside {others}"
        return Refusal(Reason.OTHER_SHAPE, detail)
    results = len(group.results) + len(eqn.outs)
    if result and results > MOST_RESULTS:
        detail = f"{results} results, takes {MOST_RESULTS}"
        return Refusal(Reason.RESULT_LIMIT, detail)
    debt = _debt(units, group, index, result)
    return debt if isinstance(debt, Refusal) else None


def _debt(units: Units, group: Group, index: int, result: bool) -> float | Refusal:
    """What of the equation and its readers is computed again an element."""
    graph = units.graph
    eqn = graph.eqns[index]
    if units.is_free(index):
        return group.debt_of(eqn.outs)
    size = graph.type(eqn.outs[0]).size
    ways = group.ways_of(eqn.outs) | ({0: size} if result else {})
    elements = sum(ways.values())
    if elements <= size:
        return 0
    added = cost(eqn.op) * (elements - size)
    debt = group.debt_of(eqn.outs) + added / math.prod(group.shape)
    if len(ways) <= MOST_WAYS and (debt <= CHEAP or added <= NEGLIGIBLE):
        return debt
    return Refusal(
        Reason.RECOMPUTE,
        f"{elements} elements in {len(ways)} ways instead of {size}, each at a cost of "
        f"{cost(eqn.op)}, with its readers {debt:.3g} an element of "
        f"{named(graph, *group.results)}; takes {MOST_WAYS} ways, and {CHEAP} an "
        f"element or {NEGLIGIBLE} in all",
    )


def join(units: Units, group: Group, index: int, result: bool, alone: bool) -> None:
    """Add an equation to the group; `alone`: no other unit computes it any more."""
    graph = units.graph
    eqn = graph.eqns[index]
    debt = _debt(units, group, index, result)
    assert not isinstance(debt, Refusal)
    for out in eqn.outs:
        group.debts[out] = debt
        group.operands.pop(out, None)
    for out in _read_outside(units, group, eqn.outs) if result else ():
        group.results[out] = None
        group.ways.setdefault(out, {})[0] = graph.type(out).size
    group.operands.update(dict.fromkeys(units.values(eqn.inputs)))
    group.members.append(index)
    group.work += cost(eqn.op) * len(group.ways_of(eqn.outs))
    if alone:
        bisect.insort(group.places, index)
        units.writer[index] = group
        units.holders[index] = [group]
    else:
        units.holders[index].append(group)
    group.note_reads(graph, index)


def _read_outside(
    units: Units, group: Group, outs: Iterable[ValueId]
) -> Iterator[ValueId]:
    """Those of the values that an output is, or that another unit reads."""
    for out in outs:
        readers = units.holding_users(out)
        if out in units.kept or any(reader is not group for reader in readers):
            yield out
