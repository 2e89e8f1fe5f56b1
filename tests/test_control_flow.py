"""Scan, While and Cond: type rules, and graphs that nest them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from poot.core.graph import Graph
from poot.core.ops.loops import CountedLoop, FlagLoop, Switch
from poot.core.oracle import evaluate, evaluate_all
from poot.interpreters.opening import optional_jax
from poot.lowering.compile import lower, plan
from poot.lowering.device_info import DeviceInfo
from poot.lowering.plan.buffers import Lifetime, lifetimes
from poot.lowering.program import (
    BufferRange,
    Copy,
    Dispatch,
    Loop,
    Node,
    Program,
    Space,
    While,
)
from poot.testing._jax_run import JaxRun
from poot.testing._jax_table import deviates
from tests.backends import device_backend
from tests.control_graphs import TEXTS, control_graph, scan_of
from tests.graph_runs import assert_right
from tests.pass_harness import arguments_of, assert_same_meaning, graph_of
from tests.random_loops import random_loop_graph

needs_device = pytest.mark.skipif(device_backend() is None, reason="no Vulkan device")

# Adds each x to the carry and gives the sum before; the check fails beyond ten.
ADDING = """graph {
  device %0: f32[]
  device %1: f32[]
  %2: f32[] = binary[op=add](%0, %1)
  %3: bool[] = compare[op=gt](%2, 10.0:f32)
  %4: i32[] = cast[to=i32](%3)
  result %2
  result %0
  witness %4 "beyond ten"
}"""


def values(graph: Graph, *args: Any) -> list[Any]:
    return [result.tolist() for result in evaluate(graph, *args)]


@pytest.mark.parametrize(("reverse", "word"), [("false", 4), ("true", 3)])
def test_words_say_where_a_check_failed_first(reverse: str, word: int) -> None:
    head = f"length=5, consts=0, carries=1, reverse={reverse}"
    text = scan_of(ADDING, "f32[5]", "f32[], f32[5], i32[]", head)
    xs = np.array([4, 1, 2, 4, 5], np.float32)
    before = [0, 4, 5, 7, 11] if reverse == "false" else [12, 11, 9, 5, 0]
    assert values(graph_of(text), xs) == [16, before, word]


def test_words_of_a_while_and_of_a_choice_inside_a_scan() -> None:
    graph = control_graph("while in scan")
    counts = np.array([0, 1, 2, 3, -5], np.int32)
    carry = np.zeros((2, 8), np.float32)
    _, words, _ = evaluate(graph, counts, carry)
    # The counter starts at -1, so that the third iteration is the first above 0.
    assert words.tolist() == [0, 0, 3, 3, 0]


def test_a_word_of_a_branch_is_its_own_and_0_elsewhere() -> None:
    graph = control_graph("scan in cond in scan")
    carry, xs = np.zeros(3, np.float32), np.ones((4, 3), np.float32)
    for choices, word in (([0, 5, 0, 0], 0), ([0, 1, 2, 1], 2), ([-1, 0, 2, 1], 4)):
        # Carried from 7 on, the inner word is 1: its first iteration fails at once.
        *_, found = evaluate(graph, np.array(choices, np.int32), xs, carry)
        assert found.item() == word


@pytest.mark.parametrize("name", TEXTS)
def test_jax_agrees(name: str) -> None:
    """By lax.scan, while_loop and switch over JAX's meaning of each body."""
    jax = optional_jax()
    if jax is None:
        pytest.skip("JAX is not installed")
    graph = control_graph(name)
    args = arguments_of(graph, 1)
    run = JaxRun(jax, graph, args)
    right = evaluate_all(graph, *args, observe=run.step).results
    for value, expected in zip(graph.results, right, strict=True):
        np.testing.assert_array_equal(run.result(value), expected)


def test_jax_is_not_trusted_with_divisions_by_zero_in_bodies() -> None:
    for name, key in (("inner loops", True), ("sorts", False)):
        scan = next(e.op for e in control_graph(name).eqns if e.op.key in deviates)
        assert (deviates[scan.key](scan) is not None) == key


