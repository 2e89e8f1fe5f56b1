"""Fusion of reductions over rows: what becomes one kernel, and what does not."""

from __future__ import annotations

import pytest

from poot.core.builder import Builder
from poot.core.dtypes import float32
from poot.core.equation import Operand
from poot.core.graph import Graph
from poot.core.ops.composite import FusedRow
from poot.core.ops.elementwise import Binary, BinaryOp
from poot.core.ops.reduce import Reduce, ReduceOp
from poot.core.ops.shape import Reshape
from poot.core.types import TensorType
from poot.lowering.compile import lower, plan
from poot.lowering.device_info import DeviceInfo, DeviceKind
from poot.lowering.passes.cost import CHEAP
from poot.lowering.passes.driver import Log, Numerics, Reason, Refusal, run_passes
from poot.lowering.passes.fuse_rows import (
    EXTEND_ROWS,
    PRECEDE_ROWS,
    REPEAT_IN_ROWS,
    START_ROWS,
    fuse_rows,
)
from poot.lowering.passes.row_forms import Domain, Fit, Fitter, Form
from poot.lowering.passes.siblings import JOIN_SIBLINGS
from poot.lowering.passes.units import MOST_OPERANDS
from poot.lowering.plan.rows import LONG_ROW, LONGEST_ROW, needs_stages
from tests.pass_harness import (
    apply,
    assert_same_meaning,
    assert_text,
    declined,
    fired,
    graph_of,
)
from tests.row_programs import ROW_PROGRAMS, masked_softmax, random_row_program

INFO = DeviceInfo()


def launches(graph: Graph) -> list[str]:
    """The names of the equations that are no changes of shape."""
    return [eqn.op.name for eqn in graph.eqns if not isinstance(eqn.op, Reshape)]


@pytest.mark.parametrize("make", ROW_PROGRAMS, ids=lambda make: make.__name__)
def test_the_usual_row_programs_are_one_launch(make):
    graph = make()
    lowered = lower(graph, INFO).graph
    assert launches(lowered) == ["fused_row"]
    assert_same_meaning(graph, lowered)
    assert len(plan(lowered, INFO).body) == 1


@pytest.mark.parametrize("seed", range(200))
def test_random_row_programs_are_one_launch(seed):
    graph = random_row_program(seed)
    lowered = lower(graph, INFO).graph
    assert launches(lowered) == ["fused_row"]
    assert_same_meaning(graph, lowered, seed)


def test_softmax_as_text():
    after, (log,) = apply(masked_softmax(), fuse_rows)
    assert_text(
        after,
        """
        device %0: f32[2,3,4,8]
        device %1: f32[2,1,1,8]
        %2: f32[2,3,4,8] = fused_row[body=graph {
          device %0: f32[2,3,4,8]
          device %1: f32[2,1,1,8]
          %2: f32[2,3,4,8] = binary[op=mul](%0, 0.5:f32)
          %3: f32[2,3,4,8] = binary[op=add](%2, %1)
          %4: f32[2,3,4,1] = reduce[op=max, axis=3, keepdim=true](%3)
          %5: f32[2,3,4,8] = binary[op=sub](%3, %4)
          %6: f32[2,3,4,8] = unary[op=exp](%5)
          %7: f32[2,3,4,1] = reduce[op=sum, axis=3, keepdim=true](%6)
          %8: f32[2,3,4,8] = binary[op=div](%6, %7)
          result %8
        }](%0, %1)
        result %2
        """,
    )
    assert fired(log, START_ROWS) == ["%4"]
    assert fired(log, EXTEND_ROWS) == ["%5", "%6", "%7", "%8"]
    assert fired(log, PRECEDE_ROWS) == ["%3", "%2"]


def test_forms_that_drop_and_repeat_axes_have_one_text():
    after, _ = apply(
        graph_of("""
        device %0: f32[2,3,8]
        %1: f32[2,24] = reshape[shape=(2, 24)](%0)
        %2: f32[2] = reduce[op=sum, axis=1, keepdim=false](%1)
        %3: f32[2] = binary[op=mul](%2, 0.5:f32)
        %4: f32[2,1,1] = reshape[shape=(2, 1, 1)](%3)
        %5: f32[2,3,8] = binary[op=sub](%0, %4)
        result %5
        """),
        fuse_rows,
    )
    (eqn,) = (e for e in after.eqns if isinstance(e.op, FusedRow))
    assert_text(
        eqn.op.body,
        """
        device %0: f32[2,24]
        %1: f32[2,1] = reduce[op=sum, axis=1, keepdim=true](%0)
        %2: f32[2,1] = binary[op=mul](%1, 0.5:f32)
        %3: f32[2,24] = binary[op=sub](%0, %2)
        result %3
        """,
    )


