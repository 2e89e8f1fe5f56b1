"""Scatter and ScatterUpdate: which row of the target each row of the updates goes to.

Where a window spans the operand along all axes that no index points into, what it has
behind the last of the others is one row; else each element is a row of its own.
"""

from __future__ import annotations

import math

from poot.core import dtypes
from poot.core.builder import Builder
from poot.core.dtypes import Scalar
from poot.core.equation import Eqn, Operand, ValueId
from poot.core.op import Op
from poot.core.ops.elementwise import (
    Binary,
    BinaryOp,
    Cast,
    Clamp,
    Compare,
    CompareOp,
    Select,
)
from poot.core.ops.scatter import Scatter, ScatterMode, ScatterOp, ScatterUpdate
from poot.core.ops.shape import Broadcast, Iota, Reshape, Slice
from poot.core.types import TensorType
from poot.lowering.kernels.memory import WORD_BYTES
from poot.lowering.kernels.scatter_kernels import Repeats
from poot.lowering.kernels.scatter_rows import Rows, plan_rows, started
from poot.lowering.plan.context import PlanContext
from poot.lowering.plan.layout import Layout, View
from poot.lowering.plan.rules import lower

# What sorting a key costs beside moving a byte.
_KEY_BYTES = 64


@lower.define(ScatterUpdate)
def lower_scatter_update(ctx: PlanContext, eqn: Eqn) -> None:
    """Plan the rows that the slots name."""
    base, src, slots = eqn.inputs
    target = started(ctx, eqn)
    type = ctx.type(base)
    if not ctx.type(src).size:
        return
    keys = _Keys(ctx, (ctx.type(slots).size,), slots)
    keys.lead(keys.indices(), type.shape[0] - 1, 1, ScatterMode.DROP)
    found = keys.plan(type.shape[0])
    width = math.prod(type.shape[1:])
    rows = Rows(found, ctx.dense(src), width, type.shape[0], Repeats.ORDERED)
    plan_rows(ctx, ScatterOp.SET, rows, target)


@lower.define(Scatter)
def lower_scatter(ctx: PlanContext, eqn: Eqn) -> None:
    """Plan the rows, or the elements, that the index vectors lead to."""
    assert isinstance(eqn.op, Scatter)
    target = started(ctx, eqn)
    if not ctx.type(eqn.inputs[2]).size:
        return
    _Scatter(ctx, eqn.op, eqn).plan(target)


# --- where updates go -------------------------------------------------------


class _Keys:
    """Keys under construction: a pointwise region that computes one for each row."""

    def __init__(
        self, ctx: PlanContext, shape: tuple[int, ...], indices: Operand
    ) -> None:
        self.ctx, self.shape = ctx, shape
        self.type = ctx.type(indices)
        self.builder = Builder()
        self._indices = indices
        self._read: list[View | Scalar] = []
        self._total: Operand = Scalar.of(0, dtypes.uint32)
        self._inside: ValueId | None = None

    def _emit(self, op: Op, *operands: Operand) -> ValueId:
        return self.builder.emit(op, operands)[0]

    def indices(self) -> ValueId:
        """The indices, in 32 bits at least."""
        value = self.builder.input(self.type)
        self._read.append(self.ctx.view(self._indices))
        if self.type.dtype.itemsize < WORD_BYTES:
            return self._emit(Cast(dtypes.int32), value)
        return value

    def components(self) -> list[ValueId]:
        """Each component of the index vectors."""
        if not self.type.size:
            return []
        value, last = self.indices(), self.type.ndim - 1
        return [
            self._emit(Slice(last, number, number + 1), value)
            for number in range(self.type.shape[last])
        ]

    def spread(self, component: ValueId, axes: tuple[int, ...]) -> ValueId:
        """One component along those axes of the keys that run over index vectors."""
        shape = [1] * len(self.shape)
        for axis, size in zip(axes, self.type.shape[:-1], strict=True):
            shape[axis] = size
        return self._emit(Reshape(tuple(shape)), component)

    def lead(self, start: ValueId, limit: int, stride: int, mode: ScatterMode) -> None:
        """Add the place that a start leads to; 0 to `limit` are inside."""
        dtype = self.builder.type(start).dtype
        low, high = Scalar.of(0, dtype), Scalar.of(limit, dtype)
        if mode is not ScatterMode.CLIP:
            inside = self._emit(Compare(CompareOp.LE), start, high)
            if dtype.is_signed:
                other = self._emit(Compare(CompareOp.GE), start, low)
                inside = self._emit(Binary(BinaryOp.AND), inside, other)
            if self._inside is not None:
                inside = self._emit(Binary(BinaryOp.AND), self._inside, inside)
            self._inside = inside
        if not stride:
            return
        clamped = self._emit(Clamp(), low, start, high)
        self._add(self._emit(Cast(dtypes.uint32), clamped), stride)

    def walk(self, axis: int, stride: int) -> None:
        """Add the place along an axis of the keys."""
        self._add(self._emit(Iota(dtypes.uint32, self.shape, axis)), stride)

    def _add(self, place: ValueId, stride: int) -> None:
        if stride != 1:
            scale = Scalar.of(stride, dtypes.uint32)
            place = self._emit(Binary(BinaryOp.MUL), place, scale)
        self._total = self._emit(Binary(BinaryOp.ADD), self._total, place)

    def plan(self, rows: int) -> View:
        """Plan the launch that computes the keys, u32 [1, count]."""
        total = self._total
        if self._inside is not None:
            beyond = Scalar.of(rows, dtypes.uint32)
            total = self._emit(Select(), self._inside, total, beyond)
        if isinstance(total, Scalar) or self.builder.type(total).shape != self.shape:
            total = self._emit(Broadcast(self.shape), total)
        self.builder.result(total)
        keys = self.ctx.scratch(TensorType(self.shape, dtypes.uint32))
        self.ctx.run(self.builder.finish(), self._read, [keys])
        return keys.with_layout(Layout.dense((1, keys.size)))


