"""Products whose columns go different ways are one product for each way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import lax, nn
from poot.core.graph import Graph
from poot.lowering.passes.driver import Numerics, Reason
from poot.lowering.passes.gated import gated
from poot.lowering.passes.horizontal import MOST_HEADS
from poot.lowering.passes.split_columns import SPLIT_COLUMNS, split_columns
from tests.numerics import rng_of
from tests.pass_harness import (
    apply,
    assert_text,
    declined,
    dot_general,
    fired,
    graph_of,
)

PRODUCT = """
    device %0: f32[3,4]
    device %1: f32[4,16]
    %2: f32[3,16] = matmul[out=none](%0, %1)
"""
HALVES = """
    %{0}: f32[3,8] = slice[axis=1, start=0, end=8, stride=1](%{2})
    %{1}: f32[3,8] = slice[axis=1, start=8, end=16, stride=1](%{2})
"""


def names(graph: Graph) -> list[str]:
    return [eqn.op.name for eqn in graph.eqns]


# --- fires ------------------------------------------------------------------


def test_halves_that_meet_are_a_gated_pair():
    graph = graph_of(f"""{PRODUCT}{HALVES.format(3, 4, 2)}
        %5: f32[3,8] = binary[op=mul](%3, %4)
        result %5
    """)
    after, (log,) = apply(graph, split_columns)
    assert fired(log, SPLIT_COLUMNS) == ["%2"]
    assert SPLIT_COLUMNS.numerics is Numerics.EXACT
    assert_text(
        after,
        """
        device %0: f32[3,4]
        device %1: f32[4,16]
        %2: f32[4,8] = slice[axis=1, start=0, end=8, stride=1](%1)
        %3: f32[3,8] = matmul[out=none](%0, %2)
        %4: f32[4,8] = slice[axis=1, start=8, end=16, stride=1](%1)
        %5: f32[3,8] = matmul[out=none](%0, %4)
        %6: f32[3,8] = binary[op=mul](%3, %5)
        result %6
        """,
    )
    after, _ = apply(graph, split_columns, gated)
    assert names(after) == ["slice", "slice", "contraction_epilogue"]


def test_what_comes_before_the_slices_is_split_too():
    """An operand is computed by parts if only this reads it, and else cut."""
    graph = graph_of(f"""
        device %0: f32[3,4]
        device %1: f32[16,4]
        device %2: f16[16]
        device %3: f32[3,1]
        device %4: f32[16]
        %5: f32[3,16] = {dot_general("(1)", "(1)")}(%0, %1)
        %6: f32[16] = cast[to=f32](%2)
        %7: f32[16] = unary[op=neg](%4)
        %8: f32[3,16] = binary[op=add](%5, %6)
        %9: f32[3,16] = binary[op=mul](%8, %3)
        %10: f32[3,16] = binary[op=add](%9, 1.0:f32)
        %11: f32[3,16] = binary[op=add](%7, %10)
        %12: f32[3,8] = slice[axis=1, start=0, end=16, stride=2](%11)
        %13: f32[3,8] = slice[axis=1, start=1, end=16, stride=2](%11)
        %14: f32[3,8] = binary[op=mul](%12, %13)
        result %14
        result %7
    """)
    after, (log, _) = apply(graph, split_columns, gated)
    assert fired(log, SPLIT_COLUMNS) == ["%5"]
    assert names(after).count("contraction_epilogue") == 1
    # Of the weight, and of both operands that all columns share.
    assert names(after).count("slice") == 6
    assert "cast" not in names(after) and names(after).count("unary") == 1


def test_parts_of_a_product_are_put_where_they_belong():
    graph = graph_of(f"""{PRODUCT}
        device %3: f16[9,2,2]
        device %4: i32[]
        %5: f32[3,4] = slice[axis=1, start=0, end=4, stride=1](%2)
        %6: f32[3,8] = slice[axis=1, start=8, end=16, stride=1](%2)
        %7: f32[3,2,2] = reshape[shape=(3, 2, 2)](%5)
        %8: f16[3,2,2] = cast[to=f16](%7)
        %9: f16[9,2,2] = dynamic_update_slice(%3, %8, %4, 0:i32, 0:i32)
        result %6
        result %9
    """)
    after, (log,) = apply(graph, split_columns)
    assert fired(log, SPLIT_COLUMNS) == ["%2"]
    assert names(after).count("matmul") == 2


# --- declines ---------------------------------------------------------------

MEET = """
    %{2}: f32[3,8] = binary[op=mul](%{0}, %{1})
    result %{2}
