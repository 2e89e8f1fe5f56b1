"""`psum` and its kin: what the examples of a named batch tell each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from poot.core.errors import ArgumentError
from poot.core.ops.collectives import (
    AllGather,
    AllReduce,
    AxisIndex,
    CollectiveOp,
    PPermute,
)
from poot.interpreters.flat import values_of
from poot.interpreters.primitives import div, number, reshape, type_of
from poot.interpreters.promotion import cast_to, inexact
from poot.interpreters.pytree import flatten, map
from poot.interpreters.shaping import canonical_axis
from poot.interpreters.transform import named_batches

AxisNames = str | Sequence[str]


def _size(where: str, name: str) -> int:
    """The size of the batch of this name; ArgumentError if there is none here."""
    found = named_batches().get(name)
    if found is None:
        raise ArgumentError(
            f"{where}: no batch is called {name!r} here; give vmap axis_name={name!r}"
        )
    return found


def axis_size(axis_name: AxisNames) -> int:
    """How many examples the batch has (the product for several names)."""
    total = 1
    for name in _names("axis_size", axis_name):
        total *= _size("axis_size", name)
    return total


def _names(where: str, given: AxisNames) -> tuple[str, ...]:
    names = tuple(given) if isinstance(given, tuple | list) else (given,)
    if not all(isinstance(name, str) for name in names):
        raise ArgumentError(f"{where}: axis_name is {given!r}; takes strings")
    return names


def _each(where: str, x: Any, function: Callable[[Any], Any]) -> Any:
    def leaf(given: Any) -> Any:
        (value,) = values_of(where, [given], flatten(given)[1])
        return function(value)

    return map(leaf, x)


def _refuse_groups(where: str, groups: Any) -> None:
    if groups is not None:
        raise ArgumentError(f"{where}: axis_index_groups do not go with vmap")


def _reduced(where: str, x: Any, axis_name: AxisNames, how: CollectiveOp) -> Any:
    names = _names(where, axis_name)
    sizes = [_size(where, name) for name in names]

    def reduced(value: Any) -> Any:
        weak = value.aval.weak
        for name, size in zip(names, sizes, strict=True):
            value = AllReduce(name, size, how).bind(value)
        return value.with_weak(weak)

    return _each(where, x, reduced)


def psum(x: Any, axis_name: AxisNames, *, axis_index_groups: Any = None) -> Any:
    """The sum of x over all examples of the batch (of each leaf of a tree)."""
    _refuse_groups("psum", axis_index_groups)
    if isinstance(x, int | float) and not isinstance(x, bool):
        # As in JAX, a number gives a number: psum(1, name) is the size of the batch.
        return x * axis_size(axis_name)
    return _reduced("psum", x, axis_name, CollectiveOp.SUM)


def pmax(x: Any, axis_name: AxisNames, *, axis_index_groups: Any = None) -> Any:
    """The largest x of all examples."""
    _refuse_groups("pmax", axis_index_groups)
    return _reduced("pmax", x, axis_name, CollectiveOp.MAX)


def pmin(x: Any, axis_name: AxisNames, *, axis_index_groups: Any = None) -> Any:
    """The smallest x of all examples."""
    _refuse_groups("pmin", axis_index_groups)
    return _reduced("pmin", x, axis_name, CollectiveOp.MIN)


def pmean(x: Any, axis_name: AxisNames, *, axis_index_groups: Any = None) -> Any:
    """The mean of x over all examples, a float."""
    _refuse_groups("pmean", axis_index_groups)
    count = axis_size(axis_name)

    def mean(value: Any) -> Any:
        dtype = inexact(type_of(value).dtype)
        total = _reduced("pmean", cast_to(value, dtype), axis_name, CollectiveOp.SUM)
        return div(total, number(count, dtype)).with_weak(value.aval.weak)

    return _each("pmean", x, mean)


def all_gather(
    x: Any,
    axis_name: AxisNames,
    *,
    axis_index_groups: Any = None,
    axis: int = 0,
    tiled: bool = False,
) -> Any:
    """The x of all examples: along a new axis, or with `tiled` one after the other."""
    _refuse_groups("all_gather", axis_index_groups)
    names = _names("all_gather", axis_name)

    def gathered(value: Any) -> Any:
        shape = type_of(value).shape
        ndim = len(shape) + (not tiled)
        place = canonical_axis(axis, ndim, "all_gather")
        for name in reversed(names):
            size = _size("all_gather", name)
            value = AllGather(name, size, place).bind(value)
        total = axis_size(axis_name)
        if tiled:
            shape = (*shape[:place], total * shape[place], *shape[place + 1 :])
        else:
            shape = (*shape[:place], total, *shape[place:])
        return reshape(value, shape)

    return _each("all_gather", x, gathered)


def ppermute(x: Any, axis_name: str, perm: Sequence[tuple[int, int]]) -> Any:
    """Example `end` gets the x of example `start` for each (start, end); else zeros."""
    size = _size("ppermute", axis_name)
    pairs = tuple((int(start), int(end)) for start, end in perm)
    for what, places in zip(("start", "end"), zip(*pairs, strict=True), strict=False):
        if len(set(places)) < len(places) or not all(0 <= p < size for p in places):
            raise ArgumentError(
                f"ppermute: {what}s {places} of a batch of {size}; takes each of "
                f"0..{size - 1} once at most"
            )
    op = PPermute(axis_name, size, pairs)
    return _each("ppermute", x, lambda value: op.bind(value))


def axis_index(axis_name: AxisNames) -> Any:
    """The number of the example in its batch, an i32 scalar."""
    names = _names("axis_index", axis_name)
    index: Any = None
    for name in names:
        size = _size("axis_index", name)
        own = AxisIndex(name, size).bind()
        index = own if index is None else index * size + own
    return index
