"""Elementwise equations behind a contraction become part of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import nn
from poot.core.graph import Graph
from poot.core.ops.contractions import ContractionEpilogue
from poot.lowering.compile import FUSING, lower, plan
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.contraction_epilogue import (
    EPILOGUE,
    EPILOGUE_SOURCE,
    contraction_epilogue,
)
from poot.lowering.passes.contraction_growth import MOST_STEPS
from poot.lowering.passes.driver import Numerics, Reason, run_passes
from poot.lowering.passes.units import MOST_OPERANDS
from poot.lowering.program import Copy
from tests.epilogue_programs import random_epilogue
from tests.kernel_harness import assert_exact, device, run_program, same_bits
from tests.numerics import rng_of
from tests.pass_harness import (
    apply,
    assert_text,
    declined,
    dot_general,
    fired,
    graph_of,
)

PROGRAMS = 200
PER_TEST = 20


def composites(graph: Graph) -> list[ContractionEpilogue]:
    return [e.op for e in graph.eqns if isinstance(e.op, ContractionEpilogue)]


# --- fires ------------------------------------------------------------------

DENSE = """
    device %0: f32[3,4]
    device %1: f32[4,8]
    %2: f32[3,8] = matmul[out=none](%0, %1)
"""


def test_bias_activation_and_residual_join_the_contraction():
    graph = graph_of("""
        device %0: f32[3,4]
        device %1: f32[4,8]
        device %2: f32[8]
        device %3: f32[3,8]
        %4: f32[3,8] = matmul[out=none](%0, %1)
        %5: f32[3,8] = binary[op=add](%4, %2)
        %6: f32[3,8] = unary[op=tanh](%5)
        %7: f32[3,8] = binary[op=mul](%5, %6)
        %8: f32[3,8] = binary[op=add](%3, %7)
        result %8
    """)
    after, (log,) = apply(graph, contraction_epilogue)
    assert fired(log, EPILOGUE) == ["%4"]
    assert not log.declined(EPILOGUE)
    assert_text(
        after,
        """
        device %0: f32[3,4]
        device %1: f32[4,8]
        device %2: f32[8]
        device %3: f32[3,8]
        %4: f32[3,8] = contraction_epilogue[heads=(matmul[out=none]), body=graph {
            device %0: f32[3,8]
            device %1: f32[8]
            device %2: f32[3,8]
            %3: f32[3,8] = binary[op=add](%0, %1)
            %4: f32[3,8] = unary[op=tanh](%3)
            %5: f32[3,8] = binary[op=mul](%3, %4)
            %6: f32[3,8] = binary[op=add](%2, %5)
            result %6
          }, prologue=none](%0, %1, %2, %3)
        result %4
        """,
    )


def test_what_only_the_epilogue_reads_joins_it_too():
    graph = graph_of(f"""{DENSE}
        device %3: f32[3,8]
        device %4: f32[8]
        %5: f32[3,8] = binary[op=mul](%3, %3)
        %6: f32[3,8] = binary[op=sub](1.0:f32, %5)
        %7: f32[8] = unary[op=neg](%4)
        %8: f32[8] = unary[op=sin](%4)
        %9: f32[3,8] = binary[op=mul](%2, %6)
        %10: f32[3,8] = binary[op=add](%9, %7)
        %11: f32[3,8] = binary[op=add](%10, %8)
        result %11
    """)
    after, (log,) = apply(graph, contraction_epilogue)
    # A sine is too dear to be computed for each row again.
    assert sorted(fired(log, EPILOGUE_SOURCE)) == ["%5", "%6", "%7"]
    assert [eqn.op.name for eqn in after.eqns] == ["unary", "contraction_epilogue"]


def test_sources_that_others_read_or_others_compute_stay():
    graph = graph_of(f"""{DENSE}
        device %3: f32[3,8]
        %4: f32[3,8] = unary[op=exp](%3)
        %5: f32[3,8] = unary[op=abs](%3)
        %6: f32[3,8] = binary[op=add](%2, %4)
        %7: f32[3,8] = binary[op=add](%6, %5)
        %8: f32[3,1] = reduce[op=sum, axis=1, keepdim=true](%4)
        result %7
        result %8
        result %5
    """)
    after, (log,) = apply(graph, contraction_epilogue)
    assert fired(log, EPILOGUE_SOURCE) == []
    assert len(composites(after)) == 1


def test_an_epilogue_is_no_other_rounding():
    assert EPILOGUE.numerics is EPILOGUE_SOURCE.numerics is Numerics.EXACT


# --- declines ---------------------------------------------------------------

NEAR_MISSES = {
    "nobody reads it but a result": ("result %2", {"%2": Reason.KEPT}),
    "read by a reduction": (
        """
        %3: f32[3] = reduce[op=sum, axis=1, keepdim=false](%2)
        result %3
        """,
        {"%3": Reason.BOUNDARY},
    ),
    "a result of the graph stands between": (
        """
        %3: f32[3,8] = unary[op=tanh](%2)
        result %3
        result %2
        """,
        {"%3": Reason.KEPT},
    ),
    "another shape follows": (
        """
        device %3: f32[2,3,8]
        %4: f32[2,3,8] = binary[op=add](%2, %3)
        result %4
        """,
        {"%4": Reason.CHANGED_SHAPE},
    ),
    "a wider copy": (
        """
        device %3: f16[3,4]
        device %4: f16[4,8]
        %5: f16[3,8] = matmul[out=none](%3, %4)
        %6: f32[3,8] = cast[to=f32](%5)
        %7: f32[3] = reduce[op=max, axis=1, keepdim=false](%6)
        %8: f32[3,1] = reduce[op=max, axis=1, keepdim=true](%2)
        result %7
        result %8
        """,
        {"%6": Reason.WIDENS, "%8": Reason.BOUNDARY},
    ),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses(name: str):
    text, reasons = NEAR_MISSES[name]
    graph = graph_of(DENSE + text)
    after, (log,) = apply(graph, contraction_epilogue)
    assert after == graph
    assert declined(log, EPILOGUE) == reasons


def test_a_wider_copy_that_is_a_result_is_stored_at_once():
    graph = graph_of("""
        device %0: f16[3,4]
        device %1: f16[4,8]
        %2: f16[3,8] = matmul[out=none](%0, %1)
        %3: f32[3,8] = cast[to=f32](%2)
        result %3
    """)
    after, _ = apply(graph, contraction_epilogue)
    assert len(after.eqns) == 1


def test_the_values_concerned_are_told():
    graph = graph_of(f"""{DENSE}
        %3: f32[3] = reduce[op=sum, axis=1, keepdim=false](%2)
        result %3
    """)
    _, (log,) = apply(graph, contraction_epilogue)
    (entry,) = log.declined(EPILOGUE)
    assert entry.detail == "%2 f32[3,8], %3 f32[3]"


def test_a_norm_behind_a_residual_stays_a_row_program():
    graph = graph_of(f"""{DENSE}
        device %3: f32[3,8]
        %4: f32[3,8] = binary[op=add](%2, %3)
        %5: f32[3,8] = binary[op=mul](%4, %4)
        %6: f32[3,1] = reduce[op=sum, axis=1, keepdim=true](%5)
        %7: f32[3,8] = binary[op=div](%4, %6)
        %8: f32[3,8] = binary[op=add](%7, %4)
        result %8
    """)
    after, logs = apply(graph, contraction_epilogue, *FUSING)
    assert fired(logs[0], EPILOGUE) == ["%2"]
    assert declined(logs[0], EPILOGUE) == {"%6": Reason.BOUNDARY}
    assert [eqn.op.name for eqn in after.eqns] == ["contraction_epilogue", "fused_row"]


def test_of_two_contractions_that_meet_one_gets_what_follows():
    graph = graph_of(f"""{DENSE}
        device %3: f32[3,5]
        device %4: f32[5,8]
        %5: f32[3,8] = matmul[out=none](%3, %4)
        %6: f32[3,8] = binary[op=add](%2, %5)
        result %6
    """)
    after, (log,) = apply(graph, contraction_epilogue)
    assert fired(log, EPILOGUE) == ["%2"]
    assert declined(log, EPILOGUE) == {"%6": Reason.TAKEN}
    assert [eqn.op.name for eqn in after.eqns] == ["matmul", "contraction_epilogue"]


def test_operands_and_sizes_are_limited():
    adds, inputs = [], []
    for number in range(MOST_OPERANDS):
        inputs.append(f"device %{3 + number}: f32[8]")
        first = 3 + MOST_OPERANDS + number
        before = first - 1 if number else 2
        adds.append(f"%{first}: f32[3,8] = binary[op=add](%{before}, %{3 + number})")
    lines = "\n".join([*inputs, *adds, f"result %{first}"])
    _, (log,) = apply(graph_of(DENSE + lines), contraction_epilogue)
    (entry,) = log.declined(EPILOGUE)
    assert entry.reason is Reason.OPERAND_LIMIT
    # The operands of the contraction, its result and that of all count too.
    fit = MOST_OPERANDS - 4
    assert entry.place.startswith(f"%{3 + MOST_OPERANDS + fit} = ")
    names = ", ".join(f"%{3 + number} f32[8]" for number in range(fit + 1))
    assert entry.detail == f"{names}; 29 with heads and results, takes 28"
    steps = [
        f"%{3 + number}: f32[3,8] = unary[op=neg](%{2 + number})"
        for number in range(60)
    ]
    lines = "\n".join([*steps, "result %62"])
    after, (log,) = apply(graph_of(DENSE + lines), contraction_epilogue)
    assert list(declined(log, EPILOGUE).values()) == [Reason.SIZE_LIMIT]
    assert len(composites(after)) == 1


def test_the_work_of_an_epilogue_is_limited():
    steps = [f"%{3 + n}: f32[3,8] = unary[op=sin](%{2 + n})" for n in range(9)]
    lines = "\n".join([*steps, "result %11"])
    after, (log,) = apply(graph_of(DENSE + lines), contraction_epilogue)
    assert list(declined(log, EPILOGUE).values()) == [Reason.SIZE_LIMIT]
    assert len(composites(after)) == 1


def test_what_another_epilogue_computes_is_no_source():
    steps = "\n".join(
        f"%{5 + n}: f32[3,8] = unary[op=neg](%{4 + n if n else 2})"
        for n in range(MOST_STEPS)
    )
    last = 4 + MOST_STEPS
    graph = graph_of(f"""{DENSE}
        device %3: f32[3,5]
        device %4: f32[5,8]
        {steps}
        %{last + 1}: f32[3,8] = matmul[out=none](%3, %4)
        %{last + 2}: f32[3,8] = binary[op=add](%{last + 1}, %{last})
        result %{last + 2}
    """)
    after, (log,) = apply(graph, contraction_epilogue)
    assert not log.fired(EPILOGUE_SOURCE)
    assert [len(op.body.eqns) for op in composites(after)] == [MOST_STEPS, 1]


def test_empty_results_are_no_candidates():
    graph = graph_of("""
        device %0: f32[0,4]
        device %1: f32[4,8]
        %2: f32[0,8] = matmul[out=none](%0, %1)
        %3: f32[0,8] = unary[op=neg](%2)
        result %3
    """)
    after, (log,) = apply(graph, contraction_epilogue)
    assert after == graph and not log.entries


def test_random_bits_of_sums_are_no_epilogue():
    graph = graph_of("""
        device %0: u32[3,4]
        device %1: u32[4,8]
        %2: u32[3,8] = matmul[out=none](%0, %1)
        %3: u32[3,8], %4: u32[3,8] = threefry2x32(%2, %2, %2, %2)
        result %3
        result %4
    """)
    after, (log,) = apply(graph, contraction_epilogue)
    assert after == graph
    assert declined(log, EPILOGUE) == {"%3, %4": Reason.BOUNDARY}


def test_many_open_values_end_the_growth():
    reads = [
        f"%{3 + n}: f32[3,8] = binary[op=add](%2, {n + 1}.0:f32)" for n in range(12)
    ]
    ends = [
        f"%{15 + n}: f32[3] = reduce[op=max, axis=1, keepdim=false](%{3 + n})"
        for n in range(12)
    ]
    lines = "\n".join([*reads, *ends, *(f"result %{15 + n}" for n in range(12))])
    _, (log,) = apply(graph_of(DENSE + lines), contraction_epilogue)
    assert list(declined(log, EPILOGUE).values()) == [Reason.SEVERAL_READERS]


def test_literals_are_no_operands_of_heads():
    dot = dot_general("()", "()")
    graph = graph_of(f"""
        device %0: f32[4]
        %1: f32[4] = {dot}(%0, 2.0:f32)
        %2: f32[4] = unary[op=neg](%1)
        result %2
    """)
    after, (log,) = apply(graph, contraction_epilogue)
    assert after == graph and not log.entries


# --- on the device ----------------------------------------------------------


def check_program(seed: int) -> None:
    """One launch gives the bits of a launch for the sums and one for the rest."""
    graph, info = random_epilogue(seed), device().info
    rng = rng_of(f"epilogue {seed}")
    args = [
        rng.standard_normal(type.shape).astype(type.dtype.numpy)
        for type in graph.input_types
    ]
    fused = lower(graph, info).graph
    program = plan(fused, info)
    assert len(composites(fused)) == 1, f"seed {seed}\n{fused}"
    assert len(program.body) == 1 and not program.notes, f"seed {seed}\n{fused}"
    apart, _ = run_passes(FUSING, graph, info)
    right = run_program(apart, plan(apart, info), args)
    for mine, wanted in zip(run_program(fused, program, args), right, strict=True):
        assert same_bits(mine, wanted), f"seed {seed}\n{graph}"


@pytest.mark.parametrize("first", range(0, PROGRAMS, PER_TEST))
def test_random_epilogues_are_one_launch_and_exact(first: int):
    for seed in range(first, first + PER_TEST):
        check_program(seed)


PROFILES: dict[str, dict[str, Any]] = {
    "gpu": {"subgroup_size": 32, "max_loop_trips": None, "compute_units": 132},
    "no small storage": {"storage8": False, "storage16": False},
    "no subgroups": {"subgroup_arithmetic": False, "subgroup_shuffle": False},
    "few trips": {"max_loop_trips": 300},
}


DOT = dot_general("(2)", "(1)")


def rich_epilogue(dtype: str, m: int, n: int, k: int) -> Graph:
    """Several dtypes of extras, a comparison, and two chains that meet."""
    return graph_of(f"""
        device %0: {dtype}[2,{m},{k}]
        device %1: {dtype}[{n},{k}]
        device %2: f32[{n}]
        device %3: {dtype}[2,1,{n}]
        %4: {dtype}[2,{m},{n}] = {DOT}(%0, %1)
        %5: f32[2,{m},{n}] = cast[to=f32](%4)
        %6: f32[2,{m},{n}] = binary[op=add](%5, %2)
        %7: bool[2,{m},{n}] = compare[op=lt](%4, %3)
        %8: {dtype}[2,{m},{n}] = cast[to={dtype}](%6)
        %9: {dtype}[2,{m},{n}] = select(%7, %8, %3)
        result %9
    """)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_epilogues_on_other_devices(profile: str, dtype: str):
    changes = dict(PROFILES[profile])
    if device().info.subgroup_size != changes.get("subgroup_size", 8):
        changes.pop("subgroup_size", None)
    info = device().info.masked(**changes)
    # Where loops may be no longer the sums are split, and combined by the epilogue.
    for m, n, k in ((1, 5, 33), (3, 36, 1500)):
        graph = rich_epilogue(dtype, m, n, k)
        fused, _ = run_passes((contraction_epilogue,), graph, info)
        assert len(composites(fused)) == 1
        rng = rng_of(f"{dtype} {m}")
        args = [
            rng.integers(-2, 3, type.shape).astype(type.dtype.numpy)
            for type in graph.input_types
        ]
        assert_exact(fused, args, info)


def test_no_products_at_all():
    graph = rich_epilogue("f32", 3, 5, 0)
    fused, _ = run_passes((contraction_epilogue,), graph, device().info)
    assert_exact(fused, [np.ones(t.shape, np.float32) for t in graph.input_types])


def test_a_device_without_f64_gets_the_primitives():
    graph = graph_of(f"""{DENSE}
        %3: f64[3,8] = cast[to=f64](%2)
        %4: f64[3,8] = unary[op=neg](%3)
        result %4
    """)
    info = DeviceInfo(float64=False)
    fused, _ = run_passes((contraction_epilogue,), graph, info)
    with pytest.raises(poot.errors.CapabilityError, match=r"Unary\[NEG\].*float64"):
        plan(fused, info)


# --- in place ---------------------------------------------------------------


def weight_step(w, x, g):
    return w - 0.5 * (x.T @ g)


def squared(w, x):
    return w + x @ w


def with_turned(w, x, g):
    return w.T + x.T @ g


def both(w, x, g, h):
    return w + x @ g, w - x @ h


def scaled(w, x, g, b):
    return w + (x.T @ g) * jnp.abs(b)


IN_PLACE = {
    "a weight and its gradient": (weight_step, ((24, 24), (9, 24), (9, 24)), True),
    "the operand of the contraction": (squared, ((24, 24), (24, 24)), False),
    "elements in another order": (with_turned, ((24, 24), (9, 24), (9, 24)), False),
    "what is computed of a row": (scaled, ((24, 24), (9, 24), (9, 24), (24,)), True),
    "two contractions": (both, ((24, 24), (24, 9), (9, 24), (9, 24)), False),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_state_is_overwritten_where_only_its_own_element_is_read(name: str):
    function, shapes, in_place = IN_PLACE[name]
    host = [np.asarray(array) for array in arrays(*shapes)]
    compiled = poot.jit(function, donate_argnums=0).lower(*arrays(*shapes)).compile()
    copies = [node for node in compiled.program.body if isinstance(node, Copy)]
    assert (not copies and not compiled.program.arena_bytes) == in_place
    found, wanted = compiled(*arrays(*shapes)), function(*host)
    for mine, right in zip(as_tuple(found), as_tuple(wanted), strict=True):
        np.testing.assert_allclose(np.asarray(mine), right, rtol=1e-4, atol=1e-5)


def as_tuple(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


# --- dispatches -------------------------------------------------------------


def arrays(*shapes: tuple[int, ...]) -> list[Any]:
    rng = rng_of("arrays")
    return [
        poot.device_put((rng.standard_normal(s) * 0.2).astype(np.float32))
        for s in shapes
    ]


def gelu_block(x, scale, shift, w1, b1, w2, b2):
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(centred * centred, axis=-1, keepdims=True)
    h = centred / jnp.sqrt(variance + 1e-5) * scale + shift
    return nn.gelu(h @ w1 + b1) @ w2 + b2 + x


FUNCTIONS = {
    "bias and residual": (
        lambda x, w, b, r: x @ w + b + r,
        ((4, 7, 32), (32, 48), (48,), (4, 7, 48)),
        1,
    ),
    "einsum and activation": (
        lambda x, w, b: nn.relu(jnp.einsum("bsk,nk->bsn", x, w) + b),
        ((2, 5, 32), (48, 32), (48,)),
        1,
    ),
    "gelu block": (
        gelu_block,
        ((2, 9, 32), (32,), (32,), (32, 64), (64,), (64, 32), (32,)),
        3,
    ),
    # Whose rows are normalized where they are read.
    "gelu block of few rows": (
        gelu_block,
        ((2, 5, 32), (32,), (32,), (32, 64), (64,), (64, 32), (32,)),
        2,
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_dispatches(name: str):
    function, shapes, most = FUNCTIONS[name]
    args = arrays(*shapes)
    compiled = poot.jit(function).lower(*args).compile()
    assert len(compiled.program.dispatches) == len(compiled.program.body) == most
    np.testing.assert_allclose(
        np.asarray(compiled(*args)), np.asarray(function(*args)), rtol=1e-5, atol=1e-5
    )
