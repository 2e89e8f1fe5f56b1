"""Reductions over rows, with the elementwise equations around them, become FusedRow."""

from __future__ import annotations

import heapq
from collections import Counter

from poot.core.equation import ValueId
from poot.core.graph import Graph
from poot.core.op import Op
from poot.core.ops.indexing import GeneralGather
from poot.core.ops.reduce import ArgReduce, Reduce
from poot.core.ops.shape import Broadcast, Iota, Reshape
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.driver import (
    Log,
    Numerics,
    Pass,
    Reason,
    Refusal,
    Rewrite,
    place_of,
)
from poot.lowering.passes.row_forms import Form, domain_of
from poot.lowering.passes.row_group import Growth, RowGroup
from poot.lowering.passes.row_regions import emit_row_regions
from poot.lowering.passes.siblings import JOIN_SIBLINGS, join_row_siblings
from poot.lowering.passes.units import Units
from poot.lowering.plan.state import ELEMENTWISE

_LAW = "rows are independent, and each equation rounds alone"
START_ROWS = Rewrite(
    "start_rows",
    "a reduction over the last axis runs row by row; sums may be ordered otherwise",
    Numerics.REASSOCIATING,
)
EXTEND_ROWS = Rewrite("extend_rows", f"{_LAW}: what follows a reduction joins it")
PRECEDE_ROWS = Rewrite("precede_rows", f"{_LAW}: what a reduction reads joins it")
REPEAT_IN_ROWS = Rewrite(
    "repeat_in_rows", f"{_LAW}: what all rows read is computed in each"
)

# An equation waits so often for others to join first.
_MOST_WAITS = 2
# What may stand between a group and an equation that waits, and how much.
_BETWEEN: tuple[type[Op], ...] = (
    *ELEMENTWISE,
    Broadcast,
    Reshape,
    Reduce,
    Iota,
    GeneralGather,
)
_MOST_BETWEEN = 12


