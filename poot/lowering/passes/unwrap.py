"""What only transformations need goes: wrappers, and barriers after CSE."""

from __future__ import annotations

from poot.core.errors import ForwardModeError
from poot.core.extract import needed_equations
from poot.core.graph import Graph
from poot.core.ops.wrappers import CustomTangent, OptimizationBarrier, Wrapper
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.driver import Log, Pass, Rewrite, place_of
from poot.lowering.passes.inline import inline

UNWRAP = Rewrite("unwrap", "a wrapper means its body")
DROP_BARRIER = Rewrite("drop_barrier", "a barrier gives its operands")


def _unwrap(graph: Graph, info: DeviceInfo, log: Log) -> Graph:
    """A body may hold wrappers itself: again until there are none."""
    while True:
        edit = graph.edit()
        found = False
        for index, eqn in enumerate(graph.eqns):
            if isinstance(eqn.op, CustomTangent):
                _require_unused(graph, index, eqn.op)
            if isinstance(eqn.op, Wrapper):
                inline(graph, edit, index, eqn.op.body)
                log.fire(UNWRAP, place_of(graph, index))
                found = True
        if not found:
            return graph
        graph = edit.commit()


def _require_unused(graph: Graph, index: int, op: CustomTangent) -> None:
    """Raise if a tangent counts that only its transpose would know."""
    if index in needed_equations(graph, [output.value for output in graph.outputs]):
        raise ForwardModeError(
            f"`{op.rule.name}` has a custom_vjp rule, which gives reverse mode only, "
            f"and is pushed forward at {graph.source(index)}; jvp, linearize and "
            "jacfwd of it need a custom_jvp rule"
        )


def _drop_barriers(graph: Graph, info: DeviceInfo, log: Log) -> Graph:
    edit = graph.edit()
    found = False
    for index, eqn in enumerate(graph.eqns):
        if isinstance(eqn.op, OptimizationBarrier):
            for out, operand in zip(eqn.outs, eqn.inputs, strict=True):
                edit.replace(out, operand)
            edit.remove(index)
            log.fire(DROP_BARRIER, place_of(graph, index))
            found = True
    return edit.commit() if found else graph


unwrap = Pass("unwrap", (UNWRAP,), _unwrap)
drop_barriers = Pass("drop_barriers", (DROP_BARRIER,), _drop_barriers)