# --- on the device --------------------------------------------------------------


@needs_device
@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("generic", [False, True])
def test_nested_control_flow(name: str, generic: bool) -> None:
    """Bodies as they are and after the passes, by kernels for one shape or for any."""
    for seed in range(2):
        assert_right(control_graph(name), seed, generic=generic)


@needs_device
@pytest.mark.parametrize("seed", range(10))
def test_random_loops(seed: int) -> None:
    assert_right(random_loop_graph(seed), seed, generic=seed % 4 == 0)


@needs_device
@pytest.mark.parametrize("bits", [0b0000, 0b0110, 0b1010, 0b1111])
def test_choices_on_the_device(bits: int) -> None:
    """A Cond inside a Scan takes the branch of each iteration."""
    graph = graph_of(CHOOSING)
    xs = np.arange(16, dtype=np.float32).reshape(4, 4)
    choices = np.array([bits >> i & 1 for i in range(4)], np.int32)
    args = [choices, xs, np.full(4, 2, np.float32)]
    assert_right(graph, args=args)


CHOOSING = """
    device %0: i32[4]
    device %1: f32[4,4]
    device %2: f32[4]
    %3: f32[4], %4: f32[4,4], %5: i32[] = scan[body=graph {
      device %0: f32[4]
      device %1: i32[]
      device %2: f32[4]
      %3: f32[4], %4: f32[4], %5: i32[] = cond[branches=(graph {
        device %0: f32[4]
        device %1: f32[4]
        %2: f32[4] = binary[op=add](%0, %1)
        result %2
        result %0
      }, graph {
        device %0: f32[4]
        device %1: f32[4]
        %2: i32[] = broadcast[shape=()](1:i32)
        result %0
        result %1
        witness %2 "always"
      })](%1, %0, %2)
      result %3
      result %4
      witness %5 "chosen"
    }, length=4, consts=0, carries=1, reverse=true](%2, %0, %1)
    result %3
    result %4
    result %5
"""


# --- passes ---------------------------------------------------------------------


@pytest.mark.parametrize("name", TEXTS)
def test_passes_keep_the_meaning(name: str) -> None:
    graph = control_graph(name)
    info = DeviceInfo()
    lowered = lower(graph, info)
    for seed in range(1 if name == "long" else 3):
        assert_same_meaning(graph, lowered.graph, seed)
    assert Graph.parse(str(lowered.graph)) == lowered.graph
    assert lower(graph, info).graph == lowered.graph


def test_the_report_shows_what_passes_did_in_bodies() -> None:
    report = str(lower(control_graph("nested scans"), DeviceInfo()).report)
    assert "counted_loop 0 at <graph text>:5 (scan): fuse_pointwise: " in report
    inner = r"counted_loop 0 at .*: counted_loop 0 at .*: fuse_pointwise: 2 -> 1"
    assert re.search(inner, report)


PARTS = """
    device %0: f32[3,4]
    device %1: f32[4]
    device %2: f32[4]
    %3: f32[4], %4: f32[4], %5: f32[4], %6: f32[3,4], %7: f32[3,4] = scan[body=graph {
      device %0: f32[4]
      device %1: f32[4]
      device %2: f32[4]
      device %3: f32[4]
      device %4: f32[4]
      %5: f32[4] = binary[op=add](%1, %4)
      %6: f32[4] = binary[op=mul](%2, %0)
      %7: f32[4] = binary[op=max](%3, %1)
      %8: f32[4] = unary[op=neg](%2)
      result %5
      result %6
      result %7
      result %8
      result %5
    }, length=3, consts=1, carries=3, reverse=false](%2, %1, %1, %1, %0)
    result %{result}
"""


