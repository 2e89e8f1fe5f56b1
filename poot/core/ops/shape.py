"""Shape primitives: they move elements and compute none."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from poot.core.dtypes import DType
from poot.core.errors import DTypeError, ShapeError
from poot.core.op import Op, register
from poot.core.ops.elementwise import broadcast_shapes, require_same_dtype
from poot.core.types import TensorType


def require_axis(where: str, axis: int, ndim: int) -> None:
    """Raise ShapeError unless 0 <= axis < ndim."""
    if not 0 <= axis < ndim:
        raise ShapeError(f"{where}: axis {axis} is not in 0..{ndim - 1}")


@register
@dataclass(frozen=True, slots=True)
class Broadcast(Op):
    """Repeat along new leading axes and axes of size 1, to `shape`."""

    shape: tuple[int, ...]
    name: ClassVar[str] = "broadcast"

    def infer(self, x: TensorType) -> TensorType:
        result = TensorType(self.shape, x.dtype)
        if broadcast_shapes("broadcast", x.shape, self.shape) != self.shape:
            raise ShapeError(f"broadcast: {x.shape} does not expand to {self.shape}")
        return result


@register
@dataclass(frozen=True, slots=True)
class Reshape(Op):
    """Give the elements, in row-major order, another shape."""

    shape: tuple[int, ...]
    name: ClassVar[str] = "reshape"

    def infer(self, x: TensorType) -> TensorType:
        result = TensorType(self.shape, x.dtype)
        if math.prod(self.shape) != x.size:
            raise ShapeError(
                f"reshape: {x.shape} has {x.size} elements, "
                f"{self.shape} {math.prod(self.shape)}; they must be equal"
            )
        return result


@register
@dataclass(frozen=True, slots=True)
class Transpose(Op):
    """Reorder axes: output axis i is input axis `perm[i]`."""

    perm: tuple[int, ...]
    name: ClassVar[str] = "transpose"

    def infer(self, x: TensorType) -> TensorType:
        if sorted(self.perm) != list(range(x.ndim)):
            raise ShapeError(
                f"transpose: {self.perm} is no permutation of {x.ndim} axes"
            )
        return TensorType(tuple(x.shape[i] for i in self.perm), x.dtype)


@register
@dataclass(frozen=True, slots=True)
class Slice(Op):
    """Elements start, start + stride, … before `end` along one axis."""

    axis: int
    start: int
    end: int
    stride: int = 1
    name: ClassVar[str] = "slice"

    def infer(self, x: TensorType) -> TensorType:
        require_axis("slice", self.axis, x.ndim)
        size = x.shape[self.axis]
        if not 0 <= self.start <= self.end <= size or self.stride < 1:
            raise ShapeError(
                f"slice: {self.start}:{self.end}:{self.stride} does not fit axis "
                f"{self.axis} of size {size}; needs 0 <= start <= end <= size, "
                "stride >= 1"
            )
        taken = -(-(self.end - self.start) // self.stride)
        shape = (*x.shape[: self.axis], taken, *x.shape[self.axis + 1 :])
        return TensorType(shape, x.dtype)


@register
@dataclass(frozen=True, slots=True)
class Concat(Op):
    """Join along an axis."""

    axis: int
    name: ClassVar[str] = "concat"

    def infer(self, *xs: TensorType) -> TensorType:
        if not xs:
            raise ShapeError("concat: needs at least one operand")
        first = xs[0]
        require_axis("concat", self.axis, first.ndim)
        require_same_dtype("concat", *xs)

        def rest(x: TensorType) -> tuple[int, ...]:
            return (*x.shape[: self.axis], *x.shape[self.axis + 1 :])

        if any(x.ndim != first.ndim or rest(x) != rest(first) for x in xs):
            given = ", ".join(str(x.shape) for x in xs)
            raise ShapeError(
                f"concat: shapes {given} differ in axes other than {self.axis}"
            )
        total = sum(x.shape[self.axis] for x in xs)
        shape = (*first.shape[: self.axis], total, *first.shape[self.axis + 1 :])
        return TensorType(shape, first.dtype)


@register
@dataclass(frozen=True, slots=True)
class Pad(Op):
    """Pad each axis by (low, high, interior) copies of a scalar operand.

    Negative low or high remove elements; interior copies stand between neighbours.
    """

    config: tuple[tuple[int, int, int], ...]
    name: ClassVar[str] = "pad"

    def infer(self, x: TensorType, value: TensorType) -> TensorType:
        require_same_dtype("pad", x, value)
        if value.shape:
            raise ShapeError(f"pad: the value has shape {value.shape}, takes a scalar")
        if len(self.config) != x.ndim:
            raise ShapeError(
                f"pad: {len(self.config)} axes configured, the operand has {x.ndim}"
            )
        shape = []
        for size, (low, high, interior) in zip(x.shape, self.config, strict=True):
            if interior < 0:
                raise ShapeError(f"pad: interior padding {interior} is negative")
            padded = size + max(size - 1, 0) * interior + low + high
            if padded < 0:
                raise ShapeError(
                    f"pad: ({low}, {high}, {interior}) makes size {size} negative"
                )
            shape.append(padded)
        return TensorType(tuple(shape), x.dtype)


@register
@dataclass(frozen=True, slots=True)
class Reverse(Op):
    """Turn the order of elements along `axes`."""

    axes: tuple[int, ...]
    name: ClassVar[str] = "reverse"

    def infer(self, x: TensorType) -> TensorType:
        for axis in self.axes:
            require_axis("reverse", axis, x.ndim)
        if len(set(self.axes)) != len(self.axes):
            raise ShapeError(f"reverse: axes {self.axes} repeat")
        return x


@register
@dataclass(frozen=True, slots=True)
class Iota(Op):
    """The index along one axis, as numbers."""

    dtype: DType
    shape: tuple[int, ...]
    axis: int
    name: ClassVar[str] = "iota"

    def infer(self) -> TensorType:
        require_axis("iota", self.axis, len(self.shape))
        if not (self.dtype.is_integer or self.dtype.is_float):
            raise DTypeError(f"iota: no {self.dtype} counts; takes integers or floats")
        return TensorType(self.shape, self.dtype)
