"""Whether donated state may be overwritten where it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from poot.core.dtypes import Scalar
from poot.core.equation import Eqn, ValueId
from poot.core.graph import Graph
from poot.core.op import Op
from poot.core.ops.composite import Fused
from poot.core.ops.elementwise import Binary, Cast, Clamp, Compare, Select, Unary
from poot.core.ops.random import Threefry2x32
from poot.core.ops.scatter import DynamicUpdateSlice, Scatter, ScatterUpdate
from poot.lowering.plan.layout import VIEWS

ELEMENTWISE: tuple[type[Op], ...] = (
    Unary,
    Binary,
    Compare,
    Select,
    Cast,
    Clamp,
    Threefry2x32,
)

# Ops that change some elements of operand 0, and of it read only these.
UPDATES: tuple[type[Op], ...] = (DynamicUpdateSlice, Scatter, ScatterUpdate)


def can_overwrite(
    graph: Graph, uses: Mapping[ValueId, Sequence[int]], state: ValueId, maker: int
) -> bool:
    """Whether equation `maker` may write its result over the state input `state`.

    Nobody may read the old state later, and the equation itself only the element that
    it overwrites.
    """
    aliases = [state]
    for alias in aliases:
        for user in uses.get(alias, ()):
            if user > maker:
                return False
            eqn = graph.eqns[user]
            if user == maker and (alias != state or not _same_index(eqn, state, graph)):
                return False
            if isinstance(eqn.op, VIEWS):
                aliases.append(eqn.out)
    return True


def _same_index(eqn: Eqn, state: ValueId, graph: Graph) -> bool:
    """Whether result element i of `eqn` depends on no element of `state` but i."""
    shape = graph.type(state).shape
    if any(graph.type(out).shape != shape for out in eqn.outs):
        return False
    if isinstance(eqn.op, UPDATES):
        return state not in eqn.inputs[1:]
    if isinstance(eqn.op, Fused):
        body = eqn.op.body
        read = [
            param
            for param, operand in zip(body.inputs, eqn.inputs, strict=True)
            if operand == state
        ]
        return _elementwise_in(body, read, shape)
    return isinstance(eqn.op, ELEMENTWISE)


def _elementwise_in(
    body: Graph, read: Sequence[ValueId], shape: tuple[int, ...]
) -> bool:
    """Whether only elementwise equations of one shape depend on the values `read`."""
    dependent = set(read)
    for eqn in body.eqns:
        if not any(not isinstance(o, Scalar) and o in dependent for o in eqn.inputs):
            continue
        if not isinstance(eqn.op, ELEMENTWISE):
            return False
        if any(body.type(out).shape != shape for out in eqn.outs):
            return False
        dependent.update(eqn.outs)
    return True
