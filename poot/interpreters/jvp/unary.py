"""Functions of one element.

A slope is made of the primals alone, so that one number an element is kept for the
tangents. Where the result gives it, the operand is not needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from poot.core.ops.elementwise import (
    PREDICATES,
    BinaryOp,
    CompareOp,
    Unary,
    UnaryOp,
)
from poot.interpreters.jvp.definitions import (
    One,
    define_constant,
    define_linear,
    like,
)
from poot.interpreters.jvp.table import Tangent, jvp
from poot.interpreters.jvp.trigamma import trigamma
from poot.interpreters.primitives import (
    add,
    binary,
    compare,
    div,
    mul,
    neg,
    select,
    sub,
    unary,
)

_U = UnaryOp
# The operand and the result to the slope, or to one over it.
Slope = Callable[[Any, Any], Any]


def _sign(x: Any, y: Any) -> Any:
    """1 at 0, as in JAX."""
    above = compare(CompareOp.GE, x, like(x, 0))
    return select(above, like(x, 1), like(x, -1))


def _one_minus_square(x: Any) -> Any:
    """As a product, which loses nothing near 1."""
    return mul(sub(like(x, 1), x), add(like(x, 1), x))


def _square(x: Any) -> Any:
    return mul(x, x)


def _gauss(x: Any, factor: float) -> Any:
    return mul(unary(_U.EXP, neg(_square(x))), like(x, factor))


def _inverse_root(x: Any, y: Any) -> Any:
    return unary(_U.RSQRT, _one_minus_square(x))


def _acosh(x: Any, y: Any) -> Any:
    """Two roots: no square that overflows, and NaN outside of the domain."""
    below, above = (unary(_U.RSQRT, add(x, like(x, one))) for one in (-1, 1))
    return mul(below, above)


def _asinh(x: Any, y: Any) -> Any:
    return binary(BinaryOp.HYPOT, x, like(x, 1))


def _erf_inv(x: Any, y: Any) -> Any:
    return mul(unary(_U.EXP, _square(y)), like(x, math.sqrt(math.pi) / 2))


_TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)
_SLOPES: dict[UnaryOp, Slope] = {
    _U.ABS: _sign,
    _U.EXP: lambda x, y: y,
    _U.EXP2: lambda x, y: mul(y, like(x, math.log(2))),
    # The result plus 1 has lost what is left of it where x is far below 0.
    _U.EXPM1: lambda x, y: unary(_U.EXP, x),
    _U.LOG2: lambda x, y: div(like(x, 1 / math.log(2)), x),
    _U.LOG10: lambda x, y: div(like(x, 1 / math.log(10)), x),
    _U.SQRT: lambda x, y: div(like(x, 0.5), y),
    _U.RSQRT: lambda x, y: mul(div(y, x), like(x, -0.5)),
    _U.CBRT: lambda x, y: div(like(x, 1 / 3), _square(y)),
    _U.RECIP: lambda x, y: neg(_square(y)),
    _U.SIN: lambda x, y: unary(_U.COS, x),
    _U.COS: lambda x, y: neg(unary(_U.SIN, x)),
    _U.TAN: lambda x, y: add(_square(y), like(x, 1)),
    _U.ASIN: _inverse_root,
    _U.ACOS: lambda x, y: neg(_inverse_root(x, y)),
    _U.SINH: lambda x, y: unary(_U.COSH, x),
    _U.COSH: lambda x, y: unary(_U.SINH, x),
    _U.TANH: lambda x, y: _one_minus_square(y),
    _U.ACOSH: _acosh,
    _U.ERF: lambda x, y: _gauss(x, _TWO_OVER_ROOT_PI),
    _U.ERFC: lambda x, y: _gauss(x, -_TWO_OVER_ROOT_PI),
    _U.ERF_INV: _erf_inv,
    _U.LGAMMA: lambda x, y: unary(_U.DIGAMMA, x),
    _U.DIGAMMA: lambda x, y: trigamma(x),
}
_INVERSE_SLOPES: dict[UnaryOp, Slope] = {
    _U.LOG: lambda x, y: x,
    _U.LOG1P: lambda x, y: add(x, like(x, 1)),
    _U.ATAN: lambda x, y: add(_square(x), like(x, 1)),
    _U.ASINH: _asinh,
    _U.ATANH: lambda x, y: _one_minus_square(x),
}


@jvp.define(*(Unary[member] for member in _SLOPES))
def _by_slope(op: Unary, primals: Sequence[Any], tangents: Sequence[Tangent]) -> One:
    (x,), (dx,) = primals, tangents
    y = op.bind(x)
    return (y,), (mul(dx, _SLOPES[op.op](x, y)),)


@jvp.define(*(Unary[member] for member in _INVERSE_SLOPES))
def _by_inverse(op: Unary, primals: Sequence[Any], tangents: Sequence[Tangent]) -> One:
    (x,), (dx,) = primals, tangents
    y = op.bind(x)
    return (y,), (div(dx, _INVERSE_SLOPES[op.op](x, y)),)


define_linear(Unary[_U.NEG])

_STEPS = (_U.SIGN, _U.FLOOR, _U.CEIL, _U.TRUNC, _U.ROUND)
_INTEGERS = (_U.NOT, _U.CLZ, _U.POPCOUNT)
define_constant(*(Unary[member] for member in (*_STEPS, *_INTEGERS, *PREDICATES)))
