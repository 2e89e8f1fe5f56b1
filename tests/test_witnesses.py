"""Run-time checks in programs whose equations were made composites of."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import lax, slots
from poot.core.errors import CheckError
from poot.core.ops.composite import Composite
from tests.backends import each_backend as each_backend

RNG = np.random.default_rng(0)
X = RNG.standard_normal((8, 16), dtype=np.float32)
W = RNG.standard_normal((16, 16), dtype=np.float32) / 4
LIMIT = 100.0
BAD = X * 1000
MESSAGE = "too large"


def checked(value: Any) -> Any:
    """The value, which must be below the limit."""
    poot.check(abs(value) < LIMIT, MESSAGE)
    return value


# --- a check on what stands inside of a composite ---------------------------


def pointwise(x: Any) -> Any:
    return jnp.tanh(checked(x * 2 + 1)) * 3 - 1


def rows(x: Any) -> Any:
    return poot.nn.softmax(checked(x * 2), axis=-1)


def reduced(x: Any) -> Any:
    return x / checked(jnp.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-6))


def epilogue(x: Any) -> Any:
    return poot.nn.relu(checked(x @ W + X[0]))


def gated(x: Any) -> Any:
    return poot.nn.silu(checked(x @ W)) * (x @ W.T)


def prologue(x: Any) -> Any:
    scale = checked((x * x).mean(axis=-1, keepdims=True) + 1e-6)
    return (x / jnp.sqrt(scale)) @ W


def attention(x: Any) -> Any:
    q, k, v = x @ W, x @ W.T, x
    scores = checked(q @ k.T / 4)
    masked = jnp.where(np.tri(8, dtype=bool), scores, -jnp.inf)
    return poot.nn.softmax(masked, axis=-1) @ v


def attention_of_checked_rows(x: Any) -> Any:
    x = checked(x)
    weights = poot.nn.softmax((x @ W) @ (x @ W.T).T / 4, axis=-1)
    return weights @ x


def rotated(x: Any) -> Any:
    angle = np.linspace(0, 1, 8, dtype=np.float32)
    first, second = x[:, :8], x[:, 8:]
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    turned = [first * cos - second * sin, first * sin + second * cos]
    return checked(jnp.concatenate(turned, axis=-1)) + 1


def gathered(x: Any) -> Any:
    return checked(x[np.array([3, 1, 2])] * 2).sum(axis=-1)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    function.__name__: function
    for function in (
        pointwise,
        rows,
        reduced,
        epilogue,
        gated,
        prologue,
        attention,
        attention_of_checked_rows,
        rotated,
        gathered,
    )
}
LINE = inspect.getsourcelines(checked)[1] + 2


def fails(value: Any) -> None:
    """The first blocking use raises, and names the line of the check."""
    with pytest.raises(CheckError, match=MESSAGE) as caught:
        value.block_until_ready()
    assert f"test_witnesses.py:{LINE} (checked)" in str(caught.value)


def agrees(result: Any, right: Any) -> None:
    np.testing.assert_allclose(result, right, rtol=1e-4, atol=1e-5)


def composites(f: Any, *args: Any) -> list[str]:
    graph = f.lower(*args).graph
    return [
        type(eqn.op).__name__ for eqn in graph.eqns if isinstance(eqn.op, Composite)
    ]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_check_in_a_composite(each_backend: Any, name: str) -> None:
    function = FUNCTIONS[name]
    f = poot.jit(function)
    right = np.asarray(function(poot.device_put(X)))
    assert composites(f, X), "nothing was fused"
    bad, good = f(BAD), f(X)
    # Nobody waits for a call that failed until somebody looks.
    agrees(good, right)
    fails(bad)
    fails(bad)
    # What was made of it is worth nothing, by whatever function.
    fails(bad + 1)
    fails(poot.jit(lambda y: poot.nn.softmax(y) @ y.T)(bad))
    agrees(f(X), right)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_check_changes_no_bit_of_the_result(name: str) -> None:
    function = FUNCTIONS[name]
    with_check = np.asarray(poot.jit(function)(X))
    bare = functools.partial(_unchecked, function)
    np.testing.assert_allclose(with_check, poot.jit(bare)(X), rtol=2e-6, atol=2e-6)


def _unchecked(function: Callable[[Any], Any], x: Any) -> Any:
    names = function.__globals__
    kept = names["checked"]
    names["checked"] = lambda value: value
    try:
        return function(x)
    finally:
        names["checked"] = kept


def test_many_calls_under_way_each_with_its_own_end(each_backend: Any) -> None:
    f = poot.jit(epilogue)
    right = np.asarray(f(X))
    results = [f(BAD if number % 3 == 0 else X) for number in range(20)]
    for number, result in enumerate(results):
        if number % 3 == 0:
            fails(result)
        else:
            agrees(result, right)


def test_the_check_that_comes_first_is_told(each_backend: Any) -> None:
    @poot.jit
    def f(x: Any) -> Any:
        y = jnp.exp(-abs(x))
        poot.check(y.sum() > 1e9, "the first")
        y = poot.nn.softmax(y @ W)
        poot.check(y.sum() > 1e9, "the second")
        return y

    with pytest.raises(CheckError, match="the first"):
        f(X).block_until_ready()


def test_what_is_returned_as_it_came_is_spoilt_too(each_backend: Any) -> None:
    weights = poot.device_put(W)

    @poot.jit
    def f(x: Any, y: Any) -> Any:
        checked(x)
        return x, y + 0, weights, x.reshape(-1)

    x, y = poot.device_put(BAD), poot.device_put(X)
    for result in f(x, y):
        fails(result)
    # What was given to the call is as it was.
    np.testing.assert_array_equal(x, BAD)
    np.testing.assert_array_equal(y, X)
    np.testing.assert_array_equal(weights, W)
    for result, right in zip(f(y, x), (X, BAD, W, X.ravel()), strict=True):
        np.testing.assert_array_equal(result, right)


def test_sync_checks_raise_at_the_call() -> None:
    f = poot.jit(rows)
    with poot.config.override(sync_checks=True):
        with pytest.raises(CheckError, match=MESSAGE):
            f(BAD)
        agrees(f(X), rows(poot.device_put(X)))


# --- bounds -----------------------------------------------------------------


def test_bounds_of_a_gather_in_a_fused_kernel(each_backend: Any) -> None:
    with poot.config.override(check_bounds=True):
        f = poot.jit(lambda x, i: jnp.tanh(x[i] * 2).sum(axis=-1))
        x = poot.device_put(X)
        right = np.tanh(X[[7, 0]] * 2).sum(axis=-1)
        bad = f(x, poot.device_put(np.array([7, 8])))
        agrees(f(x, poot.device_put(np.array([7, 0]))), right)
        with pytest.raises(CheckError, match=r"test_witnesses\.py"):
            np.asarray(bad)
        agrees(f(x, poot.device_put(np.array([7, 0]))), right)


def test_bounds_of_a_cache_at_a_slot(each_backend: Any) -> None:
    @functools.partial(poot.jit, donate_argnums=0)
    def step(cache: Any, row: Any, pos: Any) -> Any:
        cache = lax.dynamic_update_slice(cache, row * 2, (pos, 0))
        return cache, poot.nn.softmax(cache @ W, axis=-1).sum()

    with poot.config.override(check_bounds=True):
        cache, row = poot.device_put(X), poot.device_put(X[:1])
        cache, total = step(cache, row, 3)
        cache, total = step(cache, row, 8)
        for spoilt in (cache, total):
            with pytest.raises(CheckError, match=r"test_witnesses\.py"):
                np.asarray(spoilt)
        # A state made of a spoilt one is spoilt; another is not.
        again, _ = step(cache, row, 2)
        with pytest.raises(CheckError):
            np.asarray(again)
        fresh, _ = step(poot.device_put(X), row, 2)
        right = X.copy()
        right[2] = X[0] * 2
        np.testing.assert_array_equal(fresh, right)


# --- donation and slots -----------------------------------------------------


def test_donated_state_of_a_failed_step(each_backend: Any) -> None:
    declared = {"pos": slots.Pos(0, 7)}

    @functools.partial(poot.jit, donate_argnums=0, slots=declared)
    def step(cache: Any, x: Any, pos: Any) -> Any:
        row = checked(poot.nn.relu(x @ W))
        cache = lax.dynamic_update_slice(cache, row[None], (pos, 0))
        seen = jnp.arange(8) <= pos
        return cache, poot.nn.softmax(jnp.where(seen, cache @ x, -jnp.inf))

    cache = poot.device_put(np.zeros((8, 16), np.float32))
    for pos in range(8):
        cache, weights = step(cache, X[pos], pos)
    kept = np.asarray(cache)
    agrees(kept, np.maximum(X @ W, 0))
    assert not cache.is_deleted()
    spoilt, weights = step(cache, BAD[0], 3)
    assert cache.is_deleted()
    fails(weights)
    fails(spoilt)
    fails(step(spoilt, X[0], 3)[0])
    fresh, weights = step(poot.device_put(kept), X[0], 7)
    right = kept.copy()
    right[7] = right[0]
    agrees(fresh, right)
    assert float(weights.sum()) == pytest.approx(1)


# --- loops and transformations ----------------------------------------------


def test_composites_in_loops_tell_the_iteration(each_backend: Any) -> None:
    def body(i: Any, x: Any) -> Any:
        return poot.nn.softmax(checked(x @ W * (i + 1)), axis=-1)

    f = poot.jit(lambda x: lax.fori_loop(0, 12, body, x))
    right = np.asarray(f(X))
    for _ in range(2):
        with pytest.raises(CheckError, match=r"\(first in iteration 0\)") as caught:
            f(BAD).block_until_ready()
        assert f"test_witnesses.py:{LINE} (checked)" in str(caught.value)
        agrees(f(X), right)
    slope = poot.jit(poot.grad(lambda x: f(x)[0, 0]))
    fails(slope(BAD))
    agrees(slope(X), slope(poot.device_put(X)))


def test_checks_in_branches_and_whiles_name_their_line(each_backend: Any) -> None:
    def branched(x: Any) -> Any:
        return lax.cond(x[0, 0] < 9, lambda x: checked(x * 2), lambda x: x, x)

    def repeated(x: Any) -> Any:
        return lax.while_loop(lambda x: x.sum() < 1e4, lambda x: checked(x * 2), x)

    ones = np.ones((2, 3), np.float32)
    for function, bad, good in ((branched, -98, 1), (repeated, 60, 2000)):
        fails(poot.jit(function)(ones * bad))
        poot.jit(function)(ones * good).block_until_ready()
        fails(poot.jit(poot.vmap(function))(np.stack([ones * good, ones * bad])))


def test_gradients_and_batches_of_composites(each_backend: Any) -> None:
    slope = poot.jit(poot.grad(lambda x: (epilogue(x) ** 2).sum()))
    right = np.asarray(slope(X))
    fails(slope(BAD))
    agrees(slope(X), right)
    batched = poot.jit(poot.vmap(rows))
    stacked = np.stack([X, X])
    agrees(batched(stacked)[1], rows(poot.device_put(X)))
    fails(batched(np.stack([X, BAD])))
    agrees(batched(stacked)[0], rows(poot.device_put(X)))
