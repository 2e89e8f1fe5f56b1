"""Contractions as data: what a contraction kernel computes, apart from how.

Sizes and strides are part of the kernel, or `Word`s that each launch carries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from poot.core.dtypes import DType
from poot.lowering.kernels.region import Dim, Ref, Region, Word
from poot.lowering.kernels.row_program import RowProgram
from poot.lowering.plan.layout import Layout

# Elements of a chunk: what one lane loads at once where they stand side by side.
CHUNK = 4


@dataclass(frozen=True, slots=True)
class Walk:
    """Where element i of several axes, walked row-major as one, stands.

    A tensor's own axes, merged where one stride walks several; none means that all
    elements stand at one place. The size of the first axis is of no account.
    """

    sizes: tuple[Dim, ...]
    strides: tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class Side:
    """One operand: element (batch, outer, k) at offset + batch . strides + ….

    `outer` is the row of the left or the column of the right operand, `inner` is k.
    """

    dtype: DType
    indirect: bool
    bound: Dim
    offset: Dim
    batch: tuple[Dim, ...]
    outer: Walk
    inner: Walk
    # The axis along which chunks are contiguous and aligned: "inner", "outer" or "".
    vector: str
    # How many elements along k are contiguous and aligned, if chunks are.
    run: int = CHUNK


@dataclass(frozen=True, slots=True)
class Target:
    """The results: element (head, split, batch, row, column).

    With an epilogue this is where a result of each head would stand, and so where the
    results of the epilogue do.
    """

    dtype: DType
    indirect: bool
    bound: Dim
    head: Dim
    split: Dim
    batch: tuple[Dim, ...]
    row: Walk
    column: Walk
    # Whether chunks along the columns are contiguous, whole and aligned.
    vector: bool
    # Whether no chunk leaves the last axis of the columns.
    keeps_chunks: bool


@dataclass(frozen=True, slots=True)
class Start:
    """A place that data says: number `number` of those that the epilogue gives.

    It is clamped to `count` and moves the target by `step` elements each.
    """

    number: int
    dtype: DType
    count: int
    step: int


@dataclass(frozen=True, slots=True)
class Landing:
    """Where a result of an epilogue goes, if it does not stand dense in its buffer.

    Its element at an index of `shape` stands at `offset`, plus what the starts make up,
    plus the index times the strides; `groups` counts axes that one stride walks.
    """

    shape: tuple[int, ...]
    groups: tuple[tuple[int, int], ...]
    offset: int
    # Elements of the whole buffer.
    bound: int
    # Whether the buffer begins where a chunk may.
    aligned: bool
    starts: tuple[Start, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """Indices (one a batch, the first batch axis) that pick what the right one reads.

    The place along the right operand's first batch axis is the index, clamped to
    `count`.
    """

    dtype: DType
    indirect: bool
    bound: Dim
    offset: Dim
    stride: Dim
    count: Dim


@dataclass(frozen=True, slots=True)
class Contraction:
    """target[h, b, m, n] = sum over k of left[b, m, k] * rights[h][b, n, k].

    With several splits, split s sums k from s * span on. With an epilogue the results
    are its targets, each made of the elements of the heads at one place; a landing for
    each of them says where it goes, if any does not stand dense.
    """

    batch: tuple[Dim, ...]
    m: Dim
    n: Dim
    k: Dim
    left: Side
    rights: tuple[Side, ...]
    target: Target
    # The k of a split, and how many there are.
    span: Dim
    splits: int
    # Upper bound of `span`, for the loops of kernels that serve all shapes.
    span_limit: int
    choice: Choice | None = None
    epilogue: Region | None = None
    landings: tuple[Landing, ...] = ()

    @property
    def heads(self) -> int:
        return len(self.rights)


@dataclass(frozen=True, slots=True)
class Prologue:
    """What makes the left operand: a row program, and its value that is the operand.

    Every workgroup computes all `rows` of `length` elements and keeps them.
    """

    program: RowProgram
    value: Ref
    lanes: int
    rows: int
    length: int

    @property
    def in_chunks(self) -> bool:
        """Whether rows are written and read as chunks only."""
        return self.lanes % CHUNK == 0 and self.length % self.lanes == 0


@dataclass(frozen=True, slots=True)
class Work:
    """The contractions of one kernel, which share the left operand."""

    parts: tuple[Contraction, ...]
    prologue: Prologue | None = None
    # For each operand behind those of the left one, the first that is the same buffer;
    # none if all are declared.
    firsts: tuple[int, ...] = ()

    @property
    def heads(self) -> int:
        """The most heads of a part."""
        return max(part.heads for part in self.parts)


class Words:
    """Turns sizes into parts of the kernel, or into words of the metadata."""

    def __init__(self, generic: bool) -> None:
        self._generic = generic
        self.words: list[int] = []

    def dim(self, size: int) -> Dim:
        if not self._generic or size in (0, 1):
            return size
        self.words.append(size)
        return Word(len(self.words) - 1)

    def walk(self, layout: Layout) -> Walk:
        """Of axes that are merged already."""
        return Walk(
            (1, *(self.dim(size) for size in layout.shape[1:]))[: len(layout.shape)],
            tuple(self.dim(stride) for stride in layout.strides),
        )


def vector_axis(offset: int, batch: Sequence[int], outer: Layout, inner: Layout) -> str:
    """Along which axis whole chunks of the operand are contiguous and aligned.

    `batch` are strides; the axes of `outer` and `inner` are merged already.
    """
    others = (*batch, offset)
    # A last chunk along a lone axis k may reach past its end: nothing is added there.
    ragged = len(inner.shape) == 1 and inner.shape[0] >= CHUNK
    if chunks_run(inner, (*others, *outer.strides), ragged):
        return "inner"
    return "outer" if chunks_run(outer, (*others, *inner.strides)) else ""


def chunks_run(
    axes: Layout, others: Sequence[int], ragged: bool = False, size: int = CHUNK
) -> bool:
    """Whether chunks along the last of merged axes are contiguous and aligned.

    `others` are all strides of other axes. A `ragged` axis may end amid a chunk.
    """
    if axes.strides[-1:] != (1,) or any(step % size for step in others):
        return False
    whole = ragged or axes.shape[-1] % size == 0
    return whole and not any(step % size for step in axes.strides[:-1])


def run_length(
    offset: int, batch: Sequence[int], outer: Layout, inner: Layout, itemsize: int
) -> int:
    """The elements along k that one load of 16 bytes may bring, CHUNK at least."""
    count = 16 // itemsize
    others = (*batch, offset, *outer.strides)
    wide = count > CHUNK and chunks_run(inner, others, size=count)
    return count if wide else CHUNK