@pytest.mark.parametrize(
    ("result", "states", "operands"), [(3, 1, 2), (4, 1, 2), (5, 2, 3), (6, 1, 2)]
)
def test_carries_and_ys_that_nobody_reads_go(
    result: int, states: int, operands: int
) -> None:
    graph = graph_of(PARTS.replace("{result}", str(result)))
    lowered = lower(graph, DeviceInfo())
    assert_same_meaning(graph, lowered.graph)
    (eqn,) = lowered.graph.eqns
    assert isinstance(eqn.op, CountedLoop)
    assert len(eqn.op.states) == states
    assert len(eqn.inputs) == operands
    assert lowered.report.fired["drop_parts"] == 1


def test_a_while_keeps_what_its_condition_needs() -> None:
    graph = graph_of(COUNTING)
    last = COUNTING.rindex("%3")
    without = graph_of(f"{COUNTING[:last]}%2")
    for before, states in ((graph, 3), (without, 2)):
        lowered = lower(before, DeviceInfo())
        assert_same_meaning(before, lowered.graph)
        loop = lowered.graph.eqns[-1].op
        assert isinstance(loop, FlagLoop) and len(loop.states) == states


def test_choices_drop_results_that_nobody_reads() -> None:
    text = CHOOSING.replace("    result %4\n    result %5\n", "")
    graph = graph_of(text)
    lowered = lower(graph, DeviceInfo())
    assert_same_meaning(graph, lowered.graph)
    (loop,) = [eqn.op for eqn in lowered.graph.eqns]
    assert isinstance(loop, CountedLoop)
    switches = [eqn.op for eqn in loop.body.eqns if isinstance(eqn.op, Switch)]
    assert [len(op.branches[0].results) for op in switches] == [1]


# --- programs -------------------------------------------------------------------


def planned(text: str) -> Program:
    info = DeviceInfo()
    return plan(lower(graph_of(text), info).graph, info)


def only_loop(program: Program) -> tuple[Node, ...]:
    (loop,) = [node for node in program.body if isinstance(node, Loop | While)]
    return loop.body


def touched(nodes: tuple[Node, ...]) -> tuple[list[BufferRange], list[BufferRange]]:
    """All that the launches and copies among nodes read, and what they write."""
    plain = [node for node in nodes if isinstance(node, Dispatch | Copy)]
    reads = [read for node in plain for read in node.reads]
    return reads, [write for node in plain for write in node.writes]


def kinds(nodes: tuple[Node, ...]) -> list[str]:
    """What each node is: the first two words of a kernel's name, or its class."""
    return [
        "_".join(node.kernel.name.split("_")[:2])
        if isinstance(node, Dispatch)
        else type(node).__name__
        for node in nodes
    ]


CELL = """
    device %0: f32[100,64]
    device %1: f32[64]
    device %2: f32[64]
    %3: f32[64], %4: f32[100,64] = scan[body=graph {
      device %0: f32[64]
      device %1: f32[64]
      device %2: f32[64]
      %3: f32[64] = binary[op=mul](%0, %1)
      %4: f32[64] = cumulative[op=sum, axis=0, reverse=false](%2)
      %5: f32[64] = binary[op=add](%3, %4)
      %6: f32[64] = unary[op=tanh](%5)
      result %6
      result %6
    }, length=100, consts=1, carries=1, reverse=false](%1, %2, %0)
    result %3
    result %4
"""


def test_a_cell_is_its_launches_and_the_cursor() -> None:
    body = only_loop(planned(CELL))
    assert kinds(body) == ["scan_sum", "pointwise_f32", "loop_advance"]
    sum_, cell, _ = body
    assert isinstance(cell, Dispatch)
    # The carry is read and written where it stands; x and y are rows.
    carry = next(o for o in cell.operands if o.space is Space.RESULT)
    assert carry.index == 0 and cell.operands.count(carry) == 2
    reads, writes = touched((sum_,))[0], touched((cell,))[1]
    assert (Space.ARGUMENT, 0) in {(r.space, r.index) for r in reads}
    assert (Space.RESULT, 1) in {(w.space, w.index) for w in writes}


