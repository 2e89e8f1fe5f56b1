"""Proves that a command list has no race; knows nothing of how it was recorded.

Drivers that run commands in order hide a missing barrier, so this check is the only
thing that sees one there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from poot.core.errors import LoweringError
from poot.lowering.program import TABLE_SPACES, BufferRange, Copy, Dispatch, Space
from poot.vulkan.recorder import Barrier, Command, CommandList

# The host writes these before a replay, or they never change: no command may.
_READ_ONLY = frozenset({Space.ARGUMENT, Space.CONST, Space.SLOT})


@dataclass(frozen=True, slots=True)
class Race:
    """Two accesses that overlap, one of them a write, with no barrier between."""

    first: Dispatch | Copy
    second: Dispatch | Copy
    span: BufferRange
    across_replays: bool

    def __str__(self) -> str:
        where = "across replays" if self.across_replays else "within a replay"
        return (
            f"{self.second} does not wait for {self.first} over {self.span} ({where})"
        )


@dataclass(frozen=True, slots=True)
class _Access:
    node: Dispatch | Copy
    replay: int
    span: BufferRange
    writes: bool


def find_races(commands: CommandList) -> list[Race]:
    """Every unordered pair, over two replays of the list one after the other.

    Two suffice: a barrier that orders a replay after the one before orders it after
    all earlier ones.
    """
    races = []
    for group in _unordered_groups(commands):
        for earlier, later in _meeting(group):
            same = earlier.node is later.node and earlier.replay == later.replay
            if not same and (earlier.writes or later.writes):
                across = earlier.replay != later.replay
                races.append(Race(earlier.node, later.node, later.span, across))
    return races


def check_races(commands: CommandList) -> None:
    """Raise LoweringError if two accesses race or one writes what it must not."""
    faults = [str(race) for race in find_races(commands)]
    flat = commands.commands
    if flat and flat[0] != Barrier(opening=True):
        faults.append(f"{flat[0]} does not wait for submissions of other programs")
    faults += [
        f"{node} writes {span}, which no command may"
        for node in flat
        if not isinstance(node, Barrier)
        for span in node.writes
        if span.space in _READ_ONLY
    ]
    if faults:
        raise LoweringError("a program has races:\n" + "\n".join(faults))


def _unordered_groups(commands: CommandList) -> Iterator[list[_Access]]:
    """The accesses of two replays, grouped by what no barrier tells apart."""
    group: list[_Access] = []
    for replay in range(2):
        for command in _flat(commands.buffers):
            if isinstance(command, Barrier):
                yield group
                group = []
                continue
            for spans, writes in ((command.reads, False), (command.writes, True)):
                group += [_Access(command, replay, s, writes) for s in spans if s.size]
    yield group


def _flat(buffers: Sequence[Sequence[Command]]) -> Iterator[Command]:
    for buffer in buffers:
        yield from buffer


def _meeting(group: Sequence[_Access]) -> Iterator[tuple[_Access, _Access]]:
    """The pairs of a group that may touch the same bytes, the earlier one first."""
    by_place: dict[tuple[Space, int], list[_Access]] = {}
    for later in group:
        held = by_place.setdefault((later.span.space, later.span.index), [])
        yield from ((e, later) for e in held if e.span.overlaps(later.span))
        held.append(later)
    # Between replays the caller's buffers change hands: a result of one call may lie
    # where an argument of the next does.
    theirs = [access for access in group if access.span.space in TABLE_SPACES]
    for earlier in theirs:
        for later in theirs:
            if earlier.replay < later.replay:
                yield earlier, later
