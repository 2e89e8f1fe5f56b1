"""Gaussian process regression without a factorization: conjugate gradients.

The length scale, the amplitude and the noise follow the gradient of the likelihood. Its
trace term is estimated with random probes, solved for together with the data.

python examples/gaussian_process.py            # under poot
python examples/gaussian_process.py --jax      # the same under JAX
"""

from __future__ import annotations

import time
from functools import partial

import numpy as np

from jax_or_poot import jax, parser

jnp = jax.numpy

TOLERANCE = 1e-4
MOST_ITERATIONS = 200


def make_points(count, seed=0):
    """Places in [0, 10] and noisy values of a smooth function there."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0, 10, count))
    y = truth(x) + 0.1 * rng.normal(size=count)
    return x.astype(np.float32), y.astype(np.float32)


def truth(x):
    return np.sin(x) + 0.5 * np.sin(3 * x)


def kernel(params, a, b):
    """Covariances [a, b] of Gaussian shape."""
    length, amplitude, _ = jnp.exp(params)
    distance = (a[:, None] - b[None, :]) / length
    return amplitude**2 * jnp.exp(-(distance**2) / 2)


def covariance(params, x):
    """Covariances of observations at x, noise included."""
    noise = jnp.exp(params[2])
    return kernel(params, x, x) + noise**2 * jnp.eye(len(x))


def conjugate_gradients(matrix, wanted):
    """The x with matrix @ x = wanted, for all columns at once, and the iterations."""
    enough = TOLERANCE**2 * jnp.sum(wanted**2, axis=0)

    def unfinished(state):
        _, _, _, squares, count = state
        return jnp.any(squares > enough) & (count < MOST_ITERATIONS)

    def improve(state):
        x, rest, direction, squares, count = state
        moved = matrix @ direction
        # Columns that are done stay where they are.
        open_ = squares > enough
        step = squares / jnp.where(open_, jnp.sum(direction * moved, axis=0), 1)
        step = jnp.where(open_, step, 0)
        x = x + step * direction
        rest = rest - step * moved
        after = jnp.sum(rest**2, axis=0)
        ratio = jnp.where(open_, after / jnp.where(open_, squares, 1), 0)
        return x, rest, rest + ratio * direction, after, count + 1

    start = jnp.zeros_like(wanted)
    squares = jnp.sum(wanted**2, axis=0)
    first = (start, wanted, wanted, squares, jnp.int32(0))
    x, _, _, _, count = jax.lax.while_loop(unfinished, improve, first)
    return x, count


def surrogate(params, x, y, probes):
    """A function whose gradient is that of the negative log likelihood.

    By parameters the latter's is half of tr(K^-1 dK) - y' K^-1 dK K^-1 y. A probe z of
    random signs has z' K^-1 dK z of the trace's value on average. The solutions are
    constants here, so that the loop needs no reverse mode.
    """
    matrix = covariance(params, x)
    wanted = jnp.concatenate([y[:, None], probes], axis=1)
    solved, count = conjugate_gradients(jax.lax.stop_gradient(matrix), wanted)
    solved = jax.lax.stop_gradient(solved)
    weights, whitened = solved[:, 0], solved[:, 1:]
    trace = jnp.mean(jnp.sum(whitened * (matrix @ probes), axis=0))
    return (trace - weights @ matrix @ weights) / 2, (weights @ y, count)


@partial(jax.jit, donate_argnums=(0, 1))
def improve(params, speed, x, y, key, rate):
    """A step of gradient descent with momentum on the logs of the three parameters."""
    probes = jax.random.rademacher(key, (len(x), 8), jnp.float32)
    slopes, (fit, count) = jax.grad(surrogate, has_aux=True)(params, x, y, probes)
    slopes = slopes / jnp.maximum(1, jnp.linalg.norm(slopes))
    speed = 0.8 * speed - rate * slopes
    return params + speed, speed, fit, count


def learn(x, y, iterations, rate=0.02):
    """Logs of length scale, amplitude and noise; y' K^-1 y and solves' iterations."""
    params = jnp.log(jnp.array([2.0, 1.0, 0.5]))
    speed = jnp.zeros_like(params)
    key = jax.random.key(0)
    history = []
    for step in range(iterations):
        step_key = jax.random.fold_in(key, step)
        params, speed, fit, count = improve(params, speed, x, y, step_key, rate)
        history.append((fit, count))
    fits, counts = zip(*history, strict=True)
    return params, jnp.stack(fits), jnp.stack(counts)


@jax.jit
def predict(params, x, y, places):
    """Mean and standard deviation of the function at `places`."""
    across = kernel(params, x, places)
    wanted = jnp.concatenate([y[:, None], across], axis=1)
    solved, _ = conjugate_gradients(covariance(params, x), wanted)
    variance = jnp.exp(params[1]) ** 2 - jnp.sum(across * solved[:, 1:], axis=0)
    return across.T @ solved[:, 0], jnp.sqrt(jnp.maximum(variance, 0))


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--points", type=int, default=200)
    options.add_argument("--iterations", type=int, default=100)
    chosen = options.parse_args()
    x, y = make_points(chosen.points)
    began = time.perf_counter()
    params, _, counts = learn(x, y, chosen.iterations)
    places = np.linspace(0.5, 9.5, 50, dtype=np.float32)
    mean, deviation = map(np.asarray, predict(params, x, y, places))
    length, amplitude, noise = np.exp(np.asarray(params))
    error = np.sqrt(np.mean((mean - truth(places)) ** 2))
    print(f"device  {jax.devices()[0]}")
    print(f"time    {time.perf_counter() - began:.2f} s, compilation included")
    print(f"solves  {np.asarray(counts).mean():.1f} iterations each")
    print(f"learnt  length {length:.3f}, amplitude {amplitude:.3f}, noise {noise:.3f}")
    print(f"error   {error:.4f}, expected about {deviation.mean():.4f}")


if __name__ == "__main__":
    main()
