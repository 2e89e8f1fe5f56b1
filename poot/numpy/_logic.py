"""Comparisons, predicates and choices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from poot.core import dtypes
from poot.core.dtypes import Scalar
from poot.core.errors import ArgumentError, DTypeError, ShapeError
from poot.core.ops.elementwise import Binary, BinaryOp, UnaryOp, broadcast_shapes
from poot.core.ops.shape import Broadcast
from poot.interpreters import arithmetic, reductions
from poot.interpreters.arithmetic import (
    absolute,
    bitwise_and,
    bitwise_or,
    unary,
)
from poot.interpreters.arithmetic import select as _choose
from poot.interpreters.methods import Value
from poot.interpreters.promotion import (
    as_value,
    cast_to,
    converted,
    dtype_of,
    promote_inexact,
    type_of,
)
from poot.interpreters.shaping import expand_dims, ravel
from poot.numpy._creation import asarray
from poot.numpy._operands import bound, ufunc

# --- comparisons ------------------------------------------------------------

equal = ufunc(arithmetic.equal)
not_equal = ufunc(arithmetic.not_equal)
less = ufunc(arithmetic.less)
less_equal = ufunc(arithmetic.less_equal)
greater = ufunc(arithmetic.greater)
greater_equal = ufunc(arithmetic.greater_equal)


def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False
) -> Value:
    """Whether each element is among the test elements (with `invert`: is not)."""
    x, tests = asarray(element), ravel(asarray(test_elements))
    found = reductions.any(arithmetic.equal(expand_dims(x, -1), tests), -1)
    return arithmetic.invert(found) if invert else found


# --- predicates -------------------------------------------------------------


def _everywhere(x: Any, answer: bool) -> Value:
    return bound(Broadcast(type_of(x).shape), Scalar.of(answer, dtypes.bool_))


def _predicate(
    name: str, op: UnaryOp, otherwise: bool, doc: str
) -> Callable[[Any], Value]:
    """A predicate of floats, and its answer for all integers and bools."""

    def function(x: Any) -> Value:
        if not dtype_of(x, name).dtype.is_float:
            return _everywhere(x, otherwise)
        return unary(op, x).with_weak(False)

    function.__name__ = name
    function.__doc__ = doc
    return ufunc(function)


isnan = _predicate("isnan", UnaryOp.ISNAN, False, "Whether x is NaN.")
isinf = _predicate("isinf", UnaryOp.ISINF, False, "Whether x is inf or -inf.")
isfinite = _predicate(
    "isfinite", UnaryOp.ISFINITE, True, "Whether x is neither infinite nor NaN."
)


def _is_infinity(x: Any, infinity: float, where: str) -> Value:
    if not dtype_of(x, where).dtype.is_float:
        return _everywhere(x, False)
    return arithmetic.equal(x, infinity)


@ufunc
def isposinf(x: Any) -> Value:
    """Whether x is inf."""
    return _is_infinity(x, math.inf, "isposinf")


@ufunc
def isneginf(x: Any) -> Value:
    """Whether x is -inf."""
    return _is_infinity(x, -math.inf, "isneginf")


# --- logic ------------------------------------------------------------------


def _logical(op: BinaryOp, x: Any, y: Any) -> Value:
    where = f"logical_{op.value}"
    operands = [converted(v, dtypes.bool_, where) for v in (x, y)]
    return bound(Binary(op), *operands).with_weak(False)


@ufunc
def logical_and(x: Any, y: Any) -> Value:
    """Whether both are true (not zero)."""
    return _logical(BinaryOp.AND, x, y)


@ufunc
def logical_or(x: Any, y: Any) -> Value:
    """Whether one is true (not zero)."""
    return _logical(BinaryOp.OR, x, y)


@ufunc
def logical_xor(x: Any, y: Any) -> Value:
    """Whether just one is true (not zero)."""
    return _logical(BinaryOp.XOR, x, y)


@ufunc
def logical_not(x: Any) -> Value:
    """Whether x is zero."""
    return unary(UnaryOp.NOT, truth(x, "logical_not"))


def truth(x: Any, where: str) -> Value:
    """Whether elements are not zero, as a value."""
    return cast_to(as_value(x, where), dtypes.bool_).with_weak(False)


# --- choices ----------------------------------------------------------------


def where(condition: Any, x: Any = None, y: Any = None) -> Value:
    """`x` where the condition is true (not zero), else `y`; all three broadcast."""
    if x is None or y is None:
        raise ArgumentError(
            "poot.numpy.where takes a condition and two choices; the positions alone "
            "would have a shape that depends on data, which arrays on the device have "
            "not: use numpy.nonzero(numpy.asarray(condition))"
        )
    return _choose(truth(condition, "where"), x, y)


def select(
    condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0
) -> Value:
    """The choice of the first condition that holds, or else the default."""
    if len(condlist) != len(choicelist) or not condlist:
        raise ShapeError(
            f"poot.numpy.select: {len(condlist)} conditions and {len(choicelist)} "
            "choices given, takes as many of both, one at least"
        )
    result: Value = as_value(default, "select")
    for condition, choice in reversed(list(zip(condlist, choicelist, strict=True))):
        given = dtype_of(condition, "select").dtype
        if not given.is_bool:
            raise DTypeError(f"poot.numpy.select: a condition is {given}, takes bool")
        result = _choose(as_value(condition), choice, result)
    return result


def nan_to_num(
    x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None
) -> Value:
    """Finite numbers for NaN and the infinities: the largest ones unless given."""
    result: Value = as_value(x, "nan_to_num")
    dtype = result.type.dtype
    if not dtype.is_float:
        return result
    largest = Scalar.of(largest_finite(dtype), dtype)
    lowest = Scalar.of(-largest_finite(dtype), dtype)
    weak = result.weak_type
    for found, given, usual in (
        (isnan(result), nan, None),
        (isposinf(result), posinf, largest),
        (isneginf(result), neginf, lowest),
    ):
        chosen = usual if given is None else converted(given, dtype, "nan_to_num")
        result = _choose(found, chosen, result)
    return result.with_weak(weak)


def largest_finite(dtype: dtypes.DType) -> float:
    """The largest number of a float dtype."""
    bits = {
        dtypes.float16: 0x7BFF,
        dtypes.bfloat16: 0x7F7F,
        dtypes.float32: 0x7F7FFFFF,
        dtypes.float64: 0x7FEFFFFFFFFFFFFF,
    }[dtype]
    return float(Scalar(dtype, bits).value)


# --- closeness and equality -------------------------------------------------


def isclose(
    a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False
) -> Value:
    """Whether abs(a - b) <= atol + rtol * abs(b); equal infinities are close."""
    promoted = promote_inexact("isclose", a, b)
    compute = promoted.dtype.compute
    x, y = (converted(v, compute, "isclose") for v in promoted.operands)
    distance = absolute(arithmetic.subtract(x, y))
    allowed = arithmetic.add(atol, arithmetic.multiply(rtol, absolute(y)))
    close = arithmetic.less_equal(distance, allowed)
    # An infinity is infinitely far from all others, whatever is allowed.
    close = bitwise_and(close, unary(UnaryOp.ISFINITE, y))
    close = bitwise_or(close, arithmetic.equal(x, y))
    if equal_nan:
        close = bitwise_or(close, bitwise_and(isnan(x), isnan(y)))
    return close.with_weak(False)


def allclose(
    a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False
) -> Value:
    """Whether all elements are close, as `isclose` says."""
    return reductions.all(isclose(a, b, rtol, atol, equal_nan))


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Value:
    """Whether shapes and all elements are equal."""
    x, y = asarray(a1), asarray(a2)
    if x.shape != y.shape:
        return as_value(False)
    same = arithmetic.equal(x, y)
    if equal_nan:
        same = bitwise_or(same, bitwise_and(isnan(x), isnan(y)))
    return reductions.all(same)


def array_equiv(a1: Any, a2: Any) -> Value:
    """Whether shapes broadcast and all elements are equal."""
    x, y = asarray(a1), asarray(a2)
    try:
        broadcast_shapes("array_equiv", x.shape, y.shape)
    except ShapeError:
        return as_value(False)
    return reductions.all(arithmetic.equal(x, y))


@ufunc
def iscomplex(x: Any) -> Value:
    """False: all dtypes are real."""
    return _everywhere(x, False)


@ufunc
def isreal(x: Any) -> Value:
    """True: all dtypes are real."""
    return _everywhere(x, True)
