"""Equations whose operands are literals become literals.

What only counts, an iota say, stays: a kernel computes it from the index, which costs
less than reading it. What costs more becomes a table: see `tables.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from poot.core import dtypes
from poot.core.dtypes import Scalar
from poot.core.equation import Eqn
from poot.core.graph import Graph
from poot.core.op import Op, PrimitiveKey, primitive_keys
from poot.core.ops.elementwise import (
    Binary,
    BinaryOp,
    BitcastConvert,
    Cast,
    Clamp,
    Compare,
    Select,
    Unary,
    UnaryOp,
)
from poot.core.ops.shape import Broadcast, Reshape, Reverse, Slice, Transpose
from poot.core.oracle import impl
from poot.core.oracle.table import Arithmetic
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.driver import Log, Pass, Reason, Rewrite, place_of
from poot.lowering.passes.laws import Draft

FOLD_LITERALS = Rewrite(
    "fold_literals",
    "an equation on literals is computed as the device would, by ops that have but one "
    "right result; all dtypes",
)

_U, _B = UnaryOp, BinaryOp
# Members with one right result in all dtypes, rounded correctly where it is rounded.
_EXACT: frozenset[PrimitiveKey] = frozenset(
    {
        *(Unary[m] for m in (_U.NEG, _U.ABS, _U.SIGN, _U.FLOOR, _U.CEIL, _U.TRUNC)),
        *(Unary[m] for m in (_U.ROUND, _U.NOT, _U.CLZ, _U.POPCOUNT, _U.SIGNBIT)),
        *(Unary[m] for m in (_U.ISNAN, _U.ISINF, _U.ISFINITE, _U.SQRT)),
        *(Binary[m] for m in (_B.ADD, _B.SUB, _B.MUL, _B.DIV)),
        *(Binary[m] for m in (_B.MAX, _B.MIN, _B.COPYSIGN)),
        *(Binary[m] for m in (_B.AND, _B.OR, _B.XOR, _B.SHL, _B.SHR)),
        *(Binary[m] for m in (_B.SHR_LOGICAL, _B.GE, _B.GE_U)),
    }
)
# Of integers these are exact too.
_EXACT_INTEGERS = frozenset(Binary[m] for m in (_B.REM, _B.POW, _B.GCD))
_ELEMENTWISE: tuple[type[Op], ...] = (
    *(Unary, Binary, Compare, Select, Cast, Clamp, BitcastConvert),
)
# What each op means, on single elements here.
_RULES = {key: impl[key] for key in primitive_keys() if key.op in _ELEMENTWISE}
# Whatever they move of a literal that is repeated is that literal.
_MOVES: tuple[type[Op], ...] = (Broadcast, Reshape, Reverse, Slice, Transpose)


def _fold(graph: Graph, info: DeviceInfo, log: Log) -> Graph:
    edit = graph.edit()
    draft = Draft(edit, info)
    arithmetic = Arithmetic(not info.keeps_subnormals32)
    changed = False
    for index, eqn in enumerate(graph.eqns):
        operands = tuple(draft.current(operand) for operand in eqn.inputs)
        if isinstance(eqn.op, _MOVES):
            number = draft.literal(operands[0])
            if number is not None:
                repeat = Broadcast(graph.type(eqn.out).shape)
                draft.makers[eqn.out] = Eqn(repeat, (number,), eqn.outs)
        if not isinstance(eqn.op, _ELEMENTWISE):
            continue
        found = [draft.literal(operand) for operand in operands]
        literals = [literal for literal in found if literal is not None]
        if len(literals) < len(operands) or not _is_same_width(graph, eqn):
            continue
        if not _is_exact(eqn.op, literals):
            detail = f"{eqn.op} of {', '.join(map(str, literals))}"
            where = place_of(graph, index)
            log.decline(FOLD_LITERALS, where, Reason.APPROXIMATE, detail)
            continue
        folded = _computed(eqn.op, literals, arithmetic)
        repeat = Broadcast(graph.type(eqn.out).shape)
        (new,) = edit.emit(repeat, (folded,), index, graph.source(index))
        draft.makers[new] = Eqn(repeat, (folded,), (new,))
        draft.known[eqn.out] = new
        edit.replace(eqn.out, new)
        edit.remove(index)
        log.fire(FOLD_LITERALS, place_of(graph, index))
        changed = True
    return edit.commit() if changed else graph


def _is_same_width(graph: Graph, eqn: Eqn) -> bool:
    """Whether elements stay elements, which those of other widths do not as bits."""
    if not isinstance(eqn.op, BitcastConvert):
        return True
    return graph.type(eqn.inputs[0]).dtype.itemsize == eqn.op.to.itemsize


def _is_exact(op: Op, literals: Sequence[Scalar]) -> bool:
    if not isinstance(op, Unary | Binary):
        return True
    is_integer = all(literal.dtype.is_integer for literal in literals)
    return op.key in _EXACT or (is_integer and op.key in _EXACT_INTEGERS)


def _computed(op: Op, literals: Sequence[Scalar], arithmetic: Arithmetic) -> Scalar:
    """The op on single elements, as the oracle has it."""
    with np.errstate(all="ignore"):
        result = _RULES[op.key](op, arithmetic, *(each.array for each in literals))
    array = np.asarray(result)
    raw = int.from_bytes(array.tobytes(), "little")
    return Scalar(dtypes.as_dtype(array.dtype), raw)


fold = Pass("fold", (FOLD_LITERALS,), _fold)