"""
SLICES = "\n".join(
    f"%{3 + n}: f32[3,1] = slice[axis=1, start={n}, end={n + 1}, stride=1](%2)"
    for n in range(MOST_HEADS + 1)
)
NEAR_MISSES = {
    "all columns are read too": (
        f"""{PRODUCT}{HALVES.format(3, 4, 2)}{MEET.format(3, 4, 5)}
        %6: f32[3] = reduce[op=sum, axis=1, keepdim=false](%2)
        result %6
        """,
        Reason.SHARED,
        "read by %6 = Reduce[SUM](%2) at <graph text>:13 (reduce)",
    ),
    "all columns are a result too": (
        f"{PRODUCT}{HALVES.format(3, 4, 2)}{MEET.format(3, 4, 5)}\nresult %2",
        Reason.SHARED,
        "it is an output",
    ),
    "columns that two need": (
        f"""{PRODUCT}
        %3: f32[3,8] = slice[axis=1, start=0, end=8, stride=1](%2)
        %4: f32[3,8] = slice[axis=1, start=7, end=15, stride=1](%2)
        {MEET.format(3, 4, 5)}
        """,
        Reason.RECOMPUTE,
        "columns in more than one of %3 f32[3,8], %4 f32[3,8]",
    ),
    "halves that do not meet": (
        f"{PRODUCT}{HALVES.format(3, 4, 2)}\nresult %3\nresult %4",
        Reason.SMALL_GAIN,
        "%3 f32[3,8], %4 f32[3,8] neither meet nor go into rope or an update",
    ),
    "thirds": (
        f"""{PRODUCT}{HALVES.format(3, 4, 2).replace("end=16", "end=12")}
        """.replace(
            "f32[3,8] = slice[axis=1, start=8", "f32[3,4] = slice[axis=1, start=8"
        )
        + """
        %5: f32[3,4] = slice[axis=1, start=12, end=16, stride=1](%2)
        %6: f32[3,4] = binary[op=mul](%4, %5)
        result %3
        result %6
        """,
        Reason.SMALL_GAIN,
        "%3 f32[3,8], %4 f32[3,4], %5 f32[3,4] neither meet nor go into rope or an "
        "update",
    ),
    "more than a launch holds": (
        "\n".join(
            [
                PRODUCT,
                SLICES,
                *(f"result %{3 + n}" for n in range(MOST_HEADS + 1)),
            ]
        ),
        Reason.RESULT_LIMIT,
        "7 slices, takes 6",
    ),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses(name: str):
    text, reason, detail = NEAR_MISSES[name]
    graph = graph_of(text)
    after, (log,) = apply(graph, split_columns)
    assert after == graph
    assert declined(log, SPLIT_COLUMNS) == {"%2": reason}
    (entry,) = log.declined(SPLIT_COLUMNS)
    assert entry.detail == f"%2 f32[3,16]: {detail}"


def test_of_two_products_that_meet_before_the_slices_one_is_split():
    graph = graph_of(f"""{PRODUCT}
        device %3: f32[4,16]
        %4: f32[3,16] = matmul[out=none](%0, %3)
        %5: f32[3,16] = binary[op=add](%2, %4)
        {HALVES.format(6, 7, 5)}{MEET.format(6, 7, 8)}
    """)
    after, (log,) = apply(graph, split_columns)
    assert fired(log, SPLIT_COLUMNS) == ["%2"]
    assert declined(log, SPLIT_COLUMNS) == {"%4": Reason.TAKEN}
    assert names(after).count("matmul") == 3


NO_CANDIDATES = {
    "rows are taken": f"""{PRODUCT}
        %3: f32[1,16] = slice[axis=0, start=0, end=1, stride=1](%2)
        %4: f32[1,16] = slice[axis=0, start=1, end=2, stride=1](%2)
        %5: f32[1,16] = binary[op=mul](%3, %4)
        result %5
    """,
    "no columns": f"""
        device %0: f32[16,4]
        device %1: f32[4]
        %2: f32[16] = {dot_general("(1)", "(0)")}(%0, %1)
        %3: f32[8] = slice[axis=0, start=0, end=8, stride=1](%2)
        %4: f32[8] = slice[axis=0, start=8, end=16, stride=1](%2)
        %5: f32[8] = binary[op=mul](%3, %4)
        result %5
    """,
    "another shape before the slices": f"""{PRODUCT}
        device %3: f32[2,3,16]
        %4: f32[2,3,16] = binary[op=add](%2, %3)
        %5: f32[2,3,8] = slice[axis=2, start=0, end=8, stride=1](%4)
        %6: f32[2,3,8] = slice[axis=2, start=8, end=16, stride=1](%4)
        %7: f32[2,3,8] = binary[op=mul](%5, %6)
        result %7
    """,
    "no arithmetic before the slices": f"""{PRODUCT}
        %3: f32[3,16] = reverse[axes=(1)](%2)
        {HALVES.format(4, 5, 3)}{MEET.format(4, 5, 6)}
    """,
    "two ways before the slices": f"""{PRODUCT}
        %3: f32[3,16] = unary[op=neg](%2)
        {HALVES.format(4, 5, 3)}{MEET.format(4, 5, 6)}
        %7: f32[3,16] = unary[op=exp](%2)
        result %7
    """,
    "blocks of a weight": """
        device %0: f32[2,3,4]
        device %1: f32[32,4]
        %2: f32[2,3,16] = grouped_dense_contraction[out=none](%0, %1)
        %3: f32[2,3,8] = slice[axis=2, start=0, end=8, stride=1](%2)
        %4: f32[2,3,8] = slice[axis=2, start=8, end=16, stride=1](%2)
        %5: f32[2,3,8] = binary[op=mul](%3, %4)
        result %5
    """,
}


@pytest.mark.parametrize("name", NO_CANDIDATES)
def test_no_candidates(name: str):
    graph = graph_of(NO_CANDIDATES[name])
    after, (log,) = apply(graph, split_columns)
    assert after == graph and not log.entries


# --- on the device ----------------------------------------------------------


def halves(x: Any, w: Any, b: Any) -> Any:
    first, second = jnp.split(x @ w + b, 2, axis=-1)
    return nn.silu(first) * second


def neighbours(x: Any, w: Any, b: Any) -> Any:
    h = x @ w.T + b
    return h[..., ::2] * nn.gelu(h[..., 1::2])


def turned(cache: Any, x: Any, w: Any, b: Any, at: Any) -> Any:
    """q, k and v of one weight, as many models keep it."""
    parts = jnp.split(x @ w.T + b, [16, 24], axis=-1)
    q, k, v = (part.reshape(1, -1, 8) for part in parts)
    q, k = (nn.rope(part, at + jnp.arange(1)) for part in (q, k))
    return q, lax.dynamic_update_slice(cache, k, (at, 0, 0)), v


def made(*shape: int) -> Any:
    return rng_of(str(shape)).standard_normal(shape).astype(np.float32) * 0.3


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (halves, ((1, 24), (24, 40), (40,))),
        (halves, ((2, 9, 24), (24, 36), (36,))),
        (neighbours, ((3, 24), (40, 24), (40,))),
    ],
)
def test_halves_take_one_launch(function: Any, shapes: Any):
    args = [made(*shape) for shape in shapes]
    compiled = poot.jit(function).lower(*args).compile()
    assert len(compiled.program.dispatches) == len(compiled.program.body) == 1
    right = np.asarray(function(*map(poot.device_put, args)))
    np.testing.assert_allclose(np.asarray(compiled(*args)), right, rtol=1e-5, atol=1e-5)


def test_a_weight_of_q_k_and_v_takes_one_launch_but_for_the_angles():
    args = made(9, 1, 8), made(1, 24), made(32, 24), made(32), np.int32(3)
    jitted = poot.jit(turned, donate_argnums=0)
    program = jitted.lower(*args).compile().program
    assert len(program.dispatches) == len(program.body) == 2
    graph = poot.jit(turned).trace(*args).graph
    wanted = poot.evaluate(graph, *args)
    for mine, right in zip(jitted(*args), wanted, strict=True):
        np.testing.assert_allclose(np.asarray(mine), right, rtol=1e-5, atol=1e-6)
