"""Proves that a command list has no race; knows nothing of how it was recorded.

Drivers that run commands in order hide a missing barrier, so this check is the only
thing that sees one there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from poot.core.errors import LoweringError
from poot.lowering.program import TABLE_SPACES, BufferRange, Copy, Dispatch, Space
from poot.vulkan.commands import Barrier, Command, CommandList, IndirectDispatch

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
    """`is_grid`: not the launch reads the bytes, but whoever starts it.

    `position` counts the commands of the command buffer: a node may be in it often.
    """

    node: Dispatch | Copy
    span: BufferRange
    writes: bool
    is_grid: bool
    position: int


@dataclass(frozen=True, slots=True)
class _Rule:
    """Overlapping accesses that must be ordered, and the barriers that order them."""

    first: Callable[[_Access], bool]
    second: Callable[[_Access], bool]
    orders: Callable[[Barrier], bool]


_RULES = (
    _Rule(attrgetter("writes"), lambda access: True, lambda barrier: True),
    _Rule(lambda access: not access.writes, attrgetter("writes"), lambda barrier: True),
    _Rule(attrgetter("writes"), attrgetter("is_grid"), attrgetter("indirect")),
)


def find_races(commands: CommandList) -> list[Race]:
    """Every unordered pair, however often the list's steps repeat what they may.

    A pair is ordered by a barrier that stands between on every way from one to the
    other: through the same command buffer, or past its end into those that may follow
    it, in this replay or the next.
    """
    following = _following(commands)
    grids = any(isinstance(node, IndirectDispatch) for node in commands.commands)
    races = [
        Race(earlier.node, later.node, later.span, across)
        for rule in (_RULES if grids else _RULES[:2])
        for earlier, later, across in _unordered(commands, following, rule)
    ]
    return list(dict.fromkeys(races))


def check_races(commands: CommandList) -> None:
    """Raise LoweringError if two accesses race or one writes what it must not."""
    faults = [str(race) for race in find_races(commands)]
    for first, *_ in commands.buffers:
        if not (isinstance(first, Barrier) and first.opening):
            faults.append(f"{first} does not wait for submissions of other programs")
    faults += [
        f"{node} writes {span}, which no command may"
        for node in commands.commands
        if not isinstance(node, Barrier)
        for span in node.writes
        if span.space in _READ_ONLY
    ]
    if faults:
        raise LoweringError("a program has races:\n" + "\n".join(faults))


_Pair = tuple[_Access, _Access, bool]
_Following = dict[int, set[tuple[int, bool]]]


def _following(commands: CommandList) -> _Following:
    """What may follow each command buffer, and whether in a later replay."""
    following: _Following = {n: set() for n in range(len(commands.buffers))}
    flow = commands.flow()
    for before, after in flow.next:
        following[before].add((after, False))
    for before in flow.last:
        following[before].update((after, True) for after in flow.first)
    return following


def _unordered(
    commands: CommandList, following: _Following, rule: _Rule
) -> Iterator[_Pair]:
    """The rule's pairs that may touch the same bytes with no barrier between.

    With each, whether the second access is one of a later replay.
    """
    buffers = [_groups(buffer, rule) for buffer in commands.buffers]
    for groups in buffers:
        for group in groups:
            for first, second in _overlapping(group, group, rule):
                if first.position < second.position:
                    yield first, second, False
    for number, groups in enumerate(buffers):
        for after, across in _reached(number, following, buffers):
            first_group, second_group = groups[-1], buffers[after][0]
            for pair in _overlapping(first_group, second_group, rule):
                yield *pair, across
            if across:
                for pair in _changing_hands(first_group, second_group, rule):
                    yield *pair, across


def _groups(buffer: Sequence[Command], rule: _Rule) -> list[list[_Access]]:
    """The accesses of a command buffer, grouped by what no barrier tells apart."""
    groups: list[list[_Access]] = [[]]
    for position, command in enumerate(buffer):
        if isinstance(command, Barrier):
            if rule.orders(command):
                groups.append([])
            continue
        grid = command.arguments if isinstance(command, IndirectDispatch) else None
        for spans, writes in ((command.reads, False), (command.writes, True)):
            groups[-1] += [
                _Access(command, s, writes, not writes and s == grid, position)
                for s in spans
                if s.size
            ]
    return groups


def _reached(
    number: int, following: _Following, buffers: Sequence[list[list[_Access]]]
) -> Iterator[tuple[int, bool]]:
    """The command buffers to whose beginnings no barrier bars the way."""
    seen: set[tuple[int, bool]] = set()
    found = list(following[number])
    while found:
        after, across = found.pop()
        if (after, across) in seen:
            continue
        seen.add((after, across))
        yield after, across
        if len(buffers[after]) == 1:
            found += [(n, across or more) for n, more in following[after]]


def _overlapping(
    earlier: Sequence[_Access], later: Sequence[_Access], rule: _Rule
) -> Iterator[tuple[_Access, _Access]]:
    by_place: dict[tuple[Space, int], list[_Access]] = {}
    for second in filter(rule.second, later):
        place = second.span.space, second.span.index
        by_place.setdefault(place, []).append(second)
    for first in filter(rule.first, earlier):
        for second in by_place.get((first.span.space, first.span.index), ()):
            if first.span.overlaps(second.span):
                yield first, second


def _changing_hands(
    earlier: Sequence[_Access], later: Sequence[_Access], rule: _Rule
) -> Iterator[tuple[_Access, _Access]]:
    """Of two replays: a result of one may lie where an argument of the next does."""
    theirs = [a for a in filter(rule.second, later) if a.span.space in TABLE_SPACES]
    for first in filter(rule.first, earlier):
        if first.span.space in TABLE_SPACES:
            yield from ((first, second) for second in theirs)
