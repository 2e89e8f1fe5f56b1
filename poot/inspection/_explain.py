"""`poot.explain`: all that is known of how a function will run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from poot.core.graph import Graph
from poot.core.ops.host import HostCall, holds
from poot.core.types import Named, SlotKey, Storage, ValueMeta
from poot.interpreters.flat import require_callable
from poot.interpreters.jit import BoundJitFunction, JitFunction, jit
from poot.interpreters.staged import Compiled
from poot.lowering.plan.frame import tables_of
from poot.lowering.program import Program

# Constants that are listed one by one.
_MOST_CONSTANTS = 8


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """What `poot.explain` has found and printed."""

    compiled: Compiled

    @property
    def text(self) -> str:
        """What was printed."""
        graph = self.compiled.graph
        lines = [f"`{self.compiled.name}`", "arguments", *_arguments(graph)]
        constants = list(_constants(graph))
        if constants:
            lines += ["constants", *constants]
        lines += ["results", *_results(self.compiled)]
        return "\n".join([*lines, self.compiled.report()])

    def __repr__(self) -> str:
        return f"<explanation of {self.compiled.name}>"


def explain(function: Callable[..., Any]) -> Callable[..., Explanation]:
    """A function that prints how `function` runs on the arguments that it is given.

    It tells where arguments and results stand, what each pass did and why it did not do
    more, and each launch: kernel, schedule, grid, bytes, flops. Nothing is run. It
    returns an Explanation, whose `text` is what was printed, and whose `compiled` has
    graph and program.

        poot.explain(f)(x, y)
    """
    jitted = jitted_form("explain", function)

    def told(*args: Any, **kwargs: Any) -> Explanation:
        found = Explanation(jitted.lower(*args, **kwargs).compile())
        print(found.text)
        return found

    return told


def jitted_form(
    where: str, function: Callable[..., Any]
) -> JitFunction | BoundJitFunction:
    """The function itself where it is jitted, with its options; else jitted.

    ArgumentError in the name of `where` for what is no function.
    """
    require_callable(where, function)
    if isinstance(function, JitFunction | BoundJitFunction):
        return function
    return jit(function)


def _arguments(graph: Graph) -> Iterator[str]:
    for number, value in enumerate(graph.arguments):
        meta = graph.values[value]
        yield f"  {number}: {described(meta)}{meta.type}{_storage(meta)}"


def _storage(meta: ValueMeta) -> str:
    if meta.storage is Storage.STATE:
        return ", donated"
    if meta.slot is None:
        return ""
    if meta.slot.low is None:
        return ", a slot"
    return f", a slot: {meta.slot.kind} {meta.slot.low}..{meta.slot.high}"


def described(meta: ValueMeta) -> str:
    """How the user writes an argument, and a space; nothing for other values."""
    identity = meta.identity
    return f"{identity.name} " if isinstance(identity, Named | SlotKey) else ""


def _constants(graph: Graph) -> Iterator[str]:
    types = [graph.type(value) for value in (*graph.consts, *tables_of(graph))]
    if not types:
        return
    for number, type in enumerate(types[:_MOST_CONSTANTS]):
        computed = "" if number < len(graph.consts) else ", computed"
        yield f"  {number}: {type}{computed}"
    if len(types) > _MOST_CONSTANTS:
        yield f"  and {len(types) - _MOST_CONSTANTS} more"
    yield f"  {sum(type.size_bytes for type in types)} B in all"


def _results(compiled: Compiled) -> Iterator[str]:
    graph = compiled.graph
    if holds(graph, HostCall):
        for number, type in enumerate(graph.result_types):
            yield f"  {number}: {type}"
        return
    program: Program = compiled.program
    for number, spec in enumerate(program.results):
        place = ""
        if spec.const_index is not None:
            place = f", constant {spec.const_index} itself"
        elif spec.input_index in program.donated:
            place = f", in the memory of argument {spec.input_index}"
        elif spec.input_index is not None:
            place = f", argument {spec.input_index} itself"
        yield f"  {number}: {spec.type}{place}"
