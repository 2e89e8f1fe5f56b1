"""Sorting. Elements keep every bit."""

from __future__ import annotations

import numpy as np

from poot.core.ops.sort import ArgTopK, Sort, TopK
from poot.core.oracle.order import in_order
from poot.core.oracle.table import Arithmetic, Array, impl


def _ranks(x: Array, descending: bool, zeros_are_equal: bool) -> Array:
    """Integers in the order that the elements are to have."""
    if x.dtype == np.bool_:
        x = x.astype(np.uint8)
    ranks = in_order(x, nan_above=True)
    if zeros_are_equal and ranks.dtype != x.dtype:
        # -0 is -1 among the integers that stand for floats.
        ranks = np.where(ranks == -1, 0, ranks)
    return ~ranks if descending else ranks


@impl.define(Sort)
def _sort(op: Sort, _: Arithmetic, *operands: Array) -> tuple[Array, ...]:
    keys = [_ranks(x, op.descending, True) for x in operands[: op.num_keys]]
    # NumPy's lexsort is stable; its last key is the first to decide.
    order = np.lexsort(keys[::-1], op.axis)
    return tuple(np.take_along_axis(x, order, op.axis) for x in operands)


def _largest(x: Array, k: int) -> Array:
    return np.argsort(_ranks(x, True, False), -1, "stable")[..., :k]


@impl.define(TopK)
def _top_k(op: TopK, _: Arithmetic, x: Array) -> tuple[Array, Array]:
    places = _largest(x, op.k)
    return np.take_along_axis(x, places, -1), places.astype(np.int32)


@impl.define(ArgTopK)
def _arg_top_k(op: ArgTopK, _: Arithmetic, x: Array) -> Array:
    return _largest(x, op.k).astype(np.int32)
