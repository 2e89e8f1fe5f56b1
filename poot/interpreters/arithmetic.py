"""Elementwise functions behind the operators of arrays, with NumPy's meaning."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from poot.core import dtypes
from poot.core.dtypes import DType, Scalar
from poot.core.errors import DTypeError
from poot.core.ops.elementwise import (
    Binary,
    BinaryOp,
    Compare,
    CompareOp,
    Select,
    Unary,
    UnaryOp,
)
from poot.core.ops.shape import Broadcast
from poot.interpreters.promotion import (
    Promoted,
    as_value,
    cast_to,
    dtype_of,
    fits,
    promote,
    promote_inexact,
    result_of,
    type_of,
)

if TYPE_CHECKING:
    from poot.interpreters.methods import Value


def unary(op: UnaryOp, x: Any) -> Value:
    """Apply a core function as it is: to the operand's own dtype."""
    promoted = promote(op.value, x)
    return result_of(promoted, Unary(op).bind(*promoted.operands))


def unary_inexact(op: UnaryOp, x: Any) -> Value:
    """Apply a core function of floats; other operands become floats first."""
    promoted = promote_inexact(op.value, x)
    return result_of(promoted, Unary(op).bind(*promoted.operands))


def binary(op: BinaryOp, x: Any, y: Any) -> Value:
    """Apply a core function in the dtype in which the operands meet."""
    promoted = promote(op.value, x, y)
    return result_of(promoted, Binary(op).bind(*promoted.operands))


def binary_inexact(op: BinaryOp, x: Any, y: Any) -> Value:
    """Apply a core function of floats in the dtype in which the operands meet."""
    promoted = promote_inexact(op.value, x, y)
    return result_of(promoted, Binary(op).bind(*promoted.operands))


def select(condition: Any, if_true: Any, if_false: Any) -> Value:
    """`if_true` where the bool condition holds, else `if_false`."""
    promoted = promote("where", if_true, if_false)
    return result_of(promoted, Select().bind(condition, *promoted.operands))


# --- arithmetic -------------------------------------------------------------


def add(x: Any, y: Any) -> Value:
    """Add; of bools: or."""
    promoted = promote("add", x, y)
    op = BinaryOp.OR if promoted.dtype.is_bool else BinaryOp.ADD
    return result_of(promoted, Binary(op).bind(*promoted.operands))


def subtract(x: Any, y: Any) -> Value:
    return binary(BinaryOp.SUB, x, y)


def multiply(x: Any, y: Any) -> Value:
    """Multiply; of bools: and."""
    promoted = promote("multiply", x, y)
    op = BinaryOp.AND if promoted.dtype.is_bool else BinaryOp.MUL
    return result_of(promoted, Binary(op).bind(*promoted.operands))


def true_divide(x: Any, y: Any) -> Value:
    return binary_inexact(BinaryOp.DIV, x, y)


def negative(x: Any) -> Value:
    return unary(UnaryOp.NEG, x)


def positive(x: Any) -> Value:
    return as_value(x, "positive")


def absolute(x: Any) -> Value:
    """The absolute value; bools and unsigned integers are their own."""
    if dtype_of(x, "abs").dtype.kind in (dtypes.Kind.BOOL, dtypes.Kind.UINT):
        return as_value(x)
    return unary(UnaryOp.ABS, x)


def promote_numbers(where: str, x: Any, y: Any) -> Promoted:
    """Promoted operands; bools count as the default int."""
    promoted = promote(where, x, y)
    if promoted.dtype.is_bool:
        x = cast_to(as_value(x), dtypes.int32)
        return promote(where, x, cast_to(as_value(y), dtypes.int32))
    return promoted


def _apply(op: BinaryOp | CompareOp, x: Any, y: Any) -> Any:
    """Bind on operands that have one dtype already."""
    return (Compare(op) if isinstance(op, CompareOp) else Binary(op)).bind(x, y)


