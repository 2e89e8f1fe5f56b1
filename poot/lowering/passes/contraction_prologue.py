"""Few rows that one contraction reads are normalized in its workgroups."""

from __future__ import annotations

import math

from poot.core import dtypes
from poot.core.builder import Builder
from poot.core.dtypes import Scalar
from poot.core.equation import Eqn, Operand, ValueId
from poot.core.graph import Graph
from poot.core.op import Op
from poot.core.ops.composite import FusedRow
from poot.core.ops.contractions import ContractionEpilogue
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.contraction_growth import CONTRACTIONS, lhs_axes, rhs_axis
from poot.lowering.passes.driver import (
    Log,
    Numerics,
    Pass,
    Reason,
    Refusal,
    Rewrite,
    named,
    place_of,
)
from poot.lowering.passes.units import MOST_OPERANDS
from poot.lowering.passes.views import static_layouts
from poot.lowering.plan.layout import Layout
from poot.lowering.plan.rows import needs_stages

PROLOGUE = Rewrite(
    "prologue",
    "each workgroup computes the rows that it reads, as few as they are; the sums over "
    "a row may be ordered otherwise",
    Numerics.REASSOCIATING,
)
# So many rows at most are computed in each workgroup.
MOST_ROWS = 16
# Contractions of so few products are over before a launch of their own would pay.
_FEW_PRODUCTS = 1 << 20
# A CPU's launch costs less than reading larger products' rows from what a workgroup
# shares, which takes it twice as long.
_FEW_PRODUCTS_OF_CPU = 1 << 17
# What a kernel needs of the workgroup's memory but for the rows.
_SPARE_BYTES = 8192


