"""Random programs and compositions of transformations, against JAX.

`--programs` says how many of each; those on the device are a fixed few.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import backends, trap_executors
from tests.numerics import Array, rng_of
from tests.transform_programs import (
    SHAPE,
    STEPS,
    TRANSFORMATIONS,
    Steps,
    agree,
    composed,
    everything,
    first_order,
    program_of,
)

on_device = trap_executors.on_device
oracle_backend = backends.oracle_backend

OPERANDS: list[Array] = [
    rng_of(name).standard_normal(SHAPE).astype(np.float32)
    for name in ("x", "y", "dx", "dy")
]
POINT = np.array([0.6, -0.3, 0.8], np.float32)


@st.composite
def steps(draw: st.DrawFn) -> Steps:
    count = draw(st.integers(1, 5))
    return [
        (
            draw(st.sampled_from(sorted(STEPS))),
            draw(st.integers(0, number + 1)),
            draw(st.integers(0, number + 1)),
        )
        for number in range(count)
    ]


def repeat(count: int, strategy: Any, test: Callable[[Any], None]) -> None:
    """Hypothesis over as many examples as the command line says."""
    decorate: Any = given(strategy)
    configured: Any = settings(
        max_examples=count,
        derandomize=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    configured(decorate(test))()


@pytest.mark.parametrize("name", STEPS)
def test_each_step_agrees_with_jax(name: str, oracle_backend: Any) -> None:
    agree(first_order(program_of([(name, 0, 1)])), *OPERANDS)


def test_random_programs_agree_with_jax(
    request: pytest.FixtureRequest, oracle_backend: Any
) -> None:
    def test(found: Steps) -> None:
        agree(first_order(program_of(found)), *OPERANDS, rtol=1e-3)

    repeat(request.config.getoption("--programs") // 4, steps(), test)


def test_all_derivatives_and_batches_agree_with_jax(oracle_backend: Any) -> None:
    chain = [("mul", 0, 1), ("softmax", 2, 0)]
    agree(everything(program_of(chain)), *OPERANDS, rtol=1e-3)


def test_compositions_agree_with_jax(
    request: pytest.FixtureRequest, oracle_backend: Any
) -> None:
    """Up to four transformations in any order."""

    def test(names: list[str]) -> None:
        agree(composed(names), POINT, rtol=1e-3)

    names = st.lists(st.sampled_from(sorted(TRANSFORMATIONS)), min_size=1, max_size=4)
    repeat(request.config.getoption("--programs") // 2, names, test)


DEEP = [
    ("grad", "vmap", "scan", "cond"),
    ("vmap", "grad", "scan", "checkpoint"),
    ("jvp", "grad", "cond", "scan"),
    ("jacrev", "checkpoint", "vmap", "jit"),
    ("scan", "grad", "jit", "cond"),
    ("cond", "jvp", "vmap", "grad"),
]


@pytest.mark.parametrize("names", DEEP, ids=" of ".join)
def test_compositions_agree_on_the_device(names: Any, on_device: None) -> None:
    agree(composed(names), POINT, jitted=True)


@pytest.mark.parametrize("name", ["matmul", "at add", "scan"])
def test_steps_agree_on_the_device(name: str, on_device: None) -> None:
    agree(first_order(program_of([(name, 0, 1)])), *OPERANDS, jitted=True)