def test_axes_of_one_element_after_the_reduced_one_do_not_matter():
    after, _ = apply(
        graph_of("""
        device %0: f32[4,8,1]
        %1: f32[4,1,1] = reduce[op=max, axis=1, keepdim=true](%0)
        %2: f32[4,8,1] = binary[op=sub](%0, %1)
        result %2
        """),
        fuse_rows,
    )
    assert launches(after) == ["fused_row"]


def test_what_others_read_is_a_result_too():
    # The sum of the residual branch is normalised, and read again after the matmul.
    after, (log,) = apply(
        graph_of("""
        device %0: f32[4,8]
        device %1: f32[4,8]
        device %2: f32[8,8]
        %3: f32[4,8] = binary[op=add](%0, %1)
        %4: f32[4,1] = reduce[op=max, axis=1, keepdim=true](%3)
        %5: f32[4,8] = binary[op=sub](%3, %4)
        %6: f32[4,8] = matmul[out=none](%5, %2)
        %7: f32[4,8] = binary[op=add](%6, %3)
        result %7
        """),
        fuse_rows,
    )
    assert launches(after) == ["fused_row", "matmul", "binary"]
    assert len(after.eqns[0].outs) == 2
    assert declined(log, EXTEND_ROWS) == {"%6": Reason.BOUNDARY}


def test_a_row_program_never_needs_its_own_results():
    # The second sum depends on the first through the matmul.
    after, (log,) = apply(
        graph_of("""
        device %0: f32[4,4]
        %1: f32[4,1] = reduce[op=sum, axis=1, keepdim=true](%0)
        %2: f32[4,4] = binary[op=sub](%0, %1)
        %3: f32[4,4] = matmul[out=none](%2, %0)
        %4: f32[4,4] = binary[op=add](%2, %3)
        %5: f32[4,1] = reduce[op=max, axis=1, keepdim=true](%4)
        result %5
        """),
        fuse_rows,
    )
    assert launches(after) == ["fused_row", "matmul", "fused_row"]
    assert declined(log, EXTEND_ROWS)["%4"] is Reason.ORDER


def test_transposed_rows_are_other_rows():
    graph = graph_of("""
        device %0: f32[4,4]
        %1: f32[4] = reduce[op=sum, axis=1, keepdim=false](%0)
        %2: f32[4,4] = binary[op=sub](%0, %1)
        result %2
    """)
    after, (log,) = apply(graph, fuse_rows)
    assert declined(log, EXTEND_ROWS) == {"%2": Reason.OTHER_ROWS}
    assert launches(after) == ["fused_row", "binary"]


def test_operands_repeat_along_whole_rows_or_columns():
    graph = graph_of("""
        device %0: f32[2,3,8]
        device %1: f32[3,1]
        %2: f32[2,24] = reshape[shape=(2, 24)](%0)
        %3: f32[2] = reduce[op=sum, axis=1, keepdim=false](%2)
        %4: f32[2,1,1] = reshape[shape=(2, 1, 1)](%3)
        %5: f32[2,3,8] = binary[op=sub](%0, %4)
        %6: f32[2,3,8] = binary[op=mul](%5, %1)
        result %6
    """)
    after, (log,) = apply(graph, fuse_rows)
    assert declined(log, EXTEND_ROWS) == {"%6": Reason.OPERAND_SHAPE}
    assert launches(after) == ["fused_row", "binary"]


def test_other_axes_are_no_rows():
    graph = graph_of("""
        device %0: f32[4,8]
        %1: f32[8] = reduce[op=sum, axis=0, keepdim=false](%0)
        result %1
    """)
    after, (log,) = apply(graph, fuse_rows)
    assert after is graph
    assert declined(log, START_ROWS) == {"%1": Reason.NOT_LAST_AXIS}


