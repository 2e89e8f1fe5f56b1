"""Train a small transformer to sort: it reads digits and writes them in order.

python examples/transformer.py            # under poot
python examples/transformer.py --jax      # the same under JAX
"""

from __future__ import annotations

import time
from functools import partial

import numpy as np

from jax_or_poot import jax, parser

jnp = jax.numpy

DIGITS = 10
# A sequence is the digits, this mark, and the same digits in order.
MARK = DIGITS
WIDTH, HEADS, LAYERS = 64, 4, 2
DECAYS = (0.9, 0.99)


def init(key, length):
    """Parameters; those of all layers are stacked along a first axis, for a scan."""
    keys = iter(jax.random.split(key, 8))

    def normal(*shape):
        return jax.random.normal(next(keys), shape) / np.sqrt(shape[-2])

    return {
        "tokens": normal(DIGITS + 1, WIDTH),
        "places": normal(2 * length, WIDTH),
        "layers": {
            "qkv": normal(LAYERS, WIDTH, 3 * WIDTH),
            "out": normal(LAYERS, WIDTH, WIDTH),
            "up": normal(LAYERS, WIDTH, 4 * WIDTH),
            "down": normal(LAYERS, 4 * WIDTH, WIDTH),
        },
        "read": normal(WIDTH, DIGITS),
    }


def normalize(x):
    return x / jnp.sqrt(jnp.mean(x**2, axis=-1, keepdims=True) + 1e-6)


def attend(p, x):
    batch, length, _ = x.shape
    parts = jnp.split(x @ p["qkv"], 3, axis=-1)
    q, k, v = (y.reshape(batch, length, HEADS, WIDTH // HEADS) for y in parts)
    mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True)
    return mixed.reshape(batch, length, WIDTH) @ p["out"]


def logits(params, tokens):
    """Scores of the next digit at each place, [batch, length, DIGITS]."""
    x = params["tokens"][tokens] + params["places"][: tokens.shape[1]]

    # What a layer computes is computed again on the way back instead of kept.
    @jax.checkpoint
    def layer(x, p):
        x = x + attend(p, normalize(x))
        return x + jax.nn.gelu(normalize(x) @ p["up"]) @ p["down"], None

    x, _ = jax.lax.scan(layer, x, params["layers"])
    return normalize(x) @ params["read"]


def loss(params, digits):
    """Mean cross entropy of the digits after the mark."""
    length = digits.shape[1]
    mark = jnp.full_like(digits[:, :1], MARK)
    tokens = jnp.concatenate([digits, mark, jnp.sort(digits, axis=1)], axis=1)
    scores = jax.nn.log_softmax(logits(params, tokens[:, :-1])[:, length:])
    wanted = tokens[:, length + 1 :, None]
    return -jnp.mean(jnp.take_along_axis(scores, wanted, axis=2))


@partial(jax.jit, static_argnames=("batch", "length"), donate_argnums=(0, 1))
def train_step(params, moments, key, count, rate, *, batch, length):
    """A step of Adam on new digits; `params` and `moments` are used up."""
    digits = jax.random.randint(key, (batch, length), 0, DIGITS)
    value, slopes = jax.value_and_grad(loss)(params, digits)
    powers = slopes, jax.tree.map(jnp.square, slopes)
    moments = tuple(
        jax.tree.map(lambda m, g, d=decay: d * m + (1 - d) * g, moment, power)
        for decay, moment, power in zip(DECAYS, moments, powers, strict=True)
    )
    first, second = (1 / (1 - decay**count) for decay in DECAYS)
    params = jax.tree.map(
        lambda p, m, v: p - rate * first * m / (jnp.sqrt(second * v) + 1e-6),
        params,
        *moments,
    )
    return params, moments, value


def train(steps, batch=64, length=8, rate=3e-3):
    """The parameters, and the loss of each step."""
    init_key, key = jax.random.split(jax.random.key(0))
    params = init(init_key, length)
    moments = tuple(jax.tree.map(jnp.zeros_like, params) for _ in DECAYS)
    losses = []
    for step in range(steps):
        params, moments, value = train_step(
            params,
            moments,
            jax.random.fold_in(key, step),
            jnp.float32(step + 1),
            rate,
            batch=batch,
            length=length,
        )
        losses.append(value)
    return params, jnp.stack(losses)


@jax.jit
def sort(params, digits):
    """The digits [batch, length] as the transformer orders them."""
    batch, length = digits.shape
    rest = jnp.full((batch, length), MARK, digits.dtype)
    tokens = jnp.concatenate([digits, rest], axis=1)

    def write(place, tokens):
        scores = logits(params, tokens)
        # All places are scored; the ones ahead cannot be seen from this one.
        at = jax.lax.dynamic_index_in_dim(scores, length + place, 1, keepdims=False)
        digit = jnp.argmax(at, axis=-1).astype(tokens.dtype)
        return jax.lax.dynamic_update_index_in_dim(
            tokens, digit[:, None], length + place + 1, 1
        )

    # The last digit has no place in the input any more.
    tokens = jax.lax.fori_loop(0, length - 1, write, tokens)
    last = jnp.argmax(logits(params, tokens)[:, -1], axis=-1)
    return jnp.concatenate([tokens[:, length + 1 :], last[:, None]], axis=1)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--steps", type=int, default=300)
    chosen = options.parse_args()
    began = time.perf_counter()
    params, losses = train(chosen.steps)
    losses = np.asarray(losses)
    digits = np.random.default_rng(0).integers(0, DIGITS, (256, 8)).astype(np.int32)
    right = np.all(np.asarray(sort(params, digits)) == np.sort(digits), axis=1)
    print(f"device {jax.devices()[0]}")
    print(f"time   {time.perf_counter() - began:.2f} s, compilation included")
    print(f"loss   {losses[0]:.4f} at first, {losses[-1]:.4f} at last")
    print(f"sorted {right.mean():.1%} of {len(digits)} sequences without a mistake")


if __name__ == "__main__":
    main()
