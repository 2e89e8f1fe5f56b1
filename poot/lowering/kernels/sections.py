"""Regions of several shapes in one launch, and blocks written where they belong.

Each section of the workgroups computes the results of one shape, or one block of an
update, which it stores straight into the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from poot.core.builder import Builder
from poot.core.dtypes import DType, Scalar
from poot.core.equation import Eqn, Operand, ValueId
from poot.core.errors import LoweringError
from poot.core.extract import needed_equations
from poot.core.graph import Graph
from poot.core.ops.composite import Fused
from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.cache import kernel_cache
from poot.lowering.kernels.coordinates import Coordinates, Linear, Strided
from poot.lowering.kernels.describe import Described, describe
from poot.lowering.kernels.elements import clamped_index
from poot.lowering.kernels.evaluate import Evaluator
from poot.lowering.kernels.index import Block, Index
from poot.lowering.kernels.region import Apply, Region
from poot.lowering.kernels.schedule import choose_schedule, region_lanes
from poot.lowering.plan.blocks import BlockAxis, block_axes, block_lanes
from poot.lowering.plan.context import PlanContext
from poot.lowering.plan.layout import View
from poot.lowering.plan.state import block_update, is_only_updated
from poot.lowering.program import INDIRECT_SPACES, Access, BufferRange, Kernel
from poot.lowering.spirv.builder import KernelBuilder, Pointer, Value


@dataclass(frozen=True, slots=True)
class Landing:
    """Where a block goes, in chunks: a place of the target for each chunk of it."""

    # Of each axis but the last: the chunks behind it in the block, and the step.
    walk: tuple[tuple[int, int], ...]
    # Of each start that is data: its dtype, how many there can be, and the step.
    starts: tuple[tuple[DType, int, int], ...]
    # What the other starts make up.
    base: int
    # Elements of the target.
    size: int


@dataclass(frozen=True, slots=True)
class Section:
    """All that shapes the code of one section."""

    region: Region
    # For each pointer of the region, its number among those of the kernel.
    pointers: tuple[int, ...]
    lanes: int
    # The first of its workgroups, and the one after its last.
    first: int
    end: int
    landing: Landing | None = None


def is_sectioned(body: Graph) -> bool:
    """Whether the results are of several shapes, or are blocks of updates."""
    if len({type.shape for type in body.result_types}) > 1:
        return True
    return any(block_update(body, value) is not None for value in body.results)


def lower_sections(ctx: PlanContext, eqn: Eqn) -> None:
    """Plan a region of several shapes, or with updates, as one launch."""
    _Launch(ctx, eqn).emit()


def updated_place(
    ctx: PlanContext, eqn: Eqn, body: Graph, number: int, updated: ValueId, at: int
) -> View:
    """Where result `number` stands: an updated operand's place, with its elements.

    The operand is `updated` in the body, and number `at` of the equation.
    """
    out, given = eqn.outs[number], eqn.inputs[at]
    source = ctx.view(given)
    is_read = eqn.inputs.count(given) > 1 or not is_only_updated(body, updated)
    is_free = not is_read and not ctx.is_stored(out)
    if is_free and isinstance(source, View) and source.is_dense and ctx.dies(given):
        ctx.place(out, source)
        return source
    place = ctx.output(out)
    if source != place:
        ctx.copy(source, place)
    return place


class _Launch:
    """One launch in the making."""

    def __init__(self, ctx: PlanContext, eqn: Eqn) -> None:
        assert isinstance(eqn.op, Fused)
        self.ctx, self.eqn, self.body = ctx, eqn, eqn.op.body
        self.operands = dict(zip(self.body.inputs, eqn.inputs, strict=True))
        self.sections: list[Section] = []
        self.buffers: dict[BufferRange, int] = {}
        self.reads: list[BufferRange] = []
        self.targets: list[View] = []
        self.flops = 0
        sizes = [type.size for type in self.body.result_types]
        self.workgroup = choose_schedule(ctx.info, 1, max(sizes)).workgroup

    def emit(self) -> None:
        plain: dict[tuple[int, ...], list[int]] = {}
        for number, value in enumerate(self.body.results):
            update = block_update(self.body, value)
            if update is not None:
                self._add_block(number, update)
            elif self.body.type(value).size:
                plain.setdefault(self.body.type(value).shape, []).append(number)
        for numbers in plain.values():
            self._add_plain(numbers)
        if not self.sections:
            return
        flags = tuple(where.space in INDIRECT_SPACES for where in self.buffers)
        kernel = sections_kernel(
            self.ctx.info, tuple(self.sections), flags, self.workgroup
        )
        self.ctx.emit(
            kernel,
            [*self.buffers, *self.targets],
            self.sections[-1].end,
            flops=self.flops,
            reads=self.reads,
        )

    def _add_plain(self, numbers: Sequence[int]) -> None:
        """The section of results that have one shape."""
        results = [self.body.results[number] for number in numbers]
        outs = [self.ctx.output(self.eqn.outs[number]) for number in numbers]
        body, operands = self._part(results)
        views = [view for view in (*operands, *outs) if isinstance(view, View)]
        dtypes = [view.dtype for view in views]
        lanes = region_lanes(self.ctx.info, dtypes, len(body.eqns), outs[0].size)
        self._add(describe(body, operands, outs, lanes), lanes, outs)

    def _add_block(self, number: int, update: Eqn) -> None:
        """The section of a block, stored into the target from its starts on."""
        operand = update.inputs[0]
        assert not isinstance(operand, Scalar)
        at = self.body.inputs.index(operand)
        target = updated_place(self.ctx, self.eqn, self.body, number, operand, at)
        block = self.body.type(update.inputs[1])
        if not block.size:
            return
        axes = block_axes(target.shape, block.shape)
        lanes = block_lanes(axes, block.dtype)
        if not lanes:
            raise LoweringError(
                f"a block of {block} in {target.type}: its rows are no whole words, so "
                "that it needs a launch of its own"
            )
        landing, starts = self._landing(axes, lanes, update, target.size)
        body, operands = self._part([update.inputs[1], *starts])
        described = describe(body, operands, [target], lanes)
        self._add(described, lanes, [target], landing)

    def _landing(
        self, axes: Sequence[BlockAxis], lanes: int, update: Eqn, size: int
    ) -> tuple[Landing, list[Operand]]:
        """Where chunks go, and the starts that are data."""
        rest = self.body.type(update.inputs[1]).size // lanes
        walk = []
        for axis in axes[:-1]:
            rest //= axis.size
            walk.append((rest, axis.step // lanes))
        base = 0
        data: list[Operand] = []
        starts: list[tuple[DType, int, int]] = []
        for axis in axes:
            start = update.inputs[2 + axis.number]
            step = axis.start_step // lanes
            if not axis.room:
                continue
            if isinstance(start, Scalar):
                base += min(max(int(start.value), 0), axis.room) * step
            else:
                data.append(start)
                starts.append((self.body.type(start).dtype, axis.room + 1, step))
        return Landing(tuple(walk), tuple(starts), base, size), data

    def _part(self, results: Sequence[Operand]) -> tuple[Graph, list[View | Scalar]]:
        """What of the body makes some values, and the operands of that."""
        body = self.body
        builder = Builder(composites=True)
        needed = needed_equations(body, results)
        read = {o for index in needed for o in body.eqns[index].inputs} | {*results}
        known: dict[ValueId, ValueId] = {}
        operands = []
        for value, operand in self.operands.items():
            if value in read:
                known[value] = builder.input(body.type(value))
                operands.append(self.ctx.view(operand))
        for index in needed:
            eqn = body.eqns[index]
            inputs = (o if isinstance(o, Scalar) else known[o] for o in eqn.inputs)
            outs = builder.emit(eqn.op, tuple(inputs))
            known.update(zip(eqn.outs, outs, strict=True))
        for result in results:
            assert not isinstance(result, Scalar)
            builder.result(known[result])
        return builder.finish(), operands

    def _add(
        self,
        described: Described,
        lanes: int,
        outs: Sequence[View],
        landing: Landing | None = None,
    ) -> None:
        region = described.region
        pointers = tuple(
            self.buffers.setdefault(where, len(self.buffers))
            for where in described.buffers
        )
        total = region.total
        assert isinstance(total, int)
        first = self.sections[-1].end if self.sections else 0
        end = first - (-total // (lanes * self.workgroup))
        # Which buffers they are in is no part of the code.
        region = replace(region, pointers=())
        section = Section(region, pointers, lanes, first, end, landing)
        self.sections.append(section)
        self.targets += outs
        self.reads += described.reads
        self.flops += total * sum(isinstance(s.action, Apply) for s in region.steps)


# --- the kernel -------------------------------------------------------------


@kernel_cache
def sections_kernel(
    info: DeviceInfo,
    sections: tuple[Section, ...],
    indirect: tuple[bool, ...],
    workgroup: int,
) -> Kernel:
    """The kernel of all sections. Operands: the buffers read, then their targets.

    `indirect` says of each buffer read whether its address comes through the table.
    """
    steps = sum(len(section.region.steps) for section in sections)
    k = KernelBuilder(f"sections_{len(sections)}_{steps}", info, (workgroup, 1, 1))
    sources = [
        k.operand(f"x{number}", Access.READ, indirect=flag)
        for number, flag in enumerate(indirect)
    ]
    targets: list[list[Pointer]] = []
    for number, section in enumerate(sections):
        targets.append(
            [
                k.operand(f"y{number}_{n}", Access.WRITE, indirect=target.indirect)
                for n, target in enumerate(section.region.targets)
            ]
        )
    group = k.workgroup_index()

    def emit(number: int) -> None:
        section = sections[number]

        def run() -> None:
            place = k.sub(group, section.first)
            chunk = k.add(k.mul(place, workgroup), k.local_index())
            _compute(k, section, sources, targets[number], chunk)

        if number + 1 == len(sections):
            run()
            return
        with k.when(k.lt(group, section.end)) as branch:
            run()
        with branch.otherwise():
            emit(number + 1)

    emit(0)
    parts = ", ".join(f"{s.end - s.first} x {s.lanes} lanes" for s in sections)
    return k.finish(f"{workgroup} invocations, sections of {parts}")


def _compute(
    k: KernelBuilder,
    section: Section,
    sources: Sequence[Pointer],
    targets: Sequence[Pointer],
    chunk: Value,
) -> None:
    """Compute chunk number `chunk` of a section, if there is one."""
    region, lanes = section.region, section.lanes
    coordinates = Coordinates(k, lanes)
    pointers = [sources[number] for number in section.pointers]
    evaluator = Evaluator(coordinates, region, pointers)
    total = evaluator.size(region.total)
    with k.when(k.lt(chunk, k.ceil_div(total, lanes))):
        flat = Strided(Linear(((chunk, lanes),)), 1 if lanes > 1 else 0)
        index = Index((Block(evaluator.sizes(region.shape), flat),))
        packs = [evaluator.value(target.value, index) for target in region.targets]
        place, size = chunk, total
        if section.landing is not None:
            place = _place(k, evaluator, section.landing, index, chunk)
            size = section.landing.size
        # Only now, since a result may overwrite an operand.
        for target, pointer, pack in zip(region.targets, targets, packs, strict=True):
            evaluator.memory.store(
                pointer, target.dtype, place, pack, size, target.alignment
            )


def _place(
    k: KernelBuilder, evaluator: Evaluator, landing: Landing, index: Index, chunk: Value
) -> Value:
    """The chunk of the target that a chunk of the block goes to."""
    place = k.u32(landing.base)
    numbers = evaluator.region.numbers
    for ref, (dtype, count, step) in zip(numbers, landing.starts, strict=True):
        (start,) = evaluator.value(ref, evaluator.operand_index(ref, index))
        place = k.add(place, k.mul(clamped_index(k, start, dtype, count), step))
    rest = chunk
    for behind, step in landing.walk:
        place = k.add(place, k.mul(k.index_div(rest, behind), step))
        rest = k.index_rem(rest, behind)
    return k.add(place, rest)
