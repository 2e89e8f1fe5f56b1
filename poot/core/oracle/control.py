"""Control flow: sub-graphs run as often as their op says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from poot.core.graph import Graph
from poot.core.ops.control import Cond, Scan, While
from poot.core.oracle.evaluate import run
from poot.core.oracle.table import Arithmetic, Array, impl


def _run(
    graph: Graph, operands: Sequence[Array], arithmetic: Arithmetic
) -> tuple[list[Array], list[Array]]:
    """The results and the words of the witnesses."""
    kept = [output.value for output in graph.outputs]
    values = run(graph, operands, kept, arithmetic)
    words = [values[witness.value] for witness in graph.witnesses]
    return [values[v] for v in graph.results], words


class _Words:
    """The words of witnesses in a loop: 1 + the index where each failed first."""

    def __init__(self, count: int) -> None:
        self.words = [0] * count

    def note(self, index: int, words: Sequence[Array], first: int = 0) -> None:
        for number, word in enumerate(words, first):
            if word and not self.words[number]:
                self.words[number] = index + 1

    def results(self) -> list[Array]:
        return [np.asarray(word, np.int32) for word in self.words]


@impl.define(Scan)
def _scan(op: Scan, arithmetic: Arithmetic, *operands: Array) -> tuple[Array, ...]:
    fixed = op.consts + op.carries
    consts, xs = operands[: op.consts], operands[fixed:]
    carries = list(operands[op.consts : fixed])
    ys = [
        np.zeros((op.length, *type.shape), type.dtype.numpy)
        for type in op.body.result_types[op.carries :]
    ]
    failed = _Words(len(op.witnesses))
    indices = range(op.length)
    for i in reversed(indices) if op.reverse else indices:
        elements = [x[i, ...] for x in xs]
        made, words = _run(op.body, [*consts, *carries, *elements], arithmetic)
        carries = made[: op.carries]
        for stacked, y in zip(ys, made[op.carries :], strict=True):
            stacked[i] = y
        failed.note(i, words)
    return (*carries, *ys, *failed.results())


@impl.define(While)
def _while(op: While, arithmetic: Arithmetic, *operands: Array) -> tuple[Array, ...]:
    first, fixed = op.condition_consts, op.condition_consts + op.body_consts
    condition_consts, body_consts = operands[:first], operands[first:fixed]
    carries = list(operands[fixed:])
    failed = _Words(len(op.witnesses))
    iteration = 0
    while True:
        (holds,), words = _run(op.condition, [*condition_consts, *carries], arithmetic)
        failed.note(iteration, words)
        if not holds:
            return (*carries, *failed.results())
        carries, words = _run(op.body, [*body_consts, *carries], arithmetic)
        failed.note(iteration, words, len(op.condition.witnesses))
        iteration += 1


@impl.define(Cond)
def _cond(
    op: Cond, arithmetic: Arithmetic, index: Array, *operands: Array
) -> tuple[Array, ...]:
    chosen = min(max(int(index), 0), len(op.branches) - 1)
    made, mine = _run(op.branches[chosen], operands, arithmetic)
    words = [np.zeros((), np.int32) for _ in op.witnesses]
    first = sum(len(branch.witnesses) for branch in op.branches[:chosen])
    words[first : first + len(mine)] = mine
    return (*made, *words)
