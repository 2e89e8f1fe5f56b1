"""The axes of a contraction by what they do, and the order in which they are walked."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from poot.lowering.kernels.contraction import CHUNK, chunks_run
from poot.lowering.plan.column_sections import Section
from poot.lowering.plan.layout import Layout, collapse

# Up to so many contracted axes, all their orders are tried.
_MOST_ORDERED = 4


class Axis(NamedTuple):
    """An axis of a contraction: its size and its stride in each tensor, 0 if absent.

    With several heads `others` has the strides in the right operands after the first.
    """

    size: int
    left: int = 0
    right: int = 0
    target: int = 0
    others: tuple[int, ...] = ()

    def stride(self, side: str | int) -> int:
        """In the "left" operand, the "target", or right operand number `side`."""
        if side == "left":
            return self.left
        if side == "target":
            return self.target
        assert isinstance(side, int)
        return (self.right, *self.others)[side]


@dataclass(frozen=True, slots=True)
class Roles:
    """The axes of a contraction by what they do, first axis first.

    Batch axes are in all three tensors, rows in the left operand and the result,
    columns in the right one and the result, contracted ones in both operands.
    """

    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    inner: tuple[Axis, ...]

    @property
    def exchanged(self) -> Roles:
        """The same with the operands exchanged; there is one right operand."""
        groups = (self.batch, self.columns, self.rows, self.inner)
        return Roles(
            *(
                tuple(Axis(a.size, a.right, a.left, a.target) for a in axes)
                for axes in groups
            )
        )

    @property
    def stores_chunks(self) -> bool:
        """Whether chunks along the columns of the result are contiguous and aligned."""
        others = [axis.target for axis in (*self.batch, *self.rows) if axis.size > 1]
        return chunks_run(merged(self.columns, "target"), others)

    @property
    def keeps_chunks(self) -> bool:
        """Whether no chunk of columns leaves the last of their axes."""
        axes = merged(self.columns, "target").shape
        return len(axes) < 2 or axes[-1] % CHUNK == 0

    def at_sections(self, sections: Sequence[Section]) -> Roles:
        """Of a head for each section of the columns of a lone one.

        Offsets aside, which are those of the sections' first columns. The sections are
        of one size.
        """
        section = sections[0]
        period, count = section.period, section.count
        *others, last = self.columns
        more = len(sections) - 1

        def moved(axis: Axis) -> Axis:
            # All steps of a dense result but the last are of whole periods.
            made = axis.target // period * count
            return Axis(axis.size, axis.left, axis.right, made, (axis.right,) * more)

        step, across = last.right * section.step, last.right * period
        columns = [moved(axis) for axis in others]
        if last.size > period:
            heads = last.size // period
            columns.append(Axis(heads, 0, across, count, (across,) * more))
        columns.append(Axis(count, 0, step, 1, (step,) * more))
        return Roles(
            tuple(map(moved, self.batch)),
            tuple(map(moved, self.rows)),
            tuple(columns),
            tuple(map(moved, self.inner)),
        )

    def walked(self, free: bool) -> Roles:
        """The same in the order that is easiest to walk.

        `free`: batches that share an operand may be rows or columns of one.
        """
        roles = self._batches_spread() if free else self
        return Roles(roles.batch, roles.rows, roles.columns, _ordered(roles.inner))

    def _batches_spread(self) -> Roles:
        """Batches that share an operand as rows or columns: blocks fill better."""
        batch: list[Axis] = []
        rows: list[Axis] = []
        columns: list[Axis] = []
        for axis in self.batch:
            shared = axis.right == 0 and not any(axis.others)
            kind = rows if shared else columns if axis.left == 0 else batch
            kind.append(axis)
        return Roles(
            tuple(batch), (*rows, *self.rows), (*columns, *self.columns), self.inner
        )


def size_of(axes: Sequence[Axis]) -> int:
    return math.prod(axis.size for axis in axes)


def merged(axes: Sequence[Axis], side: str | int) -> Layout:
    """How one tensor walks some axes, merged where one stride does."""
    sizes = tuple(axis.size for axis in axes)
    strides = tuple(axis.stride(side) for axis in axes)
    return collapse(sizes, Layout(sizes, strides))[1][0]


def _ordered(inner: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """The contracted axes in the order that is easiest to walk for both operands."""
    axes = tuple(axis for axis in inner if axis.size != 1)

    def effort(order: tuple[Axis, ...]) -> tuple[int, int]:
        walks = [merged(order, side) for side in ("left", 0)]
        dense = sum(walk.strides[-1:] == (1,) for walk in walks)
        return sum(len(walk.strides) for walk in walks), -dense

    if len(axes) <= _MOST_ORDERED:
        return min(itertools.permutations(axes), key=effort)
    by_left = tuple(sorted(axes, key=lambda axis: -axis.left))
    by_right = tuple(sorted(axes, key=lambda axis: -axis.right))
    return min(axes, by_left, by_right, key=effort)


def roles_of(
    left: Layout,
    rights: Sequence[Layout],
    target: Layout,
    batch: int,
    rows: int,
    columns: int,
) -> Roles:
    """Of [*batch, *rows, *k], [*batch, *columns, *k] and [*batch, *rows, *columns].

    `batch`, `rows` and `columns` count axes; the right operands are of one shape.
    """
    shape = target.shape
    first, second = batch + rows, batch + rows + columns
    by_right = list(zip(*(right.strides for right in rights), strict=True))

    def axis(size: int, left: int, rights: tuple[int, ...], target: int) -> Axis:
        return Axis(size, left, rights[0], target, rights[1:])

    none = (0,) * len(rights)
    return Roles(
        tuple(map(axis, shape[:batch], left.strides, by_right, target.strides)),
        tuple(
            axis(size, a, none, c)
            for size, a, c in zip(
                shape[batch:first],
                left.strides[batch:first],
                target.strides[batch:first],
                strict=True,
            )
        ),
        tuple(
            axis(size, 0, b, c)
            for size, b, c in zip(
                shape[first:second],
                by_right[batch : batch + columns],
                target.strides[first:second],
                strict=True,
            )
        ),
        tuple(
            axis(size, a, b, 0)
            for size, a, b in zip(
                left.shape[first:],
                left.strides[first:],
                by_right[batch + columns :],
                strict=True,
            )
        ),
    )
