"""Staging of functions inside others: bodies of loops, branches, linear parts.

What such a function takes from around it, arrays and values of interpreters below,
becomes an input of its graph beside the function's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from poot.core.dtypes import Scalar
from poot.core.equation import Operand, ValueId
from poot.core.extract import extract
from poot.core.graph import Graph
from poot.core.interpreter import Interpreter, current, interpreting
from poot.core.ops.shape import Broadcast
from poot.core.types import Weight
from poot.interpreters.array import Array
from poot.interpreters.aval import Aval, aval_of
from poot.interpreters.stage import StagingInterpreter
from poot.interpreters.tracer import AnyTracer, Tracer


class _InnerStaging(StagingInterpreter):
    """Builds the graph of a function that runs above another interpreter."""

    def __init__(self, function_name: str, parent: Interpreter) -> None:
        super().__init__(function_name)
        self.parent = parent

    def value_id(self, tracer: Tracer) -> ValueId:
        if isinstance(tracer.operand, Scalar):
            (value,) = self.builder.emit(Broadcast(()), (tracer.operand,))
            return value
        return tracer.operand


class _ClosedStaging(_InnerStaging):
    """What comes from around the function is a constant."""

    def __init__(self, function_name: str, parent: Interpreter) -> None:
        super().__init__(function_name, parent)
        # By identity, as Arrays.
        self._traced: dict[int, tuple[AnyTracer, ValueId]] = {}

    def _foreign(self, traced: AnyTracer) -> Operand:
        if id(traced) not in self._traced:
            value = self.parent.lift(traced)
            constant = self._constant(value, Weight(f"traced {id(value)}"))
            self._traced[id(traced)] = traced, constant
        return self._traced[id(traced)][1]


class NestedStaging(_InnerStaging):
    """Builds the graph of a function that runs above another interpreter.

    `captured` are the values that it takes from there, in the order of the inputs
    `capturing` of its graph.
    """

    def __init__(self, function_name: str, parent: Interpreter) -> None:
        super().__init__(function_name, parent)
        self.captured: list[Any] = []
        self.capturing: list[ValueId] = []
        # What was captured, by identity; held here, so that an id stays its own.
        self._inputs: dict[int, tuple[Any, ValueId]] = {}

    def _foreign(self, traced: AnyTracer) -> Operand:
        return self._capture(traced)

    def _captured(self, array: Array) -> ValueId:
        return self._capture(array)

    def _constant_of(self, copied: Any, digest: str) -> ValueId:
        return self._capture(_bottom(self.parent).lift(copied))

    def _capture(self, given: Any) -> ValueId:
        if id(given) not in self._inputs:
            # Whether it lives further down the stack is for the parent to say.
            # An Array stays itself, so that a graph can be kept for further calls.
            value = given if type(given) is Array else self.parent.lift(given)
            made = self.input(value.aval, "from around the function").operand
            assert not isinstance(made, Scalar)
            self._inputs[id(given)] = given, made
            self.captured.append(value)
            self.capturing.append(made)
        return self._inputs[id(given)][1]


def _bottom(interpreter: Any) -> Any:
    """The lowest interpreter: eager evaluation, or the trace of a jitted function."""
    while hasattr(interpreter, "parent"):
        interpreter = interpreter.parent
    return interpreter


@dataclass(frozen=True, slots=True)
class Nested:
    """A staged function; inputs of its graph: what it captured, then its arguments."""

    graph: Graph
    captured: list[Any]
    result_avals: tuple[Aval, ...]


def stage_nested(
    function: Callable[..., Sequence[Any]], avals: Sequence[Aval], name: str
) -> Nested:
    """Stage a function of flat values that returns flat values."""
    staging = NestedStaging(name, current())
    inputs = [
        staging.input(aval, f"argument {number}") for number, aval in enumerate(avals)
    ]
    try:
        with interpreting(staging):
            results = [staging.lift(result) for result in function(*inputs)]
    finally:
        staging.is_finished = True
    own = [tracer.operand for tracer in inputs]
    for result in results:
        staging.builder.result(staging.value_id(result))
    whole = staging.builder.finish()
    order = [*staging.capturing, *own]
    graph = extract(whole, order, whole.results)  # type: ignore[arg-type]
    return Nested(graph, staging.captured, tuple(result.aval for result in results))


def stage_closed(
    function: Callable[..., Sequence[Any]], graph_types: Sequence[Any], name: str
) -> Graph:
    """The graph of a function of flat values.

    What rules of the user's in it take from around them, arrays and values of
    interpreters below, are constants of the graph. Operations hold none of those:
    `bind_closed` makes operands of them.
    """
    staging = _ClosedStaging(name, current())
    inputs = [staging.input(aval_of(type), "an argument") for type in graph_types]
    try:
        with interpreting(staging):
            results = [staging.lift(result) for result in function(*inputs)]
    finally:
        staging.is_finished = True
    for result in results:
        staging.builder.result(staging.value_id(result))
    whole = staging.builder.finish()
    own = [tracer.operand for tracer in inputs]
    return extract(whole, own, whole.results)  # type: ignore[arg-type]
