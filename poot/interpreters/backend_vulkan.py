"""Runs graphs on a Vulkan device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, cast

import numpy as np

from poot.core.graph import Graph
from poot.core.types import TensorType
from poot.interpreters.backend import Buffer
from poot.lowering.compile import Lowered, lower, plan
from poot.lowering.kernels.cache import clear_kernels
from poot.vulkan.device import Device, open_device
from poot.vulkan.executable import Executable
from poot.vulkan.memory import DeviceBuffer


class VulkanBackend:
    """A Backend on one open device."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.info = device.info
        # Each blocking use comes through here, so nothing stands between.
        self.wait: Callable[[Any], None] = device.wait

    @classmethod
    def open(cls) -> Self:
        """On the best device, or the one that POOT_DEVICE names; else NoDeviceError."""
        return cls(open_device())

    @property
    def devices(self) -> tuple[Any, ...]:
        return (self.device,)

    def upload(self, array: np.ndarray[Any, Any]) -> Buffer:
        return self.device.upload(np.ascontiguousarray(array))

    def download(self, buffer: Buffer, type: TensorType) -> np.ndarray[Any, Any]:
        out = np.empty(type.shape, type.dtype.numpy)
        self.device.download(cast(DeviceBuffer, buffer), out)
        return out

    def lower(self, graph: Graph) -> Lowered:
        return lower(graph, self.info)

    def load(self, graph: Graph, *, generic: bool) -> Executable:
        program = plan(graph, self.info, generic=generic)
        consts = [self._const(graph.payloads[value]) for value in graph.consts]
        return Executable(self.device, program, consts)

    def _const(self, payload: Any) -> DeviceBuffer:
        """The memory of a constant, which nobody may write to from now on."""
        buffer = getattr(payload, "buffer", None)
        if not isinstance(buffer, DeviceBuffer):
            buffer = self.device.upload(np.ascontiguousarray(payload))
        buffer.shared = True
        return buffer

    def clear_caches(self) -> None:
        clear_kernels()
