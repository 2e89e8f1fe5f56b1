"""What declared ranges of slots let passes do, and what they do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import slots
from poot.core.graph import Graph
from poot.core.oracle.evaluate import evaluate_all
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.dce import dce
from poot.lowering.passes.driver import Log, Reason, run_passes
from poot.lowering.passes.slot_ranges import NOT_NEGATIVE, ROW_AT_SLOT, slot_ranges
from tests.backends import each_backend as each_backend
from tests.pass_harness import assert_text, declined, fired, graph_of

BASE = np.arange(24, dtype=np.float32).reshape(6, 4)


def passed(graph: Graph, words: Any, *arguments: Any) -> tuple[Graph, Log]:
    """The graph after the pass, the same for all words of its slot, and the log."""
    after, (record, _) = run_passes((slot_ranges, dce), graph, DeviceInfo())
    for word in words:
        given = [*arguments, np.asarray(word, np.int32)]
        right, mine = evaluate_all(graph, *given), evaluate_all(after, *given)
        for a, b in zip(right.results, mine.results, strict=True):
            np.testing.assert_array_equal(a, b)
    return after, record.log


WRAP = """
  device %0: f32[6,4]
  slot %1: i32[] {kind} key "pos"
  %2: bool[] = compare[op={op}](%1, {bound}:i32)
  %3: i32[] = binary[op=add](%1, 6:i32)
  %4: i32[] = select(%2, %3, {other})
  %5: f32[1,4] = dynamic_slice[sizes=(1, 4)](%0, %4, 0:i32)
  result %5
"""


def wrap(low: int | None = 0, op: str = "lt", bound: int = 0, other: str = "%1") -> Any:
    kind = 'kind "scalar"' if low is None else f'kind "pos" low {low} high 5'
    return graph_of(WRAP.format(kind=kind, op=op, bound=bound, other=other))


def test_an_index_that_is_not_negative_does_not_wrap() -> None:
    after, log = passed(wrap(), range(6), BASE)
    assert_text(
        after,
        """
        device %0: f32[6,4]
        slot %1: i32[] kind "pos" low 0 high 5 key "pos"
        %2: f32[1,4] = dynamic_slice[sizes=(1, 4)](%0, %1, 0:i32)
        result %2
        """,
    )
    assert fired(log, NOT_NEGATIVE) == ["%4"]


@pytest.mark.parametrize(("low", "detail"), [(-1, "pos has -1..5"), (None, "no range")])
def test_an_index_that_may_be_negative_wraps(low: int | None, detail: str) -> None:
    graph = wrap(low)
    after, log = passed(graph, range(-1, 6), BASE)
    assert after == graph
    assert declined(log, NOT_NEGATIVE) == {"%4": Reason.SLOT_RANGE}
    assert detail in log.entries[0].detail


@pytest.mark.parametrize(
    "changed", [{"op": "gt"}, {"bound": 1}, {"other": "2:i32"}], ids=str
)
def test_other_conditions_are_left_alone(changed: dict[str, Any]) -> None:
    graph = wrap(**changed)
    after, log = passed(graph, range(6), BASE)
    if "other" in changed:
        # A literal has the type too.
        assert len(after.eqns) == 1
    else:
        assert after == graph and not log.entries


def test_a_choice_that_is_repeated_is_left_alone() -> None:
    graph = graph_of("""
      device %0: f32[]
      slot %1: i32[] kind "pos" low 0 high 5 key "pos"
      device %2: f32[6]
      %3: bool[] = compare[op=lt](%1, 0:i32)
      %4: f32[6] = select(%3, %2, %0)
      result %4
    """)
    after, (record,) = run_passes((slot_ranges,), graph, DeviceInfo())
    assert after == graph and not record.log.entries


SCATTER = """
  device %0: f32[6,4]
  device %1: f32[4]
  slot %2: i32[] kind "pos" low {low} high {high} key "pos"
  %3: i32[1] = reshape[shape=(1)](%2)
  %4: f32[6,4] = scatter[op={op}, dims=(update_window_dims=(0), inserted_window_dims=(0), scatter_dims_to_operand_dims=(0), operand_batching_dims=(), scatter_indices_batching_dims=()), mode=drop, indices_are_sorted=false, unique_indices=true](%0, %3, %1)
  result %4
"""  # noqa: E501


def scatter(low: int = 0, high: int = 5, op: str = "set") -> Graph:
    return graph_of(SCATTER.format(low=low, high=high, op=op))


def test_a_row_at_a_slot_within_the_axis_is_an_update() -> None:
    after, log = passed(scatter(), range(6), BASE, BASE[0] + 50)
    assert_text(
        after,
        """
        device %0: f32[6,4]
        device %1: f32[4]
        slot %2: i32[] kind "pos" low 0 high 5 key "pos"
        %3: f32[1,4] = reshape[shape=(1, 4)](%1)
        %4: f32[6,4] = dynamic_update_slice(%0, %3, %2, 0:i32)
        result %4
        """,
    )
    assert fired(log, ROW_AT_SLOT) == ["%4"]


@pytest.mark.parametrize(("low", "high"), [(-1, 5), (0, 6)])
def test_a_row_that_may_be_dropped_stays_a_scatter(low: int, high: int) -> None:
    graph = scatter(low, high)
    after, log = passed(graph, range(low, high + 1), BASE, BASE[0] + 50)
    assert after == graph
    assert declined(log, ROW_AT_SLOT) == {"%4": Reason.SLOT_RANGE}
    assert log.entries[0].detail == f"pos has {low}..{high}, takes 0..5"


def test_sums_stay_scatters() -> None:
    graph = scatter(op="add")
    after, log = passed(graph, range(6), BASE, BASE[0] + 50)
    assert after == graph and not log.entries


@pytest.mark.parametrize(
    ("function", "pos"),
    [
        # Several rows; an index along each of two axes.
        (lambda x, pos: x.at[pos].set(9.0), np.array([1, 1, 4])),
        (lambda x, pos: x.at[pos, pos].set(9.0), 3),
    ],
)
def test_other_scatters_stay(function: Any, pos: Any) -> None:
    declared = {"pos": slots.Pos(0, 3)}
    lowered = poot.jit(function, slots=declared).lower(BASE, np.minimum(pos, 3))
    assert "row_at_slot" not in lowered.report()


def test_updates_by_index_at_a_slot(each_backend: Any) -> None:
    functions = {
        "first axis": (lambda x, row, pos: x.at[pos].set(row[:4]), (6, 4), 5),
        "second axis": (lambda x, row, pos: x.at[:, pos].set(row[:6]), (6, 4), 3),
        "last of three": (lambda x, row, pos: x.at[..., pos].set(row[0]), (2, 3, 5), 4),
    }
    row = np.arange(8, dtype=np.float32) + 100
    for name, (function, shape, high) in functions.items():
        f = poot.jit(function, slots={"pos": slots.Pos(0, high)}, donate_argnums=0)
        x = np.zeros(shape, np.float32)
        report = f.lower(x, row, 0).report()
        assert "row_at_slot (exact" in report and "fired 1 times" in report, name
        for pos in range(high + 1):
            right = np.asarray(function(jnp.asarray(x), jnp.asarray(row), pos))
            np.testing.assert_array_equal(f(x, row, pos), right, err_msg=name)
