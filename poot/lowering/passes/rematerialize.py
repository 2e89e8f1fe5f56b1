"""What is computed early and read late is computed again, if that saves memory.

Reverse mode reads values of the forward computation when most memory is in use. Which
of them are kept is the cheapest cut between what cannot be computed again and what is
read late, as in He, "Min-cut optimal(*) recomputation" (PyTorch, 2022).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from poot.core.dtypes import Scalar
from poot.core.equation import Operand, ValueId
from poot.core.graph import Graph
from poot.core.op import Op
from poot.core.ops.shape import Iota
from poot.core.types import Storage
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.driver import Log, Numerics, Pass, Reason, Rewrite, place_of
from poot.lowering.passes.min_cut import NodeCut
from poot.lowering.plan.layout import VIEWS, padded
from poot.lowering.plan.state import ELEMENTWISE

COMPUTE_AGAIN = Rewrite(
    "compute_again",
    "an element is the same whenever it is computed; fewer bytes are kept until then",
    Numerics.EXACT,
)
# Programs that keep less at once are left alone: launches cost more than memory.
_LEAST_PEAK = 1 << 22
# What is to be saved, as a part of all that is kept.
_LEAST_GAIN = 16
# Values smaller than this part of all that is kept are kept.
_SMALL = 512
# Chains that are longer than this are cut into parts, or they would all have to be
# computed, and kept, before the first of their values is read.
_LONGEST_CHAIN = 24
# Readers no further away than so many equations may be of the same kernel, so that
# nothing is stored between elementwise equations.
_NEAR = 64
# Once the highest peak is lower, another may stand out.
_MOST_PEAKS = 4

_REPEATABLE: tuple[type[Op], ...] = (*ELEMENTWISE, *VIEWS, Iota)


class _Peak:
    """Where in a graph most bytes are kept, and what of these can be repeated."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.makers = graph.definitions()
        self.users = graph.uses()
        self.outputs = {output.value for output in graph.outputs}
        self.bases = self._find_bases()
        self.index, self.size = self._find_peak()
        self.links = self._find_links()
        self.late = [
            value
            for value, maker in self.makers.items()
            if maker <= self.index and self.users.get(value, [-1])[-1] > self.index
        ]

    def _find_bases(self) -> dict[ValueId, ValueId]:
        """The value in whose buffer each stands."""
        bases: dict[ValueId, ValueId] = {}
        for eqn in self.graph.eqns:
            for out in eqn.outs:
                source: Operand = eqn.inputs[0] if isinstance(eqn.op, VIEWS) else out
                source = out if isinstance(source, Scalar) else source
                bases[out] = bases.get(source, source)
        return bases

    def bytes(self, value: ValueId) -> int:
        """What keeping a value takes, or what it is a view of."""
        return padded(self.graph.type(self.bases.get(value, value)).size_bytes)

    def _find_peak(self) -> tuple[int, int]:
        """The equation at which most bytes are kept that are no outputs, and these."""
        last: dict[ValueId, int] = {}
        for value, users in self.users.items():
            base = self.bases.get(value, value)
            last[base] = max(last.get(base, 0), users[-1])
        changes = [0] * (len(self.graph.eqns) + 1)
        for base, end in last.items():
            if self._is_stored(base, end):
                changes[self.makers[base]] += self.bytes(base)
                changes[end + 1] -= self.bytes(base)
        kept = list(accumulate(changes))
        size = max(kept)
        return kept.index(size), size

    def _is_stored(self, base: ValueId, end: int) -> bool:
        """Whether a value that is read last by equation `end` takes memory."""
        maker = self.makers.get(base)
        if maker is None or base in self.outputs:
            return False
        if end - maker > _NEAR or not self._repeats(maker):
            return True
        return not all(map(self._repeats, self.users[base]))

    def _repeats(self, index: int) -> bool:
        return isinstance(self.graph.eqns[index].op, _REPEATABLE)

    def _find_links(self) -> dict[ValueId, int]:
        """The place of each value that may be computed again in a chain of such."""
        links: dict[ValueId, int] = {}
        for eqn in self.graph.eqns[: self.index + 1]:
            if not isinstance(eqn.op, _REPEATABLE):
                continue
            link = 1 + max(
                (links.get(v, 0) for v in self.operands(eqn.outs[0])), default=0
            )
            if link <= _LONGEST_CHAIN:
                links.update(dict.fromkeys(eqn.outs, link))
        return links

    def operands(self, value: ValueId) -> Iterator[ValueId]:
        """What the equation of a computed value reads."""
        for operand in self.graph.eqns[self.makers[value]].inputs:
            if not isinstance(operand, Scalar):
                yield operand

    def large(self) -> list[ValueId]:
        """What is read late, could be computed again and takes much memory."""
        return [
            value
            for value in self.late
            if value in self.links
            and self.bases[value] in self.makers
            and self.outputs.isdisjoint((value, self.bases[value]))
            and self.bytes(value) * _SMALL > self.size
            and self.users[value][-1] - self.makers[value] > _NEAR
        ]

    def is_kept(self, value: ValueId, large: set[ValueId]) -> bool:
        """Whether the value is there late whatever is computed again."""
        base = self.bases.get(value, value)
        if base not in self.makers:
            return self.graph.values[base].storage is not Storage.STATE
        if base in self.outputs:
            return True
        return value not in large and self.users.get(value, [-1])[-1] > self.index


