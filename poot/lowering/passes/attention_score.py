"""Cuts out of a graph what makes scores of the products of queries and keys."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass

from poot.core.builder import Builder
from poot.core.dtypes import Scalar
from poot.core.equation import Operand, ValueId
from poot.core.graph import Graph
from poot.core.ops.elementwise import BitcastConvert
from poot.core.ops.indexing import Gather, GeneralGather
from poot.core.ops.random import Threefry2x32
from poot.core.ops.shape import Reshape, Transpose
from poot.core.types import TensorType
from poot.lowering.passes.attention_axes import (
    MOVES,
    Atom,
    Atoms,
    Axes,
    NoAxes,
    pad,
)
from poot.lowering.passes.attention_facts import Facts, is_contraction
from poot.lowering.passes.driver import Declined, Reason
from poot.lowering.plan.layout import VIEWS
from poot.lowering.plan.state import ELEMENTWISE, POINTWISE

# Of the equations before the scores.
_MOST_SLICED = 192
_MOST_INCLUDED = 96
# Equations of an index expression, which each kernel computes for itself.
_MOST_REPEATED = 32
# Operands of the kernel beside q, k and v.
MOST_EXTRAS = 20
_READS_ANYWHERE = (Gather, GeneralGather, Threefry2x32, BitcastConvert)


class IndexValues:
    """Which values are made of iotas and single elements by little arithmetic."""

    def __init__(self, facts: Facts) -> None:
        graph = facts.graph
        self._costs: dict[ValueId, int] = {}
        for eqn in graph.eqns:
            is_simple = isinstance(eqn.op, POINTWISE) and not isinstance(
                eqn.op, _READS_ANYWHERE
            )
            if not is_simple or len(eqn.outs) != 1:
                continue
            costs = [self._cost(graph, operand) for operand in eqn.inputs]
            total = 1
            for cost in costs:
                if cost is None:
                    break
                total += cost
            else:
                if total <= _MOST_REPEATED:
                    self._costs[eqn.out] = total

    def _cost(self, graph: Graph, operand: Operand) -> int | None:
        if isinstance(operand, Scalar):
            return 0
        found = self._costs.get(operand)
        if found is None and graph.type(operand).size == 1:
            return 0
        return found

    def __contains__(self, value: ValueId) -> bool:
        return value in self._costs


@dataclass(frozen=True, slots=True)
class Slice:
    """The equations from the products to the scores, and what else they read.

    `path` are those that depend on the products, `included` these and those that the
    kernel computes beside them, both in order.
    """

    products: ValueId
    path: tuple[int, ...]
    included: tuple[int, ...]
    extras: tuple[ValueId, ...]


class Slicer:
    """Finds the slices between contractions and the scores of one softmax."""

    def __init__(self, facts: Facts, indices: IndexValues, scores: ValueId) -> None:
        self.facts, self.graph = facts, facts.graph
        self.indices = indices
        self.scores = scores
        self.size = facts.graph.type(scores).size
        self.before: list[int] = []
        self.leaves: list[ValueId] = []
        self.end = ""
        self._walk()

    def _walk(self) -> None:
        """The equations before the scores, back to what is no elementwise op."""
        seen: set[int] = set()
        waiting: list[ValueId] = [self.scores]
        while waiting:
            value = waiting.pop()
            maker = self.facts.makers.get(value)
            eqn = None if maker is None else self.graph.eqns[maker]
            large = self.graph.type(value).size == self.size
            if eqn is None or maker is None or not isinstance(eqn.op, POINTWISE):
                if large and eqn is not None and is_contraction(eqn.op):
                    if value not in self.leaves:
                        self.leaves.append(value)
                elif large:
                    self.end = self._leaf(value)
                continue
            if maker in seen:
                continue
            if len(seen) == _MOST_SLICED:
                raise Declined(
                    Reason.SIZE_LIMIT,
                    f"more than {_MOST_SLICED} equations make "
                    f"{self.facts.named(self.scores)}",
                )
            seen.add(maker)
            waiting += [o for o in eqn.inputs if not isinstance(o, Scalar)]
        self.before = sorted(seen)

    def _leaf(self, value: ValueId) -> str:
        eqn = self.facts.eqn(value)
        if eqn is None:
            return f"{self.facts.named(value)} is an input"
        return f"{self.facts.named(value)} is made by {eqn.op}"

    def products(self) -> Iterator[ValueId]:
        """The contractions whose results the scores are made of."""
        if not self.leaves:
            end = f"; {self.end}" if self.end else ""
            scores = self.facts.named(self.scores)
            raise Declined(Reason.NO_PRODUCTS, f"the scores are {scores}{end}")
        yield from self.leaves

    def cut(self, products: ValueId, ends: Set[int]) -> Slice:
        """The slice from these products; `ends` are what may read the scores."""
        made = {products}
        path: list[int] = []
        for index in self.before:
            eqn = self.graph.eqns[index]
            if made.isdisjoint(o for o in eqn.inputs if not isinstance(o, Scalar)):
                continue
            if not isinstance(eqn.op, (*ELEMENTWISE, *MOVES)) or len(eqn.outs) != 1:
                raise Declined(
                    Reason.BOUNDARY,
                    f"{self.facts.made(eqn.outs[0])} is between "
                    f"{self.facts.named(products)} and the scores %{self.scores}",
                )
            path.append(index)
            made.add(eqn.out)
        if self.scores not in made:
            raise Declined(
                Reason.NO_PRODUCTS, f"%{self.scores} does not depend on %{products}"
            )
        self._require_unread(made, {*path, *ends})
        included = self._included(set(path), ends)
        inside = {self.graph.eqns[index].out for index in included}
        read = (o for i in included for o in self.graph.eqns[i].inputs)
        extras = dict.fromkeys(
            o
            for o in read
            if not isinstance(o, Scalar) and o not in inside and o != products
        )
        if len(extras) > MOST_EXTRAS:
            raise Declined(
                Reason.OPERAND_LIMIT, f"{len(extras)} extras; takes {MOST_EXTRAS}"
            )
        if len(included) > _MOST_INCLUDED:
            raise Declined(
                Reason.SIZE_LIMIT,
                f"{len(included)} equations make the scores; takes {_MOST_INCLUDED}",
            )
        return Slice(products, tuple(path), tuple(included), tuple(extras))

    def _require_unread(self, made: set[ValueId], inside: Set[int]) -> None:
        for value in sorted(made):
            if value in self.facts.kept:
                raise Declined(Reason.SCORES_USED, f"%{value} is an output")
            for user in self.facts.readers(value):
                if user not in inside:
                    eqn = self.graph.eqns[user]
                    raise Declined(
                        Reason.SCORES_USED,
                        f"%{value} is read by {eqn.op} for %{eqn.outs[0]} too",
                    )

    def _included(self, path: set[int], ends: Set[int]) -> list[int]:
        """The path with what nobody else reads, or what takes little to repeat."""
        found = set(path)
        needed = {
            o
            for index in path
            for o in self.graph.eqns[index].inputs
            if not isinstance(o, Scalar)
        }
        for index in reversed(self.before):
            eqn = self.graph.eqns[index]
            if index in path or len(eqn.outs) != 1 or eqn.out not in needed:
                continue
            if eqn.out not in self.indices and not self._is_own(eqn.out, found):
                continue
            found.add(index)
            needed.update(o for o in eqn.inputs if not isinstance(o, Scalar))
        return sorted(found)

    def _is_own(self, value: ValueId, inside: set[int]) -> bool:
        """Whether an elementwise value is read by equations of the slice alone."""
        eqn = self.facts.eqn(value)
        assert eqn is not None
        if value in self.facts.kept or not isinstance(eqn.op, (*ELEMENTWISE, *VIEWS)):
            return False
        return all(user in inside for user in self.facts.readers(value))


def path_axes(graph: Graph, cut: Slice, atoms: Atoms) -> dict[ValueId, Axes]:
    """The axes of every value of the path."""
    known = {cut.products: atoms.axes}
    size = graph.type(cut.products).size
    for index in cut.path:
        eqn = graph.eqns[index]
        made = graph.type(eqn.out)
        if made.size != size:
            raise NoAxes
        if isinstance(eqn.op, ELEMENTWISE):
            mine = [o for o in eqn.inputs if not isinstance(o, Scalar) and o in known]
            padded = [pad(known[o], made.ndim) for o in mine]
            if any(axes != padded[0] for axes in padded):
                raise NoAxes
            known[eqn.out] = padded[0]
        else:
            (source,) = eqn.inputs
            assert not isinstance(source, Scalar)
            known[eqn.out] = atoms.through(eqn.op, known[source], made.shape)
    return known


def score_graph(
    graph: Graph,
    cut: Slice,
    atoms: Atoms,
    axes: dict[ValueId, Axes],
    wanted: tuple[Atom, ...],
    scores: ValueId,
) -> Graph:
    """The slice as a graph of its own, over products and scores of axes `wanted`."""
    builder = Builder()
    shape = tuple(atoms.size(atom) for atom in wanted)
    products = graph.type(cut.products)
    given = builder.input(TensorType(shape, products.dtype))
    known: dict[ValueId, ValueId] = {}
    for extra in cut.extras:
        known[extra] = builder.input(graph.type(extra))
    flat = [atom for group in axes[cut.products] for atom in group]
    perm = tuple(wanted.index(atom) for atom in flat)
    known[cut.products] = _shaped(
        builder, _turned(builder, given, perm), products.shape
    )
    for index in cut.included:
        eqn = graph.eqns[index]
        operands = tuple(o if isinstance(o, Scalar) else known[o] for o in eqn.inputs)
        outs = builder.emit(eqn.op, operands, graph.source(index))
        known.update(zip(eqn.outs, outs, strict=True))
    flat = [atom for group in axes[scores] for atom in group]
    result = _shaped(builder, known[scores], tuple(atoms.size(atom) for atom in flat))
    result = _turned(builder, result, tuple(flat.index(atom) for atom in wanted))
    builder.result(result)
    return builder.finish()


def _turned(builder: Builder, value: ValueId, perm: tuple[int, ...]) -> ValueId:
    if perm == tuple(range(len(perm))):
        return value
    return builder.emit(Transpose(perm), (value,))[0]


def _shaped(builder: Builder, value: ValueId, shape: tuple[int, ...]) -> ValueId:
    if builder.type(value).shape == shape:
        return value
    return builder.emit(Reshape(shape), (value,))[0]
