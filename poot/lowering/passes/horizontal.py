"""Contractions of one operand share a launch: what makes q, k and v of x, say."""

from __future__ import annotations

from dataclasses import dataclass, field

from poot.core.builder import Builder
from poot.core.dtypes import Scalar
from poot.core.equation import Eqn, Operand, ValueId
from poot.core.graph import Graph
from poot.core.op import Op
from poot.core.ops.contractions import ContractionEpilogue
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.contraction_growth import Uses, lhs_axes
from poot.lowering.passes.driver import (
    Log,
    Pass,
    Reason,
    Refusal,
    Rewrite,
    named,
    place_of,
)
from poot.lowering.passes.units import MOST_OPERANDS
from poot.lowering.plan.layout import VIEWS

HORIZONTAL = Rewrite(
    "horizontal",
    "contractions that do not need each other may take turns in one launch",
)
# Of one launch: each has its own code in the kernel.
MOST_HEADS = 6
# Equations that a result may be computed earlier: it takes memory until it is read.
_MOST_APART = 96


@dataclass(slots=True)
class _Group:
    """Equations that are to be one, in order."""

    members: list[int]
    heads: int
    operands: set[Operand] = field(default_factory=set)
    # The first equation that reads one of the results.
    due: int = 0


class _Joiner:
    """One walk over a graph, with an open group for each operand."""

    def __init__(self, graph: Graph, info: DeviceInfo, log: Log) -> None:
        self.graph = graph
        self.log = log
        self.uses = Uses(graph, info)
        self.open: dict[ValueId, _Group] = {}
        self.groups: list[_Group] = []

    def run(self) -> Graph:
        for index, eqn in enumerate(self.graph.eqns):
            heads = _heads(self.uses, index)
            if heads:
                self._visit(index, eqn, len(heads))
        done = [group for group in self.groups if len(group.members) > 1]
        return self._emit(done) if done else self.graph

    def _visit(self, index: int, eqn: Eqn, heads: int) -> None:
        lhs = eqn.inputs[0]
        assert not isinstance(lhs, Scalar)
        group = self.open.get(lhs)
        if group is not None:
            refusal = self._refusal(group, index, heads)
            if refusal is None:
                self._join(group, index, heads)
                return
            place = place_of(self.graph, index)
            self.log.decline(HORIZONTAL, place, refusal.reason, refusal.detail)
            if refusal.reason is Reason.OTHER_LHS:
                return
        group = _Group([index], heads, set(eqn.inputs), self._due(index))
        self.open[lhs] = group
        self.groups.append(group)

    def _refusal(self, group: _Group, index: int, heads: int) -> Refusal | None:
        first, eqn = self.graph.eqns[group.members[0]], self.graph.eqns[index]
        one = named(self.graph, first.outs[0])
        if self._rows(first) != self._rows(eqn):
            detail = f"{one} of {named(self.graph, *first.inputs[:2])}"
            return Refusal(Reason.OTHER_LHS, detail)
        outs = group.heads + heads
        if outs > MOST_HEADS:
            detail = f"{one}: {outs} results, takes {MOST_HEADS}"
            return Refusal(Reason.RESULT_LIMIT, detail)
        apart = index - group.members[0]
        if apart > _MOST_APART:
            detail = f"{one}, {apart} equations before, takes {_MOST_APART}"
            return Refusal(Reason.LIFETIME, detail)
        operands = len(group.operands | set(eqn.inputs)) + outs
        if operands > MOST_OPERANDS:
            detail = f"{one}: {operands} operands and results, takes {MOST_OPERANDS}"
            return Refusal(Reason.OPERAND_LIMIT, detail)
        for operand in eqn.inputs:
            ready = self._ready(operand)
            if ready in group.members:
                made = named(self.graph, *self.graph.eqns[ready].outs)
                return Refusal(Reason.ORDER, f"it needs {made}, which it would join")
            if ready >= group.due:
                reader = place_of(self.graph, group.due)
                detail = f"{named(self.graph, operand)} is made no sooner than {reader}"
                return Refusal(Reason.ORDER, f"{one}: {detail}, which reads a result")
        return None

    def _rows(self, eqn: Eqn) -> object:
        """The axes of the lhs by role, and the dtype in which sums are."""
        op = eqn.op.heads[0] if isinstance(eqn.op, ContractionEpilogue) else eqn.op
        ndim = self.graph.type(eqn.inputs[0]).ndim
        made = op.infer_all(*map(self.graph.type, eqn.inputs[:2]))[0]
        return lhs_axes(op, ndim), made.dtype.compute if made.dtype.is_float else made

    def _join(self, group: _Group, index: int, heads: int) -> None:
        group.members.append(index)
        group.heads += heads
        group.operands.update(self.graph.eqns[index].inputs)
        group.due = min(group.due, self._due(index))
        self.log.fire(HORIZONTAL, place_of(self.graph, index))

    def _due(self, index: int) -> int:
        """The first equation that reads what another one makes, but for views of it."""
        due, outs = 1 << 60, list(self.graph.eqns[index].outs)
        for out in outs:
            for user in self.uses.users.get(out, ()):
                eqn = self.graph.eqns[user]
                if isinstance(eqn.op, VIEWS):
                    outs.append(eqn.out)
                else:
                    due = min(due, user)
        return due

    def _ready(self, operand: Operand) -> int:
        """The equation that makes an operand; views are made where they are read."""
        while not isinstance(operand, Scalar) and operand in self.uses.makers:
            maker = self.uses.makers[operand]
            eqn = self.graph.eqns[maker]
            if not isinstance(eqn.op, VIEWS):
                return maker
            operand = eqn.inputs[0]
        return -1

    def _emit(self, groups: list[_Group]) -> Graph:
        graph, edit = self.graph, self.graph.edit()
        for group in groups:
            eqns = [graph.eqns[index] for index in group.members]
            op, operands = _joined(graph, eqns)
            first = group.members[0]
            made = edit.emit(op, operands, first, graph.source(first))
            olds = [out for eqn in eqns for out in eqn.outs]
            for old, new in zip(olds, made, strict=True):
                edit.replace(old, new)
            for index in group.members:
                edit.remove(index)
        return edit.commit()


