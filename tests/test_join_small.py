"""Small launches become one, and blocks are written where they belong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import lax, nn, slots
from poot.core.graph import Graph
from poot.core.ops.composite import Fused
from poot.core.ops.scatter import DynamicUpdateSlice
from poot.core.oracle import evaluate
from poot.lowering.compile import lower
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.driver import Entry, Reason
from poot.lowering.passes.join_small import ABSORB_UPDATE, JOIN_SMALL, SMALL, join_small
from poot.lowering.passes.units import MOST_EQUATIONS, MOST_OPERANDS, MOST_RESULTS
from poot.lowering.program import Copy, Dispatch
from tests.kernel_harness import plan_graph, run_graph, same_bits
from tests.pass_harness import apply, assert_text, declined, fired, graph_of

TWO_SHAPES = """
    device %0: f32[4]
    device %1: f32[2,3]
    %2: f32[4] = unary[op=exp](%0)
    %3: f32[2,3] = unary[op=abs](%1)
    result %2
    result %3
"""


def test_two_shapes_become_one_launch():
    after, (log,) = apply(graph_of(TWO_SHAPES), join_small)
    assert_text(
        after,
        """
        device %0: f32[4]
        device %1: f32[2,3]
        %2: f32[4], %3: f32[2,3] = fused[body=graph {
          device %0: f32[4]
          device %2: f32[2,3]
          %1: f32[4] = unary[op=exp](%0)
          %3: f32[2,3] = unary[op=abs](%2)
          result %1
          result %3
        }](%0, %1)
        result %2
        result %3
        """,
    )
    assert fired(log, JOIN_SMALL) == ["%3"]
    assert Graph.parse(str(after)) == after


CACHE_WRITE = """
    state %0: f32[8,2,4]
    slot %1: i32[] kind "pos"
    device %2: f32[2,1,4]
    device %3: f32[3]
    %4: f32[2,1,4] = unary[op=abs](%2)
    %5: f32[1,2,4] = transpose[perm=(1, 0, 2)](%4)
    %6: f32[3] = unary[op=neg](%3)
    %7: f32[8,2,4] = dynamic_update_slice(%0, %5, %1, 0:i32, 0:i32)
    result %6
    next %0 = %7
