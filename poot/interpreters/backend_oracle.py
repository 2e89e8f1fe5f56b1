"""Runs graphs on the host by the oracle, for machines without a Vulkan device."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from poot.core.equation import ValueId
from poot.core.errors import CapabilityError, CheckError
from poot.core.graph import Graph
from poot.core.oracle.evaluate import evaluate_unchecked
from poot.core.types import Storage, TensorType
from poot.interpreters.backend import Buffer
from poot.lowering.compile import Lowered, plan
from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.cache import clear_kernels
from poot.lowering.program import Program

if TYPE_CHECKING:
    from poot.vulkan.profiler import Profiler


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

    def content(self) -> np.ndarray[Any, Any]:
        """The array; CheckError if a failed check spoilt it."""
        if self.failure is not None:
            raise CheckError(*self.failure.args)
        assert self.array is not None
        return self.array


class OracleDevice:
    """What `poot.devices()` lists where there is no Vulkan device."""

    def __repr__(self) -> str:
        return "OracleDevice(NumPy on the host, no Vulkan device, f32 subnormals kept)"


class HostCompletion:
    """The end of a call that ended before it returned."""

    __slots__ = ("_failure",)

    def __init__(self, failure: CheckError | None) -> None:
        self._failure = failure

    def check(self) -> None:
        if self._failure is not None:
            raise CheckError(*self._failure.args)


class OracleExecutable:
    """A graph that the oracle evaluates at each call."""

    def __init__(self, graph: Graph, info: DeviceInfo, generic: bool) -> None:
        self._graph = graph
        self._info = info
        self._generic = generic
        inputs = graph.arguments
        self._types = tuple(graph.type(value) for value in inputs)
        self._slots = tuple(graph.values[v].storage is Storage.SLOT for v in inputs)
        # As of a program: the results, then the exports.
        self._outputs = (*graph.results, *graph.exports.values())
        self._passed = {value: number for number, value in enumerate(inputs)}
        payloads = graph.payloads
        self._consts = {value: _const_buffer(payloads[value]) for value in payloads}

    @cached_property
    def program(self) -> Program:
        """What a device would run."""
        return plan(self._graph, self._info, generic=self._generic)

    @property
    def replay(self) -> str:
        return "a call: NumPy on the host, since there is no Vulkan device"

    def call(
        self, buffers: Sequence[Any], scalars: Sequence[Any] = ()
    ) -> tuple[Sequence[HostBuffer], HostCompletion]:
        try:
            found = evaluate_unchecked(self._graph, *self._arrays(buffers, scalars))
        except CheckError as failure:
            # One of the arguments is spoilt.
            failed = [HostBuffer(None, failure) for _ in self._outputs]
            return failed, HostCompletion(failure)
        arrays = (*found.results, *found.exports.values())
        if found.failure is not None:
            spoilt = [HostBuffer(array, found.failure) for array in arrays]
            return spoilt, HostCompletion(found.failure)
        given = zip(self._outputs, arrays, strict=True)
        done = [self._result(value, array, buffers) for value, array in given]
        return done, HostCompletion(None)

    def _arrays(
        self, buffers: Sequence[Any], scalars: Sequence[Any]
    ) -> list[np.ndarray[Any, Any]]:
        numbers = iter(scalars)
        return [
            _slot_array(next(numbers), type) if is_slot else buffer.content()
            for buffer, type, is_slot in zip(
                buffers, self._types, self._slots, strict=True
            )
        ]

    def _result(
        self, value: ValueId, result: np.ndarray[Any, Any], buffers: Sequence[Any]
    ) -> HostBuffer:
        if value in self._consts:
            return self._consts[value]
        passed = buffers[self._passed[value]] if value in self._passed else None
        if passed is None:
            return HostBuffer(np.array(result, order="C"))
        passed.shared = True
        return cast(HostBuffer, passed)


def _slot_array(number: Any, type: TensorType) -> np.ndarray[Any, Any]:
    with np.errstate(over="ignore"):
        return np.asarray(number).astype(type.dtype.numpy)


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
        self.info = DeviceInfo(keeps_subnormals32=True)
        self._device = OracleDevice()

    @property
    def devices(self) -> tuple[Any, ...]:
        return (self._device,)

    def upload(self, array: np.ndarray[Any, Any]) -> Buffer:
        return HostBuffer(np.array(array, order="C"))

    def download(
        self, buffer: Buffer, type: TensorType, *, checked: bool = True
    ) -> np.ndarray[Any, Any]:
        assert isinstance(buffer, HostBuffer)
        found = buffer.array if buffer.array is not None and not checked else None
        return (buffer.content() if found is None else found).reshape(type.shape).copy()

    def host_view(self, buffer: Buffer, type: TensorType) -> np.ndarray[Any, Any]:
        assert isinstance(buffer, HostBuffer)
        view = buffer.content().reshape(type.shape).view()
        view.flags.writeable = False
        return view

    def wait(self, buffer: Buffer) -> None:
        assert isinstance(buffer, HostBuffer)
        buffer.content()

    def lower(self, graph: Graph) -> Lowered:
        return Lowered(graph, self.info)

    def load(self, graph: Graph, *, generic: bool) -> OracleExecutable:
        return OracleExecutable(graph, self.info, generic)

    def start_profiling(self, profiler: Profiler) -> None:
        raise CapabilityError(
            "profiling takes a Vulkan device, whose clock times the kernels; here poot "
            "calculates with NumPy on the host"
        )

    def stop_profiling(self, profiler: Profiler) -> None:
        pass

    def load_stored(self, lowered: Lowered) -> OracleExecutable:
        return self.load(lowered.graph, generic=False)

    def clear_caches(self) -> None:
        clear_kernels()
