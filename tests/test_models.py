"""Layers of real models' shapes: how many launches they take, and what they give."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

import models
import poot

TINY = models.Llama(2, 64, 4, 2, 96, 64, 16)


def compiled(function: Any, *arguments: Any, **options: Any) -> Any:
    return poot.jit(function, **options).lower(*arguments).compile()


def decode_launches(layers: int) -> tuple[int, int]:
    """Launches of a step, and the kernels that they are of."""
    sizes = replace(TINY, layers=layers)
    found = compiled(
        lambda *given: models.llama_step(poot, sizes, *given),
        *models.decode_arguments(sizes),
        donate_argnums=1,
    )
    return len(found.program.dispatches), len(found.program.kernels)


def test_a_llama_layer_takes_five_launches_of_shared_kernels() -> None:
    """Rope and the writes of keys and values are in that of the products."""
    (few, kernels), (many, same) = decode_launches(2), decode_launches(4)
    assert many - few <= 2 * 5
    assert same == kernels


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_decoding_gives_what_it_gives_in_jax(dtype: str) -> None:
    """Four steps, each on the caches that the last one left."""
    sizes = replace(TINY, dtype=dtype)
    weights, caches, token, start = models.decode_arguments(sizes)

    def run(library: Any) -> tuple[list[int], list[np.ndarray]]:
        step = library.jit(
            lambda *given: models.llama_step(library, sizes, *given), donate_argnums=1
        )

        def cast(tree: Any) -> Any:
            return jax.tree.map(lambda a: library.numpy.asarray(a, dtype=dtype), tree)

        held, own = cast(caches), cast(weights)
        now, tokens = token, []
        for position in range(int(start), int(start) + 4):
            now, held = step(own, held, now, position)
            tokens.append(int(np.asarray(now)[0]))
        return tokens, [np.asarray(a).astype(np.float32) for a in jax.tree.leaves(held)]

    (mine, caches_here), (theirs, caches_there) = run(poot), run(jax)
    narrow = dtype == "bfloat16"
    if not narrow:
        assert mine == theirs
    for got, right in zip(caches_here, caches_there, strict=True):
        np.testing.assert_allclose(
            got[: int(start) + 1], right[: int(start) + 1], atol=0.1 if narrow else 1e-5
        )


@pytest.mark.parametrize("heads", [12, 4])
def test_an_encoder_layer_takes_seven_launches(heads: int) -> None:
    weights = models.encoder_weights(96, 384)
    random = np.random.default_rng(1)
    x = random.standard_normal((2, 9, 96), dtype=np.float32)
    mask = np.arange(9) < np.array([[9], [5]])

    def layer(library: Any) -> Any:
        return library.jit(lambda *given: models.encoder_layer(library, heads, *given))

    found = layer(poot).lower(weights, x, mask).compile()
    assert len(found.program.dispatches) <= 7
    np.testing.assert_allclose(
        np.asarray(found(weights, x, mask)), layer(jax)(weights, x, mask), atol=2e-5
    )
