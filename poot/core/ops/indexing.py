"""Primitives that read at positions which are data."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import ClassVar

from poot.core.dtypes import Scalar
from poot.core.errors import DTypeError, ShapeError
from poot.core.op import Op, register
from poot.core.ops.index_dims import GatherDims
from poot.core.ops.shape import require_axis
from poot.core.types import TensorType


class GatherMode(enum.Enum):
    """What a gather does with an index outside 0..size-1."""

    CLIP = "clip"  # takes the nearest element
    # Gives NaN (floats), the lowest value (signed), the highest (unsigned), True.
    FILL = "fill"
    PROMISE = "promise"  # the caller promises there is none; read as clip all the same


@register
@dataclass(frozen=True, slots=True)
class Gather(Op):
    """`src` at the indices `idx` along `axis`.

    The shape is src.shape[:axis] + idx.shape + src.shape[axis+1:]. Negative indices do
    not wrap. FILL gives True for bool.
    """

    axis: int
    mode: GatherMode = GatherMode.CLIP
    name: ClassVar[str] = "gather"

    def infer(self, src: TensorType, idx: TensorType) -> TensorType:
        require_axis("gather", self.axis, src.ndim)
        if not idx.dtype.is_integer:
            raise DTypeError(f"gather: the indices are {idx.dtype}, takes integers")
        if self.mode is not GatherMode.FILL and src.shape[self.axis] == 0 and idx.size:
            raise ShapeError(
                f"gather: axis {self.axis} has no element to take; use mode fill"
            )
        before, after = src.shape[: self.axis], src.shape[self.axis + 1 :]
        return TensorType(before + idx.shape + after, src.dtype)


@register
@dataclass(frozen=True, slots=True)
class DynamicSlice(Op):
    """A block of static `sizes` at scalar integer starts, one an axis.

    Starts are clamped so that the block lies inside the operand.
    """

    sizes: tuple[int, ...]
    name: ClassVar[str] = "dynamic_slice"

    def infer(self, x: TensorType, *starts: TensorType) -> TensorType:
        if len(self.sizes) != x.ndim or len(starts) != x.ndim:
            raise ShapeError(
                f"dynamic_slice: {len(self.sizes)} sizes and {len(starts)} starts "
                f"for {x.ndim} axes; takes one of each an axis"
            )
        for start in starts:
            if start.shape or not start.dtype.is_integer:
                raise DTypeError(f"dynamic_slice: start {start}, takes integer scalars")
        for size, limit in zip(self.sizes, x.shape, strict=True):
            if not 0 <= size <= limit:
                raise ShapeError(f"dynamic_slice: size {size} is not in 0..{limit}")
        return TensorType(self.sizes, x.dtype)


@register
@dataclass(frozen=True, slots=True)
class GeneralGather(Op):
    """Windows of `slice_sizes` out of an operand, one at each index vector.

    Operands: the operand and the indices; `dims` says what their axes are. Negative
    indices do not wrap. CLIP moves a window inside; FILL gives `fill`, or what `Gather`
    does, for all of a window that does not lie wholly inside.
    """

    dims: GatherDims
    slice_sizes: tuple[int, ...]
    mode: GatherMode = GatherMode.CLIP
    fill: Scalar | None = None
    name: ClassVar[str] = "general_gather"

    def infer(self, operand: TensorType, indices: TensorType) -> TensorType:
        dims, where = self.dims, self.name
        dims.check(where, operand, indices)
        self._check_slice(operand)
        if self.fill is not None and self.fill.dtype is not operand.dtype:
            raise DTypeError(
                f"{where}: the fill value {self.fill} is not {operand.dtype}"
            )
        batch = list(indices.shape[:-1])
        window = [self.slice_sizes[axis] for axis in dims.window_dims(operand.ndim)]
        rank = len(batch) + len(window)
        shape = tuple(
            window.pop(0) if axis in dims.offset_dims else batch.pop(0)
            for axis in range(rank)
        )
        result = TensorType(shape, operand.dtype)
        if self.mode is not GatherMode.FILL and result.size and not operand.size:
            raise ShapeError(
                f"{where}: {operand} has no element to take; use mode fill"
            )
        return result

    def _check_slice(self, operand: TensorType) -> None:
        sizes = self.slice_sizes
        if len(sizes) != operand.ndim:
            raise ShapeError(
                f"{self.name}: {len(sizes)} sizes of a window for {operand.ndim} axes; "
                "takes one an axis"
            )
        dims = self.dims
        gone = {*dims.collapsed_slice_dims, *dims.operand_batching_dims}
        for axis, (size, whole) in enumerate(zip(sizes, operand.shape, strict=True)):
            if axis in gone and size != 1:
                raise ShapeError(
                    f"{self.name}: a window has size {size} along axis {axis}, which "
                    "is dropped; takes 1"
                )
            if axis not in gone and not 0 <= size <= whole:
                raise ShapeError(
                    f"{self.name}: a window has size {size} along axis {axis} of "
                    f"{operand}; takes 0..{whole}"
                )
