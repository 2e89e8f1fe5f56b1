"""Vulkan is told what was recorded, and anything else that it is told is noticed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

import pytest

from poot.core.errors import LoweringError
from poot.lowering.device_info import DeviceInfo
from poot.lowering.program import BufferRange, Copy, Program, Space
from poot.vulkan.context import Context, ContextRecorder
from poot.vulkan.device import Device
from poot.vulkan.emit import Emitter
from poot.vulkan.executable import Executable
from tests import vulkan_programs
from tests.emitted_commands import (
    Bind,
    BufferCopy,
    Call,
    EmissionFault,
    Launch,
    MemoryBarrier,
    Push,
    check_emitted,
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


PROGRAMS: dict[str, Callable[[DeviceInfo], Program]] = {
    "chain": lambda info: chain_program(info, 100, 5),
    "copies": copied_program,
    "witness": checked_program,
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
    for kind in (Bind, Push, Launch, BufferCopy, MemoryBarrier):
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
