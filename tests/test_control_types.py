"""What the type rules of Scan, While and Cond refuse, and what they say."""

from __future__ import annotations

import pytest

from poot.core.errors import (
    GraphError,
    OperandCountError,
    OutputError,
    ShapeError,
    StorageError,
    TypeMismatchError,
)
from tests.control_graphs import scan_of
from tests.pass_harness import graph_of


def region(*lines: str) -> str:
    return "\n".join(["graph {", *lines, "}"])


KEEPING = region("device %0: f32[]", "device %1: f32[]", "result %0", "result %1")
PLAIN = "f32[], f32[4]"

REFUSED: list[tuple[str, type[GraphError | ShapeError], str]] = [
    (
        scan_of(KEEPING, "f32[3]", PLAIN),
        ShapeError,
        r"scan: xs 0 is f32\[3\], takes a leading axis of size 4",
    ),
    (
        scan_of(KEEPING, "i32[4]", PLAIN),
        TypeMismatchError,
        r"are \(f32\[\], i32\[\]\), the sub-graph takes \(f32\[\], f32\[\]\)",
    ),
    (
        scan_of(KEEPING, "f32[4]", PLAIN, operands="%0"),
        OperandCountError,
        "scan: given 1 operands, takes 2",
    ),
    (
        scan_of(
            KEEPING, outs=PLAIN, head="length=-1, consts=0, carries=1, reverse=true"
        ),
        ShapeError,
        "scan: length is -1, takes 0 or more",
    ),
    (
        scan_of(
            KEEPING, outs=PLAIN, head="length=4, consts=2, carries=1, reverse=true"
        ),
        OperandCountError,
        "scan: 2 consts and 1 carries of 2 inputs of the body",
    ),
    (
        scan_of(
            region(
                "device %0: f32[]",
                "device %1: f32[]",
                "%2: i32[] = cast[to=i32](%0)",
                "result %2",
            )
        ),
        TypeMismatchError,
        r"scan: carry 0 goes in as f32\[\] and comes out as i32\[\]",
    ),
    (
        scan_of(region("device %0: f32[]", "device %1: f32[]")),
        TypeMismatchError,
        "the body gives 0 results, takes one at least for each of 1 carries",
    ),
    (
        scan_of(region("device %0: f32[]", 'slot %1: f32[] kind "pos"', "result %0")),
        StorageError,
        "scan: input %1 has storage slot; takes device inputs only",
    ),
    (
        scan_of(
            region("device %0: f32[]", "const %1: f32[]", "result %0"),
        ),
        StorageError,
        "scan: input %1 has storage const",
    ),
    (
        scan_of(
            region(
                "device %0: f32[]",
                "device %1: f32[]",
                "result %0",
                'export %1 "hidden"',
            )
        ),
        OutputError,
        "scan: %1 is an export; takes results and witnesses only",
    ),
    (
        """
        device %0: f32[]
        %1: f32[] = while[condition=graph {
          device %0: f32[]
          result %0
        }, body=graph {
          device %0: f32[]
          result %0
        }, condition_consts=0, body_consts=0](%0)
        """,
        TypeMismatchError,
        r"while: the condition gives \(f32\[\]\), takes a bool scalar",
    ),
    (
        """
        device %0: f32[]
        %1: f32[] = while[condition=graph {
          device %0: f32[]
          %1: bool[] = compare[op=gt](%0, 0.0:f32)
          result %1
        }, body=graph {
          device %0: f32[]
        }, condition_consts=0, body_consts=0](%0)
        """,
        TypeMismatchError,
        "while: the body gives 0 results, takes one for each of 1 carries",
    ),
    (
        "device %0: i32[]\n%1: f32[] = cond[branches=()](%0)",
        OperandCountError,
        "cond: there is no branch",
    ),
    (
        "device %0: f32[]\n%1: f32[] = cond[branches=(graph {\n"
        "device %0: f32[]\nresult %0\n})](%0, %0)",
        TypeMismatchError,
        r"cond: the index is f32\[\], takes i32\[\]",
    ),
    (
        "device %0: i32[]\n%1: i32[] = cond[branches=(graph {\n"
        "device %0: i32[]\nresult %0\n}, graph {\n"
        "device %0: i32[]\nresult %0\nresult %0\n})](%0, %0)",
        TypeMismatchError,
        r"cond: branch 1 gives \(i32\[\], i32\[\]\), branch 0 \(i32\[\]\)",
    ),
]


@pytest.mark.parametrize(("text", "error", "message"), REFUSED)
def test_type_rules_say_what_was_given_and_is_needed(
    text: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as refusal:
        graph_of(text)
    assert "equation 0 (" in str(refusal.value)


# --- what passes make -----------------------------------------------------------


def counted(*body: str) -> str:
    """A graph with a loop of three trips over one state."""
    params = f"body={region(*body)}, trips=3, rows=0, fresh=0, reverse=false"
    return f"device %0: f32[2]\n%1: f32[2] = counted_loop[{params}](%0)"


LOOPS_REFUSED: list[tuple[str, type[GraphError], str]] = [
    (
        counted("device %0: f32[]", "state %1: f32[2]", "next %1 = %1"),
        TypeMismatchError,
        r"counted_loop: the index is f32\[\], takes i32\[\]",
    ),
    (
        counted("state %0: f32[2]", "device %1: i32[]", "next %0 = %0"),
        TypeMismatchError,
        "the body takes 1 device inputs, its states, then device inputs; given state",
    ),
    (
        counted("device %0: i32[]", "state %1: f32[3]", "next %1 = %1"),
        TypeMismatchError,
        r"counted_loop: operands are \(f32\[2\]\), the body takes \(f32\[3\]\)",
    ),
    (
        counted(
            *("device %0: i32[]", "state %1: f32[2]"),
            *("next %1 = %1", 'witness %0 "never"'),
        ),
        OutputError,
        "the body has exports or witnesses; takes results and next states only",
    ),
    (
        "device %0: f32[]\n%1: f32[] = flag_loop[body="
        + region("state %0: f32[]", "next %0 = %0")
        + "](%0)",
        TypeMismatchError,
        r"flag_loop: the flag is f32\[\], takes i32\[\]",
    ),
    (
        "device %0: i32[]\n%1: i32[] = flag_loop[body="
        + region("state %0: i32[]", "next %0 = %0", "result %0")
        + "](%0)",
        OutputError,
        "flag_loop: the body gives 1 results; takes next states only",
    ),
]


@pytest.mark.parametrize(("text", "error", "message"), LOOPS_REFUSED)
def test_loops_over_state_say_what_is_needed(
    text: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        graph_of(text)
