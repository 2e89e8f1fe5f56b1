"""Which address each kernel operand gets: push constants, table entries, blocks."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from poot.core.errors import LoweringError
from poot.lowering.program import TABLE_SPACES, BufferRange, Dispatch, Space

Place = tuple[Space, int]

# One buffer each, a context or an executable: their ranges have offsets, no numbers.
_SINGLE = frozenset({Space.SLOT, Space.WITNESS, Space.ARENA})


def place_of(span: BufferRange) -> Place:
    """The buffer that a range lies in."""
    return span.space, 0 if span.space in _SINGLE else span.index


def aligned(size_bytes: int) -> int:
    return (size_bytes + 15) & -16


@dataclass(frozen=True, slots=True)
class AddressPlan:
    """Where a program's addresses and constant words stand.

    `entries` are the cells of the address table: a buffer and an offset in it each.
    `metadata` holds the words of all dispatches, `metadata_offsets` where each one's
    begin. `block_offsets` says where the operand block of each `wide` dispatch stands.
    """

    entries: tuple[tuple[Place, int], ...]
    metadata: bytes
    metadata_offsets: tuple[int, ...]
    block_offsets: tuple[int, ...]
    block_bytes: int

    @property
    def table_bytes(self) -> int:
        return aligned(8 * len(self.entries))


def plan_addresses(dispatches: Sequence[Dispatch]) -> AddressPlan:
    """Lay out the tables for the dispatches of a program."""
    entries: dict[tuple[Place, int], None] = {}
    words: dict[tuple[int, ...], int] = {}
    metadata = bytearray()
    metadata_offsets, block_offsets = [], []
    block_bytes = 0
    for dispatch in dispatches:
        for operand, span in _operands(dispatch):
            if operand:
                entries[place_of(span), span.offset] = None
        if dispatch.metadata not in words:
            words[dispatch.metadata] = len(metadata)
            wrapped = [word & 0xFFFFFFFF for word in dispatch.metadata]
            packed = struct.pack(f"<{len(wrapped)}I", *wrapped)
            metadata += packed.ljust(aligned(len(packed)), b"\0")
        metadata_offsets.append(words[dispatch.metadata])
        block_offsets.append(block_bytes)
        if dispatch.kernel.wide:
            block_bytes += aligned(8 * (1 + len(dispatch.operands)))
    return AddressPlan(
        entries=tuple(entries),
        metadata=bytes(metadata),
        metadata_offsets=tuple(metadata_offsets),
        block_offsets=tuple(block_offsets),
        block_bytes=block_bytes,
    )


def _operands(dispatch: Dispatch) -> Iterator[tuple[bool, BufferRange]]:
    """Each operand's range, with whether its address comes from the table."""
    kernel = dispatch.kernel
    for operand, span in zip(kernel.operands, dispatch.operands, strict=True):
        if span.space in TABLE_SPACES and not operand.indirect:
            raise LoweringError(
                f"kernel {kernel.name}: operand {operand.name} is {span}, whose "
                "address changes from call to call, so that it must be indirect"
            )
        # In the arena the range is the entry itself.
        yield operand.indirect and span.space is not Space.ARENA, span


class Resolver:
    """The addresses of one replay context."""

    def __init__(
        self,
        plan: AddressPlan,
        *,
        bases: Mapping[Place, int],
        table: int,
        metadata: int,
        block: int,
    ) -> None:
        self._plan = plan
        self._bases = bases
        self._metadata = metadata
        self._block = block
        self._cells = {
            entry: table + 8 * number for number, entry in enumerate(plan.entries)
        }

    def pushed(self, number: int, dispatch: Dispatch) -> bytes:
        """The push constants of dispatch `number`."""
        if dispatch.kernel.wide:
            return struct.pack("<Q", self._block + self._plan.block_offsets[number])
        return self.operands(number, dispatch)

    def operands(self, number: int, dispatch: Dispatch) -> bytes:
        """The addresses of a dispatch in the order of the kernel ABI."""
        addresses = []
        if dispatch.kernel.uses_metadata:
            addresses.append(self._metadata + self._plan.metadata_offsets[number])
        for indirect, span in _operands(dispatch):
            place = place_of(span)
            if indirect:
                addresses.append(self._cells[place, span.offset])
            else:
                addresses.append(self._bases[place] + span.offset)
        return struct.pack(f"<{len(addresses)}Q", *addresses)

    def block(self, dispatches: Sequence[Dispatch]) -> bytes:
        """The operand blocks of all wide dispatches."""
        made = bytearray(self._plan.block_bytes)
        for number, dispatch in enumerate(dispatches):
            if dispatch.kernel.wide:
                raw = self.operands(number, dispatch)
                start = self._plan.block_offsets[number]
                made[start : start + len(raw)] = raw
        return bytes(made)
