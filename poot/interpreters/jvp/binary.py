"""Functions of two and three elements, which broadcast.

A slope is made of the primals alone, so that one number an element is kept for each
tangent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from poot.core.dtypes import Scalar
from poot.core.errors import NoDerivativeError
from poot.core.ops.elementwise import (
    Binary,
    BinaryOp,
    BitcastConvert,
    Cast,
    Clamp,
    Compare,
    CompareOp,
    Select,
    UnaryOp,
)
from poot.core.ops.random import Threefry2x32
from poot.interpreters.jvp.definitions import One, define_constant, like, total
from poot.interpreters.jvp.table import Tangent, jvp
from poot.interpreters.primitives import (
    add,
    binary,
    cast,
    compare,
    div,
    mul,
    neg,
    number,
    select,
    sub,
    type_of,
    unary,
)

_B, _C = BinaryOp, CompareOp


def _constant_where(x: Any, value: float, result: float, otherwise: Any) -> Any:
    """`result` where `x` is `value`."""
    found = compare(_C.EQ, x, like(x, value))
    return select(found, like(x, result), otherwise)


# --- sums and products ------------------------------------------------------


@jvp.define(Binary[_B.ADD])
def _add(op: Binary, primals: Sequence[Any], tangents: Sequence[Tangent]) -> One:
    y = op.bind(*primals)
    return (y,), (total(tangents, type_of(y).shape),)


@jvp.define(Binary[_B.SUB])
def _sub(op: Binary, primals: Sequence[Any], tangents: Sequence[Tangent]) -> One:
    y = op.bind(*primals)
    da, db = tangents
    if da is not None and db is not None:
        return (y,), (sub(da, db),)
    terms = (da, None if db is None else neg(db))
    return (y,), (total(terms, type_of(y).shape),)


@jvp.define(Binary[_B.MUL])
def _mul(op: Binary, primals: Sequence[Any], tangents: Sequence[Tangent]) -> One:
    (a, b), (da, db) = primals, tangents
    y = op.bind(a, b)
    if a is b and da is db:
        return (y,), (mul(da, add(a, a)),)
    terms = (None if da is None else mul(da, b), None if db is None else mul(db, a))
    return (y,), (total(terms, type_of(y).shape),)


@jvp.define(Binary[_B.DIV])
def _div(op: Binary, primals: Sequence[Any], tangents: Sequence[Tangent]) -> One:
    (a, b), (da, db) = primals, tangents
    y = op.bind(a, b)
    if db is None:
        return (y,), (div(da, b),)
    if da is None:
        return (y,), (mul(db, neg(div(y, b))),)
    return (y,), (div(sub(da, mul(db, y)), b),)


# --- by slopes --------------------------------------------------------------

# Both operands and the result to the slope.
Slope = Callable[[Any, Any, Any], Any]


def _power_by_base(a: Any, b: Any, y: Any) -> Any:
    """b a^(b-1), and 0 for exponents of 0 of a base of 0 too."""
    if isinstance(b, Scalar):
        lower: Any = like(b, b.value - 1 if b.value else 0)
    else:
        is_zero = binary(_B.AND, *(compare(_C.EQ, x, like(x, 0)) for x in (a, b)))
        lower = select(is_zero, like(b, 0), sub(b, like(b, 1)))
    return mul(binary(_B.POW, a, lower), b)


def _power_by_exponent(a: Any, b: Any, y: Any) -> Any:
    """log(a) a^b; of a base of 0, 0 times the power, as in JAX."""
    return mul(y, unary(UnaryOp.LOG, _constant_where(a, 0, 1, a)))


def _quotient(a: Any, b: Any, y: Any) -> Any:
    """Minus the whole part of a / b, which the result gives exactly."""
    return neg(unary(UnaryOp.ROUND, div(sub(a, y), b)))


def _larger(a: Any, b: Any, y: Any) -> Any:
    """1 where `a` is chosen, and half of it at a tie."""
    above = compare(_C.GT, a, b)
    chosen = select(above, like(a, 1), like(a, 0))
    return select(compare(_C.EQ, a, b), like(a, 0.5), chosen)


def _angle(a: Any, b: Any, y: Any) -> Any:
    """b / (a^2 + b^2), without squares that overflow."""
    radius = binary(_B.HYPOT, a, b)
    return div(div(b, radius), radius)


def _leg(a: Any, b: Any, y: Any) -> Any:
    """a / y; what JAX gives where that is 0 / 0 or may be inf / inf."""
    finite = _constant_where(y, math.inf, 0, div(a, y))
    return _constant_where(y, 0, 0.5, finite)


def _copied_sign(a: Any, b: Any, y: Any) -> Any:
    """The sign given over the sign that was there, +1 at any zero, as in JAX."""
    above = compare(_C.GE, a, like(a, 0))
    given = binary(_B.COPYSIGN, like(b, 1), b)
    return select(above, given, neg(given))


# The slopes by the first and by the second operand; None: 0.
_SLOPES: dict[BinaryOp, tuple[Slope | None, Slope | None]] = {
    _B.POW: (_power_by_base, _power_by_exponent),
    _B.REM: (lambda a, b, y: like(a, 1), _quotient),
    _B.MAX: (_larger, lambda a, b, y: _larger(b, a, y)),
    _B.MIN: (lambda a, b, y: _larger(b, a, y), _larger),
    _B.ATAN2: (_angle, lambda a, b, y: neg(_angle(b, a, y))),
    _B.HYPOT: (_leg, lambda a, b, y: _leg(b, a, y)),
    _B.COPYSIGN: (_copied_sign, None),
}


@jvp.define(*(Binary[member] for member in _SLOPES))
def _by_slopes(op: Binary, primals: Sequence[Any], tangents: Sequence[Tangent]) -> One:
    a, b = primals
    y = op.bind(a, b)
    terms = [
        None if tangent is None or slope is None else mul(tangent, slope(a, b, y))
        for tangent, slope in zip(tangents, _SLOPES[op.op], strict=True)
    ]
    return (y,), (total(terms, type_of(y).shape),)


@jvp.define(Binary[_B.NEXTAFTER])
def _nextafter(op: Binary, primals: Sequence[Any], tangents: Sequence[Tangent]) -> One:
    raise NoDerivativeError(
        "nextafter: the step to the next float has no derivative; stop the gradient "
        "of both operands, or of x + stop_gradient(nextafter(x, y) - x) take that of x"
    )


_BITS = (_B.AND, _B.OR, _B.XOR, _B.SHL, _B.SHR, _B.SHR_LOGICAL, _B.GCD)
_STEPS = (_B.GE, _B.GE_U)
define_constant(*(Binary[member] for member in (*_BITS, *_STEPS)))
define_constant(Compare, BitcastConvert, Threefry2x32)


# --- choices ----------------------------------------------------------------


@jvp.define(Select)
def _select(op: Select, primals: Sequence[Any], tangents: Sequence[Tangent]) -> One:
    y = op.bind(*primals)
    zero = number(0, type_of(y).dtype)
    _, on_true, on_false = (zero if t is None else t for t in tangents)
    return (y,), (total([select(primals[0], on_true, on_false)], type_of(y).shape),)


@jvp.define(Clamp)
def _clamp(op: Clamp, primals: Sequence[Any], tangents: Sequence[Tangent]) -> One:
    """No tangent comes through where x is at a bound, as in JAX's clamp."""
    (low, x, high), (on_low, on_x, on_high) = primals, tangents
    y, zero = op.bind(low, x, high), like(x, 0)
    terms = []
    if on_low is not None:
        terms.append(select(_ascending(x, low, high), on_low, zero))
    if on_x is not None:
        terms.append(select(_ascending(low, x, high), on_x, zero))
    if on_high is not None:
        terms.append(select(compare(_C.LT, high, x), on_high, zero))
    return (y,), (total(terms, type_of(y).shape),)


def _ascending(a: Any, b: Any, c: Any) -> Any:
    return binary(_B.AND, compare(_C.LT, a, b), compare(_C.LT, b, c))


@jvp.define(Cast)
def _cast(op: Cast, primals: Sequence[Any], tangents: Sequence[Tangent]) -> One:
    (x,), (dx,) = primals, tangents
    return (op.bind(x),), (cast(dx, op.to) if op.to.is_differentiable else None,)
