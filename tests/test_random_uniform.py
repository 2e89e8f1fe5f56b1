"""Bits, uniform numbers, permutations and choices: JAX's, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import poot
from poot import numpy as pnp
from poot import random
from poot.core.errors import (
    ArgumentError,
    ConcretizationError,
    DTypeError,
    ShapeError,
)
from tests.backends import each_backend
from tests.random_runs import (
    Draw,
    assert_mostly_equal,
    assert_same_bits,
    dispatches,
)

__all__ = ["each_backend"]

WEIGHTS = (np.arange(1, 31, dtype=np.float32) ** 2 % 17 + 1) / 300


def test_bits_and_uniform() -> None:
    draws: dict[str, Draw] = {
        "scalar": lambda R, J, key: R.uniform(key),
        "none": lambda R, J, key: R.bits(key, (2, 0)),
    }
    for dtype in ("uint8", "uint16", "uint32"):
        draws[dtype] = lambda R, J, key, dtype=dtype: R.bits(key, (3, 1, 5), dtype)
    for dtype in ("float16", "bfloat16", "float32"):
        draws[dtype] = lambda R, J, key, dtype=dtype: R.uniform(key, (31, 33), dtype)
    assert_same_bits(draws)


def test_uniform_between_bounds() -> None:
    """JAX's numbers where its compiler does not fuse a product and a sum into one."""
    assert_same_bits(
        {
            "numbers": lambda R, J, key: R.uniform(key, (99,), None, -3, 5.7),
            "arrays": lambda R, J, key: R.uniform(
                key, (5, 9), minval=-3, maxval=J.array([[2.5]] * 5)
            ),
        }
    )


def test_on_both_backends(each_backend: Any) -> None:
    assert_same_bits(
        {
            "uniform": lambda R, J, key: R.uniform(key, (3, 5)),
            "randint": lambda R, J, key: R.randint(
                key, (3, 5), -7, J.array([1, 2, 3, 90, -9])
            ),
            "permutation": lambda R, J, key: R.permutation(key, 9),
        }
    )


RANGES = ((3, 77), (0, 2**16 - 7), (7, 3), (-(2**31), 2**31 - 1))


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32"])
def test_randint(dtype: str) -> None:
    draws: dict[str, Draw] = {
        f"{low} to {high}": lambda R, J, key, low=low, high=high: R.randint(
            key, (2, 33), low, high, dtype
        )
        for low, high in RANGES
    }
    draws["arrays"] = lambda R, J, key: R.randint(
        key,
        (4, 5),
        J.array([-(2**31), 0, 9, 5, -1]),
        J.array([[2**31 - 1], [7], [300], [2**16]]),
        dtype,
    )
    assert_same_bits(draws)


def test_randint_of_the_whole_range() -> None:
    """Beyond the dtype the upper bound includes its last number."""
    low, high = -(2**31), np.uint32(2**32 - 1)
    assert_same_bits(
        {
            "all of i32": lambda R, J, key: R.randint(
                key, (9,), J.int32(low), J.uint32(high), "int32"
            ),
            "u32": lambda R, J, key: R.randint(key, (9,), -5, 2**31 - 1, "uint32"),
        }
    )
    key = random.key(4)
    drawn = random.randint(key, (9,), 0, 2**32, "uint32")
    words = random.bits(random.split(key)[1], (9,), "uint32")
    np.testing.assert_array_equal(drawn, words)


def test_wide_dtypes() -> None:
    jax = pytest.importorskip("jax")
    draws: dict[str, Draw] = {
        "bits": lambda R, J, key: R.bits(key, (3, 7)),
        "narrow": lambda R, J, key: R.bits(key, (3, 7), "uint8"),
        "uniform": lambda R, J, key: R.uniform(key, (3, 7)),
        "permutation": lambda R, J, key: R.permutation(key, 50),
        "choice": lambda R, J, key: R.choice(key, 50, (9,)),
    }
    for dtype in ("int64", "uint64"):
        draws[dtype] = lambda R, J, key, dtype=dtype: R.randint(
            key, (9,), -(2**63), 2**62 + 5, dtype
        )
        draws[f"array {dtype}"] = lambda R, J, key, dtype=dtype: R.randint(
            key, (2, 3), J.array([-(2**63), 0, 7]), 2**63 - 1, dtype
        )
    with jax.enable_x64(True), poot.config.override(enable_x64=True):
        assert_same_bits(draws)


def test_bounds_of_narrow_dtypes_are_clipped_in_64_bits() -> None:
    """JAX cuts them to 32 bits first, which makes 0 of ±2**62."""
    with poot.config.override(enable_x64=True):
        low, high = (poot.device_put(np.int64(bound)) for bound in (-(2**62), 2**62))
        drawn = random.randint(random.key(0), (9,), low, high, "int8")
        full = random.randint(random.key(0), (9,), -128, 128, "int8")
        np.testing.assert_array_equal(drawn, full)


