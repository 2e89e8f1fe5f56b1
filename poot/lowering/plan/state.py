"""Whether donated state may be overwritten where it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from poot.core.dtypes import Scalar
from poot.core.equation import Eqn, Operand, ValueId
from poot.core.graph import Graph
from poot.core.op import Op
from poot.core.ops.composite import Fused
from poot.core.ops.contractions import ContractionEpilogue, DenseRowGather
from poot.core.ops.elementwise import (
    Binary,
    BitcastConvert,
    Cast,
    Clamp,
    Compare,
    Select,
    Unary,
)
from poot.core.ops.indexing import DynamicSlice, Gather, GeneralGather
from poot.core.ops.loops import StateLoop
from poot.core.ops.random import Threefry2x32
from poot.core.ops.rope import Rope
from poot.core.ops.scatter import DynamicUpdateSlice, Scatter, ScatterUpdate
from poot.core.ops.shape import Concat, Iota, Pad, Reverse
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

# Ops that take each element of the result from somewhere.
MOVEMENT: tuple[type[Op], ...] = (
    *VIEWS,
    Pad,
    Reverse,
    Concat,
    Iota,
    Gather,
    GeneralGather,
    DynamicSlice,
    BitcastConvert,
)
# What one kernel computes element by element of the results.
POINTWISE: tuple[type[Op], ...] = (*ELEMENTWISE, *MOVEMENT, Rope, DenseRowGather)

# Ops that change some elements of operand 0, and of it read only these.
UPDATES: tuple[type[Op], ...] = (DynamicUpdateSlice, Scatter, ScatterUpdate)


def updated_operand(eqn: Eqn, made: ValueId) -> ValueId | None:
    """The value that an equation turns into its result `made` step by step, if any."""
    operand: Operand | None = None
    if isinstance(eqn.op, UPDATES):
        operand = eqn.inputs[0]
    elif isinstance(eqn.op, Fused):
        param = updated_input(eqn.op.body, eqn.op.body.results[eqn.outs.index(made)])
        if param is not None:
            operand = eqn.inputs[eqn.op.body.inputs.index(param)]
    elif isinstance(eqn.op, ContractionEpilogue):
        param = updated_input(eqn.op.body, eqn.op.body.results[eqn.outs.index(made)])
        if param is not None:
            # Behind what makes the lhs: a weight for each head, then the extras.
            number = eqn.op.lhs_count + eqn.op.body.inputs.index(param)
            operand = eqn.inputs[number]
    elif isinstance(eqn.op, StateLoop):
        operand = initial_state(eqn, made)
    return None if isinstance(operand, Scalar) else operand


def updated_input(body: Graph, made: ValueId) -> ValueId | None:
    """The input that a result of a region is a block update of, if it is one."""
    update = block_update(body, made)
    if update is None:
        return None
    operand = update.inputs[0]
    if isinstance(operand, Scalar) or operand not in body.inputs:
        return None
    return operand


def is_only_updated(body: Graph, param: ValueId) -> bool:
    """Whether an input of a region has no reader but the update of it."""
    readers = sum(eqn.inputs.count(param) for eqn in body.eqns)
    return readers == 1 and param not in body.results


def block_update(body: Graph, made: ValueId) -> Eqn | None:
    """The DynamicUpdateSlice in a region that makes a value, if one does."""
    for eqn in body.eqns:
        if made in eqn.outs:
            return eqn if isinstance(eqn.op, DynamicUpdateSlice) else None
    return None


def initial_state(eqn: Eqn, made: ValueId) -> Operand | None:
    """What the state of a loop begins as that ends as `made`; None: as nothing."""
    assert isinstance(eqn.op, StateLoop)
    number = eqn.outs.index(made)
    return eqn.inputs[number] if number < eqn.op.started else None


def can_overwrite(
    graph: Graph,
    uses: Mapping[ValueId, Sequence[int]],
    state: ValueId,
    maker: int,
    made: ValueId,
) -> bool:
    """Whether equation `maker` may write its result `made` over the value `state`.

    Nobody may read the old state later, and the equation itself only the element that
    it overwrites.
    """
    aliases = [state]
    for alias in aliases:
        for user in uses.get(alias, ()):
            if user > maker:
                return False
            eqn = graph.eqns[user]
            if user == maker and (
                alias != state or not _same_index(eqn, state, made, graph)
            ):
                return False
            if isinstance(eqn.op, VIEWS):
                aliases.append(eqn.out)
    return True


def _same_index(eqn: Eqn, state: ValueId, made: ValueId, graph: Graph) -> bool:
    """Whether `eqn` may read element i of `state` as long as that of `made` is not."""
    if isinstance(eqn.op, StateLoop):
        begins = initial_state(eqn, made) == state
        return begins and eqn.inputs.count(state) == 1
    shape = graph.type(state).shape
    if graph.type(made).shape != shape:
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
        updated = updated_input(body, body.results[eqn.outs.index(made)])
        if updated is not None:
            return read == [updated] and is_only_updated(body, updated)
        return _elementwise_in(body, read, shape)
    if isinstance(eqn.op, ContractionEpilogue):
        return _in_epilogue(eqn, eqn.op, state, made, graph)
    return isinstance(eqn.op, ELEMENTWISE) and all(
        graph.type(out).shape == shape for out in eqn.outs
    )


def _in_epilogue(
    eqn: Eqn, op: ContractionEpilogue, state: ValueId, made: ValueId, graph: Graph
) -> bool:
    """Whether a contraction reads `state` only where it stores results made of it."""
    sources, weights, extras = op.parts(eqn.inputs)
    if state in (*sources, *weights):
        return False
    body, shape = op.body, graph.type(state).shape
    pairs = zip(body.inputs[len(op.heads) :], extras, strict=True)
    read = [param for param, operand in pairs if operand == state]
    updated = updated_input(body, body.results[eqn.outs.index(made)])
    if updated is not None:
        return read == [updated] and is_only_updated(body, updated)
    if len(op.head_groups()) > 1:
        return False
    if any(graph.type(out).shape != shape for out in eqn.outs):
        return False
    return _elementwise_in(body, read, shape)


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