def _heads(uses: Uses, index: int) -> tuple[Op, ...]:
    """The contractions that an equation computes."""
    eqn = uses.graph.eqns[index]
    if isinstance(eqn.op, ContractionEpilogue):
        return eqn.op.heads if eqn.op.prologue is None else ()
    return (eqn.op,) if uses.is_contraction(index) else ()


def _joined(
    graph: Graph, eqns: list[Eqn]
) -> tuple[ContractionEpilogue, tuple[Operand, ...]]:
    """One composite of all, and its operands; results come in their order."""
    builder = Builder(composites=True)
    heads: list[Op] = []
    weights: list[Operand] = []
    given: list[list[ValueId]] = []
    for eqn in eqns:
        op = eqn.op
        mine = op.heads if isinstance(op, ContractionEpilogue) else (op,)
        heads += mine
        rights = eqn.inputs[1 : 1 + len(mine)]
        weights += rights
        lhs = graph.type(eqn.inputs[0])
        made = [
            head.infer_all(lhs, graph.type(right))[0]
            for head, right in zip(mine, rights, strict=True)
        ]
        given.append([builder.input(type) for type in made])
    extras: dict[Operand, ValueId] = {}
    for eqn, values in zip(eqns, given, strict=True):
        if not isinstance(eqn.op, ContractionEpilogue):
            continue
        for operand in eqn.inputs[1 + len(eqn.op.heads) :]:
            if operand not in extras:
                extras[operand] = builder.input(graph.type(operand))
            values.append(extras[operand])
    for eqn, values in zip(eqns, given, strict=True):
        if isinstance(eqn.op, ContractionEpilogue):
            known = builder.inline(eqn.op.body, values)
            values = [known[result] for result in eqn.op.body.results]
        for value in values:
            builder.result(value)
    composite = ContractionEpilogue(tuple(heads), builder.finish())
    return composite, (eqns[0].inputs[0], *weights, *extras)


def _horizontal(graph: Graph, info: DeviceInfo, log: Log) -> Graph:
    return _Joiner(graph, info, log).run()


horizontal = Pass("horizontal", (HORIZONTAL,), _horizontal)
