"""Whole graphs, lowered and planned, on the device: all that they give is right."""

from __future__ import annotations

import numpy as np
import pytest

from poot.core.errors import CheckError
from poot.core.graph import Graph
from poot.core.oracle.evaluate import evaluate_all
from poot.lowering.compile import lower, plan
from tests.graph_runs import assert_right, run_all
from tests.kernel_harness import device
from tests.pass_harness import arguments_of, graph_of
from tests.row_programs import ROW_PROGRAMS, random_row_program


@pytest.mark.parametrize("seed", range(16))
def test_random_row_programs(seed):
    assert_right(random_row_program(seed), seed)


@pytest.mark.parametrize("make", ROW_PROGRAMS, ids=lambda make: make.__name__)
def test_row_programs_within_ulps(make):
    graph, info = make(), device().info
    args = [arg + np.float32(0.25) for arg in arguments_of(graph)]
    wanted = evaluate_all(graph, *args).results
    lowered = lower(graph, info).graph
    got = run_all(lowered, plan(lowered, info), args)
    for mine, right in zip(got, wanted, strict=True):
        np.testing.assert_allclose(mine, right, rtol=2e-5, atol=1e-6)


def test_results_of_every_kind_at_once():
    graph = Graph.parse(
        """graph {
        device %0: f32[2,3]
        state %1: f32[3]
        const %2: f32[3] weight "sha256:x"
        slot %3: f32[] kind "scale"
        %4: f32[2,3] = binary[op=mul](%0, %3)
        %5: f32[2,3] = binary[op=add](%4, %2)
        %6: f32[3] = reduce[op=sum, axis=0, keepdim=false](%5)
        %7: f32[3] = binary[op=add](%6, %1)
        %8: f32[3,2] = transpose[perm=(1, 0)](%5)
        %9: f32[6] = reshape[shape=(6)](%0)
        result %7
        result %8
        result %8
        result %9
        result %2
        result %3
        result %1
        export %5 "sum"
        next %1 = %7
        }""",
        consts=[np.array([1, -2, 3], np.float32)],
    )
    assert_right(graph)


@pytest.mark.parametrize("word, fails", [(0, None), (1, "odd"), (2, "second bit")])
def test_witnesses_of_a_call(word, fails):
    graph = graph_of("""
        slot %0: i32[] kind "word"
        %1: i32[] = binary[op=and](%0, 1:i32)
        %2: i32[] = binary[op=and](%0, 2:i32)
        %3: i32[] = binary[op=add](%0, 1:i32)
        result %3
        witness %1 "odd"
        witness %2 "second bit"
    """)
    info = device().info
    lowered = lower(graph, info).graph
    program = plan(lowered, info)
    args = [np.array(word, np.int32)]
    if fails is None:
        assert run_all(lowered, program, args)[0] == word + 1
    else:
        with pytest.raises(CheckError, match=fails):
            run_all(lowered, program, args)


def test_states_change_places():
    assert_right(
        graph_of("""
        state %0: f32[4]
        state %1: f32[4]
        state %2: f32[2,2]
        state %3: f32[2,2]
        %4: f32[2,2] = transpose[perm=(1, 0)](%2)
        %5: f32[2,2] = transpose[perm=(1, 0)](%3)
        %6: f32[2,2] = unary[op=neg](%4)
        result %0
        result %6
        next %0 = %1
        next %1 = %0
        next %2 = %5
        next %3 = %4
        """)
    )
