"""Transformers as users compose them: what benchmarks and tests of compiling run.

`library` is the module whose numpy, lax and nn they use: poot, or jax.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

ROPE_BASE = 500_000.0


@dataclass(frozen=True, slots=True)
class Llama:
    """The sizes of a Llama-shaped decoder with tied embeddings."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    feed_forward: int
    vocabulary: int
    capacity: int
    dtype: str = "float32"

    @property
    def head_size(self) -> int:
        return self.width // self.heads

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The weights of a layer by name; matrices in checkpoint order, [N, K]."""
        width, size = self.width, self.head_size
        return {
            "attention_norm": (width,),
            "q": (self.heads * size, width),
            "k": (self.kv_heads * size, width),
            "v": (self.kv_heads * size, width),
            "o": (width, self.heads * size),
            "mlp_norm": (width,),
            "gate": (self.feed_forward, width),
            "up": (self.feed_forward, width),
            "down": (width, self.feed_forward),
        }

    @property
    def cache_shape(self) -> tuple[int, ...]:
        return (self.capacity, self.kv_heads, self.head_size)


# The decoder whose step is timed beside IREE's on Mesa's CPU driver.
SMALL = Llama(4, 256, 4, 4, 768, 1024, 256)
LLAMA_1B = Llama(16, 2048, 32, 8, 8192, 128256, 1024, "bfloat16")
LLAMA_8B = Llama(32, 4096, 32, 8, 14336, 128256, 1024, "bfloat16")


def llama_weights(sizes, make):
    """A tree of weights; `make(shape)` gives one."""
    return {
        "embedding": make((sizes.vocabulary, sizes.width)),
        "norm": make((sizes.width,)),
        "layers": [
            {name: make(shape) for name, shape in sizes.shapes.items()}
            for _ in range(sizes.layers)
        ],
    }


def random_weights(sizes, seed=0):
    """Weights of small random numbers on the host, in the model's dtype."""
    random = np.random.default_rng(seed)

    def make(shape):
        scale = 1 / np.sqrt(shape[-1]) if len(shape) > 1 else 0.1
        numbers = random.standard_normal(shape, dtype=np.float32) * np.float32(scale)
        return numbers + np.float32(len(shape) == 1)

    return llama_weights(sizes, make)


def rms_norm(library, x, weight):
    jnp = library.numpy
    wide = x.astype(jnp.float32)
    mean = jnp.mean(wide * wide, axis=-1, keepdims=True)
    return (wide * library.lax.rsqrt(mean + 1e-5)).astype(x.dtype) * weight


def rope(library, x, positions):
    """Turn the halves of each head; x: [T, heads, size], positions: [T]."""
    jnp = library.numpy
    size = x.shape[-1]
    inverse = jnp.asarray(
        ROPE_BASE ** (-np.arange(0, size, 2) / size), dtype=jnp.float32
    )
    angles = positions[:, None].astype(jnp.float32) * inverse
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    turned = [first * cos - second * sin, first * sin + second * cos]
    return jnp.concatenate(turned, axis=-1).astype(x.dtype)


def attention(library, sizes, q, keys, values, positions):
    """Of queries [T, heads, size] over the cache [capacity, kv_heads, size]."""
    jnp, nn = library.numpy, library.nn
    count, size = q.shape[0], sizes.head_size
    groups = sizes.heads // sizes.kv_heads
    grouped = q.reshape(count, sizes.kv_heads, groups, size)
    scores = jnp.einsum(
        "tgrd,cgd->grtc", grouped, keys, preferred_element_type=jnp.float32
    ) / np.sqrt(size)
    visible = jnp.arange(sizes.capacity)[None] <= positions[:, None]
    weights = nn.softmax(jnp.where(visible, scores, -jnp.inf), axis=-1)
    found = jnp.einsum("grtc,cgd->tgrd", weights.astype(q.dtype), values)
    return found.reshape(count, sizes.heads * size)


def llama_layer(library, sizes, weights, x, cache, start):
    """x: [T, width]; cache: keys and values, written from row `start` on."""
    jnp, nn, lax = library.numpy, library.nn, library.lax
    count, size = x.shape[0], sizes.head_size
    positions = start + jnp.arange(count)
    h = rms_norm(library, x, weights["attention_norm"])
    q = (h @ weights["q"].T).reshape(count, sizes.heads, size)
    k = (h @ weights["k"].T).reshape(count, sizes.kv_heads, size)
    v = (h @ weights["v"].T).reshape(count, sizes.kv_heads, size)
    q, k = rope(library, q, positions), rope(library, k, positions)
    keys = lax.dynamic_update_slice(cache[0], k, (start, 0, 0))
    values = lax.dynamic_update_slice(cache[1], v, (start, 0, 0))
    found = attention(library, sizes, q, keys, values, positions)
    x = x + found @ weights["o"].T
    h = rms_norm(library, x, weights["mlp_norm"])
    gated = nn.silu(h @ weights["gate"].T) * (h @ weights["up"].T)
    return x + gated @ weights["down"].T, (keys, values)


