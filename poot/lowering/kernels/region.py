"""Regions as data: the steps of a pointwise kernel, apart from any one shape.

A Region is made from the body of a composite and the views of its operands. Where a
kernel is to serve all shapes, the sizes in it are `Word`s: numbers of metadata words
that each launch carries. Equal Regions are one kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.core.dtypes import DType, Scalar
from poot.core.op import Op
from poot.core.ops.index_dims import GatherDims


@dataclass(frozen=True, slots=True)
class Word:
    """A size that a launch gives as metadata word `number`."""

    number: int
    # What the size is known to be a multiple of.
    multiple: int = 1


# A size that is part of the kernel, or that each launch gives. 0 and 1 are never Words.
Dim = int | Word


# --- what a step does -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Load:
    """Element of source number `source` at the index."""

    source: int


@dataclass(frozen=True, slots=True)
class Given:
    """A value that the kernel around the region has computed itself."""

    number: int


@dataclass(frozen=True, slots=True)
class Apply:
    """An elementwise op on operands that broadcast to the result."""

    op: Op


@dataclass(frozen=True, slots=True)
class Part:
    """One of the `count` results of the operand, which computes them all."""

    number: int
    count: int


@dataclass(frozen=True, slots=True)
class Repeat:
    """The operand, repeated along axes of size 1 and new leading ones."""


@dataclass(frozen=True, slots=True)
class Permute:
    """Result axis i is operand axis perm[i]."""

    perm: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Regroup:
    """A reshape: counts of result and operand axes that hold the same elements."""

    groups: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Result place i along `axis` is operand place start + i * stride."""

    axis: int
    start: Dim
    stride: Dim


@dataclass(frozen=True, slots=True)
class Mirror:
    """The order of elements turned along `axes`."""

    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Edge:
    """One axis of a Border: operand place p stands at low + p * spread."""

    axis: int
    low: Dim
    # Whether `low` counts elements that are cut off rather than added.
    cut: bool
    spread: Dim


@dataclass(frozen=True, slots=True)
class Border:
    """Operand 0 where an element of it stands, else the scalar operand 1."""

    edges: tuple[Edge, ...]


@dataclass(frozen=True, slots=True)
class Join:
    """Operand number j holds the places from starts[j] on along `axis`."""

    axis: int
    starts: tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class Count:
    """The place along `axis`, as a number."""

    axis: int


@dataclass(frozen=True, slots=True)
class Take:
    """Operand 0 along `axis` where operand 1, of `rank` axes, says.

    Indices out of range give `fill`, or the nearest element.
    """

    axis: int
    rank: int
    fill: Scalar | None


@dataclass(frozen=True, slots=True)
class TakeWindow:
    """A window out of operand 0, which operand 1, index vectors, says the start of.

    Windows that do not lie wholly inside give `fill`, or are moved there.
    """

    dims: GatherDims
    # Of the window along each axis of operand 0.
    sizes: tuple[Dim, ...]
    # The components of the index vectors that are read.
    components: tuple[int, ...]
    # The axes along which all windows stand at the start of a longer axis.
    fixed: tuple[int, ...]
    fill: Scalar | None


@dataclass(frozen=True, slots=True)
class Window:
    """A block of operand 0; the scalars behind it say where it starts along `axes`."""

    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TakeApart:
    """The bits of the operand as narrower elements along a new last axis."""


@dataclass(frozen=True, slots=True)
class PutTogether:
    """The bits of the elements along the last axis as one wider element."""

    count: int


@dataclass(frozen=True, slots=True)
class Rotate:
    """Pairs along the last axis turned: operands x, cos and sin."""

    rotary: Dim
    half: Dim
    interleaved: bool
    # Whether cos and sin have a number for each element of a pair.
    wide: bool


Action = (
    Load
    | Given
    | Apply
    | Part
    | Repeat
    | Permute
    | Regroup
    | Stretch
    | Mirror
    | Border
    | Join
    | Count
    | Take
    | TakeWindow
    | Window
    | TakeApart
    | PutTogether
    | Rotate
)

# A step's operand: the number of an earlier step, or a literal.
Ref = int | Scalar


@dataclass(frozen=True, slots=True)
class Step:
    """One value of a region, computed element by element where it is asked for."""

    action: Action
    inputs: tuple[Ref, ...]
    dtype: DType
    shape: tuple[Dim, ...]


# --- where elements stand ---------------------------------------------------


@dataclass(frozen=True, slots=True)
class Source:
    """A tensor in the buffer of pointer number `pointer`.

    `groups` counts neighbouring axes that one stride walks, with that stride.
    """

    pointer: int
    dtype: DType
    groups: tuple[tuple[int, Dim], ...]
    offset: Dim
    # Elements of the whole buffer.
    bound: Dim
    # Bytes that the address of the buffer is a multiple of.
    alignment: int


@dataclass(frozen=True, slots=True)
class Target:
    """A dense place for a result."""

    value: Ref
    dtype: DType
    alignment: int
    indirect: bool


@dataclass(frozen=True, slots=True)
class Region:
    """All that shapes the code of a pointwise kernel but its schedule."""

    # Whether the address of each buffer that is read comes through the table.
    pointers: tuple[bool, ...]
    sources: tuple[Source, ...]
    steps: tuple[Step, ...]
    targets: tuple[Target, ...]
    # Of all results.
    shape: tuple[Dim, ...]
    total: Dim
    # Values of one element that the kernel asks for besides.
    numbers: tuple[Ref, ...] = ()
