"""Donated arrays: gone for good once given, whole where the call did not come to it."""

from __future__ import annotations

import copy
import functools
import pickle
import threading
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import lax
from poot.core.errors import (
    CheckError,
    DeletedArrayError,
    DonationError,
    LimitError,
    NanError,
    ShapeError,
)
from tests.backends import each_backend as each_backend
from tests.test_driver_calls import device as device

X = np.arange(6, dtype=np.float32)


def array() -> Any:
    return poot.device_put(X)


@functools.partial(poot.jit, donate_argnums=0)
def doubled(x: Any) -> Any:
    return x * 2


# --- uses after donation ----------------------------------------------------

USES: dict[str, Callable[[Any], Any]] = {
    "numpy": np.asarray,
    "arithmetic": lambda x: x + 1,
    "function": jnp.sin,
    "index": lambda x: x[0],
    "iteration": list,
    "text": str,
    "item": lambda x: x.sum().item(),
    "wait": lambda x: x.block_until_ready(),
    "copy": copy.copy,
    "pickle": pickle.dumps,
    "dlpack": np.from_dlpack,
    "reshape": lambda x: x.reshape(2, 3),
    "argument": lambda x: poot.jit(lambda a, b: a + b)(1, x),
    "donated again": doubled,
    "closure": lambda x: poot.jit(lambda: x + 1)(),
    "grad": lambda x: poot.grad(lambda a: a.sum())(x),
    "vmap": lambda x: poot.vmap(lambda a: a + 1)(x),
    "scan": lambda x: lax.scan(lambda c, t: (c + t, t), 0.0, x),
}


@pytest.mark.parametrize("use", USES)
def test_no_use_after_donation(use: str) -> None:
    x = array()
    doubled(x)
    assert x.is_deleted()
    with pytest.raises(DeletedArrayError, match=r"was donated to `doubled` as x"):
        USES[use](x)


def test_what_is_known_of_a_donated_array() -> None:
    x = array()
    doubled(x)
    assert (x.shape, x.dtype, len(x)) == ((6,), np.float32, 6)
    assert repr(x) == "Array(f32[6], deleted)"
    x.delete()
    assert doubled.trace(x).graph == doubled.trace(X).graph


# --- one array twice, aliases -----------------------------------------------


def test_one_array_at_two_places() -> None:
    f = poot.jit(lambda t, y: (t["a"] + 1, t["b"] + y), donate_argnums=0)
    x, y = array(), array()
    with pytest.raises(DonationError, match=r"donated as t\['a'\] .* as t\['b'\] too"):
        f({"a": x, "b": x}, y)
    with pytest.raises(DonationError, match=r"donated as t\['b'\] is given as y too"):
        f({"a": x, "b": y}, y)
    assert not x.is_deleted() and not y.is_deleted()


ALIASES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "reshape": lambda x: x.reshape(2, 3),
    "identity": poot.jit(lambda x: x),
    "part of a result": lambda x: poot.jit(lambda x: (x, x + 1))(x)[0],
    "weak dtype": lambda x: x.with_weak(True),
    "host view": np.from_dlpack,
    "numpy": np.asarray,
}


@pytest.mark.parametrize("alias", ALIASES)
def test_aliases_outlive_the_donated_array(each_backend: Any, alias: str) -> None:
    x = array()
    other = ALIASES[alias](x)
    for _ in range(3):
        x = doubled(x)
    np.testing.assert_array_equal(x, X * 8)
    np.testing.assert_array_equal(np.ravel(other), X)
    both = poot.jit(lambda a, b: (a + 1, b + 1), donate_argnums=(0, 1))
    x = array()
    for result in both(x, copy.copy(x)):
        np.testing.assert_array_equal(result, X + 1)


# --- calls that fail --------------------------------------------------------


