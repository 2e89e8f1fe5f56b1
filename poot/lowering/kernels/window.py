"""ReduceWindow: each invocation combines what lies under a chunk of windows.

Large windows go axis by axis, since what combines the elements is associative and
commutative; sums in between stay in f32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from poot.core import dtypes
from poot.core.builder import Builder
from poot.core.dtypes import DType
from poot.core.equation import Eqn
from poot.core.graph import Graph
from poot.core.ops.reduce import Reduce, ReduceOp
from poot.core.ops.shape import Pad
from poot.core.ops.window import ReduceWindow, WindowOp, window_identity
from poot.core.types import TensorType
from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.cache import kernel_cache
from poot.lowering.kernels.coordinates import Coordinates, Linear, Strided
from poot.lowering.kernels.describe import Dims, alignment_of, describe_values
from poot.lowering.kernels.evaluate import SIZE_LIMIT, Evaluator
from poot.lowering.kernels.index import Block, Index
from poot.lowering.kernels.operands import source_operands
from poot.lowering.kernels.pack import lane_of
from poot.lowering.kernels.reducers import Reducer, reducer
from poot.lowering.kernels.region import Dim, Ref, Region
from poot.lowering.kernels.schedule import (
    PointwiseSchedule,
    choose_lanes,
    choose_schedule,
)
from poot.lowering.plan.context import PlanContext
from poot.lowering.plan.layout import View
from poot.lowering.plan.rules import lower
from poot.lowering.program import Access, Kernel
from poot.lowering.spirv.builder import KernelBuilder, Value

# Windows of more elements along more than one axis go axis by axis.
_MOST_AT_ONCE = 64
_CLASSES_END = 1 << 15


@lower.define(ReduceWindow)
def _lower_reduce_window(ctx: PlanContext, eqn: Eqn) -> None:
    assert isinstance(eqn.op, ReduceWindow)
    (source,) = (ctx.view(operand) for operand in eqn.inputs)
    assert isinstance(source, View)
    out = ctx.output(eqn.out)
    if source.size == 0:
        ctx.copy(window_identity(eqn.op.op, out.dtype), out)
        return
    *first, last = _steps(eqn.op, source.shape)
    wide = out.dtype.compute
    for step in first:
        shape = step.infer(source.type).shape
        between = ctx.scratch(TensorType(shape, wide))
        _launch(ctx, step, source, between)
        source = between
    _launch(ctx, last, source, out)


def _steps(op: ReduceWindow, shape: Sequence[int]) -> list[ReduceWindow]:
    """The op, or what it is axis by axis, first those that leave fewest elements."""
    axes = [axis for axis, size in enumerate(op.window) if size > 1]
    if math.prod(op.window) <= _MOST_AT_ONCE or len(axes) < 2:
        return [op]
    result = op.infer(TensorType(tuple(shape), dtypes.float32)).shape
    axes.sort(key=lambda axis: result[axis] / shape[axis])
    steps = [_only(op, (axis,)) for axis in axes[:-1]]
    done = set(axes[:-1])
    rest = [axis for axis in range(len(shape)) if axis not in done]
    return [*steps, _only(op, rest)]


def _only(op: ReduceWindow, axes: Sequence[int]) -> ReduceWindow:
    """The op along some axes, the others left as they are."""

    def kept(given: Sequence[int]) -> tuple[int, ...]:
        return tuple(v if axis in axes else 1 for axis, v in enumerate(given))

    return replace(
        op,
        window=kept(op.window),
        strides=kept(op.strides),
        padding=tuple(p if i in axes else (0, 0) for i, p in enumerate(op.padding)),
        base_dilation=kept(op.base_dilation),
        window_dilation=kept(op.window_dilation),
    )


# --- a launch ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WindowAxis:
    """One axis of a window; `most` bounds its size."""

    size: Dim
    stride: Dim
    dilation: Dim
    most: int

    @property
    def is_plain(self) -> bool:
        """Whether results stand where the elements under them do."""
        return self.size == 1 and self.stride == 1


@dataclass(frozen=True, slots=True)
class WindowProgram:
    """All that shapes the code of a window kernel but its schedule."""

    region: Region
    # The operand with all that padding and dilation put into it.
    value: Ref
    op: WindowOp
    dtype: DType
    alignment: int
    indirect: bool
    axes: tuple[WindowAxis, ...]
    shape: tuple[Dim, ...]
    total: Dim


def _launch(ctx: PlanContext, op: ReduceWindow, source: View, target: View) -> None:
    total = target.size
    lanes = choose_lanes([source.dtype, target.dtype], 1, total)
    generic = ctx.generic and max(source.bound, source.size, total) < SIZE_LIMIT
    dims = Dims(lanes, generic)
    body = _filled(op, source.type)
    described, refs = describe_values(body, [source], dims)
    program = WindowProgram(
        described.region,
        refs[body.results[0]],
        op.op,
        target.dtype,
        alignment_of(target),
        ctx.indirect(target),
        tuple(
            WindowAxis(
                dims(size),
                dims(stride),
                dims(dilation),
                _bound(size) if generic else size,
            )
            for size, stride, dilation in zip(
                op.window, op.strides, op.window_dilation, strict=True
            )
        ),
        dims.of(target.shape),
        dims(total),
    )
    schedule = choose_schedule(ctx.info, lanes, total)
    kernel = window_kernel(ctx.info, program, schedule)
    ctx.emit(
        kernel,
        [*described.buffers, target],
        schedule.groups(total),
        metadata=tuple(dims.words) if kernel.uses_metadata else (),
        flops=total * math.prod(op.window),
        reads=described.reads,
    )


def _bound(size: int) -> int:
    """Of kernels that serve all sizes there is one a power of two, up to a limit."""
    return 1 << (size - 1).bit_length() if size <= _CLASSES_END else size


def _filled(op: ReduceWindow, type: TensorType) -> Graph:
    """The operand with identities around and between its elements."""
    builder = Builder()
    value = builder.input(type)
    config = tuple(
        (low, high, dilation - 1)
        for (low, high), dilation in zip(op.padding, op.base_dilation, strict=True)
    )
    if any(axis != (0, 0, 0) for axis in config):
        fill = window_identity(op.op, type.dtype)
        (value,) = builder.emit(Pad(config), (value, fill))
    builder.result(value)
    return builder.finish()


# --- the kernel -------------------------------------------------------------


@kernel_cache
def window_kernel(
    info: DeviceInfo, program: WindowProgram, schedule: PointwiseSchedule
) -> Kernel:
    """Operands: the buffer read, if any, then the result."""
    k = KernelBuilder(f"window_{program.op.value}", info, (schedule.workgroup, 1, 1))
    sources = source_operands(k, program.region)
    target = k.operand("y", Access.WRITE, indirect=program.indirect)
    coordinates = Coordinates(k, schedule.lanes)
    evaluator = Evaluator(coordinates, program.region, sources)
    kind = reducer(Reduce(ReduceOp[program.op.name], 0), program.dtype)
    total = evaluator.size(program.total)
    chunk = k.add(k.mul(k.workgroup_index(), schedule.workgroup), k.local_index())
    with k.when(k.lt(chunk, k.ceil_div(total, schedule.lanes))):
        pack = _Walk(evaluator, program, kind, chunk, schedule.lanes).combined()
        evaluator.memory.store(
            target, program.dtype, chunk, pack, total, program.alignment
        )
    return k.finish(str(schedule))


class _Walk:
    """The walk of a chunk of windows over what lies under them."""

    def __init__(
        self,
        evaluator: Evaluator,
        program: WindowProgram,
        kind: Reducer,
        chunk: Value,
        lanes: int,
    ) -> None:
        self.k = k = evaluator.k
        self.evaluator = evaluator
        self.program = program
        self.kind = kind
        flat = Strided(Linear(((chunk, lanes),)), 1 if lanes > 1 else 0)
        self.place = Index((Block(evaluator.sizes(program.shape), flat),))
        self.held = [
            [k.variable(ty, v) for ty, v in zip(kind.types, kind.start(k), strict=True)]
            for _ in range(lanes)
        ]

    def combined(self) -> tuple[Value, ...]:
        """The results of the lanes."""
        offsets: list[Value] = []
        with ExitStack() as loops:
            for axis in self.program.axes:
                offsets.append(self._offset(axis, loops))
            self._combine(offsets)
        return tuple(
            self.kind.finish(self.k, tuple(v.load() for v in lane))
            for lane in self.held
        )

    def _offset(self, axis: WindowAxis, loops: ExitStack) -> Value:
        """How far from the first element under a window, in a loop over all."""
        if axis.size == 1:
            return self.k.u32(0)
        size = self.evaluator.size(axis.size)
        at = loops.enter_context(self.k.loop(size, max_trips=axis.most))
        loops.enter_context(self.evaluator.scope())
        return self.k.value(self.k.mul(at, self.evaluator.size(axis.dilation)))

    def _combine(self, offsets: Sequence[Value]) -> None:
        k, kind = self.k, self.kind
        index = self._index(offsets)
        pack = self.evaluator.value(self.program.value, index)
        for lane, held in enumerate(self.held):
            before = tuple(variable.load() for variable in held)
            lifted = kind.lift(k, lane_of(pack, lane), k.u32(lane))
            combined = kind.combine(k, before, lifted)
            for variable, value in zip(held, combined, strict=True):
                variable.store(value)

    def _index(self, offsets: Sequence[Value]) -> Index:
        """Of the element under each lane's window; axes that none moves stay whole."""
        evaluator, axes = self.evaluator, self.program.axes
        maps, coordinates = evaluator.maps, evaluator.coordinates
        sizes = evaluator.shape(self.program.value)
        blocks: list[Block] = []
        start = 0
        for number, axis in enumerate(axes):
            if axis.is_plain and sizes[number] == self.place.sizes[number]:
                continue
            blocks += maps.take(self.place, start, number)
            at = coordinates.scale(
                maps.axis(self.place, number), evaluator.size(axis.stride)
            )
            blocks.append(
                Block((sizes[number],), coordinates.shift(at, offsets[number]))
            )
            start = number + 1
        return Index((*blocks, *maps.take(self.place, start, len(axes))))
