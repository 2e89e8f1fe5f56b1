"""Random graphs: the device gives what the oracle says, or the graph shrinks and shows.

Hypothesis makes every choice of a graph. `HYPOTHESIS_PROFILE=ci` derandomises them.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from poot.core.dtypes import ALL
from poot.core.op import primitive_keys
from tests.graph_runs import assert_right
from tests.op_row import OpRow
from tests.random_graphs import DrawnGraph, random_graphs
from tests.table_graphs import DRAWN_ROWS, TableGraph, table_graphs

SEEDS = st.integers(0, 1 << 20)
# Large graphs take many choices.
LARGE = settings(suppress_health_check=list(HealthCheck))


@settings(LARGE, max_examples=32)
@given(random_graphs(), SEEDS)
def test_random_graphs(drawn: DrawnGraph, seed: int) -> None:
    assert_right(drawn.graph, seed)


@settings(LARGE, max_examples=6)
@given(random_graphs(), SEEDS)
def test_random_graphs_by_kernels_for_any_shape(drawn: DrawnGraph, seed: int) -> None:
    assert_right(drawn.graph, seed, generic=True)


@settings(LARGE, max_examples=6)
@given(random_graphs(100), SEEDS)
def test_large_random_graphs(drawn: DrawnGraph, seed: int) -> None:
    assert_right(drawn.graph, seed)


@settings(LARGE, max_examples=24)
@given(table_graphs(), SEEDS)
def test_graphs_of_all_primitives(drawn: DrawnGraph, seed: int) -> None:
    assert_right(drawn.graph, seed, limits=drawn.limits)


@settings(LARGE, max_examples=15)
@given(table_graphs(), SEEDS)
def test_graphs_of_all_primitives_by_kernels_for_any_shape(
    drawn: DrawnGraph, seed: int
) -> None:
    assert_right(drawn.graph, seed, generic=True, limits=drawn.limits)


def test_every_primitive_and_dtype_can_be_drawn() -> None:
    drawn = {row.key for row in DRAWN_ROWS}
    assert drawn == {key for key in primitive_keys() if not key.op.composite}
    assert {dtype for row in DRAWN_ROWS for dtype in row.dtypes} == set(ALL)


@pytest.mark.parametrize("row", DRAWN_ROWS, ids=str)
def test_a_row_grows_a_graph(row: OpRow) -> None:
    for dtype in row.dtypes:
        grown = TableGraph(random.Random(f"{row} {dtype}"))
        grown.apply(row, dtype)
        graph = grown.finish().graph
        applied = [eqn for eqn in graph.eqns if eqn.op.key == row.key]
        operands = {graph.type(x).dtype for eqn in applied for x in eqn.inputs}
        assert dtype in operands or not applied[0].inputs
