"""Chains of elementwise and shape equations become one Fused each."""

from __future__ import annotations

from poot.core.graph import Graph
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.cost import recompute_costs
from poot.lowering.passes.driver import Log, Pass, Refusal, Rewrite, place_of
from poot.lowering.passes.groups import Group, join, open_group, refusal
from poot.lowering.passes.regions import Region, emit_regions
from poot.lowering.passes.siblings import (
    JOIN_SIBLINGS,
    join_pair,
    join_siblings,
)
from poot.lowering.passes.units import Units, place_between
from poot.lowering.plan.state import POINTWISE

_LAW = "an element is the same wherever it is computed, as each equation rounds alone"
ABSORB_PRODUCER = Rewrite(
    "absorb_producer", f"{_LAW}; all readers are in the one kernel"
)
SHARE_PRODUCER = Rewrite(
    "share_producer", f"{_LAW}; the kernel stores it for its other readers"
)
REPEAT_CHEAP = Rewrite(
    "repeat_cheap", f"{_LAW}; each reader computes it from less than reading it takes"
)


class _Walk:
    """One walk from the last equation to the first."""

    def __init__(self, graph: Graph, log: Log) -> None:
        self.graph = graph
        self.log = log
        self.units = Units(graph)
        self.groups: list[Group] = []
        self.cheap = recompute_costs(graph)

    def run(self) -> None:
        for index in reversed(range(len(self.graph.eqns))):
            if self._is_pointwise(index):
                self._visit(index)

    def _is_pointwise(self, index: int) -> bool:
        eqn = self.graph.eqns[index]
        values = (*eqn.inputs, *eqn.outs)
        return isinstance(eqn.op, POINTWISE) and all(
            self.graph.type(value).size for value in values
        )

    def _visit(self, index: int) -> None:
        outs = self.graph.eqns[index].outs
        users = [user for out in outs for user in self.units.holding_users(out)]
        readers = list(dict.fromkeys(users))
        homes = [unit for unit in readers if isinstance(unit, Group)]
        kept = not self.units.kept.isdisjoint(outs)
        outside = len(homes) < len(readers) or kept
        if len(homes) > 1 and outs[0] not in self.cheap:
            homes = self._together(homes)
        if len(homes) == 1 and not outside:
            done = self._absorb(index, homes[0])
        elif homes and (outs[0] in self.cheap or self.units.is_free(index)):
            done = self._repeat(index, homes, outside)
        else:
            done = self._share(index, homes)
        if not done and not self.units.is_free(index):
            self.groups.append(open_group(self.units, index))

    def _together(self, homes: list[Group]) -> list[Group]:
        """The kernels that read one value, those over one shape made one."""
        kept: list[Group] = []
        for home in sorted(homes, key=lambda unit: unit.position):
            if any(join_pair(self.units, one, home, self.log) for one in kept[:4]):
                self.groups.remove(home)
            else:
                kept.append(home)
        return kept

    def _absorb(self, index: int, home: Group) -> bool:
        why = refusal(self.units, home, index, result=False)
        if why is not None:
            return self._decline(ABSORB_PRODUCER, index, why)
        join(self.units, home, index, result=False, alone=True)
        self.log.fire(ABSORB_PRODUCER, place_of(self.graph, index))
        return True

    def _repeat(self, index: int, homes: list[Group], outside: bool) -> bool:
        """Compute the value in each kernel that reads it; True if none is left."""
        left = outside
        for home in homes:
            why = refusal(self.units, home, index, result=False)
            if why is not None:
                left = True
                self._decline(REPEAT_CHEAP, index, why)
                continue
            join(self.units, home, index, result=False, alone=False)
            self.log.fire(REPEAT_CHEAP, place_of(self.graph, index))
        if not left:
            # The unit that the equation was alone is gone.
            del self.units.holders[index][0]
            self.units.writer[index] = self.units.holders[index][0]
        return not left

    def _share(self, index: int, homes: list[Group]) -> bool:
        """Let one of the kernels that read the value store it for the others."""
        refusals = []
        for home in sorted(homes, key=lambda unit: unit.position)[:4]:
            place = refusal(
                self.units, home, index, result=True
            ) or self._meeting_place(index, home)
            if isinstance(place, int):
                join(self.units, home, index, result=True, alone=True)
                home.position = place
                self.log.fire(SHARE_PRODUCER, place_of(self.graph, index))
                return True
            refusals.append(place)
        if refusals:
            self._decline(SHARE_PRODUCER, index, refusals[0])
        return False

    def _meeting_place(self, index: int, home: Group) -> int | Refusal:
        units = self.units
        eqn = self.graph.eqns[index]
        lone = units.writer[index]
        operands = [*home.operands, *units.values(eqn.inputs)]
        ready = units.ready(operands, home, lone)
        due = units.due([*home.results, *eqn.outs], home, lone)
        place = place_between(sorted([*home.places, index]), ready, due)
        return units.order(ready, due) if place is None else place

    def _decline(self, rewrite: Rewrite, index: int, why: Refusal) -> bool:
        self.log.decline(rewrite, place_of(self.graph, index), why.reason, why.detail)
        return False


def _fuse_pointwise(graph: Graph, info: DeviceInfo, log: Log) -> Graph:
    walk = _Walk(graph, log)
    walk.run()
    groups = join_siblings(walk.units, walk.groups, log)
    regions = [Region(walk.units, group) for group in groups]
    return emit_regions(graph, walk.units, regions)


fuse_pointwise = Pass(
    "fuse_pointwise",
    (ABSORB_PRODUCER, SHARE_PRODUCER, REPEAT_CHEAP, JOIN_SIBLINGS),
    _fuse_pointwise,
)
