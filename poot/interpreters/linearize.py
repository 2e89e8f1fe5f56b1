"""Derivatives at a point, over flat lists of values of the current interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from poot.core.graph import Graph
from poot.core.interpreter import current
from poot.interpreters.aval import aval_of
from poot.interpreters.jvp.interpreter import (
    JvpInterpreter,
    JvpTracer,
    is_differentiable,
)
from poot.interpreters.jvp.table import Tangent
from poot.interpreters.partial import PartialInterpreter
from poot.interpreters.primitives import type_of
from poot.interpreters.replay import replay
from poot.interpreters.transpose.backward import backward
from poot.interpreters.transpose.table import Cotangent, Linear

Function = Callable[..., Sequence[Any]]
# Turns what a function left behind of its own values into those below.
Strip = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class LinearMap:
    """The derivative of a function at a point, a graph of residuals and tangents.

    `taken` says which arguments have a tangent, `given` which results have one that is
    not zero everywhere.
    """

    graph: Graph
    residuals: list[Any]
    taken: tuple[bool, ...]
    given: tuple[bool, ...]

    def push(self, tangents: Sequence[Any]) -> list[Tangent]:
        """Tangents of the results of those of the arguments that have one."""
        found = iter(replay(self.graph, [*self.residuals, *tangents]))
        return [next(found) if is_given else None for is_given in self.given]

    def pull(self, cotangents: Sequence[Cotangent]) -> list[Cotangent]:
        """Cotangents of all arguments, None where zero, of those of the results."""
        given = [ct for ct, used in zip(cotangents, self.given, strict=True) if used]
        types = self.graph.input_types[len(self.residuals) :]
        inputs = [*self.residuals, *map(Linear, types)]
        found = iter(backward(self.graph, inputs, given)[len(self.residuals) :])
        return [next(found) if is_taken else None for is_taken in self.taken]


def linearize_flat(
    function: Function, primals: Sequence[Any], name: str
) -> tuple[list[Any], LinearMap, Strip]:
    """The results at a point, and the derivative there. Nothing is computed twice."""
    partial = PartialInterpreter(current(), name)
    inner = JvpInterpreter(partial, name)
    taken = tuple(map(is_differentiable, primals))
    inputs = [
        JvpTracer(inner, primal, partial.unknown(aval_of(type_of(primal))))
        if has_tangent
        else JvpTracer(inner, primal, None)
        for primal, has_tangent in zip(primals, taken, strict=True)
    ]
    with inner.running():
        outs = [inner.lift(out) for out in function(*inputs)]
    given = tuple(out.tangent is not None for out in outs)
    unknown = partial.finish([out.tangent for out in outs if out.tangent is not None])
    linear = LinearMap(unknown.graph, unknown.residuals, taken, given)
    return [_below(out) for out in outs], linear, _stripper(inner)


def jvp_flat(
    function: Function, primals: Sequence[Any], tangents: Sequence[Tangent], name: str
) -> tuple[list[Any], list[Tangent], Strip]:
    """The results and their tangents, which may be None."""
    inner = JvpInterpreter(current(), name)
    inputs = [JvpTracer(inner, p, t) for p, t in zip(primals, tangents, strict=True)]
    with inner.running():
        outs = [inner.lift(out) for out in function(*inputs)]
    tangents = [out.tangent for out in outs]
    return [_below(out) for out in outs], tangents, _stripper(inner)


def _below(x: JvpTracer) -> Any:
    """The primal, weakly typed if the tracer is."""
    return x.primal.with_weak(x.aval.weak)


def _stripper(inner: JvpInterpreter) -> Strip:
    def strip(x: Any) -> Any:
        own = type(x) is JvpTracer and x.interpreter is inner
        return _below(x) if own else x

    return strip
