"""Layouts: where the elements of a tensor stand in a buffer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from poot.core.dtypes import DType
from poot.core.op import Op
from poot.core.ops.shape import Broadcast, Reshape, Slice, Transpose
from poot.core.types import TensorType
from poot.lowering.program import BufferRange

# Ops whose results may stand in their operand's buffer.
VIEWS: tuple[type[Op], ...] = (Broadcast, Reshape, Slice, Transpose)

# All buffers are aligned to and padded to a multiple of this.
ALIGNMENT = 16

# What GPUs fetch at once: elements nearer to each other than that are no trouble.
SECTOR_BYTES = 32
# Fewer elements are in the caches at once, whatever the order.
_LEAST_CROSSING = 1 << 16
_LEAST_ALONG = 4


def padded(size_bytes: int) -> int:
    """`size_bytes` rounded up to the padding of all buffers."""
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides, in elements, of a row-major tensor without gaps."""
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


@dataclass(frozen=True, slots=True)
class Layout:
    """Shape, strides and offset in elements: index i stands at offset + i . strides.

    No stride is negative; the stride of a repeated axis is 0.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @classmethod
    def dense(cls, shape: Sequence[int]) -> Layout:
        """Row-major, without gaps, from the start of the buffer."""
        return cls(tuple(shape), dense_strides(shape))

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def is_contiguous(self) -> bool:
        """Row-major without gaps, at any offset."""
        wanted = dense_strides(self.shape)
        return self.size == 0 or all(
            size == 1 or stride == want
            for size, stride, want in zip(self.shape, self.strides, wanted, strict=True)
        )

    @property
    def is_dense(self) -> bool:
        """Row-major without gaps from the start of the buffer."""
        return self.offset == 0 and self.is_contiguous

    @property
    def end(self) -> int:
        """One past the last element that an index reaches."""
        if self.size == 0:
            return self.offset
        steps = zip(self.shape, self.strides, strict=True)
        return self.offset + sum((n - 1) * stride for n, stride in steps) + 1

    def broadcast(self, shape: Sequence[int]) -> Layout:
        """Repeat along new leading axes and axes of size 1."""
        extra = len(shape) - len(self.shape)
        strides = [0] * extra
        for size, stride, wanted in zip(
            self.shape, self.strides, shape[extra:], strict=True
        ):
            strides.append(stride if size == wanted else 0)
        return Layout(tuple(shape), tuple(strides), self.offset)

    def transpose(self, perm: Sequence[int]) -> Layout:
        return Layout(
            tuple(self.shape[i] for i in perm),
            tuple(self.strides[i] for i in perm),
            self.offset,
        )

    def slice(self, axis: int, start: int, end: int, stride: int) -> Layout:
        shape, strides = list(self.shape), list(self.strides)
        shape[axis] = -(-(end - start) // stride)
        offset = self.offset + (start * strides[axis] if shape[axis] else 0)
        strides[axis] *= stride
        return Layout(tuple(shape), tuple(strides), offset)

    def reshape(self, shape: Sequence[int]) -> Layout | None:
        """The layout under another shape; None where no strides express it."""
        shape = tuple(shape)
        if self.size == 0:
            return Layout(shape, dense_strides(shape), self.offset)
        merged = collapse(self.shape, self)[1][0]
        sizes, strides = list(merged.shape), list(merged.strides)
        result: list[int] = []
        # Axes are split from the right: each merged axis must be used up exactly.
        size, stride = 1, 1
        for wanted in reversed(shape):
            if wanted == 1:
                result.append(stride if size > 1 else 0)
                continue
            if size == 1:
                size, stride = sizes.pop(), strides.pop()
            if size % wanted:
                return None
            result.append(stride)
            size, stride = size // wanted, stride * wanted
        return Layout(shape, tuple(reversed(result)), self.offset)

    def __str__(self) -> str:
        sizes = "x".join(map(str, self.shape)) or "scalar"
        if self.is_dense:
            return sizes
        strides = ",".join(map(str, self.strides))
        return f"{sizes} by ({strides}) from {self.offset}"


def collapse(
    shape: Sequence[int], *layouts: Layout
) -> tuple[tuple[int, ...], tuple[Layout, ...]]:
    """Merge neighbouring axes that all layouts of this one shape walk as one.

    Axes of size 1 vanish. An empty result means a single element.
    """
    sizes: list[int] = []
    strides: list[list[int]] = []
    for axis, size in enumerate(shape):
        steps = [layout.strides[axis] for layout in layouts]
        if size == 1:
            continue
        if sizes and strides[-1] == [step * size for step in steps]:
            sizes[-1] *= size
            strides[-1] = steps
        else:
            sizes.append(size)
            strides.append(steps)
    merged = tuple(
        Layout(tuple(sizes), tuple(steps[i] for steps in strides), layout.offset)
        for i, layout in enumerate(layouts)
    )
    return tuple(sizes), merged


def view_layout(op: Op, layout: Layout) -> Layout | None:
    """The layout of a view op's result in its operand's buffer, if there is one."""
    match op:
        case Broadcast(shape):
            return layout.broadcast(shape)
        case Transpose(perm):
            return layout.transpose(perm)
        case Slice(axis, start, end, stride):
            return layout.slice(axis, start, end, stride)
        case Reshape(shape):
            return layout.reshape(shape)
    return None


@dataclass(frozen=True, slots=True)
class View:
    """A tensor in a buffer: the range of the whole buffer, layout and dtype."""

    range: BufferRange
    layout: Layout
    dtype: DType

    @property
    def shape(self) -> tuple[int, ...]:
        return self.layout.shape

    @property
    def type(self) -> TensorType:
        return TensorType(self.layout.shape, self.dtype)

    @property
    def size(self) -> int:
        """The number of elements of the tensor."""
        return self.layout.size

    @property
    def crosses(self) -> bool:
        """Whether a walk along the last axis fetches a sector for each element.

        While neighbours along another axis stand side by side, in a large tensor.
        """
        pairs = zip(self.layout.shape, self.layout.strides, strict=True)
        axes = [(stride * self.dtype.itemsize, size) for size, stride in pairs]
        axes = [(step, size) for step, size in axes if size > 1]
        if self.size < _LEAST_CROSSING or axes[-1][0] < SECTOR_BYTES:
            return False
        return any(
            0 < step < SECTOR_BYTES and size >= _LEAST_ALONG for step, size in axes
        )

    @property
    def bound(self) -> int:
        """The number of elements of the whole buffer: the bound of any index."""
        return self.range.size // self.dtype.itemsize

    @property
    def is_dense(self) -> bool:
        return self.layout.is_dense

    @property
    def touched(self) -> BufferRange:
        """The bytes between the first and the last element, out to whole 16 bytes."""
        first = self.layout.offset * self.dtype.itemsize // ALIGNMENT * ALIGNMENT
        end = min(
            padded(self.layout.end * self.dtype.itemsize), padded(self.range.size)
        )
        base = self.range.offset
        return BufferRange(
            self.range.space, self.range.index, base + first, max(end - first, 0)
        )

    def with_layout(self, layout: Layout) -> View:
        """Other elements of the same buffer."""
        return View(self.range, layout, self.dtype)

    def __str__(self) -> str:
        return f"{self.dtype.name} {self.layout} in {self.range}"
