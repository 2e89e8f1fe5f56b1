"""Sweeps of poot's functions over whole domains, on the NumPy builder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from poot.core import dtypes
from poot.core.dtypes import DType
from poot.core.ops.elementwise import BinaryOp, UnaryOp
from poot.core.types import TensorType
from poot.lowering.kernels.math import (
    form,
    loops,
    lower_binary,
    lower_unary,
)
from tests import mpmath_functions as mp
from tests.numerics import Array, random_bits, rng_of, special_values
from tests.numpy_builder import NumpyBuilder, Quality, numpy_iterate

Domain = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Function:
    """A function, its value in a wider type, where it is dense, and its bounds."""

    op: UnaryOp | BinaryOp
    reference: Callable[..., Any]
    domain: Domain
    ulps32: float
    ulps64: float
    # Results that are smaller than this are measured in its ulps.
    floor: float = 0.0

    def __str__(self) -> str:
        return self.op.value


_U, _B = UnaryOp, BinaryOp
# The bounds hold for division and square root as rough as Vulkan allows.
UNARY = (
    Function(_U.EXP, np.exp, (-110.0, 90.0), 1.0, 1.0),
    Function(_U.EXP2, np.exp2, (-155.0, 130.0), 1.3, 1.3),
    Function(_U.EXPM1, np.expm1, (-5.0, 5.0), 1.6, 1.5),
    Function(_U.LOG, np.log, (0.0, 3.0), 0.9, 0.9),
    Function(_U.LOG2, np.log2, (0.0, 3.0), 0.95, 0.95),
    Function(_U.LOG10, np.log10, (0.0, 3.0), 0.95, 0.95),
    Function(_U.LOG1P, np.log1p, (-1.0, 3.0), 0.95, 0.95),
    Function(_U.SQRT, np.sqrt, (0.0, 3.0), 0.5, 0.5),
    Function(_U.RSQRT, lambda x: 1 / np.sqrt(x), (0.0, 3.0), 1.6, 1.6),
    Function(_U.CBRT, np.cbrt, (-3.0, 3.0), 2.5, 1.6),
    Function(_U.RECIP, lambda x: 1 / x, (-3.0, 3.0), 0.5, 0.5),
    Function(_U.SIN, np.sin, (-500.0, 500.0), 0.9, 0.9),
    Function(_U.COS, np.cos, (-500.0, 500.0), 0.9, 0.9),
    Function(_U.TAN, np.tan, (-500.0, 500.0), 1.4, 1.4),
    Function(_U.ASIN, np.arcsin, (-1.0, 1.0), 1.4, 1.5),
    Function(_U.ACOS, np.arccos, (-1.0, 1.0), 0.95, 0.95),
    Function(_U.ATAN, np.arctan, (-4.0, 4.0), 1.6, 1.8),
    Function(_U.SINH, np.sinh, (-91.0, 91.0), 1.8, 1.8),
    Function(_U.COSH, np.cosh, (-91.0, 91.0), 1.6, 1.6),
    Function(_U.TANH, np.tanh, (-2.0, 2.0), 2.5, 2.5),
    Function(_U.ASINH, np.arcsinh, (-3.0, 3.0), 0.95, 0.95),
    Function(_U.ACOSH, np.arccosh, (1.0, 3.0), 1.1, 1.1),
    Function(_U.ATANH, np.arctanh, (-1.0, 1.0), 1.5, 1.5),
    Function(_U.ERF, mp.erf, (-4.0, 4.0), 1.5, 1.4),
    Function(_U.ERFC, mp.erfc, (-7.0, 28.0), 3.7, 3.2),
    Function(_U.ERF_INV, mp.erf_inv, (-1.0, 1.0), 3.0, 2.0),
    Function(_U.LGAMMA, mp.lgamma, (-20.0, 10.0), 2.7, 2.3, floor=1.0),
    Function(_U.DIGAMMA, mp.digamma, (-40.0, 10.0), 3.0, 2.5, floor=1.0),
)
BINARY = (
    Function(_B.DIV, np.divide, (-3.0, 3.0), 0.5, 0.5),
    Function(_B.REM, np.fmod, (-100.0, 100.0), 0.0, 0.0),
    Function(_B.POW, np.power, (-20.0, 20.0), 1.5, 1.9),
    Function(_B.ATAN2, np.arctan2, (-4.0, 4.0), 1.6, 1.8),
    Function(_B.HYPOT, np.hypot, (-4.0, 4.0), 1.0, 1.0),
)


# What mpmath is slow for, by SciPy: good to some ulps of f64, which f32 does not see.
_QUICK: dict[UnaryOp | BinaryOp, Callable[[Any, Array], Array]] = {
    _U.ERF: lambda scipy, x: scipy.erf(x),
    _U.ERFC: lambda scipy, x: scipy.erfc(x),
    _U.ERF_INV: lambda scipy, x: np.copysign(scipy.erfinv(x), x),
    _U.LGAMMA: lambda scipy, x: np.where(np.isinf(x), np.inf, scipy.gammaln(x)),
    _U.DIGAMMA: lambda scipy, x: np.where(x == 0, np.nan, scipy.psi(x)),
}


def is_slow(function: Function) -> bool:
    return function.op in _QUICK


def quick(function: Function) -> Function:
    """The function with a reference that serves millions of points of f32."""
    if not is_slow(function):
        return function
    scipy = pytest.importorskip("scipy.special")
    return replace(function, reference=partial(_QUICK[function.op], scipy))


def points(name: str, dtype: DType, count: int, domain: Domain) -> Array:
    """Special values, any bits, numbers of every size, and the domain, in turn."""
    rng = rng_of(name)
    quarter = count // 4
    sizes = rng.choice([-1.0, 1.0], quarter) * 10.0 ** rng.uniform(-8, 4, quarter)
    parts = [
        special_values(dtype),
        random_bits(rng, TensorType((2 * quarter,), dtype)),
        sizes.astype(dtype.numpy),
        rng.uniform(*domain, quarter).astype(dtype.numpy),
    ]
    return np.concatenate(parts)


def pairs(name: str, dtype: DType, count: int, domain: Domain) -> tuple[Array, Array]:
    """All pairs of special values, and pairs of `points`."""
    special = special_values(dtype)
    one, other = (p.ravel() for p in np.meshgrid(special, special))
    a = points(name, dtype, count, domain)[len(special) :]
    b = points(name + "'", dtype, count, domain)[len(special) :]
    b = np.roll(b, count // 4)  # Each kind of point meets another kind, and its own.
    half = np.arange(len(a)) % 2 == 0
    b = np.where(half, b, np.roll(b, -count // 4))
    return np.concatenate([one, a]), np.concatenate([other, b])


def compute(k: NumpyBuilder, function: Function, dtype: DType, *xs: Array) -> Array:
    """What the function's instructions give, run by NumPy; f32 and f64 only."""
    values = [k.wrap(x, form(dtype)) for x in xs]
    iterate, loops.iterate = loops.iterate, numpy_iterate
    try:
        if isinstance(function.op, UnaryOp):
            result = lower_unary(k, function.op, values[0], dtype)
        else:
            result = lower_binary(k, function.op, values[0], values[1], dtype)
    finally:
        loops.iterate = iterate
    return np.broadcast_to(result.id, xs[0].shape)


