"""The rows of the primitives that bring elements into order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from poot.core import dtypes
from poot.core.dtypes import DType
from poot.core.ops.sort import ArgTopK, Sort, TopK
from poot.core.types import TensorType
from tests.numerics import Array
from tests.op_row import BOOL, FLOATS, INTEGERS, Case, OpRow

ORDERED = (*BOOL, *INTEGERS, *FLOATS)
# Few values, so that many are equal.
_FEW: dict[str, Any] = {"domains": ((-3.0, 3.0),), "whole": True}


def _sort_cases(dtype: DType) -> list[Case]:
    key = TensorType
    pairs = (
        (Sort(0), (key((17,), dtype),)),
        (Sort(1, descending=True), (key((3, 33), dtype),)),
        (Sort(0), (key((40, 3), dtype),)),
        (
            Sort(1, 1),
            (key((2, 7, 3), dtype), key((2, 7, 3), dtypes.int32)),
        ),
        (
            Sort(0, 2, True),
            (
                key((65,), dtypes.int8),
                key((65,), dtype),
                key((65,), dtypes.float8_e4m3fn),
            ),
        ),
        (Sort(1, 2), (key((2, 2100), dtypes.bool_), key((2, 2100), dtype))),
        (Sort(0), (key((1,), dtype),)),
        (Sort(0), (key((0,), dtype),)),
        (Sort(0), (key((5, 0), dtype), key((5, 0), dtype))),
    )
    return [Case(op, types) for op, types in pairs]


def _python(x: Array) -> Any:
    """The elements as Python's numbers, row by row of the last axis."""
    wide = x.astype(np.float64) if dtypes.as_dtype(x.dtype).is_float else x
    return wide.reshape(-1, x.shape[-1]).tolist()


def _sort(op: Sort, *operands: Array) -> tuple[Array, ...]:
    """By Python's stable sort, in which -0 equals 0; NaN by a key of its own."""
    moved = [np.moveaxis(x, op.axis, -1) for x in operands]
    if not moved[0].size:
        return operands
    keys = [_python(x) for x in moved[: op.num_keys]]
    orders = []
    for row in range(len(keys[0])):
        elements = list(zip(*(key[row] for key in keys), strict=True))

        def rank(place: int, elements: Any = elements) -> Any:
            return [(e != e, 0 if e != e else e) for e in elements[place]]

        orders.append(sorted(range(len(elements)), key=rank, reverse=op.descending))
    order = np.array(orders).reshape(moved[0].shape)
    taken = [np.take_along_axis(x, order, -1) for x in moved]
    return tuple(np.moveaxis(x, -1, op.axis) for x in taken)


def _top_k_cases(op: Any) -> Any:
    def cases(dtype: DType) -> list[Case]:
        shapes = (
            (5, (17,)),
            (1, (3, 33)),
            (4, (2, 3, 4)),
            (7, (2, 2100)),
            (300, (1, 2100)),
            (0, (3, 5)),
            (2, (0, 5)),
            (0, (2, 0)),
        )
        return [Case(op(k), (TensorType(shape, dtype),)) for k, shape in shapes]

    return cases


def _places(k: int, x: Array) -> Array:
    if not x.size or not k:
        return np.zeros((*x.shape[:-1], k), np.int32)
    orders = []
    for row in _python(x):

        def rank(place: int, row: Any = row) -> Any:
            e = row[place]
            return (True, 0, 0) if e != e else (False, e, math.copysign(1, e))

        orders.append(sorted(range(len(row)), key=rank, reverse=True)[:k])
    return np.array(orders, np.int32).reshape(*x.shape[:-1], k)


def _top_k(op: TopK, x: Array) -> tuple[Array, Array]:
    places = _places(op.k, x)
    return np.take_along_axis(x, places, -1), places


ROWS = [
    OpRow(Sort(0).key, ORDERED, _sort_cases, _sort, **_FEW),
    OpRow(
        TopK(1).key,
        ORDERED,
        _top_k_cases(TopK),
        _top_k,
        **_FEW,
    ),
    OpRow(
        ArgTopK(1).key,
        ORDERED,
        _top_k_cases(ArgTopK),
        lambda op, x: _places(op.k, x),
        **_FEW,
    ),
]
