"""Rotary embedding: which spellings become Rope, and which near misses do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import nn
from poot.core.errors import DTypeError, ShapeError
from poot.core.graph import Graph
from poot.core.ops.composite import Fused
from poot.core.ops.rope import Rope, RopeForm
from poot.core.oracle import evaluate
from poot.core.types import TensorType
from poot.lowering.compile import lower
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.cse import cse
from poot.lowering.passes.dce import dce
from poot.lowering.passes.driver import Entry, Reason, run_passes
from poot.lowering.passes.origins import shortened
from poot.lowering.passes.rope import FORM_ROPE, rope
from tests.kernel_harness import run_graph, same_bits
from tests.pass_harness import apply, assert_text, graph_of

HALF, INTERLEAVED = RopeForm.HALF, RopeForm.INTERLEAVED
BF16 = np.dtype(ml_dtypes.bfloat16)


def array(shape: tuple[int, ...], seed: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


# Tokens, heads and elements of a head; cos and sin by token.
Q = array((2, 5, 3, 16), 0)
FULL = array((5, 1, 16), 1), array((5, 1, 16), 2)
PAIRS = array((5, 1, 8), 3), array((5, 1, 8), 4)
FEW = array((5, 1, 4), 5), array((5, 1, 4), 6)


def rotate_half(x: Any) -> Any:
    half = x.shape[-1] // 2
    return jnp.concatenate((-x[..., half:], x[..., :half]), axis=-1)


def rotate_every_two(x: Any) -> Any:
    return jnp.stack((-x[..., 1::2], x[..., ::2]), axis=-1).reshape(x.shape)


def turned_whole(x: Any, cos: Any, sin: Any) -> Any:
    return (x * cos) + (rotate_half(x) * sin)


def doubled_angles(x: Any, angles: Any) -> Any:
    twice = jnp.concatenate((angles, angles), axis=-1)
    return turned_whole(x, jnp.cos(twice), jnp.sin(twice))


def doubled_tables(x: Any, cos: Any, sin: Any) -> Any:
    cos, sin = (jnp.concatenate((t, t), -1) for t in (cos, sin))
    return rotate_half(x) * sin + cos * x


def split_halves(x: Any, cos: Any, sin: Any) -> Any:
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate(
        [first * cos - second * sin, first * sin + second * cos], axis=-1
    )


def every_second(x: Any, cos: Any, sin: Any) -> Any:
    even, odd = x[..., ::2], x[..., 1::2]
    turned = jnp.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1)
    return turned.reshape(x.shape)


def repeated_tables(x: Any, cos: Any, sin: Any) -> Any:
    cos, sin = (jnp.repeat(t, 2, axis=-1) for t in (cos, sin))
    return x * cos + rotate_every_two(x) * sin


def pairs_in_one_cache(x: Any, cache: Any) -> Any:
    pairs = x.reshape(*x.shape[:-1], -1, 2)
    a, b, cos, sin = pairs[..., 0], pairs[..., 1], cache[..., 0], cache[..., 1]
    return jnp.stack([a * cos - b * sin, b * cos + a * sin], -1).reshape(x.shape)


def pairs_at_once(x: Any, cos: Any, sin: Any) -> Any:
    pairs = x.reshape(*x.shape[:-1], -1, 2)
    crossed = jnp.stack([-pairs[..., 1], pairs[..., 0]], axis=-1)
    return (pairs * cos[..., None] + crossed * sin[..., None]).reshape(x.shape)


def partial(x: Any, cos: Any, sin: Any) -> Any:
    count = cos.shape[-1]
    head, rest = x[..., :count], x[..., count:]
    return jnp.concatenate((turned_whole(head, cos, sin), rest), axis=-1)


def partial_in_halves(x: Any, cos: Any, sin: Any) -> Any:
    half = cos.shape[-1]
    a, b, rest = jnp.split(x, (half, 2 * half), axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin, rest], -1)


def in_f32(x: Any, cos: Any, sin: Any) -> Any:
    return turned_whole(x.astype(jnp.float32), cos, sin).astype(x.dtype)


def halves_in_f32(x: Any, cos: Any, sin: Any) -> Any:
    a, b = (half.astype(jnp.float32) for half in jnp.split(x, 2, axis=-1))
    first, second = a * cos - b * sin, b * cos + a * sin
    return jnp.concatenate([first.astype(x.dtype), second.astype(x.dtype)], -1)


def partial_in_f32(x: Any, cos: Any, sin: Any) -> Any:
    count = cos.shape[-1]
    turned = turned_whole(x[..., :count].astype(jnp.float32), cos, sin)
    return jnp.concatenate((turned.astype(x.dtype), x[..., count:]), axis=-1)


def heads_first(x: Any, cos: Any, sin: Any) -> Any:
    return turned_whole(x.transpose(0, 2, 1, 3), cos[:, 0], sin[:, 0])


def negative_sines(x: Any, cos: Any, sin: Any) -> Any:
    first, second = jnp.split(x, 2, axis=-1)
    minus = -sin
    turned = first * cos + second * minus, second * cos + first * sin
    return jnp.concatenate(turned, -1)


def one_of_many(x: Any, cos: Any, sin: Any) -> Any:
    """Queries in front of keys, along one axis."""
    return turned_whole(x[..., :16], cos, sin)


def sliced_heads(x: Any, cos: Any, sin: Any) -> Any:
    return turned_whole(x[:, :, 1:3], cos, sin)


def joined_heads(x: Any, cos: Any, sin: Any) -> Any:
    return turned_whole(jnp.concatenate([x, x * 2], axis=2), cos, sin)


def reversed_heads(x: Any, cos: Any, sin: Any) -> Any:
    return turned_whole(x[:, :, ::-1], cos, sin)


def regrouped_heads(x: Any, cos: Any, sin: Any) -> Any:
    return turned_whole(x.reshape(2, 15, 1, 16), cos[0], sin[0])


@dataclass(frozen=True)
class Spelling:
    function: Callable[..., Any]
    args: tuple[Any, ...]
    op: Rope


def spelled(function: Callable[..., Any], *args: Any, op: Rope) -> Any:
    return pytest.param(Spelling(function, args, op), id=function.__name__)


QB = Q.astype(BF16)
SPELLINGS = [
    spelled(turned_whole, Q, *FULL, op=Rope(16, HALF)),
    spelled(doubled_angles, Q, PAIRS[0], op=Rope(16, HALF)),
    spelled(doubled_tables, Q, *PAIRS, op=Rope(16, HALF)),
    spelled(split_halves, Q, *PAIRS, op=Rope(16, HALF)),
    spelled(every_second, Q, *PAIRS, op=Rope(16, INTERLEAVED)),
    spelled(repeated_tables, Q, *PAIRS, op=Rope(16, INTERLEAVED)),
    spelled(pairs_in_one_cache, Q, np.stack(PAIRS, -1), op=Rope(16, INTERLEAVED)),
    spelled(pairs_at_once, Q, *PAIRS, op=Rope(16, INTERLEAVED)),
    spelled(partial, Q, *PAIRS, op=Rope(8, HALF)),
    spelled(partial_in_halves, Q, *FEW, op=Rope(8, HALF)),
    spelled(in_f32, QB, *FULL, op=Rope(16, HALF)),
    spelled(halves_in_f32, QB, *PAIRS, op=Rope(16, HALF)),
    spelled(partial_in_f32, QB, *PAIRS, op=Rope(8, HALF)),
    spelled(heads_first, Q, *FULL, op=Rope(16, HALF)),
    spelled(negative_sines, Q, *PAIRS, op=Rope(16, HALF)),
    spelled(sliced_heads, Q, *FULL, op=Rope(16, HALF)),
    spelled(reversed_heads, Q, *FULL, op=Rope(16, HALF)),
    spelled(regrouped_heads, Q, *FULL, op=Rope(16, HALF)),
    spelled(one_of_many, array((2, 5, 3, 40), 7), *FULL, op=Rope(16, HALF)),
]


def traced(function: Callable[..., Any], *args: Any) -> Graph:
    graph = poot.jit(function).trace(*args).graph
    return run_passes((cse, dce), graph, DeviceInfo())[0]


@pytest.mark.parametrize("case", SPELLINGS)
def test_a_spelling_becomes_one_rope(case: Spelling):
    graph = traced(case.function, *case.args)
    after, (log,) = apply(graph, rope)
    ops = [eqn.op for eqn in after.eqns]
    assert ops.count(case.op) == 1 and len(log.fired(FORM_ROPE)) == 1
    assert not log.declined(FORM_ROPE)
    names = {op.plain_name for op in ops}
    assert names.isdisjoint({"mul", "add", "sub", "neg"}), names
    (wanted,), (got,) = evaluate(graph, *case.args), evaluate(after, *case.args)
    assert same_bits(got, wanted)


@pytest.mark.parametrize("case", SPELLINGS)
def test_a_spelling_is_one_kernel_with_the_same_bits(case: Spelling):
    graph = traced(case.function, *case.args)
    fused = lower(graph, DeviceInfo()).graph
    regions = [e.op.body for e in fused.eqns if isinstance(e.op, Fused)]
    inner = [eqn.op for body in regions for eqn in body.eqns]
    assert case.op in inner or case.op in [eqn.op for eqn in fused.eqns]
    (wanted,), (got,) = run_graph(graph, case.args), run_graph(fused, case.args)
    assert same_bits(got, wanted)


@pytest.mark.parametrize("dimensions", [None, 8])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, BF16, np.float16])
def test_rope_of_the_library_is_found(dimensions: int | None, interleaved: bool, dtype):
    def turned(x: Any, positions: Any) -> Any:
        return nn.rope(x, positions, dimensions=dimensions, interleaved=interleaved)

    x, positions = Q.astype(dtype), np.arange(5, dtype=np.int32)
    graph = traced(turned, x, positions)
    after, (log,) = apply(graph, rope)
    form = INTERLEAVED if interleaved else HALF
    assert Rope(dimensions or 16, form) in [eqn.op for eqn in after.eqns]
    assert not log.declined(FORM_ROPE)
    (wanted,), (got,) = evaluate(graph, x, positions), evaluate(after, x, positions)
    assert same_bits(got, wanted)


def test_the_text_of_a_rope_in_place_of_its_chain():
    graph = graph_of("""
        device %0: f32[3,4]
        device %1: f32[4]
        device %2: f32[4]
        %3: f32[3,2] = slice[axis=1, start=0, end=2, stride=1](%0)
        %4: f32[3,2] = slice[axis=1, start=2, end=4, stride=1](%0)
        %5: f32[3,2] = unary[op=neg](%4)
        %6: f32[3,4] = concat[axis=1](%5, %3)
        %7: f32[3,4] = binary[op=mul](%0, %1)
        %8: f32[3,4] = binary[op=mul](%6, %2)
        %9: f32[3,4] = binary[op=add](%7, %8)
        result %9
    """)
    after, (log,) = apply(graph, rope)
    assert_text(
        after,
        """
        device %0: f32[3,4]
        device %1: f32[4]
        device %2: f32[4]
        %3: f32[3,4] = rope[rotary=4, form=half](%0, %1, %2)
        result %3
        """,
    )
    assert Graph.parse(str(after)) == after
    assert "%9" in log.fired(FORM_ROPE)[0].place


# --- near misses ------------------------------------------------------------


def why(function: Callable[..., Any], *args: Any) -> Entry:
    """The one entry of the log, for a function in which nothing may fire."""
    graph = traced(function, *args)
    after, (log,) = apply(graph, rope)
    assert after is graph
    (entry,) = {(e.reason, e.detail): e for e in log.entries}.values()
    return entry


def both_add(x: Any, cos: Any, sin: Any) -> Any:
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos + b * sin, b * cos + a * sin], -1)


def turned_back(x: Any, cos: Any, sin: Any) -> Any:
    half = x.shape[-1] // 2
    crossed = jnp.concatenate((x[..., half:], -x[..., :half]), axis=-1)
    return x * cos + crossed * sin


def halves_swapped(x: Any, cos: Any, sin: Any) -> Any:
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([b * cos + a * sin, a * cos - b * sin], -1)


def not_crossed(x: Any, cos: Any, sin: Any) -> Any:
    half = x.shape[-1] // 2
    signed = jnp.concatenate((-x[..., :half], x[..., half:]), axis=-1)
    return x * cos + signed * sin


def read_in_pairs_put_in_halves(x: Any, cos: Any, sin: Any) -> Any:
    even, odd = x[..., ::2], x[..., 1::2]
    return jnp.concatenate([even * cos - odd * sin, odd * cos + even * sin], -1)


def paired_from_both_ends(x: Any, cos: Any, sin: Any) -> Any:
    half = x.shape[-1] // 2
    crossed = jnp.concatenate((-x[..., ::-1][..., :half], x[..., ::-1][..., half:]), -1)
    return x * cos + crossed * sin


def exchanged_in_a_half(x: Any, cos: Any, sin: Any) -> Any:
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * sin + a * cos], -1)


def signed_sines(x: Any, cos: Any, one: Any, other: Any) -> Any:
    """The sign is in the sines, which are of two tensors."""
    half = x.shape[-1] // 2
    crossed = jnp.concatenate((x[..., half:], x[..., :half]), axis=-1)
    return x * cos + crossed * jnp.concatenate([-one, other], -1)


def of_two_tensors(x: Any, y: Any, cos: Any, sin: Any) -> Any:
    return jnp.concatenate([x * cos - y * sin, y * cos + x * sin], -1)


def crossed_with_another(x: Any, y: Any, cos: Any, sin: Any) -> Any:
    half = x.shape[-1] // 2
    crossed = jnp.concatenate((-y[..., half:], x[..., :half]), axis=-1)
    return x * cos + crossed * sin


def shows_a_half(x: Any, cos: Any, sin: Any) -> Any:
    a, b = jnp.split(x, 2, axis=-1)
    first = a * cos - b * sin
    return jnp.concatenate([first, b * cos + a * sin], -1), first


def reads_a_product(x: Any, cos: Any, sin: Any) -> Any:
    straight = x * cos
    return straight + rotate_half(x) * sin, jnp.exp(straight)


def rest_of_another(x: Any, y: Any, cos: Any, sin: Any) -> Any:
    a, b, _ = jnp.split(x, (4, 8), axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin, y[..., 8:]], -1)


def rest_in_front(x: Any, cos: Any, sin: Any) -> Any:
    rest, a, b = jnp.split(x, (8, 12), axis=-1)
    return jnp.concatenate([rest, a * cos - b * sin, b * cos + a * sin], -1)


HALVES = Q[..., :8].copy(), Q[..., 8:].copy()
ONE = PAIRS[0][..., :1].copy()
NEAR_MISSES = [
    (both_add, (Q, *PAIRS), Reason.SIGN, "element 0 of 16 adds its product with sin"),
    (turned_back, (Q, *FULL), Reason.SIGN, "element 0 of 16 adds its product with sin"),
    (
        halves_swapped,
        (Q, *PAIRS),
        Reason.SIGN,
        "element 8 of 16 subtracts its product with cos",
    ),
    (
        not_crossed,
        (Q, *FULL),
        Reason.PARTNER,
        "element 0 of 16 is made of elements 0 and 0",
    ),
    (
        read_in_pairs_put_in_halves,
        (Q, *PAIRS),
        Reason.PARTNER,
        "element 0 of 16 is made of elements 0 and 1",
    ),
    (
        paired_from_both_ends,
        (Q, *FULL),
        Reason.PARTNER,
        "element 0 of 16 is paired with element 15, takes 8 or 1",
    ),
    (
        exchanged_in_a_half,
        (Q, *PAIRS),
        Reason.TABLES,
        "cos is elements 0, 1, 2, 3, 4, 5, 6, 7 of %1, %2 for 16 turned elements",
    ),
    (
        turned_whole,
        (Q, ONE, FULL[1]),
        Reason.TABLES,
        "cos is elements 0, 0, 0, 0, 0, 0, 0, 0 of %1 for 16 turned elements",
    ),
    (
        signed_sines,
        (Q, FULL[0], *PAIRS),
        Reason.TABLES,
        "sin is elements 0, 1, 2, 3, 4, 5, 6, 7 of %2, %3 for 16 turned elements",
    ),
    (
        of_two_tensors,
        (*HALVES, *PAIRS),
        Reason.OTHER_SOURCE,
        "the products are of %0, %1, %2, %3, none of which is in all of them",
    ),
    (
        crossed_with_another,
        (Q, Q + 1, *FULL),
        Reason.OTHER_SOURCE,
        "a product takes elements of %0, %1, %3, not all of %0",
    ),
    (shows_a_half, (Q, *PAIRS), Reason.SHARED, "%7 is an output"),
    (reads_a_product, (Q, *FULL), Reason.SHARED, "%3 is read by Unary[EXP] to %10"),
    (
        rest_of_another,
        (Q, Q + 1, *FEW),
        Reason.REST,
        "element 8 is element 8 of %1",
    ),
    (rest_in_front, (Q, *FEW), Reason.REST, "element 0 is element 0 of %0"),
]


@pytest.mark.parametrize(
    ("function", "args", "reason", "detail"),
    NEAR_MISSES,
    ids=[f"{case[0].__name__}-{case[2].value}" for case in NEAR_MISSES],
)
def test_a_near_miss_is_declined(function, args, reason: Reason, detail: str):
    entry = why(function, *args)
    assert (entry.reason, entry.detail) == (reason, detail)
    assert entry.rewrite is FORM_ROPE


@pytest.mark.parametrize(
    "function",
    [
        lambda x, a, b: x * a + x * b,
        lambda x, a, b: x[..., :8] * a[..., :8] + b[..., 8:] * b[..., 8:],
        lambda x, a, b: x * 2.0 + b * 3.0,
        lambda x, a, b: x * a + jnp.exp(x) * b,
        lambda x, a, b: x * x + x * x,
    ],
)
def test_what_is_nothing_like_it_is_not_spoken_of(function):
    graph = traced(function, Q, *FULL)
    after, (log,) = apply(graph, rope)
    assert after is graph and not log.entries


F16, F32, F64 = (
    poot.core.dtypes.float16,
    poot.core.dtypes.float32,
    poot.core.dtypes.float64,
)


@pytest.mark.parametrize(
    ("casts", "left"),
    [
        ((F16,), ()),
        ((F32, F16), ()),
        ((F32, F64, F32), (F32,)),
        ((F32, F64), (F32, F64)),
        ((F32, F16, F32), (F32,)),
        ((poot.core.dtypes.bfloat16, F16), (poot.core.dtypes.bfloat16, F16)),
    ],
)
def test_casts_there_and_back_are_none(casts, left):
    assert shortened(F16, casts) == left


def test_only_the_turned_part_where_the_rest_is_of_another_tensor():
    def joined(x: Any, y: Any, cos: Any, sin: Any) -> Any:
        return jnp.concatenate([y, turned_whole(x, cos, sin)], -1)

    graph = traced(joined, Q, Q + 1, *FULL)
    after, (log,) = apply(graph, rope)
    assert [str(eqn.op) for eqn in after.eqns] == ["Rope", "Concat"]
    assert not log.declined(FORM_ROPE)


def test_heads_that_are_joined_first():
    graph = traced(joined_heads, Q, *FULL)
    after, (log,) = apply(graph, rope)
    assert [str(eqn.op) for eqn in after.eqns] == ["Binary[MUL]", "Concat", "Rope"]
    assert not log.declined(FORM_ROPE)


def test_a_copy_in_front_is_no_part_of_it():
    """The elements in front are those that are turned, but not in their place."""

    def twice(x: Any, cos: Any, sin: Any) -> Any:
        return jnp.concatenate([x, turned_whole(x, cos, sin)], -1)

    after, _ = apply(traced(twice, Q, *FULL), rope)
    assert [str(eqn.op) for eqn in after.eqns] == ["Rope", "Concat"]


def test_what_is_repeated_over_rows_is_not_turned_once():
    """The rows of the result differ, those of x do not: it is no Rope of x."""
    graph = traced(turned_whole, Q[0, 0, 0], FULL[0][:, 0], FULL[1][:, 0])
    after, (log,) = apply(graph, rope)
    assert after is graph and not log.entries


def test_a_product_that_the_sum_repeats():
    graph = traced(turned_whole, Q[0, 0, 0], FULL[0][0, 0], FULL[1][:, 0])
    after, (log,) = apply(graph, rope)
    assert after is graph and not log.entries


def test_integers_are_not_turned():
    args = [np.ones(shape, np.int32) for shape in ((3, 8), (8,), (8,))]
    graph = traced(turned_whole, *args)
    after, (log,) = apply(graph, rope)
    assert after is graph and not log.entries


def test_queries_and_keys_of_one_product():
    def both(qk: Any, cos: Any, sin: Any) -> Any:
        q, k = jnp.split(qk, 2, -1)
        return split_halves(q, cos, sin), doubled_tables(k, cos, sin)

    args = array((2, 5, 3, 32), 8), *PAIRS
    graph = traced(both, *args)
    after, (log,) = apply(graph, rope)
    assert len(log.fired(FORM_ROPE)) == 2
    for got, wanted in zip(evaluate(after, *args), evaluate(graph, *args), strict=True):
        assert same_bits(got, wanted)


def test_chains_of_moves_take_linear_time():
    def many(x: Any, cos: Any, sin: Any) -> Any:
        for _ in range(300):
            x = turned_whole(x, cos, sin)
        return x

    after, (log,) = apply(traced(many, Q[:1], *FULL), rope)
    assert len(log.fired(FORM_ROPE)) == 300 == len(after.eqns)


# --- the op -----------------------------------------------------------------


def f32(*shape: int) -> TensorType:
    return TensorType(shape, poot.core.dtypes.float32)


@pytest.mark.parametrize(
    ("op", "types", "message"),
    [
        (Rope(3, HALF), (f32(2, 8), f32(3), f32(3)), "an even number"),
        (Rope(10, HALF), (f32(2, 8), f32(5), f32(5)), "an even number"),
        (Rope(0, HALF), (f32(2, 8), f32(0), f32(0)), "an even number"),
        (Rope(8, HALF), (f32(2, 8), f32(2), f32(2)), "takes a last axis of 4 or 8"),
        (Rope(8, HALF), (f32(2, 8), f32(), f32()), "takes a last axis of 4 or 8"),
        (Rope(8, HALF), (f32(2, 8), f32(3, 2, 8), f32(8)), "does not repeat"),
        (Rope(8, HALF), (f32(1, 8), f32(2, 8), f32(8)), "does not repeat"),
        (Rope(8, HALF), (f32(2, 8), f32(4), f32(8)), "equal last axes"),
    ],
)
def test_types_that_a_rope_refuses(op: Rope, types, message: str):
    with pytest.raises(ShapeError, match=message):
        op.infer(*types)


def test_a_rope_takes_floats_of_one_dtype():
    whole = TensorType((2, 8), poot.core.dtypes.int32)
    with pytest.raises(DTypeError):
        Rope(8, HALF).infer(whole, whole, whole)
    with pytest.raises(DTypeError):
        Rope(8, HALF).infer(f32(2, 8), whole, whole)
