"""Fit an ordinary differential equation: an adaptive solver and its adjoint.

The solver chooses its steps in a while loop, which has no reverse mode. Its gradient is
another differential equation, solved backwards in time by the same solver.

python examples/predator_prey.py            # under poot
python examples/predator_prey.py --jax      # the same under JAX
"""

from __future__ import annotations

import time
from functools import partial

import numpy as np

from jax_or_poot import jax, parser

jnp = jax.numpy

# Birth and death of the prey, birth and death of the predators (Lotka and Volterra).
TRUTH = np.array([1.1, 0.4, 0.1, 0.4], np.float32)
GUESS = np.array([0.8, 0.6, 0.15, 0.3], np.float32)
START = np.array([10.0, 5.0], np.float32)
INTERVAL = 0.5
TOLERANCE = 1e-5
MOST_STEPS = 1000


def growth(state, rates):
    prey, predators = state
    birth, eaten, fed, death = rates
    return jnp.stack(
        [
            birth * prey - eaten * prey * predators,
            fed * prey * predators - death * predators,
        ]
    )


# --- the solver -------------------------------------------------------------


def bogacki_shampine(slope, y, h):
    """A step of the third order, and how far it is from one of the second."""
    k1 = slope(y)
    k2 = slope(y + h / 2 * k1)
    k3 = slope(y + 3 * h / 4 * k2)
    after = y + h * (2 * k1 + 3 * k2 + 4 * k3) / 9
    k4 = slope(after)
    return after, h * (-5 * k1 + 6 * k2 + 8 * k3 - 9 * k4) / 72


def integrate(slope, start, duration):
    """y(duration) where y' = slope(y) and y(0) = start, a vector."""

    def unfinished(state):
        elapsed, _, _, count = state
        return (elapsed < duration) & (count < MOST_STEPS)

    def attempt(state):
        elapsed, h, y, count = state
        h = jnp.minimum(h, duration - elapsed)
        after, difference = bogacki_shampine(slope, y, h)
        size = TOLERANCE * (1 + jnp.maximum(jnp.abs(y), jnp.abs(after)))
        error = jnp.sqrt(jnp.mean((difference / size) ** 2))
        good = error <= 1
        # The last step ends where it should, whatever a sum of steps rounds to.
        last = h >= duration - elapsed
        reached = jnp.where(last, duration, elapsed + h)
        factor = jnp.clip(0.9 * (error + 1e-10) ** (-1 / 3), 0.2, 5.0)
        return (
            jnp.where(good, reached, elapsed),
            h * factor,
            jnp.where(good, after, y),
            count + 1,
        )

    first = (jnp.float32(0), duration / 10, start, jnp.int32(0))
    return jax.lax.while_loop(unfinished, attempt, first)[2]


@jax.custom_vjp
def flow(start, rates, duration):
    """The populations `duration` after they were `start`."""
    return integrate(lambda y: growth(y, rates), start, duration)


def flow_forward(start, rates, duration):
    end = flow(start, rates, duration)
    return end, (end, rates, duration)


def flow_backward(kept, end_bar):
    """Run time backwards with the state, its adjoint, and the gradient by rates."""
    end, rates, duration = kept

    def slope(everything):
        y, adjoint = everything[:2], everything[2:4]
        speed, pull = jax.vjp(growth, y, rates)
        return jnp.concatenate([-speed, *pull(adjoint)])

    begin = jnp.concatenate([end, end_bar, jnp.zeros_like(rates)])
    found = integrate(slope, begin, duration)
    return found[2:4], found[4:], jnp.sum(end_bar * growth(end, rates))


flow.defvjp(flow_forward, flow_backward)


# --- fitting ----------------------------------------------------------------


def simulate(rates, count):
    """The populations after each of `count` intervals, [count, 2]."""

    def advance(state, _):
        state = flow(state, rates, jnp.float32(INTERVAL))
        return state, state

    return jax.lax.scan(advance, jnp.asarray(START), None, length=count)[1]


def misfit(log_rates, seen):
    expected = simulate(jnp.exp(log_rates), len(seen))
    return jnp.mean((jnp.log(expected) - jnp.log(seen)) ** 2)


@partial(jax.jit, donate_argnums=(0, 1))
def improve(log_rates, speed, seen, rate):
    value, slope = jax.value_and_grad(misfit)(log_rates, seen)
    speed = 0.8 * speed - rate * slope / jnp.maximum(1, jnp.linalg.norm(slope))
    return log_rates + speed, speed, value


def fit(seen, iterations, rate=0.02):
    """The rates, and the misfit before each iteration."""
    log_rates = jnp.log(jnp.asarray(GUESS))
    speed = jnp.zeros_like(log_rates)
    history = []
    for _ in range(iterations):
        log_rates, speed, value = improve(log_rates, speed, seen, rate)
        history.append(value)
    return jnp.exp(log_rates), jnp.stack(history)


def observe(count, seed=0):
    """Counted populations of the true rates, with an error of two percent."""
    exact = np.asarray(jax.jit(simulate, static_argnums=1)(TRUTH, count))
    noise = np.random.default_rng(seed).normal(size=exact.shape)
    return (exact * np.exp(0.02 * noise)).astype(np.float32)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--count", type=int, default=30)
    options.add_argument("--iterations", type=int, default=150)
    chosen = options.parse_args()
    seen = observe(chosen.count)
    began = time.perf_counter()
    rates, history = fit(seen, chosen.iterations)
    history = np.asarray(history)
    print(f"device {jax.devices()[0]}")
    print(f"time   {time.perf_counter() - began:.2f} s, compilation included")
    print(f"misfit {history[0]:.5f} at first, {history[-1]:.5f} at last")
    print(f"rates  {np.asarray(rates).round(3)}, were {TRUTH}")


if __name__ == "__main__":
    main()
