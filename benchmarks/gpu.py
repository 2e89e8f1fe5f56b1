"""Timing on a GPU: calls of a warm card, and the best that copying reaches."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from copy_kernels import SHAPES, copy_program
from poot.vulkan.device import Device
from poot.vulkan.executable import Executable

ELEMENTS = 1 << 28
# An idle card runs at a fraction of its clock.
WARM_UP_SECONDS, BUSY_WARM_UP_SECONDS, MOST_SECONDS = 3.0, 0.5, 10.0
ROUNDS, CALLS = 7, 10
# A card whose rounds still get so much faster is not warm.
_STILL_FASTER = 0.99

# Starts one call, and gives what waits for its end.
Start = Callable[[], Callable[[], object]]


def seconds(
    start: Start, calls: int = CALLS, waits: bool = False, busy: bool = False
) -> float:
    """The median seconds of a call, `calls` a round; with `waits` one at a time.

    The card is warm when rounds take no less than those before: an idle one, as while
    the host made the data, takes up to some seconds to get back to its clocks. One
    that was `busy` until now needs less.
    """
    warm_up = BUSY_WARM_UP_SECONDS if busy else WARM_UP_SECONDS
    began = time.perf_counter()
    rounds: list[float] = []
    while True:
        rounds.append(_round(start, calls, waits))
        spent = time.perf_counter() - began
        if len(rounds) < 2 * ROUNDS or spent < warm_up:
            continue
        before, last = (
            sorted(rounds[first : first + ROUNDS])[ROUNDS // 2]
            for first in (len(rounds) - 2 * ROUNDS, len(rounds) - ROUNDS)
        )
        if last > before * _STILL_FASTER or spent > MOST_SECONDS:
            return last


def _round(start: Start, calls: int, waits: bool) -> float:
    began = time.perf_counter()
    for _ in range(calls):
        wait = start()
        if waits:
            wait()
    wait()
    return (time.perf_counter() - began) / calls


def copy_ceiling(device: Device) -> tuple[float, str]:
    """The best copy bandwidth in TB/s over all copy kernels, and which one it was."""
    source = device.upload(np.zeros(ELEMENTS, np.float32))
    best = (0.0, "")
    for shape in SHAPES:
        executable = Executable(device, copy_program(device.info, ELEMENTS, shape))

        def run(executable: Executable = executable) -> Callable[[], object]:
            return executable.call([source])[1].wait

        rate = 8 * ELEMENTS / seconds(run, busy=best[0] > 0) / 1e12
        best = max(best, (rate, str(shape)))
        executable.close()
    return best
