"""Elementwise primitives.

What f64 equations give is NumPy's f64 functions: within a few ulps of f64, so with no
half-ulp guarantee for exp, log, sin and their kin. For narrower dtypes the error of
those functions vanishes in the final rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from poot.core import dtypes
from poot.core.conversion import convert, round_float
from poot.core.ops.elementwise import (
    Binary,
    BinaryOp,
    BitcastConvert,
    Cast,
    Clamp,
    Compare,
    CompareOp,
    Select,
    Unary,
    UnaryOp,
)
from poot.core.oracle import special_functions
from poot.core.oracle.integers import (
    count_leading_zeros,
    count_ones,
    divide,
    integer_power,
    remainder,
    shift_left,
    shift_right_arithmetic,
    shift_right_logical,
)
from poot.core.oracle.table import Arithmetic, Array, impl

_U, _B, _C = UnaryOp, BinaryOp, CompareOp
Function = Callable[..., Any]


def _sign(x: Array) -> Array:
    """-1 or 1; zeros and NaN stay as they are."""
    return np.where((x == 0) | np.isnan(x), x, np.copysign(1.0, x))


_FLOAT_FUNCTIONS: dict[UnaryOp, Function] = {
    _U.EXP: np.exp,
    _U.EXP2: np.exp2,
    _U.EXPM1: np.expm1,
    _U.LOG: np.log,
    _U.LOG2: np.log2,
    _U.LOG10: np.log10,
    _U.LOG1P: np.log1p,
    _U.SQRT: np.sqrt,
    _U.RSQRT: lambda x: 1.0 / np.sqrt(x),
    _U.CBRT: np.cbrt,
    _U.RECIP: lambda x: 1.0 / x,
    _U.SIN: np.sin,
    _U.COS: np.cos,
    _U.TAN: np.tan,
    _U.ASIN: np.arcsin,
    _U.ACOS: np.arccos,
    _U.ATAN: np.arctan,
    _U.SINH: np.sinh,
    _U.COSH: np.cosh,
    _U.TANH: np.tanh,
    _U.ASINH: np.arcsinh,
    _U.ACOSH: np.arccosh,
    _U.ATANH: np.arctanh,
    _U.ERF: special_functions.erf,
    _U.ERFC: special_functions.erfc,
    _U.ERF_INV: special_functions.erf_inv,
    _U.LGAMMA: special_functions.lgamma,
    _U.DIGAMMA: special_functions.digamma,
}

# By the bits, so that no device takes a subnormal number for a whole one.
_ROUNDINGS: dict[UnaryOp, Function] = {
    _U.FLOOR: np.floor,
    _U.CEIL: np.ceil,
    _U.TRUNC: np.trunc,
    _U.ROUND: np.rint,
}

# These move bits and calculate nothing, so that subnormals stay.
_BIT_FUNCTIONS: dict[UnaryOp, Function] = {
    _U.NEG: np.negative,
    _U.ABS: np.abs,
    _U.NOT: np.invert,
    _U.CLZ: count_leading_zeros,
    _U.POPCOUNT: count_ones,
}

_PREDICATES: dict[UnaryOp, Function] = {
    _U.ISNAN: np.isnan,
    _U.ISINF: np.isinf,
    _U.ISFINITE: np.isfinite,
    _U.SIGNBIT: np.signbit,
}


@impl.define(*(Unary[member] for member in _FLOAT_FUNCTIONS))
def _float_unary(op: Unary, arithmetic: Arithmetic, x: Array) -> Array:
    return arithmetic.round(_FLOAT_FUNCTIONS[op.op](arithmetic.widen(x)), x.dtype)


@impl.define(*(Unary[member] for member in _ROUNDINGS))
def _rounding(op: Unary, _: Arithmetic, x: Array) -> Array:
    return round_float(_ROUNDINGS[op.op](x.astype(np.float64)), x.dtype)


@impl.define(Unary[_U.SIGN])
def _sign_rule(op: Unary, arithmetic: Arithmetic, x: Array) -> Array:
    function = np.sign if x.dtype.kind in "iu" else _sign
    return arithmetic.round(function(arithmetic.widen(x)), x.dtype)


@impl.define(*(Unary[member] for member in _BIT_FUNCTIONS))
def _bit_unary(op: Unary, _: Arithmetic, x: Array) -> Array:
    return np.asarray(_BIT_FUNCTIONS[op.op](x), x.dtype)


@impl.define(*(Unary[member] for member in _PREDICATES))
def _predicate(op: Unary, _: Arithmetic, x: Array) -> Array:
    return np.asarray(_PREDICATES[op.op](x), np.bool_)


def _next_after(a: Array, b: Array) -> Array:
    """The neighbour of a on the side of b; b itself if the two are equal."""
    # NumPy's own gives a, not b, for equal zeros of f16.
    x, y = a.astype(np.float64), b.astype(np.float64)
    bits = a.view(f"u{a.dtype.itemsize}")
    step = np.where((y > x) == (x > 0), bits + 1, bits - 1).astype(bits.dtype)
    smallest = np.ones((), bits.dtype).view(a.dtype)
    stepped = np.where(x == 0, np.copysign(smallest, b), step.view(a.dtype))
    is_nan = np.isnan(x) | np.isnan(y)
    return np.where(is_nan, a + b, np.where(x == y, b, stepped))


# On f64 or on the integers' own dtype, where NumPy wraps.
_ARITHMETIC: dict[BinaryOp, Function] = {
    _B.ADD: np.add,
    _B.SUB: np.subtract,
    _B.MUL: np.multiply,
    _B.ATAN2: np.arctan2,
    _B.HYPOT: np.hypot,
}
# Float function, integer function.
_BY_KIND: dict[BinaryOp, tuple[Function, Function]] = {
    _B.DIV: (np.divide, divide),
    _B.REM: (np.fmod, remainder),
    _B.POW: (np.power, integer_power),
}
_BITWISE: dict[BinaryOp, Function] = {
    _B.AND: np.bitwise_and,
    _B.OR: np.bitwise_or,
    _B.XOR: np.bitwise_xor,
    _B.SHL: shift_left,
    _B.SHR: shift_right_arithmetic,
    _B.SHR_LOGICAL: shift_right_logical,
    _B.GCD: np.gcd,
    _B.COPYSIGN: np.copysign,
    _B.NEXTAFTER: _next_after,
}


@impl.define(*(Binary[member] for member in _ARITHMETIC))
def _arithmetic_binary(op: Binary, arithmetic: Arithmetic, a: Array, b: Array) -> Array:
    result = _ARITHMETIC[op.op](arithmetic.widen(a), arithmetic.widen(b))
    return arithmetic.round(result, a.dtype)


@impl.define(*(Binary[member] for member in _BY_KIND))
def _binary_by_kind(op: Binary, arithmetic: Arithmetic, a: Array, b: Array) -> Array:
    function = _BY_KIND[op.op][a.dtype.kind in "iu"]
    result = function(arithmetic.widen(a), arithmetic.widen(b))
    return arithmetic.round(result, a.dtype)


@impl.define(*(Binary[member] for member in _BITWISE))
def _bitwise(op: Binary, _: Arithmetic, a: Array, b: Array) -> Array:
    return np.asarray(_BITWISE[op.op](a, b), a.dtype)


def _extremum(largest: bool, a: Array, b: Array) -> Array:
    """One of the two, bit for bit: a NaN, or else the extreme, +0 above -0."""
    if dtypes.as_dtype(a.dtype).is_float:
        x, y = Arithmetic().widen(a), Arithmetic().widen(b)
        positive_first = np.signbit(x) != largest
        better = x > y if largest else x < y
        takes_a = better | ((x == y) & positive_first) | np.isnan(x)
        takes_a &= ~np.isnan(y) | np.isnan(x)
    else:
        takes_a = a >= b if largest else a <= b
    return np.where(takes_a, a, b)


@impl.define(Binary[_B.MAX], Binary[_B.MIN])
def _max_min(op: Binary, _: Arithmetic, a: Array, b: Array) -> Array:
    return _extremum(op.op is BinaryOp.MAX, a, b)


@impl.define(Clamp)
def _clamp(op: Clamp, _: Arithmetic, low: Array, x: Array, high: Array) -> Array:
    return _extremum(False, _extremum(True, x, low), high)


@impl.define(Binary[_B.GE])
def _ge(op: Binary, arithmetic: Arithmetic, a: Array, b: Array) -> Array:
    return np.asarray(arithmetic.widen(a) >= arithmetic.widen(b)).astype(a.dtype)


@impl.define(Binary[_B.GE_U])
def _ge_unsigned(op: Binary, _: Arithmetic, a: Array, b: Array) -> Array:
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    return np.asarray(a.view(unsigned) >= b.view(unsigned)).astype(a.dtype)


_COMPARISONS: dict[CompareOp, Function] = {
    _C.EQ: np.equal,
    _C.NE: np.not_equal,
    _C.LT: np.less,
    _C.LE: np.less_equal,
    _C.GT: np.greater,
    _C.GE: np.greater_equal,
}


@impl.define(*(Compare[member] for member in CompareOp))
def _compare(op: Compare, arithmetic: Arithmetic, a: Array, b: Array) -> Array:
    return np.asarray(
        _COMPARISONS[op.op](arithmetic.widen(a), arithmetic.widen(b)), np.bool_
    )


@impl.define(Select)
def _select(
    op: Select, _: Arithmetic, condition: Array, if_true: Array, if_false: Array
) -> Array:
    return np.where(condition != 0, if_true, if_false)


@impl.define(Cast)
def _cast(op: Cast, _: Arithmetic, x: Array) -> Array:
    return convert(x, op.to.numpy)


@impl.define(BitcastConvert)
def _bitcast(op: BitcastConvert, _: Arithmetic, x: Array) -> Array:
    wanted = op.to.numpy
    contiguous = np.ascontiguousarray(x).reshape(x.shape)
    if x.dtype.itemsize == wanted.itemsize:
        return contiguous.view(wanted)
    if x.dtype.itemsize > wanted.itemsize:
        return contiguous[..., np.newaxis].view(wanted)
    return contiguous.view(wanted)[..., 0]
