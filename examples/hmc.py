"""Hamiltonian Monte Carlo: a line through points with outliers, with its uncertainty.

python examples/hmc.py            # under poot
python examples/hmc.py --jax      # the same chains under JAX
"""

from __future__ import annotations

import time
from functools import partial

import numpy as np

from jax_or_poot import jax, parser

jnp = jax.numpy

NAMES = ("intercept", "slope", "log of the noise")
TRUTH = (1.0, -2.0, np.log(0.3))
# Student's t with few degrees of freedom does not mind points far off.
FREEDOM = 3.0


def make_points(count, seed=0):
    """Places and values of points on a noisy line, every tenth of them far off."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, count)
    y = TRUTH[0] + TRUTH[1] * x + np.exp(TRUTH[2]) * rng.normal(size=count)
    y[::10] += rng.normal(size=len(y[::10])) * 5
    return x.astype(np.float32), y.astype(np.float32)


def log_density(theta, points):
    """Log of the posterior, but for a constant, of parameters `theta` [3]."""
    x, y = points
    intercept, slope, log_noise = theta
    misses = (y - intercept - slope * x) * jnp.exp(-log_noise)
    likelihood = -(FREEDOM + 1) / 2 * jnp.log1p(misses**2 / FREEDOM) - log_noise
    prior = -jnp.sum(theta**2) / (2 * 5.0**2)
    return jnp.sum(likelihood) + prior


def leapfrog(position, momentum, points, step, count):
    """Follow Hamilton's equations for `count` steps; the density is the potential."""
    slope = jax.grad(log_density)

    def move(_, state):
        position, momentum = state
        momentum = momentum + step / 2 * slope(position, points)
        position = position + step * momentum
        momentum = momentum + step / 2 * slope(position, points)
        return position, momentum

    return jax.lax.fori_loop(0, count, move, (position, momentum))


def transition(position, key, points, step, count):
    """The next draw of a chain, and whether it is a new one."""
    momentum_key, accept_key = jax.random.split(key)
    momentum = jax.random.normal(momentum_key, position.shape)
    there, speed = leapfrog(position, momentum, points, step, count)
    gain = log_density(there, points) - log_density(position, points)
    gain = gain + (jnp.sum(momentum**2) - jnp.sum(speed**2)) / 2
    accepted = jnp.log(jax.random.uniform(accept_key)) < gain
    return jnp.where(accepted, there, position), accepted


@partial(jax.jit, static_argnames=("draws", "leaps"))
def sample(key, starts, points, step, *, draws, leaps):
    """Draws [chains, draws, 3] of chains from `starts` [chains, 3]; shares accepted."""

    def chain(key, start):
        def advance(position, key):
            position, accepted = transition(position, key, points, step, leaps)
            return position, (position, accepted)

        _, found = jax.lax.scan(advance, start, jax.random.split(key, draws))
        return found

    chains, accepted = jax.vmap(chain)(jax.random.split(key, len(starts)), starts)
    return chains, jnp.mean(accepted, axis=1)


def shrink_factor(chains):
    """Gelman and Rubin's comparison of variances, near 1 where the chains agree."""
    count = chains.shape[1]
    within = np.var(chains, axis=1, ddof=1).mean(axis=0)
    between = np.var(chains.mean(axis=1), axis=0, ddof=1)
    return np.sqrt((count - 1) / count + between / within)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--chains", type=int, default=8)
    options.add_argument("--draws", type=int, default=500)
    options.add_argument("--leaps", type=int, default=10)
    chosen = options.parse_args()
    start_key, key = jax.random.split(jax.random.key(0))
    starts = jax.random.normal(start_key, (chosen.chains, len(NAMES)))
    began = time.perf_counter()
    chains, accepted = sample(
        key, starts, make_points(200), 0.03, draws=chosen.draws, leaps=chosen.leaps
    )
    chains = np.asarray(chains)[:, chosen.draws // 5 :]
    print(f"device   {jax.devices()[0]}")
    print(f"time     {time.perf_counter() - began:.2f} s, compilation included")
    print(f"accepted {float(np.mean(accepted)):.1%}")
    factors = shrink_factor(chains)
    for number, (name, truth) in enumerate(zip(NAMES, TRUTH, strict=True)):
        draws = chains[:, :, number]
        print(
            f"{name:16} {draws.mean():6.3f} +- {draws.std():.3f}, was {truth:6.3f}; "
            f"chains agree to {factors[number]:.3f}"
        )


if __name__ == "__main__":
    main()
