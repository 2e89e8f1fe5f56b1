"""Cuts a graph out of another: what some results need of given inputs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from poot.core.builder import Builder
from poot.core.dtypes import Scalar
from poot.core.equation import Operand, ValueId
from poot.core.graph import Graph
from poot.core.ops.shape import Broadcast
from poot.core.types import ANONYMOUS, Identity, Storage


def needed_equations(
    graph: Graph, values: Sequence[Operand], given: Collection[ValueId] = ()
) -> list[int]:
    """The indices of the equations that `values` depend on, in order.

    What is among the values `given` depends on nothing.
    """
    wanted = {v for v in values if not isinstance(v, Scalar) and v not in given}
    found = []
    for index in range(len(graph.eqns) - 1, -1, -1):
        eqn = graph.eqns[index]
        if wanted.isdisjoint(eqn.outs):
            continue
        found.append(index)
        wanted.update(
            v for v in eqn.inputs if not isinstance(v, Scalar) and v not in given
        )
    return found[::-1]


def _identity(graph: Graph, value: ValueId) -> Identity:
    """Of a value as an input: that of a constant goes with its payload."""
    is_const = graph.values[value].storage is Storage.CONST
    return ANONYMOUS if is_const else graph.values[value].identity


def extract(
    graph: Graph,
    inputs: Sequence[ValueId],
    results: Sequence[Operand],
    *,
    witnesses: bool = True,
) -> Graph:
    """The part of `graph` that makes `results`, and its witnesses, from `inputs`.

    Inputs are values of the graph, computed ones and constants too, in the order of the
    new graph's; what is not among them must be computed from them and from constants,
    which stay such and come after them. A literal result becomes an equation.
    """
    builder = Builder()
    moved: dict[ValueId, ValueId] = {
        value: builder.input(graph.type(value), identity=_identity(graph, value))
        for value in inputs
    }

    def operand(given: Operand) -> Operand:
        return given if isinstance(given, Scalar) else moved[given]

    kept = graph.witnesses if witnesses else ()
    wanted = [*results, *(witness.value for witness in kept)]
    needed = needed_equations(graph, wanted, set(inputs))
    used = {*wanted, *(x for index in needed for x in graph.eqns[index].inputs)}
    for const in graph.consts:
        if const in used and const not in moved:
            moved[const] = builder.constant(
                graph.type(const),
                graph.payloads[const],
                graph.values[const].identity,
            )
    for index in needed:
        eqn = graph.eqns[index]
        outs = builder.emit(
            eqn.op, tuple(map(operand, eqn.inputs)), graph.source(index)
        )
        for old, new in zip(eqn.outs, outs, strict=True):
            moved.setdefault(old, new)
    for result in results:
        value = operand(result)
        if isinstance(value, Scalar):
            (value,) = builder.emit(Broadcast(()), (value,))
        builder.result(value)
    for witness in kept:
        builder.witness(moved[witness.value], witness.message, witness.source)
    return builder.finish()
