"""Partial evaluation of control flow: a known loop or branch, and an unknown one.

The known one saves, for the other, what that needs of each iteration: its residuals.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from poot.core.errors import PootError
from poot.core.graph import Graph
from poot.core.ops.control import Cond, ControlOp, Scan, While
from poot.core.source import at_source
from poot.core.types import TensorType
from poot.interpreters.graphs import Flags, Split, chosen, reordered, split_graph
from poot.interpreters.nested import stage_closed
from poot.interpreters.partial import PartialInterpreter, partial
from poot.interpreters.primitives import zeros
from poot.interpreters.replay import replay


def _flags(interpreter: PartialInterpreter, operands: Sequence[Any]) -> Flags:
    return tuple(map(interpreter.is_unknown, operands))


def _staged(
    interpreter: PartialInterpreter, op: ControlOp, operands: Sequence[Any]
) -> list[Any]:
    """Stage an op that is unknown as a whole; failed checks in it report there."""
    results = list(interpreter.staging.process(op, tuple(operands)))
    count = len(results) - len(op.witnesses)
    for word, witness in zip(results[count:], op.witnesses, strict=True):
        with at_source(witness.source):
            interpreter.staging.witness(word, witness.message, ())
    return results[:count]


def _results(
    op: ControlOp,
    given: Flags,
    known: Sequence[Any],
    unknown: Sequence[Any],
    words: Any,
) -> tuple[Any, ...]:
    """The results of the op from those of its two halves, then its words."""
    if len(words) != len(op.witnesses):
        raise PootError(
            f"{op.name}: a check in it depends on tangents; check the values instead"
        )
    first, second = iter(known), iter(unknown)
    own = [next(second) if is_unknown else next(first) for is_unknown in given]
    return (*own, *words)


@functools.lru_cache(1024)
def _settled(
    body: Graph, unknown: Flags, held: Flags, first: int, carries: int
) -> tuple[Split, Flags]:
    """The split of a body: a carry is unknown if its next value is, and back."""
    others = len(body.results) - carries
    while True:
        moving = unknown[first : first + carries]
        split = split_graph(body, unknown, (*moving, *[False] * others), held)
        if split.given[:carries] == moving:
            return split, unknown
        after = unknown[first + carries :]
        unknown = (*unknown[:first], *split.given[:carries], *after)


@partial.define(Scan)
def _scan(
    interpreter: PartialInterpreter, op: Scan, operands: Sequence[Any]
) -> tuple[Any, ...]:
    fixed = op.consts + op.carries
    # Every iteration has the consts and its xs; carries are gone by then.
    held = tuple(not op.consts <= n < fixed for n in range(len(operands)))
    flags = _flags(interpreter, operands)
    split, unknown = _settled(op.body, flags, held, op.consts, op.carries)
    known = [n for n, is_unknown in enumerate(unknown) if not is_unknown]
    consts = sum(n < op.consts for n in known)
    carries = sum(op.consts <= n < fixed for n in known)
    known_op = Scan(split.known, op.length, consts, carries, op.reverse)
    found = interpreter.parent.process(known_op, tuple(operands[n] for n in known))
    made = len(split.known.results)
    plain = made - split.computed
    residuals = _sources(split, [operands[n] for n in known], found[plain:made])
    order = _unknown_order(split, unknown, op, [n < op.consts for n in known])
    values = [*residuals, *chosen(operands, unknown)]
    places = [place for part in order for place in part]
    unknown_op = Scan(
        reordered(split.unknown, places, range(len(split.unknown.results))),
        op.length,
        len(order[0]),
        len(order[1]),
        op.reverse,
    )
    staged = _staged(interpreter, unknown_op, [values[place] for place in places])
    return _results(op, split.given, found[:plain], staged, found[made:])


def _sources(split: Split, known: Sequence[Any], computed: Sequence[Any]) -> list[Any]:
    """The residuals: known inputs, or what the known part computed."""
    rest = iter(computed)
    return [next(rest) if s is None else known[s] for s in split.sources]


def _unknown_order(
    split: Split, unknown: Flags, op: Scan, is_const: Sequence[bool]
) -> tuple[list[int], list[int], list[int]]:
    """Which inputs of the unknown part are consts, carries and xs of its loop."""
    count, fixed = len(split.sources), op.consts + op.carries
    fixed_residuals = [s is not None and is_const[s] for s in split.sources]
    consts = [place for place in range(count) if fixed_residuals[place]]
    xs = [place for place in range(count) if not fixed_residuals[place]]
    carries: list[int] = []
    own = [n for n, is_unknown in enumerate(unknown) if is_unknown]
    for place, number in enumerate(own, count):
        part = consts if number < op.consts else carries if number < fixed else xs
        part.append(place)
    return consts, carries, xs


@partial.define(While)
def _while(
    interpreter: PartialInterpreter, op: While, operands: Sequence[Any]
) -> tuple[Any, ...]:
    first, consts = op.condition_consts, op.condition_consts + op.body_consts
    carries = len(operands) - consts
    flags = _flags(interpreter, operands)
    held = (True,) * (op.body_consts + carries)
    split, unknown = _settled(op.body, flags[first:], held, op.body_consts, carries)
    moving = unknown[op.body_consts :]
    asks = (*flags[:first], *moving)
    asked = split_graph(op.condition, asks, (False,), (True,) * len(asks))
    staged = _staged(interpreter, op, operands)
    if asked.given[0]:
        # How often it runs is unknown, so that all is.
        words = [zeros(t) for t in _word_types(op, operands)]
        return _results(op, (True,) * carries, (), staged, words)
    kept = [n for n, is_unknown in enumerate(unknown) if not is_unknown]
    kept_consts = sum(n < op.body_consts for n in kept)
    conditions = [
        *range(first),
        *(first + n - op.body_consts for n in kept[kept_consts:]),
    ]
    known_op = While(
        reordered(op.condition, conditions, [0]),
        reordered(split.known, range(len(kept)), range(len(kept) - kept_consts)),
        first,
        kept_consts,
    )
    given = [*operands[:first], *(operands[first + n] for n in kept)]
    found = interpreter.parent.process(known_op, tuple(given))
    count = len(kept) - kept_consts
    wanted = chosen(staged, moving)
    return _results(op, moving, found[:count], wanted, found[count:])


def _word_types(op: ControlOp, operands: Sequence[Any]) -> list[TensorType]:
    types = op.infer_all(*(x.aval.type for x in operands))
    return list(types[len(types) - len(op.witnesses) :])


@partial.define(Cond)
def _cond(
    interpreter: PartialInterpreter, op: Cond, operands: Sequence[Any]
) -> tuple[Any, ...]:
    index, *rest = operands
    if interpreter.is_unknown(index):
        staged = _staged(interpreter, op, operands)
        words = [zeros(t) for t in _word_types(op, operands)]
        return _results(op, (True,) * len(staged), (), staged, words)
    unknown = _flags(interpreter, rest)
    splits, given = _split_branches(op, unknown)
    types, places = _shared_slots(splits)
    known = [x for x, is_unknown in zip(rest, unknown, strict=True) if not is_unknown]
    known_op = Cond(
        tuple(_known_branch(s, types, p) for s, p in zip(splits, places, strict=True))
    )
    found = interpreter.parent.process(known_op, (index, *known))
    plain = len(given) - sum(given)
    saved = found[plain : plain + len(types)]
    unknown_op = Cond(
        tuple(_unknown_branch(s, types, p) for s, p in zip(splits, places, strict=True))
    )
    values = (index, *saved, *known, *chosen(rest, unknown))
    staged = _staged(interpreter, unknown_op, values)
    return _results(op, given, found[:plain], staged, found[plain + len(types) :])


def _split_branches(op: Cond, unknown: Flags) -> tuple[list[Split], Flags]:
    """All branches cut; what one of them leaves unknown is so in all."""
    held = (True,) * len(unknown)
    wanted: Flags = (False,) * len(op.branches[0].results)
    for branch in op.branches:
        wanted = split_graph(branch, unknown, wanted, held).given
    return [split_graph(b, unknown, wanted, held) for b in op.branches], wanted


def _shared_slots(
    splits: Sequence[Split],
) -> tuple[tuple[TensorType, ...], list[tuple[int, ...]]]:
    """Types of slots that hold the residuals of any branch, and where each has its own.

    Branches use the same slots: only one of them runs.
    """
    types: list[TensorType] = []
    places = []
    for split in splits:
        results = split.known.result_types
        free = list(range(len(types)))
        own = []
        for type in results[len(results) - split.computed :]:
            slot = next((n for n in free if types[n] == type), None)
            if slot is None:
                slot = len(types)
                types.append(type)
            else:
                free.remove(slot)
            own.append(slot)
        places.append(tuple(own))
    return tuple(types), places


@functools.lru_cache(1024)
def _known_branch(
    split: Split, types: tuple[TensorType, ...], places: tuple[int, ...]
) -> Graph:
    """The known part, its residuals in their slots and zeros in the others."""
    plain = len(split.known.results) - split.computed

    def branch(*known: Any) -> list[Any]:
        found = replay(split.known, known)
        slots = dict(zip(places, found[plain:], strict=True))
        filled = [
            slots[n] if n in slots else zeros(type) for n, type in enumerate(types)
        ]
        return [*found[:plain], *filled]

    return stage_closed(branch, split.known.input_types, "a branch")


@functools.lru_cache(1024)
def _unknown_branch(
    split: Split, types: tuple[TensorType, ...], places: tuple[int, ...]
) -> Graph:
    """The unknown part of all slots, the known operands and the unknown ones."""
    known = split.known.input_types
    count = len(types) + len(known)
    unknown = split.unknown.input_types[len(split.sources) :]

    def branch(*values: Any) -> list[Any]:
        computed = [values[place] for place in places]
        residuals = _sources(split, values[len(types) : count], computed)
        return replay(split.unknown, [*residuals, *values[count:]])

    return stage_closed(branch, [*types, *known, *unknown], "a branch")