class _Scatter:
    """One scatter in planning."""

    def __init__(self, ctx: PlanContext, op: Scatter, eqn: Eqn) -> None:
        self.ctx, self.op = ctx, op
        operand, self.indices, self.updates = eqn.inputs
        self.shape = ctx.type(operand).shape
        self.given = ctx.type(self.updates)
        self.dims = op.dims.gather
        self.window = op.dims.window(len(self.shape), self.given.shape)
        # Axes of the updates: those over index vectors, and by the operand's axis.
        self.batch = self.dims.batch_dims(self.given.ndim)
        kept = self.dims.window_dims(len(self.shape))
        self.kept = dict(zip(kept, self.dims.offset_dims, strict=True))
        led = {*self.dims.start_index_map, *self.dims.operand_batching_dims}
        self.led = sorted(axis for axis in led if self.shape[axis] > 1)

    def plan(self, target: View) -> None:
        """By rows where windows allow it, else element by element."""
        if not self._has_rows():
            every = list(range(len(self.shape)))
            axes = tuple(range(self.given.ndim))
            self._plan_keys(target, every, axes, self.ctx.dense(self.updates))
            return
        last = self.led[-1] if self.led else -1
        before = [axis for axis in range(last) if axis not in self.led]
        ahead = math.prod(self.shape[axis] for axis in before)
        if ahead == 1 or self._sorts_cheaply(ahead):
            self._plan_rows(target, list(range(last + 1)))
        else:
            self._plan_turned(target)

    def _has_rows(self) -> bool:
        """Whether windows have size 1 along the axes led into, and span the others."""
        return all(
            self.window[axis] == (1 if axis in self.led else size)
            for axis, size in enumerate(self.shape)
        )

    def _sorts_cheaply(self, ahead: int) -> bool:
        """Whether more keys cost less than to turn the target around and back."""
        keys = ahead * math.prod(self.given.shape[axis] for axis in self.batch)
        moved = 4 * math.prod(self.shape) * self.given.dtype.itemsize
        return keys * _KEY_BYTES <= moved

    def _plan_turned(self, target: View) -> None:
        """On a copy that has the axes led into first."""
        ctx = self.ctx
        rest = [axis for axis in range(len(self.shape)) if axis not in self.led]
        perm = [*self.led, *rest]
        shape = tuple(self.shape[axis] for axis in perm)
        turned = ctx.scratch(TensorType(shape, target.dtype))
        ctx.copy(target.with_layout(target.layout.transpose(perm)), turned)
        self._plan_rows(turned, self.led)
        back = [perm.index(axis) for axis in range(len(perm))]
        ctx.copy(turned.with_layout(turned.layout.transpose(back)), target)

    def _plan_rows(self, target: View, keyed: list[int]) -> None:
        """A row for each index vector and place along the keyed axes not led into."""
        ahead = [
            place
            for axis, place in self.kept.items()
            if axis in keyed and axis not in self.led
        ]
        axes = (*self.batch, *ahead)
        behind = [place for place in self.kept.values() if place not in ahead]
        self._plan_keys(target, keyed, axes, self._permuted([*axes, *behind]))

    def _permuted(self, perm: list[int]) -> View:
        """The updates, dense, with their axes in another order."""
        view = self.ctx.view(self.updates)
        if not isinstance(view, View):
            return self.ctx.dense(self.updates)
        turned = view.with_layout(view.layout.transpose(perm))
        if turned.is_dense:
            return turned
        copy = self.ctx.scratch(turned.type)
        self.ctx.copy(turned, copy)
        return copy

    def _plan_keys(
        self, target: View, keyed: list[int], axes: tuple[int, ...], updates: View
    ) -> None:
        """Key axes are `axes` of the updates; the keyed axes make up the rows."""
        op, dims = self.op, self.dims
        sizes = [self.shape[axis] for axis in keyed]
        rows = math.prod(sizes)
        strides = {a: math.prod(sizes[i + 1 :]) for i, a in enumerate(keyed)}
        place_of = {place: number for number, place in enumerate(axes)}
        keys = _Keys(self.ctx, tuple(self.given.shape[a] for a in axes), self.indices)
        batch = tuple(place_of[place] for place in self.batch)
        for axis, start in zip(dims.start_index_map, keys.components(), strict=True):
            limit = self.shape[axis] - self.window[axis]
            stride = strides.get(axis, 0)
            keys.lead(keys.spread(start, batch), limit, stride, op.mode)
        for number, axis in enumerate(dims.operand_batching_dims):
            if axis in strides:
                other = dims.start_indices_batching_dims[number]
                keys.walk(batch[other], strides[axis])
        for axis, place in self.kept.items():
            if axis in strides and self.window[axis] > 1:
                keys.walk(place_of[place], strides[axis])
        found = keys.plan(rows)
        repeats = self._repeats(keyed, found.size)
        width = math.prod(self.shape) // rows
        moved = Rows(found, updates, width, rows, repeats)
        plan_rows(self.ctx, op.op, moved, target)

    def _repeats(self, keyed: list[int], count: int) -> Repeats:
        op = self.op
        if op.unique_indices or count == 1:
            return Repeats.NEVER
        # Components that are moved inside may leave their order.
        one = len(op.dims.scatter_dims_to_operand_dims) == 1
        is_plain = keyed == self.led and not self.dims.operand_batching_dims
        if (
            op.indices_are_sorted
            and is_plain
            and (one or op.mode is not ScatterMode.CLIP)
        ):
            return Repeats.SORTED
        return Repeats.ORDERED
