"""`associative_scan`: prefixes of an associative function in few steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from poot.core.errors import ArgumentError, ShapeError
from poot.core.ops.shape import Reverse
from poot.interpreters.control.binding import require_same_types
from poot.interpreters.flat import name_of, require_callable, values_of
from poot.interpreters.primitives import concat, reshape, slice_axis, type_of
from poot.interpreters.pytree import by_sorted_keys, flatten, unflatten
from poot.interpreters.shaping import canonical_axis

Combine = Callable[[Sequence[Any], Sequence[Any]], list[Any]]


def associative_scan(
    fn: Callable[..., Any], elems: Any, reverse: bool = False, axis: int = 0
) -> Any:
    """`y[i] = fn(… fn(fn(x[0], x[1]), x[2]) …, x[i])` along an axis; fn associative.

    `fn(a, b)` takes and gives trees like `elems`, whole slices along the axis at once.
    About 2 log2(n) calls of fn on n/2, n/4, … elements (Blelloch, Prefix Sums and Their
    Applications, 1990): the combinations are ordered otherwise than in a loop.
    """
    require_callable("associative_scan", fn)
    leaves, tree = flatten(elems)
    values = values_of("associative_scan", leaves, tree)
    if not values:
        return elems
    ranks = [type_of(x).ndim for x in values]
    places = [canonical_axis(axis, ndim, "associative_scan") for ndim in ranks]
    sizes = {type_of(x).shape[place] for x, place in zip(values, places, strict=True)}
    if len(sizes) > 1:
        raise ShapeError(
            f"associative_scan: the axes have sizes {sorted(sizes)}; takes equal ones"
        )
    if len(set(places)) > 1:
        raise ShapeError("associative_scan: a negative axis names different axes")
    (place,) = set(places)
    if reverse:
        values = [Reverse((place,)).bind(x) for x in values]

    def combine(a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
        made, made_tree = flatten(fn(unflatten(tree, a), unflatten(tree, b)))
        if by_sorted_keys(made_tree) != by_sorted_keys(tree):
            raise ArgumentError(
                f"associative_scan: fn gave the tree {made_tree}, takes {tree}"
            )
        found = values_of("associative_scan", made, made_tree)
        require_same_types(
            f"associative_scan of `{name_of(fn)}`",
            [x.aval for x in found],
            [x.aval for x in a],
            by_sorted_keys(tree),
            "elems",
        )
        return found

    found = _prefixes(combine, values, place)
    if reverse:
        found = [Reverse((place,)).bind(x) for x in found]
    return unflatten(by_sorted_keys(tree), found)


def _part(
    xs: Sequence[Any], axis: int, start: int, end: int, step: int = 1
) -> list[Any]:
    return [slice_axis(x, axis, start, end, step) for x in xs]


def _prefixes(combine: Combine, xs: Sequence[Any], axis: int) -> list[Any]:
    """Pairs are combined, their prefixes found, and those between filled in."""
    size = type_of(xs[0]).shape[axis]
    if size < 2:
        return list(xs)
    paired = combine(
        _part(xs, axis, 0, size - size % 2, 2), _part(xs, axis, 1, size, 2)
    )
    odd = _prefixes(combine, paired, axis)
    first = _part(xs, axis, 0, 1)
    if size == 2:
        return [concat([a, b], axis) for a, b in zip(first, odd, strict=True)]
    count = (size - 1) // 2
    between = combine(_part(odd, axis, 0, count), _part(xs, axis, 2, size, 2))
    even = [concat([a, b], axis) for a, b in zip(first, between, strict=True)]
    return [_interleaved(a, b, axis) for a, b in zip(even, odd, strict=True)]


def _interleaved(even: Any, odd: Any, axis: int) -> Any:
    """Elements of two values by turns; the first, `even`, may have one more."""
    shape = type_of(odd).shape
    count = shape[axis]
    pair = (*shape[: axis + 1], 1, *shape[axis + 1 :])
    head = reshape(slice_axis(even, axis, 0, count), pair)
    both = concat([head, reshape(odd, pair)], axis + 1)
    made = reshape(both, (*shape[:axis], 2 * count, *shape[axis + 1 :]))
    total = type_of(even).shape[axis]
    if total == count:
        return made
    return concat([made, slice_axis(even, axis, count, total)], axis)
