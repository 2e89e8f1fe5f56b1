"""JAX's initializers: first values of weights, the same numbers for the same key.

Each is, or builds, a function of a key, a shape and a dtype (the default float one if
None here and there).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import poot.numpy as jnp
from poot import lax, random
from poot.core import dtypes
from poot.core.dtypes import DType
from poot.core.errors import ArgumentError, ShapeError
from poot.interpreters.methods import Value
from poot.interpreters.promotion import cast_to, default_float
from poot.interpreters.shaping import (
    as_element_type,
    canonical_axes,
    canonical_axis,
    canonical_shape,
)

# The standard deviation of a normal distribution that is cut off at 2 of its own.
_TRUNCATED_STDDEV = 0.87962566103423978

Axes = int | Sequence[int]


class Initializer(Protocol):
    """Makes an array of a shape and dtype from a key."""

    def __call__(self, key: Any, shape: Any, dtype: Any = None) -> Value: ...


def _or_default(dtype: Any) -> Any:
    return default_float() if dtype is None else dtype


# --- constants --------------------------------------------------------------


def zeros(key: Any, shape: Any, dtype: Any = None) -> Value:
    """Zeros; the key is not used."""
    return jnp.zeros(shape, _or_default(dtype))


def ones(key: Any, shape: Any, dtype: Any = None) -> Value:
    """Ones; the key is not used."""
    return jnp.ones(shape, _or_default(dtype))


def constant(value: Any, dtype: Any = None) -> Initializer:
    """An initializer that repeats a value, which broadcasts; the key is not used."""
    default = dtype

    def init(key: Any, shape: Any, dtype: Any = default) -> Value:
        return jnp.full(shape, value, _or_default(dtype))

    return init


# --- one distribution -------------------------------------------------------


def uniform(scale: Any = 0.01, dtype: Any = None) -> Initializer:
    """An initializer of numbers from 0 up to, without, `scale`."""
    default = dtype

    def init(key: Any, shape: Any, dtype: Any = default) -> Value:
        dtype = _or_default(dtype)
        return random.uniform(key, shape, dtype) * jnp.asarray(scale, dtype)

    return init


def normal(stddev: Any = 0.01, dtype: Any = None) -> Initializer:
    """An initializer of normal numbers with mean 0."""
    default = dtype

    def init(key: Any, shape: Any, dtype: Any = default) -> Value:
        dtype = _or_default(dtype)
        return random.normal(key, shape, dtype) * jnp.asarray(stddev, dtype)

    return init


def truncated_normal(
    stddev: Any = 0.01, dtype: Any = None, lower: Any = -2.0, upper: Any = 2.0
) -> Initializer:
    """An initializer of normal numbers between `lower` and `upper`, times `stddev`.

    `stddev` is what the distribution has before it is cut off.
    """
    default = dtype

    def init(key: Any, shape: Any, dtype: Any = default) -> Value:
        dtype = _or_default(dtype)
        drawn = random.truncated_normal(key, lower, upper, shape, dtype)
        return drawn * jnp.asarray(stddev, dtype)

    return init


# --- by the number of inputs and outputs ------------------------------------


def _fans(
    shape: tuple[int, ...], in_axis: Axes, out_axis: Axes, batch_axis: Axes
) -> tuple[float, float]:
    """How many inputs each output has, and outputs each input."""
    if len(shape) < 2 and in_axis == -2:
        raise ShapeError(
            f"nn.initializers: weights of shape {shape} have no axis -2 of inputs; "
            "give in_axis, or a shape of two axes at least"
        )
    if 0 in shape:
        raise ShapeError(
            f"nn.initializers: weights of shape {shape} have no inputs or outputs to "
            "be scaled by"
        )

    def size(axes: Axes) -> int:
        found = canonical_axes(axes, len(shape), "nn.initializers")
        return math.prod(shape[axis] for axis in found)

    inputs, outputs = size(in_axis), size(out_axis)
    # What the axes named leave is a convolution's window.
    window = math.prod(shape) / inputs / outputs / size(batch_axis)
    return inputs * window, outputs * window


_MODES: dict[str, Callable[[float, float], float]] = {
    "fan_in": lambda inputs, outputs: inputs,
    "fan_out": lambda inputs, outputs: outputs,
    "fan_avg": lambda inputs, outputs: (inputs + outputs) / 2,
    "fan_geo_avg": lambda inputs, outputs: math.sqrt(inputs * outputs),
}
_DISTRIBUTIONS = ("truncated_normal", "normal", "uniform")


def variance_scaling(
    scale: Any,
    mode: str,
    distribution: str,
    in_axis: Axes = -2,
    out_axis: Axes = -1,
    batch_axis: Axes = (),
    dtype: Any = None,
) -> Initializer:
    """An initializer of numbers with mean 0 and variance scale / n.

    n is the number of inputs ("fan_in") or outputs ("fan_out"), or the mean of both
    ("fan_avg", "fan_geo_avg"). Axes that are neither of inputs, outputs nor batches are
    a convolution's window. The distribution is "truncated_normal" (cut off at two
    standard deviations), "normal" or "uniform". ArgumentError for other names.
    """
    if mode not in _MODES:
        raise ArgumentError(
            f"nn.initializers.variance_scaling: mode is {mode!r}, takes one of "
            f"{tuple(_MODES)}"
        )
    if distribution not in _DISTRIBUTIONS:
        raise ArgumentError(
            f"nn.initializers.variance_scaling: distribution is {distribution!r}, "
            f"takes one of {_DISTRIBUTIONS}"
        )
    default = dtype

    def init(key: Any, shape: Any, dtype: Any = default) -> Value:
        sizes = canonical_shape(shape, "nn.initializers")
        dtype = _or_default(dtype)
        count = _MODES[mode](*_fans(sizes, in_axis, out_axis, batch_axis))
        variance = jnp.asarray(scale / count, dtype)
        if distribution == "uniform":
            return random.uniform(key, sizes, dtype, -1) * jnp.sqrt(3 * variance)
        if distribution == "normal":
            return random.normal(key, sizes, dtype) * jnp.sqrt(variance)
        stddev = jnp.sqrt(variance) / jnp.asarray(_TRUNCATED_STDDEV, dtype)
        return random.truncated_normal(key, -2, 2, sizes, dtype) * stddev

    return init


def glorot_uniform(
    in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: Any = None
) -> Initializer:
    """Glorot's, also called Xavier's: uniform, scaled by inputs and outputs."""
    axes = in_axis, out_axis, batch_axis
    return variance_scaling(1.0, "fan_avg", "uniform", *axes, dtype)


def glorot_normal(
    in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: Any = None
) -> Initializer:
    """Glorot's, also called Xavier's: normal, scaled by inputs and outputs."""
    axes = in_axis, out_axis, batch_axis
    return variance_scaling(1.0, "fan_avg", "truncated_normal", *axes, dtype)


def lecun_uniform(
    in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: Any = None
) -> Initializer:
    """LeCun's: uniform, scaled by inputs."""
    axes = in_axis, out_axis, batch_axis
    return variance_scaling(1.0, "fan_in", "uniform", *axes, dtype)