def flushed32(x: Array, dtype: DType, keeps: bool) -> Array:
    """Subnormal f32 as zeros, where they are not kept; of any type as wide."""
    if keeps or dtype is dtypes.float64:
        return x
    with np.errstate(all="ignore"):
        tiny = np.abs(x) < np.finfo(np.float32).tiny
    return np.where(tiny, np.copysign(x.dtype.type(0), x), x)


@np.errstate(all="ignore")
def errors(
    got: Array, exact: Array, dtype: DType, keeps: bool, floor: float = 0.0
) -> Array:
    """Distances from the wide, exact values, in ulps of the nearest float or `floor`.

    Infinite where one is NaN and the other is not, or zeros differ in sign.
    """
    limits = np.finfo(dtype.numpy)
    got, whole = flushed32(got, dtype, keeps), np.abs(exact)
    exact = flushed32(exact, dtype, keeps)
    nearest = exact.astype(dtype.numpy)
    # An infinite result stands for the first number that is too large.
    beyond = exact.dtype.type(2) ** limits.maxexp
    wide = got.astype(exact.dtype)
    wide = np.where(np.isinf(got), np.copysign(beyond, wide), wide)
    target = np.clip(exact, -beyond, beyond)
    size = np.maximum(np.abs(nearest), dtype.numpy.type(floor))
    spacing = np.spacing(np.minimum(size, limits.max))
    distance = np.abs(wide - target) / spacing.astype(exact.dtype)
    if not keeps and dtype is not dtypes.float64:
        # What is a hair above the smallest normal number may be flushed or not; so may
        # what rounds to it from below, but for its sign.
        edge = (np.abs(target) < limits.tiny * (1 + 8 * limits.eps)) & (got == 0)
        below = (whole > limits.tiny * (1 - limits.eps)) & (whole < limits.tiny)
        same_sign = np.signbit(got) == np.signbit(exact)
        edge |= below & same_sign & (np.abs(got) == limits.tiny)
        distance = np.where(edge, 0.0, distance)
    zeros = (got == 0) & (nearest == 0)
    distance = np.where(
        zeros & (np.signbit(got) != np.signbit(nearest)), np.inf, distance
    )
    nan = np.isnan(got) != np.isnan(exact)
    return np.where(nan, np.inf, np.where(np.isnan(got), 0.0, distance))


def sweep(
    function: Function,
    dtype: DType,
    count: int,
    keeps: bool,
    quality: Quality,
    fuses: bool = False,
) -> tuple[Array, Array, list[Array]]:
    """Errors, results and operands of a function at `count` points."""
    name = f"{function}{dtype}"
    if isinstance(function.op, UnaryOp):
        xs = [points(name, dtype, count, function.domain)]
    else:
        xs = list(pairs(name, dtype, count, function.domain))
    k = NumpyBuilder(keeps_subnormals=keeps, quality=quality, fuses=fuses)
    got = compute(k, function, dtype, *xs)
    wide = np.longdouble if dtype is dtypes.float64 else np.float64
    with np.errstate(all="ignore"):
        exact = function.reference(
            *(flushed32(x, dtype, keeps).astype(wide) for x in xs)
        )
    exact = np.asarray(exact, wide)
    return errors(got, exact, dtype, keeps, function.floor), got, xs
