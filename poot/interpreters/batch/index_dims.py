"""The axes of a gather or scatter with those of the batch.

Axes in a `GatherDims` of an example are the example's; `place` is where the batch
stands in the result of the gather, or in the updates of the scatter.
"""

from __future__ import annotations

from poot.core.ops.index_dims import GatherDims
from poot.interpreters.batch.table import Axis, all_lifted


def windowed(dims: GatherDims, operand_axis: int, place: int) -> GatherDims:
    """The batch as an axis of the windows, which span it: all have the same indices."""
    return GatherDims(
        tuple(sorted((place, *all_lifted(dims.offset_dims, place)))),
        all_lifted(dims.collapsed_slice_dims, operand_axis),
        all_lifted(dims.start_index_map, operand_axis),
        all_lifted(dims.operand_batching_dims, operand_axis),
        dims.start_indices_batching_dims,
    )


def window_place(dims: GatherDims, ndim: int, operand_axis: int) -> int:
    """The foremost place of a batch that windows span, of an operand of `ndim` axes.

    The axes of a window are in the same order in the operand and in the result.
    """
    before = windows_before(dims, ndim, operand_axis)
    return dims.offset_dims[before - 1] + 1 if before else 0


def windows_before(dims: GatherDims, ndim: int, operand_axis: int) -> int:
    """How many axes of a window stand before the batch in the operand."""
    return sum(axis < operand_axis for axis in dims.window_dims(ndim))


def paired(
    dims: GatherDims, operand_axis: Axis, indices_axis: int, place: int
) -> GatherDims:
    """The batch as an axis of the indices, and of the operand if that has it."""
    pairs = list(
        zip(
            all_lifted(dims.operand_batching_dims, operand_axis),
            all_lifted(dims.start_indices_batching_dims, indices_axis),
            strict=True,
        )
    )
    if operand_axis is not None:
        pairs = sorted([*pairs, (operand_axis, indices_axis)])
    return GatherDims(
        all_lifted(dims.offset_dims, place),
        all_lifted(dims.collapsed_slice_dims, operand_axis),
        all_lifted(dims.start_index_map, operand_axis),
        tuple(one for one, _ in pairs),
        tuple(other for _, other in pairs),
    )


def vector_place(dims: GatherDims, ndim: int, indices_axis: int) -> int:
    """The foremost place of the batch of the indices, of a result of `ndim` axes.

    The axes of the indices are in the same order in the result.
    """
    axes = dims.batch_dims(ndim)
    return axes[indices_axis - 1] + 1 if indices_axis else 0
