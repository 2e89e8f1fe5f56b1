"""Sorts and the largest elements, under lax's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from poot.core.errors import ArgumentError
from poot.core.ops.sort import Sort, TopK
from poot.interpreters.methods import Value
from poot.interpreters.promotion import as_value, result_like
from poot.interpreters.shaping import canonical_axis, moveaxis


def sort(
    operand: Any, dimension: int = -1, is_stable: bool = True, num_keys: int = 1
) -> Any:
    """The operand, or several as a tuple, in the order of the first `num_keys`.

    All are of one shape. Every sort is stable, NaN is above all numbers, and -0 equals
    +0.
    """
    if not isinstance(operand, Sequence):
        return _sort([operand], dimension, num_keys)[0]
    if not operand:
        raise ArgumentError("lax.sort: given no operand, takes one or more")
    return _sort(operand, dimension, num_keys)


def _sort(operands: Sequence[Any], dimension: int, num_keys: int) -> tuple[Value, ...]:
    values = [as_value(x, "lax.sort") for x in operands]
    axis = canonical_axis(dimension, values[0].ndim, "lax.sort")
    results = Sort(axis, num_keys).bind(*values)
    pairs = zip(values, results, strict=True)
    return tuple(result_like(value, result) for value, result in pairs)


def sort_key_val(
    keys: Any, values: Any, dimension: int = -1, is_stable: bool = True
) -> tuple[Value, Value]:
    """The keys in order, and the values in the order of the keys."""
    ordered, moved = _sort([keys, values], dimension, 1)
    return ordered, moved


def top_k(operand: Any, k: int, *, axis: int = -1) -> tuple[Value, Value]:
    """The k largest elements of an axis, the largest first, and their indices (i32).

    Of equal elements the one with the lowest index comes first. +0 is above -0, and
    NaN above every number.
    """
    x = as_value(operand, "lax.top_k")
    place = canonical_axis(axis, x.ndim, "lax.top_k")
    values, indices = TopK(k).bind(moveaxis(x, place, -1))
    return (
        moveaxis(result_like(x, values), -1, place),
        moveaxis(indices, -1, place),
    )
