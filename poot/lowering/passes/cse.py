"""Common subexpressions: equal equations are computed once."""

from __future__ import annotations

from collections.abc import Iterator

from poot.core.dtypes import Scalar
from poot.core.equation import Eqn, Operand, ValueId
from poot.core.graph import Graph
from poot.core.op import Op
from poot.core.ops.elementwise import Binary, BinaryOp
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.driver import Log, Pass, Reason, Rewrite, named, place_of

MERGE_TWINS = Rewrite(
    "merge_twins",
    "equal ops on the same operands, literals equal in every bit, give equal bits",
)

_COMMUTATIVE = frozenset(
    {
        BinaryOp.ADD,
        BinaryOp.MUL,
        BinaryOp.MAX,
        BinaryOp.MIN,
        BinaryOp.AND,
        BinaryOp.OR,
        BinaryOp.XOR,
    }
)

Key = tuple[Op, tuple[Operand, ...]]


def _merge_twins(graph: Graph, info: DeviceInfo, log: Log) -> Graph:
    """Replace the results of later twins. Outputs, witnesses among them, all stay."""
    edit = graph.edit()
    first: dict[Key, Eqn] = {}
    near: dict[object, Eqn] = {}
    known: dict[ValueId, ValueId] = {}
    for index, eqn in enumerate(graph.eqns):
        operands = tuple(
            o if isinstance(o, Scalar) else known.get(o, o) for o in eqn.inputs
        )
        twin = first.setdefault((eqn.op, operands), eqn)
        if twin is not eqn:
            for out, kept in zip(eqn.outs, twin.outs, strict=True):
                known[out] = kept
                edit.replace(out, kept)
            edit.remove(index)
            log.fire(MERGE_TWINS, place_of(graph, index))
            continue
        for reason, likeness in _likenesses(eqn.op, operands):
            other = near.setdefault(likeness, eqn)
            if other is not eqn:
                given = named(graph, *other.inputs)
                detail = f"%{other.outs[0]} is of {given}"
                log.decline(MERGE_TWINS, place_of(graph, index), reason, detail)
    return edit.commit() if known else graph


def _likenesses(
    op: Op, operands: tuple[Operand, ...]
) -> Iterator[tuple[Reason, object]]:
    """What equations that only look like twins have in common."""
    if isinstance(op, Binary) and op.op in _COMMUTATIVE:
        yield Reason.OPERAND_ORDER, (op, frozenset(operands))
    # Without literals none but a twin is alike.
    numbers = (o.value if isinstance(o, Scalar) else f"%{o}" for o in operands)
    yield Reason.LITERAL_BITS, (op, tuple(numbers))


cse = Pass("cse", (MERGE_TWINS,), _merge_twins)
