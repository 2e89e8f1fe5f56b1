"""Reductions under moving windows: kernels, and lax.reduce_window against JAX."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

import poot
from poot import lax
from poot.core.errors import ArgumentError, DTypeError, LimitError, ShapeError
from poot.core.ops.window import ReduceWindow, WindowOp
from poot.interpreters.backend import use_backend
from poot.interpreters.backend_oracle import OracleBackend
from tests.backends import device_backend
from tests.kernel_harness import assert_exact, device, one_op, plan_graph
from tests.numerics import assert_same_bits, rng_of

on_device = pytest.mark.skipif(device_backend() is None, reason="no Vulkan device")
F32 = np.float32


@pytest.fixture(autouse=True)
def one_backend() -> Iterator[None]:
    use_backend(device_backend() or OracleBackend())
    yield
    use_backend(None)


def whole(name: str, shape: tuple[int, ...], dtype: Any = F32) -> Any:
    return rng_of(name).integers(-5, 6, shape).astype(dtype)


def square(op: WindowOp, window: int, stride: int, pad: int) -> ReduceWindow:
    return ReduceWindow(
        op, (window,) * 2, (stride,) * 2, ((pad, pad),) * 2, (1, 1), (1, 1)
    )


@on_device
@pytest.mark.parametrize("generic", [False, True], ids=["static", "generic"])
@pytest.mark.parametrize("dtype", [F32, np.int8, ml_dtypes.bfloat16])
def test_large_windows_go_axis_by_axis(dtype: Any, generic: bool) -> None:
    x = whole("large", (31, 37), dtype)
    for op in (WindowOp.SUM, WindowOp.MAX):
        graph = one_op(square(op, 11, 3, 5), x)
        assert len(plan_graph(graph, generic=generic).dispatches) == 2
        assert_exact(graph, [x], generic=generic)


@on_device
def test_small_windows_are_one_launch() -> None:
    x = whole("small", (31, 37))
    assert len(plan_graph(one_op(square(WindowOp.MIN, 3, 2, 1), x)).dispatches) == 1


@on_device
def test_a_window_beyond_the_loop_limit_is_refused() -> None:
    limit = device().info.max_loop_trips
    if limit is None:
        pytest.skip("no loop limit")
    op = ReduceWindow(WindowOp.SUM, (limit + 1,), (1,), ((limit, 0),), (1,), (1,))
    with pytest.raises(LimitError, match=str(limit)):
        plan_graph(one_op(op, np.ones(8, F32)))


@on_device
def test_any_layout_is_read() -> None:
    x = poot.device_put(rng_of("layout").normal(size=(9, 14)).astype(F32))

    def f(x: Any) -> Any:
        return lax.reduce_window(x.T[1::2], 0.0, lax.add, (3, 2), None, "SAME")

    assert_same_bits(poot.jit(f)(x), np.asarray(f(x)))


CASES = [
    ((3, 2), None, "VALID", None, None),
    ((2, 3), (2, 1), "SAME", None, None),
    ((2, 4), (1, 3), "SAME_LOWER", None, (2, 1)),
    ((2, 2), (1, 2), ((1, 0), (0, 3)), (2, 3), (1, 2)),
    ((1, 9), None, ((0, 0), (8, 0)), None, None),
]


@pytest.mark.parametrize("name", ["add", "mul", "max", "min"])
@pytest.mark.parametrize("rest", CASES, ids=str)
def test_as_in_jax(rest: tuple[Any, ...], name: str) -> None:
    x = whole(f"{rest}", (5, 9))
    for start in (F32(0), F32(2), {"max": -np.inf, "min": np.inf}.get(name, 1.0)):
        right = jax.lax.reduce_window(x, start, getattr(jax.lax, name), *rest)
        found = lax.reduce_window(x, start, getattr(lax, name), *rest)
        assert_same_bits(found, np.asarray(right), f"{name} from {start}")


def test_shapes() -> None:
    given = ((5, 9), (2, 3), (2, 1), ((1, 0), (0, 2)), (2, 1), (1, 2))
    assert lax.reduce_window_shape_tuple(*given) == (
        jax.lax.reduce_window_shape_tuple(*given)
    )
    for kind, stride in itertools.product(("VALID", "SAME", "SAME_LOWER"), (1, 2, 3)):
        one = ((7, 8), (2, 5), (stride, stride), kind)
        assert lax.padtype_to_pads(*one) == list(jax.lax.padtype_to_pads(*one))


def test_windows_of_nothing() -> None:
    assert lax.reduce_window(F32(3), 0.0, lax.add, ()).item() == 3
    empty = lax.reduce_window(np.ones(2, F32), 0.0, lax.add, (3,))
    assert empty.shape == (0,)
    padded = lax.reduce_window(np.ones(0, F32), 0.0, lax.add, (2,), None, ((2, 1),))
    np.testing.assert_array_equal(np.asarray(padded), [0, 0])


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: lax.reduce_window(np.ones(3, F32), 0.0, lax.sub, (2,)),
            ArgumentError,
            "not known to be associative",
        ),
        (
            lambda: lax.reduce_window(np.ones(3, F32), 0.0, lax.add, (2, 2)),
            ShapeError,
            "axes",
        ),
        (
            lambda: lax.reduce_window(np.ones(3, F32), 0.0, lax.add, (0,)),
            ShapeError,
            "takes 1 or more",
        ),
        (
            lambda: lax.reduce_window(
                np.ones(3, F32), 0.0, lax.add, (2,), None, ((-2, -2),)
            ),
            ShapeError,
            "negative",
        ),
        (
            lambda: lax.reduce_window(np.ones(3, bool), False, lax.add, (2,)),
            DTypeError,
            "reduce_window sum",
        ),
        (
            lambda: lax.reduce_window(np.ones(3, F32), np.ones(1, F32), lax.max, (2,)),
            ShapeError,
            "scalar",
        ),
        (
            lambda: lax.reduce_window(
                np.ones(3, F32), 0.0, lax.add, (2,), None, "FULL"
            ),
            ArgumentError,
            "SAME_LOWER",
        ),
    ],
)
def test_refusals(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize(
    ("window", "strides", "padding"),
    [
        ((1, 2, 2), (1, 2, 2), "VALID"),
        ((2, 3, 2), (2, 3, 2), ((1, 0), (1, 1), (0, 2))),
        ((1, 3, 2), (1, 2, 2), "SAME"),
    ],
    ids=["tiles", "padded tiles", "over each other"],
)
def test_slope_of_a_maximum(window: Any, strides: Any, padding: Any) -> None:
    """It goes to the first of equal ones, as in JAX; where windows tile, no scatter."""
    x = whole(f"{window} {padding}", (3, 7, 9)) // 3

    def weighted(library: Any) -> Any:
        def function(x: Any) -> Any:
            start, extremum = F32(-np.inf), library.lax.max
            y = library.lax.reduce_window(x, start, extremum, window, strides, padding)
            return (y * np.arange(y.size, dtype=F32).reshape(y.shape)).sum()

        return library.grad(function)

    right = np.asarray(weighted(jax)(x))
    for mode in (weighted(poot), poot.jit(weighted(poot))):
        assert_same_bits(np.asarray(mode(x)), right, "slopes")
    text = str(poot.make_graph(weighted(poot))(x))
    assert ("scatter" in text) == (window != strides)
