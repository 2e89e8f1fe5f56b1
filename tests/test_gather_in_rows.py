"""Gathers of one element a row: which become what rows fuse with, and their kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from poot.core.equation import Operand
from poot.core.graph import Graph
from poot.core.ops.composite import FusedRow
from poot.core.ops.contractions import ContractionEpilogue
from poot.core.ops.indexing import GeneralGather
from poot.lowering.compile import lower, plan
from poot.lowering.passes.dce import dce
from poot.lowering.passes.driver import Log, Reason, Refusal
from poot.lowering.passes.fuse_rows import EXTEND_ROWS, PRECEDE_ROWS, fuse_rows
from poot.lowering.passes.one_per_row import GATHER_IN_ROWS, one_per_row
from poot.lowering.passes.row_forms import Domain, Fit, Fitter, Form
from poot.lowering.plan.rows import LONG_ROW
from tests.kernel_harness import device, oracle, run_program, same_bits
from tests.pass_harness import apply, assert_text, declined, fired, graph_of


def general_gather(
    offset: str = "()",
    collapsed: str = "(0, 1)",
    led: str = "(0, 1)",
    batch: str = "()",
    places: str = "()",
    sizes: str = "(1, 1)",
    mode: str = "clip, fill=none",
) -> str:
    """A gather as graphs print it."""
    return (
        f"general_gather[dims=(offset_dims={offset}, collapsed_slice_dims={collapsed}, "
        f"start_index_map={led}, operand_batching_dims={batch}, "
        f"start_indices_batching_dims={places}), slice_sizes={sizes}, mode={mode}]"
    )


IN_ROWS = general_gather(collapsed="(1)", led="(1)", batch="(0)", places="(0)")
OF_THREE = general_gather("()", "(0, 1, 2)", "(0, 1, 2)", sizes="(1, 1, 1)")
HEAD = """
    device %0: f32[4,5]
    device %1: i32[4]
    %2: i32[4] = iota[dtype=i32, shape=(4), axis=0]()
    %3: i32[4,1] = reshape[shape=(4, 1)](%2)
    %4: i32[4,1] = reshape[shape=(4, 1)](%1)