def test_an_expensive_column_value_is_computed_once():
    graph = graph_of("""
        device %0: f32[512,1024]
        device %1: f32[1024]
        %2: f32[1024] = unary[op=exp](%1)
        %3: f32[1024] = binary[op=add](%2, 1.0:f32)
        %4: f32[512,1024] = binary[op=mul](%0, %3)
        %5: f32[512,1] = reduce[op=max, axis=1, keepdim=true](%4)
        result %5
    """)
    after, (log,) = apply(graph, fuse_rows)
    assert fired(log, REPEAT_IN_ROWS) == ["%3"]
    assert declined(log, REPEAT_IN_ROWS) == {"%2": Reason.RECOMPUTE}
    assert launches(after) == ["unary", "fused_row"]


def test_column_values_are_computed_again_up_to_a_price_of_all():
    chain = "\n".join(
        f"%{2 + n}: f32[256] = unary[op=neg](%{1 + n})" for n in range(CHEAP + 1)
    )
    graph = graph_of(f"""
        device %0: f32[512,256]
        device %1: f32[256]
        {chain}
        %11: f32[512,256] = binary[op=mul](%0, %10)
        %12: f32[512] = reduce[op=max, axis=1, keepdim=false](%11)
        result %12
    """)
    log = Log()
    fuse_rows.run(graph, INFO, log)
    assert declined(log, REPEAT_IN_ROWS) == {"%2": Reason.RECOMPUTE}


def test_a_column_value_that_others_read_is_stored():
    graph = graph_of("""
        device %0: f32[4,8]
        device %1: f32[8]
        %2: f32[8] = binary[op=add](%1, 1.0:f32)
        %3: f32[4,8] = binary[op=mul](%0, %2)
        %4: f32[4,1] = reduce[op=max, axis=1, keepdim=true](%3)
        result %4
        result %2
    """)
    _, (log,) = apply(graph, fuse_rows)
    assert declined(log, REPEAT_IN_ROWS) == {"%2": Reason.OTHER_SHAPE}


LIMITED = INFO.masked(max_loop_trips=65535, compute_units=4)
GPU = DeviceInfo(kind=DeviceKind.DISCRETE, max_loop_trips=None, compute_units=4)
LONG_ON_GPU = LONG_ROW * 3 // 4


@pytest.mark.parametrize(
    ("rows", "length", "info", "stages"),
    [
        (1, LONG_ROW - 1, LIMITED, False),
        (7, LONG_ROW, LIMITED, True),
        (8, LONG_ROW, LIMITED, False),
        (8, 4 << 16, LIMITED, False),
        (8, (4 << 16) + 1, LIMITED, True),
        (1, LONG_ON_GPU - 1, GPU, False),
        (7, LONG_ON_GPU, GPU, True),
        (8, LONGEST_ROW, GPU, False),
        (8, LONGEST_ROW + 1, GPU, True),
    ],
)
def test_rows_go_in_stages(rows: int, length: int, info: DeviceInfo, stages: bool):
    assert needs_stages(rows, length, info) is stages


def test_long_rows_are_left_to_stages():
    graph = graph_of(f"""
        device %0: f32[{LONG_ROW}]
        %1: f32[{LONG_ROW}] = unary[op=abs](%0)
        %2: f32[] = reduce[op=max, axis=0, keepdim=false](%1)
        %3: f32[] = unary[op=neg](%2)
        %4: f32[{LONG_ROW}] = binary[op=sub](%0, %3)
        %5: f32[] = reduce[op=max, axis=0, keepdim=false](%4)
        result %5
    """)
    after, (log,) = apply(graph, fuse_rows)
    assert declined(log, EXTEND_ROWS) == {"%4": Reason.LONG_ROW}
    bodies = [e.op.body for e in after.eqns if isinstance(e.op, FusedRow)]
    assert [len(body.eqns) for body in bodies] == [3, 2]


def test_long_rows_are_reduced_once_a_launch():
    graph = graph_of(f"""
        device %0: f32[{LONG_ROW}]
        %1: f32[] = reduce[op=max, axis=0, keepdim=false](%0)
        %2: f32[] = reduce[op=min, axis=0, keepdim=false](%0)
        %3: f32[] = binary[op=sub](%1, %2)
        result %3
    """)
    after, (log,) = apply(graph, fuse_rows)
    assert launches(after) == ["fused_row", "fused_row"]
    assert declined(log, PRECEDE_ROWS) == {"%2": Reason.LONG_ROW}


