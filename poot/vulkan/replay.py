"""Running the steps of a replay: submissions, their repetition, looks in between."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from poot.vulkan.commands import Poll, Repeat, Step, Submit
from poot.vulkan.queue import Queue, Submission


@dataclass(frozen=True, slots=True)
class Repetition:
    """A Repeat with submissions for its command buffers' numbers."""

    trips: int
    steps: tuple[ReadyStep, ...]


@dataclass(frozen=True, slots=True)
class Polling:
    """A Poll with submissions for its command buffers' numbers."""

    word: int
    batches: tuple[tuple[ReadyStep, ...], ...]


ReadyStep = Submission | Repetition | Polling


def make_ready(
    steps: Sequence[Step], queue: Queue, handles: Sequence[int]
) -> tuple[ReadyStep, ...]:
    """The steps with submissions of the command buffers `handles`."""

    def ready(step: Step) -> ReadyStep:
        if isinstance(step, Submit):
            return Submission(queue, [handles[number] for number in step.buffers])
        if isinstance(step, Repeat):
            return Repetition(step.trips, make_ready(step.steps, queue, handles))
        assert isinstance(step, Poll)
        batches = (make_ready(batch, queue, handles) for batch in step.batches)
        return Polling(step.word, tuple(batches))

    return tuple(ready(step) for step in steps)


def run_steps(
    steps: Sequence[ReadyStep],
    submit: Callable[[Submission], object],
    look: Callable[[int], int],
) -> None:
    """Submit what the steps say; `look` waits, and gives the word at a byte."""
    for step in steps:
        if isinstance(step, Submission):
            submit(step)
        elif isinstance(step, Repetition):
            for _ in range(step.trips):
                run_steps(step.steps, submit, look)
        else:
            last = itertools.repeat(step.batches[-1])
            for batch in itertools.chain(step.batches, last):
                run_steps(batch, submit, look)
                if not look(step.word):
                    break
