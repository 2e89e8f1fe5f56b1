"""What a replay does, as data: commands, the buffers that hold them, their order.

Nothing here knows Vulkan, so that lists are printed, compared and checked for races
without a device.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from poot.lowering.program import BufferRange, Copy, Dispatch


@dataclass(frozen=True, slots=True)
class IndirectDispatch(Dispatch):
    """A launch whose grid the device reads, as three words at `arguments`.

    They hold `grid`, or zeros where the launch is switched off. `reads` has them too.
    """

    arguments: BufferRange = field(kw_only=True)

    def __str__(self) -> str:
        return f"{Dispatch.__str__(self)} if {self.arguments}"


@dataclass(frozen=True, slots=True)
class Barrier:
    """All earlier commands end, and their writes are seen, before any later one.

    The `opening` one of a command buffer also waits for what earlier submissions did,
    on any buffer: memory may have changed hands between them. Those that read grids
    of launches see earlier writes only past an `indirect` one.
    """

    opening: bool = False
    indirect: bool = False

    def __str__(self) -> str:
        kinds = [name for name in ("opening", "indirect") if getattr(self, name)]
        return f"barrier ({', '.join(kinds)})" if kinds else "barrier"


Command = Dispatch | Copy | Barrier


@dataclass(frozen=True, slots=True)
class Submit:
    """Give command buffers, by their numbers, to the queue at once, in this order."""

    buffers: tuple[int, ...]

    def __str__(self) -> str:
        return f"submit {_runs(self.buffers)}"


@dataclass(frozen=True, slots=True)
class Repeat:
    """Do `steps` `trips` times."""

    trips: int
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Poll:
    """Do the batches in turn, the last one again and again, until a word is zero.

    The host looks after each batch, at byte `word` of the witness packet.
    """

    word: int
    batches: tuple[tuple[Step, ...], ...]


Step = Submit | Repeat | Poll


@dataclass(frozen=True, slots=True)
class Flow:
    """Which command buffers may follow which, in one replay.

    `first` and `last` are those that a replay may begin and end with, `polled` those
    whose end the host waits for.
    """

    first: frozenset[int]
    last: frozenset[int]
    next: frozenset[tuple[int, int]]
    polled: frozenset[int]


@dataclass(frozen=True, slots=True)
class Counts:
    """How many commands one replay runs; `polled`: batches of a while come on top."""

    launches: int = 0
    copies: int = 0
    openings: int = 0
    barriers: int = 0
    submissions: int = 0
    polled: bool = False

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.launches + other.launches,
            self.copies + other.copies,
            self.openings + other.openings,
            self.barriers + other.barriers,
            self.submissions + other.submissions,
            self.polled or other.polled,
        )

    def times(self, trips: int) -> Counts:
        return replace(
            self,
            launches=trips * self.launches,
            copies=trips * self.copies,
            openings=trips * self.openings,
            barriers=trips * self.barriers,
            submissions=trips * self.submissions,
        )

    def __str__(self) -> str:
        least = "at least " if self.polled else ""
        return (
            f"a replay: {least}{self.launches} launches, {self.copies} copies, "
            f"{self.barriers} barriers between them, {self.openings} command buffers "
            f"in {self.submissions} submissions"
        )


@dataclass(frozen=True, slots=True)
class CommandList:
    """What one replay runs: command buffers, and the steps that submit them."""

    buffers: tuple[tuple[Command, ...], ...]
    steps: tuple[Step, ...]

    @property
    def commands(self) -> tuple[Command, ...]:
        return tuple(command for buffer in self.buffers for command in buffer)

    @property
    def launches(self) -> tuple[Dispatch, ...]:
        """Each Dispatch once, however often it was recorded."""
        found = {id(c): c for c in self.commands if isinstance(c, Dispatch)}
        return tuple(found.values())

    @property
    def polls(self) -> tuple[Poll, ...]:
        return tuple(step for step in _walk(self.steps) if isinstance(step, Poll))

    @property
    def submits(self) -> tuple[Submit, ...]:
        return tuple(step for step in _walk(self.steps) if isinstance(step, Submit))

    @property
    def resubmitted(self) -> frozenset[int]:
        """The command buffers that may be given to the queue while they run still."""
        counts = Counter(n for submit in self.submits for n in submit.buffers)
        inside = {
            number
            for step in _walk(self.steps)
            if isinstance(step, Repeat)
            for submit in _walk(step.steps)
            if isinstance(submit, Submit)
            for number in submit.buffers
        }
        return frozenset(inside | {n for n, count in counts.items() if count > 1})

    def counts(self) -> Counts:
        """What one replay runs, as often as it runs it."""
        return _counted(self.buffers, self.steps)

    def one_by_one(self) -> CommandList:
        """The same with a barrier between any two launches or copies."""
        return replace(self, buffers=tuple(map(_one_by_one, self.buffers)))

    def flow(self) -> Flow:
        following: set[tuple[int, int]] = set()
        polled: set[int] = set()
        first, last = _ends(self.steps, following, polled)
        return Flow(first, last, frozenset(following), frozenset(polled))

    def __str__(self) -> str:
        lines = []
        for number, buffer in enumerate(self.buffers):
            lines.append(f"command buffer {number} {{")
            lines += [f"  {command}" for command in buffer]
            lines.append("}")
        return "\n".join([*lines, *_print_steps(self.steps, "")])


def _one_by_one(commands: tuple[Command, ...]) -> tuple[Command, ...]:
    found: list[Command] = []
    for command in commands:
        if found and not any(isinstance(c, Barrier) for c in (found[-1], command)):
            found.append(Barrier())
        found.append(command)
    return tuple(found)


def _counted(
    buffers: tuple[tuple[Command, ...], ...], steps: tuple[Step, ...]
) -> Counts:
    total = Counts()
    for step in steps:
        if isinstance(step, Submit):
            total += Counts(submissions=1)
            for number in step.buffers:
                total += _in_buffer(buffers[number])
        elif isinstance(step, Repeat):
            total += _counted(buffers, step.steps).times(step.trips)
        else:
            # The first look may be the last.
            total += replace(_counted(buffers, step.batches[0]), polled=True)
    return total


def _in_buffer(commands: tuple[Command, ...]) -> Counts:
    openings = barriers = launches = 0
    for command in commands:
        if isinstance(command, Barrier):
            openings += command.opening
            barriers += not command.opening
        launches += isinstance(command, Dispatch)
    copies = len(commands) - openings - barriers - launches
    return Counts(launches, copies, openings, barriers)


def in_order(*buffers: tuple[Command, ...]) -> CommandList:
    """The list that submits each command buffer once, all together."""
    steps = (Submit(tuple(range(len(buffers)))),) if buffers else ()
    return CommandList(buffers, steps)


def _walk(steps: tuple[Step, ...]) -> Iterator[Step]:
    for step in steps:
        yield step
        if isinstance(step, Repeat):
            yield from _walk(step.steps)
        elif isinstance(step, Poll):
            for batch in step.batches:
                yield from _walk(batch)


_Numbers = frozenset[int]


def _ends(
    steps: tuple[Step, ...], following: set[tuple[int, int]], polled: set[int]
) -> tuple[_Numbers, _Numbers]:
    """The buffers that steps may begin and end with; notes what may follow what."""
    first: _Numbers = frozenset()
    last: _Numbers = frozenset()
    for step in steps:
        begin, end = _ends_of(step, following, polled)
        following.update((a, b) for a in last for b in begin)
        first, last = first or begin, end
    return first, last


def _ends_of(
    step: Step, following: set[tuple[int, int]], polled: set[int]
) -> tuple[_Numbers, _Numbers]:
    if isinstance(step, Submit):
        numbers = step.buffers
        following.update(itertools.pairwise(numbers))
        return frozenset(numbers[:1]), frozenset(numbers[-1:])
    if isinstance(step, Repeat):
        first, last = _ends(step.steps, following, polled)
        if step.trips > 1:
            following.update((a, b) for a in last for b in first)
        return first, last
    ends = [_ends(batch, following, polled) for batch in step.batches]
    for (_, last), (first, _) in zip(ends, (*ends[1:], ends[-1]), strict=True):
        following.update((a, b) for a in last for b in first)
        polled.update(last)
    return ends[0][0], frozenset().union(*(last for _, last in ends))


def _print_steps(steps: tuple[Step, ...], indent: str) -> list[str]:
    lines = []
    for step in steps:
        if isinstance(step, Submit):
            lines.append(f"{indent}{step}")
        elif isinstance(step, Repeat):
            lines.append(f"{indent}{step.trips} times {{")
            lines += _print_steps(step.steps, indent + "  ")
            lines.append(indent + "}")
        else:
            lines.append(f"{indent}until witness word {step.word} is 0 {{")
            for batch in step.batches:
                lines += _print_steps(batch, indent + "  ")
            lines.append(indent + "}")
    return lines


def _runs(numbers: tuple[int, ...]) -> str:
    """Numbers with those that repeat told once: `0, 3 x 50, 4`."""
    told: list[tuple[int, int]] = []
    for number in numbers:
        if told and told[-1][0] == number:
            told[-1] = number, told[-1][1] + 1
        else:
            told.append((number, 1))
    return ", ".join(f"{n} x {times}" if times > 1 else str(n) for n, times in told)
