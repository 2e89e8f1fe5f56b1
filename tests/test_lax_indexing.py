"""lax's gathers, scatters and updates of blocks against JAX's, eager and jitted."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import poot
from poot import lax
from poot.core.errors import DTypeError, ShapeError
from tests.numerics import assert_close
from tests.numpy_cases import one_backend  # noqa: F401 (a fixture)

pytestmark = pytest.mark.usefixtures("one_backend")

X = np.arange(24, dtype=np.float32).reshape(4, 6)
ROWS = np.array([[3], [0], [-1], [4], [3]], np.int32)
UPDATES = np.arange(30, dtype=np.float32).reshape(5, 6) - 9
WINDOWS = np.array([[1, 2], [9, 0], [3, -3]], np.int32)


def same(text: str, ulps: float = 0, **operands: Any) -> None:
    """An expression of `m`, the module lax, gives the same in both, jitted too."""

    def call(module: Any, operands: dict[str, Any]) -> Any:
        return eval(text, {"m": module, "np": np, **operands})

    wanted = np.asarray(call(jax.lax, operands))
    eager = call(lax, operands)
    jitted = poot.jit(lambda given: call(lax, given))(operands)
    for found in (eager, jitted):
        assert_close(np.asarray(found), wanted, ulps, text)


@pytest.mark.parametrize(
    "mode", ["'clip'", "'fill'", "None", "m.GatherScatterMode.CLIP"]
)
def test_gather(mode: str) -> None:
    rows = f"m.GatherDimensionNumbers((1,), (0,), (0,)), (1, 6), mode={mode}"
    same(f"m.gather(x, i, {rows})", x=X, i=ROWS)
    same(f"m.gather(x, i, {rows}, fill_value=-2.0)", x=X, i=ROWS)
    blocks = f"m.GatherDimensionNumbers((1, 2), (), (0, 1)), (2, 3), mode={mode}"
    same(f"m.gather(x, i, {blocks})", x=X, i=WINDOWS)
    batch = (
        "m.GatherDimensionNumbers((), (1,), (1,), operand_batching_dims=(0,), "
        f"start_indices_batching_dims=(0,)), (1, 1), mode={mode}"
    )
    same(f"m.gather(x, i, {batch})", x=X, i=np.arange(12).reshape(4, 3, 1) % 7)


@pytest.mark.parametrize("mode", ["'clip'", "'drop'", "None"])
@pytest.mark.parametrize("name", ["scatter_add", "scatter_min", "scatter_max"])
def test_scatter(name: str, mode: str) -> None:
    rows = f"m.ScatterDimensionNumbers((1,), (0,), (0,)), mode={mode}"
    same(f"m.{name}(x, i, y, {rows})", x=X, i=ROWS, y=UPDATES)
    blocks = f"m.ScatterDimensionNumbers((1, 2), (), (0, 1)), mode={mode}"
    updates = np.arange(18, dtype=np.float32).reshape(3, 2, 3)
    same(f"m.{name}(x, i, y, {blocks})", x=X, i=WINDOWS, y=updates)


def test_kinds_of_scatter() -> None:
    rows = "m.ScatterDimensionNumbers((1,), (0,), (0,))"
    once = ROWS[:4]
    for name in ("scatter", "scatter_mul", "scatter_sub"):
        same(f"m.{name}(x, i, y, {rows})", x=X, i=once, y=UPDATES[:4])
    promises = "indices_are_sorted=True, unique_indices=True"
    same(f"m.scatter_add(x, i, y, {rows}, {promises})", x=X, i=ROWS[1:2], y=UPDATES[:1])


def test_updates_of_blocks() -> None:
    block = np.full((2, 3), -1, np.float32)
    for start in ((1, 2), (9, 9), (-1, -2), (-9, 0)):
        same(
            "m.dynamic_update_slice(x, y, (a, b))",
            x=X,
            y=block,
            a=np.int32(start[0]),
            b=np.int32(start[1]),
        )
        same(f"m.dynamic_update_slice(x, y, {start})", x=X, y=block)
    same("m.dynamic_update_slice(x, y, np.array([1, 3]))", x=X, y=block)
    same(
        "m.dynamic_update_slice_in_dim(x, y, i, 1)", x=X, y=X[:, :2] * 0, i=np.int32(5)
    )
    same("m.dynamic_update_index_in_dim(x, y, i, 0)", x=X, y=X[0] * 0, i=np.int32(-1))
    same("m.dynamic_update_index_in_dim(x, y, 2, -1)", x=X, y=X[:, :1] * 0)
    same("m.dynamic_update_index_in_dim(x, y, 2, -1)", x=X, y=X[:, 0] * 0)
    same(
        "m.index_take(x, (a, b), (0, 1))", x=X, a=np.array([3, 5]), b=np.array([0, -1])
    )


def test_errors_say_what_is_taken() -> None:
    rows = lax.GatherDimensionNumbers((1,), (0,), (0,))
    with pytest.raises(ShapeError, match="takes one an axis"):
        lax.gather(X, ROWS, rows, (1,))
    with pytest.raises(ShapeError, match=r"window has size 7 .* takes 0\.\.6"):
        lax.gather(X, ROWS, rows, (1, 7))
    with pytest.raises(ShapeError, match="a place for each"):
        lax.gather(X, WINDOWS, rows, (1, 6))
    with pytest.raises(DTypeError, match="takes integers"):
        lax.gather(X, ROWS.astype(np.float32), rows, (1, 6))
    dims = lax.ScatterDimensionNumbers((1,), (0,), (0,))
    with pytest.raises(DTypeError, match="dtypes must be equal"):
        lax.scatter(X, ROWS, UPDATES.astype(np.int32), dims)
    with pytest.raises(ShapeError, match="around the window axes"):
        lax.scatter(X, ROWS, UPDATES[:3], dims)
    with pytest.raises(ShapeError, match="an update of size 5 along axis 0"):
        lax.dynamic_update_slice(X, UPDATES, (0, 0))
    with pytest.raises(DTypeError, match="given bool"):
        lax.scatter_add(X > 1, ROWS, UPDATES > 1, dims)
