"""Traps of shapes, indices, reductions and products; data/traps.txt has the list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import lax
from poot.core import dtypes
from poot.core.dtypes import DType
from poot.core.errors import ShapeError
from poot.interpreters.backend import backend
from poot.lowering.compile import lower, plan
from tests import trap_executors
from tests.backends import device_backend
from tests.kernel_harness import assert_exact
from tests.numerics import Array
from tests.trap_executors import (
    INF,
    INTEGERS,
    NAN,
    array,
    check,
    each_float,
    f32,
    i32,
    need,
)
from tests.vulkan_isolation import run_isolated

on_device = trap_executors.on_device
pytestmark = pytest.mark.usefixtures("on_device")

each_half = pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=str)


# --- logsumexp, softmax -----------------------------------------------------


def softmax(x: Any) -> Any:
    e = jnp.exp(x - jnp.max(x, -1, keepdims=True))
    return e / jnp.sum(e, -1, keepdims=True)


def logsumexp(x: Any) -> Any:
    most = jnp.max(x, -1, keepdims=True, initial=-INF)
    shift = jnp.where(jnp.isfinite(most), most, 0)
    return jnp.log(jnp.sum(jnp.exp(x - shift), -1)) + jnp.squeeze(shift, -1)


@each_float
def test_logsumexp_and_softmax_with_inf(dtype: DType) -> None:
    """A row that is masked altogether gives NaN, composed as it is here."""
    need(dtype)
    rows = array([[-INF] * 3, [0, -INF, 0], [INF, 0, 0], [-INF, -INF, 5]], dtype)
    nan = [NAN] * 3
    right = array([nan, [0.5, 0, 0.5], nan, [0, 0, 1]], dtype)
    check(softmax, rows, right=right)
    pair = array([[-INF, -INF], [INF, 0], [-INF, 0], [3, -INF]], dtype)
    sums = array([-INF, INF, 0, 3], dtype)
    check(logsumexp, pair, right=sums)
    check(lambda x: jnp.logaddexp(x[:, 0], x[:, 1]), pair, right=sums)


@each_float
def test_size_0_softmax_prod_jvp(dtype: DType) -> None:
    need(dtype)
    none = np.zeros((3, 0), dtype.numpy)
    check(logsumexp, none, right=array([-INF] * 3, dtype))
    check(lambda x: softmax(x.T), none, right=none.T.copy())
    check(
        lambda x: (jnp.prod(x, 1), jnp.sum(x, 1), jnp.max(x, 1, initial=7)),
        none,
        right=tuple(array([v] * 3, dtype) for v in (1, 0, 7)),
    )
    for call in (jnp.max, jnp.min, softmax):
        for function in (call, poot.jit(call)):
            with pytest.raises(ValueError, match="empty"):
                function(none)


# --- indices ----------------------------------------------------------------

P = f32(1, 2, 3, 4)
BEYOND = i32(4, 9, -1, -4, -5)


def test_out_of_bounds_and_negative_indices() -> None:
    """jax.numpy.take by "clip" takes element 0 for all negative indices."""
    clipped, filled = f32(4, 4, 4, 1, 1), f32(NAN, NAN, 4, 1, NAN)
    check(
        lambda p, i: (p[i], jnp.take(p, i, mode="clip")),
        P,
        BEYOND,
        right=(clipped, clipped),
    )
    check(lambda p, i: jnp.take(p, i), P, BEYOND, right=filled)
    check(
        lambda p, i: jnp.take(p, i, mode="fill", fill_value=-7.0),
        P,
        BEYOND,
        right=f32(-7, -7, 4, 1, -7),
    )
    whole = i32(1, 2, 3, 4)
    lowest = np.iinfo(np.int32).min
    check(
        lambda p, i: jnp.take(p, i),
        whole,
        BEYOND,
        right=i32(lowest, lowest, 4, 1, lowest),
    )


def test_updates_out_of_bounds_are_dropped() -> None:
    """The last of several wins, and negative indices count from the end."""
    zeros, index = f32(0, 0, 0, 0), i32(4, 1, -1)
    check(lambda x, i: x.at[i].add(1.0), zeros, index, right=f32(0, 1, 0, 1))
    check(
        lambda x, i: x.at[i].add(1.0, mode="clip"),
        zeros,
        i32(9, 1, -9),
        right=f32(1, 1, 0, 1),
    )
    check(
        lambda x, i: (
            x.at[i].set(f32(5, 6, 7, 8, 9)),
            x.at[i].set(f32(5, 6, 7, 8, 9), wrap_negative_indices=False),
            x.at[i].get(mode="fill", fill_value=-7.0),
            x.at[i].get(),
        ),
        P,
        BEYOND,
        right=(f32(8, 2, 3, 7), P, f32(-7, -7, 4, 1, -7), f32(4, 4, 4, 1, 1)),
    )
    check(
        lambda x, i: (x.at[i[0]].set(9.0), x.at[i[2]].set(9.0), x.at[7].set(9.0)),
        P,
        BEYOND,
        right=(P, f32(1, 2, 3, 9), P),
    )


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_indices_of_every_dtype_stay_in_bounds(dtype: DType) -> None:
    need(dtype)
    info = np.iinfo(dtype.numpy)
    index = np.array([info.max, info.max - 1, 0, 3, info.min], dtype.numpy)
    low = NAN if dtype.is_signed else 1.0
    rows = np.stack([P, -P], 1)
    check(
        lambda p, i: (p[i], jnp.take(p, i, 0), p.at[i].add(1.0), p.at[i, i].get()),
        rows,
        index,
        right=(
            rows[[3, 3, 0, 3, 0]],
            np.stack([f32(NAN, NAN, 1, 4, low), f32(NAN, NAN, -1, -4, -low)], 1),
            rows + f32(2 - dtype.is_signed, 0, 0, 1)[:, None],
            rows[[3, 3, 0, 3, 0], [1, 1, 0, 1, 0]],
        ),
    )


def test_slices_at_data_dependent_places_are_clamped() -> None:
    x = np.arange(20, dtype=np.float32).reshape(4, 5)
    for start, (row, column) in {
        (9, 9): (2, 2),
        (-9, -1): (0, 2),
        (1, -5): (1, 0),
        (2**31 - 1, -(2**31)): (2, 0),
    }.items():
        check(
            lambda x, a, b: lax.dynamic_slice(x, (a, b), (2, 3)),
            x,
            *(np.array(v, np.int32) for v in start),
            right=x[row : row + 2, column : column + 3],
        )
    index = np.array([[0, -1, 5, -6], [4, 4, -5, 9]], np.int32)
    taken = np.array([[0, 4, NAN, NAN], [9, 9, 5, NAN]], np.float32)
    check(lambda x, i: jnp.take_along_axis(x, i, 1), x[:2], index, right=taken)


# --- axes without elements --------------------------------------------------


@each_float
def test_size_0_dimensions(dtype: DType) -> None:
    need(dtype)
    empty, other = np.zeros((3, 0), dtype.numpy), np.zeros((0, 4), dtype.numpy)
    check(jnp.matmul, empty, other, right=np.zeros((3, 4), dtype.numpy))
    check(
        lambda x: (jnp.sum(x), jnp.prod(x), jnp.mean(x), jnp.sum(x, 0)),
        empty,
        right=(*(array(v, dtype) for v in (0, 1, NAN)), empty[0]),
    )
    check(
        lambda x, y: (
            jnp.concatenate([x, y], 1),
            jnp.reshape(x, (0, 2)),
            x + 1,
            x[:, :, None] @ x[:, None],
            jnp.max(x, 0),
            jnp.pad(x, ((0, 0), (1, 1)), constant_values=2),
        ),
        empty,
        array([[1, 2]] * 3, dtype),
        right=(
            array([[1, 2]] * 3, dtype),
            empty.reshape(0, 2),
            empty,
            np.zeros((3, 0, 0), dtype.numpy),
            empty[0],
            array([[2, 2]] * 3, dtype),
        ),
    )
    check(
        lambda x: (jnp.all(x == 0), jnp.any(x == 0)),
        empty,
        right=(np.array(True), np.array(False)),
    )


def test_positions_in_axes_without_elements_are_refused() -> None:
    empty = np.zeros((3, 0), np.float32)
    calls: list[Callable[[Any], Any]] = [
        jnp.argmax,
        jnp.argmin,
        lambda x: jnp.argmax(x, 1),
        lambda x: lax.reduce_min(x, (1,)),
    ]
    for call in calls:
        for function in (call, poot.jit(call)):
            with pytest.raises(ShapeError, match="empty"):
                function(empty)
    check(lambda x: jnp.argmax(x, 0), empty, right=np.zeros(0, np.int32))


# --- many workgroups --------------------------------------------------------


def test_more_than_65535_workgroups() -> None:
    """As many elements as would do at one an invocation, and grids that must fold."""
    count = 65536 * 256 + 1
    x = np.arange(count, dtype=np.int32)
    check(lambda x: x + 1, x, right=x + 1, fused=False)
    x = np.arange(70_001, dtype=np.int32)
    graph = poot.make_graph(lambda x: x + 1)(x)
    for limits in ((7, 65535, 65535), (7, 3, 65535)):
        profile = {"max_workgroup_count": limits}
        info = backend().info.masked(**profile)
        (launch,) = plan(lower(graph, info).graph, info).dispatches
        assert launch.grid[1] > 1 and (launch.grid[2] > 1) == (limits[1] == 3)
        assert_exact(lower(graph, info).graph, [x], profile)


def test_batches_of_more_than_65535() -> None:
    rng = np.random.default_rng(7)
    a = rng.integers(-3, 4, (70_000, 2, 3)).astype(np.float32)
    b = rng.integers(-3, 4, (70_000, 3, 2)).astype(np.float32)
    check(
        lambda a, b: (a @ b, jnp.sum(a, 2), jnp.max(b, 1)),
        a,
        b,
        right=(a @ b, a.sum(2), b.max(1)),
    )


# --- products ---------------------------------------------------------------

SIZES = (1, 2, 15, 16, 17, 63, 64, 65, 127, 129, 576)


def small(rng: Any, shape: tuple[int, ...], dtype: DType) -> Array:
    return rng.integers(-3, 4, shape).astype(dtype.numpy)


def product(a: Array, b: Array) -> Array:
    wide = np.matmul(a.astype(np.float64), b.astype(np.float64))
    return wide.astype(a.dtype)


def assert_product(dtype: DType, m: int, n: int, k: int, turned: bool) -> None:
    rng = np.random.default_rng(m * 1000 + n)
    a, b = small(rng, (m, k), dtype), small(rng, (k, n), dtype)
    right = poot.device_put(np.ascontiguousarray(b.T)).T if turned else b
    found = np.asarray(poot.device_put(a) @ right)
    np.testing.assert_array_equal(found, product(a, b), f"{m} {n} {k}")


def test_matmul_sizes_that_do_not_divide_the_tile() -> None:
    """Each pair of sizes for M and N, K another one each time; operands turned too."""
    count = len(SIZES)
    for i, m in enumerate(SIZES):
        for j, n in enumerate(SIZES):
            k = SIZES[(i + 2 * j) % count]
            if m * n * k < 200**3:
                assert_product(dtypes.float32, m, n, k, turned=j % 2 == 1)


@each_half
def test_matmul_sizes_in_16_bits(dtype: DType) -> None:
    """Each size once for M, for N and for K."""
    count = len(SIZES)
    for i, m in enumerate(SIZES):
        n, k = SIZES[(2 * i + 1) % count], SIZES[(3 * i + 2) % count]
        assert_product(dtype, m, n, k, turned=i % 2 == 1)


TURNED = ((17, 129, 63), (65, 15, 127), (1, 2, 576))


@pytest.mark.parametrize("sizes", TURNED, ids=str)
def test_matmul_of_turned_cut_and_batched_operands(sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    rng = np.random.default_rng(m)
    a, b = small(rng, (m, k), dtypes.float32), small(rng, (k, n), dtypes.float32)
    # Two begin at an odd offset of elements, two have batches that stand apart.
    wide, batch = np.concatenate([b[:, :1], b], 1), np.stack([a, -a, a + 1])
    check(
        lambda a, b, wide, batch: (
            a.T @ b,
            a.T @ wide[:, 1:],
            batch[::2] @ b,
            b.T @ batch[1].T,
        ),
        a.T.copy(),
        b,
        wide,
        batch,
        right=(
            product(a, b),
            product(a, b),
            product(batch[::2], b),
            np.ascontiguousarray(-product(a, b).T) + 0,
        ),
        fused=False,
    )


MARGINS = ((17, 65, 15), (1, 63, 129), (65, 1, 2), (129, 17, 16))


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16], ids=str)
@pytest.mark.parametrize("sizes", MARGINS, ids=str)
def test_matmul_leaves_its_margins_alone(
    sizes: tuple[int, int, int], dtype: DType
) -> None:
    """Operands and results stand between guards, which end as they began."""
    m, n, k = sizes
    rng = np.random.default_rng(n)
    a, b = small(rng, (m, k), dtype), small(rng, (k, n), dtype)
    graph = poot.make_graph(jnp.matmul)(a, b)
    chosen = device_backend()
    program = plan(graph, chosen.info)
    (found,) = run_isolated(chosen.device, program, [a, b])
    np.testing.assert_array_equal(found.view(a.dtype).reshape(m, n), product(a, b))


# --- accumulation -----------------------------------------------------------


@each_half
def test_accumulation_precision(dtype: DType) -> None:
    """16-bit sums and contractions are f32 until they end."""
    a, b = (np.full(shape, 16, dtype.numpy) for shape in ((1, 4096), (4096, 1)))
    check(
        lambda a, b: (
            jnp.matmul(a, b, preferred_element_type=np.float32),
            jnp.vdot(a[0], b[:, 0]),
        ),
        a,
        b,
        right=(f32(1048576)[None], array(1048576, dtype)),
    )
    for count in (3000, 60_000, 70_000):
        ones = np.ones((2, count), dtype.numpy)
        check(
            lambda x: (jnp.sum(x, 1), jnp.sum(x.T, 0), jnp.mean(x * 2, 1)),
            ones,
            right=(
                array([count] * 2, dtype),
                array([count] * 2, dtype),
                array([2, 2], dtype),
            ),
        )


def test_means_and_deviations_do_not_overflow() -> None:
    """JAX squares in f16, and its deviation of 300 is inf."""
    half = array([0, 600], dtypes.float16)
    check(jnp.std, half, right=array(300, dtypes.float16))
    high, top = np.iinfo(np.int32).max, np.iinfo(np.uint32).max
    check(jnp.mean, i32(high, high), right=np.float32(2.0**31)[...])
    check(jnp.mean, np.array([top] * 2, np.uint32), right=np.float32(2.0**32)[...])
    check(jnp.mean, np.full(300, 127, np.int8), right=np.float32(127)[...])
    near = f32(1e4, 1e4 + 1, 1e4 + 2)
    check(jnp.var, near, right=np.float32(2 / 3)[...], ulps=1)


def test_positions_and_counts_beyond_what_f32_counts() -> None:
    """They are integers throughout."""
    count = 2**24 + 3

    def positions(last: Any) -> Any:
        found = jnp.arange(count) == last
        return jnp.argmax(found), jnp.count_nonzero(~found)

    last = np.array(count - 1, np.int32)
    check(positions, last, right=(last, last), fused=False)


def test_sums_beyond_what_a_loop_or_f32_counts() -> None:
    """lavapipe ends an invocation after 65535 iterations, and f32 counts to 2**24."""
    for count, ulp in ((131_072, 0), (2**24 + 3, 1), (2**25, 0)):
        one = np.ones((), np.float32)
        check(
            lambda one, count=count: jnp.sum(jnp.broadcast_to(one, (count,))),
            one,
            right=np.array(count, np.float32),
            ulps=ulp,
            reassociates=True,
            fused=False,
        )
    rows = np.ones((2, 131_072), np.float32)
    check(lambda x: jnp.sum(x, 1), rows, right=f32(131_072, 131_072), fused=False)
    a, b = np.ones((1, 70_000), np.float32), np.ones((70_000, 3), np.float32)
    right = np.full((1, 3), 70_000, np.float32)
    check(lambda a, b: (a @ b, b.T @ a.T), a, b, right=(right, right.T), fused=False)


def test_sums_of_many_small_integers_and_bools() -> None:
    """Sums of narrow integers are 32 bits wide, as in JAX."""
    flags = np.ones((3, 300), np.bool_)
    check(
        lambda x: (jnp.sum(x, 1), jnp.sum(x)),
        flags,
        right=(i32(300, 300, 300), np.array(900, np.int32)),
    )
    check(lambda x: jnp.mean(x, 1), flags, right=f32(1, 1, 1))
    for dtype, wide in ((np.int8, np.int32), (np.uint8, np.uint32)):
        x = np.full((2, 70_000), 127, dtype)
        check(lambda x: jnp.sum(x, 1), x, right=np.array([127 * 70_000] * 2, wide))