def test_a_loop_without_rows_or_index_has_no_cursor() -> None:
    program = planned(POWERS)
    assert kinds(program.body) == ["Copy", "Loop"]
    assert kinds(only_loop(program)) == ["matmul_lanes", "Copy"]


POWERS = """
    device %0: f32[8,8]
    device %1: f32[8,8]
    %2: f32[8,8] = scan[body=graph {
      device %0: f32[8,8]
      device %1: f32[8,8]
      %2: f32[8,8] = matmul[out=none](%1, %0)
      %3: f32[8,8] = clamp(-1.0:f32, %2, 1.0:f32)
      result %3
    }, length=100, consts=1, carries=1, reverse=false](%0, %1)
    result %2
"""


@pytest.mark.parametrize(
    ("name", "launches"), [("whole", 1), ("long", 2), ("inner loops", 5)]
)
def test_loops_of_elementwise_bodies_are_kernels(name: str, launches: int) -> None:
    """As few as drivers and limits of loops let there be."""
    program = planned(TEXTS[name])
    loops = [d for d in program.dispatches if d.kernel.name.startswith("whole_loop")]
    assert len(loops) == launches
    assert {type(node) for node in program.body} <= {Dispatch, Copy}


def test_products_read_rows_where_they_stand() -> None:
    body = only_loop(planned(TEXTS["recurrent"]))
    assert kinds(body) == [
        *("matmul_direct", "matmul_direct"),
        *("pointwise_f32", "loop_advance"),
    ]


@pytest.mark.parametrize(
    ("made", "width", "copied"),
    [
        ("%4: f32[4] = cumulative[op=sum, axis=0, reverse=false](%1)", 4, False),
        ("%4: f32[3] = cumulative[op=sum, axis=0, reverse=false](%1)", 3, True),
        ("%4: f32[3] = unary[op=neg](%1)", 3, False),
        ("%4: f32[3] = dynamic_update_slice(%1, %3, 1:i32)", 3, True),
    ],
)
def test_rows_at_odd_places_are_stored_element_by_element(
    made: str, width: int, copied: bool
) -> None:
    """Other kernels store whole chunks, which would reach into other rows."""
    row = f"f32[{width}]"
    loop = only_loop(
        planned(f"""
        device %0: f32[5,{width}]
        device %1: {row}
        %2: {row}, %3: f32[5,{width}] = scan[body=graph {{
          device %0: {row}
          device %1: {row}
          %2: {row} = cumulative[op=max, axis=0, reverse=false](%0)
          %3: f32[1] = slice[axis=0, start=0, end=1, stride=1](%0)
          {made}
          result %2
          result %4
        }}, length=5, consts=0, carries=1, reverse=false](%1, %0)
        result %2
        result %3
    """)
    )
    launches = [node for node in loop if isinstance(node, Dispatch)]
    assert any(launch.label == "outputs" for launch in launches) == copied


def test_loops_update_donated_state_in_place() -> None:
    program = planned(TEXTS["state"])
    assert Copy not in {type(node) for node in (*program.body, *only_loop(program))}
    (start, *_) = program.body
    assert isinstance(start, Dispatch)
    # What a carry begins as is computed where the carry stands.
    assert [(w.space, w.index) for w in start.writes] == [(Space.RESULT, 1)]


def test_a_while_sets_its_flag_with_the_body() -> None:
    step = "cumulative[op=max, axis=0, reverse=false](%1)"
    body = only_loop(planned(COUNTING.replace("binary[op=mul](%1, 0.5:f32)", step)))
    assert kinds(body) == ["scan_max", "pointwise_i32", "Copy"]


def test_a_while_of_an_elementwise_body_goes_many_iterations_a_launch() -> None:
    """The scalars are read by all invocations, and written for the next launch."""
    assert kinds(only_loop(planned(COUNTING))) == ["Copy", "Copy", "whole_loop"]


