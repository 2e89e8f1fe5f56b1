"""Threefry: known answers, JAX's random bits, and regions that it is part of."""

from __future__ import annotations

import numpy as np
import pytest

import poot
from poot import lax
from poot import numpy as pnp
from poot.core.builder import Builder
from poot.core.dtypes import Scalar, float32, uint32
from poot.core.errors import DTypeError
from poot.core.graph import Graph
from poot.core.ops.composite import Fused, FusedRow
from poot.core.ops.elementwise import Binary, BinaryOp, Cast
from poot.core.ops.random import Threefry2x32
from poot.core.ops.reduce import Reduce, ReduceOp
from poot.core.types import Storage, TensorType
from poot.interpreters.backend import Backend, backend
from tests.backends import each_backend
from tests.graph_runs import assert_right

__all__ = ["each_backend"]

# Threefry-2x32-20 of Random123's known answers: key, counter, words.
KNOWN = (
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
)


@pytest.mark.parametrize(("key", "counter", "words"), KNOWN)
def test_known_answers(each_backend: Backend, key, counter, words) -> None:
    operands = [poot.device_put(np.uint32(word)) for word in (*key, *counter)]
    results = Threefry2x32().bind(*operands)
    assert tuple(int(word) for word in results) == words


def bits(key: tuple[int, int], shape: tuple[int, ...]):
    """JAX's random bits in partitionable mode: the element's number is its counter."""
    number = pnp.arange(int(np.prod(shape)), dtype=np.uint32).reshape(shape)
    k1, k2 = (poot.device_put(np.uint32(word)) for word in key)
    return lax.bitwise_xor(*Threefry2x32().bind(k1, k2, pnp.zeros_like(number), number))


@pytest.mark.parametrize("seed", [0, 1, 42, 0xFFFFFFFF])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (2, 0), (2, 3, 1000)])
def test_bits_are_jaxs(each_backend: Backend, seed: int, shape) -> None:
    jax = pytest.importorskip("jax")
    with jax.threefry_partitionable(True):
        key = jax.random.key(np.uint32(seed), impl="threefry2x32")
        expected = np.asarray(jax.random.bits(key, shape, np.uint32))
        words = np.asarray(jax.random.key_data(key)).tolist()
    for function in (bits, poot.jit(bits, static_argnums=(0, 1))):
        found = np.asarray(function(tuple(words), shape))
        np.testing.assert_array_equal(found, expected)


def test_takes_words_only() -> None:
    with pytest.raises(DTypeError, match="given u32, u32, f32, u32, takes u32"):
        word = TensorType((), uint32)
        Threefry2x32().infer(word, word, TensorType((), float32), word)


# --- fusion -----------------------------------------------------------------


def dropout_graph(shape: tuple[int, ...], outputs: str) -> Graph:
    """Random words, and what follows from them; `outputs` says which are results."""
    builder = Builder()
    type = TensorType(shape, uint32)
    x = builder.input(type, Storage.STATE)
    k1, k2 = (builder.input(TensorType((), uint32)) for _ in range(2))
    one, other = builder.emit(Threefry2x32(), (k1, k2, Scalar.of(0, uint32), x))
    (mixed,) = builder.emit(Binary(BinaryOp.XOR), (one, other))
    values = {"one": one, "other": other, "mixed": mixed}
    for name in outputs.split():
        builder.result(values[name])
    builder.state_next(x, mixed)
    return builder.finish()


@pytest.mark.parametrize("outputs", ["mixed", "one mixed", "other mixed one"])
@pytest.mark.parametrize("shape", [(5,), (64,), (3, 7, 11)])
def test_regions_with_random_words(outputs: str, shape: tuple[int, ...]) -> None:
    graph = dropout_graph(shape, outputs)
    lowered = backend().lower(graph).graph
    assert [type(eqn.op) for eqn in lowered.eqns] == [Fused]
    results = lowered.eqns[0].op.body.results
    assert len(results) == len(set(outputs.split()) | {"mixed"})
    for generic in (False, True):
        assert_right(graph, generic=generic)


def test_one_word_of_two_is_used_by_two_regions() -> None:
    """Two regions of other shapes read a word each: both are stored."""
    builder = Builder()
    x = builder.input(TensorType((4, 8), uint32))
    one, other = builder.emit(Threefry2x32(), (x, x, x, x))
    (total,) = builder.emit(Reduce(ReduceOp.SUM, 0), (one,))
    (mixed,) = builder.emit(Binary(BinaryOp.XOR), (other, Scalar.of(7, uint32)))
    builder.result(total)
    builder.result(mixed)
    assert_right(builder.finish())


@pytest.mark.parametrize("columns", [9, 64])
def test_rows_with_random_words(columns: int) -> None:
    builder = Builder()
    x = builder.input(TensorType((6, columns), uint32))
    key = Scalar.of(3, uint32)
    (largest,) = builder.emit(Reduce(ReduceOp.MAX, 1, True), (x,))
    one, other = builder.emit(Threefry2x32(), (key, largest, key, x))
    (number,) = builder.emit(Cast(float32), (other,))
    (best,) = builder.emit(Reduce(ReduceOp.MAX, 1, True), (number,))
    builder.result(best)
    builder.result(one)
    graph = builder.finish()
    lowered = backend().lower(graph).graph
    assert [type(eqn.op) for eqn in lowered.eqns] == [FusedRow]
    for generic in (False, True):
        assert_right(graph, generic=generic)
