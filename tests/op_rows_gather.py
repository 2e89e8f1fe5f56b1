"""The row of the primitive that reads windows at positions which are data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from poot.core import dtypes
from poot.core.dtypes import DType, Scalar
from poot.core.ops.index_dims import GatherDims
from poot.core.ops.indexing import GatherMode, GeneralGather
from poot.core.types import TensorType
from tests import op_references as ref
from tests.numerics import Array
from tests.op_row import MOVED, Case, OpRow

# Operand, indices, dims and window sizes.
Places = tuple[tuple[int, ...], tuple[int, ...], DType, GatherDims, tuple[int, ...]]
PLACES: tuple[Places, ...] = (
    # Rows.
    ((7, 4), (5, 1), dtypes.int32, GatherDims((1,), (0,), (0,)), (1, 4)),
    # Elements, by two components in another order.
    ((4, 6), (3, 2, 2), dtypes.int16, GatherDims((), (0, 1), (1, 0)), (1, 1)),
    # Windows that leave the operand, with their axes around those of the indices.
    ((5, 6, 3), (4, 2), dtypes.int64, GatherDims((0, 2), (2,), (0, 2)), (2, 3, 1)),
    # A window of a part of an axis that no index points into.
    ((6, 5), (3, 1), dtypes.uint8, GatherDims((1,), (0,), (0,)), (1, 3)),
    # Columns.
    ((3, 8), (2, 5, 1), dtypes.uint32, GatherDims((0,), (1,), (1,)), (3, 1)),
    # A batch of rows.
    (
        (3, 7, 2),
        (5, 3, 1),
        dtypes.int8,
        GatherDims((1,), (1,), (1,), (0,), (1,)),
        (1, 1, 2),
    ),
    # One window, without an axis for index vectors.
    ((9,), (1,), dtypes.int32, GatherDims((0,), (), (0,)), (4,)),
    # The whole operand, wherever the indices point.
    ((2, 3), (2, 0), dtypes.int32, GatherDims((1, 2), (), ()), (2, 3)),
    # Nothing.
    ((4, 3), (0, 1), dtypes.int32, GatherDims((1,), (0,), (0,)), (1, 3)),
    ((4, 0), (2, 1), dtypes.int32, GatherDims((1,), (0,), (0,)), (1, 0)),
)


def result_shape(places: Places) -> tuple[int, ...]:
    shape, indices, _, dims, window = places
    batch, kept = list(indices[:-1]), [window[a] for a in dims.window_dims(len(shape))]
    rank = len(batch) + len(kept)
    return tuple((kept if a in dims.offset_dims else batch).pop(0) for a in range(rank))


def windows(
    dims: GatherDims,
    window: Sequence[int],
    operand: tuple[int, ...],
    result: tuple[int, ...],
    indices: Array,
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], bool]]:
    """One after the other, in Python's integers.

    Place in the result, place in the operand, and whether the window is inside.
    """
    kept = dims.window_dims(len(operand))
    for place in np.ndindex(*result):
        batch = tuple(i for a, i in enumerate(place) if a not in dims.offset_dims)
        vector = indices[batch].tolist()
        there, inside = [0] * len(operand), True
        for axis, start in zip(dims.start_index_map, vector, strict=True):
            last = operand[axis] - window[axis]
            inside = inside and 0 <= start <= last
            there[axis] = min(max(start, 0), last)
        for axis, other in zip(
            dims.operand_batching_dims, dims.start_indices_batching_dims, strict=True
        ):
            there[axis] = batch[other]
        for axis, other in zip(kept, dims.offset_dims, strict=True):
            there[axis] += place[other]
        yield place, tuple(there), inside


def _gather_cases(dtype: DType) -> list[Case]:
    seven = Scalar.of(1 if dtype is dtypes.float8_e8m0 else 7, dtype)
    ways = ((GatherMode.FILL, None), (GatherMode.CLIP, None), (GatherMode.FILL, seven))
    return [
        Case(
            GeneralGather(dims, window, mode, fill),
            (TensorType(shape, dtype), TensorType(indices, index_dtype)),
        )
        for mode, fill in ways
        for shape, indices, index_dtype, dims, window in PLACES
    ] + [
        Case(
            GeneralGather(GatherDims((1,), (0,), (0,)), (1, 3), GatherMode.FILL),
            (TensorType((0, 3), dtype), TensorType((2, 1), dtypes.int32)),
        )
    ]


def _gather(op: GeneralGather, operand: Array, indices: Array) -> Array:
    places = (operand.shape, indices.shape, None, op.dims, op.slice_sizes)
    result = np.empty(result_shape(places), operand.dtype)  # type: ignore[arg-type]
    fill = ref.fill_value(operand.dtype) if op.fill is None else op.fill.array
    found = windows(op.dims, op.slice_sizes, operand.shape, result.shape, indices)
    for place, there, inside in found:
        filled = op.mode is GatherMode.FILL and not inside
        result[place] = fill if filled else operand[there]
    return result


ROWS = [
    OpRow(
        GeneralGather(GatherDims((), (), ()), ()).key,
        MOVED,
        _gather_cases,
        _gather,
        ((-100.0, 100.0), (-2.0, 7.0)),
    )
]
