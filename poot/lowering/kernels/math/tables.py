"""Which function serves which member of Unary and Binary, by kind of dtype."""

from __future__ import annotations

from collections.abc import Callable

from poot.core.dtypes import DType
from poot.core.op import RuleTable
from poot.core.ops.elementwise import PREDICATES, Binary, BinaryOp, Unary, UnaryOp
from poot.lowering.kernels.math import (
    error_function,
    exponential,
    gamma,
    hyperbolic,
    integers,
    inverse_trigonometric,
    logarithm,
    power,
    quotient,
    remainder,
    selection,
    trigonometric,
)
from poot.lowering.kernels.math.arithmetic import FloatMath
from poot.lowering.kernels.math.conversion import float_math, form, round_to
from poot.lowering.kernels.math.halves import pack16, unpack16
from poot.lowering.spirv.builder import KernelBuilder
from poot.lowering.spirv.value import Value

_U, _B = UnaryOp, BinaryOp
FloatUnary = Callable[[FloatMath, Value], Value]
FloatBinary = Callable[[FloatMath, Value, Value], Value]
IntegerUnary = Callable[[KernelBuilder, Value, DType], Value]
IntegerBinary = Callable[[KernelBuilder, Value, Value, DType], Value]
BoolUnary = Callable[[KernelBuilder, Value], Value]
BoolBinary = Callable[[KernelBuilder, Value, Value], Value]

float_unary: RuleTable[FloatUnary] = RuleTable("math.float_unary")
float_binary: RuleTable[FloatBinary] = RuleTable("math.float_binary")
integer_unary: RuleTable[IntegerUnary] = RuleTable("math.integer_unary")
integer_binary: RuleTable[IntegerBinary] = RuleTable("math.integer_binary")
bool_unary: RuleTable[BoolUnary] = RuleTable("math.bool_unary")
bool_binary: RuleTable[BoolBinary] = RuleTable("math.bool_binary")

# Their results are numbers of the dtype already.
_EXACT_UNARY = frozenset(
    {_U.NEG, _U.ABS, _U.SIGN, _U.FLOOR, _U.CEIL, _U.TRUNC, _U.ROUND}
)
_EXACT_BINARY = frozenset(
    {_B.MAX, _B.MIN, _B.COPYSIGN, _B.GE, _B.REM, _B.AND, _B.OR, _B.XOR}
)

# --- floats -----------------------------------------------------------------

_FLOAT_UNARY: dict[UnaryOp, FloatUnary] = {
    _U.NEG: lambda m, x: m.flip_sign(x, m.k.const(m.f.word, m.f.sign_bit)),
    _U.ABS: lambda m, x: m.abs(x),
    _U.SIGN: selection.sign,
    _U.EXP: exponential.exp,
    _U.EXP2: exponential.exp2,
    _U.EXPM1: exponential.expm1,
    _U.LOG: logarithm.log,
    _U.LOG2: logarithm.log2,
    _U.LOG10: logarithm.log10,
    _U.LOG1P: logarithm.log1p,
    _U.SQRT: quotient.sqrt,
    _U.RSQRT: quotient.rsqrt,
    _U.CBRT: quotient.cbrt,
    _U.RECIP: quotient.recip,
    _U.SIN: trigonometric.sin,
    _U.COS: trigonometric.cos,
    _U.TAN: trigonometric.tan,
    _U.ASIN: inverse_trigonometric.asin,
    _U.ACOS: inverse_trigonometric.acos,
    _U.ATAN: inverse_trigonometric.atan,
    _U.SINH: hyperbolic.sinh,
    _U.COSH: hyperbolic.cosh,
    _U.TANH: hyperbolic.tanh,
    _U.ASINH: hyperbolic.asinh,
    _U.ACOSH: hyperbolic.acosh,
    _U.ATANH: hyperbolic.atanh,
    _U.ERF: error_function.erf,
    _U.ERFC: error_function.erfc,
    _U.ERF_INV: error_function.erf_inv,
    _U.LGAMMA: gamma.lgamma,
    _U.DIGAMMA: gamma.digamma,
    _U.FLOOR: selection.floor,
    _U.CEIL: selection.ceil,
    _U.TRUNC: lambda m, x: m.k.trunc(x),
    _U.ROUND: lambda m, x: m.k.round_even(x),
    _U.ISNAN: lambda m, x: m.is_nan(x),
    _U.ISINF: lambda m, x: m.is_infinite(x),
    _U.ISFINITE: lambda m, x: m.is_finite(x),
    _U.SIGNBIT: lambda m, x: m.is_negative(x),
}
_FLOAT_BINARY: dict[BinaryOp, FloatBinary] = {
    _B.ADD: lambda m, a, b: a + b,
    _B.SUB: lambda m, a, b: a - b,
    _B.MUL: lambda m, a, b: a * b,
    _B.DIV: quotient.divide,
    _B.REM: remainder.remainder,
    _B.MAX: selection.maximum,
    _B.MIN: selection.minimum,
    _B.POW: power.power,
    _B.ATAN2: inverse_trigonometric.atan2,
    _B.HYPOT: power.hypot,
    _B.COPYSIGN: selection.copysign,
    _B.NEXTAFTER: selection.float_next_after,
    _B.GE: lambda m, a, b: m.k.convert(a >= b, m.f.real),
}