def floor_divide(x: Any, y: Any) -> Value:
    """The quotient rounded to -inf; of integers by zero: 0, of floats: inf or NaN."""
    promoted = promote_numbers("floor_divide", x, y)
    is_float = promoted.dtype.is_float
    divide = _float_floor_divide if is_float else _int_floor_divide
    return result_of(promoted, divide(promoted))


def remainder(x: Any, y: Any) -> Value:
    """The remainder with the sign of the divisor; of integers by zero: 0."""
    promoted = promote_numbers("remainder", x, y)
    is_float = promoted.dtype.is_float
    rest = _float_remainder if is_float else _int_remainder
    return result_of(promoted, rest(promoted))


def divmod_(x: Any, y: Any) -> tuple[Value, Value]:
    """The floor quotient and its remainder."""
    return floor_divide(x, y), remainder(x, y)


def _signs_differ(rest: Any, divisor: Any, dtype: DType) -> Any:
    """Where a remainder of truncation is not zero and has the wrong sign."""
    zero = Scalar.of(0, dtype)
    nonzero = _apply(CompareOp.NE, rest, zero)
    rest_negative = _apply(CompareOp.LT, rest, zero)
    divisor_negative = _apply(CompareOp.LT, divisor, zero)
    differ = _apply(CompareOp.NE, rest_negative, divisor_negative)
    return _apply(BinaryOp.AND, nonzero, differ)


def _int_floor_divide(promoted: Promoted) -> Any:
    x, y = promoted.operands
    quotient = _apply(BinaryOp.DIV, x, y)
    if promoted.dtype.is_unsigned:
        return quotient
    rest = _apply(BinaryOp.REM, x, y)
    below = _apply(BinaryOp.SUB, quotient, Scalar.of(1, promoted.dtype))
    return Select().bind(_signs_differ(rest, y, promoted.dtype), below, quotient)


def _int_remainder(promoted: Promoted) -> Any:
    x, y = promoted.operands
    rest = _apply(BinaryOp.REM, x, y)
    if promoted.dtype.is_unsigned:
        return rest
    moved = _apply(BinaryOp.ADD, rest, y)
    return Select().bind(_signs_differ(rest, y, promoted.dtype), moved, rest)


def _float_remainder(promoted: Promoted) -> Any:
    x, y = promoted.operands
    rest = _apply(BinaryOp.REM, x, y)
    moved = _apply(BinaryOp.ADD, rest, y)
    rest = Select().bind(_signs_differ(rest, y, promoted.dtype), moved, rest)
    # A remainder of zero has the divisor's sign too.
    return with_sign_of_zero(rest, y, promoted.dtype)


def with_sign_of_zero(x: Any, sign: Any, dtype: DType) -> Any:
    """`x`, but where it is zero with the sign of `sign`; in `x` its slope is 1."""
    one = _apply(BinaryOp.COPYSIGN, Scalar.of(1, dtype), sign)
    # -0.0 + 0.0 is 0.0.
    upright = _apply(BinaryOp.ADD, _apply(BinaryOp.MUL, x, one), Scalar.of(0, dtype))
    return _apply(BinaryOp.MUL, upright, one)


def _float_floor_divide(promoted: Promoted) -> Any:
    x, y = promoted.operands
    dtype = promoted.dtype
    zero = Scalar.of(0, dtype)
    rest = _apply(BinaryOp.REM, x, y)
    # What the exact remainder leaves is a multiple of y, but for rounding.
    quotient = _apply(BinaryOp.DIV, _apply(BinaryOp.SUB, x, rest), y)
    quotient = Unary(UnaryOp.ROUND).bind(quotient)
    below = _apply(BinaryOp.SUB, quotient, Scalar.of(1, dtype))
    quotient = Select().bind(_signs_differ(rest, y, dtype), below, quotient)
    ratio = _apply(BinaryOp.DIV, x, y)
    signed_zero = _apply(BinaryOp.COPYSIGN, zero, ratio)
    is_zero = _apply(CompareOp.EQ, quotient, zero)
    quotient = Select().bind(is_zero, signed_zero, quotient)
    return Select().bind(_apply(CompareOp.EQ, y, zero), ratio, quotient)


