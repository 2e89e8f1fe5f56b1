"""Blocks of device memory as the driver gives them: memory, a buffer, its address."""

from __future__ import annotations

from typing import Any

import numpy as np

from poot.core.errors import CapabilityError, OutOfMemory
from poot.vulkan import binding
from poot.vulkan._vk import ffi
from poot.vulkan.allocator import ALIGNMENT, Block
from poot.vulkan.declarations import (
    VK_BUFFER_USAGE_INDIRECT_BUFFER_BIT,
    VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT,
    VK_BUFFER_USAGE_STORAGE_BUFFER_BIT,
    VK_BUFFER_USAGE_TRANSFER_DST_BIT,
    VK_BUFFER_USAGE_TRANSFER_SRC_BIT,
    VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT,
    VK_SHARING_MODE_EXCLUSIVE,
    VK_WHOLE_SIZE,
    DeviceTable,
)
from poot.vulkan.memory_types import MemoryType

_USAGE = (
    VK_BUFFER_USAGE_STORAGE_BUFFER_BIT
    | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT
    | VK_BUFFER_USAGE_TRANSFER_SRC_BIT
    | VK_BUFFER_USAGE_TRANSFER_DST_BIT
    | VK_BUFFER_USAGE_INDIRECT_BUFFER_BIT
)


class BlockSource:
    """Makes and frees blocks of one memory type."""

    def __init__(
        self, functions: DeviceTable, device: int, memory_type: MemoryType
    ) -> None:
        self.memory_type = memory_type
        self._functions = functions
        self._device = device

    def make(self, size: int) -> Block | None:
        """A block, mapped if the host can see it; None where no memory is left."""
        try:
            buffer = self._make_buffer(size)
        except OutOfMemory:
            return None
        try:
            memory = self._allocate(buffer)
        except OutOfMemory:
            self._destroy(buffer, 0)
            return None
        except BaseException:
            self._destroy(buffer, 0)
            raise
        try:
            return self._bound(size, buffer, memory)
        except BaseException:
            self._destroy(buffer, memory)
            raise

    def release(self, block: Block) -> None:
        block.host = None
        self._destroy(block.buffer, block.memory)

    def flush(self, block: Block) -> None:
        """Let the device see what the host wrote."""
        if not self.memory_type.coherent:
            call = self._functions.vkFlushMappedMemoryRanges
            result = call(self._device, 1, _whole(block))
            binding.check(result, "vkFlushMappedMemoryRanges")

    def invalidate(self, block: Block) -> None:
        """Let the host see what the device wrote."""
        if not self.memory_type.coherent:
            call = self._functions.vkInvalidateMappedMemoryRanges
            result = call(self._device, 1, _whole(block))
            binding.check(result, "vkInvalidateMappedMemoryRanges")

    def _make_buffer(self, size: int) -> int:
        info = binding.struct(
            "VkBufferCreateInfo",
            size=size,
            usage=_USAGE,
            sharingMode=VK_SHARING_MODE_EXCLUSIVE,
        )
        made = ffi.new("VkBuffer *")
        create = self._functions.vkCreateBuffer
        binding.check(create(self._device, info, binding.NULL, made), "vkCreateBuffer")
        buffer: int = made[0]
        return buffer

    def _allocate(self, buffer: int) -> int:
        needs = ffi.new("VkMemoryRequirements *")
        self._functions.vkGetBufferMemoryRequirements(self._device, buffer, needs)
        if not needs.memoryTypeBits >> self.memory_type.number & 1:
            raise CapabilityError(
                f"memory type {self.memory_type.number} cannot hold storage buffers; "
                f"the device allows types {needs.memoryTypeBits:#b}"
            )
        flags = binding.struct(
            "VkMemoryAllocateFlagsInfo", flags=VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT
        )
        info = binding.struct(
            "VkMemoryAllocateInfo",
            pNext=flags,
            allocationSize=needs.size,
            memoryTypeIndex=self.memory_type.number,
        )
        made = ffi.new("VkDeviceMemory *")
        allocate = self._functions.vkAllocateMemory
        result = allocate(self._device, info, binding.NULL, made)
        binding.check(result, "vkAllocateMemory")
        memory: int = made[0]
        return memory

    def _bound(self, size: int, buffer: int, memory: int) -> Block:
        bind = self._functions.vkBindBufferMemory
        binding.check(bind(self._device, buffer, memory, 0), "vkBindBufferMemory")
        info = binding.struct("VkBufferDeviceAddressInfo", buffer=buffer)
        address = self._functions.vkGetBufferDeviceAddress(self._device, info)
        # Kernels count on 16-byte addresses, and chunks begin at multiples of 64.
        assert address % ALIGNMENT == 0
        block = Block(size, address, buffer, memory)
        if self.memory_type.visible:
            block.host = self._map(memory, size)
        return block

    def _map(self, memory: int, size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        pointer = ffi.new("void **")
        call = self._functions.vkMapMemory
        result = call(self._device, memory, 0, VK_WHOLE_SIZE, 0, pointer)
        binding.check(result, "vkMapMemory")
        return np.frombuffer(ffi.buffer(pointer[0], size), dtype=np.uint8)

    def _destroy(self, buffer: int, memory: int) -> None:
        self._functions.vkDestroyBuffer(self._device, buffer, binding.NULL)
        if memory:
            # Freeing memory ends its mapping too.
            self._functions.vkFreeMemory(self._device, memory, binding.NULL)


def _whole(block: Block) -> Any:
    return binding.struct(
        "VkMappedMemoryRange", memory=block.memory, offset=0, size=VK_WHOLE_SIZE
    )
