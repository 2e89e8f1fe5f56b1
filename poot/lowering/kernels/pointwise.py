"""Pointwise regions: one kernel computes all results, element by element."""

from __future__ import annotations

from collections.abc import Sequence

from poot.core.builder import Builder
from poot.core.dtypes import Scalar
from poot.core.equation import Eqn, Operand, ValueId
from poot.core.errors import LimitError, LoweringError
from poot.core.graph import Graph
from poot.core.ops.composite import Fused
from poot.core.ops.contractions import DenseRowGather
from poot.core.ops.elementwise import (
    Binary,
    BitcastConvert,
    Cast,
    Clamp,
    Compare,
    Select,
    Unary,
)
from poot.core.ops.indexing import DynamicSlice, Gather, GeneralGather
from poot.core.ops.random import Threefry2x32
from poot.core.ops.rope import Rope
from poot.core.ops.shape import (
    Broadcast,
    Concat,
    Iota,
    Pad,
    Reshape,
    Reverse,
    Slice,
    Transpose,
)
from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.cache import kernel_cache
from poot.lowering.kernels.coordinates import Coordinates, Linear, Strided
from poot.lowering.kernels.describe import Described, describe
from poot.lowering.kernels.evaluate import SIZE_LIMIT, Evaluator
from poot.lowering.kernels.index import Block, Index
from poot.lowering.kernels.memory import WORD_BYTES
from poot.lowering.kernels.operands import source_operands, target_operands
from poot.lowering.kernels.pack import Pack
from poot.lowering.kernels.region import Apply, Region, Take, TakeWindow
from poot.lowering.kernels.schedule import (
    PointwiseSchedule,
    choose_schedule,
    deepened,
    region_lanes,
)
from poot.lowering.kernels.sections import is_sectioned, lower_sections
from poot.lowering.kernels.tile_kernel import tile_kernel
from poot.lowering.kernels.tile_plan import (
    TileProgram,
    TileSchedule,
    choose_tiles,
    may_cross,
)
from poot.lowering.plan.context import PlanContext
from poot.lowering.plan.layout import View
from poot.lowering.plan.rules import lower
from poot.lowering.program import Kernel
from poot.lowering.spirv.builder import KernelBuilder, Value

# Element numbers are u32, those of lanes past the end included.
_MOST_ELEMENTS = (1 << 32) - (1 << 16)
# Longer regions compute one chunk after the other.
_MOST_CHAINED_STEPS = 16


@lower.define(Fused)
def lower_fused(ctx: PlanContext, eqn: Eqn) -> None:
    """Plan a region as one launch."""
    assert isinstance(eqn.op, Fused)
    if is_sectioned(eqn.op.body):
        lower_sections(ctx, eqn)
        return
    operands = [ctx.view(operand) for operand in eqn.inputs]
    outs = [ctx.output(out) for out in eqn.outs]
    lower_region(ctx, eqn.op.body, operands, outs)


@lower.define(Unary, Binary, Compare, Select, Cast, Clamp, BitcastConvert)
@lower.define(Broadcast, Reshape, Transpose, Slice, Concat, Pad, Reverse, Iota)
@lower.define(Gather, GeneralGather, DynamicSlice, Threefry2x32, Rope, DenseRowGather)
def lower_primitive(ctx: PlanContext, eqn: Eqn) -> None:
    """Plan one primitive as a region of its own."""
    builder = Builder(composites=True)
    inputs: dict[ValueId, ValueId] = {}
    for operand in eqn.inputs:
        if not isinstance(operand, Scalar) and operand not in inputs:
            inputs[operand] = builder.input(ctx.type(operand))

    def inner(operand: Operand) -> Operand:
        return operand if isinstance(operand, Scalar) else inputs[operand]

    outs = builder.emit(eqn.op, tuple(inner(operand) for operand in eqn.inputs))
    for out in outs:
        builder.result(out)
    operands = [ctx.view(operand) for operand in inputs]
    lower_region(ctx, builder.finish(), operands, [ctx.output(o) for o in eqn.outs])


def lower_region(
    ctx: PlanContext,
    body: Graph,
    operands: Sequence[View | Scalar],
    outs: Sequence[View],
) -> None:
    """Launch the kernel that writes the results of `body` to `outs`."""
    _require_one_shape(body)
    total = outs[0].size
    if total == 0:
        return
    dtypes = [view.dtype for view in (*operands, *outs) if isinstance(view, View)]
    lanes = region_lanes(ctx.info, dtypes, len(body.eqns), total)
    described = describe(body, operands, outs, lanes, _is_generic(ctx, operands, outs))
    tiled = None
    if may_cross(ctx.info, described.region, total):
        region = described.region
        if described.dims.generic:
            region = describe(body, operands, outs, lanes).region
        tiled = choose_tiles(ctx.info, region, lanes)
    kernel, groups = _kernel_of(ctx.info, described, tiled, total, lanes)
    applied = sum(isinstance(s.action, Apply) for s in described.region.steps)
    ctx.emit(
        kernel,
        [*described.buffers, *outs],
        groups,
        metadata=tuple(described.dims.words) if kernel.uses_metadata else (),
        flops=applied * total,
        reads=described.reads,
    )