"""


def only(graph: Graph) -> tuple[Graph, Log]:
    """The graph after the pass, tidied, and the log."""
    after, logs = apply(graph, one_per_row, dce)
    return after, logs[0]


@pytest.mark.parametrize("mode", ["clip, fill=none", "fill, fill=9.0:f32", "promise"])
def test_indices_that_count_rows_are_batch_axes(mode: str):
    mode = mode if "," in mode else f"{mode}, fill=none"
    after, log = only(
        graph_of(f"""{HEAD}
        %5: i32[4,2] = concat[axis=1](%3, %4)
        %6: f32[4] = {general_gather(mode=mode)}(%0, %5)
        result %6
        """)
    )
    assert_text(
        after,
        f"""
        device %0: f32[4,5]
        device %1: i32[4]
        %2: i32[4,1] = reshape[shape=(4, 1)](%1)
        %3: f32[4] = {IN_ROWS.replace("clip, fill=none", mode)}(%0, %2)
        result %3
        """,
    )
    assert fired(log, GATHER_IN_ROWS) == ["%6"]


def test_rows_along_several_axes():
    after, log = only(
        graph_of(f"""
        device %0: f32[2,3,5]
        device %1: i32[2,3,1]
        %2: i32[2,3,1] = iota[dtype=i32, shape=(2, 3, 1), axis=0]()
        %3: i32[2,3,1] = iota[dtype=i32, shape=(2, 3, 1), axis=1]()
        %4: i32[2,3,3] = concat[axis=2](%2, %3, %1)
        %5: f32[2,3] = {OF_THREE}(%0, %4)
        result %5
        """)
    )
    rows = general_gather("()", "(2)", "(2)", "(0, 1)", "(0, 1)", "(1, 1, 1)")
    assert_text(
        after,
        f"""
        device %0: f32[2,3,5]
        device %1: i32[2,3,1]
        %2: f32[2,3] = {rows}(%0, %1)
        result %2
        """,
    )
    assert fired(log, GATHER_IN_ROWS) == ["%5"]


def test_windows_of_one_element_are_no_windows():
    """As a vmap of x[k] has it."""
    gather = general_gather("(1)", "()", "(1)", "(0)", "(0)")
    after, log = only(
        graph_of(f"""
        device %0: f32[4,5]
        device %1: i32[4,1]
        %2: f32[4,1] = {gather}(%0, %1)
        result %2
        """)
    )
    assert_text(
        after,
        f"""
        device %0: f32[4,5]
        device %1: i32[4,1]
        %2: f32[4] = {IN_ROWS}(%0, %1)
        %3: f32[4,1] = reshape[shape=(4, 1)](%2)
        result %3
        """,
    )
    assert fired(log, GATHER_IN_ROWS) == ["%2"]


@pytest.mark.parametrize("mode", ["clip, fill=none", "fill, fill=none"])
def test_rows_need_not_be_along_the_last_axis(mode: str):
    after, log = only(
        graph_of(f"""
        device %0: f32[5,4]
        device %1: i32[4]
        %2: i32[4] = iota[dtype=i32, shape=(4), axis=0]()
        %3: i32[4,1] = reshape[shape=(4, 1)](%2)
        %4: i32[4,1] = reshape[shape=(4, 1)](%1)
        %5: i32[4,2] = concat[axis=1](%4, %3)
        %6: f32[4] = {general_gather(mode=mode)}(%0, %5)
        result %6
        """)
    )
    columns = general_gather("()", "(0)", "(0)", "(1)", "(0)", mode=mode)
    assert_text(
        after,
        f"""
        device %0: f32[5,4]
        device %1: i32[4]
        %2: i32[4,1] = reshape[shape=(4, 1)](%1)
        %3: f32[4] = {columns}(%0, %2)
        result %3
        """,
    )
    assert fired(log, GATHER_IN_ROWS) == ["%6"]


ALONG_ONE = """
    device %0: f32[{rows}]
    device %1: i32[{count},1]
    %2: i32[{count},1] = {first}
    %3: i32[{count},2] = concat[axis=1](%2, {second})
    %4: f32[{count}] = {gather}(%0, %3)
    result %4
