"""Draws under vmap, derivatives and loops, against JAX's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import poot
from poot import lax, random
from poot import numpy as pnp
from tests.random_runs import Draw, assert_mostly_equal, assert_same_bits


def vmap_of(R: Any) -> Any:
    """The vmap that goes with a module of random numbers."""
    return poot.vmap if R is random else pytest.importorskip("jax").vmap


def grad_of(R: Any, *options: Any) -> Any:
    """The grad that goes with a module of random numbers."""
    grad = poot.grad if R is random else pytest.importorskip("jax").grad
    return grad(*options)


def over_keys(draw: Draw, **axes: Any) -> Draw:
    """A draw for each of a few keys."""
    return lambda R, J, key: vmap_of(R)(lambda key: draw(R, J, key), **axes)(
        R.split(key, 5)
    )


def test_draws_under_vmap() -> None:
    assert_same_bits(
        {
            "bits": over_keys(lambda R, J, key: R.bits(key, (2, 3)), out_axes=-1),
            "old": lambda R, J, key: vmap_of(R)(lambda key: R.uniform(key, (4,)))(
                R.key_data(R.split(key, 3))
            ),
            "split": over_keys(lambda R, J, key: R.key_data(R.split(key, 3))),
            "randint": over_keys(lambda R, J, key: R.randint(key, (4,), 0, 77)),
            "permutation": over_keys(lambda R, J, key: R.permutation(key, 9)),
            "seeds": lambda R, J, key: vmap_of(R)(lambda n: R.key_data(R.key(n)))(
                J.arange(4)
            ),
            "fold_in": lambda R, J, key: R.key_data(
                vmap_of(R)(R.fold_in, in_axes=(None, 0))(key, J.arange(4))
            ),
            "nested": over_keys(over_keys(lambda R, J, key: R.uniform(key, (2,)))),
        }
    )


def test_loops_under_vmap() -> None:
    """Each row is as if it were alone, though all rows loop as long as one does."""
    keys = random.split(random.key(3), 4)
    for draw in (
        lambda key: random.gamma(key, 0.7, (3,)),
        lambda key: random.poisson(key, pnp.array([3.5, 0, 9])),
    ):
        rows = np.asarray(poot.vmap(draw)(keys))
        np.testing.assert_array_equal(rows, [np.asarray(draw(key)) for key in keys])


def test_keys_have_axes_of_their_own() -> None:
    """Axes of a vmap are those of the keys, whose words are no axis."""
    keys = poot.vmap(lambda key: random.split(key, 3), out_axes=-1)(
        random.split(random.key(2), 2)
    )
    assert keys.shape == (3, 2)
    drawn = poot.vmap(lambda row: poot.vmap(random.bits)(row), in_axes=-1)(keys)
    for i in range(2):
        for j in range(3):
            assert int(drawn[i, j]) == int(random.bits(keys[j, i]))


def test_keys_are_carried_by_loops() -> None:
    def step(key: Any, scale: Any) -> Any:
        key, drawn = random.split(key)
        return key, scale * random.uniform(drawn)

    scales = pnp.arange(1.0, 5)
    last, drawn = poot.jit(lambda key: lax.scan(step, key, scales))(random.key(6))
    key = random.key(6)
    for number in range(4):
        key, expected = step(key, scales[number])
        assert float(drawn[number]) == float(expected)
    assert bool(last == key)


def test_shapes_without_numbers() -> None:
    key = poot.eval_shape(random.key, 0)
    shape = poot.eval_shape(lambda key: random.normal(key, (3, 2)), key)
    assert key.shape == () and (shape.shape, shape.dtype) == ((3, 2), np.float32)


def test_op_by_op_and_looking_for_nan() -> None:
    key = random.key(1)
    draws = (lambda: random.gamma(key, 0.3, (500,)), lambda: random.poisson(key, 3.0))
    for draw in draws:
        expected = np.asarray(draw())
        with poot.disable_jit(), poot.config.override(debug_nans=True):
            np.testing.assert_array_equal(draw(), expected)


# --- derivatives ------------------------------------------------------------


def test_derivatives_by_parameters() -> None:
    draws: dict[str, Draw] = {
        "normal": lambda R, J, key: grad_of(
            R, lambda s: J.mean((s * R.normal(key, (900,))) ** 2)
        )(2.0),
        "uniform": lambda R, J, key: grad_of(
            R, lambda s: J.mean(R.uniform(key, (900,), None, 0, s))
        )(2.0),
        "truncated_normal": lambda R, J, key: grad_of(
            R, lambda s: J.mean(R.truncated_normal(key, -1.0, s, (900,)))
        )(1.5),
    }
    assert_mostly_equal(draws, relative=1e-5)


ALPHA = np.array([0.1, 0.5, 0.99, 2.5, 30, 300], np.float32)


def test_derivatives_by_the_shape_of_gamma() -> None:
    assert_mostly_equal(
        {
            "": lambda R, J, key: grad_of(R, lambda a: J.sum(R.gamma(key, a)))(
                J.tile(J.asarray(ALPHA), 50)
            )
        },
        relative=1e-4,
    )


def test_slope_of_gamma_is_that_of_its_quantile() -> None:
    """At a = 1, where the density is exp(-z), by differences of JAX's function."""
    draws = np.array([1e-3, 0.3, 1, 2, 5, 12])
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        step, cdf = 1e-5, jax.scipy.special.gammainc
        rise = np.asarray(cdf(1 + step, draws) - cdf(1 - step, draws)) / (2 * step)
    expected = -rise / np.exp(-draws)
    from_log = random._gamma_slope.log_slope(
        pnp.ones(draws.size), pnp.log(pnp.asarray(draws, "float32"))
    )
    np.testing.assert_allclose(np.asarray(from_log) * draws, expected, rtol=2e-5)
