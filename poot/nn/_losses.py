"""Losses under the names of optax: one for each example, for the caller to average.

They calculate in f32 at least and round once, to the dtype in which the operands meet.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import poot.numpy as jnp
from poot import lax
from poot.core import dtypes
from poot.core.errors import DTypeError, ShapeError
from poot.interpreters.methods import Value
from poot.interpreters.promotion import as_value, cast_to
from poot.interpreters.shaping import canonical_axes
from poot.nn._activations import log_sigmoid
from poot.nn._softmax import log_softmax
from poot.numpy._operands import in_compute_dtype


def _floats(where: str, x: Any) -> Value:
    value = as_value(x, f"nn.{where}")
    if not value.type.dtype.is_float:
        raise DTypeError(
            f"nn.{where}: takes floats, given {value.type.dtype}; cast with .astype(…)"
        )
    return value


def _loss(where: str, function: Callable[..., Value], *xs: Any) -> Value:
    """Calculate in f32 at least, of operands that are all values."""
    values = [as_value(x, f"nn.{where}") for x in xs]
    return in_compute_dtype(where, function, *values)


def _mask(where: Any, value: Value, axis: Any) -> Value | None:
    """Which elements count; a mask without the axes of the classes gets them."""
    if where is None:
        return None
    mask = as_value(where)
    return mask if mask.ndim == value.ndim else jnp.expand_dims(mask, axis)


# --- of classes -------------------------------------------------------------


def softmax_cross_entropy(
    logits: Any, labels: Any, axis: Any = -1, where: Any = None
) -> Value:
    """-sum(labels log_softmax(logits)) along an axis, several, or all (None).

    logits: [..., classes], floats; labels: distributions over the classes, which
    broadcast. `where` says which logits count, or without `axis` which examples; the
    others give 0.
    """
    value = _floats("softmax_cross_entropy", logits)
    mask = _mask(where, value, axis)

    def loss(logits: Value, labels: Value) -> Value:
        products = labels * log_softmax(logits, axis, mask)
        return -jnp.sum(products, axis, where=mask)

    return _loss("softmax_cross_entropy", loss, value, labels)


def safe_softmax_cross_entropy(logits: Any, labels: Any) -> Value:
    """softmax_cross_entropy in which labels of 0 count nothing, even at logits of -inf.

    logits, labels: [..., classes].
    """

    def loss(logits: Value, labels: Value) -> Value:
        is_zero = labels == 0
        logs = jnp.where(is_zero, 0, log_softmax(logits))
        return -jnp.sum(labels * logs, -1)

    name = "safe_softmax_cross_entropy"
    return _loss(name, loss, _floats(name, logits), labels)


def softmax_cross_entropy_with_integer_labels(
    logits: Any, labels: Any, axis: Any = -1, where: Any = None
) -> Value:
    """-log_softmax(logits) at the class that the label names.

    logits: [..., classes], floats; labels: the same without `axis`, integers, which
    number the elements along several axes row by row. Negative labels count from the
    end, and those out of range give NaN. `where` says which logits count in the sum, or
    without `axis` which examples; where none do, the loss is 0.
    """
    name = "softmax_cross_entropy_with_integer_labels"
    value, indices = _floats(name, logits), jnp.asarray(labels)
    axes = canonical_axes(axis, value.ndim, f"nn.{name}")
    if not indices.type.dtype.is_integer:
        raise DTypeError(f"nn.{name}: labels are {indices.type}, take integers")
    kept = [i for i in range(value.ndim) if i not in axes]
    shape = tuple(value.shape[i] for i in kept)
    if indices.shape != shape:
        raise ShapeError(
            f"nn.{name}: labels have shape {indices.shape} beside logits of "
            f"{value.shape}, take {shape}"
        )

    def last(x: Value) -> Value:
        return jnp.reshape(jnp.transpose(x, (*kept, *axes)), (*shape, -1))

    mask = _mask(where, value, axes)
    mask = None if mask is None else last(jnp.broadcast_to(mask, value.shape))
    return _loss(name, _integer_loss(indices, mask), last(value))


def _integer_loss(labels: Value, mask: Value | None) -> Callable[[Value], Value]:
    """The loss of logits whose last axis has the classes."""

    def loss(logits: Value) -> Value:
        classes = logits.shape[-1]
        index = jnp.expand_dims(cast_to(labels, dtypes.int32), -1)
        index = jnp.where(index < 0, index + classes, index)
        is_class = (index >= 0) & (index < classes)
        # Compared, not gathered: one pass over the rows reads each logit once, and the
        # derivative is elementwise.
        places = lax.broadcasted_iota(dtypes.int32, logits.shape, logits.ndim - 1)
        counted = logits if mask is None else jnp.where(mask, logits, -math.inf)
        peak = jnp.max(counted, -1, keepdims=True, initial=-math.inf)
        below = logits - lax.stop_gradient(peak)
        powers = jnp.exp(below if mask is None else jnp.where(mask, below, -math.inf))
        log = jnp.log(jnp.sum(powers, -1, keepdims=True))
        chosen = jnp.sum(jnp.where(places == index, below, 0), -1, keepdims=True)
        loss = jnp.where(is_class, log - chosen, math.nan)
        if mask is not None:
            loss = jnp.where(jnp.any(mask, -1, keepdims=True), loss, 0)
        return jnp.squeeze(loss, -1)

    return loss


def sigmoid_binary_cross_entropy(logits: Any, labels: Any) -> Value:
    """Minus the logarithm of the probability that sigmoid(logits) gives the labels.

    logits: floats; labels: numbers from 0 to 1, which broadcast. Between 0 and 1 they
    weigh the logarithms of both outcomes.
    """

    def loss(logits: Value, labels: Value) -> Value:
        return -labels * log_sigmoid(logits) - (1.0 - labels) * log_sigmoid(-logits)

    name = "sigmoid_binary_cross_entropy"
    value = _floats(name, logits)
    return _loss(name, loss, value, cast_to(as_value(labels), value.type.dtype))


def kl_divergence(
    log_predictions: Any, targets: Any, axis: Any = -1, where: Any = None
) -> Value:
    """sum(targets (log(targets) - log_predictions)) along an axis, several, or all.

    Both broadcast: [..., classes], floats. Targets of 0 count nothing but NaN where the
    prediction is -inf. `where` says which elements count.
    """

    def divergence(log_predictions: Value, targets: Value) -> Value:
        is_zero = targets == 0
        logs = jnp.where(is_zero, 0, jnp.log(jnp.where(is_zero, 1, targets)))
        return jnp.sum(targets * (logs - log_predictions), axis, where=where)

    name = "kl_divergence"
    operands = _floats(name, log_predictions), _floats(name, targets)
    return _loss(name, divergence, *operands)


def kl_divergence_with_log_targets(
    log_predictions: Any, log_targets: Any, axis: Any = -1, where: Any = None
) -> Value:
    """kl_divergence of targets that are given by their logarithms."""

    def divergence(log_predictions: Value, log_targets: Value) -> Value:
        differences = jnp.exp(log_targets) * (log_targets - log_predictions)
        return jnp.sum(differences, axis, where=where)

    name = "kl_divergence_with_log_targets"
    operands = _floats(name, log_predictions), _floats(name, log_targets)
    return _loss(name, divergence, *operands)


def hinge_loss(predictor_outputs: Any, targets: Any) -> Value:
    """max(0, 1 - predictor_outputs targets), elementwise; targets are -1 or 1."""
    return jnp.maximum(0, 1 - jnp.multiply(predictor_outputs, targets))


# --- of numbers -------------------------------------------------------------


def _of_errors(
    where: str, loss: Callable[[Value], Value], predictions: Any, targets: Any
) -> Value:
    """A function of the differences, which broadcast; targets are 0 if None."""
    value = _floats(where, predictions)
    if targets is None:
        return _loss(where, loss, value)
    return _loss(where, lambda x, y: loss(x - y), value, targets)


def squared_error(predictions: Any, targets: Any = None) -> Value:
    """(predictions - targets)**2, elementwise; targets are 0 if None."""
    return _of_errors("squared_error", jnp.square, predictions, targets)


def l2_loss(predictions: Any, targets: Any = None) -> Value:
    """Half the squared error, elementwise: its derivative is the error."""

    def loss(errors: Value) -> Value:
        return jnp.square(errors) * 0.5

    return _of_errors("l2_loss", loss, predictions, targets)


def huber_loss(predictions: Any, targets: Any = None, *, delta: Any = 1.0) -> Value:
    """Half the squared error up to errors of `delta`, then straight on as steep."""

    def loss(errors: Value) -> Value:
        sizes = jnp.abs(errors)
        quadratic = jnp.minimum(sizes, delta)
        return jnp.square(quadratic) * 0.5 + jnp.multiply(delta, sizes - quadratic)

    return _of_errors("huber_loss", loss, predictions, targets)


def log_cosh(predictions: Any, targets: Any = None) -> Value:
    """log(cosh(predictions - targets)), elementwise, without overflow on the way."""

    def loss(errors: Value) -> Value:
        return jnp.logaddexp(errors, -errors) - math.log(2)

    return _of_errors("log_cosh", loss, predictions, targets)


def cosine_similarity(
    predictions: Any,
    targets: Any,
    *,
    epsilon: Any = 0.0,
    axis: Any = -1,
    where: Any = None,
) -> Value:
    """The cosine of the angle between vectors along an axis, several, or all (None).

    Both broadcast: [..., n], floats. Sums of squares count as `epsilon` at least;
    without one, vectors of 0 give NaN. `where` says which elements count.
    """

    def unit(x: Value) -> Value:
        squares = jnp.sum(jnp.square(x), axis, keepdims=True, where=where)
        return x / jnp.sqrt(jnp.clip(squares, epsilon))

    def similarity(predictions: Value, targets: Value) -> Value:
        products = unit(predictions) * unit(targets)
        return jnp.sum(products, axis, where=where)

    name = "cosine_similarity"
    operands = _floats(name, predictions), _floats(name, targets)
    return _loss(name, similarity, *operands)


def cosine_distance(
    predictions: Any,
    targets: Any,
    *,
    epsilon: Any = 0.0,
    axis: Any = -1,
    where: Any = None,
) -> Value:
    """1 - cosine_similarity."""
    return 1.0 - cosine_similarity(
        predictions, targets, epsilon=epsilon, axis=axis, where=where
    )
