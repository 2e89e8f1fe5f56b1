"""Which parts of the scores' axes stand where, through reshapes and transposes.

The axes of the products of queries and keys consist of atoms: parts that ops on the way
to the result keep whole. An axis of 12 heads is the atoms 4 and 3 where it is reshaped
so at some place. Axes of size 1 have none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from poot.core.op import Op
from poot.core.ops.elementwise import Cast
from poot.core.ops.shape import Broadcast, Reshape, Transpose

# A part of axis number `axis` of the products.
Atom = tuple[int, int]
# The atoms of each axis of a value; none where the axis has one element, or repeats.
Axes = tuple[tuple[Atom, ...], ...]

MOVES = (Broadcast, Cast, Reshape, Transpose)


class Split(Exception):
    """An atom is to be two, the first of this size; all axes are to be found anew."""

    def __init__(self, atom: Atom, size: int) -> None:
        super().__init__(atom, size)
        self.atom, self.size = atom, size


class NoAxes(Exception):
    """An op mixes elements of axes."""


@dataclass(slots=True)
class Atoms:
    """The sizes of the atoms of each axis of the products.

    `others` are atoms beside them, such as the axis of the values, which stay whole.
    """

    shape: tuple[int, ...]
    sizes: list[list[int]] = field(init=False)
    others: dict[Atom, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.sizes = [[] if size == 1 else [size] for size in self.shape]

    def size(self, atom: Atom) -> int:
        other = self.others.get(atom)
        return self.sizes[atom[0]][atom[1]] if other is None else other

    def split(self, split: Split) -> None:
        axis, number = split.atom
        whole = self.sizes[axis][number]
        self.sizes[axis][number : number + 1] = [split.size, whole // split.size]

    @property
    def axes(self) -> Axes:
        """Of the products."""
        return tuple(
            tuple((axis, number) for number in range(len(sizes)))
            for axis, sizes in enumerate(self.sizes)
        )

    def grouped(self, atoms: Sequence[Atom], shape: Sequence[int]) -> Axes:
        """Atoms in row-major order as axes of these sizes."""
        left = list(atoms)
        groups: list[tuple[Atom, ...]] = []
        for size in shape:
            group: list[Atom] = []
            while size > 1:
                if not left:
                    raise NoAxes
                atom = left.pop(0)
                own = self.size(atom)
                if size % own:
                    if own % size or atom in self.others:
                        raise NoAxes
                    raise Split(atom, size)
                group.append(atom)
                size //= own
            groups.append(tuple(group))
        if left:
            raise NoAxes
        return tuple(groups)

    def through(self, op: Op, axes: Axes, made: Sequence[int]) -> Axes:
        """The axes of what a move makes of a value, by its shape."""
        match op:
            case Cast():
                return axes
            case Transpose(perm):
                return tuple(axes[axis] for axis in perm)
            case Broadcast():
                return ((),) * (len(made) - len(axes)) + axes
            case Reshape():
                # Of repeats there are too few atoms.
                return self.grouped([atom for group in axes for atom in group], made)
        raise NoAxes

    def product(self, atoms: Sequence[Atom]) -> int:
        return math.prod(self.size(atom) for atom in atoms)


def aligned(part: Axes, whole: Axes) -> bool:
    """Whether a value that broadcasts to another has its elements at the same atoms."""
    missing = len(whole) - len(part)
    return missing >= 0 and all(
        not mine or mine == theirs
        for mine, theirs in zip(part, whole[missing:], strict=True)
    )


def pad(axes: Axes, ndim: int) -> Axes:
    """With leading axes of one element."""
    return ((),) * (ndim - len(axes)) + axes
