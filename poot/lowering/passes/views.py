"""Which view ops cost nothing, as their readers find the elements in place."""

from __future__ import annotations

from poot.core.dtypes import Scalar
from poot.core.equation import ValueId
from poot.core.graph import Graph
from poot.core.ops.shape import Reshape
from poot.lowering.plan.layout import VIEWS, Layout, view_layout


def static_layouts(graph: Graph) -> dict[ValueId, Layout]:
    """The layout of each view op's result that stands in its operand's buffer.

    What other ops compute is taken to be dense.
    """
    found: dict[ValueId, Layout] = {}
    for eqn in graph.eqns:
        if not isinstance(eqn.op, VIEWS) or isinstance(eqn.inputs[0], Scalar):
            continue
        source = found.get(eqn.inputs[0], Layout.dense(graph.type(eqn.inputs[0]).shape))
        layout = view_layout(eqn.op, source)
        if layout is not None:
            found[eqn.out] = layout
    return found


def free_views(graph: Graph, layouts: dict[ValueId, Layout]) -> frozenset[int]:
    """The equations that need no launch.

    Outputs are dense buffers, so of views only another shape of one is free.
    """
    kept = {output.value for output in graph.outputs}
    return frozenset(
        index
        for index, eqn in enumerate(graph.eqns)
        if eqn.outs[0] in layouts
        and (
            eqn.out not in kept
            or (isinstance(eqn.op, Reshape) and layouts[eqn.out].is_dense)
        )
    )
