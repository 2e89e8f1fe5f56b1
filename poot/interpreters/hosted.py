"""Graphs that call the host: they run op by op, as no device calls back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from poot.core.errors import CapabilityError
from poot.core.graph import Graph
from poot.core.interpreter import base, interpreting
from poot.core.ops.control import ControlOp
from poot.core.ops.host import HostCall, holds, regions
from poot.core.types import Storage
from poot.interpreters.array import Array
from poot.interpreters.aval import aval_of
from poot.interpreters.backend import backend
from poot.interpreters.replay import replay_by
from poot.interpreters.stepwise import stepwise

if TYPE_CHECKING:
    from poot.lowering.program import Program


class _Finished:
    """The end of a call whose ops were started one by one."""

    def __init__(self, buffers: Sequence[Any]) -> None:
        self._buffers = buffers

    def check(self) -> None:
        for buffer in self._buffers:
            backend().wait(buffer)


class HostedExecutable:
    """An Executable of a graph with host calls; each op is a program of its own."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    @property
    def program(self) -> Program:
        raise CapabilityError(
            "a function with a pure_callback has no program: no device calls the "
            "host, so that it runs op by op"
        )

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
            found = [array.live_buffer() for array in _run(graph, values)]
        for buffer in found:
            # A result may be an argument, or a constant, as it is.
            buffer.shared = True
        return found, _Finished(found)


def _run(graph: Graph, values: Sequence[Any], number: int = 0) -> list[Any]:
    return replay_by(_process, graph, values)


def _process(op: Any, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    if isinstance(op, ControlOp) and any(holds(r, HostCall) for r in regions(op)):
        return tuple(stepwise(op, list(map(base().lift, operands)), _run))
    return base().process(op, operands)
