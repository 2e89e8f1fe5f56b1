"""Runs graphs on the host by the oracle, for machines without a Vulkan device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from poot.core.errors import CheckError
from poot.core.graph import Graph
from poot.core.oracle import evaluate_all
from poot.core.types import TensorType
from poot.interpreters.backend import Argument, Buffer
from poot.lowering.device_info import DeviceInfo


class HostBuffer:
    """A NumPy array in place of device memory; or the failed check that spoilt it."""

    __slots__ = ("array", "failure", "shared")

    def __init__(
        self, array: np.ndarray[Any, Any] | None, failure: CheckError | None = None
    ) -> None:
        self.array = array
        self.failure = failure
        self.shared = False

    def close(self) -> None:
        self.array = None


class OracleDevice:
    """What `poot.devices()` lists where there is no Vulkan device."""

    def __repr__(self) -> str:
        return "OracleDevice(NumPy on the host, no Vulkan device)"


class OracleExecutable:
    """A graph that the oracle evaluates at each call."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        inputs = graph.arguments
        self._types = tuple(graph.type(value) for value in inputs)
        self._passed = {value: number for number, value in enumerate(inputs)}
        payloads = graph.payloads
        self._consts = {value: _const_buffer(payloads[value]) for value in payloads}

    def __call__(self, arguments: Sequence[Argument]) -> Sequence[Buffer]:
        for argument in arguments:
            if isinstance(argument, HostBuffer) and argument.failure is not None:
                return [HostBuffer(None, argument.failure) for _ in self._graph.results]
        arrays = [
            _array(argument, type)
            for argument, type in zip(arguments, self._types, strict=True)
        ]
        try:
            results = evaluate_all(self._graph, *arrays).results
        except CheckError as failure:
            return [HostBuffer(None, failure) for _ in self._graph.results]
        return [
            self._result(value, result, arguments)
            for value, result in zip(self._graph.results, results, strict=True)
        ]

    def _result(
        self, value: Any, result: np.ndarray[Any, Any], arguments: Sequence[Argument]
    ) -> Buffer:
        if value in self._consts:
            return self._consts[value]
        if value in self._passed:
            passed: Argument = arguments[self._passed[value]]
            if isinstance(passed, HostBuffer):
                return passed
        return HostBuffer(np.ascontiguousarray(result).reshape(result.shape))


def _array(argument: Argument, type: TensorType) -> np.ndarray[Any, Any]:
    if isinstance(argument, HostBuffer):
        assert argument.array is not None
        return argument.array
    return np.frombuffer(argument, type.dtype.numpy).reshape(())


def _const_buffer(payload: Any) -> HostBuffer:
    buffer = getattr(payload, "buffer", None)
    if not isinstance(buffer, HostBuffer):
        buffer = HostBuffer(np.array(payload))
    buffer.shared = True
    return buffer


class OracleBackend:
    """A Backend without a device: NumPy arrays, evaluated by the oracle at the call."""

    def __init__(self) -> None:
        # Lowering still plans, for the made-up device, so that it can be looked at.
        self.info = DeviceInfo()

    @property
    def devices(self) -> tuple[Any, ...]:
        return (OracleDevice(),)

    def upload(self, array: np.ndarray[Any, Any]) -> Buffer:
        return HostBuffer(np.array(array, order="C"))

    def download(self, buffer: Buffer, type: TensorType) -> np.ndarray[Any, Any]:
        self.wait(buffer)
        assert isinstance(buffer, HostBuffer) and buffer.array is not None
        return buffer.array.reshape(type.shape).copy()

    def wait(self, buffer: Buffer) -> None:
        assert isinstance(buffer, HostBuffer)
        if buffer.failure is not None:
            raise buffer.failure

    def compile(self, graph: Graph, generic: bool) -> OracleExecutable:
        return OracleExecutable(graph)

    def clear_caches(self) -> None:
        """Nothing is kept."""
