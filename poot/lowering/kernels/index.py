"""Indices of tensors: which element of a value the lanes of a chunk look at.

An index is a row of blocks. A block covers neighbouring axes of the tensor and holds
their row-major number as one coordinate, so that the axes of a contiguous operand are
never taken apart. Taking apart and joining happens where an op or a layout needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from poot.lowering.kernels.coordinates import (
    ZERO,
    Coordinate,
    Coordinates,
    Strided,
)
from poot.lowering.kernels.pack import Pack
from poot.lowering.spirv.builder import Size, Value


@dataclass(frozen=True, slots=True)
class Block:
    """Neighbouring axes of these sizes at a row-major number."""

    sizes: tuple[Size, ...]
    flat: Coordinate


@dataclass(frozen=True, slots=True)
class Index:
    """The blocks of an index, first axes first."""

    blocks: tuple[Block, ...]

    @property
    def sizes(self) -> tuple[Size, ...]:
        return tuple(size for block in self.blocks for size in block.sizes)

    @property
    def is_uniform(self) -> bool:
        """Whether all lanes look at one element."""
        flats = [block.flat for block in self.blocks]
        return all(isinstance(flat, Strided) and flat.step == 0 for flat in flats)


SCALAR_INDEX = Index(())


def _single(size: Size) -> bool:
    return not isinstance(size, Value) and size == 1


class IndexMaps:
    """Turns an index of an op's result into the indices of its operands."""

    def __init__(self, coordinates: Coordinates) -> None:
        self.coordinates = coordinates

    # --- taking apart and joining -------------------------------------------

    def take(self, index: Index, start: int, stop: int) -> tuple[Block, ...]:
        """The blocks of the axes start to stop; those cut through are divided."""
        found = []
        first = 0
        for block in index.blocks:
            last = first + len(block.sizes)
            low, high = max(start, first), min(stop, last)
            if low < high:
                found.append(self._part(block, low - first, high - first))
            first = last
        return tuple(found)

    def some(self, index: Index, axes: Sequence[int]) -> tuple[Block, ...]:
        """The blocks of some axes, in this order; runs of axes stay together."""
        blocks: list[Block] = []
        start = 0
        for stop in range(1, len(axes) + 1):
            if stop == len(axes) or axes[stop] != axes[stop - 1] + 1:
                blocks += self.take(index, axes[start], axes[stop - 1] + 1)
                start = stop
        return tuple(blocks)

    def _part(self, block: Block, start: int, stop: int) -> Block:
        sizes = block.sizes[start:stop]
        if len(sizes) == len(block.sizes):
            return block
        if all(_single(size) for size in sizes):
            return Block(sizes, ZERO)
        maps = self.coordinates
        flat = maps.divide(block.flat, maps.product(block.sizes[stop:]))
        if not all(_single(size) for size in block.sizes[:start]):
            flat = maps.remainder(flat, maps.product(sizes))
        return Block(sizes, flat)

    def merged(self, index: Index, start: int, stop: int) -> Coordinate:
        """The row-major number over the axes start to stop."""
        maps = self.coordinates
        flat: Coordinate = ZERO
        for block in self.take(index, start, stop):
            if flat != ZERO:
                flat = maps.scale(flat, maps.product(block.sizes))
            flat = maps.add(flat, block.flat)
        return flat

    def axis(self, index: Index, axis: int) -> Coordinate:
        return self.merged(index, axis, axis + 1)

    def with_axis(
        self, index: Index, axis: int, size: Size, place: Coordinate
    ) -> Index:
        """The same index at another place along one axis."""
        before = self.take(index, 0, axis)
        after = self.take(index, axis + 1, len(index.sizes))
        return Index((*before, Block((size,), place), *after))

    def moved(self, index: Index, axis: int, size: Size, distance: Coordinate) -> Index:
        """`distance` further along one axis; its block stays whole if it can."""
        led = self._led(index, axis)
        if led is None:
            place = self.coordinates.add(self.axis(index, axis), distance)
            return self.with_axis(index, axis, size, place)
        number, leading, inner = led
        maps = self.coordinates
        block = index.blocks[number]
        step = maps.scale(distance, maps.product(inner))
        changed = Block((*leading, size, *inner), maps.add(block.flat, step))
        return Index((*index.blocks[:number], changed, *index.blocks[number + 1 :]))

    def inside(self, index: Index, axis: int, distance: Coordinate, size: Size) -> Pack:
        """Whether `distance` further along one axis is in 0..size-1."""
        maps = self.coordinates
        led = self._led(index, axis)
        if led is None:
            return maps.below(maps.add(self.axis(index, axis), distance), size)
        number, _, inner = led
        row = maps.product(inner)
        flat = maps.add(index.blocks[number].flat, maps.scale(distance, row))
        return maps.below(flat, maps.product((size, row)))

    def _led(
        self, index: Index, axis: int
    ) -> tuple[int, tuple[Size, ...], tuple[Size, ...]] | None:
        """The number of the block that `axis` leads, but for axes of size 1.

        With the sizes of its axes before and after.
        """
        first = 0
        for number, block in enumerate(index.blocks):
            place = axis - first
            if 0 <= place < len(block.sizes):
                leading = block.sizes[:place]
                if all(_single(size) for size in leading):
                    return number, leading, block.sizes[place + 1 :]
                return None
            first += len(block.sizes)
        return None

    # --- through ops --------------------------------------------------------

    def broadcast(self, index: Index, shape: Sequence[Size]) -> Index:
        """Of the operand of this shape, of which `index` sees a repetition."""
        sizes = index.sizes
        first = len(sizes) - len(shape)
        blocks: list[Block] = []
        start = first
        for axis in range(first, len(sizes) + 1):
            here = axis < len(sizes)
            if here and not (_single(shape[axis - first]) and not _single(sizes[axis])):
                continue
            blocks += self.take(index, start, axis)
            if here:
                blocks.append(Block((1,), ZERO))
            start = axis + 1
        return Index(tuple(blocks))

    def transpose(self, index: Index, perm: Sequence[int]) -> Index:
        """Result axis i is operand axis perm[i]; runs of axes stay together."""
        place = {axis: i for i, axis in enumerate(perm)}
        blocks: list[Block] = []
        axis = 0
        while axis < len(perm):
            stop = axis + 1
            while stop < len(perm) and place[stop] == place[axis] + stop - axis:
                stop += 1
            start = place[axis]
            blocks += self.take(index, start, start + stop - axis)
            axis = stop
        return Index(tuple(blocks))

    def reshape(
        self, index: Index, shape: Sequence[Size], groups: Sequence[tuple[int, int]]
    ) -> Index:
        """`groups` counts axes of result and operand that hold the same elements."""
        blocks: list[Block] = []
        seen = made = 0
        for before, after in groups:
            sizes = tuple(shape[made : made + after])
            if before == after == 1:
                blocks += self.take(index, seen, seen + 1)
            elif after:
                blocks.append(Block(sizes, self.merged(index, seen, seen + before)))
            seen, made = seen + before, made + after
        return Index(tuple(blocks))

    def stretch(
        self, index: Index, axis: int, size: Size, start: Size, stride: Size
    ) -> Index:
        """Of the operand of a slice along `axis`."""
        if not isinstance(stride, Value) and stride == 1:
            return self.moved(index, axis, size, self.coordinates.uniform(start))
        maps = self.coordinates
        place = maps.shift(maps.scale(self.axis(index, axis), stride), start)
        return self.with_axis(index, axis, size, place)

    def reverse(self, index: Index, axes: Sequence[int]) -> Index:
        maps = self.coordinates
        for axis in axes:
            size = index.sizes[axis]
            last = maps.k.sub(size, 1)
            place = maps.mirror(self.axis(index, axis), last)
            index = self.with_axis(index, axis, size, place)
        return index
