"""Keys: JAX's words for the same seeds, arrays of keys, and what is refused."""

from __future__ import annotations

import copy
import functools
import pickle
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import poot
from poot import numpy as pnp
from poot import random, tree
from poot.core.errors import ArgumentError, DTypeError, RangeError, ShapeError

SEEDS = (0, 1, 2**31, 2**32 + 5, -1, -(2**40) + 3, np.int8(-3), np.uint32(2**32 - 1))
WIDE_SEEDS = (2**40, -1, 2**63 - 1, -(2**63), np.int32(-1), np.uint64(2**63))


def words(key: Any) -> list[Any]:
    return np.asarray(random.key_data(key)).tolist()


@pytest.mark.parametrize("x64", [False, True])
def test_seeds_are_jaxs(x64: bool) -> None:
    jax = pytest.importorskip("jax")
    with jax.enable_x64(x64), poot.config.override(enable_x64=x64):
        for seed in SEEDS + (WIDE_SEEDS if x64 else ()):
            expected = np.asarray(jax.random.PRNGKey(seed)).tolist()
            assert words(random.PRNGKey(seed)) == expected
            assert words(random.key(seed)) == expected
            if not isinstance(seed, int):
                assert words(random.key(poot.device_put(seed))) == expected
                assert words(random.PRNGKey(np.asarray(seed))) == expected


def test_traced_seeds() -> None:
    for make in (random.key, random.PRNGKey):
        jitted = poot.jit(lambda seed, make=make: random.key_data(make(seed)))
        assert words(jitted(7)) == [0, 7]
        constant = poot.jit(lambda make=make: random.key_data(make(7)))
        assert words(constant()) == [0, 7]


@pytest.mark.parametrize("number", [0, 1, 2, 5, (), (2, 3), (0, 2)])
def test_split_is_jaxs(number: Any) -> None:
    jax = pytest.importorskip("jax")
    expected = np.asarray(jax.random.split(jax.random.PRNGKey(42), number))
    for function in (random.split, poot.jit(random.split, static_argnums=1)):
        keys = function(random.key(42), number)
        assert keys.shape == expected.shape[:-1]
        np.testing.assert_array_equal(random.key_data(keys), expected)
        old = function(random.PRNGKey(42), number)
        np.testing.assert_array_equal(old, expected)


@pytest.mark.parametrize("data", [0, 7, 2**32 - 1, np.int32(-1), np.uint8(200)])
def test_fold_in_is_jaxs(data: Any) -> None:
    jax = pytest.importorskip("jax")
    expected = np.asarray(jax.random.fold_in(jax.random.PRNGKey(3), data)).tolist()
    assert words(random.fold_in(random.key(3), data)) == expected
    assert words(random.fold_in(random.PRNGKey(3), data)) == expected
    if not isinstance(data, int):
        folded = poot.jit(random.fold_in)(random.key(3), data)
        assert words(folded) == expected


def test_fold_in_is_an_element_of_split() -> None:
    keys = random.split(random.key(9), 4)
    for number in range(4):
        assert words(keys[number]) == words(random.fold_in(random.key(9), number))


# --- arrays of keys ---------------------------------------------------------


def test_arrays_of_keys() -> None:
    keys = random.split(random.key(0), (2, 3))
    data = np.asarray(random.key_data(keys))
    assert (keys.shape, keys.ndim, keys.size, len(keys)) == ((2, 3), 2, 6, 2)
    assert str(keys.dtype) == "key<fry>" and keys.dtype.itemsize == 8
    assert words(keys[1, 2]) == data[1, 2].tolist()
    assert words(keys[:, 0]) == data[:, 0].tolist()
    assert words(keys.reshape(3, 2)) == data.reshape(3, 2, 2).tolist()
    assert words(keys.ravel()) == words(keys.flatten()) == data.reshape(6, 2).tolist()
    assert words(keys.T) == data.transpose(1, 0, 2).tolist()
    assert words(keys[:1].squeeze()) == data[0].tolist()
    assert [words(row) for row in keys] == data.tolist()
    assert words(keys.swapaxes(0, 1)) == data.transpose(1, 0, 2).tolist()
    assert words(keys.take(pnp.array([2, 0]), axis=1)) == data[:, [2, 0]].tolist()
    assert words(keys.take(4)) == data[1, 1].tolist()
    assert words(keys.block_until_ready()) == data.tolist()
    assert (keys.nbytes, keys.itemsize) == (48, 8)
    assert {keys.device} == keys.devices() == set(poot.devices())
    assert repr(keys[0, 0]) == f"KeyArray((), threefry2x32, {data[0, 0]})"


def test_changed_copies() -> None:
    keys = random.split(random.key(0), 3)
    data = np.asarray(random.key_data(keys))
    assert words(keys.at[0].set(keys[2])) == data[[2, 1, 2]].tolist()
    assert words(poot.jit(lambda k: k.at[1:].get())(keys)) == data[1:].tolist()
    with pytest.raises(TypeError, match="takes keys, given a int"):
        keys.at[0].set(3)
    assert words(keys) == data.tolist()


def test_deleted_keys() -> None:
    key = random.key(3)
    kept = [key.copy(), copy.copy(key), copy.deepcopy(key), key.reshape(1)]
    assert not key.is_deleted()
    key.delete()
    assert key.is_deleted()
    assert repr(key) == "KeyArray((), threefry2x32, deleted)"
    with pytest.raises(RuntimeError, match=r"was deleted by \.delete"):
        random.split(key)
    for other in kept:
        assert np.ravel(words(other)).tolist() == [0, 3]


