"""An implicit layer: a network whose output is the fixed point of a function.

The layer iterates until nothing changes. Its gradient follows from the fixed point
alone, by a linear fixed point, so that no iteration has to be remembered.

python examples/equilibrium.py            # under poot
python examples/equilibrium.py --jax      # the same under JAX
"""

from __future__ import annotations

import time
from functools import partial

import numpy as np

from jax_or_poot import jax, parser

jnp = jax.numpy

TOLERANCE = 1e-5
MOST_ITERATIONS = 100


def make_spirals(count, seed=0):
    """Points [count, 2] of two spirals in one another, and which they belong to."""
    rng = np.random.default_rng(seed)
    label = np.arange(count) % 2
    turn = np.sqrt(rng.uniform(0.05, 1, count)) * 2 * np.pi
    angle = turn + np.pi * label
    points = np.stack([np.cos(angle), np.sin(angle)], axis=1) * turn[:, None] / 6
    points += rng.normal(size=points.shape) * 0.02
    return points.astype(np.float32), label.astype(np.int32)


# --- the layer --------------------------------------------------------------


def iterate(function, start):
    """The fixed point of `function`, by applying it until it changes little."""

    def moving(state):
        before, after, count = state
        return (jnp.max(jnp.abs(after - before)) > TOLERANCE) & (
            count < MOST_ITERATIONS
        )

    def again(state):
        _, after, count = state
        return after, function(after), count + 1

    first = (start, function(start), jnp.int32(0))
    return jax.lax.while_loop(moving, again, first)[1]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def fixed_point(function, params, start):
    """z where function(params, z) = z."""
    return iterate(partial(function, params), start)


def fixed_point_forward(function, params, start):
    z = fixed_point(function, params, start)
    return z, (params, z)


def fixed_point_backward(function, kept, z_bar):
    """With J the derivative by z: v = z_bar + J' v, pushed on to the parameters."""
    params, z = kept
    _, by_z = jax.vjp(lambda z: function(params, z), z)
    v = iterate(lambda v: z_bar + by_z(v)[0], z_bar)
    _, by_params = jax.vjp(lambda params: function(params, z), params)
    return by_params(v)[0], jnp.zeros_like(z)


fixed_point.defvjp(fixed_point_forward, fixed_point_backward)


# --- the network ------------------------------------------------------------


def init(key, width):
    keys = jax.random.split(key, 3)
    return {
        "inner": jax.random.normal(keys[0], (width, width)) / np.sqrt(width),
        "input": jax.random.normal(keys[1], (2, width)) * 3,
        "bias": jnp.zeros(width),
        "read": jax.random.normal(keys[2], (width, 2)) / np.sqrt(width),
    }


def cell(params, z):
    weights, x = params
    inner = weights["inner"]
    # A matrix of norm below one makes this a contraction: there is one fixed point.
    inner = inner * 0.9 / jnp.maximum(0.9, jnp.sqrt(jnp.sum(inner**2)))
    return jnp.tanh(z @ inner + x @ weights["input"] + weights["bias"])


def logits(weights, x):
    start = jnp.zeros((x.shape[0], weights["bias"].shape[0]))
    return fixed_point(cell, (weights, x), start) @ weights["read"]


def loss(weights, x, label):
    scores = jax.nn.log_softmax(logits(weights, x))
    return -jnp.mean(jnp.take_along_axis(scores, label[:, None], axis=1))


@partial(jax.jit, donate_argnums=(0, 1))
def improve(weights, scales, x, label, rate):
    """A step of Adagrad: descent, each weight slowed by its past gradients."""
    value, slopes = jax.value_and_grad(loss)(weights, x, label)
    scales = jax.tree.map(lambda s, g: s + g * g, scales, slopes)
    weights = jax.tree.map(
        lambda w, g, s: w - rate * g / (jnp.sqrt(s) + 1e-6), weights, slopes, scales
    )
    return weights, scales, value


@jax.jit
def accuracy(weights, x, label):
    return jnp.mean(jnp.argmax(logits(weights, x), axis=1) == label)


def train(x, label, iterations, width=32, rate=0.1):
    """The weights, and the loss before each iteration."""
    weights = init(jax.random.key(0), width)
    scales = jax.tree.map(jnp.zeros_like, weights)
    history = []
    for _ in range(iterations):
        weights, scales, value = improve(weights, scales, x, label, rate)
        history.append(value)
    return weights, jnp.stack(history)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--iterations", type=int, default=250)
    chosen = options.parse_args()
    began = time.perf_counter()
    weights, history = train(*make_spirals(256), chosen.iterations)
    history = np.asarray(history)
    right = float(accuracy(weights, *make_spirals(256, seed=1)))
    print(f"device   {jax.devices()[0]}")
    print(f"time     {time.perf_counter() - began:.2f} s, compilation included")
    print(f"loss     {history[0]:.4f} at first, {history[-1]:.4f} at last")
    print(f"new ones {right:.1%} right")


if __name__ == "__main__":
    main()
