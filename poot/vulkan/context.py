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
from poot.vulkan.commands import CommandList, IndirectDispatch
from poot.vulkan.completion import Completion
from poot.vulkan.emit import Emitter
from poot.vulkan.memory import DeviceBuffer
from poot.vulkan.pipelines import Pipeline
from poot.vulkan.queue import Submission
from poot.vulkan.replay import ReadyStep
from poot.vulkan.slots import slot_bytes

_WORD_BYTES = 4

# The buffer of each fixed place, and where in it the place begins.
_Places = Mapping[Place, tuple[DeviceBuffer, int]]


class ContextLayout:
    """Where table, slots and operand blocks stand in a context's memory.

    The packet that the host reads has the witnesses, then the words that it polls.
    """

    def __init__(
        self, program: Program, plan: AddressPlan, commands: CommandList
    ) -> None:
        self.slots_offset = plan.table_bytes
        self.block_offset = self.slots_offset + aligned(slot_bytes(program.slots))
        self.memory_bytes = self.block_offset + plan.block_bytes
        words = [witness.offset for witness in program.witnesses]
        words += [poll.word for poll in commands.polls]
        self.packet_bytes = aligned(max((w + _WORD_BYTES for w in words), default=0))


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
        "steps",
        "submission",
        "table",
        "value",
    )

    def __init__(
        self,
        layout: ContextLayout,
        memory: DeviceBuffer,
        readback: DeviceBuffer,
        steps: tuple[ReadyStep, ...],
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
        self.steps = steps
        # The only step, as for most programs.
        only = steps[0] if len(steps) == 1 else None
        self.submission = only if isinstance(only, Submission) else None
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
        self._dispatches = commands.launches
        self._numbers = {id(d): n for n, d in enumerate(self._dispatches)}
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
        pushed = [resolver.pushed(n, d) for n, d in enumerate(self._dispatches)]
        flow, resubmitted = self._commands.flow(), self._commands.resubmitted
        read_by_host = flow.polled | (flow.last if self._host_reads else frozenset())
        for number, emitter in enumerate(emitters):
            emitter.begin(resubmitted=number in resubmitted)
            for command in self._commands.buffers[number]:
                if isinstance(command, Dispatch):
                    self._dispatch(emitter, pushed, command, places)
                elif isinstance(command, Copy):
                    _copy(emitter, command, places)
                elif command.opening:
                    emitter.opening_barrier(indirect=command.indirect)
                else:
                    emitter.barrier(indirect=command.indirect)
            if number in read_by_host:
                emitter.host_barrier()
            emitter.end()

    def _places(self, context: Context) -> dict[Place, tuple[DeviceBuffer, int]]:
        places = {place: (buffer, 0) for place, buffer in self._shared.items()}
        places[Space.SLOT, 0] = context.memory, self._layout.slots_offset
        places[Space.WITNESS, 0] = context.readback, 0
        return places

    def _write_constants(
        self,
        context: Context,
        resolver: Resolver,
        places: _Places,
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
        self,
        emitter: Emitter,
        pushed: Sequence[bytes],
        command: Dispatch,
        places: _Places,
    ) -> None:
        number = self._numbers[id(command)]
        pipeline = self._pipelines[number]
        launch = pipeline.handle, pipeline.layout, pushed[number]
        if isinstance(command, IndirectDispatch):
            emitter.dispatch_indirect(*launch, _where(command.arguments, places))
        else:
            emitter.dispatch(*launch, command.grid)


def _copy(emitter: Emitter, copy: Copy, places: _Places) -> None:
    if copy.source.size:
        source, target = _where(copy.source, places), _where(copy.target, places)
        emitter.copy(source, target, copy.source.size)


def _where(span: BufferRange, places: _Places) -> tuple[int, int]:
    """The VkBuffer of a range and where in it that begins."""
    buffer, start = places[place_of(span)]
    return buffer.handle, buffer.offset + start + span.offset
