"""A replay with a timestamp before and after each command."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence

from poot.lowering.program import Copy, Dispatch
from poot.vulkan.commands import Command, CommandList, Repeat, Step, Submit
from poot.vulkan.context import Context
from poot.vulkan.profiler import Profiler, TimedCall
from poot.vulkan.queue import Queue, Submission
from poot.vulkan.timestamps import Clock, Timestamps


def timed(commands: Sequence[Command]) -> list[Dispatch | Copy]:
    """The commands of a buffer that have timestamps around them."""
    return [
        command
        for command in commands
        if isinstance(command, Dispatch)
        # Copies of nothing are left out of command buffers.
        or (isinstance(command, Copy) and command.source.size)
    ]


class ProfiledReplay:
    """Runs a context whose command buffers were recorded with timestamps.

    Command buffers are submitted and awaited one by one, since the next run of one
    writes over its timestamps.
    """

    def __init__(
        self,
        queue: Queue,
        clock: Clock,
        commands: CommandList,
        context: Context,
        handles: Sequence[int],
        timestamps: Sequence[Timestamps],
    ) -> None:
        self.context = context
        self._queue = queue
        self._clock = clock
        self._steps = commands.steps
        self._submissions = [Submission(queue, [handle]) for handle in handles]
        self._timed = [timed(buffer) for buffer in commands.buffers]
        self._timestamps = timestamps

    def run(
        self,
        label: str,
        look: Callable[[int], int],
        profilers: Sequence[Profiler],
    ) -> None:
        """Run all steps; `look` gives the word at a byte of the packet."""
        began = time.perf_counter_ns()
        try:
            self._run(self._steps, label, look, profilers)
        finally:
            thread = threading.current_thread().name
            call = TimedCall(label, thread, began, time.perf_counter_ns())
            for profiler in profilers:
                profiler.add_call(call)

    def _run(
        self,
        steps: Sequence[Step],
        label: str,
        look: Callable[[int], int],
        profilers: Sequence[Profiler],
    ) -> None:
        for step in steps:
            if isinstance(step, Submit):
                for number in step.buffers:
                    self._time(number, label, profilers)
            elif isinstance(step, Repeat):
                for _ in range(step.trips):
                    self._run(step.steps, label, look, profilers)
            else:
                last = itertools.repeat(step.batches[-1])
                for batch in itertools.chain(step.batches, last):
                    self._run(batch, label, look, profilers)
                    if not look(step.word):
                        break

    def _time(self, number: int, label: str, profilers: Sequence[Profiler]) -> None:
        submitted = time.perf_counter_ns()
        self.context.value = self._queue.submit(self._submissions[number], label)
        self._queue.wait(self.context.value)
        done = time.perf_counter_ns()
        times = self._clock.nanoseconds(self._timestamps[number].read())
        for profiler in profilers:
            profiler.add_commands(self._timed[number], times, submitted, done)
