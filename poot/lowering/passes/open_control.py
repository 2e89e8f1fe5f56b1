"""Control flow becomes loops over state, whose bodies the other passes then see."""

from __future__ import annotations

from poot.core.graph import Graph
from poot.core.ops.control import ControlOp
from poot.lowering.device_info import DeviceInfo
from poot.lowering.opened import opened
from poot.lowering.passes.driver import Log, Pass, Rewrite, place_of
from poot.lowering.passes.inline import inline

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
        eqn = graph.eqns[index]
        assert isinstance(eqn.op, ControlOp)
        types = [graph.type(operand) for operand in eqn.inputs]
        inline(graph, edit, index, opened(eqn.op, types, graph.source(index)))
        log.fire(OPEN_CONTROL, place_of(graph, index))
    return edit.commit() if found else graph


open_control = Pass("open_control", (OPEN_CONTROL,), _open_control)
