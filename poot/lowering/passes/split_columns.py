"""A product whose columns go different ways is one product for each way.

So the halves of act(h[:, :n]) * h[:, n:] are a gated pair, and q, k and v of one weight
get rope and cache writes of their own; they share a launch as products of one operand
do.
"""

from __future__ import annotations

from poot.core.dtypes import Scalar
from poot.core.edit import GraphEdit
from poot.core.equation import Eqn, Operand, ValueId
from poot.core.graph import Graph
from poot.core.ops.contractions import DenseContraction, GroupedDenseContraction
from poot.core.ops.elementwise import Cast
from poot.core.ops.matmul import DotGeneral, MatMul, free_axes
from poot.core.ops.random import Threefry2x32
from poot.core.ops.rope import Rope
from poot.core.ops.scatter import DynamicUpdateSlice
from poot.core.ops.shape import Reshape, Slice
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.contraction_growth import Growth, Uses
from poot.lowering.passes.driver import (
    Log,
    Pass,
    Reason,
    Refusal,
    Rewrite,
    named,
    place_of,
)
from poot.lowering.passes.horizontal import MOST_HEADS
from poot.lowering.plan.state import ELEMENTWISE

SPLIT_COLUMNS = Rewrite(
    "split_columns",
    "columns of a product are the product with these columns of the weight, and an "
    "element is the same wherever it is computed",
)


# Equations between a slice and what places its elements.
_MOST_BETWEEN = 12


class _Walk:
    """One walk over the contractions of a graph."""

    def __init__(self, graph: Graph, info: DeviceInfo, log: Log) -> None:
        self.graph = graph
        self.log = log
        self.uses = Uses(graph, info)
        self.edit: GraphEdit | None = None

    def run(self) -> Graph:
        for index in range(len(self.graph.eqns)):
            if self.uses.is_contraction(index):
                self._try(index)
        return self.graph if self.edit is None else self.edit.commit()

    def _try(self, index: int) -> None:
        axis = _column_axis(self.graph, self.graph.eqns[index])
        if axis is None:
            return
        chain = self._chain(index)
        last = self.graph.eqns[chain[-1]].out
        readers = self.uses.users.get(last, [])
        slices = [user for user in readers if self._takes_columns(user)]
        if not slices:
            return
        place = place_of(self.graph, index)
        refusal = self._refusal(chain, readers, slices)
        if refusal is not None:
            detail = f"{named(self.graph, last)}: {refusal.detail}"
            self.log.decline(SPLIT_COLUMNS, place, refusal.reason, detail)
            return
        self._split(chain, slices, axis)
        self.log.fire(SPLIT_COLUMNS, place)

    def _chain(self, index: int) -> list[int]:
        """The contraction, and the elementwise equations that alone read it in turn."""
        chain = [index]
        while True:
            value = self.graph.eqns[chain[-1]].out
            readers = self.uses.users.get(value, [])
            if len(readers) != 1 or value in self.uses.kept:
                return chain
            eqn = self.graph.eqns[readers[0]]
            if not _is_elementwise(eqn):
                return chain
            if self.graph.type(eqn.out).shape != self.graph.type(value).shape:
                return chain
            chain.append(readers[0])

    def _takes_columns(self, index: int) -> bool:
        eqn = self.graph.eqns[index]
        if not isinstance(eqn.op, Slice):
            return False
        last = self.graph.type(eqn.out).ndim - 1
        return eqn.op.axis == last and self.graph.type(eqn.out).size > 0

    def _refusal(
        self, chain: list[int], readers: list[int], slices: list[int]
    ) -> Refusal | None:
        value = self.graph.eqns[chain[-1]].out
        others = [place_of(self.graph, user) for user in readers if user not in slices]
        if value in self.uses.kept:
            return Refusal(Reason.SHARED, "it is an output")
        if others:
            return Refusal(Reason.SHARED, f"read by {others[0]}")
        parts = named(self.graph, *(self.graph.eqns[index].out for index in slices))
        if not self.uses.taken.isdisjoint(chain):
            return Refusal(Reason.TAKEN, parts)
        if len(slices) > MOST_HEADS:
            detail = f"{len(slices)} slices, takes {MOST_HEADS}"
            return Refusal(Reason.RESULT_LIMIT, detail)
        if self._overlap(slices):
            return Refusal(Reason.RECOMPUTE, f"columns in more than one of {parts}")
        if self._pays(slices):
            return None
        detail = f"{parts} neither meet nor go into rope or an update"
        return Refusal(Reason.SMALL_GAIN, detail)

    def _overlap(self, slices: list[int]) -> bool:
        """Whether some column is in several slices."""
        taken: list[int] = []
        for index in slices:
            op = self.graph.eqns[index].op
            assert isinstance(op, Slice)
            taken += range(op.start, op.end, op.stride)
        return len(set(taken)) < len(taken)

    def _pays(self, slices: list[int]) -> bool:
        """Whether halves meet in one kernel, or a part is put where it belongs."""
        if len(slices) == 2 and Growth(self.uses, slices).grow() is not None:
            return True
        return any(self._is_placed(index) for index in slices)

    def _is_placed(self, index: int) -> bool:
        """Whether rope or an update follows what only changes shape and dtype."""
        waiting = [index]
        for each in waiting:
            for reader in self.uses.users.get(self.graph.eqns[each].out, ()):
                op = self.graph.eqns[reader].op
                if isinstance(op, Rope | DynamicUpdateSlice):
                    return True
                if isinstance(op, Reshape | Cast) and len(waiting) < _MOST_BETWEEN:
                    waiting.append(reader)
        return False

    def _split(self, chain: list[int], slices: list[int], axis: int) -> None:
        """A contraction, with what follows it, in place of each slice."""
        self.edit = self.edit or self.graph.edit()
        gone = {*chain, *slices}
        for index in slices:
            part = _Part(self.uses, self.edit, self.graph.eqns[index], chain)
            self.edit.replace(part.taken.out, part.make(axis))
            gone |= part.repeated
        for index in gone:
            self.edit.remove(index)
        self.uses.taken |= gone


