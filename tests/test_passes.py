"""The pass driver, common subexpressions, dead code, and reports."""

from __future__ import annotations

import pytest

from poot.lowering.compile import PASSES, lower, plan
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.cse import MERGE_TWINS, cse
from poot.lowering.passes.dce import DROP_UNUSED, dce
from poot.lowering.passes.driver import REASONS, Numerics, Reason, run_passes
from poot.lowering.passes.fold import fold
from poot.lowering.passes.report import describe_passes, describe_program
from poot.lowering.passes.unwrap import DROP_BARRIER, drop_barriers
from tests.control_graphs import SCAN_IN_COND_IN_SCAN
from tests.pass_harness import apply, assert_text, declined, fired, graph_of

INFO = DeviceInfo()


def test_cse_computes_twins_once():
    graph = graph_of("""
        device %0: f32[4]
        device %1: f32[4]
        %2: f32[4] = binary[op=add](%0, %1)
        %3: f32[4] = binary[op=add](%0, %1)
        %4: f32[4] = unary[op=exp](%2)
        %5: f32[4] = unary[op=exp](%3)
        %6: f32[4] = binary[op=sub](%4, %5)
        result %6
        result %5
    """)
    after, (log,) = apply(graph, cse)
    assert_text(
        after,
        """
        device %0: f32[4]
        device %1: f32[4]
        %2: f32[4] = binary[op=add](%0, %1)
        %3: f32[4] = unary[op=exp](%2)
        %4: f32[4] = binary[op=sub](%3, %3)
        result %4
        result %3
        """,
    )
    assert fired(log, MERGE_TWINS) == ["%3", "%5"]


def test_cse_keeps_operand_order():
    graph = graph_of("""
        device %0: f32[4]
        device %1: f32[4]
        %2: f32[4] = binary[op=add](%0, %1)
        %3: f32[4] = binary[op=add](%1, %0)
        %4: f32[4] = binary[op=sub](%0, %1)
        %5: f32[4] = binary[op=sub](%1, %0)
        result %2
        result %3
        result %4
        result %5
    """)
    after, (log,) = apply(graph, cse)
    assert after is graph
    assert declined(log, MERGE_TWINS) == {"%3": Reason.OPERAND_ORDER}


def test_cse_tells_literals_by_their_bits():
    graph = graph_of("""
        device %0: f32[4]
        %1: f32[4] = binary[op=add](%0, 0.0:f32)
        %2: f32[4] = binary[op=add](%0, -0.0:f32)
        %3: f32[4] = binary[op=mul](%0, nan:f32)
        %4: f32[4] = binary[op=mul](%0, nan:f32)
        result %1
        result %2
        result %3
        result %4
    """)
    after, (log,) = apply(graph, cse)
    assert len(after.eqns) == 3
    assert fired(log, MERGE_TWINS) == ["%4"]
    assert declined(log, MERGE_TWINS) == {"%2": Reason.LITERAL_BITS}


def test_cse_keeps_every_output():
    graph = graph_of("""
        device %0: i32[]
        %1: i32[] = binary[op=and](%0, 0:i32)
        %2: i32[] = binary[op=and](%0, 0:i32)
        result %1
        result %2
        witness %1 "first"
        witness %2 "second"
        export %2 "third"
    """)
    after, _ = apply(graph, cse)
    assert [w.message for w in after.witnesses] == ["first", "second"]
    assert len(after.results) == 2 and list(after.exports) == ["third"]
    assert len(after.eqns) == 1


def test_dce_drops_what_no_output_needs():
    graph = graph_of("""
        device %0: f32[4]
        %1: f32[4] = unary[op=exp](%0)
        %2: f32[4] = unary[op=neg](%0)
        %3: f32[4] = unary[op=abs](%2)
        %4: f32[4] = unary[op=log](%1)
        result %4
    """)
    after, (log,) = apply(graph, dce)
    assert_text(
        after,
        """
        device %0: f32[4]
        %1: f32[4] = unary[op=exp](%0)
        %2: f32[4] = unary[op=log](%1)
        result %2
        """,
    )
    assert fired(log, DROP_UNUSED) == ["%2", "%3"]


def test_dce_keeps_outputs_of_every_kind():
    graph = graph_of(
        """
        state %0: f32[4]
        %1: f32[4] = unary[op=exp](%0)
        %2: f32[4] = unary[op=neg](%0)
        %3: i32[1] = iota[dtype=i32, shape=(1), axis=0]()
        %4: f32[4] = unary[op=abs](%0)
        result %1
        next %0 = %2
        export %4 "extra"
    """
    )
    after, (log,) = apply(graph, dce)
    assert fired(log, DROP_UNUSED) == ["%3"]
    assert declined(log, DROP_UNUSED) == {
        "%4": Reason.IS_OUTPUT,
        "%2": Reason.IS_OUTPUT,
        "%1": Reason.IS_OUTPUT,
    }
    assert len(after.eqns) == 3


def test_dce_keeps_an_equation_for_any_of_its_results():
    graph = graph_of("""
        device %0: f32[4]
        %1: f32[4], %2: f32[4] = fused[body=graph {
          device %0: f32[4]
          %1: f32[4] = unary[op=exp](%0)
          %2: f32[4] = unary[op=neg](%1)
          result %1
          result %2
        }](%0)
        %3: f32[4] = unary[op=abs](%2)
        result %3
    """)
    after, (log,) = apply(graph, dce)
    assert after is graph
    assert declined(log, DROP_UNUSED)["%1, %2"] is Reason.OTHER_RESULT_USED


