"""Distributions: JAX's draws on the same keys, within stated distances."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from poot import numpy as pnp
from poot import random
from poot.core.errors import ArgumentError, DTypeError, ShapeError
from tests.random_runs import (
    Draw,
    assert_mostly_equal,
    assert_near,
    assert_same_bits,
    dispatches,
)

SHAPE = (3, 500)

# Units in the last place of max(|x|, 1). JAX's inverse of erf is up to 85 off in the
# tails; what follows from it is as far.
NEAR: dict[str, tuple[Draw, float]] = {
    "normal": (lambda R, J, key: R.normal(key, SHAPE), 90),
    "truncated_normal": (
        lambda R, J, key: R.truncated_normal(key, -1, J.linspace(0.5, 3, 500), SHAPE),
        40,
    ),
    "lognormal": (lambda R, J, key: R.lognormal(key, 0.5, SHAPE), 150),
    "maxwell": (lambda R, J, key: R.maxwell(key, SHAPE), 90),
    "double_sided_maxwell": (
        lambda R, J, key: R.double_sided_maxwell(key, J.arange(3.0), 2.0, (500,)),
        180,
    ),
    "gumbel": (lambda R, J, key: R.gumbel(key, SHAPE), 2),
    "gumbel high": (lambda R, J, key: R.gumbel(key, SHAPE, mode="high"), 2),
    "exponential": (lambda R, J, key: R.exponential(key, SHAPE), 2),
    "laplace": (lambda R, J, key: R.laplace(key, SHAPE), 2),
    "logistic": (lambda R, J, key: R.logistic(key, SHAPE), 2),
    "cauchy": (lambda R, J, key: R.cauchy(key, SHAPE), 3),
    "pareto": (lambda R, J, key: R.pareto(key, J.array([[1.5], [3], [9]]), SHAPE), 9),
    "rayleigh": (lambda R, J, key: R.rayleigh(key, 2.5, SHAPE), 3),
    "weibull_min": (lambda R, J, key: R.weibull_min(key, 2.5, 1.7, SHAPE), 5),
    "triangular": (lambda R, J, key: R.triangular(key, -1, 0.5, 3, SHAPE), 2),
    "wald": (lambda R, J, key: R.wald(key, J.array([[0.5], [1], [4]]), SHAPE), 300),
}


def test_near_jax() -> None:
    draws = {name: draw for name, (draw, _) in NEAR.items()}
    assert_near(draws, {name: ulps for name, (_, ulps) in NEAR.items()})


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats(dtype: str) -> None:
    names = ("normal", "exponential", "gumbel", "laplace", "cauchy")
    draws: dict[str, Draw] = {
        name: lambda R, J, key, name=name: getattr(R, name)(key, (900,), dtype)
        for name in names
    }
    assert_near(draws, dict.fromkeys(names, 5))


def test_normal_is_near_the_truth() -> None:
    """Within 3 units in the last place of the quantile of the uniform float."""
    jax = pytest.importorskip("jax")
    key = random.key(11)
    low = np.nextafter(np.float32(-1), np.float32(0))
    uniform = np.asarray(random.uniform(key, (20_000,), minval=low), np.float64)
    with jax.enable_x64(True):
        exact = np.asarray(jax.scipy.special.erfinv(uniform)) * np.sqrt(2)
    found = np.asarray(random.normal(key, (20_000,)), np.float64)
    unit = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    assert np.max(np.abs(found - exact) / unit) <= 3


def test_moments() -> None:
    drawn = np.asarray(random.normal(random.key(0), (200_000,)), np.float64)
    assert abs(drawn.mean()) < 0.01 and abs(drawn.var() - 1) < 0.01


def test_truncated_normal_stays_within() -> None:
    for low, high in ((-1.0, 1.0), (9.0, 10.0)):
        drawn = np.asarray(random.truncated_normal(random.key(1), low, high, (999,)))
        assert (low < drawn).all() and (drawn < high).all()


# --- categories and counts --------------------------------------------------

LOGITS = np.log((np.arange(1, 31, dtype=np.float32) ** 2) % 17 + 1).reshape(5, 6)


@pytest.mark.parametrize("axis", [0, -1])
def test_categorical(axis: int) -> None:
    front, batch = (4, 2), LOGITS.shape[1 + axis]
    draws: dict[str, Draw] = {
        mode: lambda R, J, key, mode=mode: R.categorical(
            key, J.asarray(LOGITS), axis, (*front, batch), mode=mode
        )
        for mode in ("low", "high")
    }
    draws["default"] = lambda R, J, key: R.categorical(key, J.asarray(LOGITS), axis)
    draws["distinct"] = lambda R, J, key: R.categorical(
        key, J.asarray(LOGITS), axis, (2, 2, batch), replace=False
    )
    assert_same_bits(draws)


def test_counts_and_edges() -> None:
    assert_same_bits(
        {
            "geometric": lambda R, J, key: R.geometric(key, 0.3, (999,)),
            "geometric i8": lambda R, J, key: R.geometric(
                key, J.linspace(0.1, 1, 90), dtype="int8"
            ),
            "no range": lambda R, J, key: R.truncated_normal(key, 2.0, 1.0, (9,)),
        }
    )


MANY = 100_000


def test_most_categories_are_jaxs() -> None:
    """Logarithms differ in their last bits, and decide between near noises."""
    assert_mostly_equal(
        {
            "": lambda R, J, key: R.categorical(
                key, J.asarray(LOGITS.ravel()), shape=(MANY,)
            )
        }
    )


def test_most_counts_are_jaxs() -> None:
    means = np.array([0.5, 3.5, 9.99, 10, 42, 0, -1, np.nan], np.float32)
    assert_mostly_equal(
        {"": lambda R, J, key: R.poisson(key, J.tile(J.asarray(means), MANY // 8))}
    )


def test_most_large_counts_are_jaxs() -> None:
    """JAX's, where it fuses no operations; else it decides otherwise itself."""
    assert_mostly_equal(
        {
            str(mean): lambda R, J, key, mean=mean: R.poisson(key, mean, (MANY,))
            for mean in (10.0, 100.0, 300.0, 1000.0, 5000.0)
        }
    )
    very_large: dict[str, Draw] = {
        str(mean): lambda R, J, key, mean=mean: R.poisson(key, mean, (MANY,))
        for mean in (1e4, 1e5)
    }
    assert_mostly_equal(very_large, least=0.9995)


