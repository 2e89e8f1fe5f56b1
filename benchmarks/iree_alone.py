"""The times of JAX functions under IREE's Vulkan backend, taken in another process.

Once IREE has run, its threads poll for ever and take the cores from others.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

import models
from cases import attention_arguments, causal_attention, mlp_arguments, mlp_loss
from iree_vulkan import IreeFunction


def matmul(side: int) -> Callable[[], object]:
    """The product of two square matrices, checked once."""
    random = np.random.default_rng(1)
    a, b = (random.standard_normal((side, side), dtype=np.float32) for _ in range(2))
    run = IreeFunction(jnp.matmul, (a, b))
    expected = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(run.to_host(run()), expected, atol=2e-4, rtol=2e-5)
    return run


def mlp_gradient(width: int) -> Callable[[], object]:
    """The gradient by the weights; IREE's is wrong on this driver, so not checked."""

    def gradient(*arguments: jax.Array) -> list[jax.Array]:
        by = jax.grad(lambda ws, x, y: mlp_loss(jnp, ws, x, y))
        *weights, x, y = arguments
        return by(weights, x, y)

    return IreeFunction(gradient, mlp_arguments(width))


def attention(length: int) -> Callable[[], object]:
    """Causal, checked once."""
    arguments = attention_arguments(length)
    run = IreeFunction(lambda *xs: causal_attention(jnp, *xs), arguments)
    expected = causal_attention(np, *(a.astype(np.float64) for a in arguments))
    np.testing.assert_allclose(run.to_host(run()), expected, atol=2e-5, rtol=2e-5)
    return run


def decode(layers: int) -> Callable[[], object]:
    """A step of the small decoder over its caches, which are not donated there."""
    sizes = replace(models.SMALL, layers=layers)
    leaves, tree = jax.tree.flatten(models.decode_arguments(sizes))

    def step(*leaves: jax.Array) -> list[jax.Array]:
        token, caches = models.llama_step(jax, sizes, *jax.tree.unflatten(tree, leaves))
        return [token, *jax.tree.leaves(caches)]

    run = IreeFunction(step, leaves)
    expected = step(*leaves)
    for got, right in zip(run(), expected, strict=True):
        np.testing.assert_allclose(run.to_host(got), right, atol=1e-4, rtol=1e-4)
    return run


CASES = {
    "attention": attention,
    "decode": decode,
    "matmul": matmul,
    "mlp_gradient": mlp_gradient,
}


def milliseconds(case: str, size: int, rounds: int) -> list[float]:
    """What each of `rounds` calls takes after a first one."""
    run = CASES[case](size)
    run()
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        run()
        taken.append((time.perf_counter() - began) * 1e3)
    return taken


def milliseconds_alone(case: str, size: int, rounds: int) -> list[float]:
    """The same in a child process, which takes its polling threads with it."""
    command = [sys.executable, __file__, case, str(size), str(rounds)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    times: list[float] = json.loads(done.stdout)
    return times


if __name__ == "__main__":
    print(json.dumps(milliseconds(sys.argv[1], *map(int, sys.argv[2:]))))
