"""A row of a table of timings: the same calls under poot and under JAX."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu import CALLS, Start, seconds


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table: what a call does, and in what its figure is.

    A library is a module with `numpy`, `lax`, `nn`, `jit` and `device_put`: poot, or
    jax.
    """

    name: str
    unit: str
    # Starts calls under a library.
    start: Callable[[Any], Start]
    # The figure of so many seconds a call.
    figure: Callable[[float], float]
    calls: int = CALLS
    # Whether each call is waited for.
    waits: bool = False

    def measure(self, library: Any) -> float:
        """The row's figure under a library."""
        return self.figure(seconds(self.start(library), self.calls, self.waits))


def tera(amount: float) -> Callable[[float], float]:
    """So much a call, in 10^12 a second."""
    return lambda taken: amount / taken / 1e12


def micro(taken: float) -> float:
    return taken * 1e6


def rate(taken: float) -> float:
    return 1 / taken


def of_arrays(
    function: Callable[..., Any],
    make: Callable[[], list[np.ndarray]],
    check: Callable[[list[np.ndarray], Any], None],
) -> Callable[[Any], Start]:
    """Calls of a jitted function on arrays that are made anew; the first is checked.

    The function takes the library and the arrays, a check the arrays and the result.
    """

    def started(library: Any) -> Start:
        arrays = make()
        jitted = library.jit(lambda *given: function(library, *given))
        placed = [library.device_put(array) for array in arrays]
        check(arrays, jitted(*placed))
        return lambda: jitted(*placed).block_until_ready

    return started


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    random = np.random.default_rng()
    return random.standard_normal(shape, dtype=np.float32).astype(dtype)