def _kernel_of(
    info: DeviceInfo,
    described: Described,
    tiled: tuple[TileProgram, TileSchedule] | None,
    total: int,
    lanes: int,
) -> tuple[Kernel, int]:
    """The kernel of a region, and how many workgroups it takes."""
    region, dims = described.region, described.dims
    if tiled is None or (dims.generic and not tiled[0].is_told_by_source):
        usual = choose_schedule(info, lanes, total, _is_chained(region))
        kernel = pointwise_kernel(info, region, usual)
        words, loads = len(kernel.words) // WORD_BYTES, len(region.sources)
        schedule = deepened(info, usual, words, loads, total)
        if schedule != usual:
            kernel = pointwise_kernel(info, region, schedule)
        return kernel, schedule.groups(total)
    program, tiles = tiled
    groups = tiles.groups(program)
    if dims.generic:
        program = program.generic(region, dims)
    return tile_kernel(info, program, tiles), groups


def _is_chained(region: Region) -> bool:
    """Whether some elements say where others are loaded, in a region that is short."""
    if len(region.steps) > _MOST_CHAINED_STEPS:
        return False
    return any(isinstance(step.action, Take | TakeWindow) for step in region.steps)


def _require_one_shape(body: Graph) -> None:
    shapes = {type.shape for type in body.result_types}
    if len(shapes) != 1:
        given = ", ".join(map(str, body.result_types))
        raise LoweringError(
            f"the results of a pointwise region have one shape; given {given}. "
            "Make one region a shape"
        )
    (size,) = {type.size for type in body.result_types}
    if size > _MOST_ELEMENTS:
        raise LimitError(
            f"a pointwise region of {size} elements; the most is {_MOST_ELEMENTS}. "
            "Split the tensor"
        )


def _is_generic(
    ctx: PlanContext, operands: Sequence[View | Scalar], outs: Sequence[View]
) -> bool:
    """Whether sizes go into metadata: huge ones do not fit the words there."""
    views = [view for view in (*operands, *outs) if isinstance(view, View)]
    return ctx.generic and all(view.bound < SIZE_LIMIT for view in views)


# --- the kernel -------------------------------------------------------------


@kernel_cache
def pointwise_kernel(
    info: DeviceInfo, region: Region, schedule: PointwiseSchedule
) -> Kernel:
    """The kernel of a region. Operands: the buffers read, then the results."""
    dtype = region.targets[0].dtype
    name = f"pointwise_{dtype}_{len(region.steps)}"
    k = KernelBuilder(name, info, (schedule.workgroup, 1, 1))
    sources = source_operands(k, region)
    targets = target_operands(k, region.targets)
    group = k.mul(k.workgroup_index(), schedule.workgroup * schedule.chunks)
    first = k.add(group, k.local_index())
    lanes = schedule.lanes
    evaluator = Evaluator(Coordinates(k, lanes), region, sources)
    total = evaluator.size(region.total)
    count = k.ceil_div(total, lanes)

    def compute(chunk: Value) -> list[Pack]:
        flat = Strided(Linear(((chunk, lanes),)), 1 if lanes > 1 else 0)
        index = Index((Block(evaluator.sizes(region.shape), flat),))
        return [evaluator.value(target.value, index) for target in region.targets]

    def store(chunk: Value, packs: Sequence[Pack]) -> None:
        for target, pointer, pack in zip(region.targets, targets, packs, strict=True):
            evaluator.memory.store(
                pointer, target.dtype, chunk, pack, total, target.alignment, True
            )

    # Stores come last, since a result may overwrite an operand.
    if schedule.chunks == 1:
        with k.when(k.lt(first, count)):
            store(first, compute(first))
    else:
        chunks = [k.add(first, n * schedule.workgroup) for n in range(schedule.chunks)]
        # Loads past the end are bounded.
        computed = [compute(chunk) for chunk in chunks]
        for chunk, packs in zip(chunks, computed, strict=True):
            with k.when(k.lt(chunk, count)):
                store(chunk, packs)
    return k.finish(str(schedule))
