"""Functions that NumPy has not, by mpmath, rounded to the type of the operand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
from mpmath import mpf

from tests.numerics import Array

Function = Callable[[Array], Array]


def elementwise(function: Callable[[Any], Any]) -> Function:
    """A function of one mpf that gives an mpf or a float."""

    def one(x: Any) -> Any:
        if np.isnan(x):
            return x
        with mpmath.workprec(160):
            value = function(mpf(float(x)))
            # mpmath has no negative zero.
            return x if value == 0 and x == 0 else type(x)(mpmath.nstr(value, 25))

    def apply(x: Array) -> Array:
        return np.array([one(value) for value in x.ravel()], x.dtype).reshape(x.shape)

    return apply


def _limited(function: Callable[[mpf], mpf]) -> Function:
    """Of erf and erfc, which are at their limits beyond 30 (and mpmath at its own)."""
    return elementwise(lambda x: function(max(mpf(-30), min(mpf(30), x))))


def _is_pole(x: mpf) -> bool:
    return x <= 0 and x == mpmath.floor(x)


def _lgamma(x: mpf) -> mpf:
    if mpmath.isinf(x) or _is_pole(x):
        return mpmath.inf
    if x > 0:
        return mpmath.loggamma(x)
    return mpmath.log(mpmath.pi / abs(x * mpmath.sinpi(x))) - mpmath.loggamma(-x)


def _digamma(x: mpf) -> mpf:
    if x == mpmath.inf:
        return x
    if x == -mpmath.inf or _is_pole(x):
        return mpmath.nan
    if x > 0:
        return mpmath.digamma(x)
    cotangent = mpmath.cospi(x) / mpmath.sinpi(x)
    return mpmath.digamma(1 - x) - mpmath.pi * cotangent


def _erf_inv(x: mpf) -> mpf:
    if abs(x) >= 1:
        return x * mpmath.inf if abs(x) == 1 else mpmath.nan
    if abs(x) < mpf(10) ** -10:
        return mpmath.sqrt(mpmath.pi) / 2 * (x + mpmath.pi / 12 * x**3)
    return mpmath.erfinv(x)


erf, erfc = _limited(mpmath.erf), _limited(mpmath.erfc)
lgamma, digamma = elementwise(_lgamma), elementwise(_digamma)
erf_inv = elementwise(_erf_inv)
