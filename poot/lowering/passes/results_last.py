"""Small results run last, such as the mean of losses: rows are not cut for them.

A row program stands before all that reads its results. Where the mean of the losses
came first, what needs another sum, as of the weights of all rows, could not join it.
"""

from __future__ import annotations

from poot.core.equation import Operand, ValueId
from poot.core.graph import Graph
from poot.core.op import Op
from poot.core.ops.reduce import Reduce
from poot.core.ops.shape import Broadcast, Reshape
from poot.core.types import Storage
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.driver import Log, Pass, Reason, Rewrite, place_of
from poot.lowering.plan.layout import VIEWS
from poot.lowering.plan.state import ELEMENTWISE

RESULTS_LAST = Rewrite(
    "results_last",
    "equations that do not need each other may stand in any order: what small results "
    "alone need comes last",
)
# Values may wait for the end that have no more elements than this, and are so much
# smaller than what is reduced anywhere.
_SMALL = 1 << 16
_SMALLER = 4

_SMALL_OPS: tuple[type[Op], ...] = (*ELEMENTWISE, Broadcast, Reshape, Reduce)


def _results_last(graph: Graph, info: DeviceInfo, log: Log) -> Graph:
    late = _late(graph, log)
    early = [index for index in range(len(graph.eqns)) if index not in late]
    moved = [index for index in sorted(late) if early and index < early[-1]]
    if not any(isinstance(graph.eqns[index].op, Reduce) for index in moved):
        return graph
    edit = graph.edit()
    edit.reorder([*early, *sorted(late)])
    for index in moved:
        log.fire(RESULTS_LAST, place_of(graph, index))
    return edit.commit()


def _late(graph: Graph, log: Log) -> set[int]:
    """The equations that lead to nothing but small results."""
    sizes = [
        graph.type(eqn.inputs[0]).size
        for eqn in graph.eqns
        if isinstance(eqn.op, Reduce)
    ]
    limit = min(_SMALL, max(sizes, default=0) // _SMALLER)
    states = _states(graph)
    uses = graph.uses()
    late: set[int] = set()
    for index in reversed(range(len(graph.eqns))):
        eqn = graph.eqns[index]
        values = (*eqn.inputs, *eqn.outs)
        users = [user for out in eqn.outs for user in uses.get(out, ())]
        if (
            not isinstance(eqn.op, _SMALL_OPS)
            or any(graph.type(value).size > limit for value in values)
            or not late.issuperset(users)
        ):
            continue
        read = [operand for operand in eqn.inputs if operand in states]
        if read:
            detail = f"reads the state %{states[read[0]]}"
            log.decline(
                RESULTS_LAST, place_of(graph, index), Reason.OVERWRITTEN, detail
            )
            continue
        late.add(index)
    return late


def _states(graph: Graph) -> dict[Operand, ValueId]:
    """The states that are given and views of them, each with its state."""
    found: dict[Operand, ValueId] = {v: v for v in graph.inputs_in(Storage.STATE)}
    for eqn in graph.eqns:
        if isinstance(eqn.op, VIEWS) and eqn.inputs[0] in found:
            found[eqn.out] = found[eqn.inputs[0]]
    return found


results_last = Pass("results_last", (RESULTS_LAST,), _results_last)
