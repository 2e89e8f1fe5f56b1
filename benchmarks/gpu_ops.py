"""poot's sorts, scans, scatters and products on a GPU beside `jax.numpy`'s, in one run.

    python benchmarks/gpu_ops.py

Medians over calls that are warmed up for at least half a second; results are checked.
JAX runs on the same card if its CUDA plugin is installed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import ml_dtypes
import numpy as np

import poot
from gpu import copy_ceiling, seconds
from poot.interpreters.backend import backend

ELEMENTS = 1 << 20
SCANNED = 1 << 28
SIDE = 4096


def in_poot(function: Callable[..., Any], *arrays: np.ndarray) -> Callable[[], Any]:
    """A jitted call on arrays that are on the device."""
    jitted = poot.jit(function)
    placed = [poot.device_put(array) for array in arrays]
    return lambda: jitted(*placed)


def in_jax(function: Callable[..., Any], *arrays: np.ndarray) -> Callable[[], Any]:
    """The same with JAX."""
    jitted = jax.jit(function)
    placed = [jax.device_put(array) for array in arrays]
    return lambda: jitted(*placed)


def timed(call: Callable[[], Any]) -> float:
    """Median seconds of a call, many of them in flight."""
    return seconds(lambda: call().block_until_ready)


def report(name: str, mine: float, theirs: float) -> None:
    print(
        f"{name:28} poot {mine * 1e6:9.1f} us, JAX {theirs * 1e6:9.1f} us: "
        f"{theirs / mine:.2f} of JAX's speed"
    )


def sort() -> None:
    """Ascending, of floats, integers and rows."""
    rng = np.random.default_rng(0)
    flat = rng.standard_normal(ELEMENTS, dtype=np.float32)
    for name, x in (
        ("sort 2^20 f32", flat),
        ("sort 2^20 i32", rng.integers(-(1 << 31), 1 << 31, ELEMENTS, np.int32)),
        ("sort 2^24 f32", rng.standard_normal(16 * ELEMENTS, dtype=np.float32)),
        ("sort 1024 x 1024 f32", flat.reshape(1024, 1024)),
    ):
        mine, theirs = in_poot(poot.numpy.sort, x), in_jax(jax.numpy.sort, x)
        np.testing.assert_array_equal(np.asarray(mine()), np.sort(x))
        report(name, timed(mine), timed(theirs))


def cumsum() -> None:
    """Of floats that add up exactly, as a share of the copy ceiling too."""
    x = np.random.default_rng(0).integers(-5, 6, SCANNED).astype(np.float32)
    mine = in_poot(poot.lax.cumsum, x)
    right = np.cumsum(x, dtype=np.float64).astype(np.float32)
    np.testing.assert_array_equal(np.asarray(mine()), right)
    ceiling, kernel = copy_ceiling(backend().device)
    taken = timed(mine)
    rate = 2 * x.nbytes / taken / 1e12
    report("cumsum 2^28 f32", taken, timed(in_jax(jax.numpy.cumsum, x)))
    print(
        f"{'':28} {rate:.3f} TB/s, {rate / ceiling:.2f} of the copy ceiling of "
        f"{ceiling:.3f} ({kernel})"
    )


def matmul(side: int = SIDE) -> None:
    """Of small whole numbers, whose sums are exact in f32."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, (side, side)).astype(np.float32) for _ in range(2))
    right = a.astype(np.float64) @ b.astype(np.float64)
    for name, dtype in (("f32", np.float32), ("bf16", ml_dtypes.bfloat16)):
        x, y = a.astype(dtype), b.astype(dtype)
        mine = in_poot(poot.numpy.matmul, x, y)
        np.testing.assert_array_equal(np.asarray(mine()), right.astype(dtype))
        theirs = in_jax(in_f32, x, y)
        taken = timed(mine)
        report(f"matmul {side}^3 {name}", taken, timed(theirs))
        print(f"{'':28} {2 * side**3 / taken / 1e12:.2f} TFLOP/s")


def in_f32(a: Any, b: Any) -> Any:
    """JAX's product in full precision, as poot's always is."""
    return jax.numpy.matmul(a, b, precision="highest")


def scatter() -> None:
    """Rows of 128 f32 added up by index, and the same with other dtypes and widths."""
    rng = np.random.default_rng(0)
    for name, count, rows, width, dtype in (
        ("scatter-add 2^20 x 128 f32", ELEMENTS, 1 << 16, 128, np.float32),
        ("scatter-add 2^20 x 128 f16", ELEMENTS, 1 << 16, 128, np.float16),
        ("scatter-add 2^20 x 1 f32", ELEMENTS, 1 << 16, 1, np.float32),
        ("scatter-add 2^20 to one row", ELEMENTS, 1, 16, np.float32),
    ):
        index = rng.integers(0, rows, count).astype(np.int32)
        # Whole numbers, so that sums are exact in any order.
        values = rng.integers(0, 3, (count, width)).astype(dtype)

        def add(
            module: Any, index: Any, values: Any, shape: Any = (rows, width)
        ) -> Any:
            return module.zeros(shape, values.dtype).at[index].add(values)

        mine = in_poot(functools.partial(add, poot.numpy), index, values)
        theirs = in_jax(functools.partial(add, jax.numpy), index, values)
        right = np.zeros((rows, width), np.float64)
        np.add.at(right, index, values.astype(np.float64))
        np.testing.assert_array_equal(np.asarray(mine()), right.astype(dtype))
        report(name, timed(mine), timed(theirs))


def main() -> None:
    print(poot.devices()[0], "and JAX on", jax.devices()[0])
    sort()
    cumsum()
    matmul()
    scatter()


if __name__ == "__main__":
    main()