# --- gamma and what follows from it -----------------------------------------


def test_gamma_is_jaxs() -> None:
    """Equal but for roundings: JAX's normal floats are 85 ulp off in the tails."""
    alpha = np.array([0.1, 0.99, 2.5, 300], np.float32)
    assert_mostly_equal(
        {
            "gamma": lambda R, J, key: R.gamma(
                key, J.tile(J.asarray(alpha), MANY // 4)
            ),
            "beta": lambda R, J, key: R.beta(key, 0.5, 2.0, (MANY,)),
        },
        relative=1e-4,
    )


def test_what_follows_from_gamma() -> None:
    """Which key draws what, as JAX has it."""
    key, few = random.key(8), (30,)
    first, second = random.split(key)
    shares = random.loggamma(key, 2.5, (30, 4))
    shares = pnp.exp(shares - shares.max(1, keepdims=True))
    rows = random.dirichlet(key, pnp.full(4, 2.5), few)
    np.testing.assert_array_equal(rows, shares / shares.sum(1, keepdims=True))
    squares = random.chisquare(key, 3, few)
    logs = random.loggamma(key, 1.5, few)
    np.testing.assert_array_equal(squares, pnp.exp(logs) * 2)
    above = random.chisquare(second, 3, few) / 3
    below = random.chisquare(first, pnp.arange(1.0, 31)) / pnp.arange(1.0, 31)
    np.testing.assert_array_equal(random.f(key, 3, pnp.arange(1.0, 31)), above / below)
    root = pnp.sqrt(1.25 / random.gamma(second, 1.25, few))
    drawn = random.t(key, 2.5, few)
    np.testing.assert_array_equal(drawn, random.normal(first, few) * root)
    size = random.gamma(first, 0.5, (30, 4)) ** 0.5
    points = random.generalized_normal(key, 2, (30, 4))
    signs = random.rademacher(second, (30, 4), "float32")
    np.testing.assert_array_equal(points, signs * size)
    points = random.generalized_normal(first, 2, (30, 4))
    radius = pnp.sqrt((points**2).sum(1) + random.exponential(second, few))
    inside = np.asarray(random.ball(key, 4, shape=few))
    np.testing.assert_allclose(inside, points / radius[:, None], 1e-6)


def test_edges_of_gamma() -> None:
    key = random.key(0)
    edges = pnp.array([0, np.inf, np.nan, -1])
    drawn = np.asarray(random.gamma(key, edges))
    np.testing.assert_array_equal(drawn, [0, np.inf, np.nan, np.nan])
    drawn = np.asarray(random.loggamma(key, edges))
    np.testing.assert_array_equal(drawn, [-np.inf, np.inf, np.nan, np.nan])
    assert random.gamma(key, 1.0, (0, 2)).shape == (0, 2)
    assert random.beta(key, 1.0, 2.0, (5,), "bfloat16").dtype == pnp.bfloat16


def test_counts_of_narrow_dtypes() -> None:
    drawn = random.poisson(random.key(2), pnp.array([5.0, 1e9, 0]), dtype="int16")
    assert drawn.dtype == np.int16 and drawn.tolist()[1:] == [2**15 - 1, 0]


def test_few_dispatches() -> None:
    for name in ("normal", "exponential", "gumbel", "laplace", "logistic", "cauchy"):
        assert dispatches(lambda R, J, key, n=name: getattr(R, n)(key, (50, 60))) == 1
    assert dispatches(lambda R, J, key: R.maxwell(key, (50,))) == 1
    assert dispatches(lambda R, J, key: R.truncated_normal(key, -1, 1, (500,))) <= 3


# --- what is refused --------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda key: random.normal(key, (2,), int), DTypeError, "takes a float dtype"),
        (lambda key: random.gumbel(key, mode="x"), ArgumentError, "'low', 'high'"),
        (
            lambda key: random.truncated_normal(key, pnp.zeros(3), 1.0, (2,)),
            ShapeError,
            r"\(3,\)",
        ),
        (
            lambda key: random.rayleigh(key, pnp.ones(3), (2, 1)),
            ShapeError,
            r"of shape \(3,\) cannot be repeated to the shape \(2, 1\)",
        ),
        (
            lambda key: random.categorical(key, pnp.arange(3)),
            DTypeError,
            "dtype is i32",
        ),
        (lambda key: random.categorical(key, 0.5), ShapeError, "axis -1"),
        (
            lambda key: random.categorical(key, pnp.zeros((3, 4)), shape=(2,)),
            ShapeError,
            r"\(3,\)",
        ),
        (
            lambda key: random.categorical(
                key, pnp.zeros((3, 4)), shape=(5, 3), replace=False
            ),
            ArgumentError,
            "5 draws without replacement from 4 categories",
        ),
        (lambda key: random.geometric(key, 0.5, (), float), DTypeError, "integer"),
        (lambda key: random.geometric(key, 1), DTypeError, "p is i32"),
        (lambda key: random.gamma(key, 1, (), int), DTypeError, "float dtype"),
        (lambda key: random.gamma(key, pnp.ones(3), (2,)), ShapeError, "(3,)"),
        (lambda key: random.poisson(key, 1, (), float), DTypeError, "integer"),
        (lambda key: random.dirichlet(key, 1.0), ShapeError, "alpha is a scalar"),
        (
            lambda key: random.dirichlet(key, pnp.ones((2, 3)), (3,)),
            ShapeError,
            r"of shape \(2,\) cannot be repeated",
        ),
    ],
)
def test_refusals(call: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        call(random.key(0))
