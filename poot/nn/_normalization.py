"""Values brought to mean 0 and variance 1.

`standardize` is jax.nn's and rounds after each op. The others calculate in f32 at least
(f64 of f64) and round once, to the dtype of `x`; integers become floats. Scales and
biases are optional, one for each element of the axes that the function names.
"""

from __future__ import annotations

import operator
from typing import Any

import poot.numpy as jnp
from poot import lax
from poot.core.errors import ArgumentError, ShapeError
from poot.interpreters.methods import Value
from poot.interpreters.promotion import as_value, cast_to, inexact
from poot.interpreters.shaping import canonical_axes, canonical_axis


def standardize(
    x: Any,
    axis: Any = -1,
    mean: Any = None,
    variance: Any = None,
    epsilon: Any = 1e-5,
    where: Any = None,
    *,
    algorithm: str = "fast",
) -> Value:
    """(x - mean) / sqrt(variance + epsilon), of those along an axis, several, or all.

    `mean` and `variance` broadcast against `x`; `where` says which elements count in
    them. The algorithm "fast" takes the variance from the mean of squares, which
    cancels where the mean is large; "stable" from the squared distances.
    """
    value = as_value(x, "nn.standardize")
    if mean is None:
        mean = jnp.mean(value, axis, keepdims=True, where=where)
    centred = jnp.subtract(value, mean)
    if algorithm not in ("fast", "stable"):
        raise ArgumentError(
            f"nn.standardize: algorithm is {algorithm!r}, takes 'fast' or 'stable'"
        )
    if variance is None and algorithm == "stable":
        variance = jnp.mean(jnp.square(centred), axis, keepdims=True, where=where)
    elif variance is None:
        squares = jnp.mean(jnp.square(value), axis, keepdims=True, where=where)
        variance = jnp.clip(squares - jnp.square(mean), 0)
    return centred * lax.rsqrt(jnp.add(variance, epsilon))


def layer_norm(
    x: Any,
    scale: Any = None,
    bias: Any = None,
    *,
    axis: Any = -1,
    epsilon: float = 1e-5,
) -> Value:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, along `axis`.

    x: [...]; scale and bias: the sizes of the axes named, in that order.
    """
    value, wide = _wide("layer_norm", x)
    axes = canonical_axes(axis, value.ndim, "nn.layer_norm")
    result = _standard(wide, axes, epsilon)
    return _affine("layer_norm", result, value, axes, scale, bias)


def rms_norm(
    x: Any, scale: Any = None, *, axis: Any = -1, epsilon: float = 1e-6
) -> Value:
    """x / sqrt(mean(x**2) + epsilon) * scale, along `axis`.

    x: [...]; scale: the sizes of the axes named, in that order.
    """
    value, wide = _wide("rms_norm", x)
    axes = canonical_axes(axis, value.ndim, "nn.rms_norm")
    squares = jnp.mean(jnp.square(wide), axes, keepdims=True)
    result = wide * lax.rsqrt(squares + epsilon)
    return _affine("rms_norm", result, value, axes, scale, None)


def group_norm(
    x: Any,
    groups: int,
    scale: Any = None,
    bias: Any = None,
    *,
    feature_axis: int = -1,
    epsilon: float = 1e-5,
) -> Value:
    """layer_norm of each example's groups of neighbouring features.

    x: [examples, ...] with features along `feature_axis`; mean and variance are those
    of a group's features at all places. scale and bias: [features]. As many groups as
    features are an instance norm. ShapeError if the groups do not divide the features.
    """
    value, wide = _wide("group_norm", x)
    axis = canonical_axis(feature_axis, value.ndim, "nn.group_norm")
    features, count = value.shape[axis], operator.index(groups)
    if axis == 0 or count < 1 or features % count:
        raise ShapeError(
            f"nn.group_norm: {count} groups of axis {axis} of {value.shape}; takes an "
            "axis after the first whose size they divide"
        )
    before, after = value.shape[:axis], value.shape[axis + 1 :]
    apart = jnp.reshape(wide, (*before, count, features // count, *after))
    axes = tuple(i for i in range(1, apart.ndim) if i != axis)
    result = jnp.reshape(_standard(apart, axes, epsilon), value.shape)
    return _affine("group_norm", result, value, (axis,), scale, bias)


def batch_statistics(x: Any, *, feature_axis: int = -1) -> tuple[Value, Value]:
    """The mean and the variance of each feature over a batch: [features], f32 at least.

    x: [...] with features along `feature_axis`.
    """
    value, wide = _wide("batch_statistics", x)
    axis = canonical_axis(feature_axis, value.ndim, "nn.batch_statistics")
    axes = tuple(i for i in range(value.ndim) if i != axis)
    mean = jnp.mean(wide, axes, keepdims=True)
    variance = jnp.var(wide, axes, mean=mean)
    return jnp.reshape(mean, variance.shape), variance


def batch_norm(
    x: Any,
    mean: Any,
    variance: Any,
    scale: Any = None,
    bias: Any = None,
    *,
    feature_axis: int = -1,
    epsilon: float = 1e-5,
) -> Value:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, for each feature.

    x: [...] with features along `feature_axis`; the others: [features]. The mean and
    variance are those of `batch_statistics` in training, and running ones afterwards.
    """
    value, wide = _wide("batch_norm", x)
    axes = (canonical_axis(feature_axis, value.ndim, "nn.batch_norm"),)
    centred = wide - _spread("batch_norm", mean, wide, axes)
    deviation = lax.rsqrt(_spread("batch_norm", variance, wide, axes) + epsilon)
    return _affine("batch_norm", centred * deviation, value, axes, scale, bias)


# --- what they share --------------------------------------------------------


def _wide(where: str, x: Any) -> tuple[Value, Value]:
    """The operand as a float, and in the dtype that is calculated in."""
    value = as_value(x, f"nn.{where}").with_weak(False)
    value = cast_to(value, inexact(value.type.dtype))
    return value, cast_to(value, value.type.dtype.compute)


def _standard(x: Value, axes: tuple[int, ...], epsilon: float) -> Value:
    mean = jnp.mean(x, axes, keepdims=True)
    variance = jnp.var(x, axes, keepdims=True, mean=mean)
    return (x - mean) * lax.rsqrt(variance + epsilon)


def _affine(
    where: str, x: Value, given: Value, axes: tuple[int, ...], scale: Any, bias: Any
) -> Value:
    """Times scale, plus bias, in the dtype of the operand that was given."""
    if scale is not None:
        x = x * _spread(where, scale, x, axes)
    if bias is not None:
        x = x + _spread(where, bias, x, axes)
    return cast_to(x, given.type.dtype)


def _spread(where: str, values: Any, x: Value, axes: tuple[int, ...]) -> Value:
    """Values for each element of some axes, to broadcast against `x` in its dtype."""
    value = cast_to(as_value(values, f"nn.{where}"), x.type.dtype).with_weak(False)
    sizes = tuple(x.shape[axis] for axis in axes)
    if value.shape != sizes:
        raise ShapeError(
            f"nn.{where}: given values of shape {value.shape} for axes {axes} of "
            f"{x.shape}, takes {sizes}"
        )
    order = sorted(range(len(axes)), key=axes.__getitem__)
    shape = [size if i in axes else 1 for i, size in enumerate(x.shape)]
    return jnp.reshape(jnp.transpose(value, order), shape)