def test_long_rows_that_fill_the_device_run_whole():
    graph = graph_of(f"""
        device %0: f32[2,{LONG_ROW}]
        %1: f32[2,1] = reduce[op=max, axis=1, keepdim=true](%0)
        %2: f32[2,{LONG_ROW}] = binary[op=sub](%0, %1)
        result %2
    """)
    after, _ = apply(graph, fuse_rows, info=INFO.masked(compute_units=1))
    assert launches(after) == ["fused_row"]


@pytest.mark.parametrize("length", [1 << 18, (1 << 18) + 1, 1 << 20, (1 << 22) + 1])
def test_rows_beyond_a_limit_of_loops_go_in_stages_however_many(length: int):
    graph = graph_of(f"""
        device %0: f32[64,{length}]
        %1: f32[64,1] = reduce[op=max, axis=1, keepdim=true](%0)
        %2: f32[64,{length}] = binary[op=sub](%0, %1)
        %3: f32[64,{length}] = unary[op=exp](%2)
        %4: f32[64] = reduce[op=sum, axis=1, keepdim=false](%3)
        result %4
    """)
    for trips, longest in ((65535, 1 << 18), (None, 1 << 22)):
        info = INFO.masked(compute_units=1, max_loop_trips=trips)
        after, _ = run_passes([fuse_rows], graph, info)
        assert (launches(after) == ["fused_row"]) is (length <= longest), trips


def test_operands_of_a_row_program_are_limited():
    builder = Builder()
    inputs = [builder.input(TensorType((4, 8), float32)) for _ in range(40)]
    total = inputs[0]
    for value in inputs[1:]:
        (total,) = builder.emit(Binary(BinaryOp.ADD), (total, value))
    builder.result(*builder.emit(Reduce(ReduceOp.SUM, 1), (total,)))
    after, (log,) = apply(builder.finish(), fuse_rows)
    (eqn,) = (e for e in after.eqns if isinstance(e.op, FusedRow))
    assert len(eqn.inputs) == MOST_OPERANDS
    assert list(declined(log, PRECEDE_ROWS).values()) == [Reason.OPERAND_LIMIT]


def test_only_sums_may_be_ordered_otherwise():
    classes = {rewrite.name: rewrite.numerics for rewrite in fuse_rows.rewrites}
    assert classes.pop("start_rows") is Numerics.REASSOCIATING
    assert set(classes.values()) == {Numerics.EXACT}


def counted(iota: str) -> Graph:
    return graph_of(f"""
        device %0: f32[3,8]
        {iota}
        %2: f32[3,8] = binary[op=mul](%0, %1)
        %3: f32[3] = reduce[op=sum, axis=1, keepdim=false](%2)
        result %3
    """)


def test_what_counts_along_rows_is_counted_in_each():
    graph = counted("%1: f32[1,8] = iota[dtype=f32, shape=(1, 8), axis=1]()")
    after, (log,) = apply(graph, fuse_rows)
    assert launches(after) == ["fused_row"]
    (eqn,) = (e for e in after.eqns if isinstance(e.op, FusedRow))
    assert "iota[dtype=f32, shape=(3, 8), axis=1]()" in str(eqn.op.body)
    assert fired(log, REPEAT_IN_ROWS) == ["%1"]


@pytest.mark.parametrize(
    "iota",
    [
        "%1: f32[3,1] = iota[dtype=f32, shape=(3, 1), axis=0]()",
        "%1: f32[1,1] = iota[dtype=f32, shape=(1, 1), axis=1]()",
    ],
)
def test_what_counts_otherwise_is_read(iota: str):
    after, (log,) = apply(counted(iota), fuse_rows)
    assert launches(after) == ["iota", "fused_row"]
    assert not fired(log, REPEAT_IN_ROWS)


def test_what_waits_for_an_equation_behind_a_reader():
    """%7 reads the group's sums, %8 reads %7 and the group; %6 stands between."""
    graph = graph_of("""
        device %0: f32[4,8]
        %1: f32[4,1] = reduce[op=max, axis=1, keepdim=true](%0)
        %2: f32[4,8] = binary[op=sub](%0, %1)
        %3: f32[4,1] = reduce[op=sum, axis=1, keepdim=true](%2)
        %4: f32[4] = reshape[shape=(4)](%3)
        %5: f32[1] = reduce[op=sum, axis=0, keepdim=true](%4)
        %6: f32[4,1] = unary[op=neg](%3)
        %7: f32[4,1] = binary[op=mul](%6, %6)
        %8: f32[4,8] = binary[op=add](%7, %2)
        result %5
        result %8
    """)
    after, _ = apply(graph, fuse_rows)
    assert [type(eqn.op) for eqn in after.eqns].count(FusedRow) == 2
    assert not any(eqn.op.name in ("binary", "unary") for eqn in after.eqns)


