"""Cutting large blocks of memory into chunks: bookkeeping only, no driver calls."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

ALIGNMENT = 64
# Sizes up to here come in 16 steps an octave, larger ones in steps of a page, so that
# freed chunks fit again and lists of equal chunks stay few.
_FINE, _COARSE, _PAGE = 1 << 10, 1 << 20, 1 << 12
# How many chunks of the one size class that may hold too small ones are looked at.
_TRIES = 16
# A freed block of its own is given out again if no more than this share is wasted.
_WASTE = 4


def rounded(size_bytes: int) -> int:
    """The size of the chunk for so many bytes."""
    if size_bytes <= _FINE:
        step = ALIGNMENT
    elif size_bytes <= _COARSE:
        step = 1 << ((size_bytes - 1).bit_length() - 5)
    else:
        step = _PAGE
    return (size_bytes + step - 1) & -step


class Block:
    """One allocation of the driver, and the buffer over all of it."""

    __slots__ = (
        "address",
        "alone",
        "buffer",
        "first",
        "host",
        "memory",
        "size",
    )

    def __init__(
        self, size: int, address: int = 0, buffer: int = 0, memory: int = 0
    ) -> None:
        self.size = size
        self.address = address
        self.buffer = buffer
        self.memory = memory
        # The bytes as the host sees them (a NumPy array); None where it cannot.
        self.host: Any = None
        # Made for a single large chunk and never cut.
        self.alone = False
        self.first = Chunk(self, 0, size)

    @property
    def is_empty(self) -> bool:
        return self.first.free and self.first.size == self.size

    def chunks(self) -> Iterator[Chunk]:
        chunk: Chunk | None = self.first
        while chunk is not None:
            yield chunk
            chunk = chunk.after


class Chunk:
    """A piece of a block, linked to its neighbours."""

    __slots__ = (
        "address",
        "after",
        "before",
        "block",
        "free",
        "last_use",
        "offset",
        "size",
        "waiting",
    )

    def __init__(self, block: Block, offset: int, size: int) -> None:
        self.block = block
        self.offset = offset
        self.address = block.address + offset
        self.size = size
        # The list that takes the chunk when its owner drops it.
        self.waiting: list[Chunk] = []
        self.free = False
        self.before: Chunk | None = None
        self.after: Chunk | None = None
        # The timeline value after which no submitted work touches the bytes.
        self.last_use = 0


class ChunkAllocator:
    """Gives chunks out of blocks and takes them back.

    A dropped chunk waits in the list of its size (`chunk.waiting`), since a replayed
    program asks for the same sizes again. Lists are popped and appended to, which is
    atomic, so that this much needs no lock; all methods but `waiting` do. `flush`
    empties the lists and joins neighbours.
    """

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        # Bytes of all chunks given out and not flushed since, and their maximum.
        self.taken_bytes = self.peak_bytes = 0
        self._waiting: dict[int, list[Chunk]] = {}
        self._classes: dict[int, dict[Chunk, None]] = {}
        self._class_bits = 0
        self._alone: dict[Chunk, None] = {}

    def waiting(self, size: int) -> list[Chunk]:
        """The list of dropped chunks of a rounded size; always the same list."""
        return self._waiting.setdefault(size, [])

    def take(self, size: int) -> Chunk | None:
        """A chunk of at least `size` bytes, a rounded size, out of the blocks."""
        chunk = self._fitting(size) or self._fitting_alone(size)
        if chunk is None:
            return None
        self._remove(chunk)
        chunk.free = False
        if chunk.size > size and not chunk.block.alone:
            self._split(chunk, size)
        chunk.waiting = self.waiting(chunk.size)
        self.taken_bytes += chunk.size
        self.peak_bytes = max(self.peak_bytes, self.taken_bytes)
        return chunk

    def flush(self) -> None:
        """Make all dropped chunks one with their free neighbours."""
        for waiting in list(self._waiting.values()):
            while waiting:
                try:
                    chunk = waiting.pop()
                except IndexError:
                    break
                self.taken_bytes -= chunk.size
                self._coalesce(chunk)

    def in_use(self) -> tuple[int, int]:
        """Bytes and number of the chunks that have an owner."""
        dropped = [
            chunk.size for waiting in self._waiting.values() for chunk in waiting
        ]
        taken = sum(not c.free for block in self.blocks for c in block.chunks())
        return self.taken_bytes - sum(dropped), taken - len(dropped)

    def add(self, block: Block) -> None:
        self.blocks.append(block)
        block.first.free = True
        self._insert(block.first)

    def remove(self, block: Block) -> None:
        """Forget a block, which must be empty."""
        assert block.is_empty
        self._remove(block.first)
        self.blocks.remove(block)

    def empty_blocks(self) -> list[Block]:
        return [block for block in self.blocks if block.is_empty]

    def _fitting(self, size: int) -> Chunk | None:
        number = _class_of(size)
        for chunk in islice(self._classes.get(number, ()), _TRIES):
            if chunk.size >= size:
                return chunk
        larger = self._class_bits >> (number + 1) << (number + 1)
        if not larger:
            return None
        lowest = (larger & -larger).bit_length() - 1
        return next(iter(self._classes[lowest]))

    def _fitting_alone(self, size: int) -> Chunk | None:
        most = size + size // _WASTE
        fitting = [chunk for chunk in self._alone if size <= chunk.size <= most]
        return min(fitting, key=lambda chunk: chunk.size, default=None)

    def _split(self, chunk: Chunk, size: int) -> None:
        rest = Chunk(chunk.block, chunk.offset + size, chunk.size - size)
        rest.last_use = chunk.last_use
        rest.before, rest.after = chunk, chunk.after
        if chunk.after is not None:
            chunk.after.before = rest
        chunk.after = rest
        chunk.size = size
        rest.free = True
        self._insert(rest)

    def _coalesce(self, chunk: Chunk) -> None:
        before, after = chunk.before, chunk.after
        if after is not None and after.free:
            self._remove(after)
            _join(chunk, after)
        if before is not None and before.free:
            self._remove(before)
            _join(before, chunk)
            chunk = before
        chunk.free = True
        self._insert(chunk)

    def _insert(self, chunk: Chunk) -> None:
        if chunk.block.alone:
            self._alone[chunk] = None
            return
        number = _class_of(chunk.size)
        self._classes.setdefault(number, {})[chunk] = None
        self._class_bits |= 1 << number

    def _remove(self, chunk: Chunk) -> None:
        if chunk.block.alone:
            del self._alone[chunk]
            return
        number = _class_of(chunk.size)
        members = self._classes[number]
        del members[chunk]
        if not members:
            self._class_bits &= ~(1 << number)


def _join(chunk: Chunk, after: Chunk) -> None:
    chunk.size += after.size
    chunk.after = after.after
    if after.after is not None:
        after.after.before = chunk
    chunk.last_use = max(chunk.last_use, after.last_use)


def _class_of(size: int) -> int:
    """Four classes for each power of two."""
    bits = size.bit_length()
    return bits * 4 + (size >> (bits - 3) & 3)
