"""Continuous distributions that are functions of one uniform or normal draw."""

from __future__ import annotations

import math
from typing import Any

from poot import lax
from poot import numpy as pnp
from poot.core.dtypes import DType
from poot.interpreters.methods import Value
from poot.random._arguments import (
    draw_shape,
    float_dtype,
    parameter,
    parameter_shape,
    require_choice,
)
from poot.random._keys import KeyArray, child, single_key
from poot.random._uniform import between, random_sign, unit

_SQRT2 = math.sqrt(2.0)


def _smallest(dtype: DType) -> float:
    """The smallest normal number."""
    return float(pnp.finfo(dtype.numpy).tiny)


def _above_minus_one(dtype: DType) -> float:
    return float(pnp.finfo(dtype.numpy).epsneg) - 1.0


# --- normal -----------------------------------------------------------------


def normal(key: Any, shape: Any = (), dtype: Any = None) -> Value:
    """Floats of mean 0 and variance 1."""
    wanted = float_dtype("normal", dtype)
    return standard_normal(
        single_key("normal", key), draw_shape("normal", shape), wanted
    )


def standard_normal(key: KeyArray, shape: tuple[int, ...], dtype: DType) -> Value:
    """Normal floats for each key and each element of a shape."""
    drawn = between(key, shape, dtype, _above_minus_one(dtype), 1.0)
    return lax.erf_inv(drawn) * _SQRT2


def truncated_normal(
    key: Any, lower: Any, upper: Any, shape: Any = None, dtype: Any = None
) -> Value:
    """Normal floats between bounds, which are repeated to the shape."""
    wanted = float_dtype("truncated_normal", dtype)
    sizes = parameter_shape("truncated_normal", shape, lower, upper)
    given = single_key("truncated_normal", key)
    low = parameter("truncated_normal", lower, wanted)
    high = parameter("truncated_normal", upper, wanted)
    share = lax.erf(low / _SQRT2), lax.erf(high / _SQRT2)
    drawn = lax.erf_inv(between(given, sizes, wanted, *share)) * _SQRT2
    # The steps inwards have no derivative.
    low, high = lax.stop_gradient(low), lax.stop_gradient(high)
    return pnp.clip(drawn, pnp.nextafter(low, math.inf), pnp.nextafter(high, -math.inf))


def lognormal(
    key: Any, sigma: Any = 1.0, shape: Any = None, dtype: Any = None
) -> Value:
    """Floats whose logarithm is normal, with deviation `sigma`."""
    wanted = float_dtype("lognormal", dtype)
    sizes = parameter_shape("lognormal", shape, sigma)
    drawn = standard_normal(single_key("lognormal", key), sizes, wanted)
    return pnp.exp(drawn * parameter("lognormal", sigma, wanted))


def maxwell(key: Any, shape: Any = (), dtype: Any = None) -> Value:
    """The length of a vector of three normal floats."""
    wanted = float_dtype("maxwell", dtype)
    sizes = draw_shape("maxwell", shape)
    return _length_of_three(single_key("maxwell", key), sizes, wanted)


def _length_of_three(key: KeyArray, shape: tuple[int, ...], dtype: DType) -> Value:
    vectors = standard_normal(key, (*shape, 3), dtype)
    return pnp.sqrt(pnp.sum(vectors * vectors, axis=-1))


def double_sided_maxwell(
    key: Any, loc: Any, scale: Any, shape: Any = (), dtype: Any = None
) -> Value:
    """`loc` plus `scale` times a length as `maxwell` gives it, with a random sign."""
    wanted = float_dtype("double_sided_maxwell", dtype)
    sizes = parameter_shape("double_sided_maxwell", None, loc, scale)
    sizes = (*draw_shape("double_sided_maxwell", shape), *sizes)
    given = single_key("double_sided_maxwell", key)
    length = _length_of_three(child(given, 0), sizes, wanted)
    signed = random_sign(child(given, 1), sizes, wanted) * length
    location = parameter("double_sided_maxwell", loc, wanted)
    return signed * parameter("double_sided_maxwell", scale, wanted) + location


# --- functions of one uniform draw ------------------------------------------


def exponential(key: Any, shape: Any = (), dtype: Any = None) -> Value:
    """Floats from 0 on, as likely as exp(-x)."""
    wanted = float_dtype("exponential", dtype)
    sizes = draw_shape("exponential", shape)
    return standard_exponential(single_key("exponential", key), sizes, wanted)


def standard_exponential(key: KeyArray, shape: tuple[int, ...], dtype: DType) -> Value:
    """Exponential floats for each key and each element of a shape."""
    return -pnp.log1p(-unit(key, shape, dtype))


def gumbel(
    key: Any, shape: Any = (), dtype: Any = None, mode: str | None = None
) -> Value:
    """Floats whose distribution function is exp(-exp(-x)).

    With mode "high" the largest are drawn with as many bits as the smallest; "low",
    the default, takes half the work.
    """
    wanted = float_dtype("gumbel", dtype)
    sizes = draw_shape("gumbel", shape)
    return standard_gumbel(single_key("gumbel", key), sizes, wanted, mode)


