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
WARM_UP_SECONDS = 0.5
ROUNDS, CALLS = 7, 10

# Starts one call, and gives what waits for its end.
Start = Callable[[], Callable[[], object]]


def seconds(start: Start, calls: int = CALLS, waits: bool = False) -> float:
    """The median seconds of a call, `calls` a round; with `waits` one at a time."""
    began = time.perf_counter()
    while time.perf_counter() - began < WARM_UP_SECONDS:
        start()()
    rounds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(calls):
            wait = start()
            if waits:
                wait()
        wait()
        rounds.append((time.perf_counter() - began) / calls)
    return sorted(rounds)[ROUNDS // 2]


def copy_ceiling(device: Device) -> tuple[float, str]:
    """The best copy bandwidth in TB/s over all copy kernels, and which one it was."""
    source = device.upload(np.zeros(ELEMENTS, np.float32))
    best = (0.0, "")
    for shape in SHAPES:
        executable = Executable(device, copy_program(device.info, ELEMENTS, shape))

        def run(executable: Executable = executable) -> Callable[[], object]:
            return executable.call([source])[1].wait

        rate = 8 * ELEMENTS / seconds(run) / 1e12
        best = max(best, (rate, str(shape)))
        executable.close()
    return best
