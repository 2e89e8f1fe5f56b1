"""Functions that poot and its rivals run alike, against NumPy's names of either."""

from __future__ import annotations

import numpy as np

EPSILON = 1e-6
LAYERS, BATCH = 3, 256


def chain(np_like, x):
    return np_like.tanh(1.5 * x + 0.5) * np_like.exp(-(x * x)) + x


def rms_norm(np_like, x, weight):
    mean = np_like.mean(x * x, axis=-1, keepdims=True)
    return x / np_like.sqrt(mean + EPSILON) * weight


def softmax(np_like, x):
    e = np_like.exp(x - np_like.max(x, axis=-1, keepdims=True))
    return e / np_like.sum(e, axis=-1, keepdims=True)


def matmul(np_like, a, b):
    return np_like.matmul(a, b)


def causal_attention(np_like, q, k, v):
    """Of [heads, length, elements]."""
    length = q.shape[-2]
    mask = np_like.tril(np_like.ones((length, length), bool))
    scores = q @ np_like.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]).astype(np.float32)
    return softmax(np_like, np_like.where(mask, scores, -np.inf)) @ v


def attention_arguments(length: int) -> list[np.ndarray]:
    """Queries, keys and values of 8 heads of 64 elements."""
    random = np.random.default_rng(4)
    return [random.standard_normal((8, length, 64), np.float32) for _ in range(3)]


def mlp_loss(np_like, weights, x, y):
    """The mean square error of layers of tanh, each a matrix and a bias."""
    for number in range(0, len(weights), 2):
        x = np_like.tanh(x @ weights[number] + weights[number + 1])
    return np_like.mean((x - y) ** 2)


def mlp_arguments(width: int) -> list[np.ndarray]:
    """Weights, then inputs and targets."""
    random = np.random.default_rng(2)
    arrays = []
    for _ in range(LAYERS):
        arrays += [
            random.standard_normal((width, width)) / np.sqrt(width),
            random.standard_normal(width),
        ]
    arrays += [random.standard_normal((BATCH, width)) for _ in range(2)]
    return [array.astype(np.float32) for array in arrays]