class _Walk:
    """Starts a group at each reduction in turn and lets it grow."""

    def __init__(self, graph: Graph, info: DeviceInfo, log: Log) -> None:
        self.graph = graph
        self.info = info
        self.log = log
        self.units = Units(graph)

    def run(self) -> list[RowGroup]:
        groups = []
        for index, eqn in enumerate(self.graph.eqns):
            if not isinstance(eqn.op, Reduce | ArgReduce):
                continue
            if self.units.writer[index].is_open or not self._is_sized(index):
                continue
            domain = domain_of(self.graph, eqn)
            if isinstance(domain, Refusal):
                where = place_of(self.graph, index)
                self.log.decline(START_ROWS, where, domain.reason, domain.detail)
                continue
            growth = Growth(self.units, index, domain, self.info)
            if self._try(growth, START_ROWS, index):
                self._grow(growth)
                groups.append(growth.group)
        return groups

    def _is_sized(self, index: int) -> bool:
        eqn = self.graph.eqns[index]
        return all(self.graph.type(v).size for v in (*eqn.inputs, *eqn.outs))

    def _try(self, growth: Growth, rewrite: Rewrite, index: int) -> bool:
        """Take in an equation, and log it or the reason why not."""
        repeats = rewrite is REPEAT_IN_ROWS
        why = (growth.try_repeat if repeats else growth.try_join)(index)
        return self._noted(rewrite, index, why)

    def _noted(self, rewrite: Rewrite, index: int, why: Refusal | None) -> bool:
        """Log that an equation joined, or the reason why not; whether it did."""
        where = place_of(self.graph, index)
        if why is None:
            self.log.fire(rewrite, where)
        else:
            self.log.decline(rewrite, where, why.reason, why.detail)
        return why is None

    def _grow(self, growth: Growth) -> None:
        """Take in what follows, then what precedes, until nothing more fits."""
        ahead: list[int] = []
        behind: list[int] = []
        seen: set[tuple[bool, int]] = set()
        # What waits for what stands between it and the group, and how often it did.
        late: list[int] = []
        waits: Counter[int] = Counter()
        self._look(growth, growth.group.members[0], ahead, behind, seen)
        while ahead or behind or late:
            if not (ahead or behind):
                between = (self._between(growth, index) for index in late)
                fresh = {i for found in between for i in found if not waits[i]}
                ahead.extend({*late, *fresh})
                heapq.heapify(ahead)
                late.clear()
            if ahead:
                index = heapq.heappop(ahead)
                joined = self._may_join(index) and self._extend(
                    growth, index, late, waits
                )
            else:
                index = -heapq.heappop(behind)
                joined = self._may_join(index) and self._precede(growth, index)
            if joined:
                self._look(growth, index, ahead, behind, seen)

    def _extend(
        self, growth: Growth, index: int, late: list[int], waits: Counter[int]
    ) -> bool:
        """Take in an equation, or let it wait for what might make room for it."""
        waits[index] += 1
        why = growth.try_join(index)
        is_order = why is not None and why.reason is Reason.ORDER
        if is_order and waits[index] <= _MOST_WAITS:
            late.append(index)
            return False
        return self._noted(EXTEND_ROWS, index, why)

    def _between(self, growth: Growth, index: int) -> list[int]:
        """The equations that an equation waits for, if they are few."""
        forms = growth.group.forms
        found = [index]
        for each in found:
            for operand in self.units.values(self.graph.eqns[each].inputs):
                maker = self.units.makers.get(operand)
                if operand in forms or maker is None or maker in found:
                    continue
                if isinstance(self.graph.eqns[maker].op, _BETWEEN):
                    found.append(maker)
            if len(found) > _MOST_BETWEEN:
                return []
        return found[1:]

    def _may_join(self, index: int) -> bool:
        return not self.units.writer[index].is_open and self._is_sized(index)

    def _look(
        self,
        growth: Growth,
        index: int,
        ahead: list[int],
        behind: list[int],
        seen: set[tuple[bool, int]],
    ) -> None:
        """Note the neighbours of a new member as candidates, each once a direction."""
        eqn = self.graph.eqns[index]
        follows = isinstance(eqn.op, Reduce | ArgReduce) or any(
            operand in growth.group.forms for operand in eqn.inputs
        )
        for out in eqn.outs if follows else ():
            for user in self.units.users.get(out, ()):
                if (True, user) not in seen:
                    seen.add((True, user))
                    heapq.heappush(ahead, user)
        for operand in self.units.values(eqn.inputs):
            maker = self.units.makers.get(operand)
            if maker is not None and (False, maker) not in seen:
                seen.add((False, maker))
                heapq.heappush(behind, -maker)

    def _precede(self, growth: Growth, index: int) -> bool:
        outs = self.graph.eqns[index].outs
        domain = growth.group.domain
        if any(self._is_repeated(out, growth) for out in outs):
            return self._try(growth, REPEAT_IN_ROWS, index)
        if self.graph.type(outs[0]).size not in (domain.size, domain.row_count):
            return False
        return self._try(growth, PRECEDE_ROWS, index)

    def _is_repeated(self, out: ValueId, growth: Growth) -> bool:
        """Whether the group takes the value in a smaller shape than its own values."""
        group = growth.group
        own = {group.domain.shape(form) for form in Form}
        return any(shape not in own for shape in group.taken.get(out, ()))


def _fuse_rows(graph: Graph, info: DeviceInfo, log: Log) -> Graph:
    walk = _Walk(graph, info, log)
    groups = join_row_siblings(walk.units, walk.run(), log)
    return emit_row_regions(graph, walk.units, groups)


fuse_rows = Pass(
    "fuse_rows",
    (START_ROWS, EXTEND_ROWS, PRECEDE_ROWS, REPEAT_IN_ROWS, JOIN_SIBLINGS),
    _fuse_rows,
)
