"""What computing an element costs, and how often fusing would compute it."""

from __future__ import annotations

from collections.abc import Iterator

from poot.core.dtypes import Scalar
from poot.core.equation import Eqn, ValueId
from poot.core.graph import Graph
from poot.core.op import Op
from poot.core.ops.contractions import DenseRowGather
from poot.core.ops.elementwise import (
    Binary,
    BinaryOp,
    BitcastConvert,
    Unary,
    UnaryOp,
)
from poot.core.ops.indexing import DynamicSlice, Gather, GeneralGather
from poot.core.ops.random import Threefry2x32
from poot.core.ops.rope import Rope
from poot.core.ops.shape import (
    Broadcast,
    Concat,
    Iota,
    Pad,
    Reshape,
    Reverse,
    Slice,
    Transpose,
)
from poot.core.types import Storage, TensorType
from poot.lowering.plan.state import ELEMENTWISE, POINTWISE

# What is computed again may cost this much for each element of the results, in units
# of an addition …
CHEAP = 8
# … or this much in all.
NEGLIGIBLE = 1 << 16
# A value that is read in more ways than this is stored.
MOST_WAYS = 4

# By the code that a kernel has for them; members that are not listed are one unit.
_UNARY = {
    UnaryOp.EXP: 13,
    UnaryOp.EXP2: 11,
    UnaryOp.EXPM1: 18,
    UnaryOp.LOG: 20,
    UnaryOp.LOG2: 25,
    UnaryOp.LOG10: 25,
    UnaryOp.LOG1P: 30,
    UnaryOp.SQRT: 18,
    UnaryOp.RSQRT: 36,
    UnaryOp.CBRT: 22,
    UnaryOp.RECIP: 22,
    UnaryOp.SIN: 90,
    UnaryOp.COS: 90,
    UnaryOp.TAN: 110,
    UnaryOp.ASIN: 28,
    UnaryOp.ACOS: 28,
    UnaryOp.ATAN: 33,
    UnaryOp.SINH: 22,
    UnaryOp.COSH: 15,
    UnaryOp.TANH: 24,
    UnaryOp.ASINH: 58,
    UnaryOp.ACOSH: 55,
    UnaryOp.ATANH: 54,
    UnaryOp.ERF: 70,
    UnaryOp.ERFC: 70,
    UnaryOp.ERF_INV: 50,
    UnaryOp.LGAMMA: 110,
    UnaryOp.DIGAMMA: 95,
}
_BINARY = {
    BinaryOp.DIV: 26,
    BinaryOp.REM: 35,
    BinaryOp.POW: 95,
    BinaryOp.ATAN2: 50,
    BinaryOp.HYPOT: 36,
    BinaryOp.NEXTAFTER: 9,
    BinaryOp.GCD: 64,
}


# 20 rounds of an addition, a rotation and an exclusive or, and the key six times.
_THREEFRY = 115
# Two products, a sum, a sign and a choice, and where the partner stands.
_ROPE = 8


def cost(op: Op) -> int:
    """What one element of the result costs, operands aside, in additions."""
    match op:
        case Unary(member):
            return _UNARY.get(member, 1)
        case Binary(member):
            return _BINARY.get(member, 1)
        case Threefry2x32():
            return _THREEFRY
        case Rope():
            return _ROPE
        case Broadcast() | Transpose() | Slice() | Iota() | Reverse():
            return 0
    return 1


def recompute_costs(graph: Graph) -> dict[ValueId, int]:
    """What an element costs of the values that need no tensor of their own size.

    Only values are listed that are so cheap that no kernel should read them: numbers
    of axes, repeated rows, blocks of what stands elsewhere and stays, and a little
    arithmetic on these.
    """
    found: dict[ValueId, int] = {}
    for eqn in graph.eqns:
        if isinstance(eqn.op, POINTWISE):
            total = _recompute_cost(graph, eqn, found)
            if total is not None:
                found.update(dict.fromkeys(eqn.outs, total))
    return found


def _recompute_cost(graph: Graph, eqn: Eqn, found: dict[ValueId, int]) -> int | None:
    total = cost(eqn.op)
    small = max(16, graph.type(eqn.outs[0]).size // 16)
    for operand in eqn.inputs:
        if isinstance(operand, Scalar):
            continue
        if operand in found:
            total += found[operand]
        elif graph.type(operand).size > small and not _is_block(graph, eqn.op, operand):
            return None
    return total if total <= CHEAP else None


def _is_block(graph: Graph, op: Op, source: ValueId) -> bool:
    """Whether an op only takes a block of what is not overwritten."""
    is_state = graph.values[source].storage is Storage.STATE
    return isinstance(op, DynamicSlice) and not is_state


def reads(
    graph: Graph, index: int, points: int
) -> Iterator[tuple[ValueId, object | None, int]]:
    """How an equation reads its operands if `points` elements of its result are read.

    For each operand: the step from the result's index to its own (None: it is the
    same), and how many of its elements are read.
    """
    eqn = graph.eqns[index]
    out = graph.type(eqn.outs[0])
    for number, operand in enumerate(eqn.inputs):
        if isinstance(operand, Scalar):
            continue
        given = graph.type(operand)
        if isinstance(eqn.op, Rope) and number == 0:
            # The element itself, and its partner.
            yield operand, None, points
            yield operand, eqn.op, points
        elif isinstance(eqn.op, ELEMENTWISE) and given.shape == out.shape:
            yield operand, None, points
        else:
            step = _step(eqn.op, number, given.shape, index)
            yield operand, step, _points(eqn.op, given, out, points)


def _step(op: Op, number: int, shape: tuple[int, ...], index: int) -> object:
    """What of an equation decides which element of an operand an index means."""
    match op:
        case Gather() | GeneralGather() | DynamicSlice() | DenseRowGather():
            return index, number
        case Concat() | Pad():
            return op, number
        case Reshape() | Transpose() | Slice() | Reverse() | BitcastConvert():
            return op
    return shape


def _points(op: Op, given: TensorType, out: TensorType, points: int) -> int:
    """How many indices of an operand are walked for `points` of the result."""
    if isinstance(op, Concat | Pad | BitcastConvert):
        return max(1, min(points, points * given.size // max(out.size, 1)))
    repeats_inside = (
        isinstance(op, (*ELEMENTWISE, Broadcast))
        and out.ndim > 0
        and out.shape[-1] > 1
        and (given.ndim == 0 or given.shape[-1] == 1)
    )
    # One evaluation serves the neighbouring elements that an invocation computes.
    return max(1, points // 4) if repeats_inside else points