def standard_gumbel(
    key: KeyArray, shape: tuple[int, ...], dtype: DType, mode: str | None
) -> Value:
    """Gumbel floats of one key for each element of a shape."""
    require_choice("gumbel", "mode", mode, None, "low", "high")
    smallest = _smallest(dtype)
    if mode != "high":
        drawn = between(key, shape, dtype, smallest, 1.0)
        return -pnp.log(-pnp.log(drawn))
    drawn = unit(key, (2, *shape), dtype)
    upper, lower = drawn[0], drawn[1]
    refined = upper + lower * float(pnp.finfo(dtype.numpy).eps) + smallest
    drawn = pnp.where(upper >= 0.5, upper, refined)
    return -pnp.log(-pnp.log1p(-drawn))


def laplace(key: Any, shape: Any = (), dtype: Any = None) -> Value:
    """Floats as likely as exp(-|x|) / 2."""
    wanted = float_dtype("laplace", dtype)
    sizes, given = draw_shape("laplace", shape), single_key("laplace", key)
    drawn = between(given, sizes, wanted, _above_minus_one(wanted), 1.0)
    return pnp.sign(drawn) * pnp.log1p(-pnp.abs(drawn))


def logistic(key: Any, shape: Any = (), dtype: Any = None) -> Value:
    """Floats whose distribution function is the logistic one."""
    wanted = float_dtype("logistic", dtype)
    sizes, given = draw_shape("logistic", shape), single_key("logistic", key)
    drawn = between(given, sizes, wanted, _smallest(wanted), 1.0)
    return pnp.log(drawn) - pnp.log1p(-drawn)


def cauchy(key: Any, shape: Any = (), dtype: Any = None) -> Value:
    """Floats as likely as 1 / (1 + x²)."""
    wanted = float_dtype("cauchy", dtype)
    sizes, given = draw_shape("cauchy", shape), single_key("cauchy", key)
    smallest = float(pnp.finfo(wanted.numpy).eps)
    drawn = between(given, sizes, wanted, smallest, 1.0)
    return pnp.tan((drawn - 0.5) * math.pi)


def pareto(key: Any, b: Any, shape: Any = None, dtype: Any = None) -> Value:
    """Floats from 1 on, as likely as x to the power -b - 1."""
    wanted = float_dtype("pareto", dtype)
    sizes = parameter_shape("pareto", shape, b)
    drawn = standard_exponential(single_key("pareto", key), sizes, wanted)
    return pnp.exp(drawn / parameter("pareto", b, wanted))


def rayleigh(key: Any, scale: Any, shape: Any = None, dtype: Any = None) -> Value:
    """The length of a vector of two normal floats of deviation `scale`."""
    wanted = float_dtype("rayleigh", dtype)
    sizes = parameter_shape("rayleigh", shape, scale)
    drawn = unit(single_key("rayleigh", key), sizes, wanted)
    return parameter("rayleigh", scale, wanted) * pnp.sqrt(pnp.log(drawn) * -2.0)


def weibull_min(
    key: Any, scale: Any, concentration: Any, shape: Any = (), dtype: Any = None
) -> Value:
    """Floats whose power `concentration`, but for `scale`, is exponential."""
    wanted = float_dtype("weibull_min", dtype)
    sizes = draw_shape("weibull_min", shape)
    drawn = standard_exponential(single_key("weibull_min", key), sizes, wanted)
    power = 1.0 / parameter("weibull_min", concentration, wanted)
    return pnp.power(drawn, power) * parameter("weibull_min", scale, wanted)


def triangular(
    key: Any, left: Any, mode: Any, right: Any, shape: Any = None, dtype: Any = None
) -> Value:
    """Floats between bounds whose density falls evenly to both sides of `mode`."""
    wanted = float_dtype("triangular", dtype)
    sizes = parameter_shape("triangular", shape, left, mode, right)
    low, top, high = (parameter("triangular", x, wanted) for x in (left, mode, right))
    drawn = unit(single_key("triangular", key), sizes, wanted)
    width = high - low
    rising = low + pnp.sqrt(drawn * width * (top - low))
    falling = high - pnp.sqrt((1.0 - drawn) * width * (high - top))
    return pnp.where(drawn < (top - low) / width, rising, falling)


def wald(key: Any, mean: Any, shape: Any = None, dtype: Any = None) -> Value:
    """When a normal drift first reaches 1: the inverse Gaussian of a mean.

    A root of a quadratic equation, as Michael, Schucany and Haas (1976) choose it.
    """
    wanted = float_dtype("wald", dtype)
    sizes = parameter_shape("wald", shape, mean)
    given, average = single_key("wald", key), parameter("wald", mean, wanted)
    average = pnp.broadcast_to(average, sizes)
    square = standard_normal(child(given, 0), sizes, wanted) ** 2
    drawn = unit(child(given, 1), sizes, wanted)
    spread = pnp.sqrt(4.0 * average * square + average**2 * square**2)
    root = average + average**2 * square / 2.0 - average / 2.0 * spread
    return pnp.where(drawn <= average / (average + root), root, average**2 / root)
