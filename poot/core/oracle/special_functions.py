"""Functions that neither NumPy nor Python's math has, on f64 arrays."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from poot.core.oracle.table import Array


def elementwise(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """A function of one Python float, for f64 arrays."""

    def apply(x: Array) -> Array:
        values = map(function, x.ravel().tolist())
        return np.fromiter(values, np.float64, x.size).reshape(x.shape)

    return apply


def _lgamma(x: float) -> float:
    """log|gamma(x)|, infinite at the poles; good to some ulps of max(|f|, 1)."""
    if math.isinf(x) or (x <= 0.0 and x == math.floor(x)):
        return math.inf
    if -100.0 < x < -1.0:
        # Next to the zeros there math.lgamma subtracts large terms from each other.
        return math.log(abs(math.gamma(x)))
    try:
        return math.lgamma(x)
    except OverflowError:
        return math.inf


erf, erfc, lgamma = elementwise(math.erf), elementwise(math.erfc), elementwise(_lgamma)

# B(2n) / 2n for n from 1 up, B being Bernoulli's numbers.
_BERNOULLI = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
# The recurrence leads to numbers above the second from numbers above the first.
_LOWEST, _ASYMPTOTIC = -30, 10


@np.errstate(all="ignore")
def digamma(x: Array) -> Array:
    """The derivative of lgamma; NaN at its poles 0, -1, -2 ... (as in JAX).

    By reflection where it is far on the left, the recurrence, and the asymptotic
    series: some ulps of max(|f|, 1), since large terms cancel between the poles.
    """
    t = x - np.rint(x)
    reflects = x < _LOWEST
    y = np.where(reflects, 1.0 - x, x)
    terms = [np.where(reflects, -np.pi / np.tan(np.pi * t), 0.0)]
    for _ in range(_ASYMPTOTIC - _LOWEST):
        is_small = y < _ASYMPTOTIC
        terms.append(np.where(is_small, -1.0 / y, 0.0))
        y = np.where(is_small, y + 1.0, y)
    square = 1.0 / (y * y)
    tail = np.polynomial.polynomial.polyval(square, _BERNOULLI) * square
    result = _sum([*terms, np.log(y), -0.5 / y, -tail])
    return np.where((x <= 0.0) & (t == 0.0), np.nan, result)


def _sum(terms: list[Array]) -> Array:
    """The sum, with what each addition loses."""
    total, lost = terms[0], np.zeros_like(terms[0])
    for term in terms[1:]:
        before, total = total, total + term
        part = total - before
        lost = lost + ((before - (total - part)) + (term - part))
    return total + np.where(np.isfinite(lost), lost, 0.0)


@np.errstate(all="ignore")
def erf_inv(x: Array) -> Array:
    """The number whose erf is x: by Winitzki's estimate and Halley's iteration."""
    a = np.abs(x)
    half_log = np.log1p(-a * a) / 2
    centre = 2 / (np.pi * 0.147) + half_log
    y = np.sqrt(np.sqrt(centre**2 - 2 * half_log / 0.147) - centre)
    # Nothing is left of that next to 0, where the iteration starts well from there.
    y = np.where(a < 1e-4, 0.0, y)
    for _ in range(3):
        error = np.where(a < 0.5, erf(y) - a, (1.0 - a) - erfc(y))
        error = error * np.exp(y * y) * (math.sqrt(math.pi) / 2)
        y = y - error / (1.0 + y * error)
    return np.copysign(np.where(a == 1.0, np.inf, y), x)
