"""Forward-mode rules of control flow: derivatives run in the same loop or branch."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from poot.core.graph import Graph
from poot.core.ops.control import Cond, Scan, While
from poot.interpreters.closing import bind_closed
from poot.interpreters.graphs import Flags, chosen, jvp_graph, reordered, widened
from poot.interpreters.jvp.table import Tangent, instantiated, jvp

Results = tuple[tuple[Any, ...], tuple[Tangent, ...]]


def _given(tangents: Sequence[Tangent]) -> Flags:
    return tuple(tangent is not None for tangent in tangents)


def _either(a: Flags, b: Flags) -> Flags:
    return tuple(x or y for x, y in zip(a, b, strict=True))


@functools.lru_cache(1024)
def _derived_body(
    body: Graph, moved: Flags, first: int, carries: int
) -> tuple[Graph, Flags, Flags]:
    """The derivative of a body whose carries begin at input `first`.

    A carry moves too if its next value does. Returns the graph, which inputs move, and
    which results.
    """
    others = len(body.results) - carries
    while True:
        moving = moved[first : first + carries]
        graph, given = jvp_graph(body, moved, (*moving, *[False] * others))
        if given[:carries] == moving:
            return graph, moved, given
        moved = (*moved[:first], *given[:carries], *moved[first + carries :])


def _together(parts: Sequence[int], moved: Flags) -> list[int]:
    """Numbers of values, then of their tangents, part by part.

    `parts` are the sizes of consecutive parts; tangents, of what is moved, are numbered
    after all values.
    """
    tangents = iter(range(len(moved), len(moved) + sum(moved)))
    order: list[int] = []
    start = 0
    for size in parts:
        part = range(start, start + size)
        order += [*part, *(next(tangents) for i in part if moved[i])]
        start += size
    return order


@jvp.define(Scan)
def _scan(op: Scan, primals: Sequence[Any], tangents: Sequence[Tangent]) -> Results:
    graph, moved, given = _derived_body(
        op.body, _given(tangents), op.consts, op.carries
    )
    fixed = op.consts + op.carries
    parts = (op.consts, op.carries, len(moved) - fixed)
    made = (op.carries, len(given) - op.carries)
    inputs, results = _together(parts, moved), _together(made, given)
    both = Scan(
        reordered(graph, inputs, results),
        op.length,
        op.consts + sum(moved[: op.consts]),
        op.carries + sum(moved[op.consts : fixed]),
        op.reverse,
    )
    values = [*primals, *_tangents_of(primals, tangents, moved)]
    found = bind_closed(both, *(values[number] for number in inputs))
    return _apart(found, results, given, len(op.witnesses))


def _tangents_of(
    primals: Sequence[Any], tangents: Sequence[Tangent], moved: Flags
) -> list[Any]:
    pairs = zip(tangents, primals, moved, strict=True)
    return [instantiated(t, x) for t, x, is_moved in pairs if is_moved]


def _apart(
    found: Sequence[Any], order: Sequence[int], given: Flags, words: int
) -> Results:
    """Results and tangents from those that stand in `order`, with words after them."""
    by_number = dict(zip(order, found, strict=False))
    rest = iter(range(len(given), len(given) + sum(given)))
    outs = [by_number[number] for number in range(len(given))]
    moves = [by_number[next(rest)] if is_given else None for is_given in given]
    tail = found[len(order) :]
    assert len(tail) == words
    return (*outs, *tail), (*moves, *[None] * words)


@jvp.define(While)
def _while(op: While, primals: Sequence[Any], tangents: Sequence[Tangent]) -> Results:
    first, consts = op.condition_consts, op.condition_consts + op.body_consts
    carries = len(primals) - consts
    graph, moved, given = _derived_body(
        op.body, _given(tangents[first:]), op.body_consts, carries
    )
    parts = (op.body_consts, carries)
    inputs, results = _together(parts, moved), _together((carries,), given)
    moving = moved[op.body_consts :]
    types = chosen([graph.type(x) for x in op.body.inputs[op.body_consts :]], moving)
    both = While(
        widened(op.condition, types),
        reordered(graph, inputs, results),
        first,
        op.body_consts + sum(moved[: op.body_consts]),
    )
    own = primals[first:]
    values = [*own, *_tangents_of(own, tangents[first:], moved)]
    operands = (values[number] for number in inputs)
    found = bind_closed(both, *primals[:first], *operands)
    return _apart(found, results, given, len(op.witnesses))


@jvp.define(Cond)
def _cond(op: Cond, primals: Sequence[Any], tangents: Sequence[Tangent]) -> Results:
    index, *operands = primals
    moved = _given(tangents[1:])
    wanted: Flags = (False,) * len(op.branches[0].results)
    for branch in op.branches:
        wanted = _either(wanted, jvp_graph(branch, moved, wanted)[1])
    both = Cond(tuple(jvp_graph(branch, moved, wanted)[0] for branch in op.branches))
    moving = _tangents_of(operands, tangents[1:], moved)
    found = bind_closed(both, index, *operands, *moving)
    order = range(len(wanted) + sum(wanted))
    return _apart(found, order, wanted, len(op.witnesses))
