"""Which axes can be walked as one."""

from __future__ import annotations

import math
from collections.abc import Sequence

from poot.lowering.plan.layout import Layout


def axis_runs(
    shape: Sequence[int],
    shapes: Sequence[Sequence[int]],
    layouts: Sequence[Layout],
) -> list[tuple[int, int]]:
    """Runs of axes of `shape` that all values and operands walk as one.

    `shapes` broadcast to `shape`, as do those of the layouts. Axes of size 1 vanish.
    """
    rank = len(shape)
    padded = [(1,) * (rank - len(each)) + tuple(each) for each in shapes]
    strides = []
    for layout in layouts:
        missing = rank - len(layout.shape)
        steps, sizes = (0,) * missing + layout.strides, (1,) * missing + layout.shape
        strides.append((steps, sizes))
    runs: list[tuple[int, int]] = []
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        if runs and _joins(runs[-1][1] - 1, axis, shape, padded, strides):
            runs[-1] = (runs[-1][0], axis + 1)
        else:
            runs.append((axis, axis + 1))
    return runs


def _joins(
    outer: int,
    inner: int,
    shape: Sequence[int],
    shapes: Sequence[Sequence[int]],
    layouts: Sequence[tuple[Sequence[int], Sequence[int]]],
) -> bool:
    """Whether two neighbouring axes (but for ones of size 1) are walked as one."""
    if any((each[outer] == 1) != (each[inner] == 1) for each in shapes):
        return False
    return all(
        sizes[inner] == 1 or strides[outer] == strides[inner] * shape[inner]
        for strides, sizes in layouts
    )


def walked_as_one(layout: Layout) -> tuple[tuple[int, int], ...]:
    """Groups of neighbouring axes as (count, stride); a repeated one has stride 0."""
    groups: list[list[int]] = []
    inner = 1
    axes = zip(reversed(layout.shape), reversed(layout.strides), strict=True)
    for size, stride in axes:
        if size == 1:
            stride = 0
        if groups and (size == 1 or (groups[-1][1] * inner == stride)):
            groups[-1][0] += 1
            inner *= size
        elif groups and inner == 1:
            # Only axes of size 1 so far.
            groups[-1] = [groups[-1][0] + 1, stride]
            inner = size
        else:
            groups.append([1, stride])
            inner = size
    return tuple((count, stride) for count, stride in reversed(groups))


def common_groups(
    made: Sequence[int], given: Sequence[int]
) -> tuple[tuple[int, int], ...]:
    """Shortest runs of axes of two shapes that hold the same elements, as counts.

    Both have as many elements, and some.
    """
    groups = []
    i = j = 0
    while i < len(made) or j < len(given):
        start = i, j
        i, j = min(i + 1, len(made)), min(j + 1, len(given))
        left, right = math.prod(made[start[0] : i]), math.prod(given[start[1] : j])
        while left != right:
            if left < right:
                left *= made[i]
                i += 1
            else:
                right *= given[j]
                j += 1
        groups.append((i - start[0], j - start[1]))
    return tuple(groups)