"""


def test_a_block_is_written_as_it_is_computed():
    after, (log,) = apply(graph_of(CACHE_WRITE), join_small)
    assert_text(
        after,
        """
        state %0: f32[8,2,4]
        slot %1: i32[] kind "pos"
        device %2: f32[2,1,4]
        device %3: f32[3]
        %4: f32[3], %5: f32[8,2,4] = fused[body=graph {
          device %0: f32[2,1,4]
          device %2: f32[3]
          device %4: f32[8,2,4]
          device %6: i32[]
          %1: f32[2,1,4] = unary[op=abs](%0)
          %3: f32[3] = unary[op=neg](%2)
          %5: f32[1,2,4] = transpose[perm=(1, 0, 2)](%1)
          %7: f32[8,2,4] = dynamic_update_slice(%4, %5, %6, 0:i32, 0:i32)
          result %3
          result %7
        }](%2, %3, %0, %1)
        result %4
        next %0 = %5
        """,
    )
    assert fired(log, ABSORB_UPDATE) == ["%7"] and fired(log, JOIN_SMALL) == ["%6"]


def ops_after(graph: Graph) -> tuple[list[str], Entry]:
    """The ops that are left, and the one entry about why nothing more was joined."""
    after, (log,) = apply(graph, join_small)
    (entry,) = [entry for entry in log.entries if entry.reason is not None]
    return [type(eqn.op).__name__ for eqn in after.eqns], entry


def test_what_is_updated_is_not_read_in_the_same_launch():
    ops, entry = ops_after(
        graph_of("""
        state %0: f32[8,4]
        device %1: f32[1,4]
        slot %2: i32[] kind "pos"
        %3: f32[8,4] = unary[op=exp](%0)
        %4: f32[8,4] = dynamic_update_slice(%0, %1, %2, 0:i32)
        result %3
        next %0 = %4
    """)
    )
    assert ops == ["Unary", "DynamicUpdateSlice"]
    assert (entry.rewrite, entry.reason) == (JOIN_SMALL, Reason.OVERWRITTEN)
    assert entry.detail.startswith("with %3 = Unary[EXP](%0) at ")
    assert entry.detail.endswith(": %0 f32[8,4]")


def test_a_block_of_what_is_updated():
    """The block is computed from the old state, whose rows it overwrites."""
    ops, entry = ops_after(
        graph_of("""
        state %0: f32[8,4]
        slot %1: i32[] kind "pos"
        %2: f32[1,4] = slice[axis=0, start=2, end=3, stride=1](%0)
        %3: f32[1,4] = unary[op=exp](%2)
        %4: f32[8,4] = dynamic_update_slice(%0, %3, %1, 0:i32)
        next %0 = %4
    """)
    )
    assert ops == ["Slice", "Unary", "DynamicUpdateSlice"]
    assert (entry.rewrite, entry.reason) == (ABSORB_UPDATE, Reason.OVERWRITTEN)


def test_an_update_of_an_update_waits():
    graph = graph_of("""
        state %0: f32[8,4]
        device %1: f32[1,4]
        slot %2: i32[] kind "pos"
        %3: f32[8,4] = dynamic_update_slice(%0, %1, %2, 0:i32)
        %4: f32[8,4] = dynamic_update_slice(%3, %1, 7:i32, 0:i32)
        next %0 = %4
    """)
    after, (log,) = apply(graph, join_small)
    assert after is graph and not log.entries


def test_two_updates_of_one_tensor():
    ops, entry = ops_after(
        graph_of("""
        device %0: f32[8,4]
        device %1: f32[1,4]
        %2: f32[8,4] = dynamic_update_slice(%0, %1, 0:i32, 0:i32)
        %3: f32[8,4] = dynamic_update_slice(%0, %1, 7:i32, 0:i32)
        result %2
        result %3
    """)
    )
    assert ops == ["DynamicUpdateSlice"] * 2
    assert entry.reason is Reason.OVERWRITTEN


def test_an_old_state_that_is_read_later():
    ops, entry = ops_after(
        graph_of("""
        device %0: f32[8,4]
        device %1: f32[1,4]
        %2: f32[8,4] = dynamic_update_slice(%0, %1, 0:i32, 0:i32)
        %3: f32[8,4] = unary[op=exp](%0)
        result %2
        result %3
    """)
    )
    assert ops == ["DynamicUpdateSlice", "Unary"]
    assert entry.reason is Reason.OVERWRITTEN


def test_a_block_that_is_the_whole_stays_a_copy():
    graph = graph_of("""
        device %0: f32[4]
        device %1: f32[4]
        device %2: f32[3]
        %3: f32[4] = dynamic_update_slice(%0, %1, 0:i32)
        %4: f32[3] = unary[op=exp](%2)
        result %3
        result %4
    """)
    after, (log,) = apply(graph, join_small)
    assert after is graph and not log.entries


def test_what_has_no_elements_is_no_launch():
    graph = graph_of("""
        device %0: f32[0,4]
        device %1: f32[3]
        %2: f32[0,4] = unary[op=exp](%0)
        %3: f32[3] = unary[op=exp](%1)
        result %2
        result %3
    """)
    after, (log,) = apply(graph, join_small)
    assert after is graph and not log.entries


def test_a_large_block_beside_a_small_launch():
    rows = SMALL // 4 + 1
    graph = graph_of(f"""
        device %0: f32[2,{rows},4]
        device %1: f32[1,{rows},4]
        device %2: f32[3]
        %3: f32[3] = unary[op=exp](%2)
        %4: f32[2,{rows},4] = dynamic_update_slice(%0, %1, 1:i32, 0:i32, 0:i32)
        result %3
        result %4
    """)
    after, (log,) = apply(graph, join_small)
    assert after is graph and not log.entries


def test_a_start_that_another_launch_computes():
    """The block is of the unit that the update joins, the start of one before."""
    graph = graph_of("""
        device %0: f32[8,4]
        device %1: f32[1,4]
        device %2: i32[3]
        %3: i32[] = reduce[op=sum, axis=0, keepdim=false](%2)
        %4: i32[] = binary[op=add](%3, 1:i32)
        %5: i32[1] = reshape[shape=(1)](%4)
        %6: i32[1] = cumulative[op=sum, axis=0, reverse=false](%5)
        %7: f32[1,4] = unary[op=neg](%1)
        %8: f32[8,4] = dynamic_update_slice(%0, %7, %4, 0:i32)
        result %6
        result %8
    """)
    after, (log,) = apply(graph, join_small)
    assert fired(log, ABSORB_UPDATE) == ["%8"]
    names = [eqn.op.name for eqn in after.eqns]
    assert names == ["reduce", "binary", "reshape", "cumulative", "fused"]


def test_readers_of_a_result_come_later():
    """%4 reads what %2 makes, so %5 cannot join %2 beyond it; it joins %4."""
    graph = graph_of("""
        device %0: f32[4]
        device %1: f32[6]
        %2: f32[4] = unary[op=exp](%0)
        %3: f32[2,2] = reshape[shape=(2, 2)](%2)
        %4: f32[2] = reduce[op=sum, axis=1, keepdim=false](%3)
        %5: f32[6] = unary[op=exp](%1)
        result %4
        result %5
    """)
    after, (log,) = apply(graph, join_small)
    assert after is graph and not log.entries


def test_a_state_is_read_before_it_is_overwritten():
    """%4 overwrites what %2 reads, so %2 cannot move down to %5 behind it."""
    graph = graph_of("""
        state %0: f32[4,2]
        device %1: f32[6]
        %2: f32[4,2] = unary[op=exp](%0)
        %3: f32[4] = reduce[op=sum, axis=1, keepdim=false](%0)
        %4: f32[4,2] = cumulative[op=sum, axis=1, reverse=false](%0)
        %5: f32[6] = unary[op=exp](%1)
        next %0 = %4
        result %2
        result %3
        result %5
    """)
    after, (log,) = apply(graph, join_small)
    assert after is graph and not log.entries


def test_a_state_is_read_before_a_reshape_of_what_overwrites_it():
    graph = graph_of("""
        state %0: f32[4,2]
        device %1: f32[6]
        %2: f32[4,2] = unary[op=exp](%0)
        %3: f32[2,4] = reshape[shape=(2, 4)](%0)
        %4: f32[2,4] = cumulative[op=sum, axis=1, reverse=false](%3)
        %5: f32[4,2] = reshape[shape=(4, 2)](%4)
        %6: f32[6] = unary[op=exp](%1)
        next %0 = %5
        result %2
        result %6
    """)
    after, (log,) = apply(graph, join_small)
    assert after is graph and not log.entries


def test_what_starts_a_state_anew_is_not_where_that_is_read():
    ops, entry = ops_after(
        graph_of("""
        state %0: f32[1]
        %1: f32[1] = unary[op=exp](%0)
        %2: f32[1] = reshape[shape=(1)](2.0:f32)
        result %1
        next %0 = %2
    """)
    )
    assert ops == ["Unary", "Reshape"]
    assert (entry.rewrite, entry.reason) == (JOIN_SMALL, Reason.OVERWRITTEN)


def test_launches_between_are_passed():
    graph = graph_of("""
        device %0: f32[4,2]
        device %1: f32[6]
        %2: f32[4,2] = unary[op=exp](%0)
        %3: f32[4] = reduce[op=sum, axis=1, keepdim=false](%0)
        %4: f32[6] = unary[op=exp](%1)
        result %2
        result %3
        result %4
    """)
    after, (log,) = apply(graph, join_small)
    assert [type(eqn.op).__name__ for eqn in after.eqns] == ["Reduce", "Fused"]
    assert fired(log, JOIN_SMALL) == ["%4"]


@pytest.mark.parametrize(("size", "joins"), [(SMALL, True), (SMALL + 1, False)])
def test_only_small_launches_are_joined(size: int, joins: bool):
    graph = graph_of(f"""
        device %0: f32[{size}]
        device %1: f32[6]
        %2: f32[{size}] = unary[op=neg](%0)
        %3: f32[6] = unary[op=abs](%1)
        result %2
        result %3
    """)
    after, (log,) = apply(graph, join_small)
    assert len(after.eqns) == 2 - joins and not log.declined(JOIN_SMALL)


def large_block(shown: str) -> Graph:
    rows = SMALL // 4 + 1
    return graph_of(f"""
        state %0: f32[2,{rows},4]
        device %1: f32[1,{rows},4]
        slot %2: i32[] kind "pos"
        %3: f32[1,{rows},4] = unary[op=neg](%1)
        %4: f32[2,{rows},4] = dynamic_update_slice(%0, %3, %2, 0:i32, 0:i32)
        next %0 = %4
        {shown}
    """)


def test_a_large_block_is_computed_once():
    after, (log,) = apply(large_block(""), join_small)
    assert [type(eqn.op) for eqn in after.eqns] == [Fused]
    assert fired(log, ABSORB_UPDATE) == ["%4"]
    ops, entry = ops_after(large_block("result %3"))
    assert ops == ["Unary", "DynamicUpdateSlice"]
    assert (entry.rewrite, entry.reason) == (ABSORB_UPDATE, Reason.RECOMPUTE)


def test_what_a_block_is_a_view_of_is_computed_once():
    rows = SMALL // 4 + 1
    graph = graph_of(f"""
        state %0: f32[2,{rows},4]
        device %1: f32[{rows},4]
        slot %2: i32[] kind "pos"
        %3: f32[{rows},4] = unary[op=neg](%1)
        %4: f32[1,{rows},4] = reshape[shape=(1, {rows}, 4)](%3)
        %5: f32[2,{rows},4] = dynamic_update_slice(%0, %4, %2, 0:i32, 0:i32)
        next %0 = %5
        result %3
    """)
    _, entry = ops_after(graph)
    assert (entry.rewrite, entry.reason) == (ABSORB_UPDATE, Reason.RECOMPUTE)


@pytest.mark.parametrize(
    ("dtype", "width", "fits"),
    [("f32", 1, True), ("f16", 3, False), ("bf16", 2, True), ("u8", 6, False)],
)
def test_blocks_are_whole_words(dtype: str, width: int, fits: bool):
    graph = graph_of(f"""
        state %0: {dtype}[5,{width}]
        device %1: {dtype}[1,{width}]
        slot %2: i32[] kind "pos"
        %3: {dtype}[1,{width}] = reverse[axes=(1)](%1)
        %4: {dtype}[5,{width}] = dynamic_update_slice(%0, %3, %2, 0:i32)
        next %0 = %4
    """)
    after, (log,) = apply(graph, join_small)
    assert (len(after.eqns) == 1) == fits
    if not fits:
        (entry,) = log.entries
        assert (entry.rewrite, entry.reason) == (ABSORB_UPDATE, Reason.PART_OF_WORD)
        assert entry.detail == f"blocks of {dtype}[1,{width}] in {dtype}[5,{width}]"


def fan(count: int, width: int, lines: int) -> Graph:
    """`count` launches of different shapes, of `width` operands and `lines` steps."""
    text = []
    value = count * width
    for number in range(count):
        text += [
            f"device %{number * width + n}: f32[{number + 1}]" for n in range(width)
        ]
    results = []
    for number in range(count):
        shape = f"f32[{number + 1}]"
        first = number * width
        inner = [f"device %{n}: {shape}" for n in range(width)]
        inner += [
            f"%{width + n}: {shape} = binary[op=add](%{n}, %{width + n - 1})"
            for n in range(max(width - 1, lines))
        ]
        inner.append(f"result %{width + max(width - 1, lines) - 1}")
        body = "\n".join(["fused[body=graph {", *inner, "}]"])
        operands = ", ".join(f"%{first + n}" for n in range(width))
        text.append(f"%{value}: {shape} = {body}({operands})")
        results.append(f"result %{value}")
        value += 1
    return graph_of("\n".join([*text, *results]))


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (fan(2, MOST_OPERANDS // 2 + 1, 0), Reason.OPERAND_LIMIT),
        (fan(MOST_RESULTS + 1, 1, 1), Reason.OPERAND_LIMIT),
        (fan(2, 2, MOST_EQUATIONS // 2 + 1), Reason.SIZE_LIMIT),
    ],
)
def test_limits(graph: Graph, reason: Reason):
    _, (log,) = apply(graph, join_small)
    assert reason in declined(log, JOIN_SMALL).values()


def test_the_limit_of_results():
    lines = ["device %0: f32[4]"]
    count = MOST_RESULTS // 2 + 1
    results = [f"result %{1 + n}" for n in range(count)]
    body = [f"%{1 + n}: f32[4] = unary[op=exp](%0)" for n in range(count)]
    fused = "\n".join(
        ["fused[body=graph {", "device %0: f32[4]", *body, *results, "}]"]
    )
    outs = ", ".join(f"%{1 + n}: f32[4]" for n in range(count))
    again = ", ".join(f"%{1 + count + n}: f32[4]" for n in range(count))
    lines += [f"{outs} = {fused}(%0)", f"{again} = {fused}(%0)"]
    shown = [f"result %{1 + n}" for n in range(2 * count)]
    after, (log,) = apply(graph_of("\n".join([*lines, *shown])), join_small)
    assert len(after.eqns) == 2
    assert [*declined(log, JOIN_SMALL).values()] == [Reason.RESULT_LIMIT]


# --- on the device ----------------------------------------------------------


def written(*starts: int, whole: tuple[int, ...], block: tuple[int, ...], dtype: str):
    """A region that writes a block at starts which are data, and a sum beside it."""
    shape = ",".join(map(str, whole))
    small = ",".join(map(str, block))
    first = 3 + len(starts)
    lines = [f"device %{3 + n}: i32[]" for n in range(len(starts))]
    places = ", ".join(f"%{3 + n}" for n in range(len(starts)))
    return graph_of(
        "\n".join(
            [
                f"device %0: {dtype}[{shape}]",
                f"device %1: {dtype}[{small}]",
                "device %2: f32[3]",
                *lines,
                f"%{first}: {dtype}[{small}] = reverse[axes=(0)](%1)",
                f"%{first + 1}: f32[3] = unary[op=neg](%2)",
                f"%{first + 2}: {dtype}[{shape}] = "
                f"dynamic_update_slice(%0, %{first}, {places})",
                f"result %{first + 1}",
                f"result %{first + 2}",
            ]
        )
    )


BLOCKS = [
    ((8, 4), (1, 4), (5, 0)),
    ((8, 4), (1, 4), (-3, 0)),
    ((8, 4), (3, 4), (99, 0)),
    ((3, 8, 4), (3, 1, 4), (0, 2, 0)),
    ((3, 8, 4), (2, 2, 4), (1, 7, 0)),
    ((2, 3, 8, 16), (1, 3, 1, 16), (1, 0, 6, 0)),
    ((2, 5, 12), (1, 3, 4), (1, 1, 8)),
    ((70, 3), (65, 2), (4, 1)),
    ((7,), (3,), (2,)),
    ((2, 1, 1024), (1, 1, 1024), (1, 0, 0)),
]


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i32", "u8", "bool", "i64"])
@pytest.mark.parametrize(("whole", "block", "starts"), BLOCKS)
def test_blocks_on_the_device(whole, block, starts, dtype: str):
    graph = written(*starts, whole=whole, block=block, dtype=dtype)
    after, _ = apply(graph, join_small)
    numpy = graph.type(graph.inputs[0]).dtype.numpy
    rng = np.random.default_rng(0)
    args = [
        rng.integers(0, 2 if dtype == "bool" else 100, shape).astype(numpy)
        for shape in (whole, block)
    ]
    args += [np.float32([1, 2, 3]), *map(np.int32, starts)]
    for got, wanted in zip(run_graph(after, args), evaluate(graph, *args), strict=True):
        assert same_bits(got, wanted)


def updating(
    kept: str, given: str, other: str | None = None, shown: str = "%3", last: str = ""
) -> Graph:
    """A region that updates `given`, and shows what an operand was before."""
    operands = [given, "%1"] + ([given] if other == "%2" else [])
    third = "device %2: f32[8,4]" if other == "%2" else ""
    names = ["%2", "%3", "%4"] if other != "%2" else ["%3", "%4", "%5"]
    negated = f"{names[0]}: f32[8,4] = unary[op=neg]({other or '%1'})"
    if other is None:
        negated = f"{names[0]}: f32[8,4] = broadcast[shape=(8, 4)](%1)"
    return graph_of(f"""
        {kept} %0: f32[8,4]
        device %1: f32[1,4]
        %2: f32[8,4] = unary[op=abs](%0)
        %3: f32[8,4], %4: f32[8,4] = fused[body=graph {{
          device %0: f32[8,4]
          device %1: f32[1,4]
          {third}
          {negated}
          {names[1]}: f32[8,4] = dynamic_update_slice(%0, %1, 5:i32, 0:i32)
          result {names[1]}
          result {names[0] if shown == "%3" else shown}
        }}]({", ".join(operands)})
        {last}
        result %4
        result {"%5" if last else "%2"}
        {"next %0 = %3" if kept == "state" else ""}
        {"result %3" if kept == "device" and not last else ""}
    """)


LATER = "%5: f32[8,4] = reverse[axes=(1)](%3)"
# What is updated cannot be made where the state is, which is read once more.
HELD = graph_of("""
    state %0: f32[8,4]
    device %1: f32[1,4]
    %2: f32[8,4] = unary[op=abs](%0)
    %3: f32[8,4] = reverse[axes=(1)](%0)
    %4: f32[8,4], %5: f32[1,4] = fused[body=graph {
      device %0: f32[8,4]
      device %1: f32[1,4]
      %2: f32[8,4] = dynamic_update_slice(%0, %1, 5:i32, 0:i32)
      %3: f32[1,4] = unary[op=neg](%1)
      result %2
      result %3
    }](%2, %1)
    result %3
    result %5
    next %0 = %4
