"""The cache of a decoder: state written in place, after it is read, masked by Pos."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import lax, slots
from poot.interpreters.backend_vulkan import VulkanBackend
from poot.lowering.passes.driver import Reason
from poot.lowering.passes.state_order import READ_FIRST, state_order
from poot.lowering.program import Copy, Loop
from tests.backends import each_backend as each_backend
from tests.pass_harness import apply, assert_text, declined, fired, graph_of

CAPACITY, HEADS, KV_HEADS, DIM = 12, 4, 2, 8
WIDTH = HEADS * DIM
POS = slots.Pos(0, CAPACITY - 1)
CACHE = (KV_HEADS, CAPACITY, DIM)
CACHE_BYTES = 4 * KV_HEADS * CAPACITY * DIM
EMPTY = np.zeros(CACHE, np.float32)


def split(x: Any, heads: int) -> Any:
    return x.reshape(heads, 1, DIM)


def by_slice(cache: Any, row: Any, pos: Any) -> Any:
    return lax.dynamic_update_slice(cache, row, (0, pos, 0))


def by_index(cache: Any, row: Any, pos: Any) -> Any:
    return cache.at[:, pos].set(row[:, 0])


def layer(update: Any, caches: Any, x: Any, weights: Any, pos: Any) -> Any:
    """One layer's attention over what has been stored, the new position included."""
    q = split(x @ weights["q"], HEADS)
    keys = update(caches["k"], split(x @ weights["k"], KV_HEADS), pos)
    values = update(caches["v"], split(x @ weights["v"], KV_HEADS), pos)
    repeats = HEADS // KV_HEADS
    scores = q @ jnp.repeat(keys, repeats, axis=0).swapaxes(1, 2) / np.sqrt(DIM)
    mask = jnp.arange(CAPACITY) <= pos
    weighted = poot.nn.softmax(jnp.where(mask, scores, -jnp.inf), axis=-1)
    mixed = weighted @ jnp.repeat(values, repeats, axis=0)
    return {"k": keys, "v": values}, x + mixed.reshape(WIDTH) @ weights["o"]


