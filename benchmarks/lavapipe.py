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

import jax
import numpy as np

import models
import poot
import poot.numpy as jnp
from call_overhead import overhead_microseconds
from cases import (
    attention_arguments,
    causal_attention,
    chain,
    matmul,
    mlp_arguments,
    mlp_loss,
    rms_norm,
    softmax,
)
from checkout import commit
from copy_kernels import SHAPES, copy_program
from empty_launches import empty_launches
from iree_alone import milliseconds_alone
from poot.interpreters.backend import backend
from poot.lowering.program import Loop
from poot.vulkan.device import Device
from poot.vulkan.executable import Executable
from timing import medians

ELEMENTS = 1 << 22
ROWS, COLUMNS = 4096, 1024
SIDE = 1024
WIDTH = 512
LENGTH = 512
STEPS, CELL = 1000, 16


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
    """poot between two runs of IREE in processes of their own."""
    random = np.random.default_rng(1)
    a, b = (random.standard_normal((SIDE, SIDE), dtype=np.float32) for _ in range(2))
    run = on_poot(matmul, a, b)
    return between_iree("matmul 1024^3 / IREE", "matmul", SIDE, run, rounds, 0.7)


def measure_attention(rounds: int) -> Measure:
    """Causal, H8 L512 D64."""
    run = on_poot(causal_attention, *attention_arguments(LENGTH))
    return between_iree("attention / IREE", "attention", LENGTH, run, rounds, 0.8)


def between_iree(
    name: str,
    case: str,
    size: int,
    run: Callable[[], object],
    rounds: int,
    bound: float,
) -> Measure:
    theirs = milliseconds_alone(case, size, rounds)
    taken = medians({"poot": run}, rounds=rounds)
    theirs += milliseconds_alone(case, size, rounds)
    ours, other = taken["poot"] * 1e3, statistics.median(theirs)
    return Measure(name, ours, other, "ms", ours / other, bound)


def measure_gradient(rounds: int) -> Measure:
    """Of a small network by its weights, checked against f64 differences."""
    *weights, x, y = mlp_arguments(WIDTH)
    gradient = poot.jit(poot.grad(lambda ws, x, y: mlp_loss(jnp, ws, x, y)))
    arrays = [poot.device_put(a) for a in weights], *map(poot.device_put, (x, y))
    _check_gradient(gradient(*arrays), weights, x, y)

    def run() -> object:
        return gradient(*arrays)[0].block_until_ready()

    name = "MLP gradient / IREE"
    return between_iree(name, "mlp_gradient", WIDTH, run, rounds, 0.9)


def _check_gradient(found, weights, x, y) -> None:
    """By central differences in f64 along a random direction."""
    random = np.random.default_rng(3)
    exact = [w.astype(np.float64) for w in weights]
    way = [random.standard_normal(w.shape) for w in exact]

    def loss(step: float) -> float:
        moved = [w + step * d for w, d in zip(exact, way, strict=True)]
        return float(mlp_loss(np, moved, x.astype(np.float64), y.astype(np.float64)))

    slope = (loss(1e-6) - loss(-1e-6)) / 2e-6
    given = sum(
        float((np.asarray(g, np.float64) * d).sum())
        for g, d in zip(found, way, strict=True)
    )
    np.testing.assert_allclose(given, slope, rtol=1e-4)


def measure_decode(rounds: int) -> Measure:
    """A step of the small decoder, its caches donated, checked against JAX."""
    sizes = models.SMALL
    step = poot.jit(
        lambda *arguments: models.llama_step(poot, sizes, *arguments), donate_argnums=1
    )
    weights, caches, token, start = models.decode_arguments(sizes)
    token_right, right = models.llama_step(jax, sizes, weights, caches, token, start)
    position = int(start)
    weights = poot.tree.map(poot.device_put, weights)
    held = [tuple(map(poot.device_put, pair)) for pair in caches]
    token, held = step(weights, held, token, position)
    assert np.array_equal(token, token_right)
    for mine, theirs in zip(held, right, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-4, rtol=1e-4)

    def run() -> None:
        nonlocal held
        found, held = step(weights, held, np.array([7], np.int32), position)
        found.block_until_ready()

    name = "decode step / IREE"
    return between_iree(name, "decode", sizes.layers, run, rounds, 0.2)


def measure_scan(device: Device, rounds: int) -> Measure:
    """A step of a small cell, against as many empty launches in the same run."""
    weights = jnp.eye(CELL) * 0.9

    def cell(h, x):
        return jnp.tanh(weights @ h + x), None

    def scanned(length: int) -> tuple[Callable[[], object], int]:
        jitted = poot.jit(lambda h, xs: poot.lax.scan(cell, h, xs)[0])
        h, xs = jnp.zeros(CELL), jnp.ones((length, CELL))
        loops = [
            node
            for node in jitted.lower(h, xs).compile().program.body
            if isinstance(node, Loop)
        ]
        launches = sum(len(loop.body) for loop in loops)
        return lambda: jitted(h, xs).block_until_ready(), launches

    none, _ = scanned(0)
    steps, launches = scanned(STEPS)
    runs = {"none": none, "steps": steps} | empty_launches(device, STEPS)
    taken = medians(runs, rounds=rounds)
    step = (taken["steps"] - taken["none"]) / STEPS * 1e6
    empty = (taken["all empty"] - taken["1 empty"]) / STEPS * 1e6
    name = f"scan step, {launches} launches"
    return Measure(name, step, launches * empty, "us", step / launches / empty, 1.5)


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
    print(f"device {device}, commit {commit()}")
    measures = [measure_import(arguments.rounds)]
    measures += measure_memory_bound(device, arguments.rounds)
    measures.append(measure_matmul(max(5, arguments.rounds // 2)))
    measures.append(measure_attention(max(5, arguments.rounds // 2)))
    measures.append(measure_gradient(max(5, arguments.rounds // 2)))
    measures.append(measure_decode(max(5, arguments.rounds // 2)))
    measures.append(measure_scan(device, arguments.rounds))
    measures.append(measure_overhead())
    print(f"{'':22} {'poot':>10} {'reference':>10}     {'figure':>8}    {'bound':>6}")
    print("\n".join(str(measure) for measure in measures))
    if arguments.json:
        rows = [asdict(m) | {"holds": m.holds} for m in measures]
        figures = {
            "device": str(device),
            "driver": device.info.driver_version,
            "commit": commit(),
            "measures": rows,
        }
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0 if all(measure.holds for measure in measures) else 1


if __name__ == "__main__":
    sys.exit(main())
