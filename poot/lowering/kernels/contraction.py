"""Contractions as data: what a matmul kernel computes, apart from how.

Sizes and strides are part of the kernel, or `Word`s that each launch carries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from poot.core.dtypes import DType
from poot.lowering.kernels.region import Dim, Word
from poot.lowering.plan.layout import Layout, View, collapse

# Elements of a chunk: what one lane loads at once where they stand side by side.
CHUNK = 4


@dataclass(frozen=True, slots=True)
class Side:
    """One operand: element (batch, outer, k) at offset + batch . strides + ….

    `outer` is the row of the left or the column of the right operand.
    """

    dtype: DType
    indirect: bool
    bound: Dim
    offset: Dim
    batch: tuple[Dim, ...]
    outer: Dim
    inner: Dim
    # The axis along which chunks are contiguous and aligned: "inner", "outer" or "".
    vector: str


@dataclass(frozen=True, slots=True)
class Target:
    """The result: element (batch, row, column), all batches dense."""

    dtype: DType
    indirect: bool
    bound: Dim
    batch: Dim
    row: Dim
    column: Dim
    # Whether chunks along the columns are contiguous, whole and aligned.
    vector: bool


@dataclass(frozen=True, slots=True)
class Contraction:
    """target[b, m, n] = sum over k of left[b, m, k] * right[b, n, k].

    With several splits, split s sums k from s * span on and writes target batch
    s * batches + b.
    """

    batch: tuple[Dim, ...]
    m: Dim
    n: Dim
    k: Dim
    left: Side
    right: Side
    target: Target
    # The k of a split, and how many there are.
    span: Dim
    splits: int
    # Upper bound of `span`, for the loops of kernels that serve all shapes.
    span_limit: int


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


def merged_batch(
    a: View, b: View, axes: int
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Sizes and both operands' strides of the batch axes, merged where they can be."""
    from_a = Layout(a.shape[:axes], a.layout.strides[:axes])
    from_b = Layout(b.shape[:axes], b.layout.strides[:axes])
    sizes, (merged_a, merged_b) = collapse(a.shape[:axes], from_a, from_b)
    return sizes, merged_a.strides, merged_b.strides


def vector_axis(
    view: View, batch: Sequence[int], outer: int, inner: int, sizes: tuple[int, int]
) -> str:
    """Along which axis whole chunks of the operand are contiguous and aligned.

    `outer` and `inner` are strides; `sizes` the extents of the two axes.
    """
    if any(stride % CHUNK for stride in (*batch, view.layout.offset)):
        return ""
    if inner == 1 and outer % CHUNK == 0 and sizes[1] >= CHUNK:
        return "inner"
    if outer == 1 and inner % CHUNK == 0 and sizes[0] % CHUNK == 0:
        return "outer"
    return ""
