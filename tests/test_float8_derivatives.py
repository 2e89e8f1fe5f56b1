"""Casts to eight-bit floats and back have derivatives, which are rounded as values are.

Networks that are trained for narrow weights differentiate through such casts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from tests import backends, trap_executors
from tests.transform_programs import Modules, agree

oracle_backend = backends.oracle_backend
on_device = trap_executors.on_device

X = np.array([[0.3, 1.7, -2.2], [0.011, -0.6, 5]], np.float32)
WEIGHTS = np.array([1.01, 2.3, -3.1], np.float32)
ROWS = np.array([0, 0, 1, 0])


def rounded(m: Modules, x: Any) -> Any:
    return x.astype(m.np.float8_e4m3fn)


def wide(m: Modules, x: Any) -> Any:
    return x.astype(m.np.float32)


# Functions of floats by way of eight-bit ones.
THROUGH: dict[str, Callable[[Modules, Any], Any]] = {
    "cast": rounded,
    "e5m2": lambda m, x: x.astype(m.np.float8_e5m2),
    "half": lambda m, x: rounded(m, m.np.sin(x).astype(m.np.float16)),
    "moved": lambda m, x: m.np.concatenate([rounded(m, x).T, rounded(m, x).T[::-1]])[
        1:, ::-1
    ].reshape(2, 5),
    "rows": lambda m, x: rounded(m, x)[ROWS],
    "spread": lambda m, x: m.np.broadcast_to(rounded(m, x)[:, :1], (2, 3)),
    "select": lambda m, x: m.np.where(x > 0.2, rounded(m, x), rounded(m, x * x)),
    "window": lambda m, x: m.lax.dynamic_slice(
        rounded(m, x), (m.np.argmax(x[0]), 0), (1, 2)
    ),
    "used twice": lambda m, x: [rounded(m, x), (y := rounded(m, x * 2)), y.T],
    "checkpoint": lambda m, x: m.top.checkpoint(lambda x: rounded(m, m.np.sin(x)))(x),
    "cond": lambda m, x: m.lax.cond(
        x[0, 0] > 0, lambda y: y, lambda y: y[::-1], rounded(m, x)
    ),
    "scan": lambda m, x: m.lax.scan(
        lambda c, w: (rounded(m, wide(m, c) * w), c),
        rounded(m, x[0]),
        m.np.asarray(WEIGHTS),
    ),
}


def derived(m: Modules, through: Any, x: Any) -> Any:
    def function(x: Any) -> Any:
        return m.top.tree.map(lambda y: wide(m, y), through(m, x))

    def loss(x: Any) -> Any:
        parts = m.top.tree.leaves(function(x))
        return sum(m.np.sum(m.np.sin(part) * 1.3) for part in parts)

    return [
        m.top.grad(loss)(x),
        m.top.jvp(function, (x,), (x * 0.7,)),
        m.top.vmap(m.top.grad(loss))(m.np.stack([x, 2 * x])),
    ]


@pytest.mark.parametrize("name", THROUGH)
def test_derivatives_are_jaxs(name: str, oracle_backend: Any) -> None:
    agree(lambda m, x: derived(m, THROUGH[name], x), X)


@pytest.mark.parametrize("name", ["cast", "rows", "scan"])
def test_derivatives_on_the_device(name: str, on_device: None) -> None:
    agree(lambda m, x: derived(m, THROUGH[name], x), X, jitted=True)


def test_arguments_and_results_may_be_narrow(oracle_backend: Any) -> None:
    narrow = jnp.asarray(X).astype(jnp.float8_e4m3fn)
    value, moved = poot.jvp(lambda x: x.astype(jnp.float8_e4m3fn), (X,), (X,))
    assert value.dtype == moved.dtype == jnp.float8_e4m3fn
    _, pull = poot.vjp(lambda x: x.astype(np.float32) * 2, narrow)
    (found,) = pull(X)
    assert found.dtype == jnp.float8_e4m3fn
    doubled = (2 * X).astype(jnp.float8_e4m3fn.dtype)
    np.testing.assert_array_equal(np.asarray(found), doubled)
    slope = poot.grad(lambda x: jnp.sum(x.astype(np.float32) ** 2))(narrow)
    assert slope.dtype == jnp.float8_e4m3fn


def test_scales_have_no_derivatives(oracle_backend: Any) -> None:
    """Powers of 2 alone have neither a sign nor a 0."""
    value, moved = poot.jvp(lambda x: x.astype(jnp.float8_e8m0fnu), (X,), (X,))
    assert value.dtype == jnp.float8_e8m0fnu and moved.dtype == poot.float0
