"""Loops and choices without the results that nobody reads, and what only these need."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from poot.core.builder import Builder
from poot.core.dtypes import Scalar
from poot.core.equation import ValueId
from poot.core.graph import Graph
from poot.core.ops.control import ControlOp
from poot.core.ops.loops import CountedLoop, FlagLoop, StateLoop, Switch


@dataclass(frozen=True, slots=True)
class Trimmed:
    """An op with fewer parts: which of the operands and of the results it keeps."""

    op: ControlOp
    operands: tuple[int, ...]
    outs: tuple[int, ...]


def trimmed(op: ControlOp, used: Collection[int]) -> Trimmed | None:
    """The op for the results whose numbers are `used`; None if it needs all it has.

    At least one result is not.
    """
    kept = frozenset(used)
    if isinstance(op, StateLoop):
        return _trimmed_loop(op, kept)
    return _trimmed_switch(op, kept) if isinstance(op, Switch) else None


def _trimmed_loop(op: StateLoop, used: Collection[int]) -> Trimmed | None:
    body, states = op.body, op.states
    results = [n for n in range(len(body.results)) if n + len(states) in used]
    wanted = [state for n, state in enumerate(states) if n in used]
    if isinstance(op, FlagLoop):
        wanted.append(states[0])
    needed = _needed(
        body,
        [*(op.next_values[s] for s in wanted), *(body.results[n] for n in results)],
        op.next_values,
    ).union(wanted)
    if isinstance(op, CountedLoop):
        # The loop gives the index whether anybody reads it or not.
        needed.add(body.inputs[0])
    inputs = [v for v in body.inputs if v in needed]
    if len(inputs) == len(body.inputs) and len(results) == len(body.results):
        return None
    builder = Builder(composites=True)
    known = _rebuilt(builder, body, inputs, needed)
    for state in states:
        if state in needed:
            builder.state_next(known[state], known[op.next_values[state]])
    for number in results:
        builder.result(known[body.results[number]])
    made = replace(op, body=builder.finish())
    if isinstance(made, CountedLoop) and isinstance(op, CountedLoop):
        rows = body.inputs[len(body.inputs) - op.rows :]
        fresh = states[op.started :]
        made = replace(
            made,
            rows=len(needed.intersection(rows)),
            fresh=len(needed.intersection(fresh)),
        )
    kept_states = [n for n, state in enumerate(states) if state in needed]
    return Trimmed(
        made,
        tuple(n for n, value in enumerate(_given(op)) if value in needed),
        (*kept_states, *(n + len(states) for n in results)),
    )


def _given(op: StateLoop) -> list[ValueId]:
    """The inputs of the body that the operands are for, in order."""
    fresh = op.states[op.started :]
    index = 1 if isinstance(op, CountedLoop) else 0
    return [value for value in op.body.inputs[index:] if value not in fresh]


def _trimmed_switch(op: Switch, used: Collection[int]) -> Trimmed:
    kept = sorted(used)
    needed = [_needed(b, [b.results[n] for n in kept], {}) for b in op.branches]
    count = len(op.branches[0].inputs)
    read = [
        number
        for number in range(count)
        if any(b.inputs[number] in n for b, n in zip(op.branches, needed, strict=True))
    ]
    branches = []
    for branch, values in zip(op.branches, needed, strict=True):
        builder = Builder(composites=True)
        inputs = [branch.inputs[number] for number in read]
        known = _rebuilt(builder, branch, inputs, values)
        for number in kept:
            builder.result(known[branch.results[number]])
        branches.append(builder.finish())
    operands = (0, *(1 + number for number in read))
    return Trimmed(Switch(tuple(branches)), operands, tuple(kept))


def _needed(
    body: Graph, roots: Iterable[ValueId], next_values: dict[ValueId, ValueId]
) -> set[ValueId]:
    """All values that roots are computed from, in earlier iterations too."""
    definitions = body.definitions()
    found: set[ValueId] = set()
    stack = list(roots)
    while stack:
        value = stack.pop()
        if value in found:
            continue
        found.add(value)
        if value in definitions:
            eqn = body.eqns[definitions[value]]
            stack += [o for o in eqn.inputs if not isinstance(o, Scalar)]
        elif value in next_values:
            stack.append(next_values[value])
    return found


def _rebuilt(
    builder: Builder,
    body: Graph,
    inputs: Iterable[ValueId],
    needed: Collection[ValueId],
) -> dict[ValueId, ValueId]:
    """Add the needed equations of a body to a builder; what each value is there."""
    known = {
        value: builder.input(body.type(value), body.values[value].storage)
        for value in inputs
    }
    for index, eqn in enumerate(body.eqns):
        if any(out in needed for out in eqn.outs):
            operands = (o if isinstance(o, Scalar) else known[o] for o in eqn.inputs)
            outs = builder.emit(eqn.op, tuple(operands), body.source(index))
            known.update(zip(eqn.outs, outs, strict=True))
    return known
