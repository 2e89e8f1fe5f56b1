"""`poot.profile`: how long each kernel takes, by the device's own clock."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from poot.core.errors import ArgumentError
from poot.interpreters.backend import backend
from poot.interpreters.stage import traced_function
from poot.lowering.program import Dispatch
from poot.vulkan.profiler import Profiler, TimedCommand

_MOST_ROWS = 40
_LABEL_COLUMNS = 60
_NEVER_ENTERED = (
    "nothing was profiled, as no block was run with this; write "
    "`with poot.profile() as p: f(x)`, then look at p"
)
# Process numbers of the trace: its viewers show each as a group of tracks.
_HOST, _DEVICE = 1, 2


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """What one kernel took in all. Rates are None where the work is not known.

    That is so for launches that a branch or while may have switched off.
    """

    kernel: str
    label: str
    calls: int
    total_us: float
    gigabytes_per_s: float | None
    teraflops: float | None
    share: float


class Profile:
    """What ran while the block stood; `print` gives a table.

    `rows` has a ProfileRow a kernel, the dearest first.
    """

    def __init__(self) -> None:
        self._profiler = Profiler()
        self._device = ""
        self._entered = False

    def __enter__(self) -> Self:
        if self._entered:
            raise ArgumentError("profile: a block was profiled with this; make another")
        self._entered = True
        traced = traced_function()
        if traced is not None:
            raise ArgumentError(
                f"profile: nothing runs in this block, since `{traced}` is only being "
                "traced; put the block around the call of the jitted function"
            )
        found = backend()
        found.start_profiling(self._profiler)
        self._device = str(found.devices[0])
        return self

    def __exit__(self, *exception: object) -> None:
        backend().stop_profiling(self._profiler)

    @property
    def commands(self) -> list[TimedCommand]:
        """Every launch and copy that ran, in the order of their ends being seen."""
        return list(self._profiler.commands)

    @property
    def total_us(self) -> float:
        """The time of all commands."""
        return sum(command.duration_ns for command in self.commands) / 1e3

    @property
    def rows(self) -> list[ProfileRow]:
        found: dict[str, list[TimedCommand]] = defaultdict(list)
        for command in self.commands:
            found[command.name].append(command)
        total_ns = sum(c.duration_ns for group in found.values() for c in group)
        rows = [_row(name, group, total_ns) for name, group in found.items()]
        return sorted(rows, key=lambda row: -row.total_us)

    def __str__(self) -> str:
        if not self._entered:
            return _NEVER_ENTERED
        rows = self.rows
        calls = len(self._profiler.calls)
        head = f"{calls} calls on {self._device}: {self.total_us:.1f} us"
        return "\n".join([head, *_table(rows[:_MOST_ROWS]), *_rest(rows[_MOST_ROWS:])])

    def __repr__(self) -> str:
        calls, commands = len(self._profiler.calls), len(self._profiler.commands)
        return f"<profile of {calls} calls, {commands} commands>"

    def chrome_trace(self, path: str | Path) -> None:
        """Write all commands and calls as JSON for chrome://tracing or Perfetto.

        ArgumentError if no block was profiled.
        """
        if not self._entered:
            raise ArgumentError(f"profile: {_NEVER_ENTERED}")
        events = [*_named(), *self._host_events(), *self._device_events()]
        text = json.dumps({"traceEvents": events, "displayTimeUnit": "ns"})
        Path(path).write_text(text)

    def _host_events(self) -> Iterator[dict[str, Any]]:
        threads: dict[str, int] = {}
        for call in self._profiler.calls:
            number = threads.setdefault(call.thread, len(threads) + 1)
            yield _event(call.label, _HOST, number, call.begin_ns, call.end_ns, {})
        for thread, number in threads.items():
            yield _metadata("thread_name", _HOST, number, thread)

    def _device_events(self) -> Iterator[dict[str, Any]]:
        offset = self._profiler.host_offset_ns
        for timed in self.commands:
            command = timed.command
            details: dict[str, Any] = {"label": command.label}
            if isinstance(command, Dispatch):
                details |= {
                    "grid": "x".join(map(str, command.grid)),
                    "schedule": command.kernel.schedule,
                    "bytes": command.bytes_moved,
                    "flops": command.flops,
                }
            else:
                details["bytes"] = 2 * command.source.size
            begin, end = timed.begin_ns + offset, timed.end_ns + offset
            yield _event(timed.name, _DEVICE, 1, begin, end, details)


def profile() -> Profile:
    """A block in which the device's clock times every launch and copy.

        with poot.profile() as p:
            f(x)
        print(p)

    It sees the whole process: jitted functions, operations run at once, loops, all
    threads; not the transfers between host and device. Calls wait for their end and
    commands run one by one in it, so that times are those of each kernel alone; the
    sum is more than calls take elsewhere. CapabilityError where there is no device.
    """
    return Profile()


def _row(name: str, group: list[TimedCommand], total_ns: float) -> ProfileRow:
    taken_ns = sum(timed.duration_ns for timed in group)
    moved = flops = 0
    for timed in group:
        command = timed.command
        if isinstance(command, Dispatch):
            moved, flops = moved + command.bytes_moved, flops + command.flops
        else:
            moved += 2 * command.source.size
    known = taken_ns > 0 and not any(timed.is_switched for timed in group)
    return ProfileRow(
        kernel=name,
        label=group[0].command.label,
        calls=len(group),
        total_us=taken_ns / 1e3,
        gigabytes_per_s=moved / taken_ns if known else None,
        teraflops=flops / taken_ns / 1e3 if known else None,
        share=taken_ns / total_ns if total_ns else 0.0,
    )


def _table(rows: Iterable[ProfileRow]) -> Iterator[str]:
    rows = list(rows)
    width = max([len("kernel"), *(len(row.kernel) for row in rows)])
    columns = f"{'calls':>7} {'us':>11} {'us each':>9} {'GB/s':>8} {'TFLOP/s':>8}"
    yield f"{'kernel':{width}} {columns} {'share':>6}"
    for row in rows:
        each = row.total_us / row.calls
        rates = f"{_rate(row.gigabytes_per_s, 1):>8} {_rate(row.teraflops, 3):>8}"
        yield (
            f"{row.kernel:{width}} {row.calls:7} {row.total_us:11.1f} {each:9.2f} "
            f"{rates} {row.share:6.1%}  {_shortened(row.label)}"
        ).rstrip()


def _rate(rate: float | None, digits: int) -> str:
    return "-" if rate is None else f"{rate:.{digits}f}"


def _shortened(label: str) -> str:
    return label if len(label) <= _LABEL_COLUMNS else f"{label[: _LABEL_COLUMNS - 1]}…"


def _rest(rows: list[ProfileRow]) -> Iterator[str]:
    if rows:
        taken, share = sum(r.total_us for r in rows), sum(r.share for r in rows)
        yield f"and {len(rows)} more kernels: {taken:.1f} us, {share:.1%}"


def _named() -> Iterator[dict[str, Any]]:
    yield _metadata("process_name", _HOST, 0, "host")
    yield _metadata("process_name", _DEVICE, 0, "device")


def _metadata(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    given = {"name": name}
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": given}


def _event(
    name: str,
    process: int,
    thread: int,
    begin_ns: float,
    end_ns: float,
    details: dict[str, Any],
) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "pid": process,
        "tid": thread,
        "ts": begin_ns / 1e3,
        "dur": (end_ns - begin_ns) / 1e3,
        "args": details,
    }
