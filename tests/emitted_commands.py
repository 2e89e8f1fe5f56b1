"""What the recorder really tells Vulkan, read at the binding and judged by itself.

The commands that reach a command buffer are turned back into a CommandList: launches by
their pipelines, grids and addresses, copies by their places, barriers by their scopes.
That list must be the recorded one, and it is what the race checker sees. So must the
submissions be the recorded steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from poot.lowering.program import TABLE_SPACES, BufferRange, Copy, Dispatch, Space
from poot.vulkan._vk import ffi
from poot.vulkan.addresses import Place, place_of
from poot.vulkan.commands import (
    Barrier,
    Command,
    CommandList,
    IndirectDispatch,
    Poll,
    Repeat,
    Step,
    Submit,
)
from poot.vulkan.context import Context, ContextRecorder
from poot.vulkan.declarations import (
    VK_ACCESS_HOST_READ_BIT,
    VK_ACCESS_INDIRECT_COMMAND_READ_BIT,
    VK_ACCESS_MEMORY_READ_BIT,
    VK_ACCESS_MEMORY_WRITE_BIT,
    VK_ACCESS_SHADER_READ_BIT,
    VK_ACCESS_SHADER_WRITE_BIT,
    VK_ACCESS_TRANSFER_READ_BIT,
    VK_ACCESS_TRANSFER_WRITE_BIT,
    VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT,
    VK_PIPELINE_STAGE_ALL_COMMANDS_BIT,
    VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
    VK_PIPELINE_STAGE_DRAW_INDIRECT_BIT,
    VK_PIPELINE_STAGE_HOST_BIT,
    VK_PIPELINE_STAGE_TRANSFER_BIT,
)
from poot.vulkan.emit import Emitter
from poot.vulkan.memory import DeviceBuffer
from poot.vulkan.queue import Submission
from poot.vulkan.races import check_races
from poot.vulkan.replay import ReadyStep, Repetition

# The stages in which commands work, and all the ways in which they read and write.
WORK = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT
READS = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_TRANSFER_READ_BIT
WRITES = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT
ANY_ACCESS = VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT

# Of profiled recordings: they write to no memory of ours.
CLOCK_CALLS = ("vkCmdResetQueryPool", "vkCmdWriteTimestamp")


class EmissionFault(AssertionError):
    """Vulkan was told something else than what was recorded."""


@dataclass(frozen=True, slots=True)
class Bind:
    pipeline: int


@dataclass(frozen=True, slots=True)
class Push:
    layout: int
    raw: bytes


@dataclass(frozen=True, slots=True)
class Launch:
    grid: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class IndirectLaunch:
    buffer: int
    offset: int


@dataclass(frozen=True, slots=True)
class BufferCopy:
    source: tuple[int, int]
    target: tuple[int, int]
    size: int


@dataclass(frozen=True, slots=True)
class MemoryBarrier:
    """Stages before and after, and the accesses made available and visible."""

    before: int
    after: int
    writes: int
    reads: int


@dataclass(frozen=True, slots=True)
class Edge:
    """The beginning or the end of a command buffer."""

    name: str
    usage: int = 0


Call = Bind | Push | Launch | IndirectLaunch | BufferCopy | MemoryBarrier | Edge


class Watched:
    """A device's functions; notes what is written to one command buffer."""

    def __init__(self, functions: Any) -> None:
        self._functions = functions
        self.calls: list[Call] = []

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._functions, name)
        if name in CLOCK_CALLS:
            return function

        def noted(_: int, *arguments: Any) -> Any:
            self.calls.append(_call(name, arguments))
            return function(_, *arguments)

        return noted


def _call(name: str, arguments: Sequence[Any]) -> Call:
    match name:
        case "vkBeginCommandBuffer":
            return Edge(name, arguments[0].flags)
        case "vkEndCommandBuffer":
            return Edge(name)
        case "vkCmdBindPipeline":
            return Bind(arguments[1])
        case "vkCmdPushConstants":
            layout, _, offset, size, values = arguments
            assert offset == 0
            return Push(layout, bytes(ffi.buffer(values, size)))
        case "vkCmdDispatch":
            x, y, z = arguments
            return Launch((x, y, z))
        case "vkCmdDispatchIndirect":
            return IndirectLaunch(*arguments)
        case "vkCmdCopyBuffer":
            source, target, regions, region = arguments
            assert regions == 1
            places = (source, region.srcOffset), (target, region.dstOffset)
            return BufferCopy(*places, region.size)
        case "vkCmdPipelineBarrier":
            before, after, _, count, memory, buffers, _, images, _ = arguments
            assert (count, buffers, images) == (1, 0, 0)
            return MemoryBarrier(
                before, after, memory.srcAccessMask, memory.dstAccessMask
            )
    raise EmissionFault(f"{name} is no command that replays are made of")


