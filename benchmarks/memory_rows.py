"""Rows that memory bounds: what moves, gathers, reduces and accumulates 512 MB."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from row import Row, of_arrays, tera

ELEMENTS = 1 << 27
SIDE = 1 << 14
ROWS, COLUMNS = 1 << 15, 1 << 12
# f32 that make 256 bytes, the shortest rows that a gather moves at the rate of a copy.
SHORT = 64
BF16 = np.dtype(ml_dtypes.bfloat16)
# Elements that are compared: the first and the last ones of a result.
_COMPARED = 1 << 16


def memory_rows() -> Iterator[Row]:
    """Rows whose functions take NumPy, or what stands for it in a library."""
    flat = partial(_uniform, ELEMENTS)
    matrix = partial(_uniform, ROWS, COLUMNS)
    yield _row("add f32 2^27", lambda np, x, y: x + y, flat, flat, moved=3)
    yield _row(
        f"bias and relu bf16 {ROWS}x{2 * COLUMNS}",
        lambda np, x, b: np.maximum(x + b, np.zeros((), b.dtype)),
        partial(_uniform, ROWS, 2 * COLUMNS, dtype=BF16),
        partial(_uniform, 2 * COLUMNS, dtype=BF16),
    )
    yield from _moving()
    yield _row("sum f32 2^27", lambda np, x: np.sum(x), flat, moved=1)
    for axis in (0, 1):
        yield _row(
            f"sum f32 {ROWS}x{COLUMNS} over axis {axis}",
            lambda np, x, axis=axis: np.sum(x, axis=axis),
            matrix,
            moved=1,
        )
    yield _row(
        "max f32 128x1024x1024 over axis 1",
        lambda np, x: np.max(x, axis=1),
        partial(_uniform, 128, 1024, 1024),
        moved=1,
    )
    yield _row(
        f"argmax f32 {ROWS}x{COLUMNS}",
        lambda np, x: np.argmax(x, axis=1),
        matrix,
        moved=1,
    )
    yield _row("cumsum f32 2^27", lambda np, x: np.cumsum(x), flat)
    for axis in (0, 1):
        yield _row(
            f"cumsum f32 {ROWS}x{COLUMNS} over axis {axis}",
            lambda np, x, axis=axis: np.cumsum(x, axis=axis),
            matrix,
        )


def _moving() -> Iterator[Row]:
    for name, dtype in (("f32", np.dtype(np.float32)), ("bf16", BF16)):
        columns = SIDE * 2 // dtype.itemsize
        yield _row(
            f"transpose {name} {SIDE}x{columns}",
            lambda np, x: np.transpose(x),
            partial(_uniform, SIDE, columns, dtype=dtype),
        )
    yield _row(
        "transpose f32 32x2048x16x128 of heads",
        lambda np, x: np.transpose(x, (0, 2, 1, 3)),
        partial(_uniform, 32, 2048, 16, 128),
    )
    for columns in (SHORT, 16 * SHORT):
        count = ELEMENTS // columns
        yield _row(
            f"gather of rows f32 of {4 * columns} bytes",
            lambda np, x, i: np.take(x, i, axis=0, mode="clip"),
            partial(_uniform, count, columns),
            partial(_permutation, count),
        )


def _uniform(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng().random(shape, np.float32).astype(dtype)


def _permutation(count: int) -> np.ndarray:
    return np.random.default_rng().permutation(count).astype(np.int32)


def _row(
    name: str,
    function: Callable[..., Any],
    *makers: Callable[[], np.ndarray],
    moved: int = 2,
) -> Row:
    """A row of calls that move so many times the bytes of the first array."""

    def make() -> list[np.ndarray]:
        return [maker() for maker in makers]

    def check(arrays: list[np.ndarray], got: Any) -> None:
        # NumPy sums columns one after another, which f32 cannot hold.
        wide = [a.astype(np.float64) if a.dtype == np.float32 else a for a in arrays]
        _check(arrays, np.asarray(got), function(np, *wide))

    started = of_arrays(
        lambda library, *given: function(library.numpy, *given), make, check
    )
    return Row(name, "TB/s", started, tera(moved * 4 * ELEMENTS))


def _check(arrays: list[np.ndarray], found: Any, right: Any) -> None:
    """The first elements and the last, as close as f32's or bf16's sums are."""
    found, right = np.reshape(found, -1), np.reshape(right, -1)
    assert found.size == right.size
    for part in (slice(None, _COMPARED), slice(-_COMPARED, None)):
        np.testing.assert_allclose(
            found[part].astype(np.float64),
            right[part].astype(np.float64),
            rtol=1e-2 if arrays[0].dtype == BF16 else 2e-3,
        )
