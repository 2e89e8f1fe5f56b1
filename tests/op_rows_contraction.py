"""The rows of the primitives that sum products, but for MatMul."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from poot.core import dtypes
from poot.core.dtypes import DType
from poot.core.ops.conv import Conv
from poot.core.ops.matmul import DotGeneral, IndexedMatMul
from poot.core.types import TensorType
from tests.numerics import Array
from tests.op_row import FLOATS, INTEGERS, Case, OpRow
from tests.op_rows_tensor import as_elements

NUMBERS = FLOATS + INTEGERS
WIDER = {
    "f16": dtypes.float32,
    "bf16": dtypes.float32,
    "f32": dtypes.float64,
    "i8": dtypes.int32,
    "u8": dtypes.uint32,
    "i16": dtypes.int64,
}
_SMALL: dict[str, Any] = {"anywhere": False, "whole": True}


def _exact(x: Array) -> Array:
    """Elements as Python's integers, which the whole numbers of the tests are."""
    wide = x.astype(np.float64) if dtypes.as_dtype(x.dtype).is_float else x
    flat = np.array([int(element) for element in wide.ravel().tolist()], object)
    return flat.reshape(x.shape)


def _rounded(sums: Array, given: Array, out: DType | None) -> Array:
    dtype = dtypes.as_dtype(given.dtype) if out is None else out
    return as_elements(sums.ravel().tolist(), dtype).reshape(sums.shape)


# --- dot_general ------------------------------------------------------------


def _dot_cases(dtype: DType) -> list[Case]:
    dots = (
        (DotGeneral((1,), (0,)), (3, 5), (5, 2)),
        (DotGeneral((0,), (1,)), (33, 17), (65, 33)),
        (DotGeneral((), ()), (3,), (2, 5)),
        (DotGeneral((), ()), (), (4,)),
        (DotGeneral((0,), (0,)), (70,), (70,)),
        (DotGeneral((2, 0), (1, 2)), (3, 4, 5), (7, 5, 3)),
        (DotGeneral((3,), (1,), (2, 0), (0, 3)), (2, 9, 3, 8), (3, 8, 4, 2)),
        (DotGeneral((1, 3), (3, 0), (2,), (1,)), (2, 4, 3, 5), (5, 3, 6, 4)),
        (DotGeneral((), (), (0,), (1,)), (4,), (3, 4)),
        (DotGeneral((1,), (0,)), (3, 0), (0, 2)),
        (DotGeneral((1,), (1,), (0,), (0,)), (0, 3, 2), (0, 3)),
    )
    cases = [
        Case(op, (TensorType(a, dtype), TensorType(b, dtype))) for op, a, b in dots
    ]
    if dtype.name in WIDER:
        wide = DotGeneral((2,), (1,), (0,), (0,), WIDER[dtype.name])
        types = (TensorType((2, 15, 16), dtype), TensorType((2, 16, 17), dtype))
        cases.append(Case(wide, types))
    return cases


def _dot(op: DotGeneral, a: Array, b: Array) -> Array:
    """Element by element of the result, over all elements of the contracted axes."""
    left = np.moveaxis(_exact(a), op.lhs_batch, range(len(op.lhs_batch)))
    right = np.moveaxis(_exact(b), op.rhs_batch, range(len(op.rhs_batch)))
    batch = left.shape[: len(op.lhs_batch)]
    axes = [
        [axis - sum(taken < axis for taken in batched) for axis in contracted]
        for contracted, batched in (
            (op.lhs_contracting, op.lhs_batch),
            (op.rhs_contracting, op.rhs_batch),
        )
    ]
    shape = op.infer(*(TensorType(x.shape, dtypes.as_dtype(x.dtype)) for x in (a, b)))
    sums = np.zeros(shape.shape, object)
    for place in np.ndindex(batch):
        sums[place] = np.tensordot(left[place], right[place], axes)
    return _rounded(sums, a, op.out)


# --- indexed_matmul ---------------------------------------------------------


def _indexed_cases(dtype: DType) -> list[Case]:
    sizes = (
        (1, 1, 1, 1, dtypes.int32),
        (5, 7, 3, 4, dtypes.int8),
        (17, 70, 4, 33, dtypes.uint32),
        (9, 66, 3, 64, dtypes.int64),
        (3, 0, 2, 5, dtypes.uint8),
        (0, 4, 2, 5, dtypes.int32),
    )
    cases = []
    for m, k, e, n, index in sizes:
        types = (
            TensorType((m, k), dtype),
            TensorType((e, k, n), dtype),
            TensorType((m,), index),
        )
        cases.append(Case(IndexedMatMul(), types))
    if dtype.name in WIDER:
        cases.append(Case(IndexedMatMul(WIDER[dtype.name]), cases[1].types))
    return cases


