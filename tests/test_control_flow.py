"""Scan, While and Cond: type rules, and graphs that nest them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from poot.core.errors import (
    GraphError,
    OperandCountError,
    OutputError,
    ShapeError,
    StorageError,
    TypeMismatchError,
)
from poot.core.graph import Graph
from poot.core.oracle import evaluate
from tests.pass_harness import graph_of

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


def scan_of(
    body: str,
    xs: str = "f32[4]",
    outs: str = "f32[], f32[4], i32[]",
    head: str = "length=4, consts=0, carries=1, reverse=false",
    operands: str = "0.0:f32, %0",
) -> str:
    """A graph with a scan over its only argument."""
    types = outs.split(", ") if outs else []
    results = ", ".join(f"%{n}: {type}" for n, type in enumerate(types, 1))
    shown = "\n".join(f"result %{n}" for n, _ in enumerate(types, 1))
    return f"""
        device %0: {xs}
        {results} = scan[body={body}, {head}]({operands})
        {shown}
    """


def values(graph: Graph, *args: Any) -> list[Any]:
    return [result.tolist() for result in evaluate(graph, *args)]


@pytest.mark.parametrize(("reverse", "word"), [("false", 4), ("true", 3)])
def test_words_say_where_a_check_failed_first(reverse: str, word: int) -> None:
    head = f"length=5, consts=0, carries=1, reverse={reverse}"
    text = scan_of(ADDING, "f32[5]", "f32[], f32[5], i32[]", head)
    xs = np.array([4, 1, 2, 4, 5], np.float32)
    before = [0, 4, 5, 7, 11] if reverse == "false" else [12, 11, 9, 5, 0]
    assert values(graph_of(text), xs) == [16, before, word]


# --- what the type rules refuse -----------------------------------------------


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
