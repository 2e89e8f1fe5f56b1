"""Evaluates a graph with NumPy, equation by equation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from poot.core import dtypes
from poot.core.dtypes import Scalar
from poot.core.equation import Eqn, Operand, ValueId
from poot.core.errors import CheckError, ConstPayloadError, ShapeError
from poot.core.graph import Graph
from poot.core.oracle.table import Arithmetic, Array, impl
from poot.core.types import Storage, TensorType

# Sees each equation with its number, its operands and its results.
Observer = Callable[[int, Eqn, Sequence[Array], Sequence[Array]], None]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """All that a graph gives: results, exports and the next value of each state.

    If a check failed, `failure` says so, and they are worth nothing.
    """

    results: tuple[Array, ...]
    exports: dict[str, Array]
    # One a state pair, in the order of `graph.state`.
    state: tuple[Array, ...]
    failure: CheckError | None = None


def evaluate(graph: Graph, *args: Any, flush: bool = False) -> tuple[Array, ...]:
    """The results of `graph` on `args`, given in the order of `graph.arguments`.

    `flush` makes f32 arithmetic treat subnormals as zeros, as some devices do.
    """
    return evaluate_all(graph, *args, flush=flush).results


def evaluate_all(
    graph: Graph, *args: Any, flush: bool = False, observe: Observer | None = None
) -> Evaluation:
    """The results, exports and next states of `graph`; CheckError if a check fails."""
    found = evaluate_unchecked(graph, *args, flush=flush, observe=observe)
    if found.failure is not None:
        raise found.failure
    return found


def evaluate_unchecked(
    graph: Graph, *args: Any, flush: bool = False, observe: Observer | None = None
) -> Evaluation:
    """As `evaluate_all`, but the Evaluation holds what a failed check has to say."""
    inputs = input_arrays(graph, args)
    kept = [output.value for output in graph.outputs]
    with np.errstate(all="ignore"):
        values = run(graph, inputs, kept, Arithmetic(flush), observe)
    words = ((witness, int(values[witness.value])) for witness in graph.witnesses)
    failures = (CheckError.of(w.message, w.source, word) for w, word in words if word)
    # Copies, since shape primitives give views of their operands.
    return Evaluation(
        tuple(np.array(values[v], order="C") for v in graph.results),
        {name: np.array(values[v], order="C") for name, v in graph.exports.items()},
        tuple(np.array(values[pair.value], order="C") for pair in graph.state),
        next(failures, None),
    )


def run(
    graph: Graph,
    inputs: Sequence[Array],
    kept: Sequence[ValueId],
    arithmetic: Arithmetic,
    observe: Observer | None = None,
) -> dict[ValueId, Array]:
    """The values `kept`, given all inputs; the others are dropped after their use."""
    values = dict(zip(graph.inputs, inputs, strict=True))
    last_use = {v: indices[-1] for v, indices in graph.uses().items()}
    for value in kept:
        last_use[value] = len(graph.eqns)

    def read(operand: Operand) -> Array:
        return operand.array if isinstance(operand, Scalar) else values[operand]

    for index, eqn in enumerate(graph.eqns):
        operands = [read(operand) for operand in eqn.inputs]
        results = _apply(eqn, operands, arithmetic)
        if observe is not None:
            observe(index, eqn, operands, results)
        for out, result in zip(eqn.outs, results, strict=True):
            _require_type(graph, eqn, out, result)
            values[out] = result
        for operand in (*eqn.inputs, *eqn.outs):
            if not isinstance(operand, Scalar) and last_use.get(operand, -1) <= index:
                values.pop(operand, None)
    return values


def _apply(
    eqn: Eqn, operands: list[Array], arithmetic: Arithmetic
) -> tuple[Array, ...]:
    results = impl[eqn.op.key](eqn.op, arithmetic, *operands)
    return results if eqn.op.multiple_results else (results,)


def _type_of(array: Array) -> TensorType:
    return TensorType(array.shape, dtypes.as_dtype(array.dtype))


def _require_type(graph: Graph, eqn: Eqn, out: ValueId, result: Array) -> None:
    """A rule that gives another type than `infer` is a fault of the rule."""
    if _type_of(result) != graph.type(out):
        raise AssertionError(
            f"the oracle's rule of {eqn.op} gave {_type_of(result)}, infer says "
            f"{graph.type(out)}"
        )


def input_arrays(graph: Graph, args: Sequence[Any]) -> list[Array]:
    """All inputs of `graph`, its constants among them, as arrays of their types."""
    if len(args) != len(graph.arguments):
        raise ShapeError(
            f"evaluate: {len(args)} arguments given, the graph takes "
            f"{len(graph.arguments)} (its inputs without the constants)"
        )
    remaining = iter(enumerate(args))
    inputs = []
    for value in graph.inputs:
        wanted = graph.type(value)
        if graph.values[value].storage is Storage.CONST:
            inputs.append(_payload(graph, value))
        else:
            number, arg = next(remaining)
            inputs.append(_argument(number, arg, wanted))
    return inputs


def _payload(graph: Graph, value: ValueId) -> Array:
    if value not in graph.payloads:
        raise ConstPayloadError(
            f"constant %{value} ({graph.type(value)}) has no data; give the payloads "
            "when the graph is made (`Graph.parse(text, consts=...)`)"
        )
    return np.asarray(graph.payloads[value])


def _argument(number: int, arg: Any, wanted: TensorType) -> Array:
    if isinstance(arg, bool | int | float) and not wanted.shape:
        return Scalar.of(arg, wanted.dtype).array
    array = np.asarray(arg)
    if _type_of(array) != wanted:
        raise ShapeError(
            f"evaluate: argument {number} is {_type_of(array)}, takes {wanted}"
        )
    return array