class _Part:
    """Some columns of what a chain makes, in the making."""

    def __init__(
        self, uses: Uses, edit: GraphEdit, taken: Eqn, chain: list[int]
    ) -> None:
        self.uses, self.graph, self.edit = uses, uses.graph, edit
        self.taken, self.chain = taken, chain
        self.columns = self.graph.type(self.graph.eqns[chain[0]].out).shape[-1]
        # Elementwise equations that only the chain reads, and that no one needs now.
        self.repeated: set[int] = set()

    def make(self, axis: int) -> ValueId:
        """The value; `axis` is that of the rhs whose places are the columns."""
        first, *others = (self.graph.eqns[index] for index in self.chain)
        lhs, rhs = first.inputs
        made = self._emit(self.chain[0], (lhs, self._slice(rhs, axis)))
        known = {first.out: made}
        for index, eqn in zip(self.chain[1:], others, strict=True):
            inputs = (
                known[o] if o in known else self._part(o, index) for o in eqn.inputs
            )
            made = self._emit(index, tuple(inputs))
            known = {eqn.out: made}
        return made

    def _part(self, operand: Operand, reader: int) -> Operand:
        """The columns of an operand, computed as they are where only they are read."""
        shape = self.graph.type(operand).shape
        if isinstance(operand, Scalar) or shape[-1:] != (self.columns,):
            return operand
        maker = self.uses.makers.get(operand)
        if maker is None or operand in self.uses.kept:
            return self._slice(operand, len(shape) - 1)
        eqn = self.graph.eqns[maker]
        if not _is_elementwise(eqn) or self.uses.users[operand] != [reader]:
            return self._slice(operand, len(shape) - 1)
        self.repeated.add(maker)
        return self._emit(maker, tuple(self._part(o, maker) for o in eqn.inputs))

    def _emit(self, index: int, inputs: tuple[Operand, ...]) -> ValueId:
        op, source = self.graph.eqns[index].op, self.graph.source(index)
        return self.edit.emit(op, inputs, index, source)[0]

    def _slice(self, operand: Operand, axis: int) -> ValueId:
        at, op = self.chain[0], self.taken.op
        assert isinstance(op, Slice)
        cut = Slice(axis, op.start, op.end, op.stride)
        return self.edit.emit(cut, (operand,), at, self.graph.source(at))[0]


def _is_elementwise(eqn: Eqn) -> bool:
    return isinstance(eqn.op, ELEMENTWISE) and not isinstance(eqn.op, Threefry2x32)


def _column_axis(graph: Graph, eqn: Eqn) -> int | None:
    """The axis of the rhs that is the last of the result; None if that is a row."""
    op, ndim = eqn.op, graph.type(eqn.inputs[1]).ndim
    if isinstance(op, MatMul):
        return ndim - 1
    if isinstance(op, GroupedDenseContraction):
        return None
    assert isinstance(op, DotGeneral | DenseContraction)
    free = free_axes(ndim, op.rhs_contracting, op.rhs_batch)
    return free[-1] if free else None


def _split_columns(graph: Graph, info: DeviceInfo, log: Log) -> Graph:
    return _Walk(graph, info, log).run()


split_columns = Pass("split_columns", (SPLIT_COLUMNS,), _split_columns)