""")


@pytest.mark.parametrize(
    ("graph", "copies"),
    [
        (updating("state", "%0"), False),
        (updating("state", "%0", "%2"), True),
        (updating("state", "%0", "%0"), True),
        (updating("state", "%0", shown="%0"), True),
        (updating("device", "%2", last=LATER), False),
        (updating("device", "%2", "%2", last=LATER), True),
        (updating("device", "%2", "%0", last=LATER), True),
        (updating("device", "%2", shown="%0", last=LATER), True),
        (updating("device", "%2"), True),
        (updating("device", "%0"), True),
        (HELD, True),
    ],
)
def test_what_is_read_as_it_was_is_not_overwritten(graph: Graph, copies: bool):
    """Where the old elements are needed, the update goes to a copy."""
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(shape).astype(np.float32) for shape in ((8, 4), (1, 4))]
    program = plan_graph(graph)
    number = [d.kernel.name.startswith("sections") for d in program.dispatches].index(
        True
    )
    region = program.dispatches[number]
    assert not any(r.overlaps(w) for r in region.reads for w in region.writes)
    assert any(isinstance(node, Copy) for node in program.body) == copies
    got, wanted = run_graph(graph, args), evaluate(graph, *args)
    for mine, right in zip(got, wanted, strict=True):
        assert same_bits(mine, right)


@pytest.mark.parametrize("subgroup", [8, 32])
def test_sections_under_other_profiles(subgroup: int):
    """No 64-bit integers, no small stores: planned all the same, and right."""
    info = DeviceInfo().masked(subgroup_size=subgroup, int64=False)
    graph = written(1, 7, 0, whole=(3, 8, 4), block=(2, 2, 4), dtype="bf16")
    after, _ = apply(graph, join_small, info=info)
    program = plan_graph(after, info)
    (dispatch,) = [node for node in program.body if isinstance(node, Dispatch)]
    assert dispatch.kernel.name.startswith("sections_2_")
    assert "sections of" in dispatch.kernel.schedule
    # The three that are negated; the block only moves.
    assert dispatch.flops == 3


@pytest.mark.parametrize(
    ("made", "sectioned"),
    [
        ("dynamic_update_slice(%0, %2, 5:i32, 0:i32)", True),
        ("binary[op=add](%0, %2)", False),
    ],
)
def test_regions_of_one_result(made: str, sectioned: bool):
    graph = graph_of(f"""
        device %0: f32[8,4]
        device %1: f32[1,4]
        %2: f32[8,4] = fused[body=graph {{
          device %0: f32[8,4]
          device %1: f32[1,4]
          %2: f32[1,4] = unary[op=neg](%1)
          %3: f32[8,4] = {made}
          result %3
        }}](%0, %1)
        result %2
    """)
    (dispatch,) = plan_graph(graph).dispatches
    assert dispatch.kernel.name.startswith("sections") == sectioned


CAPACITY, HEADS, KV_HEADS, DIM = 16, 4, 2, 8


def cached(caches: Any, q: Any, k: Any, v: Any, pos: Any) -> Any:
    at = jnp.reshape(pos, (1,))
    q = nn.rope(q.reshape(1, HEADS, DIM), at)
    k = nn.rope(k.reshape(1, KV_HEADS, DIM), at)
    keys = lax.dynamic_update_slice(caches[0], k, (pos, 0, 0))
    values = lax.dynamic_update_slice(
        caches[1], v.reshape(1, KV_HEADS, DIM), (pos, 0, 0)
    )
    return (keys, values), q


def cache_args(seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    shape = CAPACITY, KV_HEADS, DIM
    cache = tuple(jnp.asarray(rng.standard_normal(shape, np.float32)) for _ in range(2))
    rows = [
        rng.standard_normal(heads * DIM, np.float32)
        for heads in (HEADS, KV_HEADS, KV_HEADS)
    ]
    return cache, rows


def test_rope_and_both_cache_writes_are_one_launch_in_place():
    step = poot.jit(cached, donate_argnums=0, slots={"pos": slots.Pos(0, CAPACITY - 1)})
    cache, rows = cache_args()
    lowered = step.lower(cache, *rows, 3)
    (eqn,) = [
        eqn
        for eqn in lowered.graph.eqns
        if isinstance(eqn.op, Fused)
        and any(isinstance(e.op, DynamicUpdateSlice) for e in eqn.op.body.eqns)
    ]
    inner = [type(e.op).__name__ for e in eqn.op.body.eqns]
    assert inner.count("Rope") == 2 and inner.count("DynamicUpdateSlice") == 2
    program = lowered.compile().program
    # Frequencies, angles, and all the rest.
    assert len(program.dispatches) <= 3
    assert not any(isinstance(node, Copy) for node in program.body)
    for pos in (3, 0, CAPACITY - 1):
        wanted, q = cached([np.asarray(c) for c in cache], *rows, np.int32(pos))
        cache, got = step(cache, *rows, pos)
        for mine, right in zip((*cache, got), (*wanted, q), strict=True):
            np.testing.assert_array_equal(mine, right)


def test_caches_that_a_loop_carries():
    def decode(cache: Any, rows: Any) -> Any:
        def body(carry: Any, pos: Any) -> Any:
            carry, q = cached(carry, *rows, pos)
            return carry, q[..., 0]

        return lax.scan(body, cache, jnp.arange(5))

    cache, rows = cache_args(1)
    (keys, values), qs = poot.jit(decode)(cache, rows)
    wanted, firsts = cache, []
    for pos in range(5):
        wanted, q = cached(wanted, *rows, np.int32(pos))
        firsts.append(np.asarray(q)[..., 0])
    np.testing.assert_array_equal(keys, wanted[0])
    np.testing.assert_array_equal(values, wanted[1])
    np.testing.assert_array_equal(qs, np.stack(firsts))


def test_a_cache_that_is_kept_is_copied_first():
    """Without donation the old cache stays as it was."""
    cache, rows = cache_args(2)
    before = [np.asarray(c).copy() for c in cache]
    (keys, _), _ = poot.jit(cached)(cache, *rows, np.int32(2))
    for now, then in zip(cache, before, strict=True):
        np.testing.assert_array_equal(now, then)
    assert not np.array_equal(keys, before[0])


def test_lowering_a_cache_write_joins_what_is_beside_it():
    graph = graph_of(CACHE_WRITE)
    lowered = lower(graph, DeviceInfo()).graph
    assert [type(eqn.op) for eqn in lowered.eqns] == [Fused]
