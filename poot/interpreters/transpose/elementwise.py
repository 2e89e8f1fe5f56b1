"""Transposes of what works element by element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from poot.core.ops.elementwise import (
    Binary,
    BinaryOp,
    Cast,
    Select,
    Unary,
    UnaryOp,
)
from poot.interpreters.primitives import (
    cast,
    div,
    mul,
    neg,
    number,
    select,
    type_of,
    unbroadcast,
)
from poot.interpreters.transpose.table import (
    Cotangent,
    Linear,
    not_linear,
    require_one_linear,
    transpose,
)

_B = BinaryOp


def _reduced(ct: Any, operand: Any) -> Cotangent:
    """The cotangent of an operand that was repeated to the shape of `ct`."""
    if not isinstance(operand, Linear):
        return None
    return unbroadcast(ct, operand.type.shape)


@transpose.define(Unary[UnaryOp.NEG])
def _neg(op: Unary, cts: Sequence[Any], operands: Sequence[Any]) -> tuple[Any, ...]:
    return (neg(cts[0]),)


@transpose.define(Binary[_B.ADD])
def _add(
    op: Binary, cts: Sequence[Any], operands: Sequence[Any]
) -> tuple[Cotangent, ...]:
    return tuple(_reduced(cts[0], operand) for operand in operands)


@transpose.define(Binary[_B.SUB])
def _sub(
    op: Binary, cts: Sequence[Any], operands: Sequence[Any]
) -> tuple[Cotangent, ...]:
    one, other = (_reduced(cts[0], operand) for operand in operands)
    return one, None if other is None else neg(other)


@transpose.define(Binary[_B.MUL])
def _mul(
    op: Binary, cts: Sequence[Any], operands: Sequence[Any]
) -> tuple[Cotangent, ...]:
    a, b = operands
    require_one_linear(op, a, b)
    if isinstance(a, Linear):
        return _reduced(mul(cts[0], b), a), None
    return None, _reduced(mul(cts[0], a), b)


@transpose.define(Binary[_B.DIV])
def _div(
    op: Binary, cts: Sequence[Any], operands: Sequence[Any]
) -> tuple[Cotangent, ...]:
    a, b = operands
    if isinstance(b, Linear):
        raise not_linear(op, "in the divisor")
    return _reduced(div(cts[0], b), a), None


@transpose.define(Select)
def _select(
    op: Select, cts: Sequence[Any], operands: Sequence[Any]
) -> tuple[Cotangent, ...]:
    condition, if_true, if_false = operands
    (ct,) = cts
    zero = number(0, type_of(ct).dtype)
    one = other = None
    if isinstance(if_true, Linear):
        one = _reduced(select(condition, ct, zero), if_true)
    if isinstance(if_false, Linear):
        other = _reduced(select(condition, zero, ct), if_false)
    return None, one, other


@transpose.define(Cast)
def _cast(op: Cast, cts: Sequence[Any], operands: Sequence[Any]) -> tuple[Any, ...]:
    (x,) = operands
    if not (x.type.dtype.is_differentiable and op.to.is_differentiable):
        raise not_linear(op, f"from {x.type.dtype} to {op.to}")
    return (cast(cts[0], x.type.dtype),)
