"""What the axes of a gather's or scatter's operands stand for, as lax has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from poot.core.errors import DTypeError, ShapeError
from poot.core.op import Parameters
from poot.core.types import TensorType


@dataclass(frozen=True, slots=True)
class GatherDims(Parameters):
    """The axes of a gather.

    The last axis of the indices holds index vectors. Component i of one says where its
    window starts along axis start_index_map[i] of the operand. Axes `offset_dims` of
    the result run over the window, without its axes `collapsed_slice_dims` and
    `operand_batching_dims`, which have size 1; the others run over the index vectors.
    Along operand_batching_dims[i] a window stands at the place that its index vector
    has along axis start_indices_batching_dims[i] of the indices.
    """

    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()

    def window_dims(self, ndim: int) -> tuple[int, ...]:
        """The axes of an operand of `ndim` axes that `offset_dims` run over."""
        gone = {*self.collapsed_slice_dims, *self.operand_batching_dims}
        return tuple(axis for axis in range(ndim) if axis not in gone)

    def batch_dims(self, ndim: int) -> tuple[int, ...]:
        """The axes of a result of `ndim` axes that run over the index vectors."""
        return tuple(axis for axis in range(ndim) if axis not in self.offset_dims)

    @property
    def scatter(self) -> ScatterDims:
        """The axes of the scatter that writes where this gather reads."""
        return ScatterDims(
            self.offset_dims,
            self.collapsed_slice_dims,
            self.start_index_map,
            self.operand_batching_dims,
            self.start_indices_batching_dims,
        )

    def check(self, where: str, operand: TensorType, indices: TensorType) -> None:
        """Raise ShapeError or DTypeError unless these are dims of such operands."""
        if not indices.dtype.is_integer:
            raise DTypeError(
                f"{where}: the indices are {indices.dtype}, takes integers"
            )
        if not indices.shape or indices.shape[-1] != len(self.start_index_map):
            raise ShapeError(
                f"{where}: the last axis of the indices {indices} has a place for each "
                f"of the axes {self.start_index_map} that they point into"
            )
        ndim, rank = operand.ndim, indices.ndim - 1
        result = len(self.offset_dims) + rank
        gone = (*self.collapsed_slice_dims, *self.operand_batching_dims)
        _require_axes(where, "window axes", self.offset_dims, result)
        _require_axes(where, "dropped axes", sorted(gone), ndim)
        _require_axes(where, "dropped axes", self.collapsed_slice_dims, ndim)
        _require_axes(where, "batching axes", self.operand_batching_dims, ndim)
        both = (*self.start_index_map, *self.operand_batching_dims)
        _require_axes(where, "indexed and batching axes", sorted(both), ndim)
        batching = self.start_indices_batching_dims
        _require_axes(where, "batching axes of the indices", sorted(batching), rank)
        if len(self.offset_dims) != ndim - len(gone):
            raise ShapeError(
                f"{where}: {len(self.offset_dims)} window axes for an operand of "
                f"{ndim} axes, {len(gone)} of them dropped; takes one of each other"
            )
        self._check_batching(where, operand, indices)

    def _check_batching(
        self, where: str, operand: TensorType, indices: TensorType
    ) -> None:
        one, other = self.operand_batching_dims, self.start_indices_batching_dims
        sizes = [operand.shape[axis] for axis in one]
        wanted = [indices.shape[axis] for axis in other]
        if sizes != wanted:
            raise ShapeError(
                f"{where}: batching axes {one} of {operand} and {other} of the indices "
                f"{indices} have sizes {sizes} and {wanted}; takes equal ones"
            )


@dataclass(frozen=True, slots=True)
class ScatterDims(Parameters):
    """The axes of a scatter: those of the gather that reads where it writes.

    `update_window_dims` are axes of the updates, as `offset_dims` of a gather's result.
    """

    update_window_dims: tuple[int, ...]
    inserted_window_dims: tuple[int, ...]
    scatter_dims_to_operand_dims: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    scatter_indices_batching_dims: tuple[int, ...] = ()

    @property
    def gather(self) -> GatherDims:
        return GatherDims(
            self.update_window_dims,
            self.inserted_window_dims,
            self.scatter_dims_to_operand_dims,
            self.operand_batching_dims,
            self.scatter_indices_batching_dims,
        )

    def window(self, ndim: int, updates: Sequence[int]) -> tuple[int, ...]:
        """The sizes of a window along all axes of an operand of `ndim` axes."""
        sizes = [1] * ndim
        axes = self.gather.window_dims(ndim)
        for axis, place in zip(axes, self.update_window_dims, strict=True):
            sizes[axis] = updates[place]
        return tuple(sizes)


def _require_axes(where: str, what: str, axes: Sequence[int], ndim: int) -> None:
    """Raise ShapeError unless these are axes of `ndim`, in order, none twice."""
    if list(axes) != sorted({axis for axis in axes if 0 <= axis < ndim}):
        raise ShapeError(
            f"{where}: the {what} {tuple(axes)} are no axes of {ndim}, in order and "
            "none twice"
        )
