"""Scatters of one element a row into one number: which become a selection."""

from __future__ import annotations

import numpy as np
import pytest

from poot.core.graph import Graph
from poot.core.oracle.evaluate import evaluate_all
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.dce import dce
from poot.lowering.passes.driver import Log, Reason, run_passes
from poot.lowering.passes.one_per_row import SCATTER_IN_ROWS, one_per_row
from tests.pass_harness import apply, assert_text, declined, fired, graph_of


def only(graph: Graph) -> tuple[Graph, Log]:
    """The graph after the pass, tidied, and the log."""
    after, logs = apply(graph, one_per_row, dce)
    return after, logs[0]


def scatter(
    op: str = "add",
    window: str = "()",
    inserted: str = "(0, 1)",
    led: str = "(0, 1)",
    batch: str = "()",
    places: str = "()",
    mode: str = "drop",
) -> str:
    """A scatter as graphs print it."""
    return (
        f"scatter[op={op}, dims=(update_window_dims={window}, inserted_window_dims="
        f"{inserted}, scatter_dims_to_operand_dims={led}, operand_batching_dims={batch}"
        f", scatter_indices_batching_dims={places}), mode={mode}, "
        "indices_are_sorted=false, unique_indices=false]"
    )


INTO_ROWS = {"inserted": "(1)", "led": "(1)", "batch": "(0)", "places": "(0)"}
INTO_ZEROS = """
    device %0: {index}[4,1]
    device %1: {dtype}[4]
    %2: {dtype}[4,5] = broadcast[shape=(4, 5)]({fill}:{dtype})
    %3: {dtype}[4,5] = {scatter}(%2, %0, %1)
    result %3
"""


def into_zeros(
    op: str, mode: str, dtype: str = "f32", index: str = "i32", fill: str = "0.0"
) -> Graph:
    made = scatter(op, mode=mode, **INTO_ROWS)
    return graph_of(
        INTO_ZEROS.format(dtype=dtype, index=index, fill=fill, scatter=made)
    )


def test_what_is_added_to_zeros_is_selected():
    after, log = only(into_zeros("add", "drop"))
    assert_text(
        after,
        """
        device %0: i32[4,1]
        device %1: f32[4]
        %2: f32[4,1] = reshape[shape=(4, 1)](%1)
        %3: f32[4,1] = binary[op=add](0.0:f32, %2)
        %4: i32[4,5] = iota[dtype=i32, shape=(4, 5), axis=1]()
        %5: bool[4,5] = compare[op=eq](%4, %0)
        %6: f32[4,5] = select(%5, %3, 0.0:f32)
        result %6
        """,
    )
    assert fired(log, SCATTER_IN_ROWS) == ["%3"]


def test_what_is_set_is_selected_where_the_index_is_moved():
    after, log = only(into_zeros("set", "clip", "bf16", "u8", "2.0"))
    assert_text(
        after,
        """
        device %0: u8[4,1]
        device %1: bf16[4]
        %2: i32[4,1] = cast[to=i32](%0)
        %3: i32[4,1] = clamp(0:i32, %2, 4:i32)
        %4: bf16[4,1] = reshape[shape=(4, 1)](%1)
        %5: i32[4,5] = iota[dtype=i32, shape=(4, 5), axis=1]()
        %6: bool[4,5] = compare[op=eq](%5, %3)
        %7: bf16[4,5] = select(%6, %4, 2.0:bf16)
        result %7
        """,
    )
    assert fired(log, SCATTER_IN_ROWS) == ["%3"]


SPECIAL = [-0.0, 0.0, 1e-42, -1e-42, np.inf, -np.inf, np.nan, -3.5]
PLACES = [-(1 << 31), -1, 0, 2, 4, 5, (1 << 31) - 1, 3]