class _Choice:
    """What to keep of the values that are read late, and what to compute again."""

    def __init__(self, peak: _Peak) -> None:
        self.peak = peak
        self.large = peak.large()
        self.kept = self._cut()
        self.again = [value for value in self.large if value not in self.kept]
        before = {peak.bases[value] for value in self.large}
        self.gain = sum(map(peak.bytes, before)) - sum(map(peak.bytes, self.kept))

    def _cut(self) -> set[ValueId]:
        peak, large = self.peak, set(self.large)
        edges: list[tuple[ValueId, ValueId]] = []
        found = dict.fromkeys(self.large)
        waiting = list(found)
        while waiting:
            value = waiting.pop()
            if value not in peak.links:
                continue
            for operand in peak.operands(value):
                if peak.is_kept(operand, large):
                    continue
                edges.append((operand, value))
                if operand not in found:
                    found[operand] = None
                    waiting.append(operand)
        cut = NodeCut({value: self._price(value) for value in found})
        for value in found:
            if value not in peak.links:
                cut.begin(value)
        for edge in edges:
            cut.connect(*edge)
        for value in self.large:
            cut.end(value)
        return cut.cheapest()

    def _price(self, value: ValueId) -> float:
        """What it takes to keep a value; nothing to keep is a view, or old state."""
        if self.peak.bases.get(value) != value:
            return float("inf")
        return self.peak.bytes(value)


def _apply(choice: _Choice, log: Log) -> Graph:
    """The graph in which late readers read what was computed again for them."""
    peak = choice.peak
    graph = peak.graph
    edit = graph.edit()
    places = _places(choice)
    copies: dict[ValueId, ValueId] = {}

    def renamed(operand: Operand) -> Operand:
        return operand if isinstance(operand, Scalar) else copies.get(operand, operand)

    for index in sorted({peak.makers[value] for value in places}):
        eqn, source = graph.eqns[index], graph.source(index)
        at = min(places[out] for out in eqn.outs if out in places) - 1
        outs = edit.emit(eqn.op, tuple(map(renamed, eqn.inputs)), at, source)
        copies.update(zip(eqn.outs, outs, strict=True))
    again = set(choice.again)
    late = {u for v in again for u in peak.users[v] if u > peak.index}
    for user in sorted(late):
        inputs = graph.eqns[user].inputs
        edit.rewire(user, tuple(renamed(o) if o in again else o for o in inputs))
    for value in choice.again:
        log.fire(COMPUTE_AGAIN, place_of(graph, peak.makers[value]))
    return edit.commit()


def _places(choice: _Choice) -> dict[ValueId, int]:
    """Before which equation each value is computed again: its first late reader."""
    peak, large = choice.peak, set(choice.large)
    places = {
        value: next(user for user in peak.users[value] if user > peak.index)
        for value in choice.again
    }
    # Those made last first: a value stands before all that is computed of it.
    for value in sorted(peak.links, key=lambda v: -peak.makers[v]):
        if value not in places:
            continue
        for operand in peak.operands(value):
            if operand in choice.kept or peak.is_kept(operand, large):
                continue
            places[operand] = min(places.get(operand, places[value]), places[value])
    return places


def _rematerialize(graph: Graph, info: DeviceInfo, log: Log) -> Graph:
    for _ in range(_MOST_PEAKS):
        if not graph.eqns:
            break
        peak = _Peak(graph)
        if peak.size < _LEAST_PEAK:
            break
        choice = _Choice(peak)
        if not choice.large:
            break
        if choice.gain * _LEAST_GAIN < peak.size:
            log.decline(
                COMPUTE_AGAIN,
                place_of(graph, peak.index),
                Reason.SMALL_GAIN,
                f"{peak.size} B are kept there, {choice.gain} B could be saved",
            )
            break
        graph = _apply(choice, log)
    return graph


rematerialize = Pass("rematerialize", (COMPUTE_AGAIN,), _rematerialize)
