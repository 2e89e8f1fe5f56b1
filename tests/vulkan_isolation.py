"""Runs a program launch by launch, each operand alone between poisoned guards.

What a launch really reads and writes is compared with what it declares. It runs twice,
with other poison in the bytes that it does not declare to read: what it writes must not
depend on that, and what stands where it may not write must be there afterwards.

Where kernels keep addresses in the arena, those of operands that stand alone are of no
use to later launches: what is kept says which byte of which buffer they point to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from poot.core.dtypes import uint8
from poot.core.types import TensorType
from poot.lowering.program import (
    Branch,
    BufferRange,
    Copy,
    Dispatch,
    Loop,
    Node,
    Program,
    Space,
)
from poot.vulkan.addresses import Place, place_of
from poot.vulkan.device import Device
from poot.vulkan.executable import Executable
from poot.vulkan.slots import make_packer, slot_bytes

GUARD_BYTES = 4096
# NaNs of every float and absurd indices; and something that differs in every byte.
POISONS = 0xFF, 0x55


def poison_of(run: int, operand: int) -> int:
    """Another byte for each operand, so that poison passed on shows as well."""
    return POISONS[run] ^ operand & 0x3F


_PADDING = 16
_ENTRY_BYTES = 8

# What an address in the arena is kept as: no address that a device has.
_TAG, _STRIDE = 1 << 60, 1 << 44

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class IsolationFault(AssertionError):
    """A launch touches what it does not declare."""


@dataclass(slots=True)
class _Memory:
    """The bytes of each buffer of the program, padded as on a device."""

    buffers: dict[Place, Bytes]
    sizes: dict[Place, int]
    # Where in the arena addresses stand that launches take operands from.
    entries: frozenset[int]

    def add(self, place: Place, size: int, data: Bytes | None = None) -> None:
        padded = -(-max(size, 1) // _PADDING) * _PADDING
        held = np.full(padded, POISONS[0], np.uint8)
        if data is not None:
            held[: data.size] = data
        self.buffers[place], self.sizes[place] = held, size

    def span(self, span: BufferRange) -> Bytes:
        return self.buffers[place_of(span)][span.offset : span.offset + span.size]

    def pointed_to(self, entry: BufferRange) -> BufferRange:
        """What the address at an entry points to, from there on."""
        (address,) = self.span(entry)[:_ENTRY_BYTES].view("<u8").tolist()
        number, offset = divmod(address - _TAG, _STRIDE)
        space, index = list(self.buffers)[number]
        return BufferRange(space, index, offset - _STRIDE // 2, entry.size)

    def keep_addresses(
        self, after: Bytes, starts: Sequence[tuple[int, int, Place]]
    ) -> None:
        """Make addresses in a copy of the arena say what they point to.

        `starts` has the address and the size of each copy, and what it is a copy of.
        """
        for entry in self.entries:
            start = GUARD_BYTES + entry
            held = after[start : start + _ENTRY_BYTES].view("<u8")
            for address, size, place in starts:
                offset = int(held[0]) - address
                if 0 <= offset < size:
                    number = list(self.buffers).index(place)
                    inside = offset - GUARD_BYTES + _STRIDE // 2
                    held[0] = _TAG + number * _STRIDE + inside
                    break

    def word(self, span: BufferRange) -> int:
        return int(self.span(span).view("<u4")[0])


def run_isolated(
    device: Device,
    program: Program,
    arguments: Sequence[Any],
    consts: Sequence[Any] = (),
) -> list[Bytes]:
    """The bytes of the program's results; IsolationFault where a launch strays.

    `arguments` has an array an input, a number where the input is a slot.
    """
    memory = _fill(program, arguments, consts)
    _run(device, program.body, memory)
    return [_result(program, number, memory) for number in range(len(program.results))]


def _run(device: Device, nodes: Sequence[Node], memory: _Memory) -> None:
    for node in nodes:
        if isinstance(node, Copy):
            memory.span(node.target)[:] = memory.span(node.source)
        elif isinstance(node, Dispatch):
            _step(device, node, memory)
        elif isinstance(node, Loop):
            for _ in range(node.trips):
                _run(device, node.body, memory)
        elif isinstance(node, Branch):
            _run(device, node.bodies[memory.word(node.selector)], memory)
        else:
            _run(device, node.predicate, memory)
            while memory.word(node.flag):
                _run(device, node.body, memory)
                _run(device, node.predicate, memory)


def _fill(program: Program, arguments: Sequence[Any], consts: Sequence[Any]) -> _Memory:
    entries = frozenset(
        span.offset
        for node in program.dispatches
        for number, span in enumerate(node.operands)
        if _is_entry(node, number)
    )
    memory = _Memory({}, {}, entries)
    slots = {slot.input_index for slot in program.slots}
    for number, (type, given) in enumerate(zip(program.inputs, arguments, strict=True)):
        if number not in slots:
            space = Space.STATE if number in program.donated else Space.ARGUMENT
            memory.add((space, number), type.size_bytes, _bytes(given))
    for number, (type, given) in enumerate(zip(program.consts, consts, strict=True)):
        memory.add((Space.CONST, number), type.size_bytes, _bytes(given))
    for number, spec in enumerate(program.results):
        memory.add((Space.RESULT, number), spec.type.size_bytes)
    memory.add((Space.ARENA, 0), program.arena_bytes)
    packet = max((w.offset + 4 for w in program.witnesses), default=0)
    memory.add((Space.WITNESS, 0), packet, np.zeros(packet, np.uint8))
    size = slot_bytes(program.slots)
    block = np.zeros(size, np.uint8)
    if program.slots:
        values = [arguments[slot.input_index] for slot in program.slots]
        make_packer(program.slots)(memoryview(block), values)
    memory.add((Space.SLOT, 0), size, block)
    return memory


def _bytes(array: Any) -> Bytes:
    return np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)


def _step(device: Device, node: Dispatch, memory: _Memory) -> None:
    """Run one launch on copies of its operands and take over what it writes."""
    operands = tuple(
        memory.pointed_to(span) if _is_entry(node, number) else span
        for number, span in enumerate(node.operands)
    )
    node = replace(node, operands=operands)
    runs = []
    for run in range(len(POISONS)):
        before = [
            _stand_alone(node, number, memory, poison_of(run, number))
            for number in range(len(node.operands))
        ]
        runs.append((before, _launch(device, node, before, memory)))
    for number, span in enumerate(node.operands):
        place = place_of(span)
        held = memory.buffers[place]
        inner = slice(GUARD_BYTES, GUARD_BYTES + held.size)
        # A byte that is written differs from one poison at least.
        written = np.zeros(held.size + 2 * GUARD_BYTES, bool)
        for before, after in runs:
            written |= before[number] != after[number]
        strayed = written.copy()
        strayed[inner] &= ~_allowed(node, number, memory)
        _report(node, number, "writes bytes that it does not declare", strayed)
        first, second = (after[number] for _, after in runs)
        _report(
            node,
            number,
            "gets results from bytes that the launch does not declare to read",
            written & (first != second),
        )
        held[written[inner]] = first[inner][written[inner]]


def _is_entry(node: Dispatch, number: int) -> bool:
    """Whether an operand's address is loaded from its range, which is in the arena."""
    in_arena = node.operands[number].space is Space.ARENA
    return in_arena and node.kernel.operands[number].indirect


