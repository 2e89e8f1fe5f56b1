"""Train a convolutional network on 1797 scans of handwritten digits.

python examples/digits.py            # under poot, writes digits.png
python examples/digits.py --jax      # the same numbers under JAX
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from tqdm import tqdm

from jax_or_poot import jax, parser

jnp = jax.numpy

CLASSES = 10
CHANNELS = (16, 32)
HIDDEN = 64
# Adam's decay rates of the two moments, and what keeps it from dividing by zero.
DECAY, SQUARE_DECAY, EPSILON = 0.9, 0.999, 1e-8


def load_data(seed=0):
    """((images, labels) to train with, the held-out fifth); images are [n, 1, 8, 8]."""
    digits = load_digits()
    images = (digits.images[:, None] / 16).astype(np.float32)
    labels = digits.target.astype(np.int32)
    order = np.random.default_rng(seed).permutation(len(labels))
    held, kept = np.split(order, [len(labels) // 5])
    return (images[kept], labels[kept]), (images[held], labels[held])


# --- the network ------------------------------------------------------------


def layer(key, shape, fan_in):
    weight = jax.random.normal(key, shape) * np.sqrt(2 / fan_in)
    outputs = shape[0] if len(shape) == 4 else shape[1]
    return {"weight": weight, "bias": jnp.zeros(outputs)}


def init(key):
    """Parameters of two convolutions and two dense layers, with He's variance."""
    first, second = CHANNELS
    pixels = 2 * 2 * second
    keys = jax.random.split(key, 4)
    return {
        "conv1": layer(keys[0], (first, 1, 3, 3), 9),
        "conv2": layer(keys[1], (second, first, 3, 3), 9 * first),
        "dense1": layer(keys[2], (pixels, HIDDEN), pixels),
        "dense2": layer(keys[3], (HIDDEN, CLASSES), HIDDEN),
    }


def convolve(p, x):
    y = jax.lax.conv_general_dilated(x, p["weight"], (1, 1), "SAME")
    return jax.nn.relu(y + p["bias"][:, None, None])


def halve(x):
    """The maximum of each block of two by two pixels."""
    window = (1, 1, 2, 2)
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")


def logits(params, images):
    x = halve(convolve(params["conv1"], images))
    x = halve(convolve(params["conv2"], x))
    x = x.reshape(x.shape[0], -1)
    x = jax.nn.relu(x @ params["dense1"]["weight"] + params["dense1"]["bias"])
    return x @ params["dense2"]["weight"] + params["dense2"]["bias"]


def loss(params, images, labels):
    """Mean cross entropy of the labels."""
    scores = jax.nn.log_softmax(logits(params, images))
    return -jnp.mean(jnp.take_along_axis(scores, labels[:, None], axis=1))


@jax.jit
def accuracy(params, images, labels):
    return jnp.mean(jnp.argmax(logits(params, images), axis=1) == labels)


# --- training ---------------------------------------------------------------


def adam_init(params):
    def zeros():
        return jax.tree.map(jnp.zeros_like, params)

    return {
        "params": params,
        "mean": zeros(),
        "square": zeros(),
        "count": jnp.zeros((), jnp.int32),
    }


def adam(state, gradients, rate):
    """Adam's next state, from the gradients of the loss by its parameters."""
    count = state["count"] + 1

    def decay(factor, old, new):
        return jax.tree.map(lambda m, g: factor * m + (1 - factor) * g, old, new)

    mean = decay(DECAY, state["mean"], gradients)
    squares = jax.tree.map(jnp.square, gradients)
    square = decay(SQUARE_DECAY, state["square"], squares)
    # Both moments began at zero, which this undoes.
    mean_scale = 1 / (1 - DECAY**count)
    square_scale = 1 / (1 - SQUARE_DECAY**count)

    def move(p, m, v):
        return p - rate * m * mean_scale / (jnp.sqrt(v * square_scale) + EPSILON)

    params = jax.tree.map(move, state["params"], mean, square)
    return {"params": params, "mean": mean, "square": square, "count": count}


@partial(jax.jit, donate_argnums=0)
def train_step(state, images, labels, rate):
    """The next state and the loss of a batch before it; `state` is used up."""
    value, gradients = jax.value_and_grad(loss)(state["params"], images, labels)
    return adam(state, gradients, rate), value


def batches(key, images, labels, size):
    """Batches of `size` in random order; a remainder is left out."""
    order = np.asarray(jax.random.permutation(key, len(labels)))
    for start in range(0, len(labels) - size + 1, size):
        chosen = order[start : start + size]
        yield images[chosen], labels[chosen]


def train(data, seed=0, epochs=12, size=64, rate=3e-3, steps=None, show=True):
    """Parameters after `epochs` (or the first `steps`), and the loss of each step."""
    images, labels = data
    init_key, order_key = jax.random.split(jax.random.key(seed))
    state = adam_init(init(init_key))
    total = epochs * (len(labels) // size) if steps is None else steps
    losses = []
    with tqdm(total=total, unit="step", disable=not show) as bar:
        for epoch in range(epochs):
            key = jax.random.fold_in(order_key, epoch)
            for batch in batches(key, images, labels, size):
                if len(losses) == total:
                    break
                state, value = train_step(state, *batch, rate)
                losses.append(value)
                bar.update()
            # Asking for a number waits for the device, so it is asked rarely.
            bar.set_postfix(loss=f"{float(losses[-1]):.4f}")
    return state["params"], np.asarray(jnp.stack(losses))


def draw(losses, path):
    figure, axis = plt.subplots(layout="constrained")
    axis.semilogy(losses, linewidth=0.8)
    axis.set_xlabel("step")
    axis.set_ylabel("cross entropy of the batch")
    figure.savefig(path)
    plt.close(figure)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--epochs", type=int, default=12)
    options.add_argument("--picture", type=Path, default=Path("digits.png"))
    chosen = options.parse_args()
    kept, held = load_data()
    print(f"device   {jax.devices()[0]}")
    began = time.perf_counter()
    params, losses = train(kept, chosen.seed, chosen.epochs)
    seconds = time.perf_counter() - began
    print(f"time     {seconds:.1f} s for {len(losses)} steps")
    print(f"loss     {losses[0]:.4f} at first, {losses[-1]:.4f} at last")
    print(f"held out {float(accuracy(params, *held)):.2%} right of {len(held[1])}")
    draw(losses, chosen.picture)
    print(f"picture  {chosen.picture}")


if __name__ == "__main__":
    main()
