"""Reports: what the passes did and did not do, and what a program will run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from poot.lowering.passes.driver import (
    REASONS,
    Entry,
    PassRecord,
    Reason,
    Rewrite,
)
from poot.lowering.program import Copy, Dispatch, Loop, Node, Program

# Places listed for each rewrite and reason; the rest is counted.
_MOST_PLACES = 8


@dataclass(frozen=True, slots=True)
class Report:
    """What each pass did to one graph."""

    device: str
    records: tuple[PassRecord, ...]
    # What else is to be known of how the graph runs.
    notes: tuple[str, ...] = ()

    @property
    def fired(self) -> dict[str, int]:
        """How often each rewrite fired, by its name."""
        return self._count(fired=True)

    @property
    def declined(self) -> dict[str, int]:
        """How often each rewrite declined, by its name."""
        return self._count(fired=False)

    def reasons(self, rewrite: str) -> list[Reason]:
        """Why the rewrite of that name declined, in order."""
        return [
            entry.reason
            for record in self.records
            for entry in record.log.entries
            if entry.rewrite.name == rewrite and entry.reason is not None
        ]

    def with_program(self, program: Program, replay: str) -> str:
        """The report, and below it what the program made of the graph will run.

        `replay` tells what its recording is, in numbers.
        """
        lines = [str(self), *program.notes, replay, describe_program(program)]
        return "\n".join(lines)

    def _count(self, fired: bool) -> dict[str, int]:
        counts: dict[str, int] = {}
        for record in self.records:
            for entry in record.log.entries:
                if (entry.reason is None) == fired:
                    name = entry.rewrite.name
                    counts[name] = counts.get(name, 0) + 1
        return counts

    def __str__(self) -> str:
        lines = [f"passes for {self.device}", *self.notes]
        return "\n".join([*lines, *describe_passes(self.records)])


def describe_passes(records: Sequence[PassRecord]) -> Iterator[str]:
    """What each rewrite did, and why it did not more."""
    for record in records:
        yield from _pass_lines(record)


def _pass_lines(record: PassRecord) -> Iterator[str]:
    before, after = record.equations_before, record.equations_after
    yield f"{record.where}{record.made_by.name}: {before} -> {after} equations"
    for rewrite in record.made_by.rewrites:
        yield from _rewrite_lines(rewrite, record.log.entries)


def _rewrite_lines(rewrite: Rewrite, entries: Sequence[Entry]) -> Iterator[str]:
    mine = [entry for entry in entries if entry.rewrite is rewrite]
    if not mine:
        return
    yield f"  {rewrite.name} ({rewrite.numerics.name.lower()}: {rewrite.law})"
    fired = [entry for entry in mine if entry.reason is None]
    if fired:
        yield f"    fired {len(fired)} times"
        yield from _places(fired)
    for reason in Reason:
        declined = [entry for entry in mine if entry.reason is reason]
        if declined:
            yield f"    not {reason.value} {len(declined)} times ({REASONS[reason]})"
            yield from _places(declined)


def _places(entries: Sequence[Entry]) -> Iterator[str]:
    for entry in entries[:_MOST_PLACES]:
        yield f"      {entry.place}{f': {entry.detail}' if entry.detail else ''}"
    if len(entries) > _MOST_PLACES:
        yield f"      and {len(entries) - _MOST_PLACES} more"


def describe_program(program: Program) -> str:
    """Each launch and copy with its kernel, schedule, grid, bytes and flops."""
    dispatches = program.dispatches
    moved = sum(dispatch.bytes_moved for dispatch in dispatches)
    flops = sum(dispatch.flops for dispatch in dispatches)
    lines = [
        f"{len(dispatches)} dispatches of {len(program.kernels)} kernels, "
        f"{moved} B moved, {flops} flops, arena {program.arena_bytes} B"
    ]
    lines += _node_lines(program.body, "  ")
    if program.setup is not None:
        first = len(program.given_consts)
        types = ", ".join(map(str, program.consts[first:]))
        lines.append(f"constants from {first} on, {types}, are computed once by")
        lines += _node_lines(program.setup.body, "  ")
    return "\n".join(lines)


def _node_lines(nodes: Sequence[Node], indent: str) -> Iterator[str]:
    for number, node in enumerate(nodes):
        head = f"{indent}{number}: "
        if isinstance(node, Dispatch):
            yield head + _dispatch_line(node)
            continue
        if isinstance(node, Copy):
            yield f"{head}copy of {node.source.size} B  # {node.label}"
            continue
        trips = f" of {node.trips} trips" if isinstance(node, Loop) else ""
        yield f"{head}{type(node).__name__.lower()}{trips}"
        for part, body in enumerate(node.bodies):
            if len(node.bodies) > 1:
                yield f"{indent}  part {part}"
            yield from _node_lines(body, indent + "    ")


def _dispatch_line(dispatch: Dispatch) -> str:
    grid = "x".join(map(str, dispatch.grid))
    group = "x".join(map(str, dispatch.kernel.workgroup))
    schedule = dispatch.kernel.schedule
    return (
        f"{dispatch.kernel.name} [{schedule}] grid {grid} of {group}, "
        f"{dispatch.bytes_moved} B, {dispatch.flops} flops  # {dispatch.label}"
    )
