"""Control flow becomes loops over state, whose bodies the other passes then see."""

from __future__ import annotations

from poot.core.dtypes import Scalar
from poot.core.edit import GraphEdit
from poot.core.equation import Operand, ValueId
from poot.core.graph import Graph
from poot.core.ops.control import ControlOp
from poot.lowering.device_info import DeviceInfo
from poot.lowering.opened import opened
from poot.lowering.passes.driver import Log, Pass, Rewrite, place_of

OPEN_CONTROL = Rewrite(
    "open_control",
    "elements of xs and ys are slices at the index; a word keeps the first failure",
)


def _open_control(graph: Graph, info: DeviceInfo, log: Log) -> Graph:
    edit = graph.edit()
    found = [
        index
        for index, eqn in enumerate(graph.eqns)
        if isinstance(eqn.op, ControlOp) and not eqn.op.composite
    ]
    for index in found:
        _inline_opened(graph, edit, index)
        log.fire(OPEN_CONTROL, place_of(graph, index))
    return edit.commit() if found else graph


def _inline_opened(graph: Graph, edit: GraphEdit, index: int) -> None:
    """Put what an equation means in its place."""
    eqn, source = graph.eqns[index], graph.source(index)
    assert isinstance(eqn.op, ControlOp)
    inner = opened(eqn.op, [graph.type(operand) for operand in eqn.inputs])
    known: dict[ValueId, Operand] = dict(zip(inner.inputs, eqn.inputs, strict=True))
    for step in inner.eqns:
        inputs = (o if isinstance(o, Scalar) else known[o] for o in step.inputs)
        outs = edit.emit(step.op, tuple(inputs), index, source)
        known.update(zip(step.outs, outs, strict=True))
    for out, result in zip(eqn.outs, inner.results, strict=True):
        edit.replace(out, known[result])
    edit.remove(index)


open_control = Pass("open_control", (OPEN_CONTROL,), _open_control)
