"""Elementwise primitives in JAX."""

from __future__ import annotations

from typing import Any

import numpy as np

from poot.core.op import PrimitiveKey
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
from poot.core.ops.random import Threefry2x32
from poot.testing._jax_table import Array, deviates, found, jax

_U, _B, _C = UnaryOp, BinaryOp, CompareOp

# By one function of JAX each, on operands of one shape.
_PATHS: dict[PrimitiveKey, str] = {
    Unary[_U.NEG]: "lax.neg",
    Unary[_U.ABS]: "numpy.abs",
    Unary[_U.SIGN]: "lax.sign",
    Unary[_U.EXP]: "lax.exp",
    Unary[_U.EXP2]: "lax.exp2",
    Unary[_U.EXPM1]: "lax.expm1",
    Unary[_U.LOG]: "lax.log",
    Unary[_U.LOG2]: "numpy.log2",
    Unary[_U.LOG10]: "numpy.log10",
    Unary[_U.LOG1P]: "lax.log1p",
    Unary[_U.SQRT]: "lax.sqrt",
    Unary[_U.RSQRT]: "lax.rsqrt",
    Unary[_U.CBRT]: "lax.cbrt",
    Unary[_U.RECIP]: "lax.reciprocal",
    Unary[_U.SIN]: "lax.sin",
    Unary[_U.COS]: "lax.cos",
    Unary[_U.TAN]: "lax.tan",
    Unary[_U.ASIN]: "lax.asin",
    Unary[_U.ACOS]: "lax.acos",
    Unary[_U.ATAN]: "lax.atan",
    Unary[_U.SINH]: "lax.sinh",
    Unary[_U.COSH]: "lax.cosh",
    Unary[_U.TANH]: "lax.tanh",
    Unary[_U.ASINH]: "lax.asinh",
    Unary[_U.ACOSH]: "lax.acosh",
    Unary[_U.ATANH]: "lax.atanh",
    Unary[_U.ERF]: "lax.erf",
    Unary[_U.ERFC]: "lax.erfc",
    Unary[_U.ERF_INV]: "lax.erf_inv",
    Unary[_U.LGAMMA]: "lax.lgamma",
    Unary[_U.DIGAMMA]: "lax.digamma",
    Unary[_U.FLOOR]: "lax.floor",
    Unary[_U.CEIL]: "lax.ceil",
    Unary[_U.TRUNC]: "numpy.trunc",
    Unary[_U.ROUND]: "numpy.round",
    Unary[_U.NOT]: "lax.bitwise_not",
    Unary[_U.CLZ]: "lax.clz",
    Unary[_U.POPCOUNT]: "lax.population_count",
    Unary[_U.ISNAN]: "numpy.isnan",
    Unary[_U.ISINF]: "numpy.isinf",
    Unary[_U.ISFINITE]: "lax.is_finite",
    Unary[_U.SIGNBIT]: "numpy.signbit",
    Binary[_B.ADD]: "lax.add",
    Binary[_B.SUB]: "lax.sub",
    Binary[_B.MUL]: "lax.mul",
    Binary[_B.DIV]: "lax.div",
    Binary[_B.REM]: "lax.rem",
    Binary[_B.MAX]: "lax.max",
    Binary[_B.MIN]: "lax.min",
    Binary[_B.POW]: "numpy.power",
    Binary[_B.ATAN2]: "lax.atan2",
    Binary[_B.HYPOT]: "numpy.hypot",
    Binary[_B.NEXTAFTER]: "lax.nextafter",
    Binary[_B.COPYSIGN]: "numpy.copysign",
    Binary[_B.AND]: "lax.bitwise_and",
    Binary[_B.OR]: "lax.bitwise_or",
    Binary[_B.XOR]: "lax.bitwise_xor",
    Binary[_B.SHL]: "lax.shift_left",
    Binary[_B.SHR]: "numpy.right_shift",
    Binary[_B.SHR_LOGICAL]: "lax.shift_right_logical",
    Compare[_C.EQ]: "lax.eq",
    Compare[_C.NE]: "lax.ne",
    Compare[_C.LT]: "lax.lt",
    Compare[_C.LE]: "lax.le",
    Compare[_C.GT]: "lax.gt",
    Compare[_C.GE]: "lax.ge",
}


@jax.define(*_PATHS)
def _by_path(op: Any, j: Any, *xs: Any) -> Any:
    return found(j, _PATHS[op.key])(*j.numpy.broadcast_arrays(*xs))


@jax.define(Binary[_B.GCD])
def _gcd(op: Binary, j: Any, a: Any, b: Any) -> Any:
    # JAX's never ends where an operand is the lowest number.
    lowest = np.iinfo(a.dtype).min
    if lowest < 0:
        is_lowest = (a == lowest) | (b == lowest)
        a, b = (j.numpy.where(is_lowest, 1, x) for x in (a, b))
    return j.numpy.gcd(a, b)


@jax.define(Binary[_B.GE])
def _ge(op: Binary, j: Any, a: Any, b: Any) -> Any:
    return (a >= b).astype(a.dtype)


@jax.define(Binary[_B.GE_U])
def _ge_unsigned(op: Binary, j: Any, a: Any, b: Any) -> Any:
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    x, y = (j.lax.bitcast_convert_type(each, unsigned) for each in (a, b))
    return (x >= y).astype(a.dtype)


@jax.define(Select)
def _select(op: Select, j: Any, condition: Any, if_true: Any, if_false: Any) -> Any:
    return j.numpy.where(condition != 0, if_true, if_false)


@jax.define(Clamp)
def _clamp(op: Clamp, j: Any, low: Any, x: Any, high: Any) -> Any:
    return j.numpy.minimum(j.numpy.maximum(x, low), high)


@jax.define(Cast)
def _cast(op: Cast, j: Any, x: Any) -> Any:
    return j.lax.convert_element_type(x, op.to.numpy)


@jax.define(BitcastConvert)
def _bitcast(op: BitcastConvert, j: Any, x: Any) -> Any:
    return j.lax.bitcast_convert_type(x, op.to.numpy)


@jax.define(Threefry2x32)
def _threefry(op: Threefry2x32, j: Any, *words: Any) -> tuple[Any, ...]:
    equal = j.numpy.broadcast_arrays(*words)
    return tuple(j.extend.random.threefry2x32_p.bind(*equal))


# --- where JAX means something else -----------------------------------------


@deviates.define(Binary[_B.DIV], Binary[_B.REM])
def _divides_by_zero(op: Binary, a: Array, b: Array) -> str | None:
    if b.dtype.kind not in "iu" or not (b == 0).any():
        return None
    return "divides integers by zero, which gives 0 here and something else in JAX"


@deviates.define(Binary[_B.POW])
def _exponent_beyond_63(op: Binary, a: Array, b: Array) -> str | None:
    if b.dtype.kind not in "iu" or not ((b < 0) | (b > 63)).any():
        return None
    return "has integer exponents outside 0..63, of which JAX reads six bits"


@deviates.define(Binary[_B.GCD])
def _gcd_of_lowest(op: Binary, a: Array, b: Array) -> str | None:
    lowest = np.iinfo(a.dtype).min
    if not lowest or not ((a == lowest) | (b == lowest)).any():
        return None
    return "takes the gcd of the lowest integer, with which JAX's never ends"
