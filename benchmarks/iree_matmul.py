"""The time of IREE's matmul, taken in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import jax.numpy as jnp
import numpy as np

from iree_vulkan import IreeFunction


def matmul_milliseconds(side: int, rounds: int) -> list[float]:
    """What each of `rounds` calls takes after a first one."""
    random = np.random.default_rng(1)
    a, b = (random.standard_normal((side, side), dtype=np.float32) for _ in range(2))
    matmul = IreeFunction(jnp.matmul, (a, b))
    expected = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(matmul.to_host(matmul()), expected, atol=2e-4, rtol=2e-5)
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        matmul()
        taken.append((time.perf_counter() - began) * 1e3)
    return taken


def matmul_milliseconds_alone(side: int, rounds: int) -> list[float]:
    """The same in a child process, which takes its polling threads with it."""
    command = [sys.executable, __file__, str(side), str(rounds)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    times: list[float] = json.loads(done.stdout)
    return times


if __name__ == "__main__":
    print(json.dumps(matmul_milliseconds(int(sys.argv[1]), int(sys.argv[2]))))
