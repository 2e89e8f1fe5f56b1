"""Weights are read as they are stored: no transposed or widened copy is made."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot.core.graph import Graph
from poot.lowering.compile import lower, plan
from poot.lowering.passes.dce import dce
from poot.lowering.passes.dense_contraction import (
    GATHER_STORED,
    READ_BLOCKS,
    READ_STORED,
    dense_contraction,
)
from poot.lowering.passes.driver import Numerics, Reason
from tests.kernel_harness import assert_exact, device
from tests.numerics import rng_of
from tests.pass_harness import (
    apply,
    assert_text,
    declined,
    dot_general,
    fired,
    graph_of,
)


def names(graph: Graph) -> list[str]:
    return [eqn.op.name for eqn in graph.eqns]


# --- fires ------------------------------------------------------------------


def test_a_widened_and_transposed_weight_is_read_as_it_is_stored():
    graph = graph_of("""
        device %0: f32[3,4]
        device %1: bf16[8,4]
        %2: f32[8,4] = cast[to=f32](%1)
        %3: f32[4,8] = transpose[perm=(1, 0)](%2)
        %4: f32[3,8] = matmul[out=none](%0, %3)
        result %4
    """)
    after, (log, _) = apply(graph, dense_contraction, dce)
    assert fired(log, READ_STORED) == ["%4"] and not log.declined(READ_STORED)
    axes = "lhs_contracting=(1), rhs_contracting=(1), lhs_batch=(), rhs_batch=()"
    assert_text(
        after,
        f"""
        device %0: f32[3,4]
        device %1: bf16[8,4]
        %2: f32[3,8] = dense_contraction[{axes}, out=f32](%0, %1)
        result %2
        """,
    )


FIRES = {
    # Cast and transpose in either order, on either side.
    "transposed, then widened": (
        """
        device %0: f32[3,4]
        device %1: f16[8,4]
        %2: f16[4,8] = transpose[perm=(1, 0)](%1)
        %3: f32[4,8] = cast[to=f32](%2)
        %4: f32[3,8] = matmul[out=none](%0, %3)
        result %4
        """,
        ["dense_contraction"],
    ),
    "both sides": (
        """
        device %0: bf16[4,3]
        device %1: f16[8,4]
        %2: f32[4,3] = cast[to=f32](%0)
        %3: f32[3,4] = transpose[perm=(1, 0)](%2)
        %4: f32[8,4] = cast[to=f32](%1)
        %5: f32[4,8] = transpose[perm=(1, 0)](%4)
        %6: f32[3,8] = matmul[out=none](%3, %5)
        result %6
        """,
        ["dense_contraction"],
    ),
    "views between the cast and the contraction": (
        """
        device %0: f32[3,4]
        device %1: bf16[4,2,6]
        %2: f32[4,2,6] = cast[to=f32](%1)
        %3: f32[4,12] = reshape[shape=(4, 12)](%2)
        %4: f32[4,8] = slice[axis=1, start=0, end=8, stride=1](%3)
        %5: f32[3,8] = matmul[out=none](%0, %4)
        result %5
        """,
        ["reshape", "slice", "dense_contraction"],
    ),
    "a cast that others read too": (
        """
        device %0: f32[3,4]
        device %1: bf16[4,8]
        %2: f32[4,8] = cast[to=f32](%1)
        %3: f32[3,8] = matmul[out=none](%0, %2)
        result %3
        result %2
        """,
        ["cast", "dense_contraction"],
    ),
    "batches": (
        """
        device %0: f32[2,3,4]
        device %1: f16[4,2,8]
        %2: f32[4,2,8] = cast[to=f32](%1)
        %3: f32[2,4,8] = transpose[perm=(1, 0, 2)](%2)
        %4: f32[2,3,8] = matmul[out=none](%0, %3)
        result %4
        """,
        ["dense_contraction"],
    ),
    "blocks": (
        """
        device %0: f32[2,3,4]
        device %1: bf16[10,4]
        %2: f32[10,4] = cast[to=f32](%1)
        %3: f32[2,5,4] = reshape[shape=(2, 5, 4)](%2)
        %4: f32[2,4,5] = transpose[perm=(0, 2, 1)](%3)
        %5: f32[2,3,5] = matmul[out=none](%0, %4)
        result %5
        """,
        ["grouped_dense_contraction"],
    ),
    "blocks and a view of what is narrow": (
        """
        device %0: bf16[6,4]
        device %1: bf16[10,4]
        %2: f32[6,4] = cast[to=f32](%0)
        %3: f32[2,3,4] = reshape[shape=(2, 3, 4)](%2)
        %4: f32[10,4] = cast[to=f32](%1)
        %5: f32[2,5,4] = reshape[shape=(2, 5, 4)](%4)
        %6: f32[2,4,5] = transpose[perm=(0, 2, 1)](%5)
        %7: f32[2,3,5] = matmul[out=none](%3, %6)
        result %7
        """,
        ["reshape", "grouped_dense_contraction"],
    ),
    "a literal": (
        f"""
        device %0: bf16[3,4]
        %1: f32[3,4] = cast[to=f32](%0)
        %2: f32[3,4] = {dot_general("()", "()")}(%1, 2.0:f32)
        result %2
        """,
        ["dense_contraction"],
    ),
    "rows of a table": (
        """
        device %0: bf16[9,4]
        device %1: i32[2,3]
        %2: f32[9,4] = cast[to=f32](%0)
        %3: f32[2,3,4] = gather[axis=0, mode=clip](%2, %1)
        result %3
        """,
        ["dense_row_gather"],
    ),
}


@pytest.mark.parametrize("name", FIRES)
def test_fires(name: str):
    text, wanted = FIRES[name]
    graph = graph_of(text)
    after, (log, _) = apply(graph, dense_contraction, dce)
    assert names(after) == wanted
    rewrite = GATHER_STORED if name == "rows of a table" else READ_STORED
    assert len(log.fired(rewrite)) == 1
    assert len(log.fired(READ_BLOCKS)) == ("blocks" in name)
    args = [
        rng_of(name).integers(-2, 3, type.shape).astype(type.dtype.numpy)
        for type in graph.input_types
    ]
    assert_exact(after, args)


def test_nothing_is_rounded_otherwise():
    rewrites = dense_contraction.rewrites
    assert {rewrite.numerics for rewrite in rewrites} == {Numerics.EXACT}


# --- declines ---------------------------------------------------------------

DOT = dot_general("(1)", "(2)")
BATCHED = dot_general("(2)", "(2)", "(0)")

NEAR_MISSES = {
    "a narrowing cast": (
        """
        device %0: bf16[3,4]
        device %1: f32[4,8]
        %2: bf16[4,8] = cast[to=bf16](%1)
        %3: bf16[3,8] = matmul[out=none](%0, %2)
        result %3
        """,
        READ_STORED,
        {"%3": Reason.NARROWS},
        "Cast makes %2 bf16[4,8] of %1 f32[4,8]",
    ),
    "a cast of integers": (
        """
        device %0: f32[3,4]
        device %1: i8[4,8]
        %2: f32[4,8] = cast[to=f32](%1)
        %3: f32[3,8] = matmul[out=none](%0, %2)
        result %3
        """,
        READ_STORED,
        {"%3": Reason.NARROWS},
        "Cast makes %2 f32[4,8] of %1 i8[4,8]",
    ),
    "free axes in another order": (
        f"""
        device %0: f32[3,4]
        device %1: f32[5,6,4]
        %2: f32[6,5,4] = transpose[perm=(1, 0, 2)](%1)
        %3: f32[3,6,5] = {DOT}(%0, %2)
        result %3
        """,
        READ_STORED,
        {"%3": Reason.AXIS_ORDER},
        "Transpose makes %2 f32[6,5,4] of %1 f32[5,6,4]",
    ),
    "columns of a table": (
        """
        device %0: bf16[9,4]
        device %1: i32[2]
        %2: f32[9,4] = cast[to=f32](%0)
        %3: f32[9,2] = gather[axis=1, mode=clip](%2, %1)
        result %3
        """,
        GATHER_STORED,
        {"%3": Reason.NOT_FIRST_AXIS},
        "Cast makes %2 f32[9,4] of %0 bf16[9,4]",
    ),
    "rows of a narrowed table": (
        """
        device %0: f32[9,4]
        device %1: i32[2]
        %2: bf16[9,4] = cast[to=bf16](%0)
        %3: bf16[2,4] = gather[axis=0, mode=clip](%2, %1)
        result %3
        """,
        GATHER_STORED,
        {"%3": Reason.NARROWS},
        "Cast makes %2 bf16[9,4] of %0 f32[9,4]",
    ),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses(name: str):
    text, rewrite, reasons, value = NEAR_MISSES[name]
    graph = graph_of(text)
    after, (log,) = apply(graph, dense_contraction)
    assert after == graph
    assert declined(log, rewrite) == reasons
    (entry,) = log.declined(rewrite)
    assert entry.detail == value


UNTOUCHED = {
    "as they stand": """
        device %0: f32[3,4]
        device %1: f32[4,8]
        %2: f32[3,8] = matmul[out=none](%0, %1)
        result %2
    """,
    "wide floats": """
        device %0: f64[3,4]
        device %1: f64[8,4]
        %2: f64[4,8] = transpose[perm=(1, 0)](%1)
        %3: f64[3,8] = matmul[out=none](%0, %2)
        result %3
    """,
    "integers": """
        device %0: i32[3,4]
        device %1: i32[8,4]
        %2: i32[4,8] = transpose[perm=(1, 0)](%1)
        %3: i32[3,8] = matmul[out=none](%0, %2)
        result %3
    """,
    "no blocks": f"""
        device %0: f32[2,3,4]
        device %1: f32[5,8]
        %2: f32[2,5,4] = reshape[shape=(2, 5, 4)](%1)
        %3: f32[2,3,5] = {BATCHED}(%0, %2)
        result %3
    """,
    "blocks along k": f"""
        device %0: f32[2,3,5]
        device %1: f32[10,4]
        %2: f32[2,5,4] = reshape[shape=(2, 5, 4)](%1)
        %3: f32[2,3,4] = {dot_general("(2)", "(1)", "(0)")}(%0, %2)
        result %3
    """,
    "blocks of other blocks": f"""
        device %0: f32[2,3,4]
        device %1: f32[2,4,5]
        %2: f32[2,5,4] = reshape[shape=(2, 5, 4)](%1)
        %3: f32[2,3,5] = {BATCHED}(%0, %2)
        result %3
    """,
    "a table as it stands": """
        device %0: bf16[9,4]
        device %1: i32[2]
        %2: bf16[2,4] = gather[axis=0, mode=clip](%0, %1)
        result %2
    """,
}


@pytest.mark.parametrize("name", UNTOUCHED)
def test_what_is_no_candidate(name: str):
    graph = graph_of(UNTOUCHED[name])
    after, (log,) = apply(graph, dense_contraction)
    assert after == graph and not log.entries


# --- programs ---------------------------------------------------------------


def bf16(*shape: int) -> Any:
    rng = rng_of(str(shape))
    return jnp.asarray((rng.standard_normal(shape) * 0.3).astype(ml_dtypes.bfloat16))


def test_a_checkpoint_in_bf16_is_not_copied():
    x, w = jnp.asarray(np.ones((1, 64), np.float32)), bf16(96, 64)
    compiled = poot.jit(lambda x, w: x @ w.astype(jnp.float32).T).lower(x, w).compile()
    assert len(compiled.program.body) == 1 and compiled.program.arena_bytes == 0
    wanted = np.asarray(x) @ np.asarray(w).astype(np.float32).T
    np.testing.assert_allclose(np.asarray(compiled(x, w)), wanted, rtol=1e-5)


def test_tied_embeddings_are_not_copied():
    def logits(table, ids):
        wide = table.astype(jnp.float32)
        h = wide[ids]
        return jnp.tanh(h) @ wide.T

    table, ids = bf16(512, 32), jnp.asarray(np.array([3, 500, 7], np.int32))
    compiled = poot.jit(logits).lower(table, ids).compile()
    assert len(compiled.program.body) == 2
    assert compiled.program.arena_bytes <= 3 * 32 * 4 + 64
    wide = np.asarray(table).astype(np.float32)
    wanted = np.tanh(wide[np.asarray(ids)]) @ wide.T
    found = np.asarray(compiled(table, ids))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("generic", [False, True])
def test_mixed_dtypes_in_kernels_of_any_shape(generic: bool):
    axes = "lhs_contracting=(1), rhs_contracting=(1), lhs_batch=(), rhs_batch=()"
    for m, n, k in ((1, 7, 70), (6, 40, 33)):
        graph = graph_of(f"""
            device %0: f16[{m},{k}]
            device %1: bf16[{n},{k}]
            %2: f32[{m},{n}] = dense_contraction[{axes}, out=none](%0, %1)
            result %2
        """)
        args = [
            rng_of(f"{m}").integers(-2, 3, type.shape).astype(type.dtype.numpy)
            for type in graph.input_types
        ]
        assert_exact(graph, args, generic=generic)


def test_a_device_without_small_types_reads_them_all_the_same():
    graph = graph_of(FIRES["both sides"][0])
    info = device().info.masked(
        storage8=False, storage16=False, int16=False, float16=False
    )
    program = plan(lower(graph, info).graph, info)
    assert len(program.body) == 1
