"""The queue and its timeline: the one place that submits, waits and knows "done"."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from typing import Any, NoReturn
from weakref import WeakSet

from poot.core.errors import (
    DeviceError,
    DeviceLost,
    DeviceTimeout,
    ForkError,
    PootError,
)
from poot.vulkan import binding
from poot.vulkan._vk import ffi
from poot.vulkan.declarations import VK_SEMAPHORE_TYPE_TIMELINE, DeviceTable

# A polled wait ends 25 to 30 us earlier than a blocking one, and the processor is still
# awake: what the host does next, the call of a decoder's next step say, is faster. So
# waits are polled for as long as such work takes; after the first part of that, threads
# that want the processor come first.
_POLL_NS, _ALONE_NS = 10_000_000, 100_000
# Waits are cut, so that Python sees signals and a stuck device is told from a slow one.
_SLICE_NS = 100_000_000
# Work is only called stuck when the timeline has not moved for so long.
DEFAULT_TIMEOUT_S = 300.0
_REMEMBERED_SUBMITS = 8


class Submission:
    """Command buffers with the structures that submit them, made once."""

    __slots__ = ("_command_buffers", "info", "signal")

    def __init__(self, queue: Queue, command_buffers: list[int]) -> None:
        self.signal = ffi.new("uint64_t[1]")
        self._command_buffers = ffi.new("VkCommandBuffer[]", command_buffers)
        timeline = binding.struct(
            "VkTimelineSemaphoreSubmitInfo",
            signalSemaphoreValueCount=1,
            pSignalSemaphoreValues=self.signal,
        )
        self.info = binding.struct(
            "VkSubmitInfo",
            pNext=timeline,
            commandBufferCount=len(command_buffers),
            pCommandBuffers=self._command_buffers,
            signalSemaphoreCount=1,
            pSignalSemaphores=queue.semaphore_pointer,
        )


class Queue:
    """One Vulkan queue and the timeline semaphore that its submissions signal.

    Submission n signals value n, so that work is done when `completed` has reached its
    value. After a lost device or a fork every call raises the same error at once.
    """

    def __init__(
        self, functions: DeviceTable, device: int, family: int, *, polls: bool
    ) -> None:
        self.functions = functions
        self.family = family
        self.timeout_s = DEFAULT_TIMEOUT_S
        self.failure: PootError | None = None
        # In a forked child the driver must not be called, not even to clean up.
        self.abandoned = False
        self.submitted = 0
        self.completed = 0
        self._device = device
        self._polls = polls
        self.lock = threading.Lock()
        self._recent: deque[tuple[int, str]] = deque(maxlen=_REMEMBERED_SUBMITS)
        self._counter = ffi.new("uint64_t[1]")
        self._idle_waits: list[tuple[Any, Any]] = []
        queue = ffi.new("VkQueue *")
        functions.vkGetDeviceQueue(device, family, 0, queue)
        self.handle: int = queue[0]
        self.semaphore_pointer = self._make_semaphore()
        self.semaphore: int = self.semaphore_pointer[0]
        _open_queues.add(self)

    def _make_semaphore(self) -> Any:
        kind = binding.struct(
            "VkSemaphoreTypeCreateInfo", semaphoreType=VK_SEMAPHORE_TYPE_TIMELINE
        )
        info = binding.struct("VkSemaphoreCreateInfo", pNext=kind)
        made = ffi.new("VkSemaphore[1]")
        result = self.functions.vkCreateSemaphore(
            self._device, info, binding.NULL, made
        )
        binding.check(result, "vkCreateSemaphore")
        return made

    def submit(self, submission: Submission, label: str) -> int:
        """Submit once; the value that the timeline has when the work is done.

        `label` names the work in the error of a device that is lost under it.
        """
        with self.lock:
            return self.submit_locked(submission, label)

    def submit_locked(self, submission: Submission, label: str) -> int:
        """As `submit`, for a caller that holds `lock`."""
        if self.failure is not None:
            self.raise_failure()
        value = self.submitted + 1
        submission.signal[0] = value
        result = self.functions.vkQueueSubmit(self.handle, 1, submission.info, 0)
        if result:
            self.fail(result, "vkQueueSubmit")
        self.submitted = value
        self._recent.append((value, label))
        return value

    def poll(self) -> int:
        """Ask the driver how far the timeline has come."""
        result = self.functions.vkGetSemaphoreCounterValue(
            self._device, self.semaphore, self._counter
        )
        if result:
            self.fail(result, "vkGetSemaphoreCounterValue")
        value: int = self._counter[0]
        # Some drivers answer the highest number once the device is lost. The one
        # submission that another thread is just making may have ended already.
        if value > self.submitted + 1:
            self._lose("the timeline semaphore has a value that was never submitted")
        if value > self.completed:
            self.completed = value
        return value

    def is_done(self, value: int) -> bool:
        return value <= self.completed or value <= self.poll()

    def wait(self, value: int, timeout_s: float | None = None) -> None:
        """Return when `value` is reached; DeviceTimeout after so long a standstill."""
        if value <= self.completed:
            return
        if self.failure is not None:
            self.raise_failure()
        limit = self.timeout_s if timeout_s is None else timeout_s
        if self._polls and self._polled(value, min(_POLL_NS, int(limit * 1e9))):
            return
        self._block(value, limit)

    def _polled(self, value: int, most_ns: int) -> bool:
        """Whether `value` was reached within the time, asking all the while."""
        began = time.perf_counter_ns()
        while (spent := time.perf_counter_ns() - began) < most_ns:
            if self.poll() >= value:
                return True
            if spent > _ALONE_NS:
                time.sleep(0)
        return False

    def _block(self, value: int, timeout_s: float) -> None:
        try:
            wait = self._idle_waits.pop()
        except IndexError:
            wait = self._make_wait()
        info, values = wait
        values[0] = value
        slice_ns = _SLICE_NS if timeout_s > 1 else int(timeout_s * 1e9)
        reached, stop = self.completed, 0.0
        while result := self.functions.vkWaitSemaphores(self._device, info, slice_ns):
            if result != binding.TIMEOUT:
                self.fail(result, "vkWaitSemaphores")
            if self.poll() > reached or not stop:
                reached, stop = self.completed, time.monotonic() + timeout_s
            elif time.monotonic() >= stop:
                self._time_out(value, timeout_s)
        if value > self.completed:
            self.completed = value
        self._idle_waits.append(wait)

    def _make_wait(self) -> tuple[Any, Any]:
        values = ffi.new("uint64_t[1]")
        info = binding.struct(
            "VkSemaphoreWaitInfo",
            semaphoreCount=1,
            pSemaphores=self.semaphore_pointer,
            pValues=values,
        )
        return info, values

    def fail(self, result: int, call: str) -> NoReturn:
        """Raise the error of a result code; a lost device stays lost."""
        error = binding.error_of(result, call)
        if isinstance(error, DeviceLost):
            self._lose(str(error))
        raise error

    def _lose(self, reason: str) -> NoReturn:
        self.failure = DeviceLost(
            f"the device was lost ({reason}){self._pending()}; start the process anew"
        )
        self.raise_failure()

    def _time_out(self, value: int, timeout_s: float) -> NoReturn:
        raise DeviceTimeout(
            f"submission {value} did not end: the device stands at {self.completed} "
            f"since {timeout_s:g} s{self._pending()}. Wait again, or allow more time"
        )

    def _pending(self) -> str:
        """What had been submitted last and has not ended, for errors."""
        pending = [label for value, label in self._recent if value > self.completed]
        return f"; running or waiting: {', '.join(pending)}" if pending else ""

    def raise_failure(self) -> NoReturn:
        assert self.failure is not None
        # A fresh object each time: a raised one drags its traceback along.
        raise type(self.failure)(*self.failure.args)

    def abandon(self) -> None:
        """Give up in a forked child: every later call raises and none is made."""
        self.abandoned = True
        self.failure = ForkError(
            f"process {os.getpid()} was forked from one that had opened a Vulkan "
            "device, which a child cannot use; start workers with multiprocessing's "
            "'spawn'"
        )
        # A thread that stayed in the parent may hold the old one for ever.
        self.lock = threading.Lock()

    def close(self) -> None:
        """Destroy the semaphore; later calls raise."""
        if self.failure is None:
            self.failure = DeviceError("the device was closed")
        if self.semaphore and not self.abandoned:
            self.functions.vkDestroySemaphore(
                self._device, self.semaphore, binding.NULL
            )
        self.semaphore = 0
        _open_queues.discard(self)


_open_queues: WeakSet[Queue] = WeakSet()


def _abandon_in_child() -> None:
    for queue in list(_open_queues):
        queue.abandon()


if hasattr(os, "register_at_fork"):  # Windows has no fork.
    os.register_at_fork(after_in_child=_abandon_in_child)