def power(x: Any, y: Any) -> Value:
    """`x` to the power `y`; small Python exponents by multiplication."""
    if isinstance(y, int) and not isinstance(y, bool):
        dtype = dtype_of(x, "power").dtype
        if y < 0 and dtype.is_integer:
            raise DTypeError(
                f"power: {dtype} to the power {y} is no integer; cast the base to a "
                "float dtype"
            )
        if 0 < y <= 4 and not dtype.is_bool:
            return _small_power(as_value(x), y)
    promoted = promote_numbers("power", x, y)
    return result_of(promoted, _apply(BinaryOp.POW, *promoted.operands))


def _small_power(x: Value, y: int) -> Value:
    if y == 1:
        return x
    squared = multiply(x, x)
    if y == 2:
        return squared
    return multiply(squared, x if y == 3 else squared)


# --- bits -------------------------------------------------------------------


def bitwise_and(x: Any, y: Any) -> Value:
    return binary(BinaryOp.AND, x, y)


def bitwise_or(x: Any, y: Any) -> Value:
    return binary(BinaryOp.OR, x, y)


def bitwise_xor(x: Any, y: Any) -> Value:
    return binary(BinaryOp.XOR, x, y)


def invert(x: Any) -> Value:
    return unary(UnaryOp.NOT, x)


def left_shift(x: Any, y: Any) -> Value:
    return binary(BinaryOp.SHL, x, y)


def right_shift(x: Any, y: Any) -> Value:
    """Shift right, with copies of the sign bit if the dtype is signed."""
    return binary(BinaryOp.SHR, x, y)


# --- comparisons ------------------------------------------------------------

_MIRRORED = {
    CompareOp.EQ: CompareOp.EQ,
    CompareOp.NE: CompareOp.NE,
    CompareOp.LT: CompareOp.GT,
    CompareOp.LE: CompareOp.GE,
    CompareOp.GT: CompareOp.LT,
    CompareOp.GE: CompareOp.LE,
}


def compare(op: CompareOp, x: Any, y: Any) -> Value:
    """Compare elements; a Python int beyond the other's dtype compares by its value."""
    for first, second, member in ((x, y, op), (y, x, _MIRRORED[op])):
        if _is_beyond(second, first):
            return _compare_beyond(member, first, second)
    return Compare(op).bind(*promote(op.value, x, y).operands)  # type: ignore[no-any-return]


def _is_beyond(number: Any, other: Any) -> bool:
    if not isinstance(number, int) or isinstance(number, bool):
        return False
    dtype = dtype_of(other).dtype
    return dtype.is_integer and not fits(number, dtype)


def _compare_beyond(op: CompareOp, x: Any, number: int) -> Value:
    infinite = math.copysign(math.inf, number)
    outcome = {
        CompareOp.EQ: False,
        CompareOp.NE: True,
        CompareOp.LT: infinite > 0,
        CompareOp.LE: infinite > 0,
        CompareOp.GT: infinite < 0,
        CompareOp.GE: infinite < 0,
    }[op]
    value: Value = Broadcast(type_of(x).shape).bind(Scalar.of(outcome, dtypes.bool_))
    return value


def equal(x: Any, y: Any) -> Value:
    return compare(CompareOp.EQ, x, y)


def not_equal(x: Any, y: Any) -> Value:
    return compare(CompareOp.NE, x, y)


def less(x: Any, y: Any) -> Value:
    return compare(CompareOp.LT, x, y)


def less_equal(x: Any, y: Any) -> Value:
    return compare(CompareOp.LE, x, y)


def greater(x: Any, y: Any) -> Value:
    return compare(CompareOp.GT, x, y)


def greater_equal(x: Any, y: Any) -> Value:
    return compare(CompareOp.GE, x, y)
