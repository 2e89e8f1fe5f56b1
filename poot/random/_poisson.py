"""The Poisson distribution."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from poot import lax
from poot import numpy as pnp
from poot.core import dtypes
from poot.core.dtypes import DType
from poot.interpreters.jit import jit
from poot.interpreters.methods import Value
from poot.interpreters.promotion import cast_to
from poot.interpreters.shaping import broadcast_to
from poot.random._arguments import integer_dtype, parameter, parameter_shape
from poot.random._keys import KeyArray, child, single_key
from poot.random._uniform import unit

# From this mean on, draws are rejected; below it, uniform floats are multiplied.
_LARGE = 10.0
# A mean for the elements that the other way is for.
_ANY_LARGE = 1e5


def poisson(key: Any, lam: Any, shape: Any = None, dtype: Any = None) -> Value:
    """How many events happen where `lam` are expected; -1 for one that is no number.

    At least 9999 of 10⁴ draws are JAX's up to a mean of 5000, where JAX is compiled
    without fused multiplication and addition; 9998 at 2·10⁴, 9997 at 10⁵. With them,
    as by default on CPUs that have them, JAX decides otherwise than without, and so
    than poot: 9 of 10⁴ draws at 3000, 25 at 10⁴, and most at 10⁵.
    """
    wanted = integer_dtype("poisson", dtype)
    sizes = parameter_shape("poisson", shape, lam)
    mean = broadcast_to(parameter("poisson", lam, dtypes.float32), sizes)
    drawn: Value = _poisson(single_key("poisson", key), mean, dtype=wanted)
    return drawn


@jit(static_argnames="dtype")
def _poisson(key: KeyArray, mean: Value, *, dtype: DType) -> Value:
    is_small = pnp.logical_or(pnp.isnan(mean), mean < _LARGE)
    small = _multiplied(key, pnp.where(is_small, mean, 0.0), dtype)
    large = _rejected(key, pnp.where(is_small, _ANY_LARGE, mean), dtype)
    return pnp.where(mean == 0, 0, pnp.where(is_small, small, large))


def _attempts(dtype: DType) -> int:
    return int(np.iinfo(dtype.numpy).max)


# --- small means ------------------------------------------------------------


class _Product(NamedTuple):
    number: Value
    events: Value
    key: KeyArray
    logarithm: Value


def _multiplied(key: KeyArray, mean: Value, dtype: DType) -> Value:
    """How many uniform floats have a product above exp(-mean) (Knuth)."""

    def goes_on(state: _Product) -> Value:
        is_within = state.number < _attempts(dtype)
        return pnp.logical_and(pnp.any(state.logarithm > -mean), is_within)

    def step(state: _Product) -> _Product:
        is_above = state.logarithm > -mean
        drawn = unit(child(state.key, 1), mean.shape, mean.type.dtype)
        return _Product(
            state.number + 1,
            pnp.where(is_above, state.events + 1, state.events),
            child(state.key, 0),
            state.logarithm + pnp.log(drawn),
        )

    start = _Product(
        pnp.zeros((), np.int32),
        pnp.zeros(mean.shape, dtype.numpy),
        key,
        pnp.zeros_like(mean),
    )
    end: _Product = lax.while_loop(goes_on, step, start)
    return end.events - 1


# --- large means ------------------------------------------------------------


class _Hat(NamedTuple):
    """The curve above the distribution that Hörmann's PTRS draws from."""

    mean: Value
    log_mean: Value
    a: Value
    b: Value
    inverse_alpha: Value
    accepted_below: Value


def _hat(mean: Value) -> _Hat:
    b = 0.931 + 2.53 * pnp.sqrt(mean)
    return _Hat(
        mean,
        pnp.log(mean),
        -0.059 + 0.02483 * b,
        b,
        1.1239 + 1.1328 / (b - 3.4),
        0.9277 - 3.6224 / (b - 2.0),
    )


class _Rejection(NamedTuple):
    number: Value
    events: Value
    is_accepted: Value
    key: KeyArray


def _rejected(key: KeyArray, mean: Value, dtype: DType) -> Value:
    """Counts under a hat, drawn again until all are accepted once.

    Hörmann (1993), The transformed rejection method for generating Poisson random
    variables. All take the last count that was accepted, also those that had one.
    """
    hat = _hat(mean)

    def goes_on(state: _Rejection) -> Value:
        is_within = state.number < _attempts(dtype)
        is_open = pnp.any(pnp.logical_not(state.is_accepted))
        return pnp.logical_and(is_open, is_within)

    def step(state: _Rejection) -> _Rejection:
        count, is_accepted = _proposed(state.key, hat)
        return _Rejection(
            state.number + 1,
            pnp.where(is_accepted, count, state.events),
            pnp.logical_or(state.is_accepted, is_accepted),
            child(state.key, 0),
        )

    start = _Rejection(
        pnp.zeros((), np.int32),
        pnp.full_like(mean, -1.0),
        pnp.zeros(mean.shape, bool),
        key,
    )
    end: _Rejection = lax.while_loop(goes_on, step, start)
    return cast_to(end.events, dtype)


def _proposed(key: KeyArray, hat: _Hat) -> tuple[Value, Value]:
    """A count for each mean, and whether it is accepted."""
    shape, dtype = hat.mean.shape, hat.mean.type.dtype
    place = unit(child(key, 1), shape, dtype) - 0.5
    height = unit(child(key, 2), shape, dtype)
    distance = 0.5 - pnp.abs(place)
    count = pnp.floor((2.0 * hat.a / distance + hat.b) * place + hat.mean + 0.43)
    slope = hat.a / (distance * distance) + hat.b
    log_height = pnp.log(height * hat.inverse_alpha / slope)
    log_density = -hat.mean + count * hat.log_mean - _log_factorial(count)
    is_inside = pnp.logical_and(distance >= 0.07, height <= hat.accepted_below)
    is_tail = pnp.logical_and(distance < 0.013, height > distance)
    is_outside = pnp.logical_or(count < 0.0, is_tail)
    is_below = pnp.logical_and(pnp.logical_not(is_outside), log_height <= log_density)
    return count, pnp.logical_or(is_inside, is_below)


# Lanczos' coefficients for g = 7: what is 1, then those over z + 1, z + 2 …
_LANCZOS = (
    0.99999999999980993,
    676.5203681218851,
    -1259.1392167224028,
    771.32342877765313,
    -176.61502916214059,
    12.507343278686905,
    -0.13857109526572012,
    9.9843695780195716e-6,
    1.5056327351493116e-7,
)
_SHIFT = 7.5
_HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)


def _log_factorial(count: Value) -> Value:
    """log(count!) for counts of 0 or more, with the rounding errors that JAX has.

    It is by far larger than what it is compared with in the end, so that its last bits
    decide: a better value would often decide otherwise than JAX. Lanczos' formula,
    operation by operation as XLA evaluates it.
    """
    z = (count + 1.0) - 1.0
    series = pnp.full_like(z, _LANCZOS[0])
    for number, coefficient in enumerate(_LANCZOS[1:], 1):
        series = series + coefficient / (z + float(number))
    log_base = pnp.log1p(z * (1 / _SHIFT)) + math.log(_SHIFT)
    power = ((z + 0.5) - (z + _SHIFT) / log_base) * log_base
    return (power + _HALF_LOG_TAU) + pnp.log(series)
