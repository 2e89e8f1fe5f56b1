"""Constants of bodies become operands of the loops, branches and wrappers around them.

A transformation of a body may bring constants in: what a user's rule takes from around
itself is known only when it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from poot.core.extract import extract
from poot.core.graph import Graph
from poot.core.interpreter import current
from poot.core.ops.control import Cond, Scan, While
from poot.core.ops.wrappers import Remat
from poot.interpreters.nested import stage_closed
from poot.interpreters.replay import replay


def opened(graph: Graph) -> tuple[Graph, list[Any]]:
    """The graph with its constants as its first inputs, and their values."""
    if not graph.consts:
        return graph, []
    inputs = [*graph.consts, *graph.arguments]
    values = [current().lift(graph.payloads[value]) for value in graph.consts]
    return extract(graph, inputs, graph.results), values


def bind_closed(op: Scan | While | Cond | Remat, *operands: Any) -> list[Any]:
    """Bind an op whose bodies may have constants."""
    closed, values = _closed(op, operands)
    return list(closed.bind(*values))


def _closed(
    op: Scan | While | Cond | Remat, operands: Sequence[Any]
) -> tuple[Scan | While | Cond | Remat, Sequence[Any]]:
    """The op without constants, and its operands with them."""
    if isinstance(op, Cond):
        return _closed_cond(op, operands)
    body, taken = opened(op.body)
    if isinstance(op, Remat):
        return replace(op, body=body), [*taken, *operands]
    if isinstance(op, Scan):
        consts = op.consts + len(taken)
        return replace(op, body=body, consts=consts), [*taken, *operands]
    condition, asked = opened(op.condition)
    first = op.condition_consts
    both = While(condition, body, first + len(asked), op.body_consts + len(taken))
    return both, [*asked, *operands[:first], *taken, *operands[first:]]


def _closed_cond(op: Cond, operands: Sequence[Any]) -> tuple[Cond, Sequence[Any]]:
    """All branches take the constants of all."""
    if not any(branch.consts for branch in op.branches):
        return op, operands
    index, *rest = operands
    parts = [opened(branch) for branch in op.branches]
    values = [value for _, taken in parts for value in taken]
    types = [x.aval.type for x in (*values, *map(current().lift, rest))]
    branches = []
    start = 0
    for graph, taken in parts:
        own = slice(start, start + len(taken))
        branches.append(_among(graph, own, types, len(values)))
        start = own.stop
    return Cond(tuple(branches)), [index, *values, *rest]


def _among(graph: Graph, own: slice, types: Sequence[Any], consts: int) -> Graph:
    """A branch of which only some of the first inputs are its own."""
    return stage_closed(
        lambda *xs: replay(graph, [*xs[own], *xs[consts:]]), types, "a branch"
    )
