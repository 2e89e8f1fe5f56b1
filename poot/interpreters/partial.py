"""Partial evaluation: known values are computed now, the rest becomes a graph.

Under `jvp` with known primals and unknown tangents, that graph is the linear part of
a function: its derivative at a point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from poot.core.dtypes import Scalar
from poot.core.extract import extract, needed_equations
from poot.core.graph import Graph
from poot.core.interpreter import Interpreter, interpreting
from poot.core.op import Op, RuleTable
from poot.interpreters.aval import Aval
from poot.interpreters.nested import NestedStaging
from poot.interpreters.tracer import Tracer
from poot.interpreters.transform import TransformInterpreter

# (interpreter, op, operands) -> results, for ops that are partly known by themselves:
# those with sub-graphs. The parent is current. Other ops are unknown as a whole if an
# operand is.
PartialRule = Callable[[Any, Any, Sequence[Any]], tuple[Any, ...]]
partial: RuleTable[PartialRule] = RuleTable("partial")


@dataclass(frozen=True, slots=True)
class Unknown:
    """What was left unknown: a graph of residuals, then of the unknown inputs."""

    graph: Graph
    residuals: list[Any]


class PartialInterpreter(TransformInterpreter):
    """Known values are the parent's own; unknown ones Tracers of `staging`."""

    kind: ClassVar[str] = "linearize"

    def __init__(self, parent: Interpreter, function_name: str) -> None:
        super().__init__(parent, function_name)
        self.staging = NestedStaging(function_name, parent)
        self._unknown: list[Tracer] = []

    def unknown(self, aval: Aval) -> Tracer:
        """A new unknown input."""
        made = self.staging.input(aval, f"unknown {len(self._unknown)}")
        self._unknown.append(made)
        return made

    def is_unknown(self, x: Any) -> bool:
        return type(x) is Tracer and x.staging is self.staging

    def process(self, op: Op, operands: tuple[Any, ...]) -> tuple[Any, ...]:
        if not any(map(self.is_unknown, operands)):
            return self.parent.process(op, operands)
        if op.key in partial:
            with interpreting(self.parent):
                return partial[op.key](self, op, operands)
        return self.staging.process(op, operands)

    def lift(self, value: Any, weak: bool = False) -> Any:
        return value if self.is_unknown(value) else self.parent.lift(value, weak)

    def witness(self, failed: Any, message: str, values: Sequence[Any]) -> list[Any]:
        if self.is_unknown(failed):
            return self.staging.witness(failed, message, values)
        # A derivative may be used without the values: so the check is not left to them.
        self.parent.witness(failed, message, ())
        return list(values)

    def finish(self, results: Sequence[Any]) -> Unknown:
        """The graph that gives `results`, which may be known, from what is unknown."""
        staging = self.staging
        for result in results:
            staging.builder.result(staging.value_id(staging.lift(result)))
        staging.is_finished = self.is_finished = True
        whole = staging.builder.finish()
        needed = needed_equations(whole, [o.value for o in whole.outputs])
        used = {v for index in needed for v in whole.eqns[index].inputs}
        used.update(output.value for output in whole.outputs)
        kept = [
            pair
            for pair in zip(staging.capturing, staging.captured, strict=True)
            if pair[0] in used
        ]
        own = [x.operand for x in self._unknown if not isinstance(x.operand, Scalar)]
        order = [*(value for value, _ in kept), *own]
        graph = extract(whole, order, whole.results)
        return Unknown(graph, [residual for _, residual in kept])
