"""Orders by several keys, and rows parted at their k-th smallest element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from poot.core.errors import ArgumentError, ShapeError
from poot.core.ops.shape import Reverse
from poot.interpreters import sorting
from poot.interpreters.methods import Value
from poot.interpreters.promotion import cast_to, default_int
from poot.interpreters.shaping import canonical_axis
from poot.numpy._creation import asarray, zeros
from poot.numpy._joining import concatenate


def lexsort(keys: Any, axis: int = -1) -> Value:
    """The order of an axis by several keys, of which the last decides first."""
    values = [asarray(key) for key in _each("lexsort", keys)]
    shapes = {value.shape for value in values}
    if len(shapes) > 1:
        raise ShapeError(
            f"poot.numpy.lexsort: keys have shapes {sorted(shapes)}, takes one shape"
        )
    if not values[0].ndim:
        return zeros((), default_int())
    place = canonical_axis(axis, values[0].ndim, "lexsort")
    return sorting.sorted_places("lexsort", values[::-1], place, False)


def _each(where: str, keys: Any) -> Sequence[Any]:
    items = list(keys)
    if not items:
        raise ArgumentError(f"poot.numpy.{where}: given no key, takes one or more")
    return items


def partition(a: Any, kth: int, axis: int = -1) -> Value:
    """An axis with its `kth` smallest element in place, and none larger before it.

    As in JAX the elements up to it rise and those behind it fall; NaN counts as the
    largest.
    """
    x = asarray(a)
    place = canonical_axis(axis, x.ndim, "partition")
    cut = canonical_axis(kth, x.shape[place], "partition: kth")
    low, high = _cut(sorting.sort(x, place), cut + 1, place)
    return concatenate([low, Reverse((place,)).bind(high)], place)


def argpartition(a: Any, kth: int, axis: int = -1) -> Value:
    """The places of the elements of an axis, as `partition` parts them.

    The places up to the `kth` are in the order of their elements, those behind it rise.
    """
    x = asarray(a)
    place = canonical_axis(axis, x.ndim, "argpartition")
    cut = canonical_axis(kth, x.shape[place], "argpartition: kth")
    low, high = _cut(sorting.argsort(x, place), cut + 1, place)
    parted = concatenate([low, sorting.sort(high, place)], place)
    return cast_to(parted, default_int())


def _cut(x: Value, place: int, axis: int) -> tuple[Value, Value]:
    before = (slice(None),) * axis
    return x[(*before, slice(place))], x[(*before, slice(place, None))]
