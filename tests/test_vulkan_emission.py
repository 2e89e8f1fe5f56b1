"""Vulkan is told what was recorded, and anything else that it is told is noticed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import pytest

from poot.core.errors import LoweringError
from poot.lowering.device_info import DeviceInfo
from poot.lowering.program import Branch, BufferRange, Copy, Loop, Program, Space
from poot.vulkan._vk import ffi
from poot.vulkan.commands import Poll, Repeat, Step, Submit
from poot.vulkan.context import Context, ContextRecorder
from poot.vulkan.device import Device
from poot.vulkan.emit import Emitter
from poot.vulkan.executable import Executable
from poot.vulkan.replay import make_ready
from tests import vulkan_programs
from tests.control_programs import MOD, Words, arena
from tests.emitted_commands import (
    Bind,
    BufferCopy,
    Call,
    Edge,
    EmissionFault,
    IndirectLaunch,
    Launch,
    MemoryBarrier,
    Push,
    check_emitted,
    check_steps,
    watch,
)
from tests.vulkan_programs import chain_program, checked_program

clean_validation = vulkan_programs.clean_validation
device = vulkan_programs.device

Calls = list[list[Call]]


def copied_program(info: DeviceInfo) -> Program:
    """A chain through the arena, part of which is copied within it in between."""
    program = chain_program(info, 100, 4)
    low, high = (BufferRange(Space.ARENA, 0, start, 80) for start in (0, 400))
    body = (*program.body[:2], Copy(low, high), Copy(high, low), *program.body[2:])
    return replace(program, body=body)


def looping_program(info: DeviceInfo) -> Program:
    words = Words(info)
    copy = Copy(arena(1), arena(2))
    return words.program([Loop(9, (words.bump(0), words.add(1, 0), copy))])


def choosing_program(info: DeviceInfo) -> Program:
    words = Words(info)
    choice = words.op(MOD, arena(9), 2, arena(0))
    return words.program([choice, Branch(arena(9), ((words.bump(1),), ()))])


def polling_program(info: DeviceInfo) -> Program:
    words = Words(info)
    return words.program([words.while_below(10, 11, 3, [words.bump(0)])])


PROGRAMS: dict[str, Callable[[DeviceInfo], Program]] = {
    "chain": lambda info: chain_program(info, 100, 5),
    "copies": copied_program,
    "witness": checked_program,
    "loop": looping_program,
    "branch": choosing_program,
    "while": polling_program,
}


@pytest.fixture(params=PROGRAMS)
def emitted(
    request: pytest.FixtureRequest, device: Device, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[ContextRecorder, Context, Calls]]:
    """What is recorded for a program's first context, and what Vulkan was told."""
    record = ContextRecorder.record
    seen: list[tuple[ContextRecorder, Context, Calls]] = []

    def recorded(
        self: ContextRecorder, context: Context, emitters: Sequence[Emitter]
    ) -> None:
        watched = watch(emitters)
        record(self, context, emitters)
        seen.append((self, context, [each.calls for each in watched]))

    monkeypatch.setattr(ContextRecorder, "record", recorded)
    # So that there is a unit of iterations that is submitted again and again.
    monkeypatch.setattr("poot.vulkan.recorder._UNIT_COMMANDS", 6)
    executable = Executable(device, PROGRAMS[request.param](device.info))
    yield seen[0]
    executable.close()


def test_what_was_recorded_passes(emitted: tuple[Any, Any, Calls]) -> None:
    recorder, context, calls = emitted
    check_emitted(recorder, context, calls)
    kinds = {type(call) for buffer in calls for call in buffer}
    assert {Launch, MemoryBarrier} <= kinds


def places(calls: Calls, kind: type[Call]) -> Iterator[tuple[int, int, Any]]:
    for buffer, commands in enumerate(calls):
        for number, call in enumerate(commands):
            if isinstance(call, kind):
                yield buffer, number, call


def put(calls: Calls, buffer: int, number: int, *instead: Call) -> Calls:
    """The calls with others in place of one."""
    changed = [list(commands) for commands in calls]
    changed[buffer][number : number + 1] = instead
    return changed