"""


@pytest.mark.parametrize(
    ("rows", "count", "first", "second", "mode"),
    [
        # The one row may be named by any index, as that is moved inside.
        ("1,5", 1, "reshape[shape=(1, 1)](%1)", "%1", "clip"),
        ("1,5", 1, "iota[dtype=i32, shape=(1, 1), axis=0]()", "%1", "fill"),
        # Rows of one element.
        ("4,1", 4, "iota[dtype=i32, shape=(4, 1), axis=0]()", "%1", "clip"),
        ("4,1", 4, "iota[dtype=i32, shape=(4, 1), axis=0]()", "%1", "fill"),
        # A diagonal.
        ("4,4", 4, "iota[dtype=i32, shape=(4, 1), axis=0]()", "%2", "fill"),
    ],
)
def test_one_row_or_one_column(
    rows: str, count: int, first: str, second: str, mode: str
):
    gather = general_gather(mode=f"{mode}, fill=none")
    graph = graph_of(
        ALONG_ONE.format(
            rows=rows, count=count, first=first, second=second, gather=gather
        )
    )
    after, log = only(graph)
    assert fired(log, GATHER_IN_ROWS) == ["%4"]
    assert IN_ROWS.replace("clip", mode) in str(after)


NOT_GATHERED = {
    "another row than the first is outside": (
        f"""
        device %0: f32[1,5]
        device %1: i32[1,1]
        %2: i32[1,2] = concat[axis=1](%1, %1)
        %3: f32[1] = {general_gather(mode="fill, fill=none")}(%0, %2)
        result %3
        """,
        Reason.NOT_EACH_ROW,
        "index vectors (1,) for f32[1,5], not counted along 0, 1",
    ),
    "vectors as they come": (
        f"""
        device %0: f32[4,5]
        device %1: i32[4,2]
        %2: f32[4] = {general_gather()}(%0, %1)
        result %2
        """,
        Reason.WHOLE_VECTORS,
        "i32[4,2] %1",
    ),
    "made by something else": (
        f"""
        device %0: f32[4,5]
        device %1: i32[4,2]
        %2: i32[4,2] = unary[op=neg](%1)
        %3: f32[4] = {general_gather()}(%0, %2)
        result %3
        """,
        Reason.WHOLE_VECTORS,
        "i32[4,2] %2",
    ),
    "put together of vectors": (
        f"""
        device %0: f32[4,5]
        device %1: i32[2,1]
        %2: i32[2,2] = concat[axis=1](%1, %1)
        %3: i32[4,2] = concat[axis=0](%2, %2)
        %4: f32[4] = {general_gather()}(%0, %3)
        result %4
        """,
        Reason.WHOLE_VECTORS,
        "i32[4,2] %3",
    ),
    "a pair and one": (
        f"""
        device %0: f32[4,5,6]
        device %1: i32[4,1]
        device %2: i32[4,2]
        %3: i32[4,3] = concat[axis=1](%1, %2)
        %4: f32[4] = {OF_THREE}(%0, %3)
        result %4
        """,
        Reason.WHOLE_VECTORS,
        "i32[4,3] %3",
    ),
    "rows that data names": (
        f"""{HEAD}
        %5: i32[4,2] = concat[axis=1](%4, %4)
        %6: f32[4] = {general_gather()}(%0, %5)
        result %6
        """,
        Reason.NOT_EACH_ROW,
        "index vectors (4,) for f32[4,5], not counted along 0, 1",
    ),
    "some of the rows": (
        f"""
        device %0: f32[6,5]
        device %1: i32[4,1]
        %2: i32[4,1] = iota[dtype=i32, shape=(4, 1), axis=0]()
        %3: i32[4,2] = concat[axis=1](%2, %1)
        %4: f32[4] = {general_gather()}(%0, %3)
        result %4
        """,
        Reason.NOT_EACH_ROW,
        "index vectors (4,) for f32[6,5], not counted along 1",
    ),
    "several of each row": (
        f"""
        device %0: f32[4,5]
        device %1: i32[4,3,1]
        %2: f32[4,3] = {IN_ROWS}(%0, %1)
        result %2
        """,
        Reason.NOT_EACH_ROW,
        "index vectors (4, 3) for f32[4,5], not counted along 1",
    ),
    "rows over and over": (
        f"""
        device %0: f32[4,5]
        device %1: i32[3,4,1]
        %2: i32[3,4,1] = iota[dtype=i32, shape=(3, 4, 1), axis=1]()
        %3: i32[3,4,2] = concat[axis=2](%2, %1)
        %4: f32[3,4] = {general_gather()}(%0, %3)
        result %4
        """,
        Reason.NOT_EACH_ROW,
        "index vectors (3, 4) for f32[4,5], not counted along 1",
    ),
    "rows in another order": (
        f"""
        device %0: f32[2,3,5]
        device %1: i32[3,2,1]
        %2: i32[3,2,1] = iota[dtype=i32, shape=(3, 2, 1), axis=1]()
        %3: i32[3,2,1] = iota[dtype=i32, shape=(3, 2, 1), axis=0]()
        %4: i32[3,2,3] = concat[axis=2](%2, %3, %1)
        %5: f32[3,2] = {OF_THREE}(%0, %4)
        result %5
        """,
        Reason.NOT_EACH_ROW,
        "index vectors (3, 2) for f32[2,3,5], not counted along 2",
    ),
    "the first of each row": (
        f"""
        device %0: f32[4,5]
        %1: i32[4,1] = iota[dtype=i32, shape=(4, 1), axis=0]()
        %2: f32[4] = {general_gather("()", "(0, 1)", "(0)")}(%0, %1)
        result %2
        """,
        Reason.NOT_EACH_ROW,
        "index vectors (4,) for f32[4,5], not counted along 1",
    ),
    "no diagonal": (
        f"""
        device %0: f32[4,5,4]
        device %1: i32[4,1]
        %2: i32[4,1] = iota[dtype=i32, shape=(4, 1), axis=0]()
        %3: i32[4,3] = concat[axis=1](%2, %2, %2)
        %4: f32[4] = {OF_THREE}(%0, %3)
        result %4
        """,
        Reason.NOT_EACH_ROW,
        "index vectors (4,) for f32[4,5,4]",
    ),
}


@pytest.mark.parametrize("case", NOT_GATHERED)
def test_other_gathers_stay(case: str):
    text, reason, detail = NOT_GATHERED[case]
    graph = graph_of(text)
    after, (log,) = apply(graph, one_per_row)
    assert after == graph
    assert list(declined(log, GATHER_IN_ROWS).values()) == [reason]
    assert log.entries[0].detail == detail


@pytest.mark.parametrize(
    "text",
    [
        # Whole rows.
        f"""
        device %0: f32[4,5]
        device %1: i32[3,1]
        %2: f32[3,5] = {general_gather("(1)", "(0)", "(0)", sizes="(1, 5)")}(%0, %1)
        result %2
        """,
        # Nothing, out of nothing.
        f"""
        device %0: f32[4,0]
        device %1: i32[4,1]
        %2: f32[4] = {IN_ROWS.replace("clip", "fill")}(%0, %1)
        result %2
        """,
        f"""
        device %0: f32[0,4]
        device %1: i32[0,1]
        %2: f32[0] = {IN_ROWS}(%0, %1)
        result %2
        """,
        # As it is to be.
        f"""
        device %0: f32[4,5]
        device %1: i32[4,1]
        %2: f32[4] = {IN_ROWS}(%0, %1)
        result %2
        """,
    ],
    ids=["rows", "empty rows", "no rows", "done"],
)
def test_nothing_is_to_be_done(text: str):
    graph = graph_of(text)
    after, (log,) = apply(graph, one_per_row)
    assert after == graph and not log.entries


def test_the_axes_of_the_rows_are_those_of_the_indices():
    """One vector a row, behind another axis."""
    after, log = only(
        graph_of(f"""
        device %0: f32[4,5]
        device %1: i32[4,1,1]
        %2: f32[4,1] = {IN_ROWS}(%0, %1)
        result %2
        """)
    )
    assert_text(
        after,
        f"""
        device %0: f32[4,5]
        device %1: i32[4,1,1]
        %2: i32[4,1] = reshape[shape=(4, 1)](%1)
        %3: f32[4] = {IN_ROWS}(%0, %2)
        %4: f32[4,1] = reshape[shape=(4, 1)](%3)
        result %4
        """,
    )
    assert fired(log, GATHER_IN_ROWS) == ["%2"]


# --- in row programs --------------------------------------------------------

BELOW_PEAK = """
    device %0: {dtype}[{shape}]
    device %1: {index}[{column}]
    %2: {dtype}[{column}] = reduce[op=max, axis={axis}, keepdim=true](%0)
    %3: {dtype}[{shape}] = binary[op=sub](%0, %2)
    %4: {dtype}[{rows}] = {gather}({source}, %1)
    %5: {dtype}[{column}] = reshape[shape=({column})](%4)
    %6: {dtype}[{shape}] = binary[op=sub](%3, %5)
    result %4
    result %6
