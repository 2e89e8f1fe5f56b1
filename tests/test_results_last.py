"""Small results come last, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from poot.lowering.passes.driver import Reason
from poot.lowering.passes.results_last import RESULTS_LAST, results_last
from tests.pass_harness import apply, assert_text, declined, fired, graph_of

LOSSES = """
    device %0: f32[4,{length}]
    {given}: f32[4]
    %2: f32[4] = reduce[op=sum, axis=1, keepdim=false](%0)
    %3: f32[4] = {op}
    %4: f32[1] = {total}
    %5: f32[] = reshape[shape=()](%4)
    %6: f32[4,{length}] = unary[op=exp](%0)
    %7: f32[4,{length}] = binary[op=add](%6, {added})
    {next}
    result %5
    result %7
"""


SUMS = " = reduce[op=sum, axis=1, keepdim=false](%0)"


def losses(
    op: str = "binary[op=mul](%1, %2)",
    given: str = "device %1",
    next: str = "result %6",
    length: int = 16,
    added: str = "%6",
    total: str = "reduce[op=sum, axis=0, keepdim=true](%3)",
) -> str:
    return LOSSES.format(
        op=op, given=given, next=next, length=length, added=added, total=total
    )


def test_a_mean_of_losses_comes_last():
    after, (log,) = apply(graph_of(losses()), results_last)
    assert_text(
        after,
        """
        device %0: f32[4,16]
        device %1: f32[4]
        %2: f32[4] = reduce[op=sum, axis=1, keepdim=false](%0)
        %3: f32[4,16] = unary[op=exp](%0)
        %4: f32[4,16] = binary[op=add](%3, %3)
        %5: f32[4] = binary[op=mul](%1, %2)
        %6: f32[1] = reduce[op=sum, axis=0, keepdim=true](%5)
        %7: f32[] = reshape[shape=()](%6)
        result %3
        result %7
        result %4
        """,
    )
    assert fired(log, RESULTS_LAST) == ["%3", "%4", "%5"]


def test_what_reads_a_state_stays_ahead():
    text = losses(given="state %1", next="next %1 = %2")
    after, (log,) = apply(graph_of(text), results_last)
    assert declined(log, RESULTS_LAST) == {"%3": Reason.OVERWRITTEN}
    assert log.declined(RESULTS_LAST)[0].detail == "reads the state %1"
    assert fired(log, RESULTS_LAST) == ["%4", "%5"]
    assert [str(eqn.op) for eqn in after.eqns][1] == "Binary[MUL]"


def test_what_reads_a_view_of_a_state_stays_ahead():
    text = losses(given="state %1", next="next %1 = %2", op="reshape[shape=(4)](%1)")
    graph = graph_of(text)
    after, (log,) = apply(graph, results_last)
    assert after == graph
    assert declined(log, RESULTS_LAST) == {"%4": Reason.OVERWRITTEN}
    assert log.entries[0].detail == "reads the state %1"


@pytest.mark.parametrize(
    "changed",
    [
        # More than a fourth of what is reduced.
        {"length": 3},
        # Needed by what does not wait.
        {"added": "%4"},
        # Nothing is added up.
        {"total": "slice[axis=0, start=0, end=1, stride=1](%3)"},
    ],
    ids=str,
)
def test_other_orders_stay(changed: dict[str, Any]):
    graph = graph_of(losses(**changed))
    after, (log,) = apply(graph, results_last)
    assert after == graph and not log.entries


@pytest.mark.parametrize(("rows", "length"), [(4, 2), ((1 << 16) + 1, 4)])
def test_what_is_large_does_not_wait(rows: int, length: int):
    """Beside what is reduced, however large other values are; or in itself."""
    graph = graph_of(f"""
        device %0: f32[{rows},{length}]
        device %1: f32[64]
        %2: f32[{rows}] = reduce[op=sum, axis=1, keepdim=false](%0)
        %3: f32[1] = reduce[op=sum, axis=0, keepdim=true](%2)
        %4: f32[64] = unary[op=exp](%1)
        result %3
        result %4
    """)
    after, (log,) = apply(graph, results_last)
    assert after == graph and not log.entries


@pytest.mark.parametrize("is_all", [True, False])
def test_what_is_last_already_stays(is_all: bool):
    """Behind a larger value, or with nothing else beside it."""
    graph = graph_of(f"""
        device %0: f32[4,16]
        {"device %1" if is_all else "%1"}: f32[4]{"" if is_all else SUMS}
        %2: f32[1] = reduce[op=sum, axis=0, keepdim=true](%1)
        %3: f32[1] = unary[op=neg](%2)
        result %3
    """)
    after, (log,) = apply(graph, results_last)
    assert after == graph and not log.entries
