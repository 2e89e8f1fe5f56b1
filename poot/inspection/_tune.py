"""`poot.tune`: times the schedules that kernels could have, and keeps the fastest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from poot.core.errors import ArgumentError, CapabilityError, PootError
from poot.core.graph import Graph
from poot.core.interpreter import base, current
from poot.core.ops.host import HostCall, Record, holds
from poot.inspection._explain import jitted_form
from poot.interpreters.backend import backend
from poot.interpreters.backend_vulkan import VulkanBackend
from poot.lowering.compile import plan
from poot.lowering.tuned import Tuned
from poot.vulkan.profiler import Profiler

# Runs of each candidate, of which the fastest counts; the first only warms up.
_RUNS = 6
# What a candidate must save, so that noise decides nothing.
_LEAST_GAIN = 0.03

# Nanoseconds by the kernel's name and what it is for.
_Times = dict[tuple[str, str], float]


@dataclass(frozen=True, slots=True)
class TunedSchedule:
    """What was tried for one choice; times in us are of the launches that differ.

    A candidate that the device refused has None.
    """

    key: str
    usual: str
    winner: str
    times_us: dict[str, float | None]

    def __str__(self) -> str:
        width = max(map(len, self.times_us), default=0)
        lines = [self.key]
        for name, taken in self.times_us.items():
            mark = "->" if name == self.winner else "  "
            us = "refused" if taken is None else f"{taken:.1f} us"
            lines.append(f"  {mark} {name:{width}} {us}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, repr=False)
class Tuning:
    """What `poot.tune` tried and found; `str` gives the text."""

    name: str
    schedules: tuple[TunedSchedule, ...]

    @property
    def winners(self) -> dict[str, str]:
        """The schedules that took the place of the usual ones, by what they are for."""
        return {s.key: s.winner for s in self.schedules if s.winner != s.usual}

    def __str__(self) -> str:
        head = (
            f"`{self.name}`: {len(self.winners)} of {len(self.schedules)} schedules "
            "have changed"
        )
        return "\n".join([head, *map(str, self.schedules)])

    def __repr__(self) -> str:
        return f"<tuning of {self.name}: {len(self.winners)} schedules changed>"


def tune(function: Callable[..., Any]) -> Callable[..., Tuning]:
    """A function that finds the fastest schedules for `function` and its arguments.

        print(poot.tune(f)(x, y))

    Each kernel of a contraction, a row or attention is timed by the device's clock with
    each schedule that it could have. Winners are kept on disk, for this device with
    this driver, and count for all functions with such kernels: those that are jitted
    later, and `function` itself from its next call on. Sums may be ordered otherwise,
    as with any choice of a schedule. Donated arguments stay as they are.
    """
    jitted = jitted_form("tune", function)

    def tuned(*args: Any, **kwargs: Any) -> Tuning:
        around: Any = current()
        if around is not base():
            raise ArgumentError(
                f"tune: `{around.function_name}` is being traced or transformed, and "
                "its values have no numbers to time kernels with; call "
                f"poot.tune(…)(…) outside of `{around.function_name}`, with arrays"
            )
        found = backend()
        if not isinstance(found, VulkanBackend):
            raise CapabilityError(
                "tuning takes a Vulkan device, whose clock times the kernels; here "
                "poot calculates with NumPy on the host"
            )
        traced = jitted.trace(*args, **kwargs)
        lowered = traced.lower()
        if holds(traced.graph, HostCall) or holds(traced.graph, Record):
            raise ArgumentError(
                f"tune: `{lowered.name}` calls the host; tune what it computes without "
                "debug.print, debug.callback and pure_callback"
            )
        leaves = jitted.leaves(*args, **kwargs)
        buffers, numbers = lowered.compile().bound(leaves)
        tuner = _Tuner(found, lowered.graph, buffers, numbers)
        result = Tuning(lowered.name, tuple(tuner.run()))
        found.retune(result.winners)
        jitted.clear_cache()
        return result

    return tuned


class _Tuner:
    def __init__(
        self,
        found: VulkanBackend,
        graph: Graph,
        buffers: list[Any],
        numbers: list[Any],
    ) -> None:
        self._backend = found
        self._graph = graph
        self._buffers = buffers
        self._numbers = numbers

    def run(self) -> Iterator[TunedSchedule]:
        """Try the candidates of one choice after another; what has won stays."""
        winners = dict(self._backend.info.tuned.winners)
        seen: dict[str, list[str]] = {}
        plan(self._graph, self._backend.info.masked(tuned=Tuned({}, seen)))
        for key, names in seen.items():
            if len(names) < 2:
                continue
            times: dict[str, float | None] = {}
            usual = self._times({**winners, key: names[0]})
            best, least = names[0], None
            for name in names[1:]:
                try:
                    other = self._times({**winners, key: name})
                except PootError:
                    times[name] = None
                    continue
                before, after = _differing(usual, other), _differing(other, usual)
                times.setdefault(names[0], before / 1e3)
                times[name] = after / 1e3
                gained = before - after
                if gained > _LEAST_GAIN * before and (least is None or gained > least):
                    best, least = name, gained
            winners[key] = best
            yield TunedSchedule(key, names[0], best, times)

    def _times(self, winners: Mapping[str, str]) -> _Times:
        """The least time of each kernel over some runs."""
        device = self._backend.device
        tuned = Tuned(winners)
        executable = self._backend.load_tuned(self._graph, tuned)
        donated = executable.program.donated
        least: _Times = {}
        for run in range(_RUNS):
            buffers = [
                device.duplicate(buffer) if number in donated else buffer
                for number, buffer in enumerate(self._buffers)
            ]
            profiler = Profiler()
            device.start_profiling(profiler)
            try:
                executable.call(buffers, self._numbers)
            finally:
                device.stop_profiling(profiler)
            if run:
                for place, taken in _totals(profiler).items():
                    least[place] = min(taken, least.get(place, taken))
        executable.close()
        return least


def _totals(profiler: Profiler) -> _Times:
    totals: _Times = defaultdict(float)
    for timed in profiler.commands:
        totals[timed.name, timed.command.label] += timed.duration_ns
    return totals


def _differing(times: _Times, other: _Times) -> float:
    """The time of the kernels that the other has not."""
    return sum(taken for place, taken in times.items() if place not in other)
