"""How long the first call of Llama-1B's decode step takes, its pipelines included.

python benchmarks/compile_time.py

Each time in a process of its own: first with empty caches, then with those it filled.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

import models


def first_call(name: str) -> float:
    """Seconds from tracing to the end of the first call; buffers are there before."""
    library = __import__(name)
    sizes = models.LLAMA_1B
    zeros = library.numpy.zeros
    weights = models.llama_weights(sizes, lambda shape: zeros(shape, sizes.dtype))
    caches = models.empty_caches(library, sizes)
    token = library.device_put(np.zeros(1, np.int32))
    token.block_until_ready()
    step = library.jit(
        lambda *given: models.llama_step(library, sizes, *given), donate_argnums=1
    )
    began = time.perf_counter()
    step(weights, caches, token, 3)[0].block_until_ready()
    return time.perf_counter() - began


def in_new_processes(name: str, folder: str, times: int) -> list[float]:
    """The same in processes that keep their caches in a folder."""
    environment = os.environ | {
        "XDG_CACHE_HOME": folder,
        # The driver's own cache would make poot's first call a warm one.
        "__GL_SHADER_DISK_CACHE": "0",
    }
    command = [sys.executable, __file__, name]
    return [
        float(
            json.loads(
                subprocess.run(
                    command, check=True, env=environment, stdout=subprocess.PIPE
                ).stdout
            )
        )
        for _ in range(times)
    ]


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(first_call(sys.argv[1])))
        return
    with tempfile.TemporaryDirectory() as folder:
        cold, warm = in_new_processes("poot", folder, 2)
        (theirs,) = in_new_processes("jax", folder, 1)
    print(f"poot cold {cold:.2f} s, warm {warm:.2f} s; JAX {theirs:.2f} s")


if __name__ == "__main__":
    main()
