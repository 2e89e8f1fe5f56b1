"""Which command buffers go to the queue together: as many as the work limit lets.

A submission moves the timeline when it ends, so that long work shows progress and no
driver takes it for stuck.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from poot.vulkan.commands import Poll, Repeat, Step, Submit

# Command buffers of one submission, so that its list stays small.
_MOST_BUFFERS = 4096
# Batches of a polled loop grow to so many units; see `Polled`.
_MOST_UNITS = 64


@dataclass(frozen=True, slots=True)
class Repeated:
    """Pieces that run `trips` times."""

    trips: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Polled:
    """A unit that runs again and again until the word that `look` copies is zero.

    Units that run past that do nothing.
    """

    word: int
    unit: tuple[Piece, ...]
    look: int


# An int is the number of a command buffer.
Piece = int | Repeated | Polled


def submissions(
    pieces: Sequence[Piece], works: Sequence[float], limit_ns: float
) -> tuple[Step, ...]:
    """The steps that run the pieces; `works` are estimates for the command buffers."""
    planner = _Planner(works, limit_ns)
    for piece in pieces:
        planner.add(piece)
    return planner.finish()


@dataclass(frozen=True, slots=True)
class _Extent:
    buffers: int
    work: float
    polls: bool


class _Planner:
    """Fills one submission after another."""

    def __init__(self, works: Sequence[float], limit_ns: float) -> None:
        self._works = works
        self._limit_ns = limit_ns
        self._steps: list[Step] = []
        self._group: list[int] = []
        self._work = 0.0

    def add(self, piece: Piece) -> None:
        if isinstance(piece, Repeated):
            self._repeat(piece)
        elif isinstance(piece, Polled):
            self._poll(piece)
        else:
            self._add_buffer(piece)

    def finish(self) -> tuple[Step, ...]:
        self._flush()
        return tuple(self._steps)

    def _add_buffer(self, number: int) -> None:
        work = self._works[number]
        full = len(self._group) >= _MOST_BUFFERS
        if full or self._work + work > self._limit_ns:
            self._flush()
        self._group.append(number)
        self._work += work

    def _repeat(self, piece: Repeated) -> None:
        together = self._together(piece.pieces)
        if not together:
            self._flush()
            inner = submissions(piece.pieces, self._works, self._limit_ns)
            self._steps.append(Repeat(piece.trips, inner))
            return
        flat = tuple(_flat(piece.pieces))
        whole, rest = divmod(piece.trips, together)
        if whole > 1:
            self._flush()
            self._steps.append(Repeat(whole, (Submit(flat * together),)))
        else:
            rest = piece.trips
        for number in flat * rest:
            self._add_buffer(number)

    def _poll(self, piece: Polled) -> None:
        together = min(self._together(piece.unit), _MOST_UNITS)
        if not together:
            self._flush()
            inner = (*piece.unit, piece.look)
            steps = submissions(inner, self._works, self._limit_ns)
            self._steps.append(Poll(piece.word, (steps,)))
            return
        unit = tuple(_flat(piece.unit))
        # The first batch goes with what comes before, and is small; so a short loop
        # costs one submission and runs little in vain.
        for number in unit:
            self._add_buffer(number)
        batches = [(Submit((*self._group, piece.look)),)]
        self._forget()
        count = min(2, together)
        while count <= together:
            batches.append((Submit((*unit * count, piece.look)),))
            count *= 2
        self._steps.append(Poll(piece.word, tuple(batches)))

    def _together(self, pieces: tuple[Piece, ...]) -> int:
        """How many times pieces fit into one submission; 0 if not even once."""
        extent = self._extent(pieces)
        if extent.polls or extent.buffers > _MOST_BUFFERS:
            return 0
        if extent.work <= 0:
            return _MOST_BUFFERS // extent.buffers
        most = int(self._limit_ns / extent.work)
        # One command buffer is never cut further, however long it takes.
        least = int(extent.buffers == 1)
        return max(least, min(_MOST_BUFFERS // extent.buffers, most))

    def _extent(self, pieces: tuple[Piece, ...]) -> _Extent:
        buffers, work, polls = 0, 0.0, False
        for piece in pieces:
            if isinstance(piece, int):
                buffers, work = buffers + 1, work + self._works[piece]
                continue
            inner = piece.pieces if isinstance(piece, Repeated) else piece.unit
            trips = piece.trips if isinstance(piece, Repeated) else 1
            extent = self._extent(inner)
            buffers += trips * extent.buffers
            work += trips * extent.work
            polls = polls or extent.polls or isinstance(piece, Polled)
        return _Extent(buffers, work, polls)

    def _flush(self) -> None:
        if self._group:
            self._steps.append(Submit(tuple(self._group)))
        self._forget()

    def _forget(self) -> None:
        self._group = []
        self._work = 0.0


def _flat(pieces: tuple[Piece, ...]) -> Iterator[int]:
    """The command buffers of pieces that do not poll, each as often as it runs."""
    for piece in pieces:
        if isinstance(piece, int):
            yield piece
        elif isinstance(piece, Repeated):
            for _ in range(piece.trips):
                yield from _flat(piece.pieces)
