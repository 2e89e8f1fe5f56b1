"""Rotary embedding of positions."""

from __future__ import annotations

import math
from typing import Any

import poot.numpy as jnp
from poot import lax
from poot.core import dtypes
from poot.core.errors import DTypeError, ShapeError
from poot.interpreters.methods import Value
from poot.interpreters.promotion import as_value, cast_to


def rope(
    x: Any,
    positions: Any = None,
    *,
    theta: float = 10_000.0,
    dimensions: int | None = None,
    interleaved: bool = False,
    frequencies: Any = None,
) -> Value:
    """Turn pairs of each head's elements by angles that grow with the position.

    x: [..., T, N, H], floats. positions: [T] or [..., T], integers or floats; None
    stands for 0 to T - 1. The first `dimensions` elements of a head are turned (all if
    None; an even number), and the rest stays. Pair i consists of elements i and
    i + dimensions / 2, or if `interleaved` of 2 i and 2 i + 1; it turns for each
    position by theta**(-2 i / dimensions), or by frequencies[i]: [dimensions / 2].

    Angles, sines and products are f32 at least; the result is rounded once, to the
    dtype of `x`.
    """
    value = as_value(x, "nn.rope")
    if value.ndim < 3 or not value.type.dtype.is_float:
        raise ShapeError(
            f"nn.rope: x is {value.type}, takes floats of shape [..., T, N, H]"
        )
    head = value.shape[-1]
    turned = head if dimensions is None else dimensions
    if turned % 2 or not 0 <= turned <= head:
        raise ShapeError(
            f"nn.rope: {turned} dimensions of heads of {head} elements; takes an even "
            "number that is no larger"
        )
    angles = _angles(value, positions, turned // 2, theta, frequencies)
    cosine, sine = jnp.cos(angles), jnp.sin(angles)
    wide = cast_to(value, value.type.dtype.compute)
    # Interleaved pairs stand along the last axis, the others along the one before.
    sizes = (turned // 2, 2) if interleaved else (2, turned // 2)
    pair = -1 if interleaved else -2
    pairs = jnp.reshape(wide[..., :turned], (*value.shape[:-1], *sizes))
    first, second = jnp.unstack(pairs, axis=pair)
    results = [first * cosine - second * sine, second * cosine + first * sine]
    if interleaved:
        whole = jnp.reshape(jnp.stack(results, -1), (*value.shape[:-1], turned))
        results = [whole]
    return cast_to(
        jnp.concatenate([*results, wide[..., turned:]], -1), value.type.dtype
    )


def _angles(
    x: Value, positions: Any, pairs: int, theta: float, frequencies: Any
) -> Value:
    """The angle of each pair at each position: [..., T, 1, pairs]."""
    compute = x.type.dtype.compute
    if frequencies is None:
        step = -math.log(theta) / max(pairs, 1)
        rates = jnp.exp(lax.iota(compute, pairs) * step)
    else:
        rates = cast_to(as_value(frequencies, "nn.rope"), compute)
        if rates.shape != (pairs,):
            raise ShapeError(
                f"nn.rope: frequencies have shape {rates.shape}, take ({pairs},)"
            )
    length = x.shape[-3]
    given = lax.iota(dtypes.int32, length) if positions is None else positions
    places = jnp.asarray(given)
    if places.type.dtype.is_bool:
        raise DTypeError("nn.rope: positions are bools, take numbers")
    lead = x.shape[:-2]
    if places.shape not in (lead[-1:], lead):
        raise ShapeError(
            f"nn.rope: positions have shape {places.shape}, take {lead[-1:]} or {lead}"
        )
    return cast_to(places, compute)[..., None, None] * rates
