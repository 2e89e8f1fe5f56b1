"""NumPy's ufuncs on numbers: arithmetic, rounding, extrema, transcendentals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from poot.core import dtypes
from poot.core.ops.elementwise import Binary, BinaryOp, UnaryOp
from poot.interpreters import arithmetic, rounding
from poot.interpreters.arithmetic import (
    binary,
    binary_inexact,
    equal,
    greater,
    less,
    not_equal,
    promote_numbers,
    select,
    unary,
    unary_inexact,
)
from poot.interpreters.methods import Value
from poot.interpreters.promotion import (
    as_value,
    cast_to,
    dtype_of,
    promote_inexact,
    result_of,
)
from poot.numpy._creation import zeros_like
from poot.numpy._operands import bound, in_compute_dtype, ufunc

# --- arithmetic -------------------------------------------------------------

add = ufunc(arithmetic.add)
subtract = ufunc(arithmetic.subtract)
multiply = ufunc(arithmetic.multiply)
divide = true_divide = ufunc(arithmetic.true_divide)
floor_divide = ufunc(arithmetic.floor_divide)
mod = remainder = ufunc(arithmetic.remainder)
divmod = ufunc(arithmetic.divmod_)
negative = ufunc(arithmetic.negative)
positive = ufunc(arithmetic.positive)
abs = absolute = ufunc(arithmetic.absolute)
pow = power = ufunc(arithmetic.power)
maximum = ufunc(rounding.maximum)
minimum = ufunc(rounding.minimum)


@ufunc
def fmod(x: Any, y: Any) -> Value:
    """The remainder with the sign of x; of integers by zero: 0."""
    promoted = promote_numbers("fmod", x, y)
    return result_of(promoted, bound(Binary(BinaryOp.REM), *promoted.operands))


@ufunc
def float_power(x: Any, y: Any) -> Value:
    """x to the power y, of floats."""
    return binary_inexact(BinaryOp.POW, x, y)


@ufunc
def square(x: Any) -> Value:
    """x times x; bools count as integers."""
    if dtype_of(x, "square").dtype.is_bool:
        x = cast_to(as_value(x), dtypes.int32)
    return arithmetic.multiply(x, x)


@ufunc
def sign(x: Any) -> Value:
    """-1, 0 or 1; NaN stays."""
    return unary(UnaryOp.SIGN, x)


@ufunc
def fabs(x: Any) -> Value:
    """The absolute value, as a float."""
    return unary_inexact(UnaryOp.ABS, x)


@ufunc
def reciprocal(x: Any) -> Value:
    """One over x, as a float."""
    return unary_inexact(UnaryOp.RECIP, x)


@ufunc
def conjugate(x: Any) -> Value:
    """x itself: all dtypes are real."""
    return as_value(x, "conjugate")


conj = conjugate


@ufunc
def real(x: Any) -> Value:
    """x itself: all dtypes are real."""
    return as_value(x, "real")


@ufunc
def imag(x: Any) -> Value:
    """Zeros: all dtypes are real."""
    return zeros_like(x)


def angle(z: Any, deg: bool = False) -> Value:
    """Pi for negative numbers, -0 among them, 0 for the others; in degrees if `deg`."""
    turned = arctan2(imag(z), z).with_weak(False)
    return degrees(turned) if deg else turned


# --- rounding ---------------------------------------------------------------


def _whole(name: str, op: UnaryOp, doc: str) -> Callable[[Any], Value]:
    """A function that leaves integers and bools as they are."""

    def function(x: Any) -> Value:
        if not dtype_of(x, name).dtype.is_float:
            return as_value(x)
        return unary(op, x)

    function.__name__ = name
    function.__doc__ = doc
    return ufunc(function)


floor = _whole("floor", UnaryOp.FLOOR, "The nearest whole number not above x.")
ceil = _whole("ceil", UnaryOp.CEIL, "The nearest whole number not below x.")
trunc = _whole("trunc", UnaryOp.TRUNC, "x without its fraction.")
fix = trunc


@ufunc
def rint(x: Any) -> Value:
    """The nearest whole number as a float, halves to even."""
    return unary_inexact(UnaryOp.ROUND, x)


# --- extrema without NaN, steps ---------------------------------------------


def _ignoring_nan(op: BinaryOp, x: Any, y: Any) -> Value:
    if not _is_float(x, y):
        return binary(op, x, y)
    extremum = binary(op, x, y)
    weak = extremum.weak_type
    others = select(_is_nan(x), y, select(_is_nan(y), x, extremum))
    return others.with_weak(weak)


def _is_nan(x: Any) -> Value:
    return unary_inexact(UnaryOp.ISNAN, x).with_weak(False)


def _is_float(*xs: Any) -> bool:
    return any(dtype_of(x).dtype.is_float for x in xs)


@ufunc
def fmax(x: Any, y: Any) -> Value:
    """The larger of two elements; the other one if one is NaN."""
    return _ignoring_nan(BinaryOp.MAX, x, y)


@ufunc
def fmin(x: Any, y: Any) -> Value:
    """The smaller of two elements; the other one if one is NaN."""
    return _ignoring_nan(BinaryOp.MIN, x, y)


@ufunc
def heaviside(x: Any, h: Any) -> Value:
    """0 below zero, 1 above, and `h` at zero; NaN stays."""
    promoted = promote_inexact("heaviside", x, h)
    x, h = promoted.operands
    step = select(greater(x, 0), 1.0, 0.0)
    step = select(equal(x, 0), h, step)
    return result_of(promoted, select(not_equal(x, x), x, step))


# --- transcendentals --------------------------------------------------------


def _unary_float(name: str, op: UnaryOp, doc: str) -> Callable[[Any], Value]:
    def function(x: Any) -> Value:
        return unary_inexact(op, x)

    function.__name__ = name
    function.__doc__ = doc
    return ufunc(function)


exp = _unary_float("exp", UnaryOp.EXP, "e to the power x.")
exp2 = _unary_float("exp2", UnaryOp.EXP2, "2 to the power x.")
expm1 = _unary_float("expm1", UnaryOp.EXPM1, "exp(x) - 1, precise near zero.")
log = _unary_float("log", UnaryOp.LOG, "The natural logarithm.")
log2 = _unary_float("log2", UnaryOp.LOG2, "The logarithm to base 2.")
log10 = _unary_float("log10", UnaryOp.LOG10, "The logarithm to base 10.")
log1p = _unary_float("log1p", UnaryOp.LOG1P, "log(1 + x), precise near zero.")
sqrt = _unary_float("sqrt", UnaryOp.SQRT, "The square root.")
cbrt = _unary_float("cbrt", UnaryOp.CBRT, "The cube root.")
sin = _unary_float("sin", UnaryOp.SIN, "The sine.")
cos = _unary_float("cos", UnaryOp.COS, "The cosine.")
tan = _unary_float("tan", UnaryOp.TAN, "The tangent.")
arcsin = asin = _unary_float("arcsin", UnaryOp.ASIN, "The inverse of sin.")
arccos = acos = _unary_float("arccos", UnaryOp.ACOS, "The inverse of cos.")
arctan = atan = _unary_float("arctan", UnaryOp.ATAN, "The inverse of tan.")
sinh = _unary_float("sinh", UnaryOp.SINH, "The hyperbolic sine.")
cosh = _unary_float("cosh", UnaryOp.COSH, "The hyperbolic cosine.")
tanh = _unary_float("tanh", UnaryOp.TANH, "The hyperbolic tangent.")
arcsinh = asinh = _unary_float("arcsinh", UnaryOp.ASINH, "The inverse of sinh.")
arccosh = acosh = _unary_float("arccosh", UnaryOp.ACOSH, "The inverse of cosh.")
arctanh = atanh = _unary_float("arctanh", UnaryOp.ATANH, "The inverse of tanh.")


@ufunc
def arctan2(y: Any, x: Any) -> Value:
    """The angle of the point (x, y)."""
    return binary_inexact(BinaryOp.ATAN2, y, x)


atan2 = arctan2


@ufunc
def hypot(x: Any, y: Any) -> Value:
    """The length of (x, y), without overflow on the way."""
    return binary_inexact(BinaryOp.HYPOT, x, y)


@ufunc
def logaddexp(x: Any, y: Any) -> Value:
    """log(exp(x) + exp(y)), without overflow on the way."""
    return in_compute_dtype("logaddexp", _logaddexp, x, y)


def _logaddexp(x: Any, y: Any) -> Value:
    def tail(distance: Value) -> Value:
        return unary(UnaryOp.LOG1P, unary(UnaryOp.EXP, distance))

    return _log_of_sum(x, y, tail)


@ufunc
def logaddexp2(x: Any, y: Any) -> Value:
    """log2(2**x + 2**y), without overflow on the way."""
    return in_compute_dtype("logaddexp2", _logaddexp2, x, y)


def _logaddexp2(x: Any, y: Any) -> Value:
    def tail(distance: Value) -> Value:
        natural = unary(UnaryOp.LOG1P, unary(UnaryOp.EXP2, distance))
        return arithmetic.multiply(natural, 1 / math.log(2))

    return _log_of_sum(x, y, tail)


def _log_of_sum(x: Any, y: Any, tail: Callable[[Value], Value]) -> Value:
    """The larger one, plus what the other adds at that distance below it."""
    # Of equal ones both are half the larger one and half the smaller one in
    # derivatives, so that these are equal too.
    larger = rounding.maximum(x, y)
    below = arithmetic.subtract(rounding.minimum(x, y), larger)
    total = arithmetic.add(larger, tail(below))
    # Of two equal infinities the distance is NaN, and their sum is the result.
    return select(_is_nan(below), arithmetic.add(x, y), total)


@ufunc
def sinc(x: Any) -> Value:
    """sin(pi x) / (pi x), and 1 at 0; exactly 0 at the other whole numbers."""
    return in_compute_dtype("sinc", _sinc, x)


def _sinc(x: Any) -> Value:
    nearest = unary(UnaryOp.ROUND, x)
    sine = unary(
        UnaryOp.SIN, arithmetic.multiply(arithmetic.subtract(x, nearest), math.pi)
    )
    half = arithmetic.multiply(nearest, 0.5)
    is_odd = not_equal(unary(UnaryOp.FLOOR, half), half)
    sine = select(is_odd, unary(UnaryOp.NEG, sine), sine)
    angle = arithmetic.multiply(x, math.pi)
    # Next to 0 the series, whose derivatives are right at 0 too. The quotient is kept
    # off 0, where it would spoil them.
    near = less(unary(UnaryOp.ABS, angle), 0.01)
    ratio = arithmetic.true_divide(sine, select(near, 1.0, angle))
    square = arithmetic.multiply(angle, angle)
    series = arithmetic.add(
        1.0,
        arithmetic.multiply(
            square, arithmetic.subtract(arithmetic.multiply(square, 1 / 120), 1 / 6)
        ),
    )
    return select(near, series, ratio)


@ufunc
def deg2rad(x: Any) -> Value:
    """Degrees as radians."""
    return in_compute_dtype(
        "deg2rad", lambda x: arithmetic.multiply(x, math.pi / 180), x
    )


@ufunc
def rad2deg(x: Any) -> Value:
    """Radians as degrees."""
    return in_compute_dtype(
        "rad2deg", lambda x: arithmetic.multiply(x, 180 / math.pi), x
    )


radians = deg2rad
degrees = rad2deg
