"""Random orders, and random choices among the elements of an axis."""

from __future__ import annotations

import math
import operator
from typing import Any

from poot import lax
from poot import numpy as pnp
from poot.core.errors import ArgumentError, ShapeError
from poot.interpreters.methods import Value
from poot.interpreters.promotion import as_value, default_int, type_of
from poot.interpreters.shaping import canonical_axis
from poot.random._arguments import draw_shape, probability_dtype
from poot.random._continuous import standard_gumbel
from poot.random._keys import KeyArray, child, single_key
from poot.random._uniform import randint, random_bits, unit

_LARGEST_WORD = 0xFFFFFFFF


def permutation(key: Any, x: Any, axis: int = 0, independent: bool = False) -> Value:
    """The numbers below `x`, or the elements of an axis of an array, in random order.

    With `independent` each row along the axis has an order of its own; otherwise
    slices move as a whole.
    """
    given = single_key("permutation", key)
    if not type_of(x).shape:
        return _shuffled(given, pnp.arange(_count("permutation", x)), 0)
    array = as_value(x, "poot.random.permutation")
    place = canonical_axis(axis, array.ndim, "poot.random.permutation")
    if independent or array.ndim == 1:
        return _shuffled(given, array, place)
    order = _shuffled(given, pnp.arange(array.shape[place]), 0)
    return pnp.take(array, order, place, mode="promise_in_bounds")


def _count(where: str, x: Any) -> int:
    """A population given by its size."""
    if not type_of(x).dtype.is_integer:
        raise ArgumentError(
            f"poot.random.{where}: given the {type_of(x).dtype} scalar {x}, takes an "
            "integer or an array with axes"
        )
    return operator.index(x)


def _shuffled(key: KeyArray, x: Value, axis: int) -> Value:
    """The elements of an axis by random words as sort keys.

    Equal words leave elements as they stand. Several rounds make that as rare as if
    the words were of more bits: as many as the cube of the number of elements has.
    """
    rounds = math.ceil(3 * math.log(max(1, x.size)) / math.log(_LARGEST_WORD))
    for _ in range(rounds):
        words = random_bits(child(key, 1), x.shape, 32)
        key = child(key, 0)
        _, x = lax.sort_key_val(words, x, axis)
    return x


# --- choices ----------------------------------------------------------------


def choice(
    key: Any,
    a: Any,
    shape: Any = (),
    replace: bool = True,
    p: Any = None,
    axis: int = 0,
    mode: str | None = None,
) -> Value:
    """Elements of an axis of `a`, or numbers below it, chosen at random.

    `p` gives each one's probability. Without `replace` no element is chosen twice.
    `mode` is that of `gumbel`, which decides where `p` is given without `replace`.
    ArgumentError if there are too few to choose from, ShapeError for a `p` of another
    shape than (size,).
    """
    given, sizes = single_key("choice", key), draw_shape("choice", shape)
    array = as_value(a, "poot.random.choice") if type_of(a).shape else None
    if array is None:
        place, size = 0, _count("choice", a)
    else:
        place = canonical_axis(axis, array.ndim, "poot.random.choice")
        size = array.shape[place]
    count = math.prod(sizes)
    if count:
        _require_enough(size, count, replace)
    places = _chosen_places(given, size, sizes, replace, p, mode)
    if array is None:
        return places
    return pnp.take(array, places, place, mode="promise_in_bounds")


def _require_enough(size: int, count: int, replace: bool) -> None:
    if size <= 0:
        raise ArgumentError(
            f"poot.random.choice: {size} elements, from which {count} cannot be chosen"
        )
    if not replace and count > size:
        raise ArgumentError(
            f"poot.random.choice: {count} elements to choose from {size} without "
            "replacement; choose fewer, or with replace=True"
        )


def _chosen_places(
    key: KeyArray,
    size: int,
    shape: tuple[int, ...],
    replace: bool,
    p: Any,
    mode: str | None,
) -> Value:
    """Places in an axis of a size, of the shape to draw."""
    count = math.prod(shape)
    if not count:
        return pnp.zeros(shape, int)
    if p is None and replace:
        return randint(key, shape, 0, size)
    if p is None:
        return permutation(key, size)[:count].reshape(shape)
    dtype = probability_dtype("choice", p)
    if type_of(p).shape != (size,):
        raise ShapeError(
            f"poot.random.choice: p has shape {type_of(p).shape}, takes ({size},), one "
            "probability an element"
        )
    weights = as_value(p, "poot.random.choice")
    if replace:
        sums = pnp.cumsum(weights)
        drawn = sums[-1] * (1 - unit(key, shape, dtype))
        return pnp.searchsorted(sums, drawn).astype(default_int())
    noise = standard_gumbel(key, (size,), dtype, mode)
    _, places = lax.top_k(noise + pnp.log(weights), count)
    return places.astype(default_int()).reshape(shape)