def lecun_normal(
    in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: Any = None
) -> Initializer:
    """LeCun's: normal, scaled by inputs."""
    axes = in_axis, out_axis, batch_axis
    return variance_scaling(1.0, "fan_in", "truncated_normal", *axes, dtype)


def he_uniform(
    in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: Any = None
) -> Initializer:
    """He's, also called Kaiming's: uniform, scaled by inputs for relu."""
    axes = in_axis, out_axis, batch_axis
    return variance_scaling(2.0, "fan_in", "uniform", *axes, dtype)


def he_normal(
    in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: Any = None
) -> Initializer:
    """He's, also called Kaiming's: normal, scaled by inputs for relu."""
    axes = in_axis, out_axis, batch_axis
    return variance_scaling(2.0, "fan_in", "truncated_normal", *axes, dtype)


xavier_uniform, xavier_normal = glorot_uniform, glorot_normal
kaiming_uniform, kaiming_normal = he_uniform, he_normal


# --- orthogonal -------------------------------------------------------------


def orthogonal(
    scale: Any = 1.0, column_axis: int = -1, dtype: Any = None
) -> Initializer:
    """An initializer of matrices with orthonormal rows or columns, times `scale`.

    The shape has two axes or more, of which all but `column_axis` count the rows
    together; the smaller side is orthonormal. ShapeError for fewer axes.
    """
    default = dtype

    def init(key: Any, shape: Any, dtype: Any = default) -> Value:
        where = "nn.initializers.orthogonal"
        sizes, dtype = (
            canonical_shape(shape, where),
            as_element_type(_or_default(dtype)),
        )
        if len(sizes) < 2:
            raise ShapeError(f"{where}: given shape {sizes}, takes two axes at least")
        axis = canonical_axis(column_axis, len(sizes), where)
        others = sizes[:axis] + sizes[axis + 1 :]
        matrix = _orthonormal(key, math.prod(others), sizes[axis], dtype)
        result = jnp.moveaxis(jnp.reshape(matrix, (*others, sizes[axis])), -1, axis)
        return jnp.asarray(scale, dtype) * result

    return init


