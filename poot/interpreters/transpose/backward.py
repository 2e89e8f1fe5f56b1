"""Transposition of a graph that is linear in some inputs: the pass backwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from poot.core.dtypes import Kind, Scalar, float32
from poot.core.equation import Operand, ValueId
from poot.core.errors import NotLinearError
from poot.core.extract import needed_equations
from poot.core.graph import Graph
from poot.core.interpreter import current
from poot.core.op import Op
from poot.core.ops.host import Record
from poot.core.source import replayed_sources
from poot.core.types import TensorType
from poot.interpreters.primitives import add, cast, type_of
from poot.interpreters.transpose.table import Cotangent, Linear, transpose_rule


def backward(
    graph: Graph, inputs: Sequence[Any], cotangents: Sequence[Cotangent]
) -> list[Cotangent]:
    """Cotangents of the inputs of `graph`, given those of its results.

    `inputs` has a value for each input, Linear for those that the results depend on
    linearly; the others' cotangents are None. What depends on values alone is computed
    first. Runs under the current interpreter.
    """
    return _Backward(graph, inputs).run(cotangents)


class _Backward:
    """One pass: known values on the way forward, cotangents on the way back."""

    def __init__(self, graph: Graph, inputs: Sequence[Any]) -> None:
        self._graph = graph
        self._known: dict[ValueId, Any] = {
            value: given
            for value, given in zip(graph.inputs, inputs, strict=True)
            if not isinstance(given, Linear)
        }
        self._found: dict[ValueId, Any] = {}

    def run(self, cotangents: Sequence[Cotangent]) -> list[Cotangent]:
        graph = self._graph
        for result, cotangent in zip(graph.results, cotangents, strict=True):
            self._add(result, cotangent)
        needed = needed_equations(graph, list(self._found))
        if graph.witnesses:
            self._refuse_records()
        with replayed_sources() as line:
            linear = []
            for index in needed:
                line.source = graph.source(index)
                if not self._compute(index):
                    linear.append(index)
            for index in reversed(linear):
                line.source = graph.source(index)
                self._transpose(index)
        return [self._found.get(value) for value in graph.inputs]

    def _refuse_records(self) -> None:
        """NotLinearError for a record of what has no value on the way back."""
        for index, eqn in enumerate(self._graph.eqns):
            if isinstance(eqn.op, Record) and not all(map(self._is_known, eqn.inputs)):
                raise NotLinearError(
                    f"{eqn.op.site.name} at {self._graph.source(index)} is given "
                    "tangents, which have no values in reverse mode; record the "
                    "primals, or use jvp"
                )

    def _add(self, operand: Operand, cotangent: Cotangent) -> None:
        if cotangent is None or isinstance(operand, Scalar) or operand in self._known:
            return
        held = self._found.get(operand)
        self._found[operand] = cotangent if held is None else add(held, cotangent)

    def _is_known(self, operand: Operand) -> bool:
        return isinstance(operand, Scalar) or operand in self._known

    def _read(self, operand: Operand) -> Any:
        if isinstance(operand, Scalar):
            return operand
        if operand in self._known:
            return self._known[operand]
        return Linear(self._graph.type(operand))

    def _compute(self, index: int) -> bool:
        """Compute an equation if its operands are known; whether they were."""
        eqn = self._graph.eqns[index]
        if not all(map(self._is_known, eqn.inputs)):
            return False
        results = current().process(eqn.op, tuple(map(self._read, eqn.inputs)))
        self._known.update(zip(eqn.outs, results, strict=True))
        return True

    def _transpose(self, index: int) -> None:
        eqn = self._graph.eqns[index]
        cotangents = [self._found.pop(out, None) for out in eqn.outs]
        if all(cotangent is None for cotangent in cotangents):
            return
        operands = [self._read(operand) for operand in eqn.inputs]
        found = _transposed(eqn.op, cotangents, operands)
        for operand, cotangent in zip(eqn.inputs, found, strict=True):
            self._add(operand, cotangent)


def _transposed(
    op: Op, cotangents: Sequence[Cotangent], operands: Sequence[Any]
) -> Sequence[Cotangent]:
    """What the rule of an op gives, which may add cotangents up: in f32 if it must."""
    rule = transpose_rule(op)
    is_stored = [ct is not None and _is_stored(type_of(ct)) for ct in cotangents]
    if not any(is_stored) or op.multiple_results:
        return rule(op, cotangents, operands)
    wide = [
        cast(ct, float32) if stored else ct
        for ct, stored in zip(cotangents, is_stored, strict=True)
    ]
    given = [
        Linear(TensorType(x.type.shape, float32))
        if isinstance(x, Linear) and _is_stored(x.type)
        else x
        for x in operands
    ]
    return [
        cast(ct, x.type.dtype) if ct is not None and isinstance(x, Linear) else ct
        for ct, x in zip(rule(op, wide, given), operands, strict=True)
    ]


def _is_stored(type: TensorType) -> bool:
    return type.dtype.kind is Kind.STORAGE
