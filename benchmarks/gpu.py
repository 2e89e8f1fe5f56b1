"""poot on a GPU: bandwidth at 1 GiB against its own copy kernels, and call latency.

    python benchmarks/gpu.py [--json FILE]

Medians over calls that are warmed up for at least half a second, since an idle card
runs at a fraction of its clock. Inputs are fresh random data; results are checked.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import poot
from call_overhead import overhead_microseconds
from copy_kernels import SHAPES, copy_program
from poot import lax
from poot.interpreters.backend import backend
from poot.vulkan.device import Device
from poot.vulkan.executable import Executable

ELEMENTS = 1 << 28
ROWS, COLUMNS = 65536, 4096
WARM_UP_SECONDS = 0.5
ROUNDS, CALLS = 7, 10


def chain(x: Any) -> Any:
    return lax.tanh(x * 1.5 + 0.5) * lax.exp(-(x * x)) + x


def softmax(x: Any) -> Any:
    e = lax.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def rms_norm(x: Any) -> Any:
    return x / lax.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-6)


def total(x: Any) -> Any:
    return x.sum()


def seconds(run: Callable[[], Callable[[], object]]) -> float:
    """Median seconds of one call of `run`, which returns how to wait for it."""
    began = time.perf_counter()
    while time.perf_counter() - began < WARM_UP_SECONDS:
        run()()
    rounds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(CALLS):
            wait = run()
        wait()
        rounds.append((time.perf_counter() - began) / CALLS)
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


def measure(function: Callable[[Any], Any], x: np.ndarray, moved: int) -> float:
    """TB/s of a jitted function of one array that moves `moved` bytes."""
    jitted = poot.jit(function)
    array = poot.device_put(x)
    part = slice(0, 64)
    expected = np.asarray(poot.evaluate(poot.make_graph(function)(x[part]), x[part])[0])
    got = np.asarray(jitted(array))
    if expected.shape:
        np.testing.assert_allclose(got[part], expected, rtol=1e-4, atol=1e-6)

    def run() -> Callable[[], object]:
        return jitted(array).block_until_ready

    return moved / seconds(run) / 1e12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    print(poot.devices()[0])
    call, bare = overhead_microseconds()
    print(f"call {call:.2f} us, bare submit and wait {bare:.2f} us: {call - bare:.2f}")
    ceiling, kernel = copy_ceiling(backend().device)
    print(f"copy ceiling {ceiling:.3f} TB/s ({kernel})")
    random = np.random.default_rng(0)
    flat = random.standard_normal(ELEMENTS, dtype=np.float32)
    rows = flat.reshape(ROWS, COLUMNS)
    size = flat.nbytes
    rates = {
        "chain 1 GiB": measure(chain, flat, 2 * size),
        "softmax 65536x4096": measure(softmax, rows, 2 * size),
        "RMSNorm 65536x4096": measure(rms_norm, rows, 2 * size),
        "sum 1 GiB": measure(total, flat, size),
    }
    for name, rate in rates.items():
        print(f"{name:22} {rate:.3f} TB/s, {rate / ceiling:.2f} of the copy ceiling")
    if arguments.json:
        figures = {"device": str(poot.devices()[0]), "copy": ceiling, **rates}
        figures |= {"call_us": call, "bare_us": bare}
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
