"""Small launches next to each other become one, cache writes among them.

One walk in the order of the launches. A unit that is open moves down to each launch
that joins it, so it stays open only until somebody reads what it makes, or overwrites
what it reads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from poot.core.builder import Builder
from poot.core.dtypes import Scalar
from poot.core.edit import GraphEdit
from poot.core.equation import Eqn, Operand, ValueId
from poot.core.graph import Graph
from poot.core.ops.composite import Fused
from poot.core.ops.scatter import DynamicUpdateSlice
from poot.core.ops.shape import Reshape
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.cost import cost
from poot.lowering.passes.driver import (
    Log,
    Pass,
    Reason,
    Refusal,
    Rewrite,
    named,
    place_of,
)
from poot.lowering.passes.units import (
    MOST_OPERANDS,
    MOST_RESULTS,
    MOST_WORK,
    size_refusal,
)
from poot.lowering.passes.views import free_views, static_layouts
from poot.lowering.plan.blocks import block_axes, block_lanes
from poot.lowering.plan.state import POINTWISE, updated_operand

_LAW = "an element is the same wherever it is computed, as each equation rounds alone"
ABSORB_UPDATE = Rewrite(
    "absorb_update", f"{_LAW}; a block is written where it belongs as it is computed"
)
JOIN_SMALL = Rewrite(
    "join_small", f"{_LAW}; launches that do not need each other may take turns in one"
)
# A launch costs more than computing so many elements.
SMALL = 1 << 16
# Units that are open at a time.
_MOST_OPEN = 8


@dataclass(slots=True, eq=False)
class _Unit:
    """Equations that are to be one launch."""

    members: list[int]
    # What it makes, and views of that.
    made: set[ValueId] = field(default_factory=set)
    # What its members read that others make, through views.
    reads: set[ValueId] = field(default_factory=set)
    # What it overwrites blocks of.
    updated: set[ValueId] = field(default_factory=set)
    equations: int = 0
    work: int = 0
    results: int = 0
    is_small: bool = True


class _Walk:
    """One walk over the launches of a graph."""

    def __init__(self, graph: Graph, log: Log) -> None:
        self.graph = graph
        self.log = log
        self.makers = graph.definitions()
        self.uses = graph.uses()
        self.kept = {output.value for output in graph.outputs}
        self.free = free_views(graph, static_layouts(graph))
        self.overwriters = self._overwriters()
        self.open: list[_Unit] = []
        self.done: list[_Unit] = []

    def run(self) -> list[_Unit]:
        for index in range(len(self.graph.eqns)):
            if index in self.free:
                self._view(index)
            else:
                self._visit(index)
        found = [*self.done, *self.open]
        return [unit for unit in found if len(unit.members) > 1]

    # --- what equations read and overwrite ----------------------------------

    def _overwriters(self) -> dict[int, set[ValueId]]:
        """What each equation writes over, if it may do that in place."""
        found: dict[int, set[ValueId]] = {}
        for pair in self.graph.state:
            maker = self.makers.get(self._base(pair.value))
            if maker is not None:
                found.setdefault(maker, set()).add(pair.input)
        for index, eqn in enumerate(self.graph.eqns):
            for out in eqn.outs:
                operand = updated_operand(eqn, out)
                if operand is not None:
                    found.setdefault(index, set()).add(self._source(operand))
        return found

    def _base(self, value: ValueId) -> ValueId:
        while value in self.makers:
            eqn = self.graph.eqns[self.makers[value]]
            if not isinstance(eqn.op, Reshape) or isinstance(eqn.inputs[0], Scalar):
                break
            value = eqn.inputs[0]
        return value

    def _source(self, value: ValueId) -> ValueId:
        """What a value is a view of."""
        while self.makers.get(value) in self.free:
            operand = self.graph.eqns[self.makers[value]].inputs[0]
            assert not isinstance(operand, Scalar)
            value = operand
        return value

    def _sources(self, operands: Iterable[Operand]) -> set[ValueId]:
        return {self._source(o) for o in operands if not isinstance(o, Scalar)}

    # --- the walk -----------------------------------------------------------

    def _view(self, index: int) -> None:
        eqn = self.graph.eqns[index]
        for unit in self.open:
            if eqn.inputs[0] in unit.made:
                unit.made.add(eqn.out)

    def _visit(self, index: int) -> None:
        eqn = self.graph.eqns[index]
        lone = self._lone(index)
        joined = None if lone is None else self._join(index, lone)
        written = self.overwriters.get(index, set())
        for unit in list(self.open):
            reads_it = not unit.made.isdisjoint(
                o for o in eqn.inputs if not isinstance(o, Scalar)
            )
            spoils_it = not unit.reads.isdisjoint(written)
            if unit is not joined and (reads_it or spoils_it):
                self._close(unit)
        if joined is None and lone is not None:
            self.open.append(lone)
            if len(self.open) > _MOST_OPEN:
                self._close(self.open[0])

    def _close(self, unit: _Unit) -> None:
        self.open.remove(unit)
        self.done.append(unit)

    def _lone(self, index: int) -> _Unit | None:
        """The equation as a unit, if it can be part of one."""
        eqn = self.graph.eqns[index]
        if not all(self.graph.type(v).size for v in (*eqn.inputs, *eqn.outs)):
            return None
        if isinstance(eqn.op, DynamicUpdateSlice):
            return self._lone_update(index, eqn)
        if not isinstance(eqn.op, (Fused, *POINTWISE)):
            return None
        inner = eqn.op.body.eqns if isinstance(eqn.op, Fused) else (eqn,)
        written = self.overwriters.get(index, set())
        sizes = [self.graph.type(out).size for out in eqn.outs]
        return _Unit(
            [index],
            set(eqn.outs),
            self._sources(eqn.inputs) - written,
            written,
            len(inner),
            sum(cost(each.op) for each in inner),
            len(eqn.outs),
            sum(sizes) <= SMALL,
        )

    def _lone_update(self, index: int, eqn: Eqn) -> _Unit | None:
        target, block, *starts = eqn.inputs
        if isinstance(target, Scalar):
            return None
        whole, given = self.graph.type(target), self.graph.type(block)
        if whole.shape == given.shape:
            return None
        if not block_lanes(block_axes(whole.shape, given.shape), whole.dtype):
            detail = f"blocks of {given} in {whole}"
            where = place_of(self.graph, index)
            self.log.decline(ABSORB_UPDATE, where, Reason.PART_OF_WORD, detail)
            return None
        reads = self._sources([block, *starts])
        updated = {self._source(target)}
        is_small = given.size <= SMALL
        return _Unit([index], {eqn.out}, reads, updated, 1, 1, 1, is_small)

    def _join(self, index: int, lone: _Unit) -> _Unit | None:
        """The open unit that an equation has joined, if any."""
        eqn = self.graph.eqns[index]
        inputs = {o for o in eqn.inputs if not isinstance(o, Scalar)}
        feeding = [unit for unit in self.open if not unit.made.isdisjoint(inputs)]
        if feeding:
            return self._absorb(index, lone, feeding[0])
        for unit in reversed(self.open):
            if not (unit.is_small and lone.is_small):
                continue
            refusal = self._refusal(unit, lone)
            if refusal is None:
                self._merge(unit, lone)
                self.log.fire(JOIN_SMALL, place_of(self.graph, index))
                return unit
            where, detail = place_of(self.graph, index), self._with(unit, refusal)
            self.log.decline(JOIN_SMALL, where, refusal.reason, detail)
        return None

    def _absorb(self, index: int, lone: _Unit, unit: _Unit) -> _Unit | None:
        """Let an update join the unit that computes its block."""
        eqn = self.graph.eqns[index]
        if not isinstance(eqn.op, DynamicUpdateSlice) or eqn.inputs[0] in unit.made:
            return None
        lone.reads -= {self._source(value) for value in unit.made}
        refusal = self._refusal(unit, lone)
        if refusal is None and not unit.is_small and self._is_read_elsewhere(index):
            block = named(self.graph, eqn.inputs[1])
            refusal = Refusal(Reason.RECOMPUTE, f"{block} is read elsewhere too")
        if refusal is not None:
            where, detail = place_of(self.graph, index), self._with(unit, refusal)
            self.log.decline(ABSORB_UPDATE, where, refusal.reason, detail)
            return None
        self._merge(unit, lone)
        self.log.fire(ABSORB_UPDATE, place_of(self.graph, index))
        return unit

    def _is_read_elsewhere(self, index: int) -> bool:
        """Whether somebody but an update reads the block that is written."""
        block = self.graph.eqns[index].inputs[1]
        while not isinstance(block, Scalar):
            if block in self.kept or self.uses[block] != [index]:
                return True
            if self.makers.get(block) not in self.free:
                break
            index = self.makers[block]
            block = self.graph.eqns[index].inputs[0]
        return False

    def _refusal(self, unit: _Unit, lone: _Unit) -> Refusal | None:
        written = unit.updated & (lone.reads | lone.updated)
        written |= lone.updated & unit.reads
        if written:
            detail = named(self.graph, *sorted(written))
            return Refusal(Reason.OVERWRITTEN, detail)
        operands = len(unit.reads | lone.reads)
        if operands > MOST_OPERANDS:
            detail = f"{operands} operands, takes {MOST_OPERANDS}"
            return Refusal(Reason.OPERAND_LIMIT, detail)
        results = unit.results + lone.results
        if results > MOST_RESULTS:
            return Refusal(
                Reason.RESULT_LIMIT, f"{results} results, takes {MOST_RESULTS}"
            )
        return size_refusal(
            unit.equations + lone.equations, unit.work + lone.work, MOST_WORK
        )

    def _with(self, unit: _Unit, refusal: Refusal) -> str:
        return f"with {place_of(self.graph, unit.members[0])}: {refusal.detail}"

    @staticmethod
    def _merge(unit: _Unit, other: _Unit) -> None:
        unit.members += other.members
        unit.made |= other.made
        unit.reads |= other.reads
        unit.updated |= other.updated
        unit.equations += other.equations
        unit.work += other.work
        unit.results += other.results
        unit.is_small = unit.is_small and other.is_small


class _Emission:
    """Makes the Fused of one unit."""

    def __init__(self, walk: _Walk, unit: _Unit, edit: GraphEdit) -> None:
        self.walk, self.unit, self.edit = walk, unit, edit
        self.graph = walk.graph
        self.inside = set(unit.members)
        self.made = {out for i in unit.members for out in self.graph.eqns[i].outs}
        self.builder = Builder(composites=True)
        # What is computed in the body, and what it is given.
        self.known: dict[ValueId, ValueId] = {}
        self.operands: dict[ValueId, ValueId] = {}
        # Views of what is made, which are needed in the body.
        self.views: set[int] = set()

    def emit(self) -> None:
        for index in self.unit.members:
            self._take(index)
        last = self.unit.members[-1]
        results = [value for value in sorted(self.made) if self._is_needed(value)]
        for value in results:
            self.builder.result(self.known[value])
        fused = Fused(self.builder.finish())
        source = self.graph.source(last)
        outs = self.edit.emit(fused, tuple(self.operands), last, source)
        for old, new in zip(results, outs, strict=True):
            self.edit.replace(old, new)
        for index in self.inside:
            self.edit.remove(index)
        for index in self.views:
            if not self._is_needed(self.graph.eqns[index].out):
                self.edit.remove(index)

    def _take(self, index: int) -> None:
        eqn = self.graph.eqns[index]
        inputs = tuple(
            o if isinstance(o, Scalar) else self._inner(o) for o in eqn.inputs
        )
        if isinstance(eqn.op, Fused):
            given = [o for o in inputs if not isinstance(o, Scalar)]
            inner = self.builder.inline(eqn.op.body, given)
            outs = tuple(inner[value] for value in eqn.op.body.results)
        else:
            outs = self.builder.emit(eqn.op, inputs, self.graph.source(index))
        self.known.update(zip(eqn.outs, outs, strict=True))

    def _inner(self, value: ValueId) -> ValueId:
        """What an operand is in the body: computed there, or an input of it."""
        makers, path = self.walk.makers, [value]
        while path[-1] not in self.known and makers.get(path[-1]) in self.walk.free:
            operand = self.graph.eqns[makers[path[-1]]].inputs[0]
            assert not isinstance(operand, Scalar)
            path.append(operand)
        if path[-1] not in self.known:
            return self._given(value)
        inner = self.known[path[-1]]
        for view in reversed(path[:-1]):
            index = makers[view]
            (inner,) = self.builder.emit(self.graph.eqns[index].op, (inner,))
            self.known[view] = inner
            self.views.add(index)
        return inner

    def _given(self, value: ValueId) -> ValueId:
        found = self.operands.get(value)
        if found is None:
            found = self.operands[value] = self.builder.input(self.graph.type(value))
        return found

    def _is_needed(self, value: ValueId) -> bool:
        """Whether a value that the unit makes, or a view of it, is read outside."""
        if value in self.walk.kept:
            return True
        for user in self.walk.uses.get(value, ()):
            if user in self.inside:
                continue
            if user not in self.walk.free or self._is_needed(self.graph.eqns[user].out):
                return True
        return False


def _join_small(graph: Graph, info: DeviceInfo, log: Log) -> Graph:
    walk = _Walk(graph, log)
    units = walk.run()
    if not units:
        return graph
    edit = graph.edit()
    for unit in units:
        _Emission(walk, unit, edit).emit()
    return edit.commit()


join_small = Pass("join_small", (ABSORB_UPDATE, JOIN_SMALL), _join_small)