def llama_step(library, sizes, weights, caches, tokens, start):
    """The likeliest next token after `tokens` [T] at `start`, and the caches."""
    jnp = library.numpy
    x = weights["embedding"][tokens]
    updated = []
    for layer, cache in zip(weights["layers"], caches, strict=True):
        x, cache = llama_layer(library, sizes, layer, x, cache, start)
        updated.append(cache)
    last = rms_norm(library, x[-1:], weights["norm"])
    logits = (last @ weights["embedding"].T).astype(jnp.float32)
    return jnp.argmax(logits, axis=-1).astype(jnp.int32), updated


def empty_caches(library, sizes):
    zeros = library.numpy.zeros
    return [
        tuple(zeros(sizes.cache_shape, sizes.dtype) for _ in range(2))
        for _ in range(sizes.layers)
    ]


def decode_arguments(sizes):
    """What `llama_step` takes after the sizes, on the host: the cache is half full."""
    random = np.random.default_rng(5)
    start = sizes.capacity // 2
    caches = []
    for _ in range(sizes.layers):
        keys, values = random.standard_normal((2, *sizes.cache_shape), dtype=np.float32)
        keys[start:] = values[start:] = 0
        caches.append((keys, values))
    token = np.array([7], np.int32)
    return random_weights(sizes), caches, token, np.array(start, np.int32)


def layer_norm(library, x, weight, bias, epsilon=1e-12):
    jnp = library.numpy
    mean = jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean((x - mean) ** 2, axis=-1, keepdims=True)
    return (x - mean) * library.lax.rsqrt(variance + epsilon) * weight + bias


def linear(x, layer):
    """By a matrix in checkpoint order, [N, K], and a bias."""
    return x @ layer["weight"].T + layer["bias"]


def encoder_layer(library, heads, weights, x, mask):
    """A BERT layer, normalized last; x: [B, T, D], mask: [B, T] of bools."""
    jnp, nn = library.numpy, library.nn
    batch, length, width = x.shape

    def split(x):
        return x.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)

    q, k, v = (split(linear(x, weights[name])) for name in "qkv")
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(width // heads)
    scores = scores + jnp.where(mask[:, None, None], 0.0, -1e9)
    found = nn.softmax(scores, axis=-1) @ v
    found = found.transpose(0, 2, 1, 3).reshape(batch, length, width)
    x = layer_norm(library, x + linear(found, weights["o"]), *weights["norm1"])
    wide = nn.gelu(linear(x, weights["up"]), approximate=False)
    return layer_norm(library, x + linear(wide, weights["down"]), *weights["norm2"])


def encoder_weights(width, feed_forward, seed=0):
    """Random weights of one encoder layer."""
    random = np.random.default_rng(seed)

    def numbers(*shape):
        scale = 1 / np.sqrt(shape[-1]) if len(shape) > 1 else 0.1
        return random.standard_normal(shape, dtype=np.float32) * np.float32(scale)

    def matrix(rows, columns):
        return {"weight": numbers(rows, columns), "bias": numbers(rows)}

    return {
        **{name: matrix(width, width) for name in "qkvo"},
        "up": matrix(feed_forward, width),
        "down": matrix(width, feed_forward),
        "norm1": (1 + numbers(width), numbers(width)),
        "norm2": (1 + numbers(width), numbers(width)),
    }


def transformer_loss(library, heads, weights, x, y):
    """The mean square error of causal layers that normalize first."""
    jnp, nn = library.numpy, library.nn
    batch, length, width = x.shape
    visible = jnp.arange(length)[None] <= jnp.arange(length)[:, None]
    for layer in weights:
        h = layer_norm(library, x, *layer["norm1"], 1e-5)
        q, k, v = (
            linear(h, layer[name]).reshape(batch, length, heads, width // heads)
            for name in "qkv"
        )
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(width // heads)
        weight = nn.softmax(jnp.where(visible, scores, -jnp.inf), axis=-1)
        found = jnp.einsum("bhqk,bkhd->bqhd", weight, v).reshape(x.shape)
        x = x + linear(found, layer["o"])
        h = layer_norm(library, x, *layer["norm2"], 1e-5)
        x = x + linear(nn.gelu(linear(h, layer["up"])), layer["down"])
    return jnp.mean((x - y) ** 2)