def watch(emitters: Sequence[Emitter]) -> list[Watched]:
    """Have the functions that the emitters call noted from now on."""
    watched = []
    for emitter in emitters:
        functions = Watched(emitter._functions)
        emitter._functions = functions
        watched.append(functions)
    return watched


def check_emitted(
    recorder: ContextRecorder, context: Context, buffers: Sequence[Sequence[Call]]
) -> None:
    """EmissionFault unless the calls are the recorded commands, one for one."""
    reader = _Reader(recorder, context)
    recorded = recorder._commands
    assert len(buffers) == len(recorded.buffers)
    emitted = CommandList(
        tuple(tuple(reader.commands(calls, n)) for n, calls in enumerate(buffers)),
        recorded.steps,
    )
    if emitted != recorded:
        raise EmissionFault(f"recorded:\n{recorder._commands}\nbut emitted:\n{emitted}")
    check_races(emitted)


class _Reader:
    """Turns calls back into commands; what a launch or copy touches is compared."""

    def __init__(self, recorder: ContextRecorder, context: Context) -> None:
        self._recorder = recorder
        self._context = context
        self._places = recorder._places(context)
        flow = recorder._commands.flow()
        self._looked_at = flow.polled
        if recorder._host_reads:
            self._looked_at |= flow.last
        pipelines = recorder._pipelines
        launches = recorder._commands.launches
        self._pipelines = {
            id(node): ours for node, ours in zip(launches, pipelines, strict=True)
        }

    def commands(self, calls: Sequence[Call], buffer: int) -> Iterator[Command]:
        """What one command buffer does."""
        commands = self._recorder._commands
        recorded = commands.buffers[buffer]
        work = [node for node in recorded if not isinstance(node, Barrier)]
        work = [node for node in work if isinstance(node, Dispatch) or node.source.size]
        begin, *inner, end = calls
        again = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT
        usage = again if buffer in commands.resubmitted else 0
        _demand(begin == Edge("vkBeginCommandBuffer", usage), "no beginning", begin)
        _demand(end == Edge("vkEndCommandBuffer"), "no end", end)
        if buffer in self._looked_at:
            *inner, host = inner
            _demand(_tells_host(host), "the host is not told", host)
        pipeline, pushed, done = 0, Push(0, b""), 0
        for number, call in enumerate(inner):
            match call:
                case Bind():
                    pipeline = call.pipeline
                case Push():
                    pushed = call
                case MemoryBarrier():
                    yield _barrier(call, first=number == 0)
                case Launch() | IndirectLaunch() | BufferCopy():
                    _demand(done < len(work), "more work than was recorded", call)
                    node = work[done]
                    done += 1
                    if isinstance(call, BufferCopy):
                        self._check_copy(call, node)
                    else:
                        self._check_launch(call, pipeline, pushed, node)
                    yield node
        _demand(done == len(work), "less work than was recorded", done)

    def _check_launch(
        self,
        call: Launch | IndirectLaunch,
        pipeline: int,
        pushed: Push,
        node: Command,
    ) -> None:
        _demand(isinstance(node, Dispatch), "a launch in place of a copy", node)
        assert isinstance(node, Dispatch)
        ours = self._pipelines[id(node)]
        if isinstance(call, Launch):
            _demand(not isinstance(node, IndirectDispatch), "not switched", node)
            _demand(call.grid == node.grid, "another grid", call)
        else:
            _demand(isinstance(node, IndirectDispatch), "switched", node)
            assert isinstance(node, IndirectDispatch)
            self._check_handle((call.buffer, call.offset), node.arguments, node)
        _demand(pipeline == ours.handle, "another pipeline", node)
        _demand(ours.key[0] == node.kernel.digest, "another kernel", node)
        addresses = self._addresses(pushed.raw, node)
        for operand, span, address in zip(
            node.kernel.operands, node.operands, addresses, strict=True
        ):
            # Of an operand in the arena it is the place of an entry there, if anything.
            in_table = operand.indirect and span.space is not Space.ARENA
            right = self._is_cell if in_table else self._is_place
            _demand(right(span, address), f"operand {operand.name} elsewhere", node)

    def _addresses(self, raw: bytes, node: Dispatch) -> list[int]:
        """The addresses of a launch's operands, as its kernel will find them."""
        count = node.kernel.uses_metadata + len(node.operands)
        if node.kernel.wide:
            (block,) = np.frombuffer(raw, "<u8").tolist()
            start = block - self._context.memory.address
            raw = bytes(memoryview(self._context.memory.host)[start:][: 8 * count])
        elif not count:
            return []
        _demand(len(raw) == 8 * count, f"{len(raw)} bytes of addresses", node)
        return np.frombuffer(raw, "<u8").tolist()[node.kernel.uses_metadata :]

    def _is_cell(self, span: BufferRange, address: int) -> bool:
        """Whether a cell of the table is for a range, and holds its address if known.

        Those of the caller's buffers are written at the call.
        """
        cell, rest = divmod(address - self._context.memory.address, 8)
        entries = self._recorder._plan.entries
        if rest or not 0 <= cell < len(entries):
            return False
        known = span.space in TABLE_SPACES or self._is_place(
            span, self._context.table[cell]
        )
        return entries[cell] == (place_of(span), span.offset) and known

    def _is_place(self, span: BufferRange, address: int) -> bool:
        places: Mapping[Place, tuple[DeviceBuffer, int]] = self._places
        buffer, start = places[place_of(span)]
        return address == buffer.address + start + span.offset

    def _check_copy(self, call: BufferCopy, node: Command) -> None:
        _demand(isinstance(node, Copy), "a copy in place of a launch", node)
        assert isinstance(node, Copy)
        _demand(call.size == node.source.size, "another size", node)
        for (handle, offset), span in (
            (call.source, node.source),
            (call.target, node.target),
        ):
            self._check_handle((handle, offset), span, node)

    def _check_handle(
        self, place: tuple[int, int], span: BufferRange, node: Command
    ) -> None:
        buffer, start = self._places[place_of(span)]
        _demand(place[0] == buffer.handle, f"{span} in another buffer", node)
        at = buffer.offset + start + span.offset
        _demand(place[1] == at, f"{span} elsewhere", node)


