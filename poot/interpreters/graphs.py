"""Transformations of graphs as a whole, for the bodies of loops and branches.

Each stages a replay of the graph under the interpreter of the transformation.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from poot.core.extract import extract
from poot.core.graph import Graph
from poot.core.interpreter import current, interpreting
from poot.core.types import TensorType
from poot.interpreters.aval import aval_of
from poot.interpreters.batch.interpreter import (
    BatchInterpreter,
    BatchTracer,
    held_at,
)
from poot.interpreters.jvp.table import instantiated
from poot.interpreters.linearize import jvp_flat
from poot.interpreters.nested import stage_closed
from poot.interpreters.partial import PartialInterpreter
from poot.interpreters.primitives import zeros
from poot.interpreters.replay import replay
from poot.interpreters.transpose.backward import backward
from poot.interpreters.transpose.table import Linear

Flags = tuple[bool, ...]

_CACHED = 1024


def reordered(graph: Graph, inputs: Sequence[int], results: Sequence[int]) -> Graph:
    """The graph with its inputs and results, by number, in another order or fewer."""
    arguments = graph.arguments
    return extract(
        graph,
        [arguments[number] for number in inputs],
        [graph.results[number] for number in results],
    )


@functools.lru_cache(_CACHED)
def _widened(graph: Graph, types: tuple[TensorType, ...]) -> Graph:
    count = len(graph.inputs)
    return stage_closed(
        lambda *xs: replay(graph, xs[:count]), [*graph.input_types, *types], "a region"
    )


def widened(graph: Graph, types: Sequence[TensorType]) -> Graph:
    """The graph with more inputs, which it does not read, after its own."""
    return _widened(graph, tuple(types)) if types else graph


@functools.lru_cache(_CACHED)
def identity(type: TensorType) -> Graph:
    """The graph that gives its one input."""
    return stage_closed(lambda x: [x], [type], "the identity")


@functools.lru_cache(_CACHED)
def exposed(graph: Graph) -> Graph:
    """The graph without witnesses: their words are its last results."""
    words = [witness.value for witness in graph.witnesses]
    return extract(graph, graph.arguments, [*graph.results, *words], witnesses=False)


# --- jvp --------------------------------------------------------------------


@functools.lru_cache(_CACHED)
def jvp_graph(graph: Graph, moved: Flags, wanted: Flags) -> tuple[Graph, Flags]:
    """The graph with the derivative beside it, and which results have tangents.

    Inputs: those of `graph`, then the tangents of those `moved`. Results: those of
    `graph`, then their tangents, where these may be nonzero or are `wanted`.
    """
    count = len(graph.inputs)
    given: list[bool] = []

    def both(*flat: Any) -> list[Any]:
        rest = iter(flat[count:])
        tangents = [next(rest) if is_moved else None for is_moved in moved]
        outs, found, _ = jvp_flat(
            lambda *xs: replay(graph, xs), flat[:count], tangents, "a sub-graph"
        )
        given[:] = [
            t is not None or is_wanted
            for t, is_wanted in zip(found, wanted, strict=True)
        ]
        shown = [
            instantiated(t, out)
            for t, out, is_given in zip(found, outs, given, strict=True)
            if is_given
        ]
        return [*outs, *shown]

    types = graph.input_types
    tangents = [t for t, is_moved in zip(types, moved, strict=True) if is_moved]
    made = stage_closed(both, [*types, *tangents], "the derivative of a sub-graph")
    return made, tuple(given)


# --- partial evaluation -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class Split:
    """A graph cut in two.

    `known`: from the known inputs to the known results, then the residuals that it
    computes. `unknown`: from all residuals, then the unknown inputs, to the unknown
    results. `sources`: of each residual the number of the known input that it is, or
    None for those that are computed.
    """

    known: Graph
    unknown: Graph
    given: Flags
    sources: tuple[int | None, ...]

    @property
    def computed(self) -> int:
        """How many residuals the known part gives."""
        return sum(source is None for source in self.sources)


@functools.lru_cache(_CACHED)
def split_graph(graph: Graph, unknown: Flags, wanted: Flags, held: Flags) -> Split:
    """Cut a graph into what is known without its `unknown` inputs and the rest.

    Results that depend on these, or are `wanted` unknown, are `given` by the rest.
    Known inputs that are `held` stay there for the rest; it needs no residual for them.
    """
    stays = [h for h, is_unknown in zip(held, unknown, strict=True) if not is_unknown]
    found: dict[str, Any] = {}

    def known_part(*known: Any) -> list[Any]:
        partial = PartialInterpreter(current(), "a sub-graph")
        values = iter(known)
        inputs = [
            partial.unknown(aval_of(type)) if is_unknown else next(values)
            for type, is_unknown in zip(graph.input_types, unknown, strict=True)
        ]
        with interpreting(partial):
            outs = replay(graph, inputs)
        given = [
            partial.is_unknown(out) or is_wanted
            for out, is_wanted in zip(outs, wanted, strict=True)
        ]
        rest = partial.finish([out for out, g in zip(outs, given, strict=True) if g])
        places = {id(x): number for number, x in enumerate(known) if stays[number]}
        sources = [places.get(id(residual)) for residual in rest.residuals]
        found.update(graph=rest.graph, given=tuple(given), sources=tuple(sources))
        computed = [
            residual
            for residual, source in zip(rest.residuals, sources, strict=True)
            if source is None
        ]
        return [*(o for o, g in zip(outs, given, strict=True) if not g), *computed]

    types = [t for t, u in zip(graph.input_types, unknown, strict=True) if not u]
    known = stage_closed(known_part, types, "the known part of a sub-graph")
    return Split(known, found["graph"], found["given"], found["sources"])


# --- transposition ----------------------------------------------------------


@functools.lru_cache(_CACHED)
def transposed_graph(
    graph: Graph, linear: Flags, moved: Flags, wanted: Flags
) -> tuple[Graph, Flags]:
    """The transpose of a graph in its `linear` inputs, and which have cotangents.

    Inputs: the other inputs, then the cotangents of the results `moved`. Results: the
    cotangents of linear inputs, where these may be nonzero or are `wanted`.
    """
    given: list[bool] = []
    fixed = [
        t
        for t, is_linear in zip(graph.input_types, linear, strict=True)
        if not is_linear
    ]

    def pulled(*flat: Any) -> list[Any]:
        values, rest = iter(flat[: len(fixed)]), iter(flat[len(fixed) :])
        inputs = [
            Linear(type) if is_linear else next(values)
            for type, is_linear in zip(graph.input_types, linear, strict=True)
        ]
        cotangents = [next(rest) if is_moved else None for is_moved in moved]
        found = backward(graph, inputs, cotangents)
        given[:] = [
            is_linear and (ct is not None or is_wanted)
            for ct, is_linear, is_wanted in zip(found, linear, wanted, strict=True)
        ]
        return [
            zeros(type) if ct is None else ct
            for ct, type, is_given in zip(found, graph.input_types, given, strict=True)
            if is_given
        ]

    moving = [
        t for t, is_moved in zip(graph.result_types, moved, strict=True) if is_moved
    ]
    made = stage_closed(pulled, [*fixed, *moving], "the transpose of a sub-graph")
    return made, tuple(given)


# --- batching ---------------------------------------------------------------


@functools.lru_cache(_CACHED)
def batched_graph(
    graph: Graph, size: int, batched: Flags, wanted: Flags, name: str | None
) -> tuple[Graph, Flags]:
    """The graph over a batch, and which results have one; it stands in front."""
    given: list[bool] = []

    def over_batch(*flat: Any) -> list[Any]:
        below = current()
        inner = BatchInterpreter(below, "a sub-graph", size, name)
        inputs = [
            BatchTracer(inner, x, 0 if is_batched else None)
            for x, is_batched in zip(flat, batched, strict=True)
        ]
        with inner.running():
            outs = [inner.lift(out) for out in replay(graph, inputs)]
        given[:] = [
            out.axis is not None or is_wanted
            for out, is_wanted in zip(outs, wanted, strict=True)
        ]
        return [
            held_at(out, 0) if is_given else out.held
            for out, is_given in zip(outs, given, strict=True)
        ]

    types = [
        TensorType((size, *t.shape), t.dtype) if is_batched else t
        for t, is_batched in zip(graph.input_types, batched, strict=True)
    ]
    made = stage_closed(over_batch, types, "a sub-graph over a batch")
    return made, tuple(given)


def chosen(values: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
    """The values whose flag is set."""
    return [value for value, flag in zip(values, flags, strict=True) if flag]


def merged(
    flags: Sequence[bool], where: Sequence[Any], other: Sequence[Any]
) -> list[Any]:
    """One value a flag: from `where` in order if it is set, else from `other`."""
    first, second = iter(where), iter(other)
    return [next(first) if flag else next(second) for flag in flags]
