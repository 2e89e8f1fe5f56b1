"""Runs graphs on a Vulkan device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self, cast

import numpy as np

from poot.core.graph import Graph
from poot.core.types import TensorType
from poot.interpreters.backend import Buffer
from poot.lowering.compile import Lowered, plan
from poot.lowering.kernels.cache import clear_kernels
from poot.lowering.program import Program
from poot.lowering.tuned import Tuned
from poot.vulkan.device import Device, open_device
from poot.vulkan.executable import Executable
from poot.vulkan.memory import DeviceBuffer
from poot.vulkan.program_store import ProgramStore


class _HostMemory:
    """A buffer that the host sees, to NumPy, whose array then keeps it alive."""

    def __init__(self, buffer: DeviceBuffer, type: TensorType) -> None:
        self._buffer = buffer
        self.__array_interface__ = {
            "version": 3,
            "shape": type.shape,
            "typestr": type.dtype.numpy.str,
            # Not to be written: the elements of an array never change.
            "data": (buffer.host.ctypes.data, True),
        }


def _payloads(graph: Graph) -> list[Any]:
    """The constants of a graph, in the order in which programs number them."""
    return [graph.payloads[value] for value in graph.consts]


class VulkanBackend:
    """A Backend on one open device."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.info = device.info
        self._programs = ProgramStore(device.cache_folder, device.info)
        # Each blocking use comes through here, so nothing stands between.
        self.wait: Callable[[Any], None] = device.wait
        self.start_profiling = device.start_profiling
        self.stop_profiling = device.stop_profiling

    @classmethod
    def open(cls) -> Self:
        """On the best device, or the one that POOT_DEVICE names; else NoDeviceError."""
        return cls(open_device())

    @property
    def devices(self) -> tuple[Any, ...]:
        return (self.device,)

    def upload(self, array: np.ndarray[Any, Any]) -> Buffer:
        return self.device.upload(np.ascontiguousarray(array))

    def download(
        self, buffer: Buffer, type: TensorType, *, checked: bool = True
    ) -> np.ndarray[Any, Any]:
        out = np.empty(type.shape, type.dtype.numpy)
        self.device.download(cast(DeviceBuffer, buffer), out, checked=checked)
        return out

    def host_view(
        self, buffer: Buffer, type: TensorType
    ) -> np.ndarray[Any, Any] | None:
        held = cast(DeviceBuffer, buffer)
        self.wait(held)
        if not type.size:
            return np.broadcast_to(np.zeros((), type.dtype.numpy), type.shape)
        return None if held.host is None else np.asarray(_HostMemory(held, type))

    def lower(self, graph: Graph) -> Lowered:
        return Lowered(graph, self.info)

    def load(self, graph: Graph, *, generic: bool) -> Executable:
        program = plan(graph, self.info, generic=generic)
        return self._executable(program, _payloads(graph))

    def load_stored(self, lowered: Lowered) -> Executable:
        given = _payloads(lowered.source)
        program = self._programs.find(lowered.source)
        if program is not None:
            return self._executable(program, given)
        program, payloads = plan(lowered.graph, self.info), _payloads(lowered.graph)
        if list(map(id, payloads)) == list(map(id, given)):
            self._programs.keep(lowered.source, program)
        return self._executable(program, payloads)

    def load_tuned(self, graph: Graph, tuned: Tuned) -> Executable:
        """A lowered graph made ready with other schedules than the device's."""
        program = plan(graph, self.info.masked(tuned=tuned))
        return self._executable(program, _payloads(graph))

    def retune(self, winners: Mapping[str, str]) -> None:
        """Plan with these schedules from now on, here and in later processes."""
        self.device.retune(winners)
        self.info = self.device.info
        self._programs = ProgramStore(self.device.cache_folder, self.info)

    def _executable(self, program: Program, payloads: list[Any]) -> Executable:
        return Executable(self.device, program, list(map(self._const, payloads)))

    def _const(self, payload: Any) -> DeviceBuffer:
        """The memory of a constant, which nobody may write to from now on."""
        buffer = getattr(payload, "buffer", None)
        if not isinstance(buffer, DeviceBuffer):
            buffer = self.device.upload(np.ascontiguousarray(payload))
        buffer.shared = True
        return buffer

    def clear_caches(self) -> None:
        clear_kernels()
