"""Declared ranges of slots tell where an index lies: no wrapping, no dropped rows."""

from __future__ import annotations

import math

from poot.core.dtypes import Scalar
from poot.core.edit import GraphEdit
from poot.core.equation import Operand, ValueId
from poot.core.graph import Graph
from poot.core.ops.elementwise import Compare, CompareOp, Select
from poot.core.ops.scatter import DynamicUpdateSlice, Scatter, ScatterOp
from poot.core.ops.shape import Reshape
from poot.core.types import Slot
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.driver import Log, Pass, Reason, Rewrite, place_of

_LAW = "a slot holds no word outside of its declared range, as its bind has checked"
NOT_NEGATIVE = Rewrite("not_negative", f"select(x < 0, a, b) = b for x >= 0; {_LAW}")
ROW_AT_SLOT = Rewrite(
    "row_at_slot",
    f"a scatter of one window that lies inside is an update of that block; {_LAW}",
)


class _Walk:
    def __init__(self, graph: Graph, log: Log) -> None:
        self.graph = graph
        self.log = log
        self.edit: GraphEdit = graph.edit()
        self.makers = graph.definitions()
        self.changes = False
        # Values that are a slot, reshaped maybe.
        self.slots: dict[Operand, ValueId] = {value: value for value in graph.slots}

    def run(self) -> Graph:
        for index, eqn in enumerate(self.graph.eqns):
            match eqn.op:
                case Reshape() if eqn.inputs[0] in self.slots:
                    self.slots[eqn.out] = self.slots[eqn.inputs[0]]
                case Select():
                    self._select(index)
                case Scatter(op=ScatterOp.SET):
                    self._scatter(index)
        return self.edit.commit() if self.changes else self.graph

    def _slot(self, value: Operand) -> Slot:
        slot = self.graph.values[self.slots[value]].slot
        assert slot is not None
        return slot

    def _select(self, index: int) -> None:
        eqn = self.graph.eqns[index]
        condition, _, chosen = eqn.inputs
        compared = self._compared_with_zero(condition)
        if compared is None or self.graph.type(chosen) != self.graph.type(eqn.out):
            return
        slot = self._slot(compared)
        if slot.low is None or slot.low < 0:
            self._decline(NOT_NEGATIVE, index, slot)
            return
        self.edit.replace(eqn.out, chosen)
        self.edit.remove(index)
        if chosen in self.slots:
            self.slots[eqn.out] = self.slots[chosen]
        self._fire(NOT_NEGATIVE, index)

    def _compared_with_zero(self, condition: Operand) -> Operand | None:
        """The slot x if the condition is x < 0."""
        if isinstance(condition, Scalar) or condition not in self.makers:
            return None
        eqn = self.graph.eqns[self.makers[condition]]
        if eqn.op != Compare(CompareOp.LT) or eqn.inputs[0] not in self.slots:
            return None
        x, bound = eqn.inputs
        return x if bound == Scalar.of(0, self.graph.type(x).dtype) else None

    def _scatter(self, index: int) -> None:
        eqn = self.graph.eqns[index]
        assert isinstance(eqn.op, Scatter)
        operand, indices, updates = eqn.inputs
        dims = eqn.op.dims
        axes = dims.scatter_dims_to_operand_dims
        if indices not in self.slots or self.graph.type(indices).size != 1:
            return
        if len(axes) != 1 or dims.operand_batching_dims:
            return
        (axis,) = axes
        shape = self.graph.type(operand).shape
        window = dims.window(len(shape), self.graph.type(updates).shape)
        slot = self._slot(indices)
        last = shape[axis] - window[axis]
        if slot.low is None or slot.high is None or slot.low < 0 or slot.high > last:
            self._decline(ROW_AT_SLOT, index, slot, f", takes 0..{last}")
            return
        start = self.slots[indices]
        source = self.graph.source(index)
        if self.graph.type(start).shape:
            (start,) = self.edit.emit(Reshape(()), (start,), index, source)
        block: Operand = updates
        if self.graph.type(updates).shape != tuple(window):
            assert math.prod(window) == self.graph.type(updates).size
            (block,) = self.edit.emit(Reshape(tuple(window)), (updates,), index, source)
        zero = Scalar.of(0, self.edit.type(start).dtype)
        starts = [start if n == axis else zero for n in range(len(shape))]
        (new,) = self.edit.emit(
            DynamicUpdateSlice(), (operand, block, *starts), index, source
        )
        self.edit.replace(eqn.out, new)
        self.edit.remove(index)
        self._fire(ROW_AT_SLOT, index)

    def _fire(self, rewrite: Rewrite, index: int) -> None:
        self.changes = True
        self.log.fire(rewrite, place_of(self.graph, index))

    def _decline(
        self, rewrite: Rewrite, index: int, slot: Slot, needed: str = ""
    ) -> None:
        has = "no range" if slot.low is None else f"{slot.low}..{slot.high}"
        detail = f"{slot.kind} has {has}{needed}"
        self.log.decline(
            rewrite, place_of(self.graph, index), Reason.SLOT_RANGE, detail
        )


def _slot_ranges(graph: Graph, info: DeviceInfo, log: Log) -> Graph:
    return _Walk(graph, log).run() if graph.slots else graph


slot_ranges = Pass("slot_ranges", (NOT_NEGATIVE, ROW_AT_SLOT), _slot_ranges)
