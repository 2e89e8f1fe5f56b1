"""From a function and the signature of a call to a graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from poot.core.equation import ValueId
from poot.core.errors import ArgumentError
from poot.core.graph import Graph
from poot.core.interpreter import interpreting
from poot.core.source import user_source
from poot.core.types import Named, SlotKey, Storage
from poot.interpreters.aval import Aval
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
    # The leaves that are donated, whether or not a result can take their memory.
    donated: tuple[int, ...]


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
    donated = _donate(staging, inputs, values, parameters.donated_leaves(signature))
    return Trace(
        name,
        signature,
        paths,
        staging.builder.finish(),
        result_tree,
        tuple(result.aval for result in results),
        donated,
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
    wanted: frozenset[int],
) -> tuple[int, ...]:
    """Give each donated array's memory to the first computed result of its type."""
    builder = staging.builder
    taken = {staging.value_id(tracer) for tracer in inputs} | staging.constants
    free = [value for value in dict.fromkeys(results) if value not in taken]
    donated, unused = [], []
    for number in sorted(wanted):
        value = staging.value_id(inputs[number])
        if builder.storage(value) is Storage.SLOT:
            continue
        takers = [v for v in free if builder.type(v) == builder.type(value)]
        if value not in results and not takers:
            # As in JAX it stays the caller's.
            unused.append(f"{staging.origin(value)} ({builder.type(value)})")
            continue
        taker = value if value in results else takers[0]
        if taker is not value:
            free.remove(taker)
        builder.donate(value, taker)
        donated.append(number)
    if unused:
        _warn_unused(staging.function_name, unused)
    return tuple(donated)


def _warn_unused(name: str, unused: list[str]) -> None:
    source = user_source()
    warnings.warn_explicit(
        f"`{name}`: no result has the type of {', '.join(unused)}, so that it is not "
        "donated: the array stays as it is",
        UserWarning,
        source.file,
        source.line,
    )
