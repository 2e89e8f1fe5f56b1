"""Timestamps that the device writes between commands, and the clock they are of."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from poot.vulkan import binding
from poot.vulkan._vk import ffi
from poot.vulkan.declarations import (
    VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT,
    VK_QUERY_RESULT_64_BIT,
    VK_QUERY_RESULT_WAIT_BIT,
    VK_QUERY_TYPE_TIMESTAMP,
    DeviceTable,
)
from poot.vulkan.emit import Emitter

_RESULT_BYTES = 8


class Timestamps:
    """A query pool for `count` timestamps."""

    def __init__(self, functions: DeviceTable, device: int, count: int) -> None:
        self._functions = functions
        self._device = device
        self.count = count
        self._ticks = ffi.new("uint64_t[]", count)
        info = binding.struct(
            "VkQueryPoolCreateInfo",
            queryType=VK_QUERY_TYPE_TIMESTAMP,
            queryCount=count,
        )
        made = ffi.new("VkQueryPool *")
        create = functions.vkCreateQueryPool
        binding.check(create(device, info, binding.NULL, made), "vkCreateQueryPool")
        self.handle: int = made[0]

    def read(self) -> list[int]:
        """The ticks; all must have been written."""
        size = _RESULT_BYTES * self.count
        result = self._functions.vkGetQueryPoolResults(
            self._device,
            self.handle,
            0,
            self.count,
            size,
            self._ticks,
            _RESULT_BYTES,
            VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT,
        )
        binding.check(result, "vkGetQueryPoolResults")
        return list(self._ticks)

    def close(self) -> None:
        handle: Any = self.handle
        if handle:
            self.handle = 0
            self._functions.vkDestroyQueryPool(self._device, handle, binding.NULL)


class TimedEmitter(Emitter):
    """Has the device write the time before and after each launch and copy."""

    def __init__(
        self, functions: DeviceTable, command_buffer: int, timestamps: Timestamps
    ) -> None:
        super().__init__(functions, command_buffer)
        self._timestamps = timestamps
        self._next = 0

    def begin(self, *, once: bool = False, resubmitted: bool = False) -> None:
        super().begin(once=once, resubmitted=resubmitted)
        pool = self._timestamps
        self._functions.vkCmdResetQueryPool(self._target, pool.handle, 0, pool.count)

    def dispatch(
        self, pipeline: int, layout: int, push: bytes, grid: tuple[int, int, int]
    ) -> None:
        with self._timed():
            super().dispatch(pipeline, layout, push, grid)

    def dispatch_indirect(
        self, pipeline: int, layout: int, push: bytes, arguments: tuple[int, int]
    ) -> None:
        with self._timed():
            super().dispatch_indirect(pipeline, layout, push, arguments)

    def copy(
        self, source: tuple[int, int], target: tuple[int, int], size_bytes: int
    ) -> None:
        with self._timed():
            super().copy(source, target, size_bytes)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        self._stamp()
        yield
        self._stamp()

    def _stamp(self) -> None:
        """Have the time written at which all earlier commands have ended."""
        self._functions.vkCmdWriteTimestamp(
            self._target,
            VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT,
            self._timestamps.handle,
            self._next,
        )
        self._next += 1


class Clock:
    """The device's clock: ticks of so many bits, which begin anew, as nanoseconds."""

    def __init__(self, bits: int, period_ns: float) -> None:
        self.bits = bits
        self._period_ns = period_ns
        self._lock = threading.Lock()
        self._last = self._passed = 0

    def nanoseconds(self, ticks: list[int]) -> list[float]:
        """The times of ticks in the order in which they were written."""
        size = 1 << self.bits
        times = []
        with self._lock:
            for tick in ticks:
                tick %= size
                # Another command buffer may have been read later than it ran.
                if tick < self._last and self._last - tick > size // 2:
                    self._passed += size
                self._last = tick
                times.append((self._passed + tick) * self._period_ns)
        return times