def huge(x: Any) -> Any:
    return x + 1, jnp.zeros((1 << 15, 1 << 15, 64), np.float32) + x[0]


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (lambda x: x.reshape(7), ShapeError),
        (lambda x: 1 / 0, ZeroDivisionError),
        (huge, LimitError),
    ],
)
def test_what_fails_before_the_launch_leaves_the_array(
    function: Any, error: type
) -> None:
    x = array()
    f = poot.jit(function, donate_argnums=0)
    for _ in range(2):
        with pytest.raises(error):
            f(x)
    assert not x.is_deleted()
    np.testing.assert_array_equal(doubled(x), X * 2)


def test_a_refused_argument_leaves_the_others() -> None:
    f = poot.jit(lambda x, y: (x + y, x - y), donate_argnums=(0, 1))
    x, gone = array(), array()
    f(array(), array())
    doubled(gone)
    for _ in range(2):
        with pytest.raises(DeletedArrayError, match="argument y of"):
            f(x, gone)
    np.testing.assert_array_equal(f(x, array())[0], X * 2)


def test_a_failed_check_spoils_the_results_alone(each_backend: Any) -> None:
    @functools.partial(poot.jit, donate_argnums=0)
    def small(x: Any, limit: Any) -> Any:
        poot.check(x.sum() < limit, "the sum is too large")
        return x * 2

    x = array()
    y = small(x, 3)
    with pytest.raises(CheckError, match=r"too large .*test_donation.py"):
        np.asarray(y)
    assert x.is_deleted()
    # What is made of it is spoilt too, donated or not.
    with pytest.raises(CheckError, match="too large"):
        (y + 1).block_until_ready()
    with pytest.raises(CheckError, match="too large"):
        doubled(y).block_until_ready()
    np.testing.assert_array_equal(small(array(), 99), X * 2)
    with (
        poot.config.override(sync_checks=True),
        pytest.raises(CheckError, match="too large"),
    ):
        small(array(), 3)
    np.testing.assert_array_equal(small(array(), 99), X * 2)


def test_looking_for_nans_gives_the_array_back() -> None:
    f = poot.jit(lambda x: jnp.log(x - 1), donate_argnums=0)
    x, good = array(), poot.device_put(X + 2)
    with poot.config.override(debug_nans=True):
        with pytest.raises(NanError, match="`log` gave it"):
            f(x)
        f(good)
    assert good.is_deleted()
    np.testing.assert_array_equal(x, X)