"""


def below_peak(
    rows: tuple[int, ...] = (4,),
    length: int = 5,
    mode: str = "clip",
    dtype: str = "f32",
    index: str = "i32",
    source: str = "%3",
) -> Graph:
    """Of what is below the peak of each row one element, and what is below that."""
    axes = str(tuple(range(len(rows)))).replace(",)", ")")
    along, ones = f"({len(rows)})", str((1,) * (len(rows) + 1)).replace(",)", ")")
    dims = [",".join(map(str, shape)) for shape in ((*rows, length), (*rows, 1), rows)]
    return graph_of(
        BELOW_PEAK.format(
            dtype=dtype,
            index=index,
            shape=dims[0],
            column=dims[1],
            rows=dims[2],
            axis=len(rows),
            source=source,
            gather=general_gather(
                "()", along, along, axes, axes, ones, f"{mode}, fill=none"
            ),
        )
    )


@pytest.mark.parametrize(("source", "taken"), [("%3", "%3"), ("%0", "%0")])
def test_an_element_is_asked_for_in_the_row_program(source: str, taken: str):
    """Of a value that is computed there, or of what is read."""
    after, (log,) = apply(below_peak(source=source), fuse_rows)
    assert_text(
        after,
        f"""
        device %0: f32[4,5]
        device %1: i32[4,1]
        %2: f32[4,1], %3: f32[4,5] = fused_row[body=graph {{
          device %0: f32[4,5]
          device %1: i32[4,1]
          %2: f32[4,1] = reduce[op=max, axis=1, keepdim=true](%0)
          %3: f32[4,5] = binary[op=sub](%0, %2)
          %4: i32[4,1,1] = reshape[shape=(4, 1, 1)](%1)
          %5: f32[4,1] = {IN_ROWS}({taken}, %4)
          %6: f32[4,5] = binary[op=sub](%3, %5)
          result %5
          result %6
        }}](%0, %1)
        %4: f32[4] = reshape[shape=(4)](%2)
        result %4
        result %3
        """,
    )
    assert "%4" in [*fired(log, EXTEND_ROWS), *fired(log, PRECEDE_ROWS)]


def test_a_gather_between_the_group_and_an_equation_joins_first():
    """%6 waits for %4, which stands behind the reader of %2."""
    graph = graph_of(f"""
        device %0: f32[4,8]
        device %1: i32[4,1]
        %2: f32[4] = reduce[op=max, axis=1, keepdim=false](%0)
        %3: f32[1] = reduce[op=sum, axis=0, keepdim=true](%2)
        %4: f32[4] = {IN_ROWS}(%0, %1)
        %5: f32[4] = binary[op=mul](%4, %2)
        %6: f32[4] = binary[op=sub](%5, %2)
        result %3
        result %6
    """)
    after, (log,) = apply(graph, fuse_rows)
    assert fired(log, EXTEND_ROWS) == ["%4", "%5", "%6"]
    assert not any(isinstance(eqn.op, GeneralGather) for eqn in after.eqns)


def test_rows_in_stages_are_not_asked_again():
    graph = graph_of(f"""
        device %0: f32[1,{LONG_ROW}]
        device %1: i32[1,1]
        %2: f32[1,1] = reduce[op=max, axis=1, keepdim=true](%0)
        %3: f32[1] = {IN_ROWS}(%0, %1)
        %4: f32[1,1] = reshape[shape=(1, 1)](%3)
        %5: f32[1,1] = binary[op=sub](%2, %4)
        result %5
    """)
    after, (log,) = apply(graph, fuse_rows)
    assert sum(isinstance(eqn.op, GeneralGather) for eqn in after.eqns) == 1
    assert fired(log, EXTEND_ROWS) == ["%5"]
    assert declined(log, PRECEDE_ROWS) == {"%3": Reason.LONG_ROW}


FULL, ROW = Form.FULL, Form.ROW


def no_rows(values: str) -> Refusal:
    return Refusal(Reason.OTHER_ROWS, f"{values} beside 4 rows of 8")


def no_part(values: str) -> Refusal:
    return Refusal(Reason.BOUNDARY, f"{values} beside 4 rows of 8")


TAKEN = "device %0: f32[{}]; device %1: i32[{}]; %2: f32[{}] = {}(%0, %1)"
TWO = general_gather("()", "(2)", "(2)", "(0, 1)", "(0, 1)", "(1, 1, 1)")
FORMS = [
    (TAKEN.format("4,8", "4,1", "4", IN_ROWS), {}, ((0, (4, 8)), (1, (4, 1)))),
    (TAKEN.format("4,8", "4,1", "4", IN_ROWS), {0: FULL}, ((1, (4, 1)),)),
    (TAKEN.format("4,8", "4,1", "4", IN_ROWS), {0: FULL, 1: ROW}, ()),
    (TAKEN.format("2,2,8", "2,2,1", "2,2", TWO), {0: FULL, 1: ROW}, ()),
    (TAKEN.format("4,9", "4,1", "4", IN_ROWS), {}, no_rows("%0 f32[4,9]")),
    (TAKEN.format("5,8", "5,1", "5", IN_ROWS), {}, no_rows("%0 f32[5,8]")),
    (
        TAKEN.format("4,8", "4,2,1", "4,2", IN_ROWS),
        {},
        no_part("%0 f32[4,8], %1 i32[4,2,1]"),
    ),
    (
        TAKEN.format(
            "8,4", "4,1", "4", general_gather("()", "(0)", "(0)", "(1)", "(0)")
        ),
        {},
        no_part("%0 f32[8,4], %1 i32[4,1]"),
    ),
]


@pytest.mark.parametrize(("text", "forms", "wanted"), FORMS)
def test_how_a_gather_stands_in_rows(
    text: str, forms: dict[Operand, Form], wanted: Any
):
    graph = graph_of(text.replace("; ", "\n"))
    found = Fitter(graph, Domain((4,), 8)).fit(graph.eqns[0], forms)
    assert found == (wanted if isinstance(wanted, Refusal) else Fit(ROW, wanted))


@pytest.mark.parametrize("mode", ["clip", "fill"])
@pytest.mark.parametrize(
    ("rows", "length", "dtype", "index"),
    [
        ((), 5, "f32", "i32"),
        ((3,), 1, "f32", "u8"),
        ((37,), 7, "bf16", "i32"),
        ((2, 3), 33, "f16", "i8"),
        ((5,), 1000, "f32", "u32"),
        ((2, 2), 64, "i32", "i16"),
    ],
)
def test_kernels_take_the_element_of_their_row(
    rows: tuple[int, ...], length: int, dtype: str, index: str, mode: str
):
    graph = below_peak(rows, length, mode, dtype, index)
    lowered = lower(graph, device().info)
    assert sum(isinstance(eqn.op, FusedRow) for eqn in lowered.graph.eqns) == 1
    program = plan(lowered.graph, device().info)
    random = np.random.default_rng(length)
    x, k = (graph.type(value) for value in graph.arguments)
    low, high = (0, 2 * length) if index[0] == "u" else (-length, 2 * length)
    args = (
        random.integers(-8, 9, x.shape).astype(x.dtype.numpy),
        random.integers(max(low, -128), min(high, 128), k.shape).astype(k.dtype.numpy),
    )
    got = run_program(lowered.graph, program, args)
    for mine, right in zip(got, oracle(graph, args), strict=True):
        assert same_bits(mine, right)


def test_a_contraction_makes_such_rows_itself():
    gather = IN_ROWS.replace("clip", "fill")
    graph = graph_of(f"""
        device %0: f32[3,33]
        device %1: i32[3,1]
        device %2: f32[33,8]
        %3: f32[3,1] = reduce[op=max, axis=1, keepdim=true](%0)
        %4: f32[3,33] = binary[op=sub](%0, %3)
        %5: f32[3] = {gather}(%4, %1)
        %6: f32[3,1] = reshape[shape=(3, 1)](%5)
        %7: f32[3,33] = binary[op=sub](%4, %6)
        %8: f32[3,8] = matmul[out=none](%7, %2)
        result %8
    """)
    lowered = lower(graph, device().info)
    (eqn,) = lowered.graph.eqns
    assert isinstance(eqn.op, ContractionEpilogue) and eqn.op.prologue is not None
    program = plan(lowered.graph, device().info)
    random = np.random.default_rng(0)
    x, weights = (
        random.integers(-3, 4, shape).astype(np.float32) for shape in ((3, 33), (33, 8))
    )
    args = x, np.array([[32], [40], [5]], np.int32), weights
    (mine,) = run_program(lowered.graph, program, args)
    (right,) = oracle(graph, args)
    assert np.isnan(right[1]).all()
    np.testing.assert_array_equal(mine, right)
