"""dot_product_attention against jax.nn's, and rope against rotations of f64."""

from __future__ import annotations

from typing import Any

import jax
import jax.nn
import ml_dtypes
import numpy as np
import pytest

import poot
import poot.nn
from poot.core.errors import ArgumentError, DTypeError, ShapeError
from tests import trap_executors
from tests.nn_against_jax import against_jax, dispatches, each_float, jax_jit, normal
from tests.numerics import Array, assert_close, rng_of
from tests.trap_executors import check, leaves

on_device = trap_executors.on_device
pytestmark = pytest.mark.usefixtures("on_device")

# B, T, S, N, H; the number of key heads differs.
B, T, S, N, H = 2, 5, 7, 4, 8
LIMIT = 8.0


def operands(key_heads: int = 2, dtype: Any = np.float32) -> tuple[Array, Array, Array]:
    q = normal("query", B, T, N, H, dtype=dtype)
    k = normal("key", B, S, key_heads, H, dtype=dtype)
    return q, k, normal("value", B, S, key_heads, H, dtype=dtype)


def some(*shape: int) -> Array:
    """A mask of about half, with a row of none."""
    mask = rng_of("mask").random(shape) < 0.5
    mask[0, 0, 0] = False
    return mask


LENGTHS = np.int32([5, 2])
NO_LENGTH = np.int32([7, 0])
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "bias": {"bias": normal("bias", B, N, T, S)},
    "shared bias": {"bias": normal("bias", 1, 1, T, S), "scale": 0.25},
    "mask": {"mask": some(B, N, T, S)},
    "shared mask and bias": {"mask": some(B, 1, 1, S), "bias": normal("b", N, T, S)},
    "causal": {"is_causal": True},
    "window": {"local_window_size": 1},
    "causal window": {"local_window_size": (2, 1), "is_causal": True},
    "window of nothing": {"local_window_size": (-1, 0)},
    "query lengths": {"query_seq_lengths": LENGTHS},
    "key lengths": {"key_value_seq_lengths": NO_LENGTH, "return_residual": True},
    "everything": {
        "mask": some(B, N, T, S),
        "bias": normal("bias", B, N, T, S),
        "is_causal": True,
        "query_seq_lengths": LENGTHS,
        "key_value_seq_lengths": NO_LENGTH,
        "local_window_size": (4, 4),
        "return_residual": True,
        "scale": -0.5,
    },
}


@pytest.mark.parametrize("case", CASES)
def test_masks(case: str) -> None:
    """Among them rows for which no key counts: the mean of the values, as in JAX.

    Rows beyond a query's length are -0 in JAX where the mean is negative.
    """
    against_jax(
        lambda nn, q, k, v: nn.dot_product_attention(q, k, v, **CASES[case]),
        *operands(),
        ulps=LIMIT,
        eager=case == "everything",
        signed_zeros=False,
    )


@pytest.mark.parametrize("key_heads", [1, 4])
def test_shared_keys_and_no_batch(key_heads: int) -> None:
    def both(nn: Any, q: Any, k: Any, v: Any) -> list[Any]:
        whole = nn.dot_product_attention(q, k, v, is_causal=True)
        one = nn.dot_product_attention(q[0], k[0], v[0], return_residual=True)
        return [whole, *one]

    against_jax(both, *operands(key_heads), ulps=LIMIT)


def test_halves() -> None:
    """The shares are halves too, so that results are within two ulps of f32's."""
    dtype = ml_dtypes.bfloat16
    halves = operands(dtype=dtype)
    options = CASES["everything"]
    wide = [x.astype(np.float32) for x in halves]
    right = jax_jit(lambda *xs: jax.nn.dot_product_attention(*xs, **options))(*wide)
    found = poot.jit(lambda *xs: poot.nn.dot_product_attention(*xs, **options))(*halves)
    for one, other in zip(found, right, strict=True):
        with np.errstate(over="ignore"):  # The logsumexp of masked logits.
            wanted = np.asarray(other).astype(dtype)
        zero = wanted.dtype.type(0)
        assert_close(np.asarray(one) + zero, wanted + zero, 2, floor=1.0)


def test_one_key_and_rows_without_any() -> None:
    """Every executor gives the value of the only key; the mean where none counts."""
    q, k, v = (np.float32(x).reshape(1, 2, 1, 1) for x in ([1, 2], [3, 4], [5, 7]))
    mask = np.array([[[[True, False], [False, False]]]])
    check(
        lambda q, k, v, mask: poot.nn.dot_product_attention(q, k, v, mask=mask),
        q,
        k,
        v,
        mask,
        right=np.float32([5, 6]).reshape(1, 2, 1, 1),
        reassociates=True,
    )


def test_doubles_stay_doubles() -> None:
    """JAX's softmax of f64 logits is f32; poot's is not."""
    with poot.config.override(enable_x64=True):
        q, k, v = (x.astype(np.float64) for x in operands(N))
        graph = poot.make_graph(poot.nn.dot_product_attention)(q, k, v)
        (found,) = poot.evaluate(graph, q, k, v)
    logits = np.einsum("btnh,bsnh->bnts", q, k) / np.sqrt(H)
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_allclose(
        found, np.einsum("bnts,bsnh->btnh", shares, v), rtol=1e-13
    )