def reference(xs: Any, weights: Any) -> Any:
    """All positions at once, in f64."""
    w = {name: weight.astype(np.float64) for name, weight in weights.items()}
    heads = (len(xs), -1, DIM)
    q, k, v = (np.reshape(xs @ w[name], heads).swapaxes(0, 1) for name in "qkv")
    k, v = (np.repeat(part, HEADS // KV_HEADS, axis=0) for part in (k, v))
    scores = q @ k.swapaxes(1, 2) / np.sqrt(DIM)
    scores = np.where(np.tri(len(xs), dtype=bool), scores, -np.inf)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    mixed = (e / e.sum(axis=-1, keepdims=True)) @ v
    return xs + mixed.swapaxes(0, 1).reshape(len(xs), WIDTH) @ w["o"]


def weights_of(rng: Any) -> dict[str, Any]:
    sizes = {"q": WIDTH, "k": KV_HEADS * DIM, "v": KV_HEADS * DIM, "o": WIDTH}
    return {
        name: rng.standard_normal((WIDTH, size), dtype=np.float32) / 4
        for name, size in sizes.items()
    }


def jitted(update: Any) -> Any:
    return poot.jit(
        functools.partial(layer, update), donate_argnums=0, slots={"pos": POS}
    )


@pytest.mark.parametrize("update", [by_slice, by_index])
def test_decoding_is_attention_over_all_positions(
    each_backend: Any, update: Any
) -> None:
    rng = np.random.default_rng(0)
    weights = weights_of(rng)
    xs = rng.standard_normal((CAPACITY, WIDTH), dtype=np.float32)
    expected = reference(xs, weights)
    step = jitted(update)
    caches = {"k": poot.device_put(EMPTY), "v": poot.device_put(EMPTY)}
    on_device = isinstance(each_backend, VulkanBackend)
    addresses = set()
    weights = poot.device_put(weights)
    for pos in range(CAPACITY):
        caches, y = step(caches, xs[pos], weights, pos)
        np.testing.assert_allclose(y, expected[pos], rtol=2e-5, atol=2e-5)
        if on_device:
            addresses.add((caches["k"].buffer.address, caches["v"].buffer.address))
    assert step.cache_size == 1
    assert len(addresses) == (1 if on_device else 0)


def program_of(f: Any, *args: Any, **options: Any) -> Any:
    return poot.jit(f, **options).lower(*args).compile().program


def copied_bytes(program: Any) -> int:
    """The bytes of the largest copy, loops looked through."""
    nodes = list(program.body)
    for node in nodes:
        nodes += node.body if isinstance(node, Loop) else ()
    return max((n.source.size for n in nodes if isinstance(n, Copy)), default=0)


@pytest.mark.parametrize("update", [by_slice, by_index])
def test_a_step_holds_one_copy_of_the_cache(update: Any) -> None:
    weights = weights_of(np.random.default_rng(0))
    caches = {"k": poot.device_put(EMPTY), "v": poot.device_put(EMPTY)}
    x = np.zeros(WIDTH, np.float32)
    program = jitted(update).lower(caches, x, weights, 3).compile().program
    assert [result.input_index for result in program.results] == [0, 1, None]
    assert copied_bytes(program) == 0
    # A step works on rows; nothing there is as large as a cache but repeated heads.
    bare = poot.jit(update, donate_argnums=0, slots={"pos": POS})
    row = np.zeros((KV_HEADS, 1, DIM), np.float32)
    program = bare.lower(EMPTY, row, 3).compile().program
    assert program.arena_bytes < CACHE_BYTES // 4


def big(function: Any, *, donate: Any = 0) -> tuple[Any, int]:
    """The program of a function of a large state, a row and a position; its copies."""
    state = poot.device_put(np.zeros((64, 16), np.float32))
    row = poot.device_put(np.ones((1, 16), np.float32))
    declared = {"pos": slots.Pos(0, 63)}
    program = program_of(function, state, row, 3, donate_argnums=donate, slots=declared)
    return program, copied_bytes(program)


def stored(state: Any, row: Any, pos: Any) -> Any:
    return lax.dynamic_update_slice(state, row, (pos, 0))


def test_what_is_read_of_the_old_state_is_read_first() -> None:
    def late(state: Any, row: Any, pos: Any) -> Any:
        new = stored(state, row, pos)
        return new, state.sum(), state[pos] + 1

    program, copied = big(late)
    assert copied == 0 and program.arena_bytes < 1024
    f = poot.jit(late, donate_argnums=0)
    given = np.arange(1024, dtype=np.float32).reshape(64, 16)
    new, total, old = f(given, np.full((1, 16), -1, np.float32), 5)
    assert float(total) == given.sum()
    np.testing.assert_array_equal(old, given[5] + 1)
    given[5] = -1
    np.testing.assert_array_equal(new, given)


def test_who_needs_old_and_new_state_gets_a_copy() -> None:
    def both(state: Any, row: Any, pos: Any) -> Any:
        new = stored(state, row, pos)
        return new, (new * state).sum()

    program, copied = big(both)
    assert copied == 64 * 16 * 4 and program.arena_bytes < 2 * copied
    f = poot.jit(both, donate_argnums=0)
    given = np.arange(1024, dtype=np.float32).reshape(64, 16) % 7
    new, total = f(given, np.full((1, 16), 2, np.float32), 5)
    right = given.copy()
    right[5] = 2
    assert float(total) == (right * given).sum()
    np.testing.assert_array_equal(new, right)


def test_updates_of_updates_and_states_in_loops_stay_in_place() -> None:
    def twice(state: Any, row: Any, pos: Any) -> Any:
        return stored(stored(state, row, pos), row * 2, 0)

    def looped(state: Any, row: Any, pos: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, s: stored(s, row + s[i], pos), state)

    for function in (twice, looped):
        program, copied = big(function)
        assert copied == 0 and program.arena_bytes < 1024


def test_pools_of_pages() -> None:
    rows, width = 32, 4
    declared = {"reads": slots.SlotMap(0, rows - 1), "writes": slots.WriteMap(-1, 31)}

    def paged(pool: Any, new: Any, reads: Any, writes: Any) -> Any:
        pool = pool.at[writes].set(new, mode="drop", wrap_negative_indices=False)
        return pool, pool[reads].sum(axis=0)

    rng = np.random.default_rng(1)
    right = np.zeros((rows, width), np.float32)
    pool = poot.device_put(right)
    new = np.ones((3, width), np.float32)
    args = pool, new, np.zeros(8, np.int32), np.zeros(3, np.int32)
    program = program_of(paged, *args, donate_argnums=0, slots=declared)
    assert copied_bytes(program) == 0 and program.arena_bytes < right.nbytes
    f = poot.jit(paged, donate_argnums=0, slots=declared)
    for number in range(6):
        writes, reads = rng.permutation(rows)[:3], rng.integers(0, rows, 8)
        writes[number % 3] = -1
        right[[w for w in writes if w >= 0]] = number
        pool, total = f(pool, new * number, reads, writes)
        np.testing.assert_array_equal(total, right[reads].sum(axis=0))
    np.testing.assert_array_equal(pool, right)


def test_one_position_a_sequence() -> None:
    declared = {"pos": slots.Pos(0, CAPACITY - 1)}

    def step(cache: Any, row: Any, pos: Any) -> Any:
        cache = poot.vmap(lambda c, r, p: lax.dynamic_update_slice(c, r, (p, 0)))(
            cache, row[:, None], pos
        )
        seen = jnp.arange(CAPACITY) <= pos[:, None]
        return cache, jnp.where(seen[..., None], cache, 0).sum(axis=1)

    f = poot.jit(step, donate_argnums=0, slots=declared)
    right = np.zeros((3, CAPACITY, 2), np.float32)
    cache = poot.device_put(right)
    for number in range(CAPACITY):
        pos = (np.array([0, 5, 9]) + number) % CAPACITY
        row = np.full((3, 2), number, np.float32)
        right[np.arange(3), pos] = number
        cache, total = f(cache, row, pos)
        seen = np.arange(CAPACITY) <= pos[:, None]
        expected = np.where(seen[..., None], right, 0).sum(axis=1)
        np.testing.assert_array_equal(total, expected)


# --- the pass ---------------------------------------------------------------

READ_LATE = """
  state %0: f32[4,2]
  device %1: f32[1,2]
  slot %2: i32[] kind "pos" low 0 high 3 key "pos"
  {}
  result %3
  result %4
  next %0 = %{}
"""


def test_a_reader_of_the_state_moves_before_its_writer() -> None:
    write = "f32[4,2] = dynamic_update_slice(%0, %1, %2, 0:i32)"
    read = "f32[4] = reduce[op=sum, axis=1, keepdim=false](%0)"
    body = READ_LATE.format(f"%3: {write}\n  %4: {read}", 3)
    after, (log,) = apply(graph_of(body), state_order)
    body = READ_LATE.format(f"%3: {read}\n  %4: {write}", 4)
    assert_text(after, body.replace("result %3\n  result %4", "result %4\n  result %3"))
    assert fired(log, READ_FIRST) == ["%3"] and not declined(log, READ_FIRST)
    again, (log,) = apply(after, state_order)
    assert again is after and not log.entries


def test_a_reader_through_a_view_moves_too() -> None:
    body = """
      state %0: f32[4,2]
      device %1: f32[1,2]
      %2: f32[4,2] = dynamic_update_slice(%0, %1, 1:i32, 0:i32)
      %3: f32[2,4] = transpose[perm=(1, 0)](%0)
      %4: f32[2,4] = unary[op=neg](%3)
      result %2
      result %4
      next %0 = %2
    """
    after, (log,) = apply(graph_of(body), state_order)
    ops = [eqn.op.plain_name for eqn in after.eqns]
    assert ops == ["transpose", "neg", "dynamic_update_slice"], ops
    assert fired(log, READ_FIRST) == ["%2"]


def test_a_reader_of_both_stays_and_says_so() -> None:
    body = READ_LATE.format(
        "%3: f32[4,2] = dynamic_update_slice(%0, %1, %2, 0:i32)\n"
        "  %4: f32[4,2] = binary[op=mul](%3, %0)",
        3,
    )
    graph = graph_of(body)
    after, (log,) = apply(graph, state_order)
    assert str(after) == str(graph)
    assert declined(log, READ_FIRST) == {"%3": Reason.READS_BOTH}
    (entry,) = log.entries
    assert entry.detail.startswith("read by %4 = Binary[MUL]")


def test_a_reader_moves_before_the_first_of_two_updates() -> None:
    body = """
      state %0: f32[4,2]
      device %1: f32[1,2]
      %2: f32[4,2] = dynamic_update_slice(%0, %1, 1:i32, 0:i32)
      %3: f32[4,2] = dynamic_update_slice(%2, %1, 3:i32, 0:i32)
      %4: f32[4,2] = unary[op=neg](%0)
      result %4
      next %0 = %3
    """
    after, (log,) = apply(graph_of(body), state_order)
    ops = [eqn.op.plain_name for eqn in after.eqns]
    assert ops == ["neg", *["dynamic_update_slice"] * 2], ops
    assert fired(log, READ_FIRST) == ["%2"]


def test_a_reader_moves_before_what_starts_the_state_anew() -> None:
    body = """
      state %0: f32[1]
      %1: f32[1] = reshape[shape=(1)](2.0:f32)
      %2: f32[1] = unary[op=neg](%0)
      result %2
      next %0 = %1
    """
    after, (log,) = apply(graph_of(body), state_order)
    assert [eqn.op.plain_name for eqn in after.eqns] == ["neg", "reshape"]
    assert fired(log, READ_FIRST) == ["%1"]


def test_a_reshape_is_not_what_writes() -> None:
    """Here the reduction is: what reads the state comes before that."""
    body = """
      state %0: f32[4,1]
      %1: f32[4] = reduce[op=sum, axis=1, keepdim=false](%0)
      %2: f32[4,1] = unary[op=neg](%0)
      %3: f32[4,1] = reshape[shape=(4, 1)](%1)
      result %2
      next %0 = %3
    """
    after, (log,) = apply(graph_of(body), state_order)
    ops = [eqn.op.plain_name for eqn in after.eqns]
    assert ops == ["neg", "sum", "reshape"], ops
    assert fired(log, READ_FIRST) == ["%1"]
