"""What launches took, as the device's timestamps tell it."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from poot.lowering.program import Copy, Dispatch
from poot.vulkan.commands import IndirectDispatch


@dataclass(frozen=True, slots=True)
class TimedCommand:
    """One launch or copy that ran, by the clock of the device."""

    command: Dispatch | Copy
    begin_ns: float
    end_ns: float

    @property
    def name(self) -> str:
        """The kernel's name."""
        command = self.command
        return command.kernel.name if isinstance(command, Dispatch) else "copy"

    @property
    def duration_ns(self) -> float:
        return self.end_ns - self.begin_ns

    @property
    def is_switched(self) -> bool:
        """Whether a branch or while decides on the device if it does anything."""
        return isinstance(self.command, IndirectDispatch)


@dataclass(frozen=True, slots=True)
class TimedCall:
    """One call of an executable, by the clock of the host."""

    label: str
    thread: str
    begin_ns: int
    end_ns: int


class Profiler:
    """Collects what runs while a device has it; from any thread.

    `host_offset_ns` added to times of the device gives times of the host.
    """

    def __init__(self) -> None:
        self.commands: list[TimedCommand] = []
        self.calls: list[TimedCall] = []
        self._lock = threading.Lock()
        # The offset lies between these, as every submission ran while it was awaited.
        self._least, self._most = -math.inf, math.inf

    @property
    def host_offset_ns(self) -> float:
        if math.isinf(self._least):
            return 0.0
        return (self._least + self._most) / 2

    def add_commands(
        self,
        commands: Sequence[Dispatch | Copy],
        times: Sequence[float],
        submitted_ns: int,
        done_ns: int,
    ) -> None:
        """Add commands of one submission, which the host began and saw end then.

        `times` has begin and end of each.
        """
        if not commands:
            return
        found = map(TimedCommand, commands, times[::2], times[1::2])
        with self._lock:
            self.commands += found
            self._least = max(self._least, submitted_ns - times[0])
            self._most = min(self._most, done_ns - times[-1])

    def add_call(self, call: TimedCall) -> None:
        with self._lock:
            self.calls.append(call)
