"""JAX functions through IREE's Vulkan backend, for comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import iree.compiler
import iree.runtime
import jax
import numpy as np
from jax import export

_STAGING = int(iree.runtime.MemoryType.HOST_LOCAL) | int(
    iree.runtime.MemoryType.DEVICE_VISIBLE
)
_READ_BACK = int(iree.runtime.BufferUsage.TRANSFER_TARGET) | int(
    iree.runtime.BufferUsage.MAPPING_SCOPED
)


class IreeFunction:
    """A JAX function compiled for vulkan-spirv and loaded on the first device."""

    def __init__(self, function: Callable, arguments: Sequence[np.ndarray]) -> None:
        shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arguments]
        exported = export.export(jax.jit(function), platforms=["cpu"])(*shapes)
        binary = iree.compiler.compile_str(
            exported.mlir_module_serialized,
            input_type="stablehlo",
            target_backends=["vulkan-spirv"],
        )
        self._config = iree.runtime.Config("vulkan")
        self._device = self._config.device
        module = iree.runtime.VmModule.copy_buffer(self._config.vm_instance, binary)
        self._module = iree.runtime.load_vm_module(module, self._config)
        self._arguments = [
            iree.runtime.asdevicearray(self._device, a) for a in arguments
        ]

    def __call__(self) -> iree.runtime.DeviceArray:
        """Run on the arguments, which are on the device; returns when done."""
        return self._module.main(*self._arguments)

    def to_host(self, array: iree.runtime.DeviceArray) -> np.ndarray:
        """Copy by a staging buffer.

        `array.to_host()` imports NumPy's memory instead, which lavapipe refuses unless
        it happens to be aligned to 4096 bytes.
        """
        view = array._buffer_view
        source = view.get_buffer()
        staging = self._device.allocator.allocate_buffer(
            memory_type=_STAGING,
            allowed_usage=_READ_BACK,
            allocation_size=source.byte_length(),
        )
        done = self._device.create_semaphore(0)
        fence = iree.runtime.HalFence
        self._device.queue_copy(
            source,
            staging,
            wait_semaphores=fence.create_at(done, 0),
            signal_semaphores=fence.create_at(done, 1),
        )
        fence.create_at(done, 1).wait()
        return staging.map().asarray(view.shape, np.dtype(array.dtype)).copy()
