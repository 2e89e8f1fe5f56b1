"""The memory that a transformer takes in poot and, by its own account, in JAX.

python benchmarks/memory.py
"""

from __future__ import annotations

import jax
import numpy as np

import models
import poot

WIDTH, HEADS = 512, 8
BATCH, LENGTH = 8, 128


def _function(library, gradient):
    def loss(weights, x, y):
        return models.transformer_loss(library, HEADS, weights, x, y)

    return library.jit(library.value_and_grad(loss) if gradient else loss)


def memory_bytes(layers: int, gradient: bool) -> tuple[int, int]:
    """Arguments, results and scratch memory of a call: poot's, and JAX's on a CPU."""
    layer = models.encoder_weights(WIDTH, 4 * WIDTH)
    sizes = (BATCH, LENGTH, WIDTH)

    def given(library):
        spec = library.ShapeDtypeStruct
        weights = [jax.tree.map(lambda a: spec(a.shape, a.dtype), layer)] * layers
        x = spec(sizes, np.float32)
        return _function(library, gradient).lower(weights, x, x).compile()

    return _of_program(given(poot).program), _of_jax(given(jax).memory_analysis())


def _of_program(program) -> int:
    results = sum(r.type.size_bytes for r in program.results if r.input_index is None)
    taken = sum(type.size_bytes for type in (*program.inputs, *program.consts))
    return taken + results + program.arena_bytes


def _of_jax(analysis) -> int:
    return (
        analysis.argument_size_in_bytes
        + analysis.output_size_in_bytes
        + analysis.temp_size_in_bytes
        - analysis.alias_size_in_bytes
    )


if __name__ == "__main__":
    for gradient in (False, True):
        mine, theirs = memory_bytes(12, gradient)
        name = "gradient" if gradient else "forward"
        print(f"12 layers, {name}: {mine} B, JAX {theirs} B: {mine / theirs:.3f}")
