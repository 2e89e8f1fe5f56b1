"""Random indices, eager and jitted, against NumPy's; and what lies at the edges."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

import poot
from poot.core.errors import IndexingError
from tests.backends import each_backend  # noqa: F401 (a fixture)

pytestmark = pytest.mark.usefixtures("each_backend")


def random_array(random: Random) -> np.ndarray[Any, Any]:
    shape = tuple(random.choice([0, 1, 2, 3, 5]) for _ in range(random.randint(0, 4)))
    return np.arange(np.prod(shape, dtype=int), dtype=np.int32).reshape(shape)


def random_index(random: Random, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Slices, integers, arrays that broadcast, new axes, an Ellipsis for 0 to all."""
    arrays = random.choice([(), (2,), (3, 1), (1, 2), (0,)])
    kinds = ["slice", "slice", "integer", "array"]
    index: list[Any] = [
        _part(random, random.choice(kinds) if size else "slice", size, arrays)
        for size in shape
    ]
    if random.random() < 0.4:
        first = random.randint(0, len(index))
        index[first : random.randint(first, len(index))] = [Ellipsis]
    for _ in range(random.choice([0, 0, 1, 2])):
        index.insert(random.randint(0, len(index)), None)
    return tuple(index)


def _part(random: Random, kind: str, size: int, arrays: tuple[int, ...]) -> Any:
    if kind == "slice":
        ends = [random.choice([None, random.randint(-7, 7)]) for _ in range(2)]
        return slice(*ends, random.choice([None, 1, 2, -1, -2, 3, -5]))
    if kind == "integer":
        return random.choice([int, np.int32, np.int64])(random.randint(-size, size - 1))
    dtype = random.choice([np.int8, np.int32, np.int64])
    numbers = [
        random.randint(-size, size - 1) for _ in range(np.prod(arrays, dtype=int))
    ]
    return np.array(numbers, dtype).reshape(arrays)


@pytest.mark.parametrize("seed", range(120))
def test_random_indices(seed: int) -> None:
    random = Random(seed)
    x = random_array(random)
    index = random_index(random, x.shape)
    expected = x[index]
    eager = poot.device_put(x)[index]
    assert eager.shape == expected.shape, index
    np.testing.assert_array_equal(eager, expected)
    jitted = poot.jit(lambda v: v[index])(x)
    assert jitted.shape == expected.shape and jitted.dtype == np.int32
    np.testing.assert_array_equal(jitted, expected)


def test_an_ellipsis_parts_index_arrays_even_if_it_stands_for_no_axis() -> None:
    x = np.arange(60, dtype=np.int32).reshape(3, 4, 5)
    index = (slice(None), np.array([1, 2]), Ellipsis, np.array([0, 4]))
    assert x[index].shape == (2, 3)
    np.testing.assert_array_equal(poot.device_put(x)[index], x[index])


def test_no_element_is_taken_of_an_empty_axis() -> None:
    x, none = poot.device_put(np.zeros((3, 0))), np.zeros(0, np.int32)
    assert x[none, none].shape == (0,) and x[:, none].shape == (3, 0)
    assert x[none[:, None], np.zeros((1, 1), np.int32)].shape == (0, 1)
    one = np.zeros(1, np.int32)
    for index in ((0, 0), (one, one), (slice(None), one)):
        with pytest.raises(IndexingError, match="no element to take"):
            x[index]
