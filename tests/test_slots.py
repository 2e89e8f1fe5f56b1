"""Declared slots: kinds, ranges checked at the bind, one recording for all words."""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import lax, slots
from poot.core.errors import (
    ArgumentError,
    CheckError,
    DTypeError,
    RangeError,
    ShapeError,
)
from poot.core.graph import Graph
from poot.core.types import Slot
from poot.vulkan.binding import CallCounter
from tests.backends import each_backend as each_backend
from tests.test_driver_calls import FORBIDDEN
from tests.test_driver_calls import device as device

CAPACITY = 8
WIDTH = 4
RANGE = slots.Pos(0, CAPACITY - 1)


def store(cache: Any, token: Any, pos: Any) -> Any:
    """A row of the token's number at a position, and the sum of what is there."""
    row = jnp.full((1, WIDTH), 1, np.float32) * token
    cache = lax.dynamic_update_slice(cache, row, (pos, 0))
    seen = jnp.arange(CAPACITY) <= pos
    return cache, jnp.where(seen[:, None], cache, 0).sum(axis=0)


def storing() -> Any:
    declared = {"pos": RANGE, "token": slots.Token(0, 99)}
    return poot.jit(store, donate_argnums=0, slots=declared)


def zeros() -> Any:
    return poot.device_put(np.zeros((CAPACITY, WIDTH), np.float32))


# --- declarations -----------------------------------------------------------


def test_the_graph_has_kind_and_range_of_each_slot() -> None:
    graph = storing().trace(zeros(), 1, 2).graph
    found = [graph.values[value].slot for value in graph.slots]
    assert found == [Slot("token", 0, 99), Slot("pos", 0, CAPACITY - 1)]
    assert 'kind "pos" low 0 high 7 key "pos"' in str(graph)
    assert Graph.parse(str(graph)) == graph
    undeclared = poot.jit(store).trace(zeros(), 1, 2).graph
    kinds = {undeclared.values[value].slot for value in undeclared.slots}
    assert kinds == {Slot("scalar")}


def test_owners_declare_kinds_of_their_own() -> None:
    class Adapter(slots.Kind):
        label = "adapter"
        most_axes = 0

    f = poot.jit(lambda x, which: x + which, slots={"which": Adapter(0, 3)})
    graph = f.trace(1.0, 2).graph
    assert Slot("adapter", 0, 3) in {graph.values[v].slot for v in graph.slots}
    with pytest.raises(RangeError, match=r"slot which \(adapter\) is 4"):
        f(1.0, 4)
    with pytest.raises(ShapeError, match=r"adapter 0\.\.3 is given shape"):
        f(1.0, np.array([1]))


