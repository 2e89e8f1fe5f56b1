"""Control flow in JAX: scan, while_loop and switch over JAX's rules of the bodies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from poot.core.dtypes import Scalar
from poot.core.equation import Eqn, Operand, ValueId
from poot.core.graph import Graph
from poot.core.ops.control import Cond, ControlOp, Scan, While
from poot.testing._jax_table import Array, deviates, jax


def run_graph(
    j: Any, graph: Graph, operands: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """The results of a sub-graph, and the words of its witnesses."""
    values: dict[ValueId, Any] = dict(zip(graph.inputs, operands, strict=True))

    def read(operand: Operand) -> Any:
        if isinstance(operand, Scalar):
            return j.numpy.asarray(operand.array)
        return values[operand]

    for eqn in graph.eqns:
        made = jax[eqn.op.key](eqn.op, j, *map(read, eqn.inputs))
        outs = made if eqn.op.multiple_results else (made,)
        values.update(zip(eqn.outs, outs, strict=True))
    words = [values[witness.value] for witness in graph.witnesses]
    return [values[v] for v in graph.results], words


def _no_words(j: Any, op: ControlOp) -> list[Any]:
    return [j.numpy.int32(0) for _ in op.witnesses]


def _noted(j: Any, words: Sequence[Any], index: Any, failed: Sequence[Any]) -> Any:
    """The words of a loop after an iteration: 1 + the index where each failed first."""
    return [
        j.numpy.where((word == 0) & (now != 0), index + j.numpy.int32(1), word)
        for word, now in zip(words, failed, strict=True)
    ]


@jax.define(Scan)
def _scan(op: Scan, j: Any, *operands: Any) -> tuple[Any, ...]:
    fixed = op.consts + op.carries
    consts, xs = operands[: op.consts], operands[fixed:]

    def step(state: Any, elements: Any) -> Any:
        (carries, words), (index, slices) = state, elements
        made, failed = run_graph(j, op.body, [*consts, *carries, *slices])
        words = _noted(j, words, index, failed)
        return (made[: op.carries], words), made[op.carries :]

    indices = j.numpy.arange(op.length, dtype=j.numpy.int32)
    state = (list(operands[op.consts : fixed]), _no_words(j, op))
    (carries, words), ys = j.lax.scan(
        step, state, (indices, list(xs)), op.length, op.reverse
    )
    return (*carries, *ys, *words)


@jax.define(While)
def _while(op: While, j: Any, *operands: Any) -> tuple[Any, ...]:
    """The condition is run after the body, so that its witnesses are seen."""
    first, fixed = op.condition_consts, op.condition_consts + op.body_consts
    condition_consts, body_consts = operands[:first], operands[first:fixed]
    split = len(op.condition.witnesses)

    def asked(iteration: Any, carries: Any, words: Any) -> Any:
        (holds,), failed = run_graph(j, op.condition, [*condition_consts, *carries])
        words = _noted(j, words[:split], iteration, failed) + words[split:]
        return holds, iteration, carries, words

    def step(state: Any) -> Any:
        _, iteration, carries, words = state
        made, failed = run_graph(j, op.body, [*body_consts, *carries])
        words = words[:split] + _noted(j, words[split:], iteration, failed)
        return asked(iteration + j.numpy.int32(1), made, words)

    start = asked(j.numpy.int32(0), list(operands[fixed:]), _no_words(j, op))
    _, _, carries, words = j.lax.while_loop(lambda state: state[0], step, start)
    return (*carries, *words)


@jax.define(Cond)
def _cond(op: Cond, j: Any, index: Any, *operands: Any) -> tuple[Any, ...]:
    def branch(number: int) -> Any:
        first = sum(len(other.witnesses) for other in op.branches[:number])

        def run(*operands: Any) -> tuple[Any, ...]:
            made, mine = run_graph(j, op.branches[number], operands)
            words = _no_words(j, op)
            words[first : first + len(mine)] = mine
            return (*made, *words)

        return run

    branches = [branch(number) for number in range(len(op.branches))]
    return tuple(j.lax.switch(index, branches, *operands))


@deviates.define(Scan, While, Cond)
def _deviates_inside(op: ControlOp, *operands: Array) -> str | None:
    """The operands of equations inside are not to be seen here."""
    for graph, eqn in _inside(op):
        dtypes = [graph.type(operand).dtype for operand in eqn.inputs]
        if eqn.op.key in deviates and dtypes[-1].is_integer:
            return (
                f"holds {eqn.op} of {dtypes[-1]}, which means something else in JAX at "
                "some operands"
            )
    return None


def _inside(op: ControlOp) -> Iterator[tuple[Graph, Eqn]]:
    for region in op.regions:
        for eqn in region.eqns:
            if isinstance(eqn.op, ControlOp):
                yield from _inside(eqn.op)
            else:
                yield region, eqn
