"""Puts a graph in the place of an equation."""

from __future__ import annotations

from poot.core.dtypes import Scalar
from poot.core.edit import GraphEdit
from poot.core.equation import Operand, ValueId
from poot.core.graph import Graph


def inline(graph: Graph, edit: GraphEdit, index: int, inner: Graph) -> None:
    """Let the results of `inner`, over the operands of an equation, be its results."""
    eqn, source = graph.eqns[index], graph.source(index)
    known: dict[ValueId, Operand] = dict(zip(inner.inputs, eqn.inputs, strict=True))
    for step in inner.eqns:
        inputs = (o if isinstance(o, Scalar) else known[o] for o in step.inputs)
        outs = edit.emit(step.op, tuple(inputs), index, source)
        known.update(zip(step.outs, outs, strict=True))
    for out, result in zip(eqn.outs, inner.results, strict=True):
        edit.replace(out, known[result])
    edit.remove(index)