@pytest.mark.parametrize(
    ("declare", "error", "message"),
    [
        (lambda: slots.Pos(3, 2), RangeError, r"slots.Pos\(3, 2\): takes low <= high"),
        (lambda: slots.Pos(0, 1 << 31), RangeError, "i32 words"),
        (lambda: slots.Pos(0, 1.5), ArgumentError, "high is a float"),
        (lambda: poot.jit(store, slots={"pos": 7}), ArgumentError, "takes a kind"),
        (lambda: poot.jit(store, slots={"at": RANGE}), ArgumentError, "no argument"),
        (lambda: poot.jit(store, slots={2: RANGE}), ArgumentError, "takes the arg"),
        (lambda: poot.jit(store, slots=["pos"]), ArgumentError, "is a list; takes a m"),
        (lambda: poot.jit(store, slots=()), ArgumentError, "is a tuple; takes a map"),
        (
            lambda: poot.jit(store, slots={"pos": RANGE}, static_argnames="pos"),
            ArgumentError,
            "pos cannot be static and a slot",
        ),
    ],
)
def test_wrong_declarations(declare: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        declare()


def test_paths_lead_into_containers() -> None:
    def read(state: Any, maps: Any) -> Any:
        return state["pool"][maps["rows"][0]] + state["pos"]

    declared = {"state/pos": RANGE, "maps": slots.SlotMap(0, 7)}
    f = poot.jit(read, slots=declared)
    pool = jnp.arange(8.0)
    rows = np.array([7, 0, 2])
    found = f({"pool": pool, "pos": 1}, {"rows": [rows]})
    np.testing.assert_array_equal(found, [8, 1, 3])
    with pytest.raises(RangeError, match=r"slot maps\['rows'\]\[0\]\[1\] .* is 8,"):
        f({"pool": pool, "pos": 1}, {"rows": [np.array([7, 8, 9])]})
    with pytest.raises(RangeError, match=r"slot state\['pos'\] \(pos\) is -1,"):
        f({"pool": pool, "pos": -1}, {"rows": [rows]})
    with pytest.raises(ArgumentError, match="declares state/pos, but state has"):
        f({"pool": pool}, {"rows": [rows]})


def test_the_longest_path_counts_and_absent_arguments_do_not() -> None:
    declared = {"words": slots.SlotMap(0, 9), "words/pos": slots.Pos(0, 3)}
    f = poot.jit(
        lambda words=None, *, scale=1: words["pos"] + words["rows"],
        **{"slots": {**declared, "scale": slots.Token(1, 2)}},
    )
    words = {"pos": 3, "rows": np.array([9])}
    np.testing.assert_array_equal(f(words), [12])
    with pytest.raises(RangeError, match=r"words\['pos'\] \(pos\) is 4"):
        f({**words, "pos": 4})
    with pytest.raises(RangeError, match=r"slot scale \(token\) is 3"):
        f(words, scale=3)


# --- what is given ----------------------------------------------------------


def test_ints_of_all_spellings_share_a_trace(each_backend: Any) -> None:
    f = storing()
    cache = zeros()
    for pos in (3, np.int64(3), np.uint8(3), np.array(3), np.array(3, np.int16)):
        cache, found = f(cache, 5, pos)
        np.testing.assert_array_equal(found, np.full(WIDTH, 5.0))
    assert f.cache_size == 1


@pytest.mark.parametrize(
    ("pos", "error", "message"),
    [
        (CAPACITY, RangeError, r"`store`: slot pos \(pos\) is 8, .* range 0..7"),
        (-1, RangeError, "is -1"),
        (1 << 40, RangeError, str(1 << 40)),
        (np.uint64(1 << 63), RangeError, str(1 << 63)),
        (np.array([1, 9, 2]), RangeError, r"slot pos\[1\] \(pos\) is 9"),
        (1.0, DTypeError, "argument pos: slot pos 0..7 is given f32"),
        (True, DTypeError, "is given bool"),
        (np.zeros((2, 2), np.int32), ShapeError, "argument pos: slot pos 0..7"),
    ],
)
def test_what_a_slot_may_not_hold_leaves_donated_arrays_alone(
    each_backend: Any, pos: Any, error: type, message: str
) -> None:
    f = storing()
    cache = f(zeros(), 1, 0)[0]
    with pytest.raises(error, match=message):
        f(cache, 2, pos)
    assert not cache.is_deleted()
    np.testing.assert_array_equal(f(cache, 3, 1)[1], np.full(WIDTH, 4.0))


def test_maps_are_read_anew_at_each_call(each_backend: Any) -> None:
    declared = {"reads": slots.SlotMap(0, 99), "writes": slots.WriteMap(-1, 99)}

    @functools.partial(poot.jit, slots=declared, donate_argnums=0)
    def paged(pool: Any, rows: Any, reads: Any, writes: Any) -> Any:
        pool = pool.at[writes].set(rows, mode="drop", wrap_negative_indices=False)
        return pool, pool[reads]

    rng = np.random.default_rng(0)
    right = rng.standard_normal((100, 3), dtype=np.float32)
    pool = poot.device_put(right)
    reads, writes = np.zeros(50, np.int32), np.zeros(2, np.int32)
    for _ in range(5):
        # The host may write over its own array as soon as the call has returned.
        rows = rng.standard_normal((2, 3), dtype=np.float32)
        reads[:] = rng.integers(0, 100, 50)
        writes[:] = rng.choice(100, 2, replace=False)
        writes[0] = -1
        right[writes[1]] = rows[1]
        expected = right[reads]
        pool, found = paged(pool, rows, reads, writes)
        reads[:] = writes[:] = 0
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(pool, right)
    assert paged.cache_size == 1
    with pytest.raises(RangeError, match=r"writes\[1\] \(write map\) is -2"):
        paged(pool, rows, reads, np.array([0, -2]))


def test_vectors_of_many_words_and_of_none(each_backend: Any) -> None:
    f = poot.jit(lambda x, rows: x[rows], slots={"rows": slots.SlotMap(0, 9)})
    x = jnp.arange(10.0)
    many = np.arange(70_000) % 10
    np.testing.assert_array_equal(f(x, many), many)
    assert f(x, np.zeros(0, np.int64)).shape == (0,)


# --- values on the device ---------------------------------------------------


def test_an_array_on_the_device_is_checked_there(each_backend: Any) -> None:
    f = storing()
    cache, found = f(zeros(), 5, jnp.array(3))
    np.testing.assert_array_equal(found, np.full(WIDTH, 5.0))
    graph = f.trace(cache, 5, jnp.array(3)).graph
    assert len(graph.slots) == 1 and len(graph.witnesses) == 1
    cache, found = f(cache, 5, jnp.array(CAPACITY))
    with pytest.raises(CheckError, match=r"slot pos \(pos\) is outside .* 0..7") as e:
        found.block_until_ready()
    assert "test_slots.py" in str(e.value)
    with pytest.raises(CheckError):
        np.asarray(cache)
    np.testing.assert_array_equal(f(zeros(), 2, 1)[1], np.full(WIDTH, 2.0))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint32])