def test_what_stands_between_the_group_and_an_equation_joins_first():
    """%8 waits for %7, which reads %2, which only a value of the group brought in."""
    graph = graph_of("""
        device %0: f32[4,8]
        device %1: f32[4,1]
        %2: f32[4,1] = unary[op=exp](%1)
        %3: f32[4,1] = reduce[op=max, axis=1, keepdim=true](%0)
        %4: f32[4,1] = binary[op=mul](%3, %2)
        %5: f32[4] = reshape[shape=(4)](%4)
        %6: f32[1] = reduce[op=sum, axis=0, keepdim=true](%5)
        %7: f32[4,1] = unary[op=neg](%2)
        %8: f32[4,1] = binary[op=div](%7, %3)
        %9: f32[4,8] = binary[op=add](%0, %8)
        result %6
        result %9
    """)
    log = Log()
    after = fuse_rows.run(graph, INFO, log)
    assert launches(after) == ["fused_row", "fused_row"]
    assert fired(log, EXTEND_ROWS)[-3:] == ["%7", "%8", "%9"]


def test_a_reshape_that_joins_before_its_reader_is_left_outside():
    """%10 waits for %9, which reads %8."""
    graph = graph_of("""
        device %0: f32[4,8]
        device %1: f32[4,1]
        device %2: f32[2,2]
        %3: f32[4,1] = unary[op=exp](%1)
        %4: f32[4,1] = reduce[op=max, axis=1, keepdim=true](%0)
        %5: f32[4,1] = binary[op=mul](%4, %3)
        %6: f32[4] = reshape[shape=(4)](%5)
        %7: f32[1] = reduce[op=sum, axis=0, keepdim=true](%6)
        %8: f32[4,1] = reshape[shape=(4, 1)](%2)
        %9: f32[4,1] = binary[op=add](%3, %8)
        %10: f32[4,1] = binary[op=div](%9, %4)
        %11: f32[4,8] = binary[op=add](%0, %10)
        result %7
        result %11
    """)
    after, _ = apply(graph, fuse_rows)
    assert launches(after) == ["fused_row", "fused_row"]


def test_what_needs_nothing_of_the_group_joins_what_waits_for_it():
    """%4 reads %3 before %5 is computed, which %6 needs."""
    graph = graph_of("""
        device %0: f32[4,8]
        device %1: f32[4,8]
        %2: f32[4,1] = reduce[op=max, axis=1, keepdim=true](%0)
        %3: f32[4,8] = binary[op=sub](%0, %2)
        %4: f32[4,8] = cumulative[op=sum, axis=0, reverse=false](%3)
        %5: f32[4,8] = unary[op=neg](%1)
        %6: f32[4,8] = binary[op=add](%3, %5)
        result %4
        result %6
    """)
    after, (log,) = apply(graph, fuse_rows)
    assert launches(after) == ["fused_row", "cumulative"]
    assert fired(log, EXTEND_ROWS) == ["%3", "%5", "%6"]


def test_a_view_of_an_input_stands_where_its_reader_does():
    """%6 is computed before %4 reads %3, though %5 comes later."""
    graph = graph_of("""
        device %0: f32[4,8]
        device %1: f32[8,4]
        %2: f32[4,1] = reduce[op=max, axis=1, keepdim=true](%0)
        %3: f32[4,8] = binary[op=sub](%0, %2)
        %4: f32[4,8] = cumulative[op=sum, axis=0, reverse=false](%3)
        %5: f32[4,8] = transpose[perm=(1, 0)](%1)
        %6: f32[4,8] = binary[op=add](%3, %5)
        result %4
        result %6
    """)
    after, (log,) = apply(graph, fuse_rows)
    assert launches(after) == ["transpose", "fused_row", "cumulative"]
    assert fired(log, EXTEND_ROWS) == ["%3", "%6"]