class _Walk:
    """One walk over the row programs of a graph."""

    def __init__(self, graph: Graph, info: DeviceInfo, log: Log) -> None:
        self.graph = graph
        self.info = info
        self.log = log
        self.users = graph.uses()
        self.layouts = static_layouts(graph)
        self.kept = frozenset(output.value for output in graph.outputs)

    def run(self) -> Graph:
        pairs = [
            (index, reader)
            for index, eqn in enumerate(self.graph.eqns)
            if isinstance(eqn.op, FusedRow)
            for reader in self._reader(index, eqn)
        ]
        if not pairs:
            return self.graph
        edit = self.graph.edit()
        for index, reader in pairs:
            eqn = self.graph.eqns[reader]
            op, operands = self._joined(self.graph.eqns[index], eqn)
            outs = edit.emit(op, operands, reader, self.graph.source(reader))
            for old, new in zip(eqn.outs, outs, strict=True):
                edit.replace(old, new)
            edit.remove(index)
            edit.remove(reader)
        return edit.commit()

    def _reader(self, index: int, eqn: Eqn) -> list[int]:
        """The contraction that takes in the row program, if any reads it at all."""
        readers = [user for out in eqn.outs for user in self.users.get(out, ())]
        found = [user for user in readers if self._is_contraction(user)]
        if not found:
            return []
        refusal = self._refusal(eqn, readers)
        if refusal is None:
            self.log.fire(PROLOGUE, place_of(self.graph, index))
            return found
        detail = named(self.graph, *(self.graph.eqns[user].outs[0] for user in readers))
        detail += f": {refusal.detail}"
        self.log.decline(PROLOGUE, place_of(self.graph, index), refusal.reason, detail)
        return []

    def _is_contraction(self, index: int) -> bool:
        op = self.graph.eqns[index].op
        if isinstance(op, ContractionEpilogue):
            return op.prologue is None
        return isinstance(op, CONTRACTIONS)

    def _refusal(self, eqn: Eqn, readers: list[int]) -> Refusal | None:
        """Why it stays apart, and the sizes that this depends on."""
        made_here = named(self.graph, *eqn.outs)
        if len(eqn.outs) > 1:
            detail = f"{len(eqn.outs)} results, {made_here}"
            return Refusal(Reason.OTHER_RESULT_USED, detail)
        if eqn.out in self.kept:
            return Refusal(Reason.KEPT, f"{made_here} is an output")
        if len(readers) > 1:
            detail = f"{len(readers)} read {made_here}, takes 1"
            return Refusal(Reason.SEVERAL_READERS, detail)
        (reader,) = readers
        made, type = self.graph.eqns[reader], self.graph.type(eqn.out)
        if not self._is_lhs(made, eqn.out):
            return Refusal(Reason.NOT_LHS, f"made of {named(self.graph, *made.inputs)}")
        rows, length = math.prod(type.shape[:-1]), type.shape[-1]
        if rows > MOST_ROWS or needs_stages(rows, length, self.info):
            detail = f"{rows} rows of {length}, at most {MOST_ROWS}"
            return Refusal(Reason.MANY_ROWS, detail)
        repeats = self._repeats(made, rows)
        if repeats is not None:
            return Refusal(Reason.RECOMPUTE, repeats)
        room = self.info.max_shared_bytes - _SPARE_BYTES
        taken = rows * length * dtypes.float32.itemsize
        if taken > room:
            return Refusal(Reason.SHARED_MEMORY, f"{taken} B, at most {room}")
        operands = len({*eqn.inputs, *made.inputs}) + len(made.outs)
        if operands > MOST_OPERANDS:
            detail = f"{operands}, at most {MOST_OPERANDS}"
            return Refusal(Reason.OPERAND_LIMIT, detail)
        return None

    def _repeats(self, reader: Eqn, rows: int) -> str | None:
        """How much is computed by workgroups that would each compute the rows too.

        None where these are few: of weights whose k stand side by side, few workgroups
        can compute all columns.
        """
        composite, operands = as_epilogue(self.graph, reader)
        weights = operands[1 : 1 + len(composite.heads)]
        products = rows * sum(self.graph.type(weight).size for weight in weights)
        most = _FEW_PRODUCTS_OF_CPU if self.info.is_cpu else _FEW_PRODUCTS
        if products <= most:
            return None
        pairs = zip(composite.heads, weights, strict=True)
        if (
            not self.info.is_cpu
            and self.info.subgroup_arithmetic
            and all(self._is_dense(head, weight) for head, weight in pairs)
        ):
            return None
        return f"{products} products, at most {most} by so many workgroups"

    def _is_dense(self, head: Op, weight: Operand) -> bool:
        type = self.graph.type(weight)
        layout = Layout.dense(type.shape)
        if not isinstance(weight, Scalar):
            layout = self.layouts.get(weight, layout)
        return layout.strides[rhs_axis(head, type.ndim)] == 1

    def _is_lhs(self, reader: Eqn, value: ValueId) -> bool:
        """Whether rows of the value are contracted, one by one, as the lhs."""
        type = self.graph.type(value)
        if reader.inputs[0] != value or value in reader.inputs[1:]:
            return False
        op = reader.op
        head = op.heads[0] if isinstance(op, ContractionEpilogue) else op
        if not type.dtype.is_float or type.dtype.itemsize == 8 or not type.size:
            return False
        return lhs_axes(head, type.ndim) == ((type.ndim - 1,), ())

    def _joined(
        self, rows: Eqn, reader: Eqn
    ) -> tuple[ContractionEpilogue, tuple[Operand, ...]]:
        assert isinstance(rows.op, FusedRow)
        composite, operands = as_epilogue(self.graph, reader)
        op = ContractionEpilogue(composite.heads, composite.body, rows.op.body)
        return op, (*rows.inputs, *operands[1:])


def as_epilogue(
    graph: Graph, eqn: Eqn
) -> tuple[ContractionEpilogue, tuple[Operand, ...]]:
    """A contraction as the composite that computes nothing else, or as it is."""
    if isinstance(eqn.op, ContractionEpilogue):
        return eqn.op, eqn.inputs
    builder = Builder()
    builder.result(builder.input(graph.type(eqn.out)))
    assert not any(isinstance(operand, Scalar) for operand in eqn.inputs)
    return ContractionEpilogue((eqn.op,), builder.finish()), eqn.inputs


def _contraction_prologue(graph: Graph, info: DeviceInfo, log: Log) -> Graph:
    return _Walk(graph, info, log).run()


contraction_prologue = Pass("contraction_prologue", (PROLOGUE,), _contraction_prologue)
