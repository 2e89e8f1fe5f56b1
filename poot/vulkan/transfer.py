"""Copies between host and device, through a ring of staging buffers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from poot.core.errors import OutOfMemory
from poot.vulkan.allocator import Block
from poot.vulkan.blocks import BlockSource
from poot.vulkan.emit import CommandPool, Emitter
from poot.vulkan.memory import DeviceBuffer
from poot.vulkan.queue import Queue, Submission

_CONTEXTS = 4
STAGING_BYTES = 8 << 20

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class _Context:
    """A command buffer with staging memory, in the hands of one transfer at a time."""

    def __init__(self, queue: Queue, device: int) -> None:
        self.pool = CommandPool(
            queue.functions, device, queue.family, 1, resettable=True
        )
        self.submission = Submission(queue, self.pool.command_buffers)
        self.value = 0
        self.staging: Block | None = None


class Transfers:
    """Uploads, downloads, fills and copies on the queue that also runs programs.

    An upload returns when the host's bytes may change; work submitted later sees it.
    """

    def __init__(self, queue: Queue, device: int, source: BlockSource) -> None:
        self._queue = queue
        self._source = source
        self._contexts: list[_Context] = []
        try:
            for _ in range(_CONTEXTS):
                self._contexts.append(_Context(queue, device))
        except BaseException:
            self.close()
            raise
        # First in, first out: the context whose work is the oldest comes next.
        self._free: SimpleQueue[_Context] = SimpleQueue()
        for context in self._contexts:
            self._free.put(context)

    def upload(self, target: DeviceBuffer, data: Bytes) -> None:
        """Write `data` to the start of `target`."""
        host = target.host
        if host is not None and target.last_use <= self._queue.completed:
            np.copyto(host[: data.size], data)
            return
        for low, high in _pieces(data.size):
            context = self._take()
            try:
                self._upload_piece(context, target, low, data[low:high])
            finally:
                self._free.put(context)

    def download(self, source: DeviceBuffer, out: Bytes) -> None:
        """Wait for what writes `source`, then copy its first bytes to `out`."""
        host = source.host
        if host is not None:
            self._queue.wait(source.ready)
            np.copyto(out, host[: out.size])
            return
        running: deque[tuple[_Context, Bytes]] = deque()
        try:
            for low, high in _pieces(out.size):
                # Never wait for a context while holding one: others may do so too.
                context = self._take() if not running else self._take_if_free()
                while context is None:
                    self._collect(running)
                    context = self._take() if not running else self._take_if_free()
                running.append((context, out[low:high]))
                self._download_piece(context, source, low, high - low)
            while running:
                self._collect(running)
        finally:
            for context, _ in running:
                self._free.put(context)

    def fill(self, target: DeviceBuffer, word: int) -> None:
        """Write the 32-bit `word` all over `target`, its padding included."""
        place, size = _place(target), target.allocated_bytes
        self._run((), target, lambda emitter: emitter.fill(place, size, word))

    def copy(self, source: DeviceBuffer, target: DeviceBuffer) -> None:
        """Copy all of `source` to the start of `target`."""
        places, size = (_place(source), _place(target)), source.size_bytes
        self._run((source,), target, lambda emitter: emitter.copy(*places, size))
        target.completion = source.completion

    def close(self) -> None:
        for context in self._contexts:
            context.pool.close()
            if context.staging is not None:
                self._source.release(context.staging)
                context.staging = None

    def _run(
        self,
        sources: tuple[DeviceBuffer, ...],
        target: DeviceBuffer,
        emit: Callable[[Emitter], None],
    ) -> None:
        context = self._take()
        try:
            self._submit(context, emit, "a copy")
            target.ready = target.last_use = context.value
            for source in sources:
                source.last_use = context.value
        finally:
            self._free.put(context)

    def _take(self) -> _Context:
        """The context that was used the longest ago, once its work is done."""
        context = self._free.get()
        try:
            self._queue.wait(context.value)
        except BaseException:
            self._free.put(context)
            raise
        return context

    def _take_if_free(self) -> _Context | None:
        try:
            context = self._free.get_nowait()
        except Empty:
            return None
        if self._queue.is_done(context.value):
            return context
        self._free.put(context)
        return None

    def _upload_piece(
        self, context: _Context, target: DeviceBuffer, low: int, data: Bytes
    ) -> None:
        staging = self._staging(context)
        np.copyto(staging.host[: data.size], data)
        self._source.flush(staging)
        place = target.handle, target.offset + low
        self._submit(
            context,
            lambda emitter: emitter.copy((staging.buffer, 0), place, data.size),
            "an upload",
        )
        target.ready = target.last_use = context.value

    def _download_piece(
        self, context: _Context, source: DeviceBuffer, low: int, size: int
    ) -> None:
        staging = self._staging(context)
        place = source.handle, source.offset + low
        self._submit(
            context,
            lambda emitter: emitter.copy(place, (staging.buffer, 0), size),
            "a download",
            host_reads=True,
        )
        source.last_use = context.value

    def _collect(self, running: deque[tuple[_Context, Bytes]]) -> None:
        """Take over the bytes of the oldest piece and free its context."""
        context, out = running[0]
        self._queue.wait(context.value)
        staging = self._staging(context)
        self._source.invalidate(staging)
        np.copyto(out, staging.host[: out.size])
        running.popleft()
        self._free.put(context)

    def _staging(self, context: _Context) -> Block:
        if context.staging is None:
            context.staging = self._source.make(STAGING_BYTES)
            if context.staging is None:
                raise OutOfMemory(
                    f"no {STAGING_BYTES} bytes of host memory are left to stage copies "
                    "between host and device"
                )
        return context.staging

    def _submit(
        self,
        context: _Context,
        emit: Callable[[Emitter], None],
        label: str,
        *,
        host_reads: bool = False,
    ) -> None:
        emitter = Emitter(self._queue.functions, context.pool.command_buffers[0])
        emitter.begin(once=True)
        emitter.opening_barrier()
        emit(emitter)
        if host_reads:
            emitter.host_barrier()
        emitter.end()
        context.value = self._queue.submit(context.submission, label)


def _place(buffer: DeviceBuffer) -> tuple[int, int]:
    return buffer.handle, buffer.offset


def _pieces(size: int) -> Iterator[tuple[int, int]]:
    for low in range(0, size, STAGING_BYTES):
        yield low, min(low + STAGING_BYTES, size)
