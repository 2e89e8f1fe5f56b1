"""The list of commands that a Program becomes: launches, copies, barriers, cuts.

Nothing here knows Vulkan, so that lists are printed, compared and checked for races
without a device.
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
    Node,
    Space,
)


@dataclass(frozen=True, slots=True)
class Barrier:
    """All earlier commands end, and their writes are seen, before any later one.

    The `opening` one of a command buffer also waits for what earlier submissions did,
    on any buffer: memory may have changed hands between them.
    """

    opening: bool = False

    def __str__(self) -> str:
        return "barrier (opening)" if self.opening else "barrier"


Command = Dispatch | Copy | Barrier


@dataclass(frozen=True, slots=True)
class CommandList:
    """What one replay runs: command buffers in order, each a sequence of commands."""

    buffers: tuple[tuple[Command, ...], ...]

    @property
    def commands(self) -> tuple[Command, ...]:
        return tuple(command for buffer in self.buffers for command in buffer)

    def __str__(self) -> str:
        lines = []
        for number, buffer in enumerate(self.buffers):
            lines.append(f"command buffer {number} {{")
            lines += [f"  {command}" for command in buffer]
            lines.append("}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class WorkLimit:
    """Where a command buffer is cut: estimated time and number of commands."""

    nanoseconds: float
    commands: int
    bytes_per_ns: float
    flops_per_ns: float

    def estimate(self, node: Dispatch | Copy) -> float:
        moved = sum(span.size for span in (*node.reads, *node.writes))
        flops = node.flops if isinstance(node, Dispatch) else 0
        return moved / self.bytes_per_ns + flops / self.flops_per_ns


def work_limit(info: DeviceInfo) -> WorkLimit:
    """Cuts that keep a command buffer far from the seconds after which drivers reset.

    The rates are deliberately low ones: an early cut costs a barrier, a late one may
    cost the device.
    """
    if info.is_cpu:
        return WorkLimit(1e9, 4096, bytes_per_ns=1.0, flops_per_ns=1.0)
    units = info.compute_units
    return WorkLimit(1e8, 4096, bytes_per_ns=2.0 * units, flops_per_ns=10.0 * units)


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


class Recorder:
    """Puts commands in a list, with a barrier where a hazard asks for one."""

    def __init__(self, limit: WorkLimit) -> None:
        self._limit = limit
        self._hazards = HazardTracker()
        self._done: list[tuple[Command, ...]] = []
        self._current: list[Command] = []
        self._work = 0.0

    def add(self, node: Node) -> None:
        if not isinstance(node, Dispatch | Copy):
            raise LoweringError(
                f"a program holds a {type(node).__name__}; this executable runs only "
                "Dispatch and Copy"
            )
        work = self._limit.estimate(node)
        full = len(self._current) >= self._limit.commands
        if self._current and (full or self._work + work > self._limit.nanoseconds):
            self._cut()
        if not self._current:
            self._current.append(Barrier(opening=True))
        elif self._hazards.needs_barrier(node.reads, node.writes):
            self._current.append(Barrier())
            self._hazards.clear()
        self._hazards.add(node.reads, node.writes)
        self._current.append(node)
        self._work += work

    def finish(self) -> CommandList:
        self._cut()
        return CommandList(tuple(self._done))

    def _cut(self) -> None:
        if self._current:
            self._done.append(tuple(self._current))
        self._current = []
        self._hazards.clear()
        self._work = 0.0


def record(body: Iterable[Node], limit: WorkLimit) -> CommandList:
    """The command list of a Program's body."""
    recorder = Recorder(limit)
    for node in body:
        recorder.add(node)
    return recorder.finish()
