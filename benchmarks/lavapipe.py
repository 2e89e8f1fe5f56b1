"""poot on Mesa's CPU driver, against its own copy kernels and IREE's Vulkan backend.

    ./scripts/bench [--json FILE]

Exits with 1 if a ratio is over its bound.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import poot
import poot.numpy as jnp
from call_overhead import overhead_microseconds
from copy_kernels import SHAPES, copy_program
from iree_matmul import matmul_milliseconds_alone
from poot.interpreters.backend import backend
from poot.vulkan.device import Device
from poot.vulkan.executable import Executable
from timing import medians

ELEMENTS = 1 << 22
ROWS, COLUMNS = 4096, 1024
SIDE = 1024
EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure, what it is compared with, and the bound on it."""

    name: str
    value: float
    reference: float
    unit: str
    figure: float
    bound: float

    @property
    def holds(self) -> bool:
        return self.figure <= self.bound

    def __str__(self) -> str:
        verdict = "holds" if self.holds else "FAILS"
        return (
            f"{self.name:22} {self.value:10.3f} {self.reference:10.3f} {self.unit:3} "
            f"{self.figure:8.3f} <= {self.bound:6.2f}  {verdict}"
        )


# --- what is measured, written against NumPy's names of either library ------


def chain(np_like, x):
    return np_like.tanh(1.5 * x + 0.5) * np_like.exp(-(x * x)) + x


def rms_norm(np_like, x, weight):
    mean = np_like.mean(x * x, axis=-1, keepdims=True)
    return x / np_like.sqrt(mean + EPSILON) * weight


def softmax(np_like, x):
    e = np_like.exp(x - np_like.max(x, axis=-1, keepdims=True))
    return e / np_like.sum(e, axis=-1, keepdims=True)


def matmul(np_like, a, b):
    return np_like.matmul(a, b)


def on_poot(function: Callable, *arguments: np.ndarray) -> Callable[[], poot.Array]:
    """A jitted call on arrays that are on the device; checked once against NumPy."""
    jitted = poot.jit(lambda *arrays: function(jnp, *arrays))
    arrays = [poot.device_put(a) for a in arguments]
    expected = function(np, *(a.astype(np.float64) for a in arguments))
    np.testing.assert_allclose(
        np.asarray(jitted(*arrays)), expected, rtol=2e-5, atol=2e-4
    )
    return lambda: jitted(*arrays).block_until_ready()


def copies(device: Device, elements: int) -> dict[str, Callable[[], object]]:
    """Every copy kernel over `elements` f32, by name."""
    source = device.upload(np.zeros(elements, np.float32))

    def copy(executable: Executable) -> Callable[[], object]:
        return lambda: executable.call([source])[1].wait()

    return {
        f"copy {shape}": copy(
            Executable(device, copy_program(device.info, elements, shape))
        )
        for shape in SHAPES
    }


# --- the measures -----------------------------------------------------------


def measure_memory_bound(device: Device, rounds: int) -> list[Measure]:
    random = np.random.default_rng(0)
    flat = random.standard_normal(ELEMENTS, dtype=np.float32)
    rows = flat.reshape(ROWS, COLUMNS)
    weight = random.standard_normal(COLUMNS, dtype=np.float32)
    runs = copies(device, ELEMENTS) | {
        "chain 4M": on_poot(chain, flat),
        "RMSNorm 4096x1024": on_poot(rms_norm, rows, weight),
        "softmax 4096x1024": on_poot(softmax, rows),
    }
    taken = medians(runs, rounds=rounds)
    for name, seconds in taken.items():
        print(f"  {name:22} {seconds * 1e3:10.3f} ms")
    fastest = min(taken[name] for name in taken if name.startswith("copy"))
    bounds = {"chain 4M": 2.0, "RMSNorm 4096x1024": 2.0, "softmax 4096x1024": 2.5}
    return [
        Measure(
            name, taken[name] * 1e3, fastest * 1e3, "ms", taken[name] / fastest, bound
        )
        for name, bound in bounds.items()
    ]


def measure_matmul(rounds: int) -> Measure:
    """poot between two runs of IREE in processes of their own.

    Once IREE has run, its threads poll for ever and take the cores from others.
    """
    random = np.random.default_rng(1)
    a, b = (random.standard_normal((SIDE, SIDE), dtype=np.float32) for _ in range(2))
    theirs = matmul_milliseconds_alone(SIDE, rounds)
    taken = medians({"poot": on_poot(matmul, a, b)}, rounds=rounds)
    theirs += matmul_milliseconds_alone(SIDE, rounds)
    ours, other = taken["poot"] * 1e3, statistics.median(theirs)
    return Measure("matmul 1024^3 / IREE", ours, other, "ms", ours / other, 0.7)


def measure_overhead() -> Measure:
    call, bare = overhead_microseconds()
    return Measure("call on 16 floats", call, bare, "us", call - bare, 15.0)


def measure_import(rounds: int) -> Measure:
    """What `import poot` adds to the start of an interpreter."""

    def interpreter(statement: str) -> Callable[[], object]:
        command = [sys.executable, "-c", statement]
        return lambda: subprocess.run(command, check=True)

    runs = {code: interpreter(code) for code in ("import poot", "pass")}
    taken = medians(runs, rounds=rounds)
    whole, bare = taken["import poot"] * 1e3, taken["pass"] * 1e3
    return Measure("import poot", whole, bare, "ms", whole - bare, 300.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    (device,) = backend().devices
    print(f"device {device}")
    measures = [measure_import(arguments.rounds)]
    measures += measure_memory_bound(device, arguments.rounds)
    measures.append(measure_matmul(max(5, arguments.rounds // 2)))
    measures.append(measure_overhead())
    print(f"{'':22} {'poot':>10} {'reference':>10}     {'figure':>8}    {'bound':>6}")
    print("\n".join(str(measure) for measure in measures))
    if arguments.json:
        rows = [asdict(m) | {"holds": m.holds} for m in measures]
        text = json.dumps({"device": str(device), "measures": rows}, indent=2)
        arguments.json.write_text(text + "\n")
    return 0 if all(measure.holds for measure in measures) else 1


if __name__ == "__main__":
    sys.exit(main())
