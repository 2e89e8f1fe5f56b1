"""Dead code: what no output needs is dropped."""

from __future__ import annotations

from poot.core.dtypes import Scalar
from poot.core.graph import Graph
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.driver import Log, Pass, Reason, Rewrite, place_of

DROP_UNUSED = Rewrite(
    "drop_unused", "an equation has no effect but its results, and nobody reads these"
)


def _drop_unused(graph: Graph, info: DeviceInfo, log: Log) -> Graph:
    outputs = {output.value for output in graph.outputs}
    needed = set(outputs)
    read: set[object] = set()
    edit = graph.edit()
    dropped = []
    for index in reversed(range(len(graph.eqns))):
        eqn = graph.eqns[index]
        used = [out for out in eqn.outs if out in needed]
        if not used:
            edit.remove(index)
            dropped.append(index)
            continue
        if not read.intersection(eqn.outs):
            log.decline(DROP_UNUSED, place_of(graph, index), Reason.IS_OUTPUT)
        elif len(used) < len(eqn.outs):
            log.decline(DROP_UNUSED, place_of(graph, index), Reason.OTHER_RESULT_USED)
        operands = [o for o in eqn.inputs if not isinstance(o, Scalar)]
        needed.update(operands)
        read.update(operands)
    for index in reversed(dropped):
        log.fire(DROP_UNUSED, place_of(graph, index))
    return edit.commit() if dropped else graph


dce = Pass("dce", (DROP_UNUSED,), _drop_unused)
