"""Builds a graph equation by equation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from poot.core.dtypes import Scalar
from poot.core.equation import (
    Eqn,
    Export,
    GraphOutput,
    Operand,
    Result,
    StateNext,
    ValueId,
    Witness,
)
from poot.core.errors import CompositeError, UndefinedValueError
from poot.core.graph import Graph
from poot.core.op import Op
from poot.core.source import UNKNOWN, Source
from poot.core.types import (
    ANONYMOUS,
    Identity,
    Slot,
    Storage,
    TensorType,
    ValueMeta,
    literal_type,
)
from poot.core.verify import verify


class Builder:
    """A graph under construction; `finish` checks it and hands it out.

    `composites` lets passes build regions that hold composite ops; tracers may not.
    """

    def __init__(self, composites: bool = False) -> None:
        self._composites = composites
        self._values: list[ValueMeta] = []
        self._inputs: list[ValueId] = []
        self._eqns: list[Eqn] = []
        self._sources: list[Source] = []
        self._outputs: list[GraphOutput] = []
        self._payloads: dict[ValueId, Any] = {}

    def _new_value(self, meta: ValueMeta) -> ValueId:
        self._values.append(meta)
        return ValueId(len(self._values) - 1)

    def input(
        self,
        type: TensorType,
        storage: Storage = Storage.DEVICE,
        identity: Identity = ANONYMOUS,
        slot: Slot | None = None,
    ) -> ValueId:
        """Add an input binder."""
        value = self._new_value(ValueMeta(type, storage, identity, slot))
        self._inputs.append(value)
        return value

    def constant(
        self, type: TensorType, payload: Any, identity: Identity = ANONYMOUS
    ) -> ValueId:
        """Add a constant with its data (None: the data comes later)."""
        value = self.input(type, Storage.CONST, identity)
        if payload is not None:
            self._payloads[value] = payload
        return value

    def type(self, operand: Operand) -> TensorType:
        """The type of a value or literal."""
        if isinstance(operand, Scalar):
            return literal_type(operand)
        if not 0 <= operand < len(self._values):
            raise UndefinedValueError(f"%{operand} is no value of this builder")
        return self._values[operand].type

    def slot(self, value: ValueId) -> Slot | None:
        """The kind and range of a value that the host writes; None for others."""
        return self._values[value].slot

    def storage(self, value: ValueId) -> Storage:
        return self._values[value].storage

    @property
    def read_values(self) -> set[ValueId]:
        """The values that an equation reads."""
        operands = (operand for eqn in self._eqns for operand in eqn.inputs)
        return {operand for operand in operands if not isinstance(operand, Scalar)}

    def emit(
        self,
        op: Op,
        operands: tuple[Operand, ...],
        source: Source = UNKNOWN,
        identity: Identity = ANONYMOUS,
    ) -> tuple[ValueId, ...]:
        """Add an equation; the ids of its results."""
        if op.composite and not self._composites:
            raise CompositeError(
                f"{op} is a composite, which only passes make; emit its primitives "
                f"({source})"
            )
        types = op.infer_all(*(self.type(operand) for operand in operands))
        outs = tuple(self._new_value(ValueMeta(t, identity=identity)) for t in types)
        self._eqns.append(Eqn(op, tuple(operands), outs))
        self._sources.append(source)
        return outs

    def inline(
        self, graph: Graph, operands: Sequence[ValueId]
    ) -> dict[ValueId, ValueId]:
        """Add all equations of a graph; what each of its values is here."""
        known = dict(zip(graph.inputs, operands, strict=True))
        for index, eqn in enumerate(graph.eqns):
            inputs = (o if isinstance(o, Scalar) else known[o] for o in eqn.inputs)
            outs = self.emit(eqn.op, tuple(inputs), graph.source(index))
            known.update(zip(eqn.outs, outs, strict=True))
        return known

    def result(self, value: ValueId) -> None:
        self._outputs.append(Result(value))

    def witness(self, value: ValueId, message: str, source: Source = UNKNOWN) -> None:
        """Report `message` if the i32 scalar `value` is not zero."""
        self._outputs.append(Witness(value, message, source))

    def export(self, name: str, value: ValueId) -> None:
        self._outputs.append(Export(value, name))

    def state_next(self, input: ValueId, value: ValueId) -> None:
        """Overwrite the buffer of the state input with `value`."""
        self._outputs.append(StateNext(value, input))

    def donate(self, input: ValueId, value: ValueId) -> None:
        """Make a device input state, whose buffer `value` overwrites."""
        self._values[input] = replace(self._values[input], storage=Storage.STATE)
        self.state_next(input, value)

    def finish(self) -> Graph:
        """The graph, checked."""
        return verify(
            Graph(
                tuple(self._values),
                tuple(self._inputs),
                tuple(self._eqns),
                tuple(self._outputs),
                dict(self._payloads),
                tuple(self._sources),
            )
        )
