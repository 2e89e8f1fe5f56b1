"""The rows of the primitives that write at positions which are data.

The references go element by element, in Python's integers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from poot.core import dtypes
from poot.core.dtypes import DType
from poot.core.ops.index_dims import GatherDims, ScatterDims
from poot.core.ops.scatter import (
    DynamicUpdateSlice,
    Scatter,
    ScatterMode,
    ScatterOp,
    ScatterUpdate,
)
from poot.core.types import TensorType
from tests import op_references as ref
from tests.numerics import Array
from tests.op_row import BOOL, FLOATS, INTEGERS, MOVED, Case, OpRow, on_64_bits
from tests.op_rows_gather import PLACES, result_shape, windows
from tests.op_rows_tensor import as_elements

_S = ScatterOp


def _scatter_cases(member: ScatterOp) -> Callable[[DType], list[Case]]:
    def cases(dtype: DType) -> list[Case]:
        applied = []
        for number, places in enumerate(PLACES):
            shape, indices, index_dtype, dims, _ = places
            mode = (ScatterMode.DROP, ScatterMode.CLIP)[number % 2]
            types = shape, indices, result_shape(places)
            applied.append((mode, dims, types, index_dtype))
        rows = GatherDims((1,), (0,), (0,))
        for count, width in ((300, 1), (70, 5), (130, 16)):
            types = (7, width), (count, 1), (count, width)
            applied.append((ScatterMode.DROP, rows, types, dtypes.int32))
        return [
            Case(
                Scatter(member, dims.scatter, mode),
                (
                    TensorType(operand, dtype),
                    TensorType(indices, index_dtype),
                    TensorType(updates, dtype),
                ),
            )
            for mode, dims, (operand, indices, updates), index_dtype in applied
        ]

    return cases


def _scatter(step: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def reference(op: Scatter, operand: Array, indices: Array, updates: Array) -> Array:
        dims, dtype = op.dims.gather, dtypes.as_dtype(operand.dtype)
        window = op.dims.window(operand.ndim, updates.shape)
        wide = operand.astype(np.float64) if dtype.is_float else operand
        values = (updates.astype(np.float64) if dtype.is_float else updates).tolist()
        held: dict[tuple[int, ...], Any] = {}
        found = windows(dims, window, operand.shape, updates.shape, indices)
        for place, there, inside in found:
            if inside or op.mode is ScatterMode.CLIP:
                value: Any = values
                for i in place:
                    value = value[i]
                before = held.get(there, wide[there].item())
                held[there] = step(before, value)
        result = operand.copy()
        for there, value in held.items():
            result[there] = as_elements([value], dtype)[0]
        return result

    return reference


def _set(op: Scatter, operand: Array, indices: Array, updates: Array) -> Array:
    result, dims = operand.copy(), op.dims.gather
    window = op.dims.window(operand.ndim, updates.shape)
    found = windows(dims, window, operand.shape, updates.shape, indices)
    for place, there, inside in found:
        if inside or op.mode is ScatterMode.CLIP:
            result[there] = updates[place]
    return result


_AT = ((-100.0, 100.0), (-2.0, 7.0), (-100.0, 100.0))
_SMALL: dict[str, Any] = {"anywhere": False, "whole": True}


def _scatter_row(
    member: ScatterOp,
    taken: tuple[DType, ...],
    reference: Callable[..., Any],
    **rest: Any,
) -> OpRow:
    key = Scatter(member, ScatterDims((), (), ())).key
    cases = _scatter_cases(member)
    return OpRow(key, taken, cases, reference, **rest)


NUMBERS = FLOATS + INTEGERS

SCATTERS = [
    _scatter_row(_S.SET, MOVED, _set, domains=_AT),
    _scatter_row(
        _S.ADD,
        NUMBERS,
        _scatter(lambda a, b: a + b),
        domains=((-8.0, 8.0), (-2.0, 7.0), (-8.0, 8.0)),
        **_SMALL,
    ),
    _scatter_row(
        _S.MUL,
        NUMBERS,
        _scatter(lambda a, b: a * b),
        domains=((1.0, 2.0), (-2.0, 7.0), (-1.0, 1.0)),
        **_SMALL,
    ),
    *(
        _scatter_row(
            member,
            NUMBERS + BOOL,
            _scatter(best),
            domains=_AT,
            needs_int64=on_64_bits,
        )
        for member, best in ((_S.MIN, ref.smallest), (_S.MAX, ref.largest))
    ),
]


# --- blocks and rows --------------------------------------------------------


def _update_slice_cases(dtype: DType) -> list[Case]:
    places = (
        ((7,), (3,), dtypes.int32),
        ((5, 6), (2, 6), dtypes.int64),
        ((5, 6), (0, 2), dtypes.uint8),
        ((4, 3, 5), (1, 2, 5), dtypes.int16),
        ((4, 3, 16), (4, 2, 16), dtypes.int32),
        ((3, 8), (3, 8), dtypes.int32),
        ((3, 9), (3, 4), dtypes.uint32),
        ((), (), dtypes.int32),
    )
    return [
        Case(
            DynamicUpdateSlice(),
            (
                TensorType(shape, dtype),
                TensorType(update, dtype),
                *(TensorType((), start) for _ in shape),
            ),
        )
        for shape, update, start in places
    ]


def _update_slice(
    op: DynamicUpdateSlice, x: Array, update: Array, *starts: Array
) -> Array:
    result = x.copy()
    firsts = [
        min(max(int(start), 0), whole - size)
        for start, whole, size in zip(starts, x.shape, update.shape, strict=True)
    ]
    for place in itertools.product(*map(range, update.shape)):
        there = tuple(f + i for f, i in zip(firsts, place, strict=True))
        result[there] = update[place]
    return result


def _scatter_update_cases(dtype: DType) -> list[Case]:
    shapes = (
        ((6, 4), 3, dtypes.int32),
        ((5, 2, 3), 8, dtypes.int64),
        ((9,), 20, dtypes.uint8),
        ((4, 16), 300, dtypes.int16),
        ((4, 5), 0, dtypes.int32),
        ((4, 0), 2, dtypes.int32),
        ((0, 3), 2, dtypes.int32),
    )
    return [
        Case(
            ScatterUpdate(),
            (
                TensorType(shape, dtype),
                TensorType((count, *shape[1:]), dtype),
                TensorType((count,), slots),
            ),
        )
        for shape, count, slots in shapes
    ]


def _scatter_update(op: ScatterUpdate, base: Array, src: Array, slots: Array) -> Array:
    result = base.copy()
    for row, slot in enumerate(slots.tolist()):
        if 0 <= slot < base.shape[0]:
            result[slot] = src[row]
    return result


WRITES = [
    OpRow(
        DynamicUpdateSlice().key,
        MOVED,
        _update_slice_cases,
        _update_slice,
        ((-100.0, 100.0), (-100.0, 100.0), (-3.0, 9.0)),
    ),
    OpRow(
        ScatterUpdate().key,
        MOVED,
        _scatter_update_cases,
        _scatter_update,
        ((-100.0, 100.0), (-100.0, 100.0), (-2.0, 9.0)),
    ),
]

ROWS = [*SCATTERS, *WRITES]
