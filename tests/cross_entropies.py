"""Cross-entropy as users write it with indices, for poot and for JAX.

Each form takes a namespace with `np`, `nn` and `vmap`, logits [..., classes] and
integer labels.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

import poot
import poot.nn
import poot.numpy

POOT = SimpleNamespace(np=poot.numpy, nn=poot.nn, vmap=poot.vmap)


def taken(m: Any, logits: Any, labels: Any) -> Any:
    scores = m.nn.log_softmax(logits)
    return -m.np.mean(m.np.take_along_axis(scores, labels[..., None], axis=-1))


def taken_of_logits(m: Any, logits: Any, labels: Any) -> Any:
    """As optax has it."""
    chosen = m.np.take_along_axis(logits, labels[..., None], -1)[..., 0]
    return m.np.mean(m.nn.logsumexp(logits, axis=-1) - chosen)


def taken_of_shares(m: Any, logits: Any, labels: Any) -> Any:
    shares = m.np.take_along_axis(m.nn.softmax(logits), labels[..., None], -1)
    return -m.np.mean(m.np.log(shares))


def moved_inside(m: Any, logits: Any, labels: Any) -> Any:
    scores, at = m.nn.log_softmax(logits), labels[..., None]
    return -m.np.mean(m.np.take_along_axis(scores, at, axis=-1, mode="clip"))


def indexed(m: Any, logits: Any, labels: Any) -> Any:
    scores = m.nn.log_softmax(logits)
    rows = m.np.indices(labels.shape, sparse=True)
    return -m.np.mean(scores[(*rows, labels)])


def indexed_flat(m: Any, logits: Any, labels: Any) -> Any:
    scores = m.nn.log_softmax(logits.reshape(-1, logits.shape[-1]))
    return -m.np.mean(scores[m.np.arange(labels.size), labels.ravel()])


def indexed_by_numpy(m: Any, logits: Any, labels: Any) -> Any:
    first, second = labels.shape if labels.ndim == 2 else (1, labels.size)
    scores = m.nn.log_softmax(logits.reshape(first, second, -1))
    rows = np.arange(first)[:, None], np.arange(second)
    return -m.np.mean(scores[(*rows, labels.reshape(first, second))])


def indexed_or_zero(m: Any, logits: Any, labels: Any) -> Any:
    scores = m.nn.log_softmax(logits.reshape(-1, logits.shape[-1]))
    places = m.np.arange(labels.size), labels.ravel()
    return -m.np.mean(scores.at[places].get(mode="fill", fill_value=0))


def mapped(m: Any, logits: Any, labels: Any) -> Any:
    def loss(row: Any, label: Any) -> Any:
        return -m.nn.log_softmax(row)[label]

    rows = logits.reshape(-1, logits.shape[-1])
    return m.np.mean(m.vmap(loss)(rows, labels.ravel()))


def ignoring(m: Any, logits: Any, labels: Any) -> Any:
    counts = labels != -100
    safe = m.np.where(counts, labels, 0)[..., None]
    chosen = m.np.take_along_axis(m.nn.log_softmax(logits), safe, -1)[..., 0]
    return -m.np.mean(m.np.where(counts, chosen, 0))


def smoothed(m: Any, logits: Any, labels: Any) -> Any:
    scores = m.nn.log_softmax(logits)
    chosen = m.np.take_along_axis(scores, labels[..., None], -1)[..., 0]
    return -m.np.mean(0.9 * chosen + 0.1 * m.np.mean(scores, axis=-1))


def focal(m: Any, logits: Any, labels: Any) -> Any:
    scores = m.nn.log_softmax(logits)
    chosen = m.np.take_along_axis(scores, labels[..., None], -1)[..., 0]
    return -m.np.mean((1 - m.np.exp(chosen)) ** 2 * chosen)


def with_squared_logs(m: Any, logits: Any, labels: Any) -> Any:
    """A part for the size of the logits, which is averaged first."""
    logs = m.nn.logsumexp(logits, axis=-1)
    part = 1e-4 * m.np.mean(logs**2)
    chosen = m.np.take_along_axis(logits, labels[..., None], -1)[..., 0]
    return part + m.np.mean(logs - chosen)


def of_counted(m: Any, logits: Any, labels: Any) -> Any:
    """The mean over those that are not ignored, whose number divides the gradient."""
    counts = labels != -100
    safe = m.np.where(counts, labels, 0)[..., None]
    chosen = m.np.take_along_axis(m.nn.log_softmax(logits), safe, -1)[..., 0]
    return -m.np.sum(m.np.where(counts, chosen, 0)) / m.np.maximum(m.np.sum(counts), 1)


FORMS = (
    taken,
    taken_of_logits,
    taken_of_shares,
    moved_inside,
    indexed,
    indexed_flat,
    indexed_by_numpy,
    indexed_or_zero,
    mapped,
    ignoring,
    smoothed,
    focal,
    with_squared_logs,
    of_counted,
)
# JAX has no gradient for what it reads outside by clamping; poot's is of what is read.
CLAMPED = (indexed, indexed_flat, indexed_by_numpy, mapped)
