"""Algebra that holds in every bit: what changes nothing goes, chains get short.

Float laws are IEEE's: x + (-0.0) = x holds, x + 0.0 = x does not. Where the device
takes subnormals for zeros as it calculates, x 1 is not x either. Which of its bits a
NaN keeps is left open, as it is by devices.
"""

from __future__ import annotations

from poot.core.equation import Eqn, Operand, ValueId
from poot.core.graph import Graph
from poot.core.op import Op
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes import arithmetic_laws, shape_laws
from poot.lowering.passes.driver import Log, Pass, place_of
from poot.lowering.passes.laws import Becomes, Declines, Draft, Law, Site

_LAWS: dict[type[Op], tuple[Law, ...]] = {**arithmetic_laws.LAWS, **shape_laws.LAWS}
# Laws that are applied to one equation in turn; each makes it simpler.
_MOST_TURNS = 16


class _Walk:
    """One walk from the first equation to the last."""

    def __init__(self, graph: Graph, info: DeviceInfo, log: Log) -> None:
        self.graph = graph
        self.log = log
        self.edit = graph.edit()
        self.draft = Draft(self.edit, info)
        self.changed = False

    def run(self) -> Graph:
        for index, eqn in enumerate(self.graph.eqns):
            operands = tuple(self.draft.current(operand) for operand in eqn.inputs)
            if eqn.op.multiple_results:
                continue
            self._simplify(index, Eqn(eqn.op, operands, eqn.outs))
        return self.edit.commit() if self.changed else self.graph

    def _simplify(self, index: int, eqn: Eqn) -> None:
        """Apply laws until none holds, then put what is left in the old one's place."""
        op: Op | None = eqn.op
        operands: tuple[Operand, ...] = eqn.inputs
        type = self.graph.type(eqn.out)
        fired = False
        for _ in range(_MOST_TURNS):
            assert op is not None
            answer = self._answer(index, Site(self.draft, op, operands, type), fired)
            if answer is None:
                break
            self.log.fire(answer.rewrite, place_of(self.graph, index))
            fired, op, operands = True, answer.op, answer.operands
            if op is None:
                break
        if fired:
            self._put(index, eqn.out, op, operands)
        else:
            self.draft.makers[eqn.out] = eqn

    def _answer(self, index: int, site: Site, quiet: bool) -> Becomes | None:
        """What the first law that holds makes of an equation."""
        for law in _LAWS.get(type(site.op), ()):
            answer = law(site)
            if isinstance(answer, Becomes):
                return answer
            if isinstance(answer, Declines) and not quiet:
                where = place_of(self.graph, index)
                self.log.decline(answer.rewrite, where, answer.reason, answer.detail)
        return None

    def _put(
        self, index: int, old: ValueId, op: Op | None, operands: tuple[Operand, ...]
    ) -> None:
        self.changed = True
        if op is None:
            (new,) = operands
        else:
            source = self.graph.source(index)
            (new,) = self.edit.emit(op, operands, index, source)
            self.draft.makers[new] = Eqn(op, operands, (new,))
        self.edit.replace(old, new)
        self.edit.remove(index)
        self.draft.known[old] = new  # type: ignore[assignment]


def _canonicalize(graph: Graph, info: DeviceInfo, log: Log) -> Graph:
    return _Walk(graph, info, log).run()


canonicalize = Pass(
    "canonicalize",
    (*arithmetic_laws.REWRITES, *shape_laws.REWRITES),
    _canonicalize,
)
