"""Initializers against jax.nn.initializers, with the same keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.nn
import ml_dtypes
import numpy as np
import pytest

import poot
import poot.nn
from poot.core.errors import ArgumentError, ShapeError
from tests import trap_executors
from tests.nn_against_jax import jax_jit
from tests.numerics import assert_close

on_device = trap_executors.on_device
pytestmark = pytest.mark.usefixtures("on_device")

SEED = 7


# Uniform numbers are the same. JAX's erf_inv is a dozen ulps off in the tails.
BY_ERF_INV = 24.0
FANS = ("glorot", "lecun", "he")
SHAPE = (6, 5, 2, 8)
DRAWN: dict[str, tuple[Any, ...]] = {
    "uniform": (0.3,),
    "normal": (3.0,),
    "truncated_normal": (0.5, None, -1.0, 3.0),
}
SCALED: dict[str, tuple[Any, ...]] = {
    **{f"{name}_uniform": () for name in FANS},
    **{f"{name}_normal": (1, (0, 3), 2) for name in FANS},
    "variance_scaling by fan_in": (1.5, "fan_in", "normal"),
    "variance_scaling by fan_out": (1.5, "fan_out", "truncated_normal", (0, 2)),
    "variance_scaling by fan_geo_avg, uniform": (1.5, "fan_geo_avg", "uniform"),
}


def made(initializers: Any, cases: dict[str, Any], dtype: Any) -> Callable[[Any], Any]:
    """What all the initializers make of a key, in one function."""
    inits = [
        getattr(initializers, name.partition(" ")[0])(*args)
        for name, args in cases.items()
    ]
    return lambda key: [init(key, SHAPE, dtype) for init in inits]


def test_constants() -> None:
    key = poot.random.key(SEED)
    for name, value in (("zeros", 0), ("ones", 1)):
        made = getattr(poot.nn.initializers, name)
        assert_close(made(key, (2, 3)), np.full((2, 3), value, np.float32), 0)
        halves = np.full((3,), value, np.float16)
        assert_close(made(key, (3,), np.float16), halves, 0)
    row = np.float32([1, 2, 3])
    found = poot.nn.initializers.constant(row)(key, (2, 3))
    assert_close(found, np.stack([row, row]), 0)


@pytest.mark.parametrize(
    ("cases", "dtype"),
    [(DRAWN | SCALED, np.float32), (DRAWN, ml_dtypes.bfloat16)],
    ids=["f32", "bf16"],
)
def test_numbers_are_jaxs(cases: dict[str, Any], dtype: Any) -> None:
    found = poot.jit(made(poot.nn.initializers, cases, dtype))(poot.random.key(SEED))
    wanted = jax_jit(made(jax.nn.initializers, cases, dtype))(jax.random.key(SEED))
    for name, one, other in zip(cases, found, wanted, strict=True):
        right = np.asarray(other)
        ulps = 2 if "uniform" in name else BY_ERF_INV
        assert_close(one, right, ulps, name, floor=float(np.std(right)))


@pytest.mark.parametrize(
    ("name", "shape", "column_axis"),
    [
        ("orthogonal", (3, 4, 2), 1),
        ("delta_orthogonal", (2, 3, 4, 5), -1),
    ],
)
def test_orthogonal(name: str, shape: tuple[int, ...], column_axis: int) -> None:
    """JAX's numbers; its decomposition is another one, so that digits are lost."""
    init = getattr(poot.nn.initializers, name)(2.0, column_axis)
    right = getattr(jax.nn.initializers, name)(2.0, column_axis)
    found = np.asarray(poot.jit(lambda key: init(key, shape))(poot.random.key(SEED)))
    wanted = jax_jit(lambda key: right(key, shape))(jax.random.key(SEED))
    assert found.dtype == np.float32 and found.shape == shape
    np.testing.assert_allclose(found, np.asarray(wanted), atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=["f32", "f16"])
def test_orthogonal_columns(dtype: Any) -> None:
    init = poot.nn.initializers.orthogonal()
    found = init(poot.random.key(SEED), (40, 40), dtype)
    assert found.dtype == dtype
    wide = np.asarray(found).astype(np.float64)
    error = np.abs(wide.T @ wide - np.eye(40)).max()
    assert error < 4 * float(np.finfo(dtype).eps)
    assert init(poot.random.key(SEED), (0, 3)).shape == (0, 3)


def test_other_names() -> None:
    initializers = poot.nn.initializers
    assert initializers.xavier_uniform is initializers.glorot_uniform
    assert initializers.xavier_normal is initializers.glorot_normal
    assert initializers.kaiming_uniform is initializers.he_uniform
    assert initializers.kaiming_normal is initializers.he_normal


def test_jitted_and_by_default_dtypes() -> None:
    init = poot.nn.initializers.lecun_normal(dtype=np.float16)
    key = poot.random.key(SEED)
    found = poot.jit(lambda key: init(key, (4, 5)))(key)
    assert_close(found, np.asarray(init(key, (4, 5))), 0)
    assert found.dtype == np.float16
    assert init(key, (4, 5), np.float32).dtype == np.float32
    assert poot.nn.initializers.he_uniform()(key, (4, 5)).dtype == np.float32


def test_refusals() -> None:
    key = poot.random.key(SEED)
    with pytest.raises(ArgumentError, match="mode is 'fan'"):
        poot.nn.initializers.variance_scaling(1.0, "fan", "normal")
    with pytest.raises(ArgumentError, match="distribution is 'gamma'"):
        poot.nn.initializers.variance_scaling(1.0, "fan_in", "gamma")
    with pytest.raises(ShapeError, match="no axis -2"):
        poot.nn.initializers.he_normal()(key, (4,))
    with pytest.raises(ShapeError, match="takes two axes at least"):
        poot.nn.initializers.orthogonal()(key, (4,))
    with pytest.raises(ShapeError, match="as many outputs or more"):
        poot.nn.initializers.delta_orthogonal()(key, (3, 4, 2))
    with pytest.raises(ShapeError, match="no inputs or outputs"):
        poot.nn.initializers.he_normal()(key, (4, 0))