def delta_orthogonal(
    scale: Any = 1.0, column_axis: int = -1, dtype: Any = None
) -> Initializer:
    """An initializer of convolutions: an orthogonal matrix in the middle, else zeros.

    The shape is that of one to three axes of a window, then inputs and outputs, of
    which there are as many or more. ShapeError for others.
    """
    default = dtype

    def init(key: Any, shape: Any, dtype: Any = default) -> Value:
        where = "nn.initializers.delta_orthogonal"
        sizes, dtype = canonical_shape(shape, where), _or_default(dtype)
        if not 3 <= len(sizes) <= 5 or sizes[-1] < sizes[-2]:
            raise ShapeError(
                f"{where}: given shape {sizes}, takes one to three axes of a window, "
                "then inputs, then as many outputs or more"
            )
        matrix = orthogonal(scale, column_axis)(key, sizes[-2:], dtype)
        # One matrix between zeros; the middle of an even window is the earlier place.
        padding = [((size - 1) // 2, size // 2) for size in sizes[:-2]]
        alone = jnp.reshape(matrix, (1,) * len(padding) + sizes[-2:])
        return jnp.pad(alone, [*padding, (0, 0), (0, 0)])

    return init


def _orthonormal(key: Any, rows: int, columns: int, dtype: DType) -> Value:
    """The factor of the QR decomposition of normal numbers, with R's diagonal positive.

    [rows, columns]; columns are orthonormal if there are no more of them than rows.
    """
    long, short = max(rows, columns), min(rows, columns)
    if not short:
        return jnp.zeros((rows, columns), dtype)
    drawn = cast_to(random.normal(key, (long, short), dtype), dtype.compute)

    def step(found: Value, drawn: tuple[Value, Value]) -> tuple[Value, None]:
        place, vector = drawn
        # Gram and Schmidt's step, again for what rounding left of the others.
        for _ in range(2):
            vector = vector - (found @ vector) @ found
        unit = vector / jnp.sqrt(jnp.sum(jnp.square(vector)))
        return lax.dynamic_update_index_in_dim(found, unit, place, 0), None

    places = lax.iota(dtypes.int32, short)
    start = jnp.zeros((short, long), dtype.compute)
    found, _ = lax.scan(step, start, (places, jnp.transpose(drawn)))
    unit = cast_to(found, dtype)
    return unit if rows < columns else jnp.transpose(unit)