def _barrier(call: MemoryBarrier, *, first: bool) -> Barrier:
    """The barrier that a call amounts to; EmissionFault where a scope is too small."""
    reaches = _covers(call.after, WORK) and _covers(call.reads, READS | WRITES)
    _demand(reaches and _follows_work(call), "a barrier too weak", call)
    everything = call.before == VK_PIPELINE_STAGE_ALL_COMMANDS_BIT
    grids = _covers(call.after, VK_PIPELINE_STAGE_DRAW_INDIRECT_BIT)
    return Barrier(
        opening=first and everything and _covers(call.writes, ANY_ACCESS),
        indirect=grids and _covers(call.reads, VK_ACCESS_INDIRECT_COMMAND_READ_BIT),
    )


def check_steps(
    recorded: Sequence[Step], ready: Sequence[ReadyStep], handles: Sequence[int]
) -> None:
    """EmissionFault unless the submissions are the steps, for command buffers."""
    _demand(len(recorded) == len(ready), "another number of steps", len(ready))
    for step, made in zip(recorded, ready, strict=True):
        if isinstance(step, Submit):
            _demand(isinstance(made, Submission), "no submission", made)
            assert isinstance(made, Submission)
            info = made.info
            given = [info.pCommandBuffers[n] for n in range(info.commandBufferCount)]
            _demand(given == [handles[n] for n in step.buffers], "others", step)
        elif isinstance(step, Repeat):
            _demand(isinstance(made, Repetition), "no repetition", made)
            assert isinstance(made, Repetition)
            _demand(made.trips == step.trips, "other trips", made)
            check_steps(step.steps, made.steps, handles)
        else:
            assert isinstance(step, Poll) and not isinstance(made, Submission)
            _demand(not isinstance(made, Repetition), "a repetition", made)
            assert not isinstance(made, Repetition)
            _demand(made.word == step.word, "another word", made)
            for batch, others in zip(step.batches, made.batches, strict=True):
                check_steps(batch, others, handles)


def _tells_host(call: Call) -> bool:
    """Whether the call lets the host read what commands have written."""
    return (
        isinstance(call, MemoryBarrier)
        and _follows_work(call)
        and _covers(call.after, VK_PIPELINE_STAGE_HOST_BIT)
        and _covers(call.reads, VK_ACCESS_HOST_READ_BIT)
    )


def _follows_work(call: MemoryBarrier) -> bool:
    """Whether the call waits for all work, and makes all that it wrote available."""
    all_stages = call.before & VK_PIPELINE_STAGE_ALL_COMMANDS_BIT
    all_writes = call.writes & VK_ACCESS_MEMORY_WRITE_BIT
    return bool(
        (all_stages or _covers(call.before, WORK))
        and (all_writes or _covers(call.writes, WRITES))
    )


def _covers(mask: int, bits: int) -> bool:
    return mask & bits == bits


def _demand(holds: bool, fault: str, where: object) -> None:
    if not holds:
        raise EmissionFault(f"{fault}: {where}")
