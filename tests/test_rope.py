"""Rotary embedding: which spellings become Rope, and which near misses do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import nn
from poot.core.errors import DTypeError, ShapeError
from poot.core.graph import Graph
from poot.core.ops.composite import Fused
from poot.core.ops.rope import Rope
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
from tests.rope_near_misses import NEAR_MISSES
from tests.rope_spellings import (
    BF16,
    FULL,
    HALF,
    INTERLEAVED,
    PAIRS,
    SPELLINGS,
    TURNED_SIGNS,
    Q,
    Spelling,
    array,
    doubled_tables,
    joined_heads,
    rolled,
    rolled_and_subtracted,
    rotate_half,
    split_halves,
    turned_whole,
)


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


@pytest.mark.parametrize("case", TURNED_SIGNS)
def test_a_spelling_with_other_signs_turns_those_of_a_table(case: Spelling):
    graph = traced(case.function, *case.args)
    after, (log,) = apply(graph, rope)
    ops = [eqn.op for eqn in after.eqns]
    assert ops.count(case.op) == 1 and len(log.fired(FORM_ROPE)) == 1
    assert not log.declined(FORM_ROPE)
    assert {op.plain_name for op in ops}.isdisjoint({"mul", "add", "sub"})
    (wanted,), (got,) = evaluate(graph, *case.args), evaluate(after, *case.args)
    assert same_bits(got, wanted)


@pytest.mark.parametrize("case", [*SPELLINGS, *TURNED_SIGNS])
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


def test_the_text_of_turned_signs():
    """Only a table's signs are turned; which elements are first is told once."""

    def both(q: Any, k: Any, cos: Any, sin: Any) -> Any:
        return rolled(k, cos, sin), rolled_and_subtracted(q, cos, sin)

    after, _ = apply(traced(both, *(np.ones((3, 4), np.float32),) * 4), rope)
    assert_text(
        after,
        """
        device %0: f32[3,4] named "q"
        device %1: f32[3,4] named "k"
        device %2: f32[3,4] named "cos"
        device %3: f32[3,4] named "sin"
        %4: i32[4] = iota[dtype=i32, shape=(4), axis=0]()
        %5: bool[4] = compare[op=lt](%4, 2:i32)
        %6: f32[3,4] = unary[op=neg](%3)
        %7: f32[3,4] = select(%5, %6, %3)
        %8: f32[3,4] = rope[rotary=4, form=half](%1, %2, %7)
        %9: f32[3,4] = unary[op=neg](%3)
        %10: f32[3,4] = select(%5, %3, %9)
        %11: f32[3,4] = rope[rotary=4, form=half](%0, %2, %10)
        result %8
        result %11
        """,
    )


# --- near misses ------------------------------------------------------------


def why(function: Callable[..., Any], *args: Any) -> Entry:
    """The one entry of the log, for a function in which nothing may fire."""
    graph = traced(function, *args)
    after, (log,) = apply(graph, rope)
    assert after is graph
    (entry,) = {(e.reason, e.detail): e for e in log.entries}.values()
    return entry


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
        lambda x, a, b: x * a + jnp.exp(rotate_half(x)) * b,
        lambda x, a, b: x * a + (x * b) * b,
        lambda x, a, b: x * a + (rotate_half(a) * b) * b,
        lambda x, a, b: x * a + (a @ jnp.ones((16, 16))) * b,
        lambda x, a, b: (x * a + (x * b)[..., :1] * b)[..., :1] * 2,
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
