"""Few rows are normalized in the workgroups of the contraction that reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import nn
from poot.core.graph import Graph
from poot.core.ops.contractions import ContractionEpilogue
from poot.lowering.compile import lower, plan
from poot.lowering.device_info import DeviceInfo, DeviceKind
from poot.lowering.passes.contraction_epilogue import contraction_epilogue
from poot.lowering.passes.contraction_prologue import (
    MOST_ROWS,
    PROLOGUE,
    contraction_prologue,
)
from poot.lowering.passes.driver import Numerics, Reason, run_passes
from poot.lowering.passes.fuse_rows import fuse_rows
from tests.kernel_harness import assert_exact, device
from tests.numerics import rng_of
from tests.pass_harness import (
    apply,
    assert_same_meaning,
    declined,
    dot_general,
    fired,
    graph_of,
)

PASSES = (contraction_epilogue, fuse_rows, contraction_prologue)
DOT = dot_general("(1)", "(1)")

GPU = DeviceInfo(kind=DeviceKind.DISCRETE)


def rows(m: int, k: int, dtype: str = "f32") -> str:
    """Rows less their maximum, which small integers keep exact; %4 is the result."""
    return f"""
        device %0: {dtype}[{m},{k}]
        device %1: {dtype}[{k}]
        %2: {dtype}[{m},1] = reduce[op=max, axis=1, keepdim=true](%0)
        %3: {dtype}[{m},{k}] = binary[op=sub](%0, %2)
        %4: {dtype}[{m},{k}] = binary[op=mul](%3, %1)
    """


def program(m: int, n: int, k: int, dtype: str = "f32") -> Graph:
    return graph_of(f"""{rows(m, k, dtype)}
        device %5: {dtype}[{n},{k}]
        device %6: {dtype}[{n}]
        %7: {dtype}[{m},{n}] = {DOT}(%4, %5)
        %8: {dtype}[{m},{n}] = binary[op=add](%7, %6)
        result %8
    """)


def names(graph: Graph) -> list[str]:
    return [eqn.op.name for eqn in graph.eqns]


# --- fires ------------------------------------------------------------------


def test_few_rows_are_made_where_they_are_read():
    graph = program(3, 8, 12)
    after, (*_, log) = apply(graph, *PASSES)
    (eqn,) = after.eqns
    assert isinstance(eqn.op, ContractionEpilogue) and eqn.op.prologue is not None
    assert len(log.fired(PROLOGUE)) == 1 and not log.declined(PROLOGUE)
    assert Graph.parse(str(after)) == after
    assert PROLOGUE.numerics is Numerics.REASSOCIATING


def test_a_lone_contraction_takes_them_too():
    graph = graph_of(f"""{rows(2, 8)}
        device %5: f32[8,4]
        %6: f32[2,4] = matmul[out=none](%4, %5)
        result %6
    """)
    after, _ = apply(graph, *PASSES)
    assert names(after) == ["contraction_epilogue"]


def test_one_step_of_decomposition_leaves_the_epilogue():
    after, _ = apply(program(3, 8, 12), *PASSES)
    (eqn,) = after.eqns
    assert isinstance(eqn.op, ContractionEpilogue)
    types = tuple(map(after.type, eqn.inputs))
    assert names(eqn.op.decompose(*types)) == ["fused_row", "contraction_epilogue"]


# --- declines ---------------------------------------------------------------

NEAR_MISSES = {
    "many rows": (
        f"""{rows(MOST_ROWS + 1, 8)}
        device %5: f32[4,8]
        %6: f32[{MOST_ROWS + 1},4] = {DOT}(%4, %5)
        result %6
        """,
        Reason.MANY_ROWS,
    ),
    "several readers": (
        f"""{rows(2, 8)}
        device %5: f32[4,8]
        device %6: f32[3,3]
        %7: f32[2,4] = {DOT}(%4, %5)
        %8: f32[8,2] = transpose[perm=(1, 0)](%4)
        result %7
        result %8
        """,
        Reason.SEVERAL_READERS,
    ),
    "an output": (
        f"""{rows(2, 8)}
        device %5: f32[4,8]
        %6: f32[2,4] = {DOT}(%4, %5)
        result %6
        result %4
        """,
        Reason.KEPT,
    ),
    "another result": (
        f"""{rows(2, 8)}
        device %5: f32[4,8]
        %6: f32[2,4] = {DOT}(%4, %5)
        result %6
        result %2
        """,
        Reason.OTHER_RESULT_USED,
    ),
    "the rhs": (
        f"""{rows(2, 8)}
        device %5: f32[4,8]
        %6: f32[4,2] = {DOT}(%5, %4)
        result %6
        """,
        Reason.NOT_LHS,
    ),
    "another axis": (
        f"""{rows(2, 8)}
        device %5: f32[4,2]
        %6: f32[8,4] = {dot_general("(0)", "(1)")}(%4, %5)
        result %6
        """,
        Reason.NOT_LHS,
    ),
    "batches": (
        f"""{rows(2, 8)}
        device %5: f32[2,4,8]
        %6: f32[2,4] = {dot_general("(1)", "(2)", "(0)")}(%4, %5)
        result %6
        """,
        Reason.NOT_LHS,
    ),
    "long rows": (
        f"""{rows(4, 2000)}
        device %5: f32[4,2000]
        %6: f32[4,4] = {DOT}(%4, %5)
        result %6
        """,
        Reason.SHARED_MEMORY,
    ),
    "many workgroups": (
        f"""{rows(4, 600)}
        device %5: f32[600,500]
        %6: f32[4,500] = matmul[out=none](%4, %5)
        result %6
        """,
        Reason.RECOMPUTE,
    ),
}


# The reader, and the values and sizes that it depends on.
DETAILS = {
    "many rows": "%4 f32[17,4]: 17 rows of 8, at most 16",
    "several readers": "%5 f32[2,4], %6 f32[8,2]: 2 read %4 f32[2,8], takes 1",
    "an output": "%4 f32[2,4]: %3 f32[2,8] is an output",
    "another result": "%5 f32[2,4]: 2 results, %3 f32[2,1], %4 f32[2,8]",
    "the rhs": "%4 f32[4,2]: made of %2 f32[4,8], %3 f32[2,8]",
    "another axis": "%4 f32[8,4]: made of %3 f32[2,8], %2 f32[4,2]",
    "batches": "%4 f32[2,4]: made of %3 f32[2,8], %2 f32[2,4,8]",
    "long rows": "%4 f32[4,4]: 32000 B, at most 24576",
    "many workgroups": "%4 f32[4,500]: 1200000 products, at most 131072 by so many "
    "workgroups",
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses(name: str):
    text, reason = NEAR_MISSES[name]
    graph = graph_of(text)
    before, _ = run_passes(PASSES[:2], graph, DeviceInfo())
    after, (record,) = run_passes(PASSES[2:], before, DeviceInfo())
    assert after == before
    assert_same_meaning(graph, after)
    (entry,) = record.log.declined(PROLOGUE)
    assert (entry.reason, entry.detail) == (reason, DETAILS[name])


def test_weights_side_by_side_along_k_take_few_workgroups():
    graph = graph_of(f"""{rows(4, 600)}
        device %5: f32[500,600]
        %6: f32[4,500] = {DOT}(%4, %5)
        result %6
    """)
    after, logs = apply(graph, *PASSES, info=GPU)
    assert names(after) == ["contraction_epilogue"]
    for info in (GPU.masked(subgroup_arithmetic=False), DeviceInfo()):
        _, logs = apply(graph, *PASSES, info=info)
        assert list(declined(logs[-1], PROLOGUE).values()) == [Reason.RECOMPUTE]


def test_few_products_do_on_a_cpu_too():
    for columns, joined in ((54, True), (55, False)):
        graph = graph_of(f"""{rows(4, 600)}
            device %5: f32[{columns},600]
            %6: f32[4,{columns}] = {DOT}(%4, %5)
            result %6
        """)
        after, _ = apply(graph, *PASSES)
        assert ("contraction_epilogue" in names(after)) == joined


def test_views_of_weights_count_as_they_are_stored():
    graph = graph_of(f"""{rows(4, 600)}
        device %5: f32[500,600]
        %6: f32[600,500] = transpose[perm=(1, 0)](%5)
        %7: f32[4,500] = matmul[out=none](%4, %6)
        result %7
    """)
    after, _ = apply(graph, *PASSES, info=GPU)
    assert names(after) == ["transpose", "contraction_epilogue"]


def test_rows_that_no_contraction_reads_are_no_candidates():
    graph = graph_of(f"{rows(2, 8)}\nresult %4")
    after, (*_, log) = apply(graph, *PASSES)
    assert names(after) == ["fused_row"] and not log.entries
    assert fired(log, PROLOGUE) == []


def test_operands_are_limited():
    extras = "".join(f"device %{7 + n}: f32[4]\n" for n in range(24))
    adds = "".join(
        f"%{31 + n}: f32[2,4] = binary[op=add](%{30 + n if n else 6}, %{7 + n})\n"
        for n in range(24)
    )
    graph = graph_of(f"""{rows(2, 8)}
        device %5: f32[4,8]
        %6: f32[2,4] = {DOT}(%4, %5)
        {extras}{adds}
        result %54
    """)
    _, (*_, log) = apply(graph, *PASSES)
    assert list(declined(log, PROLOGUE).values()) == [Reason.OPERAND_LIMIT]


# --- on the device ----------------------------------------------------------

PROFILES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "no subgroups": {"subgroup_arithmetic": False, "subgroup_shuffle": False},
    "few trips": {"max_loop_trips": 700},
    "no small storage": {"storage8": False, "storage16": False},
}
SIZES = ((1, 40, 70), (3, 33, 64), (16, 8, 130))


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_rows_and_sums_in_one_launch(profile: str, dtype: str):
    info = device().info.masked(**PROFILES[profile])
    for m, n, k in SIZES:
        graph = program(m, n, k, dtype)
        made, _ = run_passes(PASSES, graph, info)
        # One row may be a row program of a reshaped operand.
        assert set(names(made)) - {"reshape"} == {"contraction_epilogue"}
        if profile == "as it is":
            assert len(plan(made, info).body) == 1
        args = [
            rng_of(f"{m} {dtype}").integers(-1, 2, t.shape).astype(t.dtype.numpy)
            for t in graph.input_types
        ]
        assert_exact(made, args, info)


def test_a_device_with_less_memory_gets_the_row_program():
    made, _ = run_passes(PASSES, program(4, 8, 500), DeviceInfo())
    small = DeviceInfo(max_shared_bytes=4096)
    planned = plan(made, small)
    assert any("keep_composite" in note for note in planned.notes)
    assert len(planned.body) == 2


def rms_norm(x, scale):
    mean = jnp.mean(x * x, axis=-1, keepdims=True)
    return x / jnp.sqrt(mean + 1e-5) * scale


def feed_forward(x, scale, gate, up, down):
    h = rms_norm(x, scale)
    return (nn.silu(h @ gate.T) * (h @ up.T)) @ down.T + x


def projections(x, scale, q, k, v):
    h = rms_norm(x, scale)
    return h @ q.T, h @ k.T, h @ v.T


FUNCTIONS = {
    "feed forward": (feed_forward, ((64,), (96, 64), (96, 64), (64, 96)), 2),
    "q, k and v": (projections, ((64,), (96, 64), (32, 64), (33, 64)), 1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shape", [(1, 64), (2, 3, 64)])
def test_dispatches(name: str, shape: tuple[int, ...]):
    function, others, most = FUNCTIONS[name]
    rng = rng_of(name)
    args = [
        jnp.asarray((rng.standard_normal(s) * 0.2).astype(np.float32))
        for s in (shape, *others)
    ]
    compiled = poot.jit(function).lower(*args).compile()
    assert len(compiled.program.body) == most
    found, wanted = compiled(*args), function(*args)
    for mine, right in zip(as_list(found), as_list(wanted), strict=True):
        np.testing.assert_allclose(mine, right, rtol=1e-5, atol=1e-6)


def as_list(results: Any) -> list[Any]:
    leaves = results if isinstance(results, tuple) else (results,)
    return [np.asarray(leaf) for leaf in leaves]


def test_the_whole_pipeline_fires_it():
    lowered = lower(program(2, 8, 16), DeviceInfo())
    assert lowered.report.fired["prologue"] == 1
