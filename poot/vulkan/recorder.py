"""The list of commands that a Program becomes: launches, copies, barriers, cuts.

A counted loop is recorded as often as it runs where that is little; otherwise a unit
of some iterations is recorded once, in command buffers that are submitted many times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from poot.core.errors import LoweringError
from poot.lowering.device_info import DeviceInfo
from poot.lowering.program import (
    BufferRange,
    Copy,
    Dispatch,
    Loop,
    Node,
    Space,
    While,
)
from poot.vulkan.commands import Barrier, Command, CommandList, IndirectDispatch
from poot.vulkan.submissions import Piece, Polled, Repeated, submissions

# Launches and copies of a unit: beside these a command buffer's own cost is nothing.
_UNIT_COMMANDS = 512
# Iterations of a polled loop between two looks of the host, at first.
_POLLED_ITERATIONS = 4
_WORD_BYTES = 4


@dataclass(frozen=True, slots=True)
class WorkLimit:
    """Where a command buffer is cut: estimated time and number of commands.

    `launch_ns` is what a launch or a copy takes however little it does.
    """

    nanoseconds: float
    commands: int
    bytes_per_ns: float
    flops_per_ns: float
    launch_ns: float = 0.0

    def estimate(self, node: Dispatch | Copy) -> float:
        moved = sum(span.size for span in (*node.reads, *node.writes))
        flops = node.flops if isinstance(node, Dispatch) else 0
        busy = moved / self.bytes_per_ns + flops / self.flops_per_ns
        return self.launch_ns + busy


def work_limit(info: DeviceInfo) -> WorkLimit:
    """Cuts that keep a command buffer far from the seconds after which drivers reset.

    The rates are deliberately low ones: an early cut costs a barrier, a late one may
    cost the device.
    """
    if info.is_cpu:
        return WorkLimit(
            1e9, 4096, bytes_per_ns=1.0, flops_per_ns=1.0, launch_ns=20_000.0
        )
    units = info.compute_units
    return WorkLimit(
        1e8,
        4096,
        bytes_per_ns=2.0 * units,
        flops_per_ns=10.0 * units,
        launch_ns=2_000.0,
    )


_Spans = dict[tuple[Space, int], list[tuple[int, int]]]


class HazardTracker:
    """Says whether a command must wait for one recorded since the last barrier."""

    def __init__(self) -> None:
        self._reads: _Spans = {}
        self._writes: _Spans = {}

    def needs_barrier(
        self, reads: Sequence[BufferRange], writes: Sequence[BufferRange]
    ) -> bool:
        return (
            _meets(self._writes, reads)
            or _meets(self._writes, writes)
            or _meets(self._reads, writes)
        )

    def add(self, reads: Sequence[BufferRange], writes: Sequence[BufferRange]) -> None:
        _insert(self._reads, reads)
        _insert(self._writes, writes)

    def clear(self) -> None:
        self._reads.clear()
        self._writes.clear()


def _meets(spans: _Spans, ranges: Iterable[BufferRange]) -> bool:
    for span in ranges:
        if not span.size:
            continue
        end = span.offset + span.size
        for low, high in spans.get((span.space, span.index), ()):
            if span.offset < high and low < end:
                return True
    return False


def _insert(spans: _Spans, ranges: Iterable[BufferRange]) -> None:
    for span in ranges:
        if span.size:
            held = spans.setdefault((span.space, span.index), [])
            held.append((span.offset, span.offset + span.size))


@dataclass(frozen=True, slots=True)
class _Extent:
    """What one run of some nodes is: commands, their work, and whether it polls."""

    commands: int
    work: float
    polls: bool


class Recorder:
    """Puts commands in buffers, with a barrier where a hazard asks for one.

    What follows other work in a command buffer waits for it as hazards ask; each
    command buffer waits for all that was submitted before. A While must have been
    made one that does nothing past its end; the words that the host looks at stand
    in the witness packet from `polls_offset` on.
    """

    def __init__(self, limit: WorkLimit, polls_offset: int = 0) -> None:
        self._limit = limit
        self._next_poll = polls_offset
        self._hazards = HazardTracker()
        # What was written since a barrier that the readers of grids wait for, and
        # whether there was one in the current command buffer.
        self._unseen = HazardTracker()
        self._seen_by_indirect = False
        self._done: list[tuple[Command, ...]] = []
        self._works: list[float] = []
        self._pieces: list[Piece] = []
        self._current: list[Command] = []
        self._work = 0.0

    def add(self, node: Node) -> None:
        if isinstance(node, Dispatch | Copy):
            self._add_command(node)
        elif isinstance(node, Loop):
            self._add_loop(node)
        elif isinstance(node, While) and not node.predicate:
            self._add_polled(node)
        else:
            raise LoweringError(
                f"a program holds a {type(node).__name__} that was not made launches"
            )

    def add_all(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            self.add(node)

    def finish(self) -> CommandList:
        self._cut()
        steps = submissions(self._pieces, self._works, self._limit.nanoseconds)
        return CommandList(tuple(self._done), steps)

    def _add_command(self, node: Dispatch | Copy) -> None:
        work = self._limit.estimate(node)
        full = len(self._current) >= self._limit.commands
        if self._current and (full or self._work + work > self._limit.nanoseconds):
            self._cut()
        if not self._current:
            self._current.append(Barrier(opening=True))
        self._add_barrier(node)
        self._hazards.add(node.reads, node.writes)
        self._unseen.add((), node.writes)
        self._current.append(node)
        self._work += work

    def _add_barrier(self, node: Dispatch | Copy) -> None:
        indirect = isinstance(node, IndirectDispatch)
        arguments = (node.arguments,) if isinstance(node, IndirectDispatch) else ()
        unseen = self._unseen.needs_barrier(arguments, ())
        if unseen or self._hazards.needs_barrier(node.reads, node.writes):
            self._current.append(Barrier(indirect=unseen))
            self._hazards.clear()
        if unseen:
            self._unseen.clear()
        elif indirect and not self._seen_by_indirect:
            # The grid was written by work of an earlier command buffer.
            self._current[0] = Barrier(opening=True, indirect=True)
        self._seen_by_indirect |= indirect

    def _cut(self) -> None:
        if self._current:
            self._pieces.append(len(self._done))
            self._done.append(tuple(self._current))
            self._works.append(self._work)
        self._current = []
        self._hazards.clear()
        self._unseen.clear()
        self._seen_by_indirect = False
        self._work = 0.0

    # --- loops --------------------------------------------------------------

    def _add_loop(self, loop: Loop) -> None:
        body = self._extent(loop.body)
        if not body.commands or not loop.trips:
            return
        copies = self._copies(body)
        if loop.trips <= copies:
            self.add_all(loop.body * loop.trips)
            return
        # A body larger than a unit stands alone.
        copies = max(copies, 1)
        whole, rest = divmod(loop.trips, copies)
        unit = self._apart(loop.body * copies)
        self._pieces.append(Repeated(whole, unit))
        self.add_all(loop.body * rest)

    def _add_polled(self, loop: While) -> None:
        body = self._extent(loop.body)
        copies = min(max(self._copies(body), 1), _POLLED_ITERATIONS)
        if body.polls:
            # Each iteration waits for the host anyhow.
            copies = 1
        unit = self._apart(loop.body * copies)
        word = BufferRange(Space.WITNESS, 0, self._next_poll, _WORD_BYTES)
        self._next_poll += _WORD_BYTES
        (look,) = self._apart((Copy(loop.flag, word, "flag of a while"),))
        assert isinstance(look, int)
        self._pieces.append(Polled(word.offset, unit, look))

    def _copies(self, body: _Extent) -> int:
        """How often a unit holds a body; 0 where not even once."""
        if body.polls:
            return 0
        copies = min(_UNIT_COMMANDS, self._limit.commands) // body.commands
        if body.work > 0:
            copies = min(copies, int(self._limit.nanoseconds / body.work))
        return copies

    def _apart(self, nodes: Iterable[Node]) -> tuple[Piece, ...]:
        """The pieces of nodes that share no command buffer with others."""
        self._cut()
        outer, self._pieces = self._pieces, []
        self.add_all(nodes)
        self._cut()
        pieces, self._pieces = self._pieces, outer
        return tuple(pieces)

    def _extent(self, nodes: Iterable[Node]) -> _Extent:
        commands, work, polls = 0, 0.0, False
        for node in nodes:
            if isinstance(node, Dispatch | Copy):
                commands, work = commands + 1, work + self._limit.estimate(node)
            elif isinstance(node, Loop | While):
                trips = node.trips if isinstance(node, Loop) else 1
                body = self._extent(node.body)
                commands += trips * body.commands
                work += trips * body.work
                polls = polls or body.polls or isinstance(node, While)
        return _Extent(commands, work, polls)


def record(
    body: Iterable[Node], limit: WorkLimit, polls_offset: int = 0
) -> CommandList:
    """The command list of a Program's body."""
    recorder = Recorder(limit, polls_offset)
    recorder.add_all(body)
    return recorder.finish()
