"""Runs passes on graph text and checks that they keep its meaning."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np

from poot.core.graph import Graph
from poot.core.oracle.evaluate import evaluate_all
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.driver import Log, Pass, Reason, Rewrite, run_passes


def graph_of(body: str) -> Graph:
    """The graph whose lines these are."""
    return Graph.parse("graph {\n" + textwrap.dedent(body) + "\n}")


def dot_general(lhs: str, rhs: str, batch: str = "()") -> str:
    """A DotGeneral as graphs print it, by its contracting axes."""
    axes = f"lhs_contracting={lhs}, rhs_contracting={rhs}"
    batches = f"lhs_batch={batch}, rhs_batch={batch}"
    return f"dot_general[{axes}, {batches}, out=none, precision=default]"


def arguments_of(graph: Graph, seed: int = 0) -> list[Any]:
    """Arguments of small integers, on which sums are exact in any order."""
    random = np.random.default_rng(seed)
    return [
        random.integers(-3, 4, graph.type(value).shape).astype(
            graph.type(value).dtype.numpy
        )
        for value in graph.arguments
    ]


def assert_same_meaning(before: Graph, after: Graph, seed: int = 0) -> None:
    """Both graphs give the same bits for results, exports and states."""
    args = arguments_of(before, seed)
    wanted, got = evaluate_all(before, *args), evaluate_all(after, *args)
    pairs = [
        *zip(wanted.results, got.results, strict=True),
        *zip(wanted.state, got.state, strict=True),
        *((wanted.exports[name], got.exports[name]) for name in wanted.exports),
    ]
    for right, mine in pairs:
        assert mine.dtype == right.dtype
        assert np.array_equal(mine, right, equal_nan=True)


def apply(
    graph: Graph, *passes: Pass, info: DeviceInfo | None = None
) -> tuple[Graph, list[Log]]:
    """The graph after the passes, whose meaning is checked, and their logs."""
    after, records = run_passes(passes, graph, info or DeviceInfo())
    assert_same_meaning(graph, after)
    return after, [record.log for record in records]


def assert_text(graph: Graph, body: str) -> None:
    """The graph prints as these lines."""
    assert str(graph) == str(graph_of(body)), str(graph)


def fired(log: Log, rewrite: Rewrite) -> list[str]:
    """The results at which the rewrite fired."""
    return [entry.place.split(" = ")[0] for entry in log.fired(rewrite)]


def declined(log: Log, rewrite: Rewrite) -> dict[str, Reason | None]:
    """Why the rewrite declined, by result."""
    return {
        entry.place.split(" = ")[0]: entry.reason for entry in log.declined(rewrite)
    }