@pytest.mark.parametrize("flush", [True, False])
@pytest.mark.parametrize("fill", ["0.0", "-0.0", "2.0", "-inf", "1e-42"])
@pytest.mark.parametrize("mode", ["drop", "clip", "promise"])
@pytest.mark.parametrize("op", ["add", "set"])
def test_no_bit_of_what_is_selected_changes(op: str, mode: str, fill: str, flush: bool):
    """For indices outside, zeros of both signs, infinities, NaN and subnormals."""
    graph = graph_of(
        f"""
        device %0: i32[8,1]
        device %1: f32[8]
        %2: f32[8,5] = broadcast[shape=(8, 5)]({fill}:f32)
        %3: f32[8,5] = {scatter(op, mode=mode, **INTO_ROWS)}(%2, %0, %1)
        result %3
        """
    )
    after, log = only(graph)
    assert fired(log, SCATTER_IN_ROWS) == ["%3"]
    for shift in range(8):
        places = np.roll(np.array(PLACES, np.int32), shift)[:, None]
        args = places, np.array(SPECIAL, np.float32)
        (right,) = evaluate_all(graph, *args, flush=flush).results
        (mine,) = evaluate_all(after, *args, flush=flush).results
        assert np.array_equal(np.isnan(right), np.isnan(mine))
        right, mine = (np.where(np.isnan(x), 1, x) for x in (right, mine))
        assert right.tobytes() == mine.tobytes()


@pytest.mark.parametrize("index", ["i8", "u8", "i32", "u32", "i64", "u64"])
@pytest.mark.parametrize("mode", ["drop", "clip"])
@pytest.mark.parametrize(
    ("dtype", "fill"), [("bf16", "1.0"), ("f16", "0.5"), ("i8", "120"), ("f64", "0.1")]
)
def test_sums_round_and_wrap_as_they_did(dtype: str, fill: str, mode: str, index: str):
    graph = into_zeros("add", mode, dtype, index, fill)
    after, log = only(graph)
    assert fired(log, SCATTER_IN_ROWS) == ["%3"]
    kind = graph.type(graph.arguments[0]).dtype.numpy
    ends = [np.iinfo(kind).min, 4, np.iinfo(kind).max, 1]
    updates = np.array([0.3, 7.03125, 100, -120.4])
    args = (
        np.array(ends, kind)[:, None],
        updates.astype(graph.type(graph.arguments[1]).dtype.numpy),
    )
    (right,), (mine,) = (evaluate_all(g, *args).results for g in (graph, after))
    assert right.tobytes() == mine.tobytes()


def test_one_element_of_a_vector():
    """A number at a place: there is one row."""
    made = scatter(inserted="(0)", led="(0)")
    after, log = only(
        graph_of(f"""
        device %0: i32[1]
        %1: f32[5] = broadcast[shape=(5)](0.0:f32)
        %2: f32[5] = {made}(%1, %0, 2.0:f32)
        result %2
        """)
    )
    assert_text(
        after,
        """
        device %0: i32[1]
        %1: f32[1] = reshape[shape=(1)](2.0:f32)
        %2: f32[1] = binary[op=add](0.0:f32, %1)
        %3: i32[5] = iota[dtype=i32, shape=(5), axis=0]()
        %4: bool[5] = compare[op=eq](%3, %0)
        %5: f32[5] = select(%4, %2, 0.0:f32)
        result %5
        """,
    )
    assert fired(log, SCATTER_IN_ROWS) == ["%2"]


def test_rows_along_a_first_axis():
    after, log = only(
        graph_of(f"""
        device %0: i32[4]
        device %1: f32[4]
        %2: i32[4,1] = reshape[shape=(4, 1)](%0)
        %3: i32[4,1] = iota[dtype=i32, shape=(4, 1), axis=0]()
        %4: i32[4,2] = concat[axis=1](%2, %3)
        %5: f32[6,4] = broadcast[shape=(6, 4)](0.0:f32)
        %6: f32[6,4] = {scatter("set")}(%5, %4, %1)
        result %6
        """)
    )
    assert_text(
        after,
        """
        device %0: i32[4]
        device %1: f32[4]
        %2: i32[1,4] = reshape[shape=(1, 4)](%0)
        %3: f32[1,4] = reshape[shape=(1, 4)](%1)
        %4: i32[6,4] = iota[dtype=i32, shape=(6, 4), axis=0]()
        %5: bool[6,4] = compare[op=eq](%4, %2)
        %6: f32[6,4] = select(%5, %3, 0.0:f32)
        result %6
        """,
    )
    assert fired(log, SCATTER_IN_ROWS) == ["%6"]