def test_a_call_left_out_or_made_twice(emitted: tuple[Any, Any, Calls]) -> None:
    recorder, context, calls = emitted
    for kind in (Bind, Push, Launch, IndirectLaunch, BufferCopy, MemoryBarrier):
        # Binding is done once for launches of one pipeline, so twice does no harm.
        copies = (0,) if kind in (Bind, Push) else (0, 2)
        for buffer, number, call in places(calls, kind):
            for times in copies:
                changed = put(calls, buffer, number, *(call,) * times)
                with pytest.raises((EmissionFault, LoweringError)):
                    check_emitted(recorder, context, changed)


def test_a_barrier_with_any_bit_missing(emitted: tuple[Any, Any, Calls]) -> None:
    recorder, context, calls = emitted
    tried = 0
    for buffer, number, call in places(calls, MemoryBarrier):
        for scope in fields(MemoryBarrier):
            mask = getattr(call, scope.name)
            for bit in range(32):
                if mask >> bit & 1:
                    weaker = replace(call, **{scope.name: mask & ~(1 << bit)})
                    with pytest.raises((EmissionFault, LoweringError)):
                        changed = put(calls, buffer, number, weaker)
                        check_emitted(recorder, context, changed)
                    tried += 1
    assert tried > 8


def test_work_at_another_place(emitted: tuple[Any, Any, Calls]) -> None:
    recorder, context, calls = emitted

    def refused(buffer: int, number: int, call: Call) -> None:
        with pytest.raises(EmissionFault):
            check_emitted(recorder, context, put(calls, buffer, number, call))

    for buffer, number, call in places(calls, Launch):
        refused(buffer, number, Launch((call.grid[0] + 1, *call.grid[1:])))
    for buffer, number, call in places(calls, IndirectLaunch):
        refused(buffer, number, Launch((1, 1, 1)))
        refused(buffer, number, replace(call, offset=call.offset + 16))
        refused(buffer, number, replace(call, buffer=call.buffer + 1))
    for buffer, number, call in places(calls, Edge):
        refused(buffer, number, replace(call, usage=call.usage ^ 4))
    for buffer, number, call in places(calls, Bind):
        refused(buffer, number, Bind(call.pipeline + 1))
    for buffer, number, call in places(calls, BufferCopy):
        refused(buffer, number, replace(call, size=call.size - 4))
        for end in ("source", "target"):
            handle, offset = getattr(call, end)
            refused(buffer, number, replace(call, **{end: (handle, offset + 4)}))
            refused(buffer, number, replace(call, **{end: (handle + 1, offset)}))
    for buffer, number, call in places(calls, Push):
        # The address of the metadata, where there is any, stands first.
        for byte in range(8 * uses_metadata(recorder), len(call.raw), 8):
            changed = bytearray(call.raw)
            changed[byte] ^= 8
            refused(buffer, number, replace(call, raw=bytes(changed)))


def uses_metadata(recorder: ContextRecorder) -> bool:
    (used,) = {node.kernel.uses_metadata for node in recorder._dispatches}
    return used


def other_steps(steps: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    """The steps with one thing changed, in each way."""
    yield steps[1:]
    for number, step in enumerate(steps):
        changed: list[Step] = []
        if isinstance(step, Submit):
            changed.append(Submit(step.buffers[1:]))
            changed.append(Submit((*step.buffers[:-1], step.buffers[-1] ^ 1)))
        elif isinstance(step, Repeat):
            changed.append(replace(step, trips=step.trips + 1))
            changed += [replace(step, steps=s) for s in other_steps(step.steps)]
        elif isinstance(step, Poll):
            changed.append(replace(step, word=step.word + 4))
            first, *others = step.batches
            changed += [
                replace(step, batches=(batch, *others)) for batch in other_steps(first)
            ]
        for each in changed:
            yield *steps[:number], each, *steps[number + 1 :]


def test_submissions_are_the_steps(emitted: tuple[Any, Any, Calls]) -> None:
    recorder, _, calls = emitted
    steps = recorder._commands.steps
    handles = list(range(100, 100 + len(calls)))
    # What a context submits are its own command buffers, whatever their handles are.
    queue: Any = SimpleNamespace(semaphore_pointer=ffi.new("VkSemaphore[1]"))
    ready = make_ready(steps, queue, handles)
    check_steps(steps, ready, handles)
    for other in other_steps(steps):
        with pytest.raises((EmissionFault, IndexError)):
            check_steps(other, ready, handles)
