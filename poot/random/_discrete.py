"""Categories by their logits, and counts of trials."""

from __future__ import annotations

import math
from typing import Any

from poot import lax
from poot import numpy as pnp
from poot.core.errors import ArgumentError
from poot.interpreters.methods import Value
from poot.interpreters.promotion import as_value, cast_to, default_int
from poot.interpreters.shaping import canonical_axis
from poot.random._arguments import (
    draw_shape,
    float_dtype,
    integer_dtype,
    parameter,
    parameter_shape,
    probability_dtype,
    require_fit,
)
from poot.random._continuous import standard_gumbel
from poot.random._keys import KeyArray, single_key
from poot.random._uniform import unit


def categorical(
    key: Any,
    logits: Any,
    axis: int = -1,
    shape: Any = None,
    replace: bool = True,
    mode: str | None = None,
) -> Value:
    """Places along an axis, as likely as the softmax of the logits says.

    `shape` is that of the logits without the axis, perhaps with more axes in front.
    Without `replace`, the draws along these are different places. ArgumentError if
    there are too few of them, ShapeError for a shape that does not fit.
    """
    given = single_key("categorical", key)
    weights = as_value(logits, "poot.random.categorical")
    float_dtype("categorical", weights.type.dtype)
    place = canonical_axis(axis, weights.ndim, "poot.random.categorical")
    batch = weights.shape[:place] + weights.shape[place + 1 :]
    sizes = batch if shape is None else draw_shape("categorical", shape)
    require_fit("categorical", sizes, batch)
    front, rows = sizes[: len(sizes) - len(batch)], sizes[len(sizes) - len(batch) :]
    rows = (*rows[:place], weights.shape[place], *rows[place:])
    if not replace:
        return _distinct_places(given, weights, place, (front, rows), mode)
    noise = standard_gumbel(given, (*front, *rows), weights.type.dtype, mode)
    return pnp.argmax(noise + weights, axis=len(front) + place)


def _distinct_places(
    key: KeyArray,
    weights: Value,
    axis: int,
    sizes: tuple[tuple[int, ...], tuple[int, ...]],
    mode: str | None,
) -> Value:
    """The places of the largest of logits with noise, along axes in front."""
    front, rows = sizes
    count = math.prod(front)
    if count > rows[axis]:
        raise ArgumentError(
            f"poot.random.categorical: {count} draws without replacement from "
            f"{rows[axis]} categories; draw fewer, or with replace=True"
        )
    noise = standard_gumbel(key, rows, weights.type.dtype, mode)
    _, places = lax.top_k(weights + noise, count, axis=axis)
    others = rows[:axis] + rows[axis + 1 :]
    ordered = pnp.moveaxis(places, axis, 0).reshape(*front, *others)
    return cast_to(ordered, default_int())


def geometric(key: Any, p: Any, shape: Any = None, dtype: Any = None) -> Value:
    """How many trials it takes until one of probability `p` succeeds, from 1 on."""
    wanted = integer_dtype("geometric", dtype)
    compute = probability_dtype("geometric", p)
    sizes = parameter_shape("geometric", shape, p)
    drawn = unit(single_key("geometric", key), sizes, compute)
    drawn = pnp.where(drawn == 0, 1, drawn)
    failures = pnp.log(drawn) / pnp.log1p(-parameter("geometric", p, compute))
    return pnp.astype(pnp.floor(failures) + 1, wanted.numpy)
