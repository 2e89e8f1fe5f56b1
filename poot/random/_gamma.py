"""The gamma distribution, and those that follow from it."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from poot import lax
from poot import numpy as pnp
from poot.core.dtypes import DType
from poot.core.errors import ShapeError
from poot.interpreters.custom import custom_jvp
from poot.interpreters.jit import jit
from poot.interpreters.methods import Value
from poot.interpreters.promotion import as_value, default_float
from poot.interpreters.shaping import broadcast_to, expand_dims
from poot.random._arguments import (
    draw_shape,
    float_dtype,
    parameter,
    parameter_shape,
    require_fit,
)
from poot.random._continuous import standard_exponential, standard_normal
from poot.random._gamma_slope import log_slope
from poot.random._keys import KeyArray, child, random_words, single_key
from poot.random._uniform import random_sign, unit


def gamma(key: Any, a: Any, shape: Any = None, dtype: Any = None) -> Value:
    """Floats as likely as x to the power a - 1 times exp(-x); `a` is repeated."""
    return _drawn("gamma", key, a, shape, dtype, is_log=False)


def loggamma(key: Any, a: Any, shape: Any = None, dtype: Any = None) -> Value:
    """The logarithms of what `gamma` draws, precise where those are near 0."""
    return _drawn("loggamma", key, a, shape, dtype, is_log=True)


def _drawn(
    where: str, key: Any, a: Any, shape: Any, dtype: Any, *, is_log: bool
) -> Value:
    wanted = float_dtype(where, dtype)
    sizes = parameter_shape(where, shape, a)
    given, alpha = single_key(where, key), parameter(where, a, wanted)
    drawn: Value = _standard_gamma(given, broadcast_to(alpha, sizes), is_log)
    return drawn


@functools.partial(custom_jvp, nondiff_argnums=(2,))
def _standard_gamma(key: KeyArray, alpha: Value, is_log: bool) -> Value:
    """One draw for each element of `alpha`, or its logarithm."""
    drawn: Value = _marsaglia_tsang(key, alpha, is_log=is_log)
    return drawn


@_standard_gamma.defjvp
def _standard_gamma_jvp(
    is_log: bool, primals: tuple[KeyArray, Value], tangents: tuple[Any, Value]
) -> tuple[Value, Value]:
    """The attempts have no derivative of use: which is accepted hangs on `alpha`."""
    key, alpha = primals
    drawn = _standard_gamma(key, alpha, is_log)
    slope = log_slope(alpha, drawn if is_log else pnp.log(drawn))
    if not is_log:
        # A draw that was too small for its dtype stays 0.
        slope = pnp.where(drawn == 0, 0.0, slope * drawn)
    return drawn, slope * tangents[1]


class _Attempt(NamedTuple):
    """Where an element stands: each attempt begins with a key of its own."""

    # What an attempt's keys come from.
    outer: KeyArray
    # What its next normal float comes from.
    inner: KeyArray
    is_done: Value
    cube: Value


@jit(static_argnames="is_log")
def _marsaglia_tsang(key: KeyArray, alpha: Value, *, is_log: bool) -> Value:
    """A cube of a shifted normal float, if a second draw accepts it.

    Marsaglia and Tsang (2000), A simple method for generating gamma variables. Where
    alpha is below 1 it is drawn for alpha + 1 and scaled by a power of a uniform float.
    """
    keys = KeyArray(*random_words(key, alpha.shape))
    is_large = pnp.greater_equal(alpha, 1.0)
    shifted = pnp.where(is_large, alpha, alpha + 1.0) - 1.0 / 3.0
    scale = (1.0 / 3.0) / pnp.sqrt(shifted)
    outer, boost_key = child(keys, 0), child(keys, 1)
    start = _Attempt(
        outer, child(outer, 1), pnp.zeros(alpha.shape, bool), pnp.ones_like(alpha)
    )
    end: _Attempt = lax.while_loop(
        lambda attempt: pnp.any(pnp.logical_not(attempt.is_done)),
        lambda attempt: _next_attempt(attempt, shifted, scale),
        start,
    )
    dtype = alpha.type.dtype
    if is_log:
        boost = _log_boost(boost_key, alpha, is_large, dtype)
        return pnp.log(shifted) + pnp.log(end.cube) + boost
    fraction = 1.0 - unit(boost_key, (), dtype)
    boost = pnp.where(is_large, 1.0, pnp.power(fraction, 1.0 / alpha))
    return shifted * end.cube * boost


def _log_boost(key: KeyArray, alpha: Value, is_large: Value, dtype: DType) -> Value:
    drawn = -standard_exponential(key, (), dtype)
    # No product of 0 with infinity where alpha is 0.
    is_none = pnp.logical_or(is_large, drawn == 0)
    return pnp.where(is_none, 0.0, drawn * (1.0 / alpha))


def _next_attempt(attempt: _Attempt, shifted: Value, scale: Value) -> _Attempt:
    """One normal float more for each element that is not done.

    One that is too low for a cube above 0 is drawn again for the same attempt; one that
    the second draw refuses ends the attempt.
    """
    dtype = shifted.type.dtype
    normal = standard_normal(child(attempt.inner, 1), (), dtype)
    root = 1.0 + normal * scale
    is_again = pnp.less_equal(root, 0.0)
    # No logarithm of a cube below 0, for who looks for NaN.
    square, cube = normal * normal, pnp.where(is_again, 1.0, root * root * root)
    drawn = unit(child(attempt.outer, 2), (), dtype)
    is_outside = drawn >= 1.0 - 0.0331 * (square * square)
    is_above = pnp.log(drawn) >= square * 0.5 + shifted * (1.0 - cube + pnp.log(cube))
    is_refused = pnp.logical_and(is_outside, is_above)
    is_accepted = pnp.logical_not(pnp.logical_or(is_again, is_refused))
    following = child(attempt.outer, 0)
    return _Attempt(
        _chosen(is_again, attempt.outer, following),
        _chosen(is_again, child(attempt.inner, 0), child(following, 1)),
        pnp.logical_or(attempt.is_done, is_accepted),
        pnp.where(attempt.is_done, attempt.cube, cube),
    )


def _chosen(condition: Value, if_true: KeyArray, if_false: KeyArray) -> KeyArray:
    return KeyArray(
        pnp.where(condition, if_true.first, if_false.first),
        pnp.where(condition, if_true.second, if_false.second),
    )


# --- what follows from it ---------------------------------------------------


def beta(key: Any, a: Any, b: Any, shape: Any = None, dtype: Any = None) -> Value:
    """Floats between 0 and 1, as likely as x^(a - 1) times (1 - x)^(b - 1)."""
    wanted = float_dtype("beta", dtype)
    sizes, given = parameter_shape("beta", shape, a, b), single_key("beta", key)
    first, second = (
        _standard_gamma(
            child(given, number),
            broadcast_to(parameter("beta", power, wanted), sizes),
            True,
        )
        for number, power in enumerate((a, b))
    )
    # The larger one is e to the power 0, so that no sum is 0 or infinite.
    largest = pnp.maximum(first, second)
    share, rest = pnp.exp(first - largest), pnp.exp(second - largest)
    return share / (share + rest)


def dirichlet(key: Any, alpha: Any, shape: Any = None, dtype: Any = None) -> Value:
    """Rows of floats that add up to 1; `alpha` has the row as its last axis.

    `shape` is that of the rows' axes. ShapeError for an `alpha` without axes.
    """
    wanted = float_dtype("dirichlet", dtype)
    weights = as_value(alpha, "poot.random.dirichlet")
    if not weights.ndim:
        raise ShapeError("poot.random.dirichlet: alpha is a scalar, takes one axis")
    *front, size = weights.shape
    sizes = tuple(front) if shape is None else draw_shape("dirichlet", shape)
    require_fit("dirichlet", sizes, tuple(front))
    given = single_key("dirichlet", key)
    own = broadcast_to(parameter("dirichlet", weights, wanted), (*sizes, size))
    logs = _standard_gamma(given, own, True)
    shares = pnp.exp(logs - pnp.max(logs, axis=-1, keepdims=True))
    return shares / pnp.sum(shares, axis=-1, keepdims=True)


def chisquare(key: Any, df: Any, shape: Any = None, dtype: Any = None) -> Value:
    """The sum of the squares of `df` normal floats."""
    wanted = float_dtype("chisquare", dtype)
    sizes = parameter_shape("chisquare", shape, df)
    freedom = broadcast_to(parameter("chisquare", df, wanted), sizes)
    return _chisquare(single_key("chisquare", key), freedom)


def _chisquare(key: KeyArray, freedom: Value) -> Value:
    return pnp.exp(_standard_gamma(key, freedom / 2.0, True)) * 2.0


def f(key: Any, dfnum: Any, dfden: Any, shape: Any = None, dtype: Any = None) -> Value:
    """The ratio of two means of squares of `dfnum` and of `dfden` normal floats."""
    wanted = float_dtype("f", dtype)
    sizes, given = parameter_shape("f", shape, dfnum, dfden), single_key("f", key)
    above, below = (
        broadcast_to(parameter("f", df, wanted), sizes) for df in (dfnum, dfden)
    )
    upper, lower = (
        _chisquare(child(given, 1), above),
        _chisquare(child(given, 0), below),
    )
    return (upper / above) / (lower / below)


def t(key: Any, df: Any, shape: Any = None, dtype: Any = None) -> Value:
    """A normal float over the root of a mean of squares of `df` others."""
    wanted = float_dtype("t", dtype)
    sizes, given = parameter_shape("t", shape, df), single_key("t", key)
    drawn = standard_normal(child(given, 0), sizes, wanted)
    half = broadcast_to(parameter("t", df, wanted) / 2.0, sizes)
    return drawn * pnp.sqrt(half / _standard_gamma(child(given, 1), half, False))


def generalized_normal(key: Any, p: Any, shape: Any = (), dtype: Any = None) -> Value:
    """Floats as likely as exp(-|x|^p), where `p` is a scalar."""
    wanted = float_dtype("generalized_normal", dtype)
    sizes = parameter_shape("generalized_normal", shape, p)
    return _generalized_normal(single_key("generalized_normal", key), p, sizes, wanted)


def _generalized_normal(
    key: KeyArray, p: Any, shape: tuple[int, ...], dtype: DType
) -> Value:
    power = _inverse(p, dtype)
    drawn = _standard_gamma(child(key, 0), broadcast_to(power, shape), False)
    return random_sign(child(key, 1), shape, dtype) * pnp.power(drawn, power)


def _inverse(p: Any, dtype: DType) -> Value:
    return (1.0 / parameter("generalized_normal", p, default_float())).astype(dtype)


def ball(key: Any, d: int, p: Any = 2, shape: Any = (), dtype: Any = None) -> Value:
    """Points of the ball of radius 1 in `d` dimensions, as the p-norm measures."""
    wanted, sizes = float_dtype("ball", dtype), draw_shape("ball", shape)
    given = single_key("ball", key)
    points = _generalized_normal(child(given, 0), p, (*sizes, d), wanted)
    more = standard_exponential(child(given, 1), sizes, wanted)
    powers = pnp.power(pnp.abs(points), parameter("ball", p, wanted))
    radius = pnp.power(pnp.sum(powers, axis=-1) + more, _inverse(p, wanted))
    return points / expand_dims(radius, -1)
