"""poot and JAX on one GPU in one run; without a GPU, poot on Mesa's CPU driver.

    python benchmarks/run.py [--json FILE] [--only TEXT …]

Each row is the median of 7 rounds on a warm card, of fresh random data, checked first;
beside it stand the ceiling that the row's bytes allow and JAX's figure. Nothing falls
back: a row that fails ends the run with 1, when the others are done.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

import jax

import poot
from checkout import commit
from compile_time import in_new_processes
from gpu import copy_ceiling
from gpu_rows import Row, rows
from poot.interpreters.backend import backend

# What poot aims at, in the units of the rows.
AIMS = {
    "add of 16, waited for": 25.0,
    "add of 16, back to back": 12.0,
    "chain f32 2^28": 4.1,
    "softmax f32 65536x4096": 4.0,
    "RMSNorm f32 65536x4096": 4.0,
    "RMSNorm bf16 65536x4096": 4.0,
    "matrix-vector bf16 4096x4096": 3.2,
    "matrix-vector bf16 14336x4096": 3.9,
    "matrix-vector bf16 28672x8192": 4.2,
    "Llama-1B bf16 decode": 1200.0,
    "Llama-8B bf16 decode": 250.0,
    "compile 1B, cold": 2.5,
    "compile 1B, warm": 0.5,
}


def measured(wanted: dict[str, Row], library) -> tuple[dict[str, float], int]:
    """The figures of the rows under a library, and how many rows failed."""
    figures: dict[str, float] = {}
    for name, row in wanted.items():
        try:
            figures[name] = row.measure(library)
            print(f"{library.__name__:5} {name}: {figures[name]:.3f} {row.unit}")
        except Exception:
            traceback.print_exc()
        gc.collect()
    return figures, len(wanted) - len(figures)


def line(name: str, unit: str, mine: float, theirs: float | None) -> str:
    aim = AIMS.get(name)
    lower = unit in ("us", "s")
    text = f"{name:34} {mine:9.3f} {unit:6}"
    text += f" JAX {theirs:9.3f}" if theirs is not None else " " * 14
    if theirs is not None:
        text += f"  {theirs / mine if lower else mine / theirs:5.2f} of its speed"
    if aim is not None:
        met = mine <= aim if lower else mine >= aim
        text += f"  aim {aim:g} {'met' if met else 'MISSED'}"
    return text


def compile_rows() -> dict[str, tuple[str, float, float | None]]:
    with tempfile.TemporaryDirectory() as folder:
        cold, warm = in_new_processes("poot", folder, 2)
        (theirs,) = in_new_processes("jax", folder, 1)
    return {
        "compile 1B, cold": ("s", cold, theirs),
        "compile 1B, warm": ("s", warm, None),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--only", nargs="+", default=[""], help="parts of rows' names")
    arguments = parser.parse_args()
    if backend().info.is_cpu:
        # It compares with IREE, which a machine with a GPU need not have.
        command = [sys.executable, Path(__file__).with_name("lavapipe.py")]
        command += ["--json", arguments.json] if arguments.json else []
        return subprocess.run(command).returncode
    ceiling, kernel = copy_ceiling(backend().device)
    print(poot.devices()[0], "commit", commit())
    print(f"copy ceiling {ceiling:.3f} TB/s ({kernel})")
    wanted = {
        name: row
        for name, row in rows().items()
        if any(part in name for part in arguments.only)
    }
    # JAX's context on the card makes Vulkan's calls slower, so it comes last.
    mine, failed = measured(wanted, poot)
    (card,) = jax.devices()[:1]
    assert card.platform == "gpu", f"JAX runs on {card.platform}, not on the card"
    theirs, others = measured(wanted, jax)
    failed += others
    found: dict[str, tuple[str, float, float | None]] = {
        name: (wanted[name].unit, figure, theirs.get(name))
        for name, figure in mine.items()
    }
    if any(part in "compile" for part in arguments.only):
        for name, entry in compile_rows().items():
            found[name] = entry
    for name, entry in found.items():
        print(line(name, *entry), flush=True)
    if arguments.json:
        figures = {
            "device": str(poot.devices()[0]),
            "driver": backend().info.driver_version,
            "commit": commit(),
            "copy_ceiling": ceiling,
            "rows": {
                name: {"unit": unit, "poot": mine, "jax": theirs}
                for name, (unit, mine, theirs) in found.items()
            },
        }
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
