"""MatMul: how a contraction is laid out, split and given to a kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass

from poot.core import dtypes
from poot.core.builder import Builder
from poot.core.dtypes import DType, Scalar
from poot.core.equation import Eqn, ValueId
from poot.core.errors import LimitError
from poot.core.ops.elementwise import Binary, BinaryOp, Cast
from poot.core.ops.matmul import MatMul
from poot.core.ops.shape import Reshape, Slice
from poot.core.types import TensorType
from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.contraction import (
    CHUNK,
    Contraction,
    Side,
    Target,
    Words,
    merged_batch,
    vector_axis,
)
from poot.lowering.kernels.contraction_dot import dot_groups, dot_kernel
from poot.lowering.kernels.contraction_lanes import (
    Block,
    lanes_kernel,
)
from poot.lowering.kernels.contraction_tile import Tile, tile_groups, tile_kernel
from poot.lowering.kernels.elements import needs_words
from poot.lowering.plan.context import PlanContext
from poot.lowering.plan.layout import Layout, View
from poot.lowering.plan.rules import lower
from poot.lowering.program import Kernel

_BLOCKS = (Block(32, 2), Block(32, 1), Block(16, 2), Block(16, 1), Block(8, 1))
# What takes the least time to compile. From so many products on, larger blocks pay.
_SMALL_BLOCK = Block(4, 1)
_MANY_PRODUCTS = 1 << 23
# Up to so many rows or columns, each result is a dot product of its own.
_DOT_ROWS = 2
# What the k of a split is a multiple of.
_SPLIT_STEP = 64
# Partial sums that one pass adds up.
_MAX_SPLITS = 24
_TILES = (Tile(64, 64, 16), Tile(32, 32, 16), Tile(16, 16, 8), Tile(8, 8, 8))


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a contraction is computed: the kernel's kind and its sizes."""

    kind: str
    block: Block = _SMALL_BLOCK
    tile: Tile = _TILES[0]

    def max_span(self, info: DeviceInfo) -> int:
        """The most k that one invocation may sum."""
        if info.max_loop_trips is None:
            return 1 << 30
        spare = 256
        per_trip = {
            "dot": info.subgroup_size * CHUNK,
            "lanes": self.block.step(info.subgroup_size),
            "tile": self.tile.depth,
        }[self.kind]
        trips = info.max_loop_trips - spare
        return max(trips * per_trip // _SPLIT_STEP * _SPLIT_STEP, _SPLIT_STEP)


def choose(m: int, n: int, info: DeviceInfo, depth: int = 1) -> Schedule:
    """The schedule for m rows by n columns, each a sum of `depth` over all batches."""
    if m <= _DOT_ROWS and info.subgroup_arithmetic:
        return Schedule("dot")
    if info.is_cpu and info.subgroup_shuffle and info.subgroup_size >= 4:
        return Schedule("lanes", _block(m, n, depth, info.subgroup_size))
    fitting = [tile for tile in _TILES if _fits(tile, info)]
    if not fitting:
        raise LimitError(
            f"matmul: the smallest tile needs {_TILES[-1].shared_bytes(8)} B of shared "
            f"memory and {_TILES[-1].invocations} invocations; {info.name} has "
            f"{info.max_shared_bytes} and {info.max_workgroup_invocations}"
        )
    for tile in fitting:
        if tile_groups(m, n, tile) >= info.compute_units:
            return Schedule("tile", tile=tile)
    return Schedule("tile", tile=fitting[-1])


def _block(m: int, n: int, depth: int, lanes: int) -> Block:
    """The results of a subgroup: many, unless most would lie past the ends."""
    if m * n * depth < _MANY_PRODUCTS:
        return _SMALL_BLOCK
    fitting = [b for b in _BLOCKS if b.rows % lanes == 0 or lanes % b.rows == 0]
    return min(fitting, key=lambda block: block.cost(m, n, lanes))


def _fits(tile: Tile, info: DeviceInfo) -> bool:
    return (
        tile.shared_bytes(8) <= info.max_shared_bytes
        and tile.invocations <= info.max_workgroup_invocations
        and tile.invocations <= info.max_workgroup_size[0]
    )


@lower.define(MatMul)
def _lower_matmul(ctx: PlanContext, eqn: Eqn) -> None:
    left, right = (ctx.view(operand) for operand in eqn.inputs)
    assert isinstance(left, View) and isinstance(right, View)
    left, right, out = _batches_as_rows(left, right, ctx.output(eqn.out))
    m, k, n = *left.shape[-2:], right.shape[-1]
    if k == 0:
        ctx.copy(Scalar.of(0, out.dtype), out)
        return
    swapped = n < m and n <= _DOT_ROWS
    depth = k * math.prod(out.shape[:-2])
    rows, columns = (n, m) if swapped else (m, n)
    schedule = choose(rows, columns, ctx.info, depth)
    splits = _splits(k, schedule, ctx.info)
    target = _target(ctx, out, splits, schedule, n % CHUNK == 0 and not swapped)
    _launch(ctx, left, right, target, (m, n, k), splits, schedule, swapped)
    if target is not out:
        _combine(ctx, target, out, splits)


def _batches_as_rows(left: View, right: View, out: View) -> tuple[View, View, View]:
    """One batch of more rows, where all share the right operand: blocks fill better."""
    m, k, n = *left.shape[-2:], right.shape[-1]
    batch = right.layout.strides[:-2]
    rows = math.prod(out.shape[:-2]) * m
    merged = left.layout.reshape((rows, k))
    if any(batch) or merged is None:
        return left, right, out
    shared = Layout((k, n), right.layout.strides[-2:], right.layout.offset)
    target = out.layout.reshape((rows, n))
    assert target is not None
    return (
        left.with_layout(merged),
        right.with_layout(shared),
        out.with_layout(target),
    )


def _splits(k: int, schedule: Schedule, info: DeviceInfo) -> int:
    """How many parts of k are summed on their own, so that loops stay in bounds."""
    splits = -(-k // schedule.max_span(info))
    if splits > _MAX_SPLITS:
        raise LimitError(
            f"matmul: contracts {k} elements; {info.name} sums at most "
            f"{_MAX_SPLITS * schedule.max_span(info)} in one equation. Split it"
        )
    return splits


def _target(
    ctx: PlanContext, out: View, splits: int, schedule: Schedule, whole: bool
) -> View:
    """Where the kernel writes: `out`, or sums that are still to be combined."""
    dtype = _sum_dtype(out.dtype)
    if splits > 1:
        return ctx.scratch(TensorType((splits, *out.shape), dtype))
    # Small elements are stored by whole words only, where the device wants that.
    by_word = whole and schedule.kind != "dot"
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


def _launch(
    ctx: PlanContext,
    left: View,
    right: View,
    target: View,
    sizes: tuple[int, int, int],
    splits: int,
    schedule: Schedule,
    swapped: bool,
) -> None:
    m, n, k = sizes
    words = Words(ctx.generic)
    axes = len(left.shape) - 2
    batch, batch_left, batch_right = merged_batch(left, right, axes)
    left_steps, right_steps = left.layout.strides[-2:], right.layout.strides[:-3:-1]
    a = _side(ctx, words, left, batch_left, left_steps, (m, k))
    b = _side(ctx, words, right, batch_right, right_steps, (n, k))
    row, column = n, 1
    if swapped:
        a, b, m, n, row, column = b, a, n, m, column, row
    most = schedule.max_span(ctx.info)
    span = k if splits == 1 else -(-k // (splits * _SPLIT_STEP)) * _SPLIT_STEP
    problem = Contraction(
        tuple(words.dim(size) for size in batch),
        words.dim(m),
        words.dim(n),
        words.dim(k),
        a,
        b,
        Target(
            target.dtype,
            ctx.indirect(target),
            words.dim(target.bound),
            words.dim(m * n),
            words.dim(row),
            words.dim(column),
            column == 1 and n % CHUNK == 0,
        ),
        words.dim(span),
        splits,
        most if ctx.generic else span,
    )
    kernel, per_batch = _kernel(ctx.info, problem, schedule, m, n)
    ctx.emit(
        kernel,
        (right, left, target) if swapped else (left, right, target),
        per_batch * math.prod(batch) * splits,
        metadata=words.words,
        flops=2 * m * n * k * math.prod(batch),
    )


def _side(
    ctx: PlanContext,
    words: Words,
    view: View,
    batch: tuple[int, ...],
    steps: tuple[int, ...],
    sizes: tuple[int, int],
) -> Side:
    outer, inner = steps
    return Side(
        view.dtype,
        ctx.indirect(view),
        words.dim(view.bound),
        words.dim(view.layout.offset),
        tuple(words.dim(stride) for stride in batch),
        words.dim(outer),
        words.dim(inner),
        vector_axis(view, batch, outer, inner, sizes),
    )


def _kernel(
    info: DeviceInfo, problem: Contraction, schedule: Schedule, m: int, n: int
) -> tuple[Kernel, int]:
    """The kernel and its workgroups a batch and split."""
    if schedule.kind == "dot":
        return dot_kernel(info, problem), dot_groups(m, n, info)
    if schedule.kind == "lanes":
        groups = schedule.block.count(m, n, info.subgroup_size)
        return lanes_kernel(info, problem, schedule.block), groups
    kernel = tile_kernel(info, problem, schedule.tile)
    return kernel, tile_groups(m, n, schedule.tile)


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