def test_what_is_repeated_for_a_reader_outside_is_stored_once_a_row():
    """Unless it is an output, which then needs no launch of its own."""
    text = """
        device %0: f32[4,8]
        %1: f32[4,1] = reduce[op=max, axis=1, keepdim=true](%0)
        %2: f32[4,8] = broadcast[shape=(4, 8)](%1)
    """
    after, _ = apply(graph_of(f"{text}\nresult %2"), fuse_rows)
    assert launches(after) == ["fused_row"]
    read = "%3: f32[4,8] = cumulative[op=sum, axis=1, reverse=false](%2)"
    after, _ = apply(graph_of(f"{text}\n{read}\nresult %3"), fuse_rows)
    assert launches(after) == ["fused_row", "broadcast", "cumulative"]


# --- siblings ---------------------------------------------------------------


def test_reductions_of_the_same_rows_are_one_launch():
    graph = graph_of("""
        device %0: f32[4,8]
        %1: f32[4,1] = reduce[op=max, axis=1, keepdim=true](%0)
        %2: f32[4] = reduce[op=min, axis=1, keepdim=false](%0)
        result %1
        result %2
    """)
    after, (log,) = apply(graph, fuse_rows)
    assert launches(after) == ["fused_row"]
    assert fired(log, JOIN_SIBLINGS) == ["%2"]


@pytest.mark.parametrize(
    ("shape", "count"), [("4", 1), ("1,1,4", 1), ("2,4", 2), (f"{(1 << 16) + 1}", 2)]
)
def test_sums_of_single_rows_are_one_launch_if_they_are_short(shape: str, count: int):
    axis, one = shape.count(","), ",".join([*shape.split(",")[:-1], "1"])
    graph = graph_of(f"""
        device %0: f32[{shape}]
        device %1: f32[{shape}]
        %2: f32[{shape}] = unary[op=abs](%0)
        %3: f32[{one}] = reduce[op=sum, axis={axis}, keepdim=true](%2)
        %4: f32[{one}] = reduce[op=max, axis={axis}, keepdim=true](%1)
        result %3
        result %4
    """)
    after, (log,) = apply(graph, fuse_rows)
    assert launches(after) == ["fused_row"] * count
    assert fired(log, JOIN_SIBLINGS) == ["%4"][: 2 - count]


def test_what_reads_results_of_the_same_rows_may_be_a_sibling():
    """It cannot here, since %2 stands between."""
    graph = graph_of("""
        device %0: f32[4,8]
        device %1: f32[1,8]
        %2: f32[4,1] = reduce[op=max, axis=1, keepdim=true](%0)
        %3: f32[4,1] = cumulative[op=sum, axis=0, reverse=false](%2)
        %4: f32[4,8] = matmul[out=none](%3, %1)
        %5: f32[4,1] = reduce[op=min, axis=1, keepdim=true](%4)
        %6: f32[4,1] = binary[op=sub](%5, %2)
        result %6
    """)
    after, (log,) = apply(graph, fuse_rows)
    assert launches(after) == ["fused_row", "cumulative", "matmul", "fused_row"]
    assert declined(log, JOIN_SIBLINGS) == {"%5": Reason.ORDER}


def test_what_reads_results_across_the_rows_is_no_sibling():
    graph = graph_of("""
        device %0: f32[4,4]
        %1: f32[4] = reduce[op=max, axis=1, keepdim=false](%0)
        %2: f32[4,4] = binary[op=add](%0, %1)
        %3: f32[4,1] = reduce[op=min, axis=1, keepdim=true](%2)
        result %3
    """)
    after, (log,) = apply(graph, fuse_rows)
    assert launches(after) == ["fused_row", "fused_row"]
    assert not fired(log, JOIN_SIBLINGS) and not declined(log, JOIN_SIBLINGS)


# --- forms ------------------------------------------------------------------

FULL, ROW = Form.FULL, Form.ROW


def refused(reason: Reason, values: str) -> Refusal:
    return Refusal(reason, f"{values} beside 4 rows of 8")


