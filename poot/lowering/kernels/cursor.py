"""The index of a counted loop, and the addresses of the rows that it moves along.

A cursor is words of the arena: the index, 16 bytes for it, then an address a tensor
whose rows the body takes in turn. Kernels of the body take the address from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.cache import kernel_cache
from poot.lowering.plan.context import PlanContext
from poot.lowering.plan.layout import View
from poot.lowering.program import Access, BufferRange, Kernel
from poot.lowering.spirv.builder import KernelBuilder, Value
from poot.lowering.spirv.types import U32

INDEX_BYTES = 16
ENTRY_BYTES = 8
_FIRST_WORD = INDEX_BYTES // 4
_MASK = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Rows:
    """A contiguous tensor whose rows a loop takes in turn."""

    view: View

    @property
    def row_bytes(self) -> int:
        return self.view.size // self.view.shape[0] * self.view.dtype.itemsize

    @property
    def offset_bytes(self) -> int:
        """Where the first row stands in the buffer."""
        return self.view.layout.offset * self.view.dtype.itemsize


def cursor_bytes(rows: Sequence[Rows]) -> int:
    return INDEX_BYTES + ENTRY_BYTES * len(rows)


def index_of(cursor: BufferRange) -> BufferRange:
    """Where the index stands."""
    return BufferRange(cursor.space, cursor.index, cursor.offset, 4)


def entry_of(cursor: BufferRange, number: int) -> BufferRange:
    """Where the address of the rows of a number stands."""
    start = cursor.offset + INDEX_BYTES + ENTRY_BYTES * number
    return BufferRange(cursor.space, cursor.index, start, ENTRY_BYTES)


def begin(
    ctx: PlanContext, cursor: BufferRange, rows: Sequence[Rows], first: int
) -> None:
    """Plan the launch that points the cursor at row `first`."""
    words = [first]
    for each in rows:
        words += _halves(each.offset_bytes + first * each.row_bytes)
    bases = [each.view for each in rows]
    flags = tuple(ctx.indirect(base) for base in bases)
    kernel = begin_kernel(ctx.info, flags)
    ctx.emit(
        kernel, [*bases, cursor], 1, metadata=words, reads=[], writes=[_all(cursor)]
    )


def advance(
    ctx: PlanContext, cursor: BufferRange, rows: Sequence[Rows], step: int
) -> None:
    """Plan the launch that moves the cursor by `step` rows."""
    words = [step & _MASK]
    for each in rows:
        words += _halves(step * each.row_bytes)
    kernel = advance_kernel(ctx.info, len(rows))
    ctx.emit(kernel, [cursor], 1, metadata=words)


def _all(cursor: BufferRange) -> BufferRange:
    size = -(-cursor.size // 16) * 16
    return BufferRange(cursor.space, cursor.index, cursor.offset, size)


def _halves(number: int) -> tuple[int, int]:
    """The low and the high word of 64 bits."""
    return number & _MASK, number >> 32 & _MASK


@kernel_cache
def begin_kernel(info: DeviceInfo, indirect: tuple[bool, ...]) -> Kernel:
    """Operands: the tensors, the cursor. Metadata: the index, an offset a tensor."""
    k = KernelBuilder("loop_begin", info, (1, 1, 1))
    bases = [
        k.operand(f"rows{number}", Access.READ, indirect=flag)
        for number, flag in enumerate(indirect)
    ]
    cursor = k.operand("cursor", Access.WRITE)
    bound = _FIRST_WORD + 2 * len(bases)
    words = [k.metadata(number) for number in range(1 + 2 * len(bases))]
    k.store(cursor, U32, 0, words[0], bound)
    for number, base in enumerate(bases):
        address = k.address(base)
        low, high = k.extract(address, 0), k.extract(address, 1)
        moved = _plus(k, low, high, *words[1 + 2 * number : 3 + 2 * number])
        for half, word in enumerate(moved):
            k.store(cursor, U32, _FIRST_WORD + 2 * number + half, word, bound)
    return k.finish("1 invocation")


@kernel_cache
def advance_kernel(info: DeviceInfo, count: int) -> Kernel:
    """Operand: the cursor. Metadata: what to add to the index, and to each address."""
    k = KernelBuilder("loop_advance", info, (1, 1, 1))
    cursor = k.operand("cursor", Access.UPDATE)
    bound = _FIRST_WORD + 2 * count
    words = [k.metadata(number) for number in range(1 + 2 * count)]
    index = k.load(cursor, U32, 0, bound)
    k.store(cursor, U32, 0, k.add(index, words[0]), bound)
    for number in range(count):
        place = _FIRST_WORD + 2 * number
        low, high = (k.load(cursor, U32, place + i, bound) for i in range(2))
        moved = _plus(k, low, high, *words[1 + 2 * number : 3 + 2 * number])
        for half, word in enumerate(moved):
            k.store(cursor, U32, place + half, word, bound)
    return k.finish("1 invocation")


def _plus(
    k: KernelBuilder, low: Value, high: Value, more_low: Value, more_high: Value
) -> tuple[Value, Value]:
    """The sum of two numbers of 64 bits, modulo 2^64."""
    total = k.add(low, more_low)
    carry = k.convert(k.lt(total, low), U32)
    return total, k.add(k.add(high, more_high), carry)
