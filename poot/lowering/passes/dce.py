"""Dead code: what no output needs is dropped."""

from __future__ import annotations

from collections.abc import Sequence

from poot.core.dtypes import Scalar
from poot.core.edit import GraphEdit
from poot.core.equation import Eqn, ValueId
from poot.core.graph import Graph
from poot.core.ops.control import ControlOp
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.driver import Log, Pass, Reason, Rewrite, named, place_of
from poot.lowering.passes.trim import trimmed

DROP_UNUSED = Rewrite(
    "drop_unused", "an equation has no effect but its results, and nobody reads these"
)

DROP_PARTS = Rewrite(
    "drop_parts",
    "what a sub-graph computes for no result that is read has no effect either",
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
        if isinstance(eqn.op, ControlOp) and len(used) < len(eqn.outs):
            eqn = _trim(graph, edit, index, used, log)
        if not read.intersection(eqn.outs):
            detail = named(graph, *used)
            log.decline(DROP_UNUSED, place_of(graph, index), Reason.IS_OUTPUT, detail)
        elif len(used) < len(eqn.outs):
            place, detail = place_of(graph, index), named(graph, *used)
            log.decline(DROP_UNUSED, place, Reason.OTHER_RESULT_USED, detail)
        operands = [o for o in eqn.inputs if not isinstance(o, Scalar)]
        needed.update(operands)
        read.update(operands)
    for index in reversed(dropped):
        log.fire(DROP_UNUSED, place_of(graph, index))
    return edit.commit() if dropped or log.fired(DROP_PARTS) else graph


def _trim(
    graph: Graph, edit: GraphEdit, index: int, used: Sequence[ValueId], log: Log
) -> Eqn:
    """Let a loop or choice give only what is used; the equation as it is then."""
    eqn, source = graph.eqns[index], graph.source(index)
    assert isinstance(eqn.op, ControlOp)
    kept = set(used)
    found = trimmed(eqn.op, [n for n, out in enumerate(eqn.outs) if out in kept])
    if found is None:
        return eqn
    operands = tuple(eqn.inputs[number] for number in found.operands)
    outs = edit.emit(found.op, operands, index, source)
    for number, new in zip(found.outs, outs, strict=True):
        edit.replace(eqn.outs[number], new)
    edit.remove(index)
    log.fire(DROP_PARTS, place_of(graph, index))
    return Eqn(found.op, operands, tuple(eqn.outs[number] for number in found.outs))


dce = Pass("dce", (DROP_UNUSED, DROP_PARTS), _drop_unused)
