"""How any contraction is laid out, split and given to a kernel.

Operands are read where they stand: axes that one stride walks are merged, the others
are taken apart by the kernel.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from poot.core import dtypes
from poot.core.builder import Builder
from poot.core.dtypes import DType, Scalar
from poot.core.equation import ValueId
from poot.core.errors import LimitError
from poot.core.ops.elementwise import Binary, BinaryOp, Cast
from poot.core.ops.shape import Reshape, Slice
from poot.core.types import TensorType
from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.contraction import (
    Choice,
    Contraction,
    Side,
    Target,
    Words,
    chunks_run,
    vector_axis,
)
from poot.lowering.kernels.contraction_schedule import (
    SPLIT_STEP,
    Extent,
    Schedule,
    choose,
    exchange_pays,
)
from poot.lowering.kernels.elements import needs_words
from poot.lowering.plan.context import PlanContext
from poot.lowering.plan.layout import Layout, View, collapse

# Partial sums that one pass adds up.
_MAX_SPLITS = 24
# Up to so many contracted axes, all their orders are tried.
_MOST_ORDERED = 4


class Axis(NamedTuple):
    """An axis of a contraction: its size and its stride in each tensor, 0 if absent."""

    size: int
    left: int = 0
    right: int = 0
    target: int = 0


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
        """The same with the operands exchanged."""
        groups = (self.batch, self.columns, self.rows, self.inner)
        return Roles(
            *(
                tuple(Axis(a.size, a.right, a.left, a.target) for a in axes)
                for axes in groups
            )
        )


def roles_of(
    left: Layout, right: Layout, target: Layout, batch: int, rows: int, columns: int
) -> Roles:
    """Of [*batch, *rows, *k], [*batch, *columns, *k] and [*batch, *rows, *columns].

    `batch`, `rows` and `columns` count axes.
    """
    shape = target.shape
    first, second = batch + rows, batch + rows + columns
    return Roles(
        tuple(map(Axis, shape[:batch], left.strides, right.strides, target.strides)),
        tuple(
            Axis(size, left=a, target=c)
            for size, a, c in zip(
                shape[batch:first],
                left.strides[batch:first],
                target.strides[batch:first],
                strict=True,
            )
        ),
        tuple(
            Axis(size, right=b, target=c)
            for size, b, c in zip(
                shape[first:second],
                right.strides[batch : batch + columns],
                target.strides[first:second],
                strict=True,
            )
        ),
        tuple(
            map(
                Axis,
                left.shape[first:],
                left.strides[first:],
                right.strides[batch + columns :],
            )
        ),
    )


def contract(
    ctx: PlanContext,
    left: View,
    right: View,
    out: View,
    roles: Roles,
    choice: View | None = None,
) -> None:
    """Emit the launches of a contraction into the dense `out`.

    The strides of `roles` count from the offsets of the views. With a `choice` the
    place of `right` along the only batch axis is what the indices say.
    """
    if _size(roles.inner) == 0:
        ctx.copy(Scalar.of(0, out.dtype), out)
        return
    if choice is None:
        roles = _batches_spread(roles)
    roles = Roles(roles.batch, roles.rows, roles.columns, _ordered(roles.inner))
    if choice is None and exchange_pays(_extent(roles), ctx.info):
        left, right, roles = right, left, roles.exchanged
    extent = _extent(roles)
    schedule = choose(extent, ctx.info)
    splits = _splits(extent.k, schedule, ctx.info)
    target = _target(ctx, out, splits, schedule, _stores_chunks(roles))
    problem = _Problem(ctx, left, right, target, out.size, roles, choice)
    problem.launch(schedule, splits)
    if target is not out:
        _combine(ctx, target, out, splits)


def _size(axes: Sequence[Axis]) -> int:
    return math.prod(axis.size for axis in axes)


def _extent(roles: Roles) -> Extent:
    inner = _merged(roles.inner, "right")
    return Extent(
        _size(roles.rows),
        _size(roles.columns),
        _size(roles.inner),
        _size(roles.batch),
        inner.strides[-1:] == (1,),
    )


def _merged(axes: Sequence[Axis], side: str) -> Layout:
    """How one tensor walks some axes, merged where one stride does."""
    sizes = tuple(axis.size for axis in axes)
    strides = tuple(getattr(axis, side) for axis in axes)
    return collapse(sizes, Layout(sizes, strides))[1][0]


def _batches_spread(roles: Roles) -> Roles:
    """Batches that share an operand as rows or columns of one: blocks fill better."""
    batch: list[Axis] = []
    rows: list[Axis] = []
    columns: list[Axis] = []
    for axis in roles.batch:
        kind = rows if axis.right == 0 else columns if axis.left == 0 else batch
        kind.append(axis)
    return Roles(
        tuple(batch), (*rows, *roles.rows), (*columns, *roles.columns), roles.inner
    )


def _ordered(inner: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """The contracted axes in the order that is easiest to walk for both operands."""
    axes = tuple(axis for axis in inner if axis.size != 1)

    def effort(order: tuple[Axis, ...]) -> tuple[int, int]:
        walks = [_merged(order, side) for side in ("left", "right")]
        dense = sum(walk.strides[-1:] == (1,) for walk in walks)
        return sum(len(walk.strides) for walk in walks), -dense

    if len(axes) <= _MOST_ORDERED:
        return min(itertools.permutations(axes), key=effort)
    by_left = tuple(sorted(axes, key=lambda axis: -axis.left))
    by_right = tuple(sorted(axes, key=lambda axis: -axis.right))
    return min(axes, by_left, by_right, key=effort)


def _splits(k: int, schedule: Schedule, info: DeviceInfo) -> int:
    """How many parts of k are summed on their own, so that loops stay in bounds."""
    splits = -(-k // schedule.max_span(info))
    if splits > _MAX_SPLITS:
        raise LimitError(
            f"matmul: contracts {k} elements; {info.name} sums at most "
            f"{_MAX_SPLITS * schedule.max_span(info)} in one equation. Split it"
        )
    return splits


def _stores_chunks(roles: Roles) -> bool:
    """Whether chunks along the columns of the result are contiguous and aligned."""
    others = [axis.target for axis in (*roles.batch, *roles.rows) if axis.size > 1]
    return chunks_run(_merged(roles.columns, "target"), others)


def _target(
    ctx: PlanContext, out: View, splits: int, schedule: Schedule, by_chunks: bool
) -> View:
    """Where the kernel writes: `out`, or sums that are still to be combined."""
    dtype = _sum_dtype(out.dtype)
    if splits > 1:
        return ctx.scratch(TensorType((splits, *out.shape), dtype))
    # Small elements are stored by whole words only, where the device wants that.
    by_word = by_chunks and schedule.kind != "dot"
    if needs_words(out.dtype, ctx.info) and not by_word:
        return ctx.scratch(TensorType(out.shape, dtype))
    return out


def _sum_dtype(dtype: DType) -> DType:
    """The dtype in which partial sums are kept."""
    if dtype.is_float:
        return dtype.compute
    if dtype.itemsize == 8:
        return dtype
    return dtypes.int32 if dtype.is_signed else dtypes.uint32


@dataclass(frozen=True, slots=True)
class _Problem:
    """A contraction that is ready to be launched."""

    ctx: PlanContext
    left: View
    right: View
    target: View
    # Elements of one split's results.
    results: int
    roles: Roles
    choice: View | None

    def launch(self, schedule: Schedule, splits: int) -> None:
        ctx, roles = self.ctx, self.roles
        words = Words(ctx.generic)
        m, n, k = map(_size, (roles.rows, roles.columns, roles.inner))
        sizes, batch = self._batch()
        most = schedule.max_span(ctx.info)
        span = k if splits == 1 else -(-k // (splits * SPLIT_STEP)) * SPLIT_STEP
        problem = Contraction(
            tuple(words.dim(size) for size in sizes),
            words.dim(m),
            words.dim(n),
            words.dim(k),
            self._side(words, self.left, "left", roles.rows, batch[0]),
            self._side(words, self.right, "right", roles.columns, batch[1]),
            self._stored(words, batch[2]),
            words.dim(span),
            splits,
            most if ctx.generic else span,
            self._chosen(words),
        )
        kernel, per_batch = schedule.kernel(ctx.info, problem, m, n)
        choice = [] if self.choice is None else [self.choice]
        ctx.emit(
            kernel,
            (self.left, self.right, *choice, self.target),
            per_batch * math.prod(sizes) * splits,
            metadata=words.words,
            flops=2 * m * n * k * math.prod(sizes),
        )

    def _batch(self) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
        """Sizes, and the strides in each tensor, of the batch axes, merged."""
        axes = self.roles.batch
        sizes = tuple(axis.size for axis in axes)
        strides = [tuple(axis[i] for axis in axes) for i in (1, 2, 3)]
        if self.choice is not None:
            return sizes, strides
        sizes, merged = collapse(sizes, *(Layout(sizes, by) for by in strides))
        return sizes, [layout.strides for layout in merged]

    def _side(
        self,
        words: Words,
        view: View,
        side: str,
        outer_axes: Sequence[Axis],
        batch: tuple[int, ...],
    ) -> Side:
        outer, inner = _merged(outer_axes, side), _merged(self.roles.inner, side)
        return Side(
            view.dtype,
            self.ctx.indirect(view),
            words.dim(view.bound),
            words.dim(view.layout.offset),
            tuple(words.dim(stride) for stride in batch),
            words.walk(outer),
            words.walk(inner),
            vector_axis(view.layout.offset, batch, outer, inner),
        )

    def _stored(self, words: Words, batch: tuple[int, ...]) -> Target:
        target, roles = self.target, self.roles
        return Target(
            target.dtype,
            self.ctx.indirect(target),
            words.dim(target.bound),
            words.dim(self.results),
            tuple(words.dim(stride) for stride in batch),
            words.walk(_merged(roles.rows, "target")),
            words.walk(_merged(roles.columns, "target")),
            _stores_chunks(roles),
        )

    def _chosen(self, words: Words) -> Choice | None:
        view = self.choice
        if view is None:
            return None
        return Choice(
            view.dtype,
            self.ctx.indirect(view),
            words.dim(view.bound),
            words.dim(view.layout.offset),
            words.dim(view.layout.strides[0]),
            words.dim(self.right.shape[0]),
        )


def _combine(ctx: PlanContext, parts: View, out: View, splits: int) -> None:
    """Add up the splits' sums and round to the result's dtype."""
    builder = Builder()
    operand = builder.input(parts.type)
    total = operand
    if splits > 1:
        shape = out.shape
        pieces: list[ValueId] = []
        for s in range(splits):
            (piece,) = builder.emit(Slice(0, s, s + 1), (operand,))
            pieces.append(*builder.emit(Reshape(shape), (piece,)))
        total = pieces[0]
        for piece in pieces[1:]:
            (total,) = builder.emit(Binary(BinaryOp.ADD), (total, piece))
    if parts.dtype is not out.dtype:
        (total,) = builder.emit(Cast(out.dtype), (total,))
    builder.result(total)
    ctx.run(builder.finish(), (parts,), (out,))
