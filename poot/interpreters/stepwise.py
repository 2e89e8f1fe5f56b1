"""Loops and choices run by the host, iteration by iteration."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from poot.core.extract import extract
from poot.core.graph import Graph
from poot.core.interpreter import current
from poot.core.ops.control import Cond, ControlOp, Scan, While
from poot.core.ops.shape import Concat
from poot.interpreters.primitives import reshape, type_of, zeros

# Gives the results of a graph on values; the number of the iteration is for messages.
Run = Callable[[Graph, Sequence[Any], int], Sequence[Any]]


def stepwise(op: ControlOp, operands: Sequence[Any], run: Run) -> list[Any]:
    """All results of a Scan, While or Cond, whose sub-graphs `run` runs.

    The values are those of the current interpreter, which knows their numbers.
    """
    match op:
        case Scan():
            return _scan(op, operands, run)
        case While():
            return _while(op, operands, run)
        case Cond():
            return _cond(op, operands, run)
    raise TypeError(f"{op} is there after passes only")


@functools.lru_cache(256)
def _exposed(graph: Graph) -> Graph:
    words = [witness.value for witness in graph.witnesses]
    return extract(graph, graph.inputs, [*graph.results, *words], witnesses=False)


class _Words:
    """1 + the iteration in which each check failed first; 0 if it never did."""

    def __init__(self, count: int) -> None:
        self._words = [0] * count

    def note(self, number: int, words: Sequence[Any], first: int = 0) -> None:
        for place, word in enumerate(words, first):
            if not self._words[place] and int(word):
                self._words[place] = number + 1

    def values(self) -> list[Any]:
        return [current().lift(np.asarray(word, np.int32)) for word in self._words]


def _scan(op: Scan, operands: Sequence[Any], run: Run) -> list[Any]:
    fixed = op.consts + op.carries
    consts, carries = operands[: op.consts], operands[op.consts : fixed]
    words, count = _Words(len(op.witnesses)), len(op.body.results)
    rows: list[Sequence[Any]] = []
    order = range(op.length)
    for number in reversed(order) if op.reverse else order:
        elements = [xs[number] for xs in operands[fixed:]]
        found = run(_exposed(op.body), [*consts, *carries, *elements], number)
        carries = found[: op.carries]
        rows.append(found[op.carries : count])
        words.note(number, found[count:])
    if op.reverse:
        rows.reverse()
    types = op.infer(*map(type_of, operands))[op.carries : count]
    ys = [
        Concat(0).bind(*(_row(row[place]) for row in rows)) if rows else zeros(type)
        for place, type in enumerate(types)
    ]
    return [*carries, *ys, *words.values()]


def _row(y: Any) -> Any:
    return reshape(y, (1, *type_of(y).shape))


def _while(op: While, operands: Sequence[Any], run: Run) -> list[Any]:
    first, fixed = op.condition_consts, op.condition_consts + op.body_consts
    carries, number = list(operands[fixed:]), 0
    words, asked = _Words(len(op.witnesses)), len(op.condition.witnesses)
    while True:
        condition = [*operands[:first], *carries]
        holds, *failed = run(_exposed(op.condition), condition, number)
        words.note(number, failed)
        if not bool(holds):
            return [*carries, *words.values()]
        body = [*operands[first:fixed], *carries]
        found = run(_exposed(op.body), body, number)
        carries = list(found[: len(carries)])
        words.note(number, found[len(carries) :], asked)
        number += 1


def _cond(op: Cond, operands: Sequence[Any], run: Run) -> list[Any]:
    index, *values = operands
    chosen = min(max(int(index), 0), len(op.branches) - 1)
    found = run(_exposed(op.branches[chosen]), values, 0)
    count = len(op.branches[chosen].results)
    before = sum(len(branch.witnesses) for branch in op.branches[:chosen])
    words = [current().lift(np.zeros((), np.int32)) for _ in op.witnesses]
    words[before : before + len(found) - count] = found[count:]
    return [*found[:count], *words]
