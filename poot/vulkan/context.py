"""Replay contexts: command buffers with the small memory that belongs to one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from poot.lowering.program import (
    TABLE_SPACES,
    BufferRange,
    Copy,
    Dispatch,
    Program,
    Space,
)
from poot.vulkan.addresses import AddressPlan, Place, Resolver, aligned, place_of
from poot.vulkan.completion import Completion
from poot.vulkan.emit import Emitter
from poot.vulkan.memory import DeviceBuffer
from poot.vulkan.pipelines import Pipeline
from poot.vulkan.queue import Submission
from poot.vulkan.recorder import Barrier, CommandList
from poot.vulkan.slots import slot_bytes

_WORD_BYTES = 4


class ContextLayout:
    """Where table, slots and operand blocks stand in a context's memory."""

    def __init__(self, program: Program, plan: AddressPlan) -> None:
        self.slots_offset = plan.table_bytes
        self.block_offset = self.slots_offset + aligned(slot_bytes(program.slots))
        self.memory_bytes = self.block_offset + plan.block_bytes
        self.packet_bytes = aligned(
            max((w.offset + _WORD_BYTES for w in program.witnesses), default=0)
        )


class Context:
    """One recorded replay. The host writes its memory only while it is idle."""

    __slots__ = (
        "cached",
        "completion",
        "following",
        "memory",
        "packet",
        "readback",
        "slots",
        "submission",
        "table",
        "value",
    )

    def __init__(
        self,
        layout: ContextLayout,
        memory: DeviceBuffer,
        readback: DeviceBuffer,
        submission: Submission,
    ) -> None:
        self.memory = memory
        self.readback = readback
        self.table = _bytes(memory, 0, layout.slots_offset).cast("Q")
        self.slots = _bytes(memory, layout.slots_offset, layout.block_offset)
        self.packet = _bytes(readback, 0, layout.packet_bytes).cast("I")
        # Cells of buffers without bytes, and witnesses that nobody writes, stay zero.
        for buffer in (memory, readback):
            if buffer.size_bytes:
                buffer.host[:] = 0
        # What the table holds; nothing has address -1, so that each cell is written.
        self.cached = [-1] * len(self.table)
        self.submission = submission
        self.completion: Completion | None = None
        # The number of the context to use after this one.
        self.following = 0
        self.value = 0


def _bytes(buffer: DeviceBuffer, low: int, high: int) -> memoryview[int]:
    """The host's view of some bytes."""
    if low == high:
        return memoryview(b"")
    return memoryview(buffer.host)[low:high]


class ContextRecorder:
    """Writes a command list into the command buffers of one context after another."""

    def __init__(
        self,
        commands: CommandList,
        plan: AddressPlan,
        layout: ContextLayout,
        pipelines: Sequence[Pipeline],
        shared: Mapping[Place, DeviceBuffer],
        metadata: DeviceBuffer,
        *,
        host_reads: bool,
    ) -> None:
        self._commands = commands
        self._dispatches = [c for c in commands.commands if isinstance(c, Dispatch)]
        self._plan = plan
        self._layout = layout
        self._pipelines = pipelines
        self._shared = shared
        self._metadata = metadata
        self._host_reads = host_reads

    def record(self, context: Context, emitters: Sequence[Emitter]) -> None:
        """Fill a context's command buffers and what never changes of its memory."""
        places = self._places(context)
        resolver = Resolver(
            self._plan,
            bases={
                place: base.address + start for place, (base, start) in places.items()
            },
            table=context.memory.address,
            metadata=self._metadata.address,
            block=context.memory.address + self._layout.block_offset,
        )
        self._write_constants(context, resolver, places)
        number = 0
        for emitter, buffer in zip(emitters, self._commands.buffers, strict=True):
            emitter.begin(once=False)
            for command in buffer:
                if isinstance(command, Dispatch):
                    self._dispatch(emitter, resolver, number, command)
                    number += 1
                elif isinstance(command, Copy):
                    _copy(emitter, command, places)
                else:
                    _barrier(emitter, command)
            if emitter is emitters[-1] and self._host_reads:
                emitter.host_barrier()
            emitter.end()

    def _places(self, context: Context) -> dict[Place, tuple[DeviceBuffer, int]]:
        """The buffer of each fixed place, and where in it the place begins."""
        places = {place: (buffer, 0) for place, buffer in self._shared.items()}
        places[Space.SLOT, 0] = context.memory, self._layout.slots_offset
        places[Space.WITNESS, 0] = context.readback, 0
        return places

    def _write_constants(
        self,
        context: Context,
        resolver: Resolver,
        places: Mapping[Place, tuple[DeviceBuffer, int]],
    ) -> None:
        for number, (place, offset) in enumerate(self._plan.entries):
            if place[0] not in TABLE_SPACES:
                buffer, start = places[place]
                context.table[number] = buffer.address + start + offset
        if self._plan.block_bytes:
            low = self._layout.block_offset
            block = resolver.block(self._dispatches)
            memoryview(context.memory.host)[low : low + len(block)] = block

    def _dispatch(
        self, emitter: Emitter, resolver: Resolver, number: int, command: Dispatch
    ) -> None:
        pipeline = self._pipelines[number]
        push = resolver.pushed(number, command)
        emitter.dispatch(pipeline.handle, pipeline.layout, push, command.grid)


def _copy(
    emitter: Emitter, copy: Copy, places: Mapping[Place, tuple[DeviceBuffer, int]]
) -> None:
    def where(span: BufferRange) -> tuple[int, int]:
        buffer, start = places[place_of(span)]
        return buffer.handle, buffer.offset + start + span.offset

    if copy.source.size:
        emitter.copy(where(copy.source), where(copy.target), copy.source.size)


def _barrier(emitter: Emitter, barrier: Barrier) -> None:
    if barrier.opening:
        emitter.opening_barrier()
    else:
        emitter.barrier()