def _indexed(op: IndexedMatMul, x: Array, w: Array, idx: Array) -> Array:
    left, matrices = _exact(x), _exact(w)
    sums = np.zeros((x.shape[0], w.shape[2]), object)
    for row, index in enumerate(idx.tolist()):
        matrix = matrices[min(max(index, 0), w.shape[0] - 1)]
        for column in range(w.shape[2]):
            pairs = zip(left[row], matrix[:, column], strict=True)
            sums[row, column] = sum(a * b for a, b in pairs)
    return _rounded(sums, x, op.out)


# --- conv -------------------------------------------------------------------

_PLAIN = Conv((1,), ((0, 0),), (1,), (1,))
_ALL = Conv((2, 1), ((1, 2), (-1, 3)), (1, 2), (2, 1))


def _conv_cases(dtype: DType) -> list[Case]:
    convs = (
        (_PLAIN, (1, 1, 1), (1, 1, 1)),
        (_PLAIN, (2, 3, 9), (4, 3, 3)),
        (_ALL, (2, 3, 6, 5), (5, 3, 2, 3)),
        (Conv((1, 2), ((1, 1), (0, 1)), (1, 1), (1, 1), 2), (2, 4, 5, 6), (6, 2, 3, 2)),
        (Conv((1,), ((1, 1),), (1,), (1,), 5), (2, 5, 17), (5, 1, 3)),
        (Conv((1,), ((2, 0),), (1,), (1,), 1, 3), (6, 2, 5), (9, 2, 4)),
        (
            Conv((1, 2, 1), ((0, 1), (1, 0), (1, 1)), (1, 1, 2), (1, 2, 1)),
            (1, 2, 4, 5, 3),
            (3, 2, 2, 2, 3),
        ),
        (Conv((), (), (), ()), (3, 4), (2, 4)),
        (_PLAIN, (2, 3, 2), (4, 3, 3)),
        (Conv((1,), ((2, 2),), (3,), (1,)), (2, 3, 0), (4, 3, 2)),
        (_PLAIN, (2, 0, 4), (3, 0, 2)),
        (_PLAIN, (0, 3, 4), (2, 3, 2)),
    )
    cases = [
        Case(op, (TensorType(x, dtype), TensorType(w, dtype))) for op, x, w in convs
    ]
    if dtype.name in WIDER:
        wide = Conv((1,), ((1, 1),), (1,), (1,), out=WIDER[dtype.name])
        types = (TensorType((2, 3, 8), dtype), TensorType((5, 3, 3), dtype))
        cases.append(Case(wide, types))
    return cases


def _conv(op: Conv, x: Array, w: Array) -> Array:
    """By the definition: a place of a window is an element, a hole or outside."""
    shape = op.infer(
        *(TensorType(v.shape, dtypes.as_dtype(v.dtype)) for v in (x, w))
    ).shape
    images, weights = _exact(x), _exact(w)
    sums = np.zeros(shape, object)
    window = list(np.ndindex(w.shape[2:]))
    for image, made, *place in np.ndindex(shape):
        group = made // (shape[1] // (op.feature_group_count * op.batch_group_count))
        first = image, group * w.shape[1]
        if op.batch_group_count > 1:
            first = group * shape[0] + image, 0
        for taken, within in itertools.product(range(w.shape[1]), window):
            at = _element(op, x.shape[2:], place, within)
            if at is not None:
                a = images[(first[0], first[1] + taken, *at)]
                sums[(image, made, *place)] += a * weights[(made, taken, *within)]
    return _rounded(sums, x, op.out)


def _element(op: Conv, sizes: Any, place: Any, within: Any) -> tuple[int, ...] | None:
    found = []
    for axis, size in enumerate(sizes):
        at = place[axis] * op.strides[axis] + within[axis] * op.rhs_dilation[axis]
        element, hole = divmod(at - op.padding[axis][0], op.lhs_dilation[axis])
        if hole or not 0 <= element < size:
            return None
        found.append(element)
    return tuple(found)


ROWS = [
    OpRow(
        DotGeneral((), ()).key,
        NUMBERS,
        _dot_cases,
        _dot,
        ((-3.0, 3.0),),
        **_SMALL,
    ),
    OpRow(
        IndexedMatMul().key,
        NUMBERS,
        _indexed_cases,
        _indexed,
        ((-3.0, 3.0), (-3.0, 3.0), (-2.0, 6.0)),
        **_SMALL,
    ),
    OpRow(
        _PLAIN.key,
        NUMBERS,
        _conv_cases,
        _conv,
        ((-3.0, 3.0),),
        **_SMALL,
    ),
]
