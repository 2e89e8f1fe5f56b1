"""The planner: layouts, where values stand, the arena, state, refusals, profiles."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from poot.core.builder import Builder
from poot.core.dtypes import float32
from poot.core.errors import CapabilityError, LimitError
from poot.core.graph import Graph
from poot.core.op import primitive_keys
from poot.core.ops.composite import Table
from poot.core.ops.matmul import MatMul
from poot.core.ops.reduce import Reduce, ReduceOp
from poot.core.ops.shape import Broadcast, Reshape, Slice, Transpose
from poot.core.types import TensorType
from poot.lowering.compile import RULE_MODULES, lower, plan
from poot.lowering.device_info import DeviceInfo
from poot.lowering.plan import rules
from poot.lowering.plan.buffers import Lifetime, largest_live, lifetimes, place
from poot.lowering.plan.layout import (
    ALIGNMENT,
    Layout,
    collapse,
    dense_strides,
    view_layout,
)
from poot.lowering.program import BufferRange, Copy, Dispatch, Program, Space
from tests.pass_harness import graph_of
from tests.random_graphs import random_graph

INFO = DeviceInfo()


def program_of(body: str, **changes: object) -> Program:
    return plan(graph_of(body), INFO.masked(**changes))


def test_every_primitive_has_a_lower_rule():
    assert RULE_MODULES
    # A table is computed by a program of its own, before all calls.
    keys = [key for key in primitive_keys() if key.op is not Table]
    assert [key for key in keys if key not in rules.lower] == []


# --- layouts ----------------------------------------------------------------


def elements(layout: Layout) -> np.ndarray:
    """The positions that a layout reaches, by index."""
    buffer = np.arange(layout.end or 1)
    steps = [stride * buffer.itemsize for stride in layout.strides]
    start = buffer[layout.offset :] if layout.size else buffer[:0]
    return np.lib.stride_tricks.as_strided(start, layout.shape, steps)


@pytest.mark.parametrize("seed", range(100))
def test_views_of_views_reach_the_elements_that_numpy_does(seed):
    choose = random.Random(seed)
    shape = tuple(choose.choices([1, 2, 3, 4, 6], k=choose.randint(1, 4)))
    layout = Layout.dense(shape)
    array = np.arange(layout.size).reshape(shape)
    for _ in range(6):
        shape = array.shape
        axis = choose.randrange(len(shape))
        how = choose.randrange(4)
        if how == 0:
            op = Transpose(tuple(choose.sample(range(len(shape)), len(shape))))
            array = array.transpose(op.perm)
        elif how == 1:
            op = Slice(axis, choose.randrange(shape[axis]), shape[axis], 2)
            cut = [slice(None)] * axis + [slice(op.start, op.end, 2)]
            array = array[tuple(cut)]
        elif how == 2:
            op = Broadcast((2, *(3 if n == 1 else n for n in shape)))
            array = np.broadcast_to(array, op.shape)
        else:
            op = Reshape((*shape[:axis], 1, *shape[axis:])[: len(shape) + 1])
            array = array.reshape(op.shape)
        viewed = view_layout(op, layout)
        assert viewed is not None
        layout = viewed
        assert np.array_equal(elements(layout), array)
        if array.size > 2000:
            break


@pytest.mark.parametrize(
    "layout, shape, strides",
    [
        (Layout.dense((4, 6)), (24,), (1,)),
        (Layout.dense((4, 6)), (2, 2, 3, 2), (12, 6, 2, 1)),
        (Layout.dense((4, 6)).transpose((1, 0)), (3, 2, 4), (2, 1, 6)),
        (Layout.dense((4, 6)).transpose((1, 0)), (24,), None),
        (Layout.dense((4, 6)).slice(1, 0, 3, 1), (2, 2, 3), (12, 6, 1)),
        (Layout.dense((4, 6)).slice(1, 0, 3, 1), (12,), None),
        (Layout.dense((4, 6)).slice(0, 1, 3, 1), (12,), (1,)),
        (Layout.dense((3,)).broadcast((4, 3)), (2, 2, 3), (0, 0, 1)),
        (Layout.dense((3,)).broadcast((4, 3)), (12,), None),
        (Layout.dense((0, 3)), (3, 0), (1, 1)),
    ],
)
def test_reshape_of_layouts(layout, shape, strides):
    reshaped = layout.reshape(shape)
    assert (reshaped and reshaped.strides) == strides


@pytest.mark.parametrize(
    "layout, contiguous, text",
    [
        (Layout((2, 3), (3, 1)), True, "2x3"),
        (Layout((2, 3), (4, 1)), False, "2x3 by (4,1) from 0"),
        (Layout((2, 3), (3, 1), 6), True, "2x3 by (3,1) from 6"),
        (Layout((1, 3), (9, 1)), True, "1x3"),
        (Layout((0, 3), (9, 5)), True, "0x3"),
        (Layout((), ()), True, "scalar"),
    ],
)
def test_rows_without_gaps(layout, contiguous, text):
    assert layout.is_contiguous is contiguous
    assert str(layout) == text


def test_collapse_merges_axes_that_all_walk_as_one():
    one = Layout.dense((2, 3, 4))
    rows = Layout.dense((3, 4)).broadcast((2, 3, 4))
    assert collapse((2, 3, 4), one)[0] == (24,)
    sizes, layouts = collapse((2, 3, 4), one, rows)
    assert sizes == (2, 12)
    assert [layout.strides for layout in layouts] == [(12, 1), (0, 1)]
    assert collapse((1, 1), Layout.dense((1, 1)))[0] == ()
    assert dense_strides((2, 0, 3)) == (3, 3, 1)


# --- where values stand -----------------------------------------------------


def test_views_need_no_launch_of_their_own():
    program = program_of("""
        device %0: f32[4,6]
        device %1: f32[2,2,6]
        %2: f32[6,4] = transpose[perm=(1, 0)](%0)
        %3: f32[6,2] = slice[axis=1, start=1, end=3, stride=1](%2)
        %4: f32[2,6,2] = broadcast[shape=(2, 6, 2)](%3)
        %5: f32[2,2,2] = matmul[out=none](%1, %4)
        result %5
    """)
    (dispatch,) = program.body
    assert {r.space for r in dispatch.operands} == {Space.ARGUMENT, Space.RESULT}


def test_results_that_are_views_are_written_out():
    program = program_of("""
        device %0: f32[4,6]
        %1: f32[6,4] = transpose[perm=(1, 0)](%0)
        %2: f32[2,6] = slice[axis=0, start=2, end=4, stride=1](%0)
        result %1
        result %2
    """)
    first, second = program.body
    assert first.operands[-1] == BufferRange(Space.RESULT, 0, 0, 96)
    assert second.operands[-1] == BufferRange(Space.RESULT, 1, 0, 48)


def test_results_are_inputs_constants_or_buffers():
    graph = Graph.parse(
        """graph {
        device %0: f32[4,6]
        const %1: f32[3] weight "sha256:w"
        slot %2: f32[] kind "scale"
        %3: f32[24] = reshape[shape=(24)](%0)
        %4: f32[3] = unary[op=neg](%1)
        result %3
        result %1
        result %2
        result %4
        result %4
        result %0
        }""",
    )
    program = plan(graph, INFO)
    specs = program.results
    assert [spec.input_index for spec in specs] == [0, None, None, None, None, 0]
    assert [spec.const_index for spec in specs] == [None, 0, None, None, None, None]
    assert specs[0].type == TensorType((24,), float32)
    assert program.consts == (TensorType((3,), float32),)
    assert program.inputs == (TensorType((4, 6), float32), TensorType((), float32))
    slot, dispatch, twin = program.body
    assert slot == Copy(
        BufferRange(Space.SLOT, 0, 0, 4), BufferRange(Space.RESULT, 2, 0, 4), "inputs"
    )
    assert dispatch.operands[0].space is Space.CONST
    assert (twin.source.index, twin.target.index) == (3, 4)


def test_slots_witnesses_and_exports_have_places():
    program = program_of("""
        slot %0: f32[] kind "one"
        slot %1: i32[] kind "two"
        %2: i32[] = binary[op=and](%1, 1:i32)
        %3: i32[] = binary[op=and](%1, 2:i32)
        %4: f32[] = unary[op=exp](%0)
        result %4
        witness %2 "odd"
        witness %3 "second bit"
        witness %2 "odd again"
        export %4 "power"
        export %2 "bit"
    """)
    assert [(slot.input_index, slot.offset) for slot in program.slots] == [
        (0, 0),
        (1, 16),
    ]
    assert [w.offset for w in program.witnesses] == [0, 16, 32]
    assert [w.message for w in program.witnesses] == ["odd", "second bit", "odd again"]
    assert program.exports == {"power": 1, "bit": 2}
    assert len(program.results) == 3
    written = {r for node in program.body for r in node.writes}
    starts = {(r.space, r.index, r.offset) for r in written}
    assert starts >= {(Space.WITNESS, 0, offset) for offset in (0, 16, 32)}
    assert starts >= {(Space.RESULT, number, 0) for number in range(3)}


def test_declared_ranges_cover_whole_16_bytes_and_no_more():
    program = program_of("""
        device %0: f32[9]
        %1: f32[5] = slice[axis=0, start=4, end=9, stride=1](%0)
        %2: f32[5] = unary[op=neg](%1)
        result %2
    """)
    (dispatch,) = program.body
    assert dispatch.reads == (BufferRange(Space.ARGUMENT, 0, 16, 32),)
    assert dispatch.writes == (BufferRange(Space.RESULT, 0, 0, 32),)


def empty_graphs() -> list[Graph]:
    builder = Builder()
    flat = builder.input(TensorType((0, 4), float32))
    tall = builder.input(TensorType((3, 0), float32))
    (product,) = builder.emit(MatMul(), (tall, flat))
    (total,) = builder.emit(Reduce(ReduceOp.PROD, 1), (tall,))
    (nothing,) = builder.emit(Reshape((4, 0)), (flat,))
    for value in (product, total, nothing, flat):
        builder.result(value)
    return [builder.finish()]


@pytest.mark.parametrize("graph", empty_graphs())
def test_tensors_of_size_0_are_never_launched_over(graph):
    for lowered in (graph, lower(graph, INFO).graph):
        program = plan(lowered, INFO)
        written = {r.index for node in program.body for r in node.writes}
        assert written == {0, 1}
        assert len(program.body) == 2


# --- the arena --------------------------------------------------------------


def assert_apart(spans: list[Lifetime], offsets: dict[int, int]) -> None:
    for one in spans:
        for other in spans:
            if one.buffer < other.buffer and not (
                one.last < other.first or other.last < one.first
            ):
                start, end = offsets[one.buffer], offsets[one.buffer] + one.size
                assert (
                    end <= offsets[other.buffer]
                    or offsets[other.buffer] + other.size <= start
                )


@pytest.mark.parametrize("seed", range(40))
def test_live_buffers_never_overlap(seed):
    choose = random.Random(seed)
    spans = []
    for number in range(choose.randint(1, 60)):
        first = choose.randrange(50)
        last = first + choose.choice([0, 1, 1, 2, 3, 10])
        spans.append(Lifetime(number, 16 * choose.randint(1, 64), first, last))
    offsets, size = place(spans)
    assert_apart(spans, offsets)
    assert largest_live(spans) <= size <= 1.1 * largest_live(spans)


@pytest.mark.parametrize("seed", range(30))
def test_the_arena_is_hardly_larger_than_what_is_live(seed):
    graph = lower(random_graph(seed, 80), INFO).graph
    program = plan(graph, INFO)
    touched = [r for node in program.body for r in (*node.reads, *node.writes)]
    ends = [r.offset + r.size for r in touched if r.space is Space.ARENA]
    assert max(ends, default=0) <= program.arena_bytes
    # A buffer is kept as a whole while one unit of it is read.
    live = live_bytes(program)
    assert program.arena_bytes <= max(1.1 * live, live + ALIGNMENT)


def blocks(ranges: Sequence[BufferRange]) -> set[int]:
    """The numbers of the 16-byte blocks of the arena that the ranges touch."""
    return {
        block
        for where in ranges
        if where.space is Space.ARENA
        for block in range(where.offset // 16, -(-(where.offset + where.size) // 16))
    }


def live_bytes(program: Program) -> int:
    """The most bytes of the arena that hold something at one node.

    Found from the last node to the first: what is read is live, until it is written.
    """
    live: set[int] = set()
    most = 0
    for node in reversed(program.body):
        written, read = blocks(node.writes), blocks(node.reads)
        most = max(most, len(live | written | read))
        live = (live - written) | read
    return 16 * most


def test_lifetimes_run_from_the_first_to_the_last_touch():
    source = BufferRange(Space.ARGUMENT, 0, 0, 16)
    places = [BufferRange(Space.ARENA, n, 0, 16) for n in range(2)]
    result = BufferRange(Space.RESULT, 0, 0, 16)
    nodes = [
        Copy(source, places[0]),
        Copy(places[0], places[1]),
        Copy(places[1], result),
    ]
    assert lifetimes(nodes, [16, 16]) == [Lifetime(0, 16, 0, 1), Lifetime(1, 16, 1, 2)]


def test_a_chain_of_launches_uses_two_buffers():
    lines = ["device %0: f32[64,64]"]
    lines += [
        f"%{n}: f32[64,64] = matmul[out=none](%{n - 1}, %{n - 1})" for n in range(1, 9)
    ]
    lines.append("result %8")
    assert program_of("\n".join(lines)).arena_bytes == 2 * 64 * 64 * 4


def test_thousands_of_buffers_are_placed_at_once():
    spans = [Lifetime(n, 16 * (1 + n % 7), n, n + 3) for n in range(6000)]
    offsets, size = place(spans)
    assert len(offsets) == 6000
    assert size <= 1.35 * largest_live(spans)


# --- state ------------------------------------------------------------------

IN_PLACE = """
    state %0: f32[4,4]
    device %1: f32[4]
    %2: f32[4,4] = fused[body=graph {
      device %0: f32[4,4]
      device %1: f32[4]
      %2: f32[4,4] = binary[op=add](%0, %1)
      %3: f32[4,4] = unary[op=exp](%2)
      result %3
    }](%0, %1)
    result %2
    next %0 = %2
