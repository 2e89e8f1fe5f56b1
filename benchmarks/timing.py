"""Medians of things that are timed in turn, so that a slow moment hits all alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping


def medians(
    runs: Mapping[str, Callable[[], object]], *, warm_up: int = 3, rounds: int = 15
) -> dict[str, float]:
    """The median seconds of each run; all are called once a round, in their order."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(warm_up + rounds):
        for name, run in runs.items():
            began = time.perf_counter()
            run()
            taken = time.perf_counter() - began
            if number >= warm_up:
                seconds[name].append(taken)
    return {name: statistics.median(values) for name, values in seconds.items()}
