"""Device memory: buffers cut from large blocks, with limits, statistics, recovery."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from poot.core.errors import LimitError, OutOfMemory
from poot.vulkan.allocator import Block, Chunk, ChunkAllocator, rounded
from poot.vulkan.blocks import BlockSource
from poot.vulkan.queue import Queue

if TYPE_CHECKING:
    from poot.vulkan.completion import Completion

MIB = 1 << 20
_SMALLEST_BLOCK, _LARGEST_BLOCK = 64 << 10, 256 * MIB
# Blocks are this part of the heap, within the two sizes above.
_BLOCK_SHARE = 32
# Empty blocks beyond this part of the heap go back to the driver.
_KEPT_SHARE = 2


class DeviceBuffer:
    """Some bytes of device memory, given back when closed or collected.

    `ready` is the timeline value at which the bytes are written, `last_use` the one
    after which nothing submitted touches them. `completion` is the call that the bytes
    depend on, if a check of it may yet fail. `shared` says that several owners hold the
    object, so that nobody may write to it in place. One of size 0 has address 0.
    """

    __slots__ = (
        "__weakref__",
        "_chunk",
        "address",
        "completion",
        "last_use",
        "ready",
        "shared",
        "size_bytes",
    )

    def __init__(self, chunk: Chunk | None, size_bytes: int) -> None:
        self._chunk = chunk
        self.size_bytes = size_bytes
        self.ready = 0
        self.shared = False
        self.completion: Completion | None = None
        if chunk is None:
            self.address = self.last_use = 0
        else:
            self.address = chunk.address
            self.last_use = chunk.last_use

    @property
    def handle(self) -> int:
        """The VkBuffer of the block that holds the bytes, from `offset` on."""
        return self._chunk.block.buffer if self._chunk else 0

    @property
    def offset(self) -> int:
        return self._chunk.offset if self._chunk else 0

    @property
    def allocated_bytes(self) -> int:
        """The size rounded up; the bytes past `size_bytes` may be written too."""
        return self._chunk.size if self._chunk else 0

    @property
    def host(self) -> Any:
        """The bytes as a NumPy array of u8; None where the host cannot see them."""
        chunk = self._chunk
        if chunk is None or chunk.block.host is None:
            return None
        return chunk.block.host[chunk.offset : chunk.offset + chunk.size]

    @property
    def is_closed(self) -> bool:
        return self._chunk is None and self.size_bytes > 0

    def close(self) -> None:
        """Give the bytes back; submitted work may still use them."""
        chunk = self._chunk
        if chunk is not None:
            self._chunk = None
            self.address = 0
            chunk.last_use = self.last_use
            # Finalizers run anywhere, under the pool's lock too: appending needs none.
            chunk.waiting.append(chunk)

    __del__ = close


@dataclass(frozen=True, slots=True)
class MemoryStatistics:
    """What a pool holds: bytes in buffers, bytes in blocks, and their counts.

    The peak is of the bytes in buffers and in dropped ones that wait for reuse.
    """

    in_use_bytes: int
    peak_bytes: int
    reserved_bytes: int
    cap_bytes: int
    buffers: int
    blocks: int


class Pool:
    """Buffers of one memory type."""

    # `reclaim` frees what waits for submitted work; `block_bytes` None: by the cap.
    def __init__(
        self,
        source: BlockSource,
        queue: Queue,
        *,
        cap_bytes: int,
        block_bytes: int | None,
        max_allocation_bytes: int,
        reclaim: Callable[[], None],
    ) -> None:
        self.cap_bytes = cap_bytes
        self._source = source
        self._queue = queue
        self._max_allocation_bytes = max_allocation_bytes
        self._reclaim = reclaim
        share = min(cap_bytes // _BLOCK_SHARE, _LARGEST_BLOCK)
        self._block_bytes = block_bytes or rounded(max(share, _SMALLEST_BLOCK))
        self._lock = threading.Lock()
        self._chunks = ChunkAllocator()
        self._reserved = 0

    @property
    def memory_type(self) -> int:
        return self._source.memory_type.number

    def allocate(self, size_bytes: int) -> DeviceBuffer:
        """A buffer of unknown content; its address is a multiple of 64."""
        if size_bytes == 0:
            return DeviceBuffer(None, 0)
        size = rounded(size_bytes)
        try:
            chunk = self._chunks.waiting(size).pop()
        except IndexError:
            chunk = self._allocate_anew(size, size_bytes)
        return DeviceBuffer(chunk, size_bytes)

    def dropped(self, size_bytes: int) -> list[Chunk]:
        """The list of dropped chunks for a size; pop one to reuse it."""
        return self._chunks.waiting(rounded(size_bytes))

    def statistics(self) -> MemoryStatistics:
        with self._lock:
            in_use_bytes, buffers = self._chunks.in_use()
            return MemoryStatistics(
                in_use_bytes=in_use_bytes,
                peak_bytes=self._chunks.peak_bytes,
                reserved_bytes=self._reserved,
                cap_bytes=self.cap_bytes,
                buffers=buffers,
                blocks=len(self._chunks.blocks),
            )

    def release_empty(self) -> None:
        """Give blocks without buffers back to the driver, once they are idle."""
        with self._lock:
            self._chunks.flush()
            for block in self._chunks.empty_blocks():
                self._queue.wait(block.first.last_use)
                self._release(block)

    def close(self) -> None:
        """Free all blocks, used or not; the device must be idle."""
        with self._lock:
            for block in self._chunks.blocks:
                self._source.release(block)
            self._chunks = ChunkAllocator()
            self._reserved = 0

    def _allocate_anew(self, size: int, asked_bytes: int) -> Chunk:
        """A chunk that no dropped one can be: from a block's free space, at first."""
        if asked_bytes > self._max_allocation_bytes:
            raise LimitError(
                f"an array needs {asked_bytes} bytes in one piece; the device "
                f"allocates at most {self._max_allocation_bytes}. Split the array"
            )
        with self._lock:
            chunk = self._chunks.take(size)
        chunk = chunk or self._allocate_slowly(size)
        if chunk is None:
            raise self._out_of_memory(asked_bytes)
        return chunk

    def _allocate_slowly(self, size: int) -> Chunk | None:
        # In growing order of cost: join free chunks and ask the driver; give cached
        # blocks back first; have Python drop what only cycles keep alive.
        for reclaim in (None, self.release_empty, self._collect_garbage):
            if reclaim is not None:
                reclaim()
            with self._lock:
                self._chunks.flush()
                self._trim()
                chunk = self._chunks.take(size) or self._grow(size)
            if chunk is not None:
                return chunk
        return None

    def _collect_garbage(self) -> None:
        gc.collect()
        self._reclaim()
        self.release_empty()

    def _grow(self, size: int) -> Chunk | None:
        """Make a block for `size`; None where neither cap nor driver allows one."""
        alone = size > self._block_bytes // 2
        wanted = [size] if alone else [self._block_bytes, size]
        for block_bytes in wanted:
            if self._reserved + block_bytes > self.cap_bytes:
                continue
            block = self._source.make(block_bytes)
            if block is not None:
                block.alone = alone
                self._reserved += block.size
                self._chunks.add(block)
                return self._chunks.take(size)
        return None

    def _trim(self) -> None:
        """Let go of empty blocks that are more than a cache needs."""
        empty = self._chunks.empty_blocks()
        kept = sum(block.size for block in empty)
        for block in empty:
            if kept <= self.cap_bytes // _KEPT_SHARE:
                return
            if block.first.last_use <= self._queue.completed:
                kept -= block.size
                self._release(block)

    def _release(self, block: Block) -> None:
        self._chunks.remove(block)
        self._reserved -= block.size
        self._source.release(block)

    def _out_of_memory(self, asked_bytes: int) -> OutOfMemory:
        held = self.statistics()
        return OutOfMemory(
            f"{asked_bytes} bytes of device memory do not fit: {held.in_use_bytes} "
            f"of {held.cap_bytes} bytes are in use by {held.buffers} buffers, "
            f"{held.cap_bytes - held.in_use_bytes} are left ({held.blocks} blocks hold "
            f"{held.reserved_bytes} bytes). Drop arrays, or work on smaller pieces"
        )
