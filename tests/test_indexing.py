"""Random indices, eager and jitted, against NumPy's; and what lies at the edges."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

import poot
from poot.core.errors import (
    CheckError,
    IndexingError,
    NonConcreteBooleanIndexError,
)
from poot.core.ops.shape import Iota
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


@pytest.mark.parametrize("seed", range(60))
def test_random_updates(seed: int) -> None:
    """Values go where the index finds the places, the last of several for one."""
    random = Random(seed)
    x = random_array(random)
    index = random_index(random, x.shape)
    places = np.arange(x.size).reshape(x.shape)[index]
    values = np.arange(places.size, dtype=np.int32).reshape(places.shape) * 3 - 50
    if random.random() < 0.3:
        values = values[..., :1] if values.ndim else values
    spread = np.broadcast_to(values, places.shape).ravel()
    replaced, added = x.ravel().copy(), x.ravel().copy()
    for place, value in zip(places.ravel(), spread, strict=True):
        replaced[place] = value
    np.add.at(added, places.ravel(), spread)

    def update(x: Any) -> Any:
        return x.at[index].set(values), x.at[index].add(values)

    for function in (update, poot.jit(update)):
        for found, flat in zip(
            function(poot.device_put(x)), (replaced, added), strict=True
        ):
            assert found.dtype == x.dtype
            np.testing.assert_array_equal(found, flat.reshape(x.shape), str(index))


def test_masks_and_truth_values() -> None:
    x = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    value = poot.device_put(x)
    mask, rows = x % 3 == 0, np.array([True, False])
    for index in (
        mask,
        rows,
        (rows, 1),
        (0, mask[0]),
        (Ellipsis, mask[0, 0]),
        (slice(None), mask[0]),
        True,
        False,
        (True, 0),
        (1, True, slice(1, 3)),
        (np.array(True), slice(None), np.array([0, 2])),
        (None, False),
        np.zeros((2, 3, 4), bool),
    ):
        np.testing.assert_array_equal(value[index], x[index], str(index))
        changed = x.copy()
        changed[index] = 7
        np.testing.assert_array_equal(value.at[index].set(7), changed, str(index))
    with pytest.raises(IndexingError, match=r"a mask of shape \(3,\)"):
        value[np.ones(3, bool)]


def test_traced_masks_keep_the_shape_or_are_refused() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    with pytest.raises(NonConcreteBooleanIndexError, match=r"poot\.numpy\.where"):
        poot.jit(lambda x: x[x > 2])(x)
    with pytest.raises(NonConcreteBooleanIndexError, match="keep the shape"):
        poot.jit(lambda x: x.at[x > 2].set(x[0]))(x)
    found = poot.jit(lambda x: (x.at[x > 2].set(-1), x.at[x[:, 0] > 2].add(10)))(x)
    np.testing.assert_array_equal(found[0], np.where(x > 2, -1, x))
    np.testing.assert_array_equal(found[1], x + np.array([[0], [10]]))


def test_updates_calculate_where_both_dtypes_meet() -> None:
    x = poot.device_put(np.arange(4, dtype=np.int32))
    index = np.array([0, 1, 1])
    assert x.at[index].add(1.5).tolist() == [1, 4, 2, 3]
    assert x.at[index].set(2.5).tolist() == [2, 2, 2, 3]
    assert x.at[index].subtract(2).tolist() == [-2, -3, 2, 3]
    assert x.at[index].multiply(3).tolist() == x.at[index].mul(3).tolist()
    assert x.at[index].multiply(3).tolist() == [0, 9, 2, 3]
    assert x.at[index].power(2).tolist() == [0, 1, 2, 3]
    assert x.at[index].min(-1).tolist() == [-1, -1, 2, 3]
    assert x.at[index].max(9).tolist() == [9, 9, 2, 3]
    assert x.at[index].apply(lambda v: v + 10).tolist() == [10, 11, 2, 3]
    halves = x.at[index].divide(2)
    assert halves.dtype == np.float32 and halves.tolist() == [0, 0.25, 2, 3]
    assert (x * 1.0).at[1:3].divide(2).tolist() == [0, 0.5, 1, 3]
    with pytest.raises(TypeError, match="given unique"):
        x.at[0].set(1, unique=True)
    with pytest.raises(TypeError, match="mode is 'wrap'"):
        x.at[0].set(1, mode="wrap")


def test_bounds_are_checked_unless_a_mode_says_what_to_do() -> None:
    x, beyond = poot.device_put(np.arange(4.0, dtype=np.float32)), np.array([1, 9])
    with poot.config.override(check_bounds=True, sync_checks=True):
        for mode in ("drop", "clip"):
            assert x.at[beyond].set(7, mode=mode).shape == (4,)
            assert x.at[9].set(7, mode=mode).shape == (4,)
        assert x.at[beyond].get(mode="fill", fill_value=3).tolist() == [1, 3]
        assert poot.numpy.flatnonzero(x > 2, size=3).tolist() == [3, 0, 0]
        for index in (beyond, 9, (beyond,), np.int32(-5)):
            with pytest.raises((CheckError, IndexingError), match="out of bounds"):
                x.at[index].set(7).block_until_ready()
            with pytest.raises((CheckError, IndexingError), match="out of bounds"):
                x.at[index].get().block_until_ready()


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


@pytest.mark.parametrize(
    ("index", "counts"),
    [
        (np.arange(3), True),
        (np.arange(3, dtype=np.uint8)[:, None], True),
        (np.arange(3)[None, ::-1], False),
        (np.arange(4), True),
        (np.array([0, 1, 1]), False),
        (np.array([1, 2]), False),
        (np.array([0]), False),
        (np.array([[0, 1], [2, 3]]), False),
        (np.zeros(0, np.int32), False),
    ],
    ids=lambda given: repr(given).replace("\n", ""),
)
def test_numpy_indices_that_count_are_no_constants(
    index: np.ndarray[Any, Any], counts: bool
) -> None:
    """Passes know an iota, and it takes no memory; as in NumPy otherwise."""
    x = np.arange(12, dtype=np.int32).reshape(4, 3)
    jitted = poot.jit(lambda x: x[index, 1])
    graph = jitted.trace(x).graph
    assert any(isinstance(eqn.op, Iota) for eqn in graph.eqns) is counts
    assert (not graph.consts) is counts
    np.testing.assert_array_equal(jitted(x), x[index, 1])
    np.testing.assert_array_equal(poot.device_put(x)[index, 1], x[index, 1])
