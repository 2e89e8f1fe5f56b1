"""Writing recorded commands into Vulkan command buffers."""

from __future__ import annotations

from typing import Any

from poot.vulkan import binding
from poot.vulkan._vk import ffi
from poot.vulkan.declarations import (
    VK_ACCESS_HOST_READ_BIT,
    VK_ACCESS_INDIRECT_COMMAND_READ_BIT,
    VK_ACCESS_MEMORY_READ_BIT,
    VK_ACCESS_MEMORY_WRITE_BIT,
    VK_ACCESS_SHADER_READ_BIT,
    VK_ACCESS_SHADER_WRITE_BIT,
    VK_ACCESS_TRANSFER_READ_BIT,
    VK_ACCESS_TRANSFER_WRITE_BIT,
    VK_COMMAND_BUFFER_LEVEL_PRIMARY,
    VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT,
    VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT,
    VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
    VK_PIPELINE_BIND_POINT_COMPUTE,
    VK_PIPELINE_STAGE_ALL_COMMANDS_BIT,
    VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
    VK_PIPELINE_STAGE_DRAW_INDIRECT_BIT,
    VK_PIPELINE_STAGE_HOST_BIT,
    VK_PIPELINE_STAGE_TRANSFER_BIT,
    VK_SHADER_STAGE_COMPUTE_BIT,
    DeviceTable,
)

_WORK = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT
_WRITES = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT
_READS = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_TRANSFER_READ_BIT


class Emitter:
    """Fills one command buffer.

    Barriers are global memory barriers, since addresses name no buffer.
    """

    def __init__(self, functions: DeviceTable, command_buffer: int) -> None:
        self._functions = functions
        self._target = command_buffer
        self._pipeline = 0

    def begin(self, *, once: bool = False, resubmitted: bool = False) -> None:
        """`resubmitted`: it may be submitted while an earlier submission of it runs."""
        info = binding.struct("VkCommandBufferBeginInfo")
        if once:
            info.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT
        elif resubmitted:
            info.flags = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT
        begin = self._functions.vkBeginCommandBuffer
        binding.check(begin(self._target, info), "vkBeginCommandBuffer")

    def end(self) -> None:
        end = self._functions.vkEndCommandBuffer
        binding.check(end(self._target), "vkEndCommandBuffer")

    def opening_barrier(self, *, indirect: bool = False) -> None:
        """Order what follows after everything submitted before."""
        stages, reads = _later(indirect)
        self._barrier(
            VK_PIPELINE_STAGE_ALL_COMMANDS_BIT,
            stages,
            VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT,
            reads,
        )

    def barrier(self, *, indirect: bool = False) -> None:
        """Order what follows; the reads of grids too if it is `indirect`."""
        stages, reads = _later(indirect)
        self._barrier(_WORK, stages, _WRITES, reads)

    def host_barrier(self) -> None:
        """Let the host read, after the submission's end, what was written."""
        self._barrier(
            _WORK, VK_PIPELINE_STAGE_HOST_BIT, _WRITES, VK_ACCESS_HOST_READ_BIT
        )

    def dispatch(
        self, pipeline: int, layout: int, push: bytes, grid: tuple[int, int, int]
    ) -> None:
        self._bind(pipeline, layout, push)
        self._functions.vkCmdDispatch(self._target, *grid)

    def dispatch_indirect(
        self, pipeline: int, layout: int, push: bytes, arguments: tuple[int, int]
    ) -> None:
        """Launch with the grid that stands at `arguments`, (VkBuffer, offset)."""
        self._bind(pipeline, layout, push)
        self._functions.vkCmdDispatchIndirect(self._target, *arguments)

    def _bind(self, pipeline: int, layout: int, push: bytes) -> None:
        functions, target = self._functions, self._target
        if pipeline != self._pipeline:
            functions.vkCmdBindPipeline(
                target, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline
            )
            self._pipeline = pipeline
        if push:
            functions.vkCmdPushConstants(
                target,
                layout,
                VK_SHADER_STAGE_COMPUTE_BIT,
                0,
                len(push),
                ffi.from_buffer(push),
            )

    def copy(
        self, source: tuple[int, int], target: tuple[int, int], size_bytes: int
    ) -> None:
        """Copy between (VkBuffer, offset) places."""
        region = ffi.new("VkBufferCopy *")
        region.srcOffset, region.dstOffset = source[1], target[1]
        region.size = size_bytes
        self._functions.vkCmdCopyBuffer(self._target, source[0], target[0], 1, region)

    def fill(self, target: tuple[int, int], size_bytes: int, word: int) -> None:
        """Write the 32-bit `word` over `size_bytes`, a multiple of 4."""
        self._functions.vkCmdFillBuffer(self._target, *target, size_bytes, word)

    def _barrier(self, before: int, after: int, writes: int, reads: int) -> None:
        memory = binding.struct(
            "VkMemoryBarrier", srcAccessMask=writes, dstAccessMask=reads
        )
        self._functions.vkCmdPipelineBarrier(
            self._target,
            before,
            after,
            0,
            1,
            memory,
            0,
            binding.NULL,
            0,
            binding.NULL,
        )


def _later(indirect: bool) -> tuple[int, int]:
    """The stages and accesses of the work after a barrier."""
    if not indirect:
        return _WORK, _READS | _WRITES
    return (
        _WORK | VK_PIPELINE_STAGE_DRAW_INDIRECT_BIT,
        _READS | _WRITES | VK_ACCESS_INDIRECT_COMMAND_READ_BIT,
    )


class CommandPool:
    """A command pool and its command buffers, which go with it."""

    def __init__(
        self,
        functions: DeviceTable,
        device: int,
        family: int,
        count: int,
        *,
        resettable: bool,
    ) -> None:
        self._functions = functions
        self._device = device
        info = binding.struct("VkCommandPoolCreateInfo", queueFamilyIndex=family)
        if resettable:
            info.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT
        made = ffi.new("VkCommandPool *")
        create = functions.vkCreateCommandPool
        binding.check(create(device, info, binding.NULL, made), "vkCreateCommandPool")
        self.handle: int = made[0]
        try:
            self.command_buffers = self._allocate(count)
        except BaseException:
            self.close()
            raise

    def _allocate(self, count: int) -> list[int]:
        if not count:
            return []
        info = binding.struct(
            "VkCommandBufferAllocateInfo",
            commandPool=self.handle,
            level=VK_COMMAND_BUFFER_LEVEL_PRIMARY,
            commandBufferCount=count,
        )
        made = ffi.new("VkCommandBuffer[]", count)
        allocate = self._functions.vkAllocateCommandBuffers
        binding.check(allocate(self._device, info, made), "vkAllocateCommandBuffers")
        return list(made)

    def close(self) -> None:
        handle: Any = self.handle
        if handle:
            self.handle = 0
            self._functions.vkDestroyCommandPool(self._device, handle, binding.NULL)
