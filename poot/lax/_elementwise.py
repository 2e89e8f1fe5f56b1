"""Functions of elements, under lax's names and without promotion of dtypes."""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable
from typing import Any

from poot.core import dtypes
from poot.core.errors import DTypeError, ShapeError
from poot.core.ops.elementwise import (
    Binary,
    BinaryOp,
    BitcastConvert,
    Clamp,
    Compare,
    CompareOp,
    Select,
    UnaryOp,
)
from poot.interpreters import arithmetic
from poot.interpreters.arithmetic import multiply, power, unary
from poot.interpreters.custom import custom_jvp
from poot.interpreters.methods import Value
from poot.interpreters.promotion import (
    as_value,
    cast_to,
    dtype_of,
    result_like,
    result_of,
    type_of,
)
from poot.interpreters.shaping import as_element_type, astype
from poot.lax._operands import same_dtype, same_kind

# --- functions of one element -----------------------------------------------


def _unary(name: str, op: UnaryOp, doc: str) -> Callable[[Any], Value]:
    def function(x: Any) -> Value:
        return unary(op, x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


neg = _unary("neg", UnaryOp.NEG, "The negative.")
abs = _unary("abs", UnaryOp.ABS, "The absolute value.")
sign = _unary("sign", UnaryOp.SIGN, "-1, 0 or 1; zeros and NaN stay as they are.")
exp = _unary("exp", UnaryOp.EXP, "e to the power x.")
exp2 = _unary("exp2", UnaryOp.EXP2, "2 to the power x.")
expm1 = _unary("expm1", UnaryOp.EXPM1, "exp(x) - 1, precise near zero.")
log = _unary("log", UnaryOp.LOG, "The natural logarithm.")
log1p = _unary("log1p", UnaryOp.LOG1P, "log(1 + x), precise near zero.")
sqrt = _unary("sqrt", UnaryOp.SQRT, "The square root.")
rsqrt = _unary("rsqrt", UnaryOp.RSQRT, "One over the square root.")
cbrt = _unary("cbrt", UnaryOp.CBRT, "The cube root.")
sin = _unary("sin", UnaryOp.SIN, "The sine.")
cos = _unary("cos", UnaryOp.COS, "The cosine.")
tan = _unary("tan", UnaryOp.TAN, "The tangent.")
asin = _unary("asin", UnaryOp.ASIN, "The inverse of sin.")
acos = _unary("acos", UnaryOp.ACOS, "The inverse of cos.")
atan = _unary("atan", UnaryOp.ATAN, "The inverse of tan.")
sinh = _unary("sinh", UnaryOp.SINH, "The hyperbolic sine.")
cosh = _unary("cosh", UnaryOp.COSH, "The hyperbolic cosine.")
tanh = _unary("tanh", UnaryOp.TANH, "The hyperbolic tangent.")
asinh = _unary("asinh", UnaryOp.ASINH, "The inverse of sinh.")
acosh = _unary("acosh", UnaryOp.ACOSH, "The inverse of cosh.")
atanh = _unary("atanh", UnaryOp.ATANH, "The inverse of tanh.")
erf = _unary("erf", UnaryOp.ERF, "The error function.")
erfc = _unary("erfc", UnaryOp.ERFC, "1 - erf(x), precise for large x.")
erf_inv = _unary("erf_inv", UnaryOp.ERF_INV, "The inverse of erf; NaN beyond 1.")
lgamma = _unary("lgamma", UnaryOp.LGAMMA, "log|gamma(x)|; inf at 0, -1, -2 …")
digamma = _unary(
    "digamma", UnaryOp.DIGAMMA, "The derivative of lgamma; NaN at 0, -1, -2 …"
)
floor = _unary("floor", UnaryOp.FLOOR, "The nearest whole number not above x.")
ceil = _unary("ceil", UnaryOp.CEIL, "The nearest whole number not below x.")
is_finite = _unary("is_finite", UnaryOp.ISFINITE, "Whether x is neither inf nor NaN.")
bitwise_not = _unary("bitwise_not", UnaryOp.NOT, "Every bit turned; of bools: not.")
population_count = _unary("population_count", UnaryOp.POPCOUNT, "The number of ones.")
clz = _unary("clz", UnaryOp.CLZ, "The number of zeros above the highest one.")
reciprocal = _unary("reciprocal", UnaryOp.RECIP, "One over x.")


def square(x: Any) -> Value:
    """x times x."""
    return multiply(x, x)


@custom_jvp
def logistic(x: Any) -> Value:
    """1 / (1 + exp(-x))."""
    value = as_value(x, "lax.logistic")
    dtype = value.type.dtype
    e = unary(UnaryOp.EXP, unary(UnaryOp.NEG, cast_to(value, dtype.compute)))
    return cast_to(unary(UnaryOp.RECIP, arithmetic.add(e, 1.0)), dtype)


@logistic.defjvp
def _logistic_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    """By the result, which does not overflow as exp(-x) does."""
    y = logistic(*primals)
    (dx,) = tangents
    return y, multiply(dx, multiply(y, arithmetic.subtract(1.0, y)))


class RoundingMethod(enum.Enum):
    """Where halves round to."""

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


def round(
    x: Any, rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO
) -> Value:
    """The nearest whole number."""
    value = as_value(x, "lax.round")
    if RoundingMethod(rounding_method) is RoundingMethod.TO_NEAREST_EVEN:
        return unary(UnaryOp.ROUND, value)
    cut = unary(UnaryOp.TRUNC, value)
    rest = unary(UnaryOp.ABS, arithmetic.subtract(value, cut))
    step = arithmetic.select(arithmetic.greater_equal(rest, 0.5), 1.0, 0.0)
    step = cast_to(step, value.type.dtype)
    return arithmetic.add(cut, arithmetic.binary(BinaryOp.COPYSIGN, step, value))


def integer_pow(x: Any, y: int) -> Value:
    """x to the power of a Python int."""
    exponent = operator.index(y)
    if dtype_of(x, "lax.integer_pow").dtype.is_bool:
        raise DTypeError("lax.integer_pow: bools have no powers; cast x with .astype")
    return power(x, exponent)


# --- functions of two elements ----------------------------------------------


def _binary(name: str, op: BinaryOp, doc: str) -> Callable[[Any, Any], Value]:
    def function(x: Any, y: Any) -> Value:
        promoted = same_kind(name, x, y)
        return result_of(promoted, Binary(op).bind(*promoted.operands))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


add = _binary("add", BinaryOp.ADD, "The sum.")
sub = _binary("sub", BinaryOp.SUB, "The difference.")
mul = _binary("mul", BinaryOp.MUL, "The product.")
div = _binary(
    "div",
    BinaryOp.DIV,
    "The quotient; of integers cut towards zero, and 0 over a divisor of 0.",
)
rem = _binary(
    "rem",
    BinaryOp.REM,
    "What div leaves, with the sign of x; of integers 0 over a divisor of 0.",
)
max = _binary("max", BinaryOp.MAX, "The larger element; NaN if one is.")
min = _binary("min", BinaryOp.MIN, "The smaller element; NaN if one is.")
atan2 = _binary(
    "atan2",
    BinaryOp.ATAN2,
    "The angle whose tangent is x / y, over all four quadrants.",
)
nextafter = _binary(
    "nextafter", BinaryOp.NEXTAFTER, "The float next to x on the side of y."
)
bitwise_and = _binary("bitwise_and", BinaryOp.AND, "And of the bits, or of bools.")
bitwise_or = _binary("bitwise_or", BinaryOp.OR, "Or of the bits, or of bools.")
bitwise_xor = _binary("bitwise_xor", BinaryOp.XOR, "Which bits, or bools, differ.")
shift_left = _binary(
    "shift_left", BinaryOp.SHL, "Bits moved up by y; 0 once all are out."
)
shift_right_arithmetic = _binary(
    "shift_right_arithmetic",
    BinaryOp.SHR,
    "Bits moved down by y, with copies of the sign.",
)
shift_right_logical = _binary(
    "shift_right_logical", BinaryOp.SHR_LOGICAL, "Bits moved down by y, with zeros."
)


def pow(x: Any, y: Any) -> Value:
    """x to the power y; floats take integer exponents too."""
    base, exponent = dtype_of(x, "lax.pow"), dtype_of(y, "lax.pow")
    if base.dtype.is_float and exponent.dtype.is_integer:
        y = cast_to(as_value(y), base.dtype).with_weak(base.weak)
    promoted = same_kind("pow", x, y)
    return result_of(promoted, Binary(BinaryOp.POW).bind(*promoted.operands))


def _comparison(name: str, op: CompareOp, doc: str) -> Callable[[Any, Any], Value]:
    def function(x: Any, y: Any) -> Value:
        result: Value = Compare(op).bind(*same_kind(name, x, y).operands)
        return result

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


eq = _comparison("eq", CompareOp.EQ, "Whether x equals y.")
ne = _comparison("ne", CompareOp.NE, "Whether x differs from y.")
lt = _comparison("lt", CompareOp.LT, "Whether x is less than y.")
le = _comparison("le", CompareOp.LE, "Whether x is less than y or equals it.")
gt = _comparison("gt", CompareOp.GT, "Whether x is greater than y.")
ge = _comparison("ge", CompareOp.GE, "Whether x is greater than y or equals it.")


# --- choices ----------------------------------------------------------------


def _same_shape(where: str, *cases: Any) -> None:
    shapes = {type_of(case).shape for case in cases}
    if len(shapes) > 1:
        given = ", ".join(str(type_of(case).shape) for case in cases)
        raise ShapeError(
            f"lax.{where}: the cases have shapes {given}, takes equal ones; use "
            "lax.broadcast_in_dim, or poot.numpy.where, which broadcasts"
        )


def select(pred: Any, on_true: Any, on_false: Any) -> Value:
    """`on_true` where the bool `pred` holds, else `on_false`."""
    return select_n(pred, on_false, on_true)


def select_n(which: Any, *cases: Any) -> Value:
    """The element of the case that `which` (bool, or i32 from 0 up) numbers."""
    chosen = as_value(which, "lax.select_n")
    _same_shape("select_n", *cases)
    _require_selector(chosen, cases)
    promoted = same_dtype("select_n", *cases)
    result = promoted.operands[-1]
    for number in reversed(range(len(cases) - 1)):
        is_later = chosen
        if not chosen.type.dtype.is_bool:
            is_later = arithmetic.greater(chosen, number)
        result = Select().bind(is_later, result, promoted.operands[number])
    return result_of(promoted, result) if len(cases) > 1 else as_value(cases[0])


def _require_selector(which: Value, cases: tuple[Any, ...]) -> None:
    dtype = which.type.dtype
    if not cases:
        raise ShapeError("lax.select_n: needs at least one case to choose from")
    if dtype not in (dtypes.bool_, dtypes.int32):
        raise DTypeError(f"lax.select_n: chooses by bool or i32, given {dtype}")
    if dtype.is_bool and len(cases) > 2:
        raise DTypeError(
            f"lax.select_n: a bool chooses among two cases, given {len(cases)}; use i32"
        )
    shape = type_of(cases[0]).shape
    if which.shape not in ((), shape):
        raise ShapeError(
            f"lax.select_n: the choice has shape {which.shape}, the cases {shape}; "
            "takes a scalar or equal shapes"
        )


def clamp(min: Any, x: Any, max: Any) -> Value:
    """x, but not below `min` and not above `max`."""
    promoted = same_dtype("clamp", min, x, max)
    shape = type_of(x).shape
    for name, bound in (("min", min), ("max", max)):
        if type_of(bound).shape not in ((), shape):
            raise ShapeError(
                f"lax.clamp: {name} has shape {type_of(bound).shape}, x {shape}; takes "
                "a scalar or equal shapes"
            )
    return result_of(promoted, Clamp().bind(*promoted.operands))


# --- conversions ------------------------------------------------------------


def convert_element_type(operand: Any, new_dtype: Any) -> Value:
    """The elements in another dtype: floats to integers saturate, NaN gives 0."""
    if new_dtype is None:
        raise DTypeError("lax.convert_element_type: needs a dtype, given None")
    return astype(operand, new_dtype)


def bitcast_convert_type(operand: Any, new_dtype: Any) -> Value:
    """The same bits read as another dtype; a last axis bridges other widths."""
    x = as_value(operand, "lax.bitcast_convert_type").with_weak(False)
    return result_like(x, BitcastConvert(as_element_type(new_dtype)).bind(x))