def test_ranges_of_arrays_of_other_dtypes(dtype: Any) -> None:
    f = poot.jit(lambda at: at + 0, slots={"at": slots.WriteMap(-1, 200)})
    assert np.asarray(f(poot.device_put(np.array([0, 100], dtype)))).tolist() == [
        0,
        100,
    ]
    if dtype is np.uint32:
        with pytest.raises(CheckError):
            f(poot.device_put(np.array([0, 2**32 - 1], dtype))).block_until_ready()
    g = poot.jit(lambda at: at + 0, slots={"at": slots.Pos(300, 400)})
    if dtype is not np.uint32:
        with pytest.raises(RangeError, match="holds no number of its range"):
            g(poot.device_put(np.array([0], dtype)))


# --- under transformations --------------------------------------------------


def test_nested_and_transformed_calls_check_what_they_are_given() -> None:
    f = storing()

    def filled(cache: Any, start: Any) -> Any:
        return lax.fori_loop(0, 4, lambda i, c: f(c, 2, i + start)[0], cache)

    right = np.zeros((CAPACITY, WIDTH), np.float32)
    right[2:6] = 2
    np.testing.assert_array_equal(poot.jit(filled)(zeros(), 2), right)
    with pytest.raises(CheckError, match=r"slot pos .* \(first in iteration 2\)"):
        poot.jit(filled)(zeros(), 6).block_until_ready()
    with pytest.raises(RangeError, match="is 8"):
        poot.jit(lambda c: f(c, 1, CAPACITY))(zeros())
    slope = poot.grad(lambda c: f(c, 2, 3)[1].sum())(zeros())
    np.testing.assert_array_equal(slope[:, 0], [1, 1, 1, 0, 0, 0, 0, 0])
    with pytest.raises(RangeError, match="is 9"):
        poot.grad(lambda c: f(c, 2, 9)[1].sum())(zeros())
    batched = poot.vmap(lambda at: f(zeros(), 2, at)[0].argmax(axis=0)[0])
    # Each of three stores has its own result, and the cache is one.
    with pytest.warns(UserWarning, match="`store`: no result .* the argument `cache`"):
        np.testing.assert_array_equal(batched(jnp.arange(3)), [0, 1, 2])
    with pytest.raises(CheckError, match="slot pos"):
        np.asarray(batched(jnp.arange(3) + 6))


