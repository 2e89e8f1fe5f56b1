"""Puts back the primitives of composites that a device cannot run."""

from __future__ import annotations

from poot.core.errors import CompositeRefused
from poot.core.graph import Graph
from poot.core.ops.composite import Composite
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.driver import (
    Log,
    Pass,
    PassRecord,
    Reason,
    Rewrite,
    place_of,
    run_passes,
)
from poot.lowering.passes.inline import inline

KEEP_COMPOSITE = Rewrite(
    "keep_composite", "a composite means its decomposition, which is planned instead"
)


def undo(
    graph: Graph, refused: CompositeRefused, info: DeviceInfo
) -> tuple[Graph, tuple[PassRecord, ...]]:
    """The graph with the refused composite decomposed wherever it stands."""

    def run(graph: Graph, info: DeviceInfo, log: Log) -> Graph:
        edit = graph.edit()
        for index, eqn in enumerate(graph.eqns):
            types = tuple(map(graph.type, eqn.inputs))
            if (eqn.op, types) != (refused.op, refused.types):
                continue
            assert isinstance(eqn.op, Composite)
            inline(graph, edit, index, eqn.op.decompose(*types))
            log.decline(
                KEEP_COMPOSITE, place_of(graph, index), Reason.DEVICE, str(refused)
            )
        return edit.commit()

    return run_passes((Pass("undo", (KEEP_COMPOSITE,), run),), graph, info)
