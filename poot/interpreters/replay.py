"""Replays a graph under the current interpreter, op by op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from poot.core.dtypes import Scalar
from poot.core.equation import Operand, ValueId
from poot.core.graph import Graph
from poot.core.interpreter import current
from poot.core.source import replayed_sources
from poot.core.types import Storage


def replay(graph: Graph, arguments: Sequence[Any]) -> list[Any]:
    """The results of `graph` on values for each of `graph.arguments`.

    Every op names the user's line that emitted it first; failed checks report as those
    of the graph do.
    """
    interpreter = current()
    given = iter(arguments)
    values: dict[ValueId, Any] = {
        value: interpreter.lift(graph.payloads[value])
        if graph.values[value].storage is Storage.CONST
        else next(given)
        for value in graph.inputs
    }

    def read(operand: Operand) -> Any:
        return operand if isinstance(operand, Scalar) else values[operand]

    with replayed_sources() as line:
        for index, eqn in enumerate(graph.eqns):
            line.source = graph.source(index)
            operands = tuple(map(read, eqn.inputs))
            results = interpreter.process(eqn.op, operands)
            values.update(zip(eqn.outs, results, strict=True))
        found = [values[result] for result in graph.results]
        for witness in graph.witnesses:
            line.source = witness.source
            failed = values[witness.value]
            # Whoever uses any of the results depends on the check.
            found = interpreter.witness(failed, witness.message, found)
    return found