def test_a_slot_of_the_function_around_is_checked_once() -> None:
    inner = poot.jit(lambda x, pos: x[pos] + 1, slots={"pos": RANGE})
    x = jnp.arange(8.0)
    for low, high, checks in ((0, 7, 0), (2, 5, 0), (-1, 7, 1), (0, 8, 1)):
        outer = poot.jit(lambda x, at: inner(x, at), slots={"at": slots.Pos(low, high)})
        assert len(outer.trace(x, 3).graph.witnesses) == checks
        assert float(outer(x, 3)) == 4
    undeclared = poot.jit(lambda x, at: inner(x, at))
    assert len(undeclared.trace(x, 3).graph.witnesses) == 1
    with pytest.raises(CheckError, match=r"slot pos \(pos\) is outside"):
        undeclared(x, 9).block_until_ready()


def test_calls_op_by_op_check_as_well() -> None:
    f = storing()
    with poot.config.override(disable_jit=True):
        np.testing.assert_array_equal(f(zeros(), 2, 3)[1], np.full(WIDTH, 2.0))
        with pytest.raises(RangeError, match="is 8"):
            f(zeros(), 2, 8)
        with pytest.raises(CheckError, match="slot pos"):
            f(zeros(), 2, jnp.array(8))


def test_a_function_cut_at_host_calls_has_slots() -> None:
    def f(x: Any, at: Any) -> Any:
        shape = poot.ShapeDtypeStruct((3,), np.float32)
        return poot.pure_callback(lambda y: np.asarray(y) * 2, shape, x)[at]

    g = poot.jit(f, slots={"at": slots.SlotMap(0, 2)})
    found = g(jnp.arange(3.0), np.array([2, 1]))
    np.testing.assert_array_equal(found, [4, 2])


# --- replay -----------------------------------------------------------------


def test_the_first_recording_serves_every_position(device: Any) -> None:
    traces = []

    def step(state: Any, token: Any, maps: Any) -> Any:
        traces.append(1)
        cache, total = store(state["cache"], token, state["pos"])
        return {"cache": cache}, total + cache[maps].sum(axis=0)

    declared = {
        "state/pos": RANGE,
        "token": slots.Token(0, 99),
        "maps": slots.SlotMap(0, CAPACITY - 1),
    }
    f = poot.jit(step, donate_argnums=0, slots=declared)
    right = np.zeros((CAPACITY, WIDTH), np.float32)
    state, _ = f({"cache": zeros(), "pos": 0}, 1, np.zeros(2, np.int32))
    state["cache"].block_until_ready()
    right[0] = 1
    log: list[str] = []
    for pos in range(1, CAPACITY):
        maps = np.array([pos, pos - 1])
        with CallCounter(device.functions) as counter:
            state, found = f({"cache": state["cache"], "pos": pos}, pos + 1, maps)
        log += counter.log
        right[pos] = pos + 1
        expected = right[: pos + 1].sum(axis=0) + right[maps].sum(axis=0)
        np.testing.assert_array_equal(found, expected)
    assert traces == [1] and f.cache_size == 1
    assert log.count("vkQueueSubmit") == CAPACITY - 1
    assert [name for name in log if FORBIDDEN.fullmatch(name)] == []


def test_programs_lay_slots_out_by_their_size() -> None:
    f = poot.jit(
        lambda x, rows, at: x[rows] + at,
        slots={"rows": slots.SlotMap(0, 9), "at": RANGE},
    )
    program = f.lower(jnp.arange(10.0), np.zeros(5, np.int32), 3).compile().program
    sizes = [(slot.offset, slot.type.size_bytes) for slot in program.slots]
    assert sizes == [(0, 20), (32, 4)]
    assert re.search(r"slot0\[0:20\]", str(program))