@needs_device
@pytest.mark.parametrize("most", [-1, 0, 1, 5000])
def test_whiles_end_where_their_condition_does(most: int) -> None:
    """Before the first iteration, after it, and in the second launch."""
    args = [np.array(most, np.int32), np.linspace(-1, 1, 64, dtype=np.float32)]
    assert_right(graph_of(COUNTING), args=args)


COUNTING = """
    device %0: i32[]
    device %1: f32[64]
    %2: i32[], %3: f32[64] = while[condition=graph {
      device %0: i32[]
      device %1: i32[]
      device %2: f32[64]
      %3: bool[] = compare[op=lt](%1, %0)
      result %3
    }, body=graph {
      device %0: i32[]
      device %1: f32[64]
      %2: i32[] = binary[op=add](%0, 1:i32)
      %3: f32[64] = binary[op=mul](%1, 0.5:f32)
      result %2
      result %3
    }, condition_consts=1, body_consts=0](%0, 0:i32, %1)
    result %3
"""


def test_copies_in_bodies_are_whole_words() -> None:
    """Where they may not happen launches make them, which may have no small storage."""
    body = only_loop(planned(FLAGS))
    copies = [node for node in body if isinstance(node, Copy)]
    assert copies and all(copy.source.size % 4 == 0 for copy in copies)


# A scalar of one byte, which all invocations read.
FLAGS = """
    device %0: bool[]
    device %1: f32[64]
    %2: bool[], %3: f32[64], %4: i32[] = while[condition=graph {
      device %0: bool[]
      device %1: f32[64]
      device %2: i32[]
      %3: bool[] = compare[op=lt](%2, 5:i32)
      %4: bool[] = binary[op=or](%3, %0)
      result %4
    }, body=graph {
      device %0: bool[]
      device %1: f32[64]
      device %2: i32[]
      %3: bool[] = compare[op=lt](%2, 3:i32)
      %4: f32[64] = binary[op=mul](%1, 0.5:f32)
      %5: i32[] = binary[op=add](%2, 1:i32)
      result %3
      result %4
      result %5
    }, condition_consts=0, body_consts=0](%0, %1, 0:i32)
    result %2
    result %3
"""


def test_scratch_of_bodies_shares_memory_and_outer_values_keep_theirs() -> None:
    """What lives across a loop stands apart from what its iterations write."""
    program = planned(LIVES_ACROSS)
    body = only_loop(program)
    first = program.body[0]
    assert isinstance(first, Dispatch)
    (kept,) = first.writes
    assert kept in touched(program.body[-1:])[0]
    assert not any(kept.overlaps(written) for written in touched(body)[1])
    # The one product, the carry, and two at a time of the four in the body.
    assert program.arena_bytes <= 4 * kept.size


LIVES_ACROSS = """
    device %0: f32[8,8]
    %1: f32[8,8] = matmul[out=none](%0, %0)
    %2: f32[8,8] = scan[body=graph {
      device %0: f32[8,8]
      %1: f32[8,8] = matmul[out=none](%0, %0)
      %2: f32[8,8] = matmul[out=none](%1, %0)
      %3: f32[8,8] = matmul[out=none](%2, %0)
      %4: f32[8,8] = matmul[out=none](%3, %0)
      %5: f32[8,8] = clamp(-1.0:f32, %4, 1.0:f32)
      result %5
    }, length=5, consts=0, carries=1, reverse=false](%0)
    %3: f32[8,8] = matmul[out=none](%1, %2)
    result %3
"""


def test_depths_tell_what_outlives_an_iteration() -> None:
    span = BufferRange(Space.ARENA, 0, 0, 16)
    inner, last = replace(span, index=1), replace(span, index=2)
    nodes = (
        Loop(3, (Copy(span, inner), Copy(inner, last))),
        Copy(last, last),
    )
    spans = lifetimes(nodes, [16] * 3, [0, 1, 0])
    assert spans == [
        Lifetime(0, 16, 0, 2),
        Lifetime(1, 16, 1, 2),
        Lifetime(2, 16, 0, 3),
    ]