def _report(node: Dispatch, number: int, what: str, bad: Any) -> None:
    if bad.any():
        name, span = node.kernel.operands[number].name, node.operands[number]
        first = int(np.argmax(bad)) - GUARD_BYTES
        raise IsolationFault(
            f"{node.label or node.kernel.name}: operand {name} ({span}) {what}: "
            f"{int(bad.sum())} bytes, the first at {first}\n{node}"
        )


def _stand_alone(node: Dispatch, number: int, memory: _Memory, poison: int) -> Bytes:
    """A copy of an operand's buffer between guards; poison where nothing is read."""
    place = place_of(node.operands[number])
    held = memory.buffers[place]
    copy = np.full(held.size + 2 * GUARD_BYTES, poison, np.uint8)
    inner = copy[GUARD_BYTES : GUARD_BYTES + held.size]
    for read in node.reads:
        if place_of(read) == place:
            part = slice(read.offset, read.offset + read.size)
            inner[part] = held[part]
    return copy


def _allowed(node: Dispatch, number: int, memory: _Memory) -> Any:
    """Which bytes of an operand's buffer it may write; padding is free to writers."""
    place = place_of(node.operands[number])
    may = np.zeros(memory.buffers[place].size, bool)
    if not node.kernel.operands[number].access.writes:
        return may
    for write in node.writes:
        if place_of(write) == place:
            may[write.offset : write.offset + write.size] = True
            if write.offset + write.size == memory.sizes[place]:
                may[memory.sizes[place] :] = True
    return may


def _launch(
    device: Device, node: Dispatch, before: Sequence[Bytes], memory: _Memory
) -> list[Bytes]:
    operands = tuple(
        BufferRange(Space.CONST, number, GUARD_BYTES + span.offset, span.size)
        for number, span in enumerate(node.operands)
    )
    alone = replace(node, operands=operands, reads=(), writes=())
    types = tuple(TensorType((copy.size,), uint8) for copy in before)
    program = Program(body=(alone,), inputs=(), results=(), consts=types)
    buffers = [device.upload(copy) for copy in before]
    executable = Executable(device, program, buffers)
    executable.call([])[1].wait()
    after = [np.empty_like(copy) for copy in before]
    for buffer, copy in zip(buffers, after, strict=True):
        device.download(buffer, copy)
    places = [place_of(span) for span in node.operands]
    starts = [
        (buffer.address, buffer.size_bytes, place)
        for buffer, place in zip(buffers, places, strict=True)
    ]
    for copy, place in zip(after, places, strict=True):
        if place[0] is Space.ARENA:
            memory.keep_addresses(copy, starts)
    executable.close()
    return after


def _result(program: Program, number: int, memory: _Memory) -> Bytes:
    spec = program.results[number]
    place: Place = (Space.RESULT, number)
    if spec.input_index is not None:
        donated = spec.input_index in program.donated
        place = (Space.STATE if donated else Space.ARGUMENT), spec.input_index
    elif spec.const_index is not None:
        place = Space.CONST, spec.const_index
    return memory.buffers[place][: spec.type.size_bytes]