def test_bernoulli_and_rademacher() -> None:
    assert_same_bits(
        {
            "half": lambda R, J, key: R.bernoulli(key),
            "some": lambda R, J, key: R.bernoulli(key, 0.3, (3, 40)),
            "high": lambda R, J, key: R.bernoulli(key, 0.3, (90,), "high"),
            "array": lambda R, J, key: R.bernoulli(key, J.linspace(0, 1, 90)),
            "narrow": lambda R, J, key: R.bernoulli(key, J.ones(90, "float16") / 3),
            "sign": lambda R, J, key: R.rademacher(key, (90,)),
            "i8": lambda R, J, key: R.rademacher(key, (9,), "int8"),
            "f16": lambda R, J, key: R.rademacher(key, (9,), "float16"),
        }
    )


# --- permutations and choices -----------------------------------------------


def test_permutation() -> None:
    draws: dict[str, Draw] = {
        f"of {size}": lambda R, J, key, size=size: R.permutation(key, size)
        for size in (0, 1, 3000)
    }
    for axis, own in ((0, True), (1, False), (-1, True)):
        draws[f"along {axis}, {own}"] = lambda R, J, key, axis=axis, own=own: (
            R.permutation(key, J.arange(60.0).reshape(3, 4, 5), axis, own)
        )
    assert_same_bits(draws)


def test_choice() -> None:
    draws: dict[str, Draw] = {}
    for replace in (False, True):
        for p in (None, WEIGHTS):
            name = f"{replace} {p is None}"
            draws[name] = lambda R, J, key, replace=replace, p=p: R.choice(
                key, J.arange(120).reshape(2, 30, 2), (2, 3), replace, p, axis=1
            )
    draws["numbers"] = lambda R, J, key: R.choice(key, 30, (2, 5))
    draws["distinct"] = lambda R, J, key: R.choice(
        key, 30, (9,), False, WEIGHTS, mode="high"
    )
    assert_same_bits(draws)


@pytest.mark.parametrize("p", [None, WEIGHTS])
def test_choice_of_none(p: Any) -> None:
    """The other axes stay; JAX drops them where nothing is drawn."""
    for replace in (False, True):
        drawn = random.choice(random.key(0), 30, (0, 2), replace, p)
        assert (drawn.shape, drawn.dtype) == ((0, 2), np.int32)
        rows = random.choice(random.key(0), pnp.ones((30, 3)), (2, 0), replace, p)
        assert (rows.shape, rows.dtype) == ((2, 0, 3), np.float32)


def test_choices_by_weight_are_jaxs() -> None:
    p = np.tile(WEIGHTS, 10) / 10
    assert_mostly_equal(
        {"": lambda R, J, key: R.choice(key, 300, (100_000,), True, J.asarray(p))}
    )


def test_few_dispatches() -> None:
    assert dispatches(lambda R, J, key: R.bits(key, (100, 100), "uint8")) == 1
    assert dispatches(lambda R, J, key: J.sum(R.uniform(key, (9, 99)), 1)) == 1
    assert dispatches(lambda R, J, key: R.bernoulli(key, 0.3, (1000,))) == 1
    assert dispatches(lambda R, J, key: R.randint(key, (1000,), 0, 90)) <= 2
    assert dispatches(lambda R, J, key: R.uniform(key, (100,)), random.key(0)) == 1


# --- what is refused --------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda key: random.bits(key, (), "int32"), DTypeError, "dtype is i32"),
        (lambda key: random.bits(key, (2, -1)), ShapeError, "negative sizes"),
        (lambda key: random.uniform(key, (), int), DTypeError, "takes a float dtype"),
        (
            lambda key: random.uniform(key, (3,), minval=pnp.zeros(2)),
            ShapeError,
            r"of shape \(2,\) cannot",
        ),
        (
            lambda key: random.uniform(key, (3,), maxval=pnp.zeros((2, 3))),
            ShapeError,
            r"\(2, 3\) cannot be repeated to the shape \(3,\)",
        ),
        (
            lambda key: random.randint(key, (), 0, 3, float),
            DTypeError,
            "integer dtype",
        ),
        (lambda key: random.bernoulli(key, 1), DTypeError, "p is i32, takes a float"),
        (lambda key: random.bernoulli(key, mode="x"), ArgumentError, "'low', 'high'"),
        (lambda key: random.rademacher(key, (), bool), DTypeError, "dtype is bool"),
        (lambda key: random.permutation(key, 1.5), ArgumentError, "f32 scalar 1.5"),
        (lambda key: random.permutation(key, pnp.ones(3), 1), ShapeError, "axis 1"),
        (lambda key: random.choice(key, 0), ArgumentError, "0 elements, from which 1"),
        (
            lambda key: random.choice(key, 3, (2, 2), False),
            ArgumentError,
            "4 elements to choose from 3",
        ),
        (
            lambda key: random.choice(key, 3, p=pnp.ones(2)),
            ShapeError,
            r"p has shape \(2,\), takes \(3,\)",
        ),
        (lambda key: random.choice(key, 2, p=pnp.arange(2)), DTypeError, "p is i32"),
    ],
)
def test_refusals(call: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        call(random.key(0))


def test_sizes_are_known_while_tracing() -> None:
    with pytest.raises(ConcretizationError, match="size"):
        poot.jit(lambda n: random.permutation(random.key(0), n))(3)
