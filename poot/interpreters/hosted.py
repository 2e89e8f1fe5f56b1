"""Graphs that call the host: cut into programs, with the host's calls between them.

No device calls back. What stands between two calls of the host is a program; loops
around such calls run iteration by iteration, their bodies cut likewise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from poot.core.builder import Builder
from poot.core.dtypes import Scalar
from poot.core.equation import Eqn, Operand, ValueId
from poot.core.errors import CapabilityError
from poot.core.graph import Graph
from poot.core.interpreter import base, interpreting
from poot.core.op import Op
from poot.core.ops.control import ControlOp
from poot.core.ops.host import HostCall, Record, holds, regions
from poot.core.source import replayed_sources
from poot.core.types import Storage
from poot.interpreters.array import Array
from poot.interpreters.aval import aval_of
from poot.interpreters.backend import Executable, backend
from poot.interpreters.stepwise import stepwise

if TYPE_CHECKING:
    from poot.lowering.program import Program

# Makes a graph without host calls ready to run.
Load = Callable[[Graph], Executable]
_Known = dict[ValueId, Any]


class _Finished:
    """The end of a call whose pieces were started one by one."""

    def __init__(self, buffers: Sequence[Any]) -> None:
        self._buffers = buffers

    def check(self) -> None:
        for buffer in self._buffers:
            backend().wait(buffer)


class HostedExecutable:
    """An Executable of a graph with host calls, in which wrappers are gone."""

    def __init__(self, graph: Graph, load: Load) -> None:
        self._graph = graph
        self._load = load
        self._pieces: dict[Graph, _Pieces] = {graph: _Pieces(graph, load, self._step)}

    @property
    def program(self) -> Program:
        raise CapabilityError(
            "a function with a pure_callback is no single program: no device calls the "
            "host, so that it is cut there"
        )

    @property
    def replay(self) -> str:
        return "a call: several programs, with calls of the host between them"

    def call(
        self, buffers: Sequence[Any], scalars: Sequence[Any] = ()
    ) -> tuple[Sequence[Any], _Finished]:
        graph, numbers = self._graph, iter(scalars)
        with interpreting(base()) as eager:
            values = []
            for value, buffer in zip(graph.arguments, buffers, strict=True):
                type = graph.type(value)
                if graph.values[value].storage is Storage.SLOT:
                    number = np.asarray(next(numbers)).astype(type.dtype.numpy)
                    values.append(eager.lift(number))
                else:
                    values.append(Array(buffer, aval_of(type)))
            found = [array.live_buffer() for array in self._run(graph, values)]
        for buffer in found:
            # A result may be an argument, or a constant, as it is.
            buffer.shared = True
        return found, _Finished(found)

    def _run(self, graph: Graph, values: Sequence[Any], number: int = 0) -> list[Any]:
        if graph not in self._pieces:
            self._pieces[graph] = _Pieces(graph, self._load, self._step)
        return self._pieces[graph].run(values)

    def _step(self, op: Op, operands: Sequence[Any]) -> Sequence[Any]:
        """One call of the host, or a loop or choice with such calls in it."""
        values = list(map(base().lift, operands))
        if isinstance(op, ControlOp):
            return stepwise(op, values, self._run)
        return base().process(op, tuple(values))


class _Pieces:
    """A graph cut at its host calls."""

    def __init__(
        self,
        graph: Graph,
        load: Load,
        step: Callable[[Op, Sequence[Any]], Sequence[Any]],
    ) -> None:
        self._graph = graph
        self._step = step
        self._consts = {v: base().lift(graph.payloads[v]) for v in graph.consts}
        records = {eqn.outs[0] for eqn in graph.eqns if isinstance(eqn.op, Record)}
        self._witnesses = [w for w in graph.witnesses if w.value not in records]
        # A stretch of equations made ready, or the number of one for the host.
        self._parts: list[_Stretch | int] = []
        for indices in _stretches(graph):
            if _is_hosted(graph.eqns[indices[0]].op):
                self._parts.append(indices[0])
            else:
                self._parts.append(_Stretch(graph, indices, load))

    def run(self, values: Sequence[Any]) -> list[Any]:
        """The results of the graph on values for its arguments."""
        graph = self._graph
        given = iter(values)
        known: _Known = dict(self._consts)
        known.update((v, next(given)) for v in graph.inputs if v not in known)

        def read(operand: Operand) -> Any:
            return operand if isinstance(operand, Scalar) else known[operand]

        with replayed_sources() as line:
            for part in self._parts:
                if isinstance(part, _Stretch):
                    part.run(known)
                    continue
                eqn, line.source = graph.eqns[part], graph.source(part)
                results = self._step(eqn.op, list(map(read, eqn.inputs)))
                known.update(zip(eqn.outs, results, strict=True))
            found = [known[value] for value in graph.results]
            for witness in self._witnesses:
                line.source = witness.source
                failed = known[witness.value]
                found = base().witness(failed, witness.message, found)
        return found


def _is_hosted(op: Op) -> bool:
    return isinstance(op, HostCall) or any(
        holds(region, HostCall) for region in regions(op)
    )


def _stretches(graph: Graph) -> Iterator[list[int]]:
    """The numbers of equations in a row that the device runs, or of one it does not."""
    stretch: list[int] = []
    for index, eqn in enumerate(graph.eqns):
        if not _is_hosted(eqn.op):
            stretch.append(index)
            continue
        if stretch:
            yield stretch
            stretch = []
        yield [index]
    if stretch:
        yield stretch


class _Stretch:
    """Equations in a row as a program of their own."""

    def __init__(self, graph: Graph, indices: Sequence[int], load: Load) -> None:
        eqns = [graph.eqns[index] for index in indices]
        made = {out for eqn in eqns for out in eqn.outs}
        self._inputs = tuple(dict.fromkeys(v for v in _read(eqns) if v not in made))
        outside = {v for v in _read(graph.eqns[indices[-1] + 1 :])}
        outside.update(output.value for output in graph.outputs)
        self._outs = tuple(v for eqn in eqns for v in eqn.outs if v in outside)
        self._avals = [aval_of(graph.type(out)) for out in self._outs]
        builder = Builder()
        known = {value: builder.input(graph.type(value)) for value in self._inputs}
        for index in indices:
            eqn = graph.eqns[index]
            operands = (o if isinstance(o, Scalar) else known[o] for o in eqn.inputs)
            outs = builder.emit(eqn.op, tuple(operands), graph.source(index))
            known.update(zip(eqn.outs, outs, strict=True))
        for out in self._outs:
            builder.result(known[out])
        self._executable = load(builder.finish())

    def run(self, known: _Known) -> None:
        """Add to the known values those that are needed elsewhere."""
        buffers = [known[value].live_buffer() for value in self._inputs]
        results, _ = self._executable.call(buffers)
        known.update(zip(self._outs, map(Array, results, self._avals), strict=True))


def _read(eqns: Sequence[Eqn]) -> Iterator[ValueId]:
    for eqn in eqns:
        for operand in eqn.inputs:
            if not isinstance(operand, Scalar):
                yield operand
