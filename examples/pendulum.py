"""Swing pendulums up: gradients through a simulation, for many starts at once.

python examples/pendulum.py            # under poot, writes pendulum.png
python examples/pendulum.py --jax      # the same under JAX
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from jax_or_poot import jax, parser

jnp = jax.numpy

GRAVITY = 9.81  # m/s², of a rod of one metre
FRICTION = 0.1  # 1/s
DURATION = 3.0  # s
EFFORT = 2e-3  # what a unit of squared torque costs
MOMENTUM = 0.9


def motion(state, torque):
    """Time derivative of (angle from hanging, angular velocity)."""
    angle, velocity = state
    acceleration = torque - GRAVITY * jnp.sin(angle) - FRICTION * velocity
    return jnp.stack([velocity, acceleration])


def step(state, torque, dt):
    """One step of the classical Runge-Kutta method, under a constant torque."""
    k1 = motion(state, torque)
    k2 = motion(state + dt / 2 * k1, torque)
    k3 = motion(state + dt / 2 * k2, torque)
    k4 = motion(state + dt * k3, torque)
    return state + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def simulate(start, torques):
    """The states after each step, [steps, 2], from `start` under `torques` [steps]."""
    dt = DURATION / torques.shape[0]

    def advance(state, torque):
        state = step(state, torque, dt)
        return state, state

    _, states = jax.lax.scan(advance, start, torques)
    return states


def cost(torques, start):
    """How far from standing still upright the pendulum ends, and what it took."""
    angle, velocity = simulate(start, torques)[-1]
    # The height that is missing is the same for each turn of the pendulum.
    miss = GRAVITY * (1 + jnp.cos(angle)) + velocity**2 / 2
    return miss + EFFORT * jnp.mean(torques**2)


@partial(jax.jit, donate_argnums=(0, 1))
def improve(torques, speed, starts, rate):
    """A step of gradient descent with momentum, each start by itself."""
    costs, slopes = jax.vmap(jax.value_and_grad(cost))(torques, starts)
    # Long gradients are cut: the simulation is steep in places.
    length = jnp.sqrt(jnp.sum(slopes**2, axis=1, keepdims=True))
    slopes = slopes / jnp.maximum(1, length)
    speed = MOMENTUM * speed - rate * slopes
    return torques + speed, speed, costs


def swing_up(starts, steps, iterations, rate=2.0):
    """Torques [starts, steps] that swing each pendulum up, and the costs on the way."""
    torques = jnp.zeros((len(starts), steps))
    speed = jnp.zeros_like(torques)
    history = []
    for _ in range(iterations):
        torques, speed, costs = improve(torques, speed, starts, rate)
        history.append(costs)
    return torques, jnp.stack(history)


def fan(count):
    """Pendulums at rest at angles from straight almost down to the side, [count, 2]."""
    angles = np.linspace(0.1, np.pi / 2, count, dtype=np.float32)
    return jnp.stack([jnp.asarray(angles), jnp.zeros(count)], axis=1)


def draw(starts, torques, history, path):
    """Angles with and without torques, the torques, and the costs."""
    run = jax.jit(jax.vmap(simulate))
    times = np.linspace(0, DURATION, torques.shape[1])
    figure, axes = plt.subplots(1, 4, figsize=(18, 4), layout="constrained")
    free = np.asarray(run(starts, jnp.zeros_like(torques)))[:, :, 0]
    driven = np.asarray(run(starts, torques))[:, :, 0]
    panels = (
        ("angle without torque", times, free),
        ("angle with torque", times, driven),
        ("torque", times, np.asarray(torques)),
        ("cost", np.arange(len(history)), np.asarray(history).T),
    )
    for axis, (title, x, curves) in zip(axes, panels, strict=True):
        axis.plot(x, curves.T, linewidth=1)
        axis.set_title(title)
    axes[3].set_yscale("log")
    figure.savefig(path)
    plt.close(figure)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--starts", type=int, default=16)
    options.add_argument("--steps", type=int, default=150)
    options.add_argument("--iterations", type=int, default=200)
    options.add_argument("--picture", type=Path, default=Path("pendulum.png"))
    chosen = options.parse_args()
    starts = fan(chosen.starts)
    began = time.perf_counter()
    torques, history = swing_up(starts, chosen.steps, chosen.iterations)
    costs = np.asarray(history)
    seconds = time.perf_counter() - began
    print(f"device  {jax.devices()[0]}")
    print(f"cost    {costs[0].mean():.3f} at first, {costs[-1].mean():.3f} at last")
    print(f"time    {seconds:.2f} s for {chosen.iterations} iterations")
    draw(starts, torques, history, chosen.picture)
    print(f"picture {chosen.picture}")


if __name__ == "__main__":
    main()
