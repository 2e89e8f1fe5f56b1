"""The derivative of digamma, made of elementwise primitives."""

from __future__ import annotations

import math
from typing import Any

from poot.core import dtypes
from poot.core.ops.elementwise import CompareOp, UnaryOp
from poot.interpreters.jvp.definitions import like
from poot.interpreters.primitives import (
    add,
    cast,
    compare,
    div,
    mul,
    select,
    sub,
    type_of,
    unary,
)

# Bernoulli numbers B2, B4, ...: the coefficients of the asymptotic series.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
# How many steps of the recurrence, and terms of the series after them, leave an error
# below the dtype's rounding.
_STEPS_AND_TERMS = {dtypes.float32: (3, 4), dtypes.float64: (8, 8)}


def trigamma(x: Any) -> Any:
    """The derivative of digamma at x, which has poles at 0, -1, -2, ...

    Left of 0 by reflection: trigamma(x) + trigamma(1 - x) = (pi / sin(pi x))^2.
    """
    dtype = type_of(x).dtype
    x = cast(x, dtype.compute)
    is_left = compare(CompareOp.LT, x, like(x, 0))
    right = _right_of_zero(select(is_left, sub(like(x, 1), x), x))
    # The distance to the next pole is exact; so is the sine's period that it drops.
    distance = sub(x, unary(UnaryOp.ROUND, x))
    sine = unary(UnaryOp.SIN, mul(distance, like(x, math.pi)))
    cosecant = div(like(x, math.pi), sine)
    left = sub(mul(cosecant, cosecant), right)
    return cast(select(is_left, left, right), dtype)


def _right_of_zero(x: Any) -> Any:
    """1/x^2 + 1/(x+1)^2 + ... + the series at x + steps, in which all are positive."""
    steps, terms = _STEPS_AND_TERMS[type_of(x).dtype]
    one = like(x, 1)
    result = _series(add(x, like(x, steps)), terms)
    for step in reversed(range(steps)):
        place = add(x, like(x, step)) if step else x
        inverse = div(one, place)
        result = add(result, mul(inverse, inverse))
    return result


def _series(x: Any, terms: int) -> Any:
    """1/x + 1/(2 x^2) + the sum of B2k / x^(2k+1)."""
    inverse = div(like(x, 1), x)
    square = mul(inverse, inverse)
    result = like(x, _BERNOULLI[terms - 1])
    for number in reversed(_BERNOULLI[: terms - 1]):
        result = add(mul(square, result), like(x, number))
    half = add(mul(inverse, result), like(x, 0.5))
    return add(mul(square, half), inverse)
