"""Makes the Fused equations of groups, and leaves views of what is stored outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from poot.core.builder import Builder
from poot.core.dtypes import Scalar
from poot.core.equation import Operand, ValueId
from poot.core.graph import Graph
from poot.core.ops.composite import Fused
from poot.core.ops.shape import Broadcast
from poot.lowering.passes.groups import Group
from poot.lowering.passes.units import MOST_OPERANDS, Unit, Units
from poot.lowering.plan.state import ELEMENTWISE


@dataclass(slots=True)
class Region:
    """A group that is done growing: its members, and the views left outside."""

    units: Units
    group: Group
    members: list[int] = field(init=False)
    operands: list[ValueId] = field(init=False)

    def __post_init__(self) -> None:
        self.members = sorted(self.group.members)
        self._peel()
        self.operands = self._operands()

    @property
    def results(self) -> list[ValueId]:
        return sorted(self.group.results)

    def _operands(self) -> list[ValueId]:
        """What the members read of others, in order of use."""
        graph = self.units.graph
        made = {out for index in self.members for out in graph.eqns[index].outs}
        read = [
            o for i in self.members for o in self.units.values(graph.eqns[i].inputs)
        ]
        return [value for value in dict.fromkeys(read) if value not in made]

    def _peel(self) -> None:
        """Leave views of stored values outside, where they cost nothing."""
        graph = self.units.graph
        inside = set(self.members)
        readers: dict[ValueId, set[int]] = {}
        for index in self.members:
            for operand in self.units.values(graph.eqns[index].inputs):
                readers.setdefault(operand, set()).add(index)
        count = len(self.group.operands)
        for index in self.members:
            if not self._is_outer_view(index, inside, readers):
                continue
            source = graph.eqns[index].inputs[0]
            assert not isinstance(source, Scalar)
            stays = len(readers[source]) > 1
            if count + stays > MOST_OPERANDS:
                continue
            count += stays
            readers[source].remove(index)
            inside.remove(index)
        self.members = [index for index in self.members if index in inside]

    def _is_outer_view(
        self, index: int, inside: set[int], readers: Mapping[ValueId, set[int]]
    ) -> bool:
        eqn = self.units.graph.eqns[index]
        # A view that is an output is stored by some unit, which may come later.
        if not self.units.is_free(index) or eqn.out in self.group.results:
            return False
        source = eqn.inputs[0]
        assert not isinstance(source, Scalar)
        maker = self.units.makers.get(source)
        if maker is not None and maker in inside:
            return False
        users = [self.units.graph.eqns[user].op for user in readers.get(eqn.out, ())]
        aligned = all(isinstance(op, (*ELEMENTWISE, Broadcast)) for op in users)
        # The kernel repeats elements at no cost, and then it knows that they repeat.
        return not (isinstance(eqn.op, Broadcast) and aligned)

    def body(self) -> Graph:
        """The members as a graph of their own."""
        graph = self.units.graph
        builder = Builder(composites=True)
        known: dict[ValueId, ValueId] = {
            value: builder.input(graph.type(value)) for value in self.operands
        }

        def inner(operand: Operand) -> Operand:
            return operand if isinstance(operand, Scalar) else known[operand]

        for index in self.members:
            eqn = graph.eqns[index]
            operands = tuple(inner(operand) for operand in eqn.inputs)
            outs = builder.emit(eqn.op, operands, graph.source(index))
            known.update(zip(eqn.outs, outs, strict=True))
        for result in self.results:
            builder.result(known[result])
        return builder.finish()


def emit_regions(graph: Graph, units: Units, regions: Sequence[Region]) -> Graph:
    """The graph with a Fused in place of the members of each region."""
    fused = [region for region in regions if len(region.members) > 1]
    if not fused:
        return graph
    edit = graph.edit()
    needed = _left_outside(graph, units, regions, fused)
    for region in fused:
        root = max(region.group.members)
        outs = edit.emit(
            Fused(region.body()),
            tuple(region.operands),
            region.group.position,
            graph.source(root),
        )
        for old, new in zip(region.results, outs, strict=True):
            edit.replace(old, new)
    for index in {i for region in fused for i in region.group.members} - needed:
        edit.remove(index)
    return edit.commit()


def _left_outside(
    graph: Graph, units: Units, regions: Sequence[Region], fused: Sequence[Region]
) -> set[int]:
    """The members that remain equations of the graph too, with all that they need."""
    inside: dict[Unit, set[int]] = {r.group: set(r.members) for r in fused}
    needed: set[int] = set()
    stack: list[int | None] = [
        units.makers.get(v) for region in regions for v in region.operands
    ]
    for index, eqn in enumerate(graph.eqns):
        if not any(holder in inside for holder in units.holders[index]):
            stack += [units.makers.get(v) for v in units.values(eqn.inputs)]
    stack += [units.makers.get(value) for value in units.kept]
    while stack:
        maker = stack.pop()
        if maker is None or maker in needed:
            continue
        eqn = graph.eqns[maker]
        writer = units.writer[maker]
        if maker in inside.get(writer, set()) and writer.results.keys() & set(eqn.outs):
            continue
        needed.add(maker)
        stack += [units.makers.get(v) for v in units.values(eqn.inputs)]
    return needed