@pytest.mark.parametrize("entry", PASSES, ids=lambda entry: entry.name)
def test_every_rewrite_states_its_law(entry):
    for rewrite in entry.rewrites:
        assert rewrite.law
        assert isinstance(rewrite.numerics, Numerics)


def test_every_reason_is_explained():
    assert set(REASONS) == set(Reason)


CHAIN = """
    device %0: f32[64]
    device %1: f32[64]
    %2: f32[64] = binary[op=add](%0, %1)
    %3: f32[64] = unary[op=exp](%2)
    %4: f32[64] = unary[op=exp](%2)
    %5: f32[64] = binary[op=mul](%3, %4)
    result %5
"""


def test_report_names_passes_rewrites_and_reasons():
    report = lower(graph_of(CHAIN), INFO).report
    assert report.fired["merge_twins"] == 1
    assert report.fired["absorb_producer"] == 2
    assert report.reasons("drop_unused")[0] is Reason.IS_OUTPUT
    text = str(report)
    assert "cse: 4 -> 3 equations" in text
    assert "fuse_pointwise: 3 -> 1 equations" in text
    assert "merge_twins (exact: equal ops on the same operands" in text
    assert "fired 2 times" in text
    assert "not is-output 1 times (nobody reads it in the graph" in text


def test_reports_list_places_by_reason_with_their_details():
    graph = graph_of("""
        device %0: f32[4]
        device %1: f32[4]
        %2: f32[4] = binary[op=add](%0, %1)
        %3: f32[4] = binary[op=add](%1, %0)
        %4: f32[4] = binary[op=add](%0, 0.0:f32)
        %5: f32[4] = binary[op=add](%0, -0.0:f32)
        %6: f32[] = unary[op=exp](2.0:f32)
        result %2
        result %3
        result %4
        result %5
        result %6
    """)
    _, records = run_passes([cse, fold], graph, INFO)
    lines = list(describe_passes(records))
    assert [line.partition(" (")[0] for line in lines] == [
        "cse: 5 -> 5 equations",
        "  merge_twins",
        "    not operand-order 1 times",
        "      %3 = Binary[ADD](%1, %0) at <graph text>:6",
        "    not literal-bits 1 times",
        "      %5 = Binary[ADD](%0, -0.0:f32) at <graph text>:8",
        "fold: 5 -> 5 equations",
        "  fold_literals",
        "    not approximate 1 times",
        "      %6 = Unary[EXP](2.0:f32) at <graph text>:9",
    ]
    assert lines[3].endswith("(binary): %2 is of %0 f32[4], %1 f32[4]")
    assert lines[5].endswith("(binary): %4 is of %0 f32[4], 0.0:f32")
    assert lines[9].endswith("(unary): Unary[EXP] of 2.0:f32")


def test_long_reports_count_what_they_leave_out():
    lines = ["device %0: f32[4]", "%1: f32[4] = unary[op=exp](%0)"]
    lines += [f"%{n}: f32[4] = unary[op=exp](%0)" for n in range(2, 22)]
    lines += [f"result %{n}" for n in range(1, 22)]
    assert "and 12 more" in str(lower(graph_of("\n".join(lines)), INFO).report)


def test_program_description_lists_launches():
    lowered = lower(graph_of(CHAIN), INFO)
    program = plan(lowered.graph, INFO)
    text = describe_program(program)
    (dispatch,) = program.dispatches
    assert text.startswith("1 dispatches of 1 kernels, 768 B moved, ")
    assert dispatch.kernel.name in text and dispatch.kernel.schedule in text
    assert "grid 1x1x1 of" in text and "256 B" not in text


def test_program_description_tells_the_parts_of_choices_alone():
    lowered = lower(graph_of(SCAN_IN_COND_IN_SCAN), INFO)
    lines = describe_program(plan(lowered.graph, INFO)).splitlines()
    loop = lines.index("  3: loop of 4 trips")
    branch = lines.index("      1: branch")
    assert lines[loop + 1].startswith("      0: ")
    parts = [line for line in lines if line.lstrip().startswith("part ")]
    assert parts == [f"        part {number}" for number in range(3)]
    assert lines[branch + 1] == parts[0]


def test_lowering_is_deterministic():
    first, second = (lower(graph_of(CHAIN), INFO) for _ in range(2))
    assert str(first.graph) == str(second.graph)
    assert str(first.report) == str(second.report)
    assert str(plan(first.graph, INFO)) == str(plan(second.graph, INFO))


def test_barriers_go():
    graph = graph_of("""
        device %0: f32[4]
        device %1: f32[4]
        %2: f32[4], %3: f32[4] = optimization_barrier(%0, %1)
        %4: f32[4] = binary[op=sub](%3, %2)
        result %4
    """)
    after, (log,) = apply(graph, drop_barriers)
    assert fired(log, DROP_BARRIER) == ["%2, %3"]
    (eqn,) = after.eqns
    assert eqn.inputs == (1, 0)
    assert apply(after, drop_barriers)[0] is after