"""


def test_state_is_updated_in_place():
    program = program_of(IN_PLACE)
    (dispatch,) = program.body
    state = BufferRange(Space.STATE, 0, 0, 64)
    assert dispatch.operands[0] == dispatch.operands[-1] == state
    assert program.donated == {0}
    assert program.results[0].input_index == 0


@pytest.mark.parametrize(
    "why, body",
    [
        (
            "another index of the old state is read",
            IN_PLACE.replace("unary[op=exp](%2)", "transpose[perm=(1, 0)](%2)"),
        ),
        (
            "the old state is read later",
            """
            state %0: f32[4,4]
            %1: f32[4,4] = unary[op=exp](%0)
            %2: f32[4,4] = matmul[out=none](%0, %1)
            result %2
            next %0 = %1
            """,
        ),
        (
            "a view of the old state is read later",
            """
            state %0: f32[4,4]
            %1: f32[4,4] = transpose[perm=(1, 0)](%0)
            %2: f32[4,4] = unary[op=exp](%0)
            %3: f32[4,4] = matmul[out=none](%1, %2)
            result %3
            next %0 = %2
            """,
        ),
        (
            "a contraction reads it everywhere",
            """
            state %0: f32[4,4]
            %1: f32[4,4] = matmul[out=none](%0, %0)
            next %0 = %1
            """,
        ),
        (
            "it is turned",
            """
            state %0: f32[4,4]
            %1: f32[4,4] = transpose[perm=(1, 0)](%0)
            next %0 = %1
            """,
        ),
    ],
)
def test_state_is_copied_where_in_place_would_be_wrong(why, body):
    program = program_of(body)
    *_, last = program.body
    assert isinstance(last, Copy), why
    assert last.target.space is Space.STATE
    assert last.source.space is not Space.STATE


def test_state_is_overwritten_by_what_does_not_read_it_late():
    program = program_of("""
        state %0: f32[4,4]
        device %1: f32[4,4]
        %2: f32[4,4] = matmul[out=none](%0, %1)
        %3: f32[4,4] = matmul[out=none](%2, %1)
        next %0 = %3
    """)
    assert all(isinstance(node, Dispatch) for node in program.body)
    assert program.body[-1].operands[-1].space is Space.STATE


def test_old_state_can_be_returned_and_states_be_exchanged():
    program = program_of("""
        state %0: f32[4]
        state %1: f32[4]
        state %2: f32[4]
        %3: f32[4] = unary[op=neg](%2)
        result %2
        next %0 = %1
        next %1 = %0
        next %2 = %3
    """)
    saved, one, other, update, *rest = program.body
    assert saved.source.space is Space.STATE and saved.target.space is Space.RESULT
    assert {one.target.space, other.target.space} == {Space.ARENA}
    assert update.operands[-1] == BufferRange(Space.STATE, 2, 0, 16)
    assert [(n.source.space, n.target.index) for n in rest] == [
        (Space.ARENA, 0),
        (Space.ARENA, 1),
    ]


# --- refusals ---------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype, feature", [("f64", "float64"), ("i64", "int64"), ("u64", "int64")]
)
def test_dtypes_that_the_device_lacks_are_refused(dtype, feature):
    body = f"""
        device %0: {dtype}[4]
        %1: {dtype}[4] = unary[op=neg](%0)
        result %1
    """
    assert program_of(body).body
    with pytest.raises(
        CapabilityError,
        match=rf"equation 0 \(`Unary\[NEG\]` of \({dtype}\[4\]\) to {dtype}\[4\]\) "
        rf"made at .*: Unary\[NEG\] on {dtype} needs the feature {feature}",
    ):
        program_of(body, **{feature: False})


def test_64_bit_values_that_are_only_passed_need_no_feature():
    body = """
        device %0: i64[4,2]
        %1: i64[8] = reshape[shape=(8)](%0)
        result %1
    """
    assert program_of(body, int64=False, float64=False).body == ()


def test_allocations_beyond_the_limit_are_refused():
    body = """
        device %0: f32[1024]
        %1: f32[1024,1024] = broadcast[shape=(1024, 1024)](%0)
        result %1
    """
    with pytest.raises(
        LimitError,
        match=r"equation 0 \(`Broadcast` .*f32\[1024,1024\] needs a buffer of 4194304 "
        r"B; made-up allocates at most 1048576 B",
    ):
        program_of(body, max_allocation_bytes=1 << 20)


def test_an_arena_beyond_the_limit_is_refused():
    body = """
        device %0: f32[256,256]
        %1: f32[256,256] = matmul[out=none](%0, %0)
        %2: f32[256,256] = matmul[out=none](%1, %1)
        %3: f32[256,256] = matmul[out=none](%2, %1)
        result %3
    """
    assert program_of(body).arena_bytes == 2 * 256 * 256 * 4
    with pytest.raises(LimitError, match=r"need 524288 B of scratch .* most 400000 B"):
        program_of(body, max_allocation_bytes=400_000)


def test_grids_beyond_the_limit_are_refused():
    body = """
        device %0: f32[1048576]
        %1: f32[1048576] = unary[op=neg](%0)
        result %1
    """
    with pytest.raises(LimitError, match=r"equation 0 .*grid: \d+ workgroups"):
        program_of(body, max_workgroup_count=(2, 2, 2))