# --- integers ---------------------------------------------------------------

_INTEGER_UNARY: dict[UnaryOp, IntegerUnary] = {
    _U.NEG: lambda k, x, _: k.neg(x),
    _U.ABS: lambda k, x, _: integers.absolute(k, x),
    _U.SIGN: lambda k, x, _: integers.sign(k, x),
    _U.NOT: lambda k, x, _: k.not_(x),
    _U.CLZ: lambda k, x, dtype: integers.leading_zeros(k, x, dtype.bits),
    _U.POPCOUNT: lambda k, x, dtype: integers.ones(k, x, dtype.bits),
}
_INTEGER_BINARY: dict[BinaryOp, IntegerBinary] = {
    _B.ADD: lambda k, a, b, _: k.add(a, b),
    _B.SUB: lambda k, a, b, _: k.sub(a, b),
    _B.MUL: lambda k, a, b, _: k.mul(a, b),
    _B.DIV: lambda k, a, b, _: k.div(a, b),
    _B.REM: lambda k, a, b, _: k.rem(a, b),
    _B.MAX: lambda k, a, b, _: k.max(a, b),
    _B.MIN: lambda k, a, b, _: k.min(a, b),
    _B.POW: lambda k, a, b, _: integers.power(k, a, b),
    _B.AND: lambda k, a, b, _: k.and_(a, b),
    _B.OR: lambda k, a, b, _: k.or_(a, b),
    _B.XOR: lambda k, a, b, _: k.xor(a, b),
    _B.SHL: lambda k, a, b, dtype: integers.shift_left(k, a, b, dtype.bits),
    _B.SHR: lambda k, a, b, dtype: integers.shift_right(k, a, b, dtype.bits),
    _B.SHR_LOGICAL: lambda k, a, b, dtype: integers.shift_right_logical(
        k, a, b, dtype.bits
    ),
    _B.GCD: lambda k, a, b, _: integers.greatest_common_divisor(k, a, b),
    _B.GE: lambda k, a, b, dtype: k.convert(a >= b, form(dtype)),
    _B.GE_U: lambda k, a, b, dtype: integers.at_least_unsigned(k, a, b),
}

# --- truth values -----------------------------------------------------------

_BOOL_UNARY: dict[UnaryOp, BoolUnary] = {_U.NOT: lambda k, x: k.logical_not(x)}
_BOOL_BINARY: dict[BinaryOp, BoolBinary] = {
    _B.AND: lambda k, a, b: k.logical_and(a, b),
    _B.OR: lambda k, a, b: k.logical_or(a, b),
    _B.XOR: lambda k, a, b: k.ne(a, b),
    _B.MAX: lambda k, a, b: k.logical_or(a, b),
    _B.MIN: lambda k, a, b: k.logical_and(a, b),
}

for _member, _float_unary in _FLOAT_UNARY.items():
    float_unary.define(Unary[_member])(_float_unary)
for _member, _integer_unary in _INTEGER_UNARY.items():
    integer_unary.define(Unary[_member])(_integer_unary)
for _member, _bool_unary in _BOOL_UNARY.items():
    bool_unary.define(Unary[_member])(_bool_unary)
for _number, _float_binary in _FLOAT_BINARY.items():
    float_binary.define(Binary[_number])(_float_binary)
for _number, _integer_binary in _INTEGER_BINARY.items():
    integer_binary.define(Binary[_number])(_integer_binary)
for _number, _bool_binary in _BOOL_BINARY.items():
    bool_binary.define(Binary[_number])(_bool_binary)


def lower_unary(k: KernelBuilder, op: UnaryOp, x: Value, dtype: DType) -> Value:
    """The function of one element in compute form, rounded to `dtype`.

    The predicates give truth values.
    """
    if dtype.is_bool:
        return bool_unary[Unary[op]](k, x)
    if dtype.is_integer:
        return round_to(k, integer_unary[Unary[op]](k, x, dtype), dtype)
    result = float_unary[Unary[op]](float_math(k, dtype), x)
    exact = op in _EXACT_UNARY or op in PREDICATES
    return result if exact else round_to(k, result, dtype)


def lower_binary(
    k: KernelBuilder, op: BinaryOp, a: Value, b: Value, dtype: DType
) -> Value:
    """The function of two elements in compute form, rounded to `dtype`."""
    if dtype.is_bool:
        return bool_binary[Binary[op]](k, a, b)
    if dtype.is_integer:
        return round_to(k, integer_binary[Binary[op]](k, a, b, dtype), dtype)
    if op is BinaryOp.NEXTAFTER and dtype.bits == 16:
        return _next_after16(k, a, b, dtype)
    result = float_binary[Binary[op]](float_math(k, dtype), a, b)
    return result if op in _EXACT_BINARY else round_to(k, result, dtype)


def _next_after16(k: KernelBuilder, a: Value, b: Value, dtype: DType) -> Value:
    """In the dtype's own steps."""
    mantissa = 10 if dtype.name == "f16" else 7
    infinity = 0x7FFF >> mantissa << mantissa
    stepped = selection.next_after(
        k,
        pack16(k, a, dtype),
        pack16(k, b, dtype),
        sign_bit=0x8000,
        infinity=infinity,
    )
    return unpack16(k, stepped, dtype)