# What a donating function makes of a key or keys, and whether it deletes them.
DONATING: dict[str, tuple[Callable[[Any, Any], Any], bool]] = {
    "key": (lambda random, k: random.split(k)[0], True),
    "key and number": (lambda random, k: (random.split(k)[0], random.bits(k)), True),
    "keys": (lambda random, k: random.split(k), False),
    "words": (lambda random, k: random.key_data(k), False),
    "numbers": (lambda random, k: random.uniform(k, (3,)), False),
    # As large as one of the words: it takes none of them.
    "a number": (lambda random, k: random.bits(k), False),
    "not read": (lambda random, k: random.key(1), False),
}


@pytest.mark.filterwarnings("ignore:.*no result is left|Some donated buffers")
@pytest.mark.parametrize("made", DONATING)
@pytest.mark.parametrize("transformed", ["jit", "vmap"])
def test_donated_keys_are_deleted_as_jaxs(made: str, transformed: str) -> None:
    function, is_deleted = DONATING[made]
    for library, own in ((poot, random), (jax, jax.random)):
        f = library.jit(functools.partial(function, own), donate_argnums=0)
        key = own.key(7)
        if transformed == "vmap":
            f, key = library.vmap(f), own.split(key, 2)
        f(key)
        assert key.is_deleted() is is_deleted, library.__name__
        if is_deleted:
            with pytest.raises(RuntimeError, match=r"deleted|donated"):
                own.key_data(key).block_until_ready()
        else:
            own.key_data(key).block_until_ready()


def test_keys_compare_by_element() -> None:
    keys = random.split(random.key(0), 3)
    same = np.asarray(keys == keys[1])
    assert same.tolist() == [False, True, False]
    assert np.asarray(keys != keys[1]).tolist() == [True, False, True]
    assert keys[2] in keys and random.key(9) not in keys
    with pytest.raises(DTypeError, match="takes a key among keys, given a int"):
        assert 1 in keys
    with pytest.raises(TypeError, match="neither true nor false"):
        bool(keys[0])
    assert (keys == 3) is False and (keys != None) is True  # noqa: E711
    with pytest.raises(TypeError, match="unhashable"):
        hash(keys)


def test_old_keys_unpack() -> None:
    first, second = random.split(random.PRNGKey(0))
    assert words(random.split(random.key(0))) == [words(first), words(second)]


def test_wrapped_words() -> None:
    data = np.arange(12, dtype=np.uint32).reshape(2, 3, 2)
    keys = random.wrap_key_data(poot.device_put(data), impl="threefry2x32")
    assert keys.shape == (2, 3) and words(keys) == data.tolist()
    assert words(random.key_data(poot.device_put(data))) == data.tolist()
    assert random.key_impl(keys) == random.key_impl(random.PRNGKey(0)) == "threefry2x32"


def test_keys_are_trees() -> None:
    key = random.split(random.key(1), 2)
    assert [leaf.shape for leaf in tree.leaves({"key": key})] == [(2,), (2,)]
    for other in (copy.deepcopy(key), pickle.loads(pickle.dumps(key))):
        assert words(other) == words(key)
    assert words(random.clone(key)) == words(key)
    stacked = tree.map(lambda a, b: pnp.stack([a, b]), key[0], key[1])
    assert words(stacked) == words(key)


def test_keys_go_through_jit() -> None:
    @poot.jit
    def step(state: dict[str, Any]) -> dict[str, Any]:
        key, drawn = random.split(state["key"])
        return {"key": key, "x": state["x"] + random.normal(drawn, (3,))}

    state = {"key": random.key(5), "x": pnp.zeros(3)}
    for _ in range(2):
        state = step(state)
    key = random.key(5)
    expected = pnp.zeros(3)
    for _ in range(2):
        key, drawn = random.split(key)
        expected = expected + random.normal(drawn, (3,))
    assert words(state["key"]) == words(key)
    np.testing.assert_array_equal(state["x"], expected)
    assert step.cache_size == 1


# --- what is refused --------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: random.key(1.5), DTypeError, "seed is f32, takes an integer"),
        (lambda: random.PRNGKey(pnp.arange(2)), ArgumentError, r"shape \(2,\)"),
        (lambda: random.key(2**63), RangeError, "does not fit 64 bits"),
        (lambda: random.key(0, impl="rbg"), ArgumentError, "takes 'threefry2x32' only"),
        (lambda: random.fold_in(random.key(0), -1), RangeError, "does not fit u32"),
        (lambda: random.fold_in(random.key(0), 0.5), ArgumentError, "data is f32"),
        (lambda: random.bits(3), ArgumentError, "the key is a int"),
        (lambda: random.bits(pnp.arange(2)), ArgumentError, r"the key is i32\[2\]"),
        (lambda: random.bits(pnp.zeros(3, "uint32")), ArgumentError, "a last axis of"),
        (
            lambda: random.bits(random.split(random.key(0))),
            ShapeError,
            r"keys of shape \(2,\), takes one key; use poot.vmap",
        ),
        (lambda: random.split(random.PRNGKey(0), -1), ShapeError, "negative sizes"),
        (lambda: random.bits(random.key(0), 2**32), ShapeError, "Split the key"),
        (lambda: np.asarray(random.key(0)), DTypeError, "poot.random.key_data"),
        (lambda: pnp.sin(random.key(0)), DTypeError, "poot.random.key_data"),
        (lambda: random.key(0) + 1, TypeError, "unsupported operand"),
    ],
)
def test_refusals(call: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        call()
