"""From a function and the signature of a call to a graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from poot.core.equation import ValueId
from poot.core.errors import ArgumentError
from poot.core.graph import Graph
from poot.core.interpreter import interpreting
from poot.core.types import Named, SlotKey, Storage
from poot.interpreters.aval import Aval
from poot.interpreters.donation import Fit, Groups, fit, warn_unused
from poot.interpreters.promotion import as_value, is_operand
from poot.interpreters.pytree import (
    TreeDef,
    by_sorted_keys,
    flatten,
    leaf_paths,
    unflatten,
)
from poot.interpreters.signature import (
    LeafKind,
    Parameters,
    Signature,
    aval_in,
    put_together,
)
from poot.interpreters.slot_kinds import GuardedKind, SlotKind, guard
from poot.interpreters.stage import StagingInterpreter
from poot.interpreters.tracer import Tracer


@dataclass(frozen=True, slots=True)
class Trace:
    """What tracing a function for one signature gives."""

    name: str
    signature: Signature
    # How a user would write each leaf of the arguments.
    paths: tuple[str, ...]
    graph: Graph
    result_tree: TreeDef
    result_avals: tuple[Aval, ...]
    # The leaves that a call deletes, and those of them whose memory no result takes.
    donated: tuple[int, ...]
    released: frozenset[int]


def trace(
    function: Callable[..., Any],
    name: str,
    parameters: Parameters,
    signature: Signature,
) -> Trace:
    """Run the function once on traced values, and keep the ops that it applies."""
    staging = StagingInterpreter(name)
    paths = tuple(parameters.paths(signature))
    inputs = [
        _input(staging, kind, path)
        for kind, path in zip(signature.kinds, paths, strict=True)
    ]
    statics = [(place, value) for place, _, value in signature.statics]
    tree = unflatten(by_sorted_keys(signature.tree), inputs)
    args, kwargs = put_together(statics, signature.positional, tree)
    try:
        with interpreting(staging):
            for tracer, kind, path in zip(inputs, signature.kinds, paths, strict=True):
                if isinstance(kind, GuardedKind):
                    guard(tracer, kind, name, path)
            returned = function(*args, **kwargs)
            results, result_tree = _results(staging, returned)
    finally:
        staging.is_finished = True
    values = [staging.value_id(result) for result in results]
    for value in values:
        staging.builder.result(value)
    fitted = _donate(staging, inputs, values, parameters.donated_leaves(signature))
    graph = staging.builder.finish()
    return Trace(
        name,
        signature,
        paths,
        graph,
        result_tree,
        tuple(result.aval for result in results),
        fitted.donated,
        frozenset(
            number
            for number in fitted.donated
            if graph.values[graph.arguments[number]].storage is not Storage.STATE
        ),
    )


def _input(staging: StagingInterpreter, kind: LeafKind, path: str) -> Tracer:
    if isinstance(kind, SlotKind):
        return staging.input(kind.aval, path, Storage.SLOT, SlotKey(path), kind.slot)
    return staging.input(aval_in(kind), path, identity=Named(path))


def _results(
    staging: StagingInterpreter, returned: Any
) -> tuple[list[Tracer], TreeDef]:
    leaves, tree = flatten(returned)
    for leaf, accessor in zip(leaves, leaf_paths(tree), strict=True):
        if not is_operand(leaf):
            raise ArgumentError(
                f"`{staging.function_name}` returned a {type(leaf).__name__} as "
                f"{accessor.codify('result')}; returns arrays and numbers, and "
                "containers of them"
            )
    return [staging.lift(as_value(leaf)) for leaf in leaves], by_sorted_keys(tree)


def _donate(
    staging: StagingInterpreter,
    inputs: list[Tracer],
    results: list[ValueId],
    wanted: Groups,
) -> Fit:
    """Give each donated array's memory to the first computed result of its type."""
    builder = staging.builder
    inner = [staging.value_id(tracer) for tracer in inputs]
    read = builder.read_values.union(results)
    # Numbers have no memory; what nothing reads stays the caller's, as in JAX.
    groups = [
        group
        for group in wanted
        if all(builder.storage(inner[n]) is not Storage.SLOT for n in group)
        and any(inner[n] in read for n in group)
    ]
    leaves = [n for group in groups for n in group]
    taken = {*inner, *staging.constants}
    free = [value for value in dict.fromkeys(results) if value not in taken]
    passed_on = {n for n in leaves if inner[n] in results}
    found = fit(
        groups,
        {n: builder.type(inner[n]) for n in leaves},
        [builder.type(value) for value in free],
        passed_on,
    )
    for number in found.donated:
        value = inner[number]
        if number in passed_on:
            builder.donate(value, value)
        elif number in found.takers:
            builder.donate(value, free[found.takers[number]])
    if found.unused:
        unused = [inner[number] for number in found.unused]
        told = (f"{staging.origin(value)} ({builder.type(value)})" for value in unused)
        warn_unused(staging.function_name, told)
    return found
