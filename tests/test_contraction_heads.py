"""Contractions of one operand: gated pairs, and several in one launch."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import nn
from poot.core.graph import Graph
from poot.core.ops.contractions import ContractionEpilogue
from poot.lowering.compile import FUSING, lower, plan
from poot.lowering.passes.contraction_epilogue import contraction_epilogue
from poot.lowering.passes.driver import Numerics, Reason, run_passes
from poot.lowering.passes.gated import GATED, gated
from poot.lowering.passes.horizontal import HORIZONTAL, horizontal
from tests.kernel_harness import assert_exact, device, run_program, same_bits
from tests.numerics import rng_of
from tests.pass_harness import apply, declined, dot_general, fired, graph_of

INPUTS = """
    device %0: f32[3,4]
    device %1: f32[4,8]
    device %2: f32[4,8]
"""
PAIR = f"""{INPUTS}
    %3: f32[3,8] = matmul[out=none](%0, %1)
    %4: f32[3,8] = matmul[out=none](%0, %2)
"""


def names(graph: Graph) -> list[str]:
    return [eqn.op.name for eqn in graph.eqns]


# --- gated ------------------------------------------------------------------


def test_results_that_meet_are_computed_together():
    graph = graph_of(f"""{PAIR}
        device %5: f32[8]
        %6: f32[3,8] = binary[op=add](%3, %5)
        %7: f32[3,8] = unary[op=tanh](%6)
        %8: f32[3,8] = binary[op=mul](%7, %4)
        result %8
    """)
    after, (log,) = apply(graph, gated)
    assert fired(log, GATED) == ["%4"] and not log.declined(GATED)
    (eqn,) = after.eqns
    assert isinstance(eqn.op, ContractionEpilogue) and len(eqn.op.heads) == 2
    assert eqn.op.head_groups() == [((0, 1), (0,))]
    assert GATED.numerics is Numerics.EXACT


GATED_NEAR_MISSES = {
    "they do not meet": (
        f"""{PAIR}
        %5: f32[3,8] = unary[op=tanh](%3)
        result %5
        result %4
        """,
        Reason.KEPT,
    ),
    "one is read elsewhere too": (
        f"""{PAIR}
        %5: f32[3] = reduce[op=sum, axis=1, keepdim=false](%3)
        %6: f32[3,8] = binary[op=mul](%3, %4)
        result %6
        result %5
        """,
        Reason.BOUNDARY,
    ),
    "other sizes": (
        f"""{INPUTS}
        device %3: f32[4,1]
        %4: f32[3,8] = matmul[out=none](%0, %1)
        %5: f32[3,1] = matmul[out=none](%0, %3)
        %6: f32[3,8] = binary[op=mul](%4, %5)
        result %6
        """,
        Reason.OTHER_TYPE,
    ),
    "other axes of the weight": (
        f"""
        device %0: f32[3,8]
        device %1: f32[8,8]
        %2: f32[3,8] = {dot_general("(1)", "(0)")}(%0, %1)
        %3: f32[3,8] = {dot_general("(1)", "(1)")}(%0, %1)
        %4: f32[3,8] = binary[op=mul](%2, %3)
        result %4
        """,
        Reason.OTHER_TYPE,
    ),
}


@pytest.mark.parametrize("name", GATED_NEAR_MISSES)
def test_pairs_that_are_not_gated(name: str):
    text, reason = GATED_NEAR_MISSES[name]
    graph = graph_of(text)
    after, (log,) = apply(graph, gated)
    assert after == graph
    assert list(declined(log, GATED).values()) == [reason]


def test_contractions_of_other_operands_are_no_pair():
    graph = graph_of(f"""{INPUTS}
        device %3: f32[3,4]
        %4: f32[3,8] = matmul[out=none](%0, %1)
        %5: f32[3,8] = matmul[out=none](%3, %2)
        %6: f32[3,8] = binary[op=mul](%4, %5)
        result %6
    """)
    after, (log,) = apply(graph, gated)
    assert after == graph and not log.entries


def test_a_contraction_is_of_one_pair_only():
    graph = graph_of(f"""{PAIR}
        device %5: f32[4,8]
        %6: f32[3,8] = binary[op=mul](%3, %4)
        %7: f32[3,8] = matmul[out=none](%0, %5)
        %8: f32[3,8] = binary[op=mul](%6, %7)
        result %8
    """)
    after, logs = apply(graph, gated, contraction_epilogue)
    assert fired(logs[0], GATED) == ["%4"]
    assert declined(logs[0], GATED) == {"%7": Reason.TAKEN}
    assert names(after) == ["matmul", "contraction_epilogue"]


# --- horizontal -------------------------------------------------------------


def test_contractions_of_one_operand_share_a_launch():
    graph = graph_of(f"""{INPUTS}
        device %3: f32[4,5]
        device %4: f32[5]
        %5: f32[3,8] = matmul[out=none](%0, %1)
        %6: f32[3,8] = unary[op=tanh](%5)
        %7: f32[3,8] = {dot_general("(1)", "(0)")}(%0, %2)
        %8: f32[3,5] = matmul[out=none](%0, %3)
        %9: f32[3,5] = binary[op=add](%8, %4)
        %10: f32[8,3] = transpose[perm=(1, 0)](%7)
        result %6
        result %10
        result %9
    """)
    after, logs = apply(graph, contraction_epilogue, horizontal)
    assert len(logs[1].fired(HORIZONTAL)) == 2
    assert names(after) == ["contraction_epilogue", "transpose"]
    op = after.eqns[0].op
    assert isinstance(op, ContractionEpilogue)
    assert op.head_groups() == [((0,), (0,)), ((1,), (1,)), ((2,), (2,))]
    args = [np.ones(t.shape, np.float32) for t in graph.input_types]
    assert_exact(after, args)
    assert HORIZONTAL.numerics is Numerics.EXACT


MANY = "".join(
    [
        "device %0: f32[3,4]\n",
        *(f"device %{1 + n}: f32[4,8]\n" for n in range(8)),
        *(f"%{9 + n}: f32[3,8] = matmul[out=none](%0, %{1 + n})\n" for n in range(8)),
        *(f"result %{9 + n}\n" for n in range(8)),
    ]
)
FAR = "\n".join(
    [
        INPUTS,
        "%3: f32[3,8] = matmul[out=none](%0, %1)",
        *(
            f"%{4 + n}: f32[3,4] = unary[op=neg](%{3 + n if n else 0})"
            for n in range(99)
        ),
        "%103: f32[3,8] = matmul[out=none](%0, %2)",
        "result %3\nresult %102\nresult %103",
    ]
)
HORIZONTAL_NEAR_MISSES = {
    "one needs the other": (
        f"""{INPUTS}
        %3: f32[3,8] = matmul[out=none](%0, %1)
        %4: f32[8] = reduce[op=max, axis=0, keepdim=false](%3)
        %5: f32[4,8] = binary[op=add](%2, %4)
        %6: f32[3,8] = matmul[out=none](%0, %5)
        result %6
        """,
        {"%6": Reason.ORDER},
    ),
    "one is the other's operand": (
        """
        device %0: f32[4,4]
        device %1: f32[4,4]
        %2: f32[4,4] = matmul[out=none](%0, %1)
        %3: f32[4,4] = transpose[perm=(1, 0)](%2)
        %4: f32[4,4] = matmul[out=none](%0, %3)
        result %4
        """,
        {"%4": Reason.ORDER},
    ),
    "another axis of the operand": (
        f"""
        device %0: f32[4,4]
        device %1: f32[4,8]
        %2: f32[4,8] = {dot_general("(1)", "(0)")}(%0, %1)
        %3: f32[4,8] = {dot_general("(0)", "(0)")}(%0, %1)
        result %2
        result %3
        """,
        {"%3": Reason.OTHER_LHS},
    ),
    "too many": (MANY, {"%15": Reason.RESULT_LIMIT}),
    "too far": (FAR, {"%103": Reason.LIFETIME}),
}


@pytest.mark.parametrize("name", HORIZONTAL_NEAR_MISSES)
def test_contractions_that_stay_apart(name: str):
    text, reasons = HORIZONTAL_NEAR_MISSES[name]
    graph = graph_of(text)
    after, (log,) = apply(graph, horizontal)
    assert declined(log, HORIZONTAL) == reasons
    wanted = {"too many": 2}.get(name)
    assert (after == graph) if wanted is None else (len(after.eqns) == wanted)


def test_views_of_weights_may_stand_behind_what_reads_the_first():
    graph = graph_of(f"""{INPUTS}
        device %3: f32[8,4]
        %4: f32[3,8] = matmul[out=none](%0, %1)
        %5: f32[3] = reduce[op=max, axis=1, keepdim=false](%4)
        %6: f32[4,8] = transpose[perm=(1, 0)](%3)
        %7: f32[3,8] = matmul[out=none](%0, %6)
        result %5
        result %7
    """)
    after, (log,) = apply(graph, horizontal)
    assert fired(log, HORIZONTAL) == ["%7"]
    assert sorted(names(after)) == ["contraction_epilogue", "reduce", "transpose"]


def test_a_group_stays_open_while_others_take_other_axes():
    graph = graph_of(f"""
        device %0: f32[4,4]
        device %1: f32[4,8]
        %2: f32[4,8] = {dot_general("(1)", "(0)")}(%0, %1)
        %3: f32[4,8] = {dot_general("(0)", "(0)")}(%0, %1)
        %4: f32[4,4] = {dot_general("(1)", "(0)")}(%0, %0)
        result %2
        result %3
        result %4
    """)
    after, (log,) = apply(graph, horizontal)
    assert declined(log, HORIZONTAL) == {"%3": Reason.OTHER_LHS}
    assert fired(log, HORIZONTAL) == ["%4"]
    assert names(after) == ["contraction_epilogue", "dot_general"]


def test_operands_of_a_launch_are_limited():
    extras = "".join(f"device %{3 + n}: f32[8]\n" for n in range(24))
    adds = "".join(
        f"%{29 + n}: f32[3,8] = binary[op=add](%{28 + n if n else 27}, %{3 + n})\n"
        for n in range(24)
    )
    graph = graph_of(f"""{INPUTS}{extras}
        %27: f32[3,8] = matmul[out=none](%0, %1)
        %28: f32[3,8] = matmul[out=none](%0, %2)
        {adds}
        result %52
        result %28
    """)
    after, logs = apply(graph, contraction_epilogue, horizontal)
    assert len(logs[0].entries) >= 1 and len(after.eqns) == 2
    assert list(declined(logs[1], HORIZONTAL).values()) == [Reason.OPERAND_LIMIT]


# --- on the device ----------------------------------------------------------

SIZES = ((1, 8, 70), (1, 33, 130), (3, 32, 64), (17, 9, 33), (40, 64, 128))
PROFILES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "no subgroups": {"subgroup_arithmetic": False, "subgroup_shuffle": False},
    "few trips": {"max_loop_trips": 300},
    "no small storage": {"storage8": False, "storage16": False},
}


def layer(dtype: str, m: int, n: int, k: int) -> Graph:
    """A gated pair with one more contraction of other columns, all of one operand."""
    dot = dot_general("(1)", "(1)")
    return graph_of(f"""
        device %0: {dtype}[{m},{k}]
        device %1: {dtype}[{n},{k}]
        device %2: {dtype}[{n},{k}]
        device %3: {dtype}[5,{k}]
        device %4: {dtype}[{m},1]
        %5: {dtype}[{m},{n}] = {dot}(%0, %1)
        %6: {dtype}[{m},{n}] = binary[op=max](%5, 0.0:{dtype})
        %7: {dtype}[{m},{n}] = {dot}(%0, %2)
        %8: {dtype}[{m},{n}] = binary[op=mul](%6, %7)
        %9: {dtype}[{m},5] = {dot}(%0, %3)
        %10: {dtype}[{m},5] = binary[op=add](%9, %4)
        result %8
        result %10
    """)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_one_launch_of_the_same_bits(profile: str, dtype: str):
    info = device().info.masked(**PROFILES[profile])
    sizes = SIZES if profile == "as it is" else ((1, 8, 70), (5, 36, 1300))
    for m, n, k in sizes:
        graph = layer(dtype, m, n, k)
        fused, _ = run_passes((gated, contraction_epilogue, horizontal), graph, info)
        assert names(fused) == ["contraction_epilogue"]
        program = plan(fused, info)
        if profile == "as it is":
            assert len(program.body) == 1
        args = [
            rng_of(f"{m} {n}").integers(-2, 3, t.shape).astype(t.dtype.numpy)
            for t in graph.input_types
        ]
        assert_exact(fused, args, info)
        if profile == "as it is":
            check_bits(graph, fused)


def check_bits(graph: Graph, fused: Graph) -> None:
    """Of sums that are rounded: as separate launches compute them."""
    info = device().info
    args = [
        rng_of("bits").standard_normal(t.shape).astype(t.dtype.numpy)
        for t in graph.input_types
    ]
    apart, _ = run_passes(FUSING, graph, info)
    right = run_program(apart, plan(apart, info), args)
    for mine, wanted in zip(
        run_program(fused, plan(fused, info), args), right, strict=True
    ):
        assert same_bits(mine, wanted)


def test_splits_of_several_heads_are_combined():
    info = device().info.masked(max_loop_trips=300)
    fused = lower(layer("f32", 2, 8, 9000), info).graph
    assert names(fused) == ["contraction_epilogue"]
    args = [
        rng_of("splits").integers(-1, 2, t.shape).astype(np.float32)
        for t in fused.input_types
    ]
    assert_exact(fused, args, info)


def swiglu(x, gate, up):
    return nn.silu(x @ gate.T) * (x @ up.T)


def projections(x, q, k, v, bias):
    return x @ q.T + bias, x @ k.T, x @ v.T


FUNCTIONS = {
    "swiglu": (swiglu, ((1, 64), (96, 64), (96, 64))),
    "swiglu of rows": (swiglu, ((2, 3, 64), (96, 64), (96, 64))),
    "q, k and v": (projections, ((1, 64), (96, 64), (32, 64), (48, 64), (96,))),
    "q, k and v of rows": (
        projections,
        ((2, 9, 64), (96, 64), (32, 64), (48, 64), (96,)),
    ),
}


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_dispatch(name: str, dtype: Any):
    function, shapes = FUNCTIONS[name]
    rng = rng_of(name)
    args = [jnp.asarray((rng.standard_normal(s) * 0.2).astype(dtype)) for s in shapes]
    compiled = poot.jit(function).lower(*args).compile()
    assert len(compiled.program.body) == 1
    for mine, right in zip(
        *map(np.atleast_2d, map(flat, (compiled(*args), function(*args)))), strict=True
    ):
        np.testing.assert_allclose(mine, right, rtol=2e-2, atol=2e-2)


def flat(results: Any) -> np.ndarray[Any, Any]:
    leaves = results if isinstance(results, tuple) else (results,)
    return np.concatenate([np.asarray(x).astype(np.float32).ravel() for x in leaves])