def test_a_call_cut_off_midway_spoils_what_it_was_given(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    f = poot.jit(
        lambda x, n: lax.while_loop(lambda c: c[0] < n, lambda c: c + 1, x),
        donate_argnums=0,
    )
    f(array(), 100).block_until_ready()
    x, untouched = array(), array()
    wait, waits = device.queue.wait, []

    def interrupted(*args: Any) -> None:
        waits.append(args)
        if len(waits) == 4:
            raise KeyboardInterrupt
        wait(*args)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(device.queue, "wait", interrupted)
        f(x, 1000)
    with pytest.raises(CheckError, match="ended with KeyboardInterrupt after part"):
        np.asarray(x)
    np.testing.assert_array_equal(f(untouched, 10), X + 10)


def test_one_of_several_threads_gets_the_array() -> None:
    doubled(array())

    def give(x: Any, found: list[Any]) -> None:
        try:
            found.append(np.asarray(doubled(x)))
        except DeletedArrayError:
            found.append(None)

    for _ in range(20):
        x, found = array(), []
        threads = [threading.Thread(target=give, args=(x, found)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (kept,) = [result for result in found if result is not None]
        assert len(found) == 4
        np.testing.assert_array_equal(kept, X * 2)


# --- within other functions -------------------------------------------------


def test_a_function_run_op_by_op_donates_nothing() -> None:
    x = array()
    with poot.config.override(disable_jit=True):
        np.testing.assert_array_equal(doubled(x), X * 2)
        np.testing.assert_array_equal(poot.vmap(doubled)(x), X * 2)
    assert not x.is_deleted()


@pytest.mark.parametrize(
    ("function", "options", "call"),
    [
        (lambda x, *, c: c + x, {"donate_argnames": "c"}, lambda f, x: f(1, c=x)),
        (
            lambda x, **k: k["c"] + x,
            {"donate_argnames": ("c",)},
            lambda f, x: f(1, c=x),
        ),
        (lambda *a: a[0] + a[1], {"donate_argnums": 1}, lambda f, x: f(1, x)),
        (lambda a, b: a + b, {"donate_argnums": -1}, lambda f, x: f(1, x)),
        (lambda a, b: a + b, {"donate_argnums": 1}, lambda f, x: f(1, b=x)),
        (lambda a, b: a + b, {"donate_argnames": "b"}, lambda f, x: f(1, x)),
    ],
)
def test_ways_to_name_donated_arguments(function: Any, options: Any, call: Any) -> None:
    x = array()
    f = poot.jit(function, **options)
    np.testing.assert_array_equal(call(f, x), X + 1)
    assert x.is_deleted()


# Results of a donated f32[6], and whether it is deleted and whether a warning says so.
RESULTS: dict[str, tuple[Callable[[Any], Any], bool, bool]] = {
    "its type": (lambda x: x + 1, True, False),
    "another dtype": (lambda x: x.astype(np.int32), True, False),
    "another shape": (lambda x: x.reshape(2, 3) + 1, True, False),
    "itself in another shape": (lambda x: x.reshape(2, 3), True, False),
    "narrower": (lambda x: x.astype(np.float16), False, False),
    "narrowest": (lambda x: x > 1, False, False),
    "as many bytes": (lambda x: x[None].repeat(2, 0).astype(np.float16), False, True),
    "one": (lambda x: x.sum(), False, True),
    "not of it": (lambda x: np.float32(2) + X, False, False),
    "its type, last": (lambda x: (x.astype(np.float16), x.sum(), x * 2), True, False),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_take_memory_by_type_and_size_as_in_jax(
    each_backend: Any, name: str
) -> None:
    function, is_deleted, warns = RESULTS[name]
    for library in (poot, jax):
        x = library.device_put(X)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            # Anew, as either warns when it compiles.
            found = library.jit(functools.partial(function), donate_argnums=0)(x)
        told = [w for w in caught if "donated" in str(w.message)]
        assert (x.is_deleted(), len(told) == 1) == (is_deleted, warns), library
        for own, right in zip(
            library.tree.leaves(found), poot.tree.leaves(function(X)), strict=True
        ):
            np.testing.assert_array_equal(own, right)


def test_one_result_takes_the_memory_of_one_array() -> None:
    f = poot.jit(lambda x, y: (x + y).astype(np.int32), donate_argnums=(0, 1))
    x, y = array(), array()
    with pytest.warns(UserWarning, match=r"is left with .* `y` \(f32\[6\]\)"):
        f(x, y)
    assert x.is_deleted() and not y.is_deleted()


def test_released_memory_that_others_hold_stays(each_backend: Any) -> None:
    f = poot.jit(lambda x: x.astype(np.int32), donate_argnums=0)
    x = array()
    kept = copy.copy(x)
    for _ in range(3):
        np.testing.assert_array_equal(f(x), X)
        x = copy.copy(kept)
    view = poot.jit(lambda x: x.reshape(3, 2), donate_argnums=0)(x)
    np.testing.assert_array_equal(view, X.reshape(3, 2))
    np.testing.assert_array_equal(kept, X)


def test_the_warning_lists_what_no_result_can_use() -> None:
    f = poot.jit(lambda t: t["a"] + t["b"][0] + t["c"].sum(), donate_argnums=0)
    given = {
        "a": array(),
        "b": array(),
        "c": poot.device_put(np.ones((2, 2), np.int32)),
    }
    with pytest.warns(UserWarning, match=r"`t\['b'\]` \(f32\[6\]\), .* \(i32\[2,2\]\)"):
        f(given)
    assert [x.is_deleted() for x in given.values()] == [True, False, False]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Numbers and NumPy arrays have nothing to give.
        poot.jit(lambda a, b: a + b, donate_argnums=(0, 1))(1, X)
