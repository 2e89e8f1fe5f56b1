"""Arrays at the ends of what is usual: very large ones, and ones without elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import poot
from tests.backends import each_backend  # noqa: F401 (a fixture)


def chain(x: Any) -> Any:
    return x * 2 + 1


@pytest.mark.parametrize("run", [poot.jit(chain), chain], ids=["jit", "eager"])
def test_160_megabytes(run: Any) -> None:
    """More than the storage-buffer range of some drivers."""
    x = np.arange(40_000_000, dtype=np.float32)
    assert x.nbytes == 160_000_000
    np.testing.assert_array_equal(run(poot.device_put(x)), x * 2 + 1)


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
@pytest.mark.parametrize("run", [poot.jit(chain), chain], ids=["jit", "eager"])
def test_more_elements_than_one_axis_of_a_grid_holds(run: Any, dtype: Any) -> None:
    x = (np.arange(65536 * 256 + 1) % 100).astype(dtype)
    np.testing.assert_array_equal(run(poot.device_put(x)), x * 2 + 1)
    backwards = poot.jit(lambda x: x[::-1])(x)
    np.testing.assert_array_equal(backwards, x[::-1])


@pytest.mark.usefixtures("each_backend")
@pytest.mark.parametrize("shape", [(0,), (0, 4), (3, 0), (2, 0, 3)], ids=str)
def test_arrays_without_elements(shape: tuple[int, ...]) -> None:
    def work(x: Any) -> list[Any]:
        jnp = poot.numpy
        return [
            x * 2 + 1,
            x.T,
            x.sum(),
            x.sum(axis=-1),
            jnp.exp(x).prod(axis=0),
            jnp.concatenate([x, x]),
            x[..., None] @ x[..., None, :],
            (x > 0).any(),
            jnp.broadcast_to(x, (2, *shape)),
        ]

    x = np.zeros(shape, np.float32)
    expected = [
        x * 2 + 1,
        x.T,
        x.sum(),
        x.sum(axis=-1),
        np.exp(x).prod(axis=0),
        np.concatenate([x, x]),
        x[..., None] @ x[..., None, :],
        (x > 0).any(),
        np.broadcast_to(x, (2, *shape)),
    ]
    for run in (work, poot.jit(work)):
        for result, right in zip(run(poot.device_put(x)), expected, strict=True):
            assert result.dtype == right.dtype
            np.testing.assert_array_equal(result, right)
