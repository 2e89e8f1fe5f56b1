"""Traps of dtypes, trees and tracing; data/traps.txt has the list."""

from __future__ import annotations

import operator
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot.core import dtypes
from poot.core.errors import ConcretizationError, TraceLeak
from poot.core.interpreter import current
from poot.interpreters.eager import EAGER
from tests import trap_executors
from tests.trap_executors import array, check, f32, i32

on_device = trap_executors.on_device
pytestmark = pytest.mark.usefixtures("on_device")

BF16, F16, F32 = jnp.bfloat16, np.float16, np.float32
I8, I16, I32, U8, U32 = np.int8, np.int16, np.int32, np.uint8, np.uint32

# The dtype of an array, a number or an array's dtype, and what their sum is.
MIXTURES = [
    (F32, 0.1, F32),
    (F16, 0.1, F16),
    (BF16, 0.1, BF16),
    (F16, 1, F16),
    (F16, True, F16),
    (I8, 1, I8),
    (U8, 1, U8),
    (I32, 1.5, F32),
    (I8, 1.5, F32),
    (np.bool_, 1, I32),
    (np.bool_, 1.5, F32),
    (BF16, F16, F32),
    (F16, F32, F32),
    (F16, I32, F16),
    (BF16, I8, BF16),
    (U32, I32, I32),
    (U8, I8, I16),
    (np.bool_, U8, U8),
]


@pytest.mark.parametrize(("left", "right", "wanted"), MIXTURES, ids=str)
def test_python_scalars_do_not_widen(left: Any, right: Any, wanted: Any) -> None:
    """The same dtype eager, jitted with the number given or written in, and traced.

    uint32 and int32 meet at int32, as in JAX without 64 bits.
    """
    x = np.ones(2, left)
    other = np.ones(2, right) if isinstance(right, type) else right
    add: Callable[[Any, Any], Any] = operator.add
    arrays = [
        add(poot.device_put(x), other),
        add(other, poot.device_put(x)),
        poot.jit(add)(x, other),
        poot.jit(lambda x: x + other)(x),
        *poot.evaluate(poot.make_graph(add)(x, other), x, other),
    ]
    assert [found.dtype for found in arrays] == [np.dtype(wanted)] * 5
    exact = np.float64(1) + np.float64(other)
    for found in arrays:
        np.testing.assert_array_equal(found, array(exact, dtypes.as_dtype(wanted)))


def test_scalars_of_the_kinds_that_widen_elsewhere() -> None:
    octets = np.array([200], U8)
    check(lambda x: x + 100, octets, right=np.array([44], U8))
    check(lambda x: x * jnp.abs(1.0), np.ones(2, F16), right=np.ones(2, F16))
    check(lambda x, y: x / y, i32(1, 3), i32(2, 2), right=f32(0.5, 1.5))
    check(lambda x: x * np.float32(2), f32(3), right=f32(6))
    for function in (jnp.add, poot.jit(jnp.add)):
        # A NumPy scalar has a dtype of its own; a Python number takes the other's.
        assert function(np.ones(1, F16), np.float32(1)).dtype == F32
        assert function(F16(2), 0.1).dtype == F16
        assert function(I32(1), I32(2)).dtype == I32
        assert function(1, 2.5).dtype == F32
    adds = poot.jit(lambda x, s: x + s)
    for number in (0.1, 0.2, -0.0, float("nan")):
        adds(f32(1), number)
    assert adds.cache_size == 1
    with poot.config.override(enable_x64=True):
        assert jnp.add(U32(1), I32(2)).dtype == np.int64


# --- trees ------------------------------------------------------------------


def test_pytrees_none_order_empties_ints() -> None:
    """Results have their keys in order, whichever call was traced first."""
    for first, second in (("ba", "ab"), ("ab", "ba")):
        identity = poot.jit(lambda tree: tree)
        for keys in (first, second):
            found = identity({key: ord(key) for key in keys})
            assert list(found) == ["a", "b"]
            assert [int(v) for v in found.values()] == [97, 98]
        assert identity.cache_size == 1
    identity = poot.jit(lambda tree: tree)
    for empty in (None, {}, [], (), [None, {}], {"a": None, "b": [()]}):
        assert identity(empty) == empty
    assert identity.cache_size == 6
    found = identity({"w": f32(6), "b": None})
    assert found["b"] is None and np.asarray(found["w"]).tolist() == [6]
    assert identity(3).dtype == I32 and identity(True).dtype == np.bool_


def test_trees_show_a_function_no_order_of_insertion() -> None:
    orders = []

    @poot.jit
    def walk(tree: Any) -> Any:
        orders.append(list(tree))
        return {"z": tree["b"], "y": {"q": tree["a"], "p": 1}}

    with poot.disable_jit():
        walk({"b": 1, "a": 2})
    found = walk({"b": 1, "a": 2})
    assert orders == [["a", "b"]] * 2
    assert list(found) == ["y", "z"] and list(found["y"]) == ["p", "q"]
    counts = defaultdict(list, {"d": [1], "c": [2]})
    kept = poot.jit(lambda tree: tree)(counts)
    assert type(kept) is defaultdict and kept.default_factory is list
    assert list(kept) == ["c", "d"]
    # Those whose order is part of what they are keep it.
    ordered = poot.jit(lambda tree: tree)(OrderedDict(b=1, a=2))
    assert list(ordered) == ["b", "a"]


# --- tracing ----------------------------------------------------------------


def test_escaped_tracers_concretization() -> None:
    """test_tracing.py has every use of a leaked value and every kind of request."""
    escaped: list[Any] = []

    @poot.jit
    def leaks(x: Any) -> Any:
        escaped.append(x)
        escaped.append(x * 2)
        return x

    line = leaks.__wrapped__.__code__.co_firstlineno
    leaks(f32(1, 2))
    with pytest.raises(TraceLeak, match="the argument `x` while tracing `leaks`"):
        escaped[0] + 1
    with pytest.raises(TraceLeak) as caught:
        jnp.sin(escaped[1])
    assert "`leaks`" in str(caught.value)
    assert f"made by `mul` at {__file__}:{line + 3}" in str(caught.value)
    for request in (
        lambda x: x if x > 0 else -x,
        lambda x: float(x),
        lambda x: np.asarray(x),
        lambda x: [10, 20][x.astype(int)],
        lambda x: range(x.astype(int)),
        lambda x: jnp.zeros(x.astype(int)),
    ):
        with pytest.raises(ConcretizationError, match="is being traced"):
            poot.jit(request)(F32(1))
        assert current() is EAGER
    check(lambda x: x + 1, f32(1, 2), right=f32(2, 3))


def test_state_is_clean_after_an_exception_while_tracing() -> None:
    @poot.jit
    def outer(x: Any) -> Any:
        inner = poot.jit(lambda y: 1 / 0 if y.ndim else y)
        return inner(x * 2)

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            outer(f32(1))
        assert current() is EAGER
        assert float(outer(F32(3))) == 6
        assert np.asarray(poot.device_put(f32(1)) + 1).tolist() == [2]
