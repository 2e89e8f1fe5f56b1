"""What the functions of control flow have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from poot.core.errors import ArgumentError, ConcretizationError, TypeMismatchError
from poot.core.graph import Graph
from poot.core.interpreter import current
from poot.core.ops.control import Cond, ControlOp
from poot.core.source import at_source
from poot.interpreters.aval import Aval
from poot.interpreters.flat import FlatFunction, name_of
from poot.interpreters.nested import stage_nested
from poot.interpreters.pytree import TreeDef, leaf_paths

T = TypeVar("T")

# What messages of checks in loops end with; runtimes put the number in.
ITERATION = " (first in iteration {iteration})"


@dataclass(frozen=True, slots=True)
class Body:
    """A staged function: its graph takes what it captured, then its own leaves."""

    graph: Graph
    captured: list[Any]
    avals: tuple[Aval, ...]
    tree: TreeDef


def staged(
    function: Callable[..., Any], tree: TreeDef, avals: Sequence[Aval], where: str
) -> Body:
    """Stage a function whose positional arguments form `tree`."""
    flat = FlatFunction(function, tree, where)
    nested = stage_nested(flat, avals, name_of(function))
    return Body(nested.graph, nested.captured, nested.result_avals, flat.result_tree)


def bind(op: ControlOp, operands: Sequence[Any]) -> list[Any]:
    """The results of an op without the words of checks, which are checked here."""
    found = list(op.bind(*operands))
    count = len(found) - len(op.witnesses)
    results = found[:count]
    for word, witness in zip(found[count:], op.witnesses, strict=True):
        message = witness.message
        if not isinstance(op, Cond) and "{iteration}" not in message:
            message += ITERATION
        with at_source(witness.source):
            results = current().witness(word, message, results)
    return results


def known(convert: Callable[[Any], T], value: Any) -> T | None:
    """A value as a Python one, for `disable_jit`; None while it stands for others.

    What hangs on such a value, an example's in a vmap say, is staged even so.
    """
    try:
        return convert(value)
    except ConcretizationError:
        return None


def require_same_tree(where: str, given: TreeDef, wanted: TreeDef) -> None:
    if given != wanted:
        raise ArgumentError(f"{where}: given the tree {given}, takes {wanted}")


def require_same_types(
    where: str, given: Sequence[Aval], wanted: Sequence[Aval], tree: TreeDef, name: str
) -> None:
    """TypeMismatchError naming the leaves that differ."""
    lines = [
        f"{path.codify(name)} goes in as {before.type} and comes out as {after.type}"
        for after, before, path in zip(given, wanted, leaf_paths(tree), strict=True)
        if after.type != before.type
    ]
    if lines:
        raise TypeMismatchError(f"{where}: {'; '.join(lines)}; cast or reshape them")