def test_kernels() -> None:
    """All of it is one kernel."""
    q, k, v = operands()
    for case in ("plain", "causal", "causal window", "shared mask and bias"):
        options = CASES[case]
        count = dispatches(
            lambda q, k, v, options=options: poot.nn.dot_product_attention(
                q, k, v, **options
            ),
            q,
            k,
            v,
        )
        assert count == 1, case


def test_attention_refuses() -> None:
    attention = poot.nn.dot_product_attention
    q, k, v = operands()
    with pytest.raises(ShapeError, match="4 query heads over 3 key heads"):
        attention(q, *(np.ones((B, S, 3, H), np.float32),) * 2)
    with pytest.raises(ShapeError, match="the last two take one shape"):
        attention(q, k, v[:, 1:])
    with pytest.raises(DTypeError, match="take one dtype"):
        attention(q, k, v.astype(np.float16))
    with pytest.raises(ShapeError, match="floats of three or four axes"):
        attention(q[0, 0], k, v)
    with pytest.raises(DTypeError, match="the mask is f32"):
        attention(q, k, v, mask=np.ones((1, 1, T, S), np.float32))
    with pytest.raises(ShapeError, match="does not broadcast to the logits'"):
        attention(q, k, v, bias=np.ones((1, 3, T, S), np.float32))
    with pytest.raises(ShapeError, match=r"takes i32\[2\]"):
        attention(q, k, v, query_seq_lengths=np.int32([1, 2, 3]))
    with pytest.raises(ArgumentError, match="implementation is 'cudnn'"):
        attention(q, k, v, implementation="cudnn")


# --- rope -------------------------------------------------------------------


def turned(
    x: Array,
    positions: Array,
    rates: Array,
    first: slice,
    second: slice,
) -> Array:
    """Pairs as complex numbers of f64, times those of the angles."""
    wide = x.astype(np.float64)
    pairs = wide[..., first] + 1j * wide[..., second]
    pairs = pairs * np.exp(1j * positions[..., None, None] * rates)
    wide[..., first], wide[..., second] = pairs.real, pairs.imag
    return wide.astype(x.dtype)


def found_by_rope(x: Array, *positions: Array, **options: Any) -> list[Array]:
    def function(x: Any, *positions: Any) -> Any:
        return poot.nn.rope(x, *positions, **options)

    return leaves([function(x, *positions), poot.jit(function)(x, *positions)])


@each_float
@pytest.mark.parametrize("interleaved", [False, True], ids=["halves", "interleaved"])
def test_rope(dtype: Any, interleaved: bool) -> None:
    x = normal("rope", 2, T, 3, 8, dtype=dtype)
    first, second = (
        (slice(0, 8, 2), slice(1, 8, 2)) if interleaved else (slice(4), slice(4, 8))
    )
    rates = 10_000.0 ** (-np.arange(4) / 4)
    right = turned(x, np.arange(T), rates, first, second)
    for found in found_by_rope(x, interleaved=interleaved):
        assert_close(found, right, 4, floor=1.0)


def test_rope_of_some_dimensions_at_given_positions() -> None:
    x = normal("partial", 2, T, 3, 8)
    positions = np.int32([[0, 3, 1, 4, 9], [7, 0, 2, 5, 100]])
    rates = np.float32([0.5, 0.01])
    right = turned(x, positions, rates, slice(2), slice(2, 4))
    # An angle of 50 is known to 2 ulps of itself.
    options = {"dimensions": 4, "frequencies": rates}
    for found in found_by_rope(x, positions, **options):
        assert_close(found, right, 64, floor=1.0)
        np.testing.assert_array_equal(found[..., 4:], x[..., 4:])
    rates = 500.0 ** (-np.arange(2) / 2)
    right = turned(x, positions[0], rates, slice(2), slice(2, 4))
    for found in found_by_rope(x, positions[0], dimensions=4, theta=500):
        assert_close(found, right, 64, floor=1.0)
    for found in found_by_rope(x, dimensions=0):
        np.testing.assert_array_equal(found, x)


def test_rope_keeps_products_of_equal_distances() -> None:
    q, k = normal("q", 1, 1, 1, 8), normal("k", 1, 1, 1, 8)
    products = [
        float(np.vdot(np.asarray(poot.nn.rope(q, at)), np.asarray(poot.nn.rope(k, by))))
        for at, by in (([5], [2]), ([13], [10]))
    ]
    assert products[0] == pytest.approx(products[1], abs=1e-5)


def test_rope_refuses() -> None:
    x = normal("rope", 2, T, 3, 8)
    with pytest.raises(ShapeError, match="7 dimensions of heads of 8"):
        poot.nn.rope(x, dimensions=7)
    with pytest.raises(ShapeError, match=r"positions have shape \(4,\)"):
        poot.nn.rope(x, np.arange(4))
    with pytest.raises(ShapeError, match=r"take \(4,\)"):
        poot.nn.rope(x, frequencies=np.ones(3, np.float32))
    with pytest.raises(ShapeError, match="takes floats of shape"):
        poot.nn.rope(np.int32([1, 2]))
    with pytest.raises(DTypeError, match="positions are bools"):
        poot.nn.rope(x, np.ones(T, bool))
