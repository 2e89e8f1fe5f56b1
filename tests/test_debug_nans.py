"""`config.debug_nans` names the operation that gave a NaN first, and its line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import lax
from poot.core.errors import NanError
from tests.backends import each_backend  # noqa: F401


@pytest.fixture(autouse=True)
def looking(each_backend: Any) -> Iterator[None]:  # noqa: F811
    with poot.config.override(debug_nans=True):
        yield


def normalized(x: Any) -> Any:
    y = x - jnp.max(x)
    z = jnp.log(y)  # the line of the first NaN
    return z * 2


def line_of(text: str) -> int:
    with open(__file__) as file:
        return next(n for n, line in enumerate(file, 1) if text in line)


FIRST = line_of("# the line of the first NaN")


@pytest.mark.parametrize("jitted", [False, True])
def test_the_first_nan_is_named(jitted: bool) -> None:
    function = poot.jit(normalized) if jitted else normalized
    with pytest.raises(
        FloatingPointError, match=rf"`log` gave it \(f32\[3\]\) at .*:{FIRST} "
    ):
        function(jnp.array([1.0, -2.0, 3.0]))


def test_numbers_pass() -> None:
    jitted = poot.jit(lambda x, y: jnp.where(x > 0, x / y, jnp.inf))
    found = jitted(jnp.array([1.0, -1.0]), 0.0)
    np.testing.assert_array_equal(found, [np.inf, np.inf])


def test_a_number_in_a_slot_and_a_donated_array() -> None:
    jitted = poot.jit(lambda x, y: x * 0 + jnp.sqrt(y), donate_argnums=0)
    x: Any = jnp.ones(3)
    np.testing.assert_array_equal(jitted(x, 4.0), [2, 2, 2])
    assert x.is_deleted()
    with pytest.raises(NanError, match="`sqrt` gave it"):
        jitted(jnp.ones(3), -1.0)


@pytest.mark.parametrize("jitted", [False, True])
def test_a_nan_in_a_scan_names_what_is_in_the_body(jitted: bool) -> None:
    def f(x: Any) -> Any:
        return lax.scan(lambda c, x: (c - x, jnp.log(c)), x, jnp.ones(4))

    with pytest.raises(NanError, match="`log` gave it") as caught:
        (poot.jit(f) if jitted else f)(jnp.float32(2))
    assert any("in iteration 3 of the loop" in note for note in caught.value.__notes__)


def test_a_nan_in_a_while_loop_and_a_branch() -> None:
    def f(x: Any) -> Any:
        def body(carry: Any) -> Any:
            i, c = carry
            return i + 1, lax.cond(i == 2, jnp.arccosh, lambda c: c, c)

        return lax.while_loop(lambda carry: carry[0] < 5, body, (0, x))

    with pytest.raises(NanError, match="`acosh` gave it") as caught:
        poot.jit(f)(jnp.float32(0))
    assert any("in iteration 2 of the loop" in note for note in caught.value.__notes__)


def test_derivatives_are_looked_at_too() -> None:
    def f(x: Any) -> Any:
        return jnp.where(x < 1, x, jnp.sqrt(x - 1)) * x

    with pytest.raises(NanError, match="`sqrt` gave it"):
        poot.grad(f)(jnp.float32(0))


def test_nobody_looks_without_the_setting() -> None:
    with poot.config.override(debug_nans=False):
        assert np.isnan(poot.jit(normalized)(jnp.array([1.0, -2.0]))).any()