FORMS = [
    ("%0: f32[4,8] = iota[dtype=f32, shape=(4, 8), axis=0]()", {}, Fit(FULL)),
    ("%0: f32[1,4,8] = iota[dtype=f32, shape=(1, 4, 8), axis=2]()", {}, Fit(FULL)),
    *(
        (f"%0: f32[{shape}] = iota[dtype=f32, shape=({shape}), axis={axis}]()", {}, no)
        for shape, axis in (("32", 0), ("2, 2, 8", 0), ("8, 4", 1), ("2, 8", 1))
        for no in [refused(Reason.OTHER_ROWS, f"%0 f32[{shape.replace(' ', '')}]")]
    ),
    (
        "device %0: f32[4,8]; %1: f32[2,2,8] = reshape[shape=(2, 2, 8)](%0)",
        {},
        Fit(FULL, ((0, (4, 8)),)),
    ),
    (
        "device %0: f32[4,8]; %1: f32[2,2,8] = reshape[shape=(2, 2, 8)](%0)",
        {0: FULL},
        Fit(FULL),
    ),
    (
        "device %0: f32[4,8]; %1: f32[8,4] = reshape[shape=(8, 4)](%0)",
        {},
        refused(Reason.OTHER_ROWS, "%1 f32[8,4]"),
    ),
    (
        "device %0: f32[4]; %1: f32[4,1] = reshape[shape=(4, 1)](%0)",
        {},
        Fit(ROW, ((0, (4, 1)),)),
    ),
    (
        "device %0: f32[4]; %1: f32[2,2] = reshape[shape=(2, 2)](%0)",
        {0: ROW},
        Fit(ROW),
    ),
    (
        "device %0: f32[8]; %1: f32[4,2] = reshape[shape=(4, 2)](%0)",
        {},
        refused(Reason.OTHER_ROWS, "%0 f32[8]"),
    ),
    (
        "device %0: f32[2,2,8]; device %1: f32[8]; "
        "%2: f32[2,2,8] = binary[op=add](%0, %1)",
        {0: FULL},
        Fit(FULL, ((1, (8,)),)),
    ),
    (
        "device %0: f32[2,2,8]; device %1: f32[2,2,1]; "
        "%2: f32[2,2,8] = binary[op=add](%0, %1)",
        {0: FULL},
        Fit(FULL, ((1, (4, 1)),)),
    ),
    (
        "device %0: f32[2,2,4,2]; device %1: f32[2,2,4,1]; "
        "%2: f32[2,2,4,2] = binary[op=add](%0, %1)",
        {0: FULL},
        refused(Reason.OPERAND_SHAPE, "%1 f32[2,2,4,1], %2 f32[2,2,4,2]"),
    ),
    (
        "device %0: f32[2,2,8]; device %1: f32[2,8]; "
        "%2: f32[2,2,8] = binary[op=add](%0, %1)",
        {0: FULL},
        refused(Reason.OPERAND_SHAPE, "%1 f32[2,8], %2 f32[2,2,8]"),
    ),
]


@pytest.mark.parametrize(("text", "forms", "wanted"), FORMS)
def test_how_an_equation_stands_in_rows(
    text: str, forms: dict[Operand, Form], wanted: Fit | Refusal
):
    graph = graph_of(text.replace("; ", "\n"))
    fitter = Fitter(graph, Domain((4,), 8))
    assert fitter.fit(graph.eqns[0], forms) == wanted


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [
        ("2,2", Fit(ROW, ((1, (2, 1)),))),
        ("1,2,2", refused(Reason.OPERAND_SHAPE, "%1 f32[2], %2 f32[1,2,2]")),
    ],
)
def test_what_columns_of_rows_take(shape: str, wanted: Fit | Refusal):
    """A value for each of [2, 2] rows, with an operand along the second axis."""
    graph = graph_of(f"""
        device %0: f32[{shape}]
        device %1: f32[2]
        %2: f32[{shape}] = binary[op=add](%0, %1)
        result %2
    """)
    fitter = Fitter(graph, Domain((2, 2), 8))
    assert fitter.fit(graph.eqns[0], {0: ROW}) == wanted


def test_what_another_row_program_only_has_in_another_shape_is_not_read():
    """%3 is stored by the first program, and %2 nowhere."""
    graph = graph_of("""
        device %0: f32[2,2,8]
        device %1: f32[1,1]
        %2: f32[2,2,8] = unary[op=exp](%0)
        %3: f32[4,8] = reshape[shape=(4, 8)](%2)
        %4: f32[4,8] = unary[op=neg](%3)
        %5: f32[4,1] = reduce[op=max, axis=1, keepdim=true](%4)
        %6: f32[4,1] = matmul[out=none](%5, %1)
        %7: f32[4,8] = binary[op=mul](%3, %6)
        %8: f32[4] = reduce[op=sum, axis=1, keepdim=false](%7)
        result %8
    """)
    after, _ = apply(graph, fuse_rows)
    assert launches(after) == ["fused_row", "matmul", "fused_row"]
    first, second = (eqn for eqn in after.eqns if isinstance(eqn.op, FusedRow))
    assert first.outs[0] in second.inputs