NOT_SCATTERED = {
    "what it writes to is given": (
        "device %2: f32[4,5]",
        Reason.NOT_FILLED,
        "f32[4,5] %2",
    ),
    "what it writes to is computed": (
        "%2: f32[4,5] = iota[dtype=f32, shape=(4, 5), axis=1]()",
        Reason.NOT_FILLED,
        "f32[4,5] %2",
    ),
    "rows that repeat": (
        "%2: f32[4,5] = broadcast[shape=(4, 5)](%1)",
        Reason.NOT_FILLED,
        "f32[4,5] %2",
    ),
    "more rows than updates": (
        "%2: f32[6,5] = broadcast[shape=(6, 5)](0.0:f32)",
        Reason.NOT_EACH_ROW,
        "index vectors (4,) for f32[6,5], not counted along 1",
    ),
}


@pytest.mark.parametrize("case", NOT_SCATTERED)
def test_other_scatters_stay(case: str):
    given, reason, detail = NOT_SCATTERED[case]
    shape = "6,5" if "6,5" in given else "4,5"
    graph = graph_of(f"""
        device %0: i32[4,1]
        device %1: f32[4,1]
        {given}
        %3: i32[4,1] = iota[dtype=i32, shape=(4, 1), axis=0]()
        %4: i32[4,2] = concat[axis=1](%3, %0)
        %5: f32[{shape}] = {scatter(window="(1)", inserted="(0)")}(%2, %4, %1)
        result %5
    """)
    after, (log,) = apply(graph, one_per_row)
    assert after == graph
    assert declined(log, SCATTER_IN_ROWS) == {"%5": reason}
    assert log.entries[0].detail == detail


def test_indices_that_cannot_name_all_places():
    """Not computed: a row has 2**31 + 1 elements."""
    size = (1 << 31) + 1
    graph = graph_of(f"""
        device %0: i32[1]
        device %1: bool[]
        %2: bool[{size}] = broadcast[shape=({size})](0:bool)
        %3: bool[{size}] = {scatter("set", inserted="(0)", led="(0)")}(%2, %0, %1)
        result %3
    """)
    after, (record,) = run_passes((one_per_row,), graph, DeviceInfo())
    assert after == graph
    assert declined(record.log, SCATTER_IN_ROWS) == {"%3": Reason.SIZE_LIMIT}
    assert record.log.entries[0].detail == f"{size} elements a row, i32 indices"


@pytest.mark.parametrize(
    ("made", "update"),
    [
        (scatter("max", **INTO_ROWS), "[4]"),
        (scatter(window="(1)", inserted="(0)", led="(0)"), "[4,5]"),
        (scatter(window="(1)", inserted="(0)", led="(0)"), "[4,0]"),
    ],
    ids=["max", "rows", "nothing"],
)
def test_what_is_no_element_a_row_set_or_added(made: str, update: str):
    graph = graph_of(f"""
        device %0: i32[4,1]
        device %1: f32{update}
        %2: f32[4,5] = broadcast[shape=(4, 5)](0.0:f32)
        %3: f32[4,5] = {made}(%2, %0, %1)
        result %3
    """)
    after, (log,) = apply(graph, one_per_row)
    assert after == graph and not log.entries


def test_nothing_is_written_by_no_vectors():
    graph = graph_of(f"""
        device %0: i32[0,1]
        device %1: f32[0]
        %2: f32[0,5] = broadcast[shape=(0, 5)](0.0:f32)
        %3: f32[0,5] = {scatter(**INTO_ROWS)}(%2, %0, %1)
        result %3
    """)
    after, (log,) = apply(graph, one_per_row)
    assert after == graph and not log.entries
