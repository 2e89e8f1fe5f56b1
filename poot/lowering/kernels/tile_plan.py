"""Which regions go by tiles: those that read operands across the order of results.

Where the elements that stand side by side in an operand lie far apart in the results, a
kernel that walks the results reads a sector of memory for each element. So a workgroup
takes a tile of both orders: it brings the tile of the operand into shared memory, row
by row, and computes the results out of it, row by row of theirs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.coordinates import (
    Coordinate,
    Coordinates,
    Linear,
    Strided,
)
from poot.lowering.kernels.describe import Dims
from poot.lowering.kernels.evaluate import Evaluator
from poot.lowering.kernels.index import Block, Index
from poot.lowering.kernels.memory import WORD_BYTES
from poot.lowering.kernels.operands import source_operands
from poot.lowering.kernels.pack import Pack
from poot.lowering.kernels.region import Dim, Load, Permute, Region, Source, Step
from poot.lowering.kernels.shapes import axis_runs
from poot.lowering.plan.blocks import needs_words
from poot.lowering.plan.layout import SECTOR_BYTES, Layout
from poot.lowering.spirv.builder import KernelBuilder, Value

# Fewer elements are in the caches at once, whatever the order.
_LEAST_ELEMENTS = 1 << 16
# Narrower tiles are no better than plain kernels.
_LEAST_EXTENT = 4
_UNIT_BYTES = 16
# Of the tiles of one workgroup, as far as the device has it.
_MOST_SHARED = 48 << 10
# Rows and columns of a tile, by the bytes of the widest element in it.
_EXTENTS = {1: (128, 128), 2: (128, 64), 4: (64, 64), 8: (32, 64)}
_WORKGROUP, _LEAST_WORKGROUP = 256, 64
# So many tiles a compute unit are worth smaller tiles.
_TILES_PER_UNIT = 4
# Regions of more steps are computed chunk by chunk, in a loop.
_SHORT_REGION = 12
# Chunks whose operands are loaded before the first of them is stored.
_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Staged:
    """What is brought into shared memory: loads of a source at one sum over the runs.

    Element (i0, i1 …) of the runs of result axes stands at offset + i . strides.
    """

    source: int
    offset: Dim
    strides: tuple[Dim, ...]
    # The stride along the rows.
    step: int
    # Whether the source is read nowhere else.
    alone: bool
    # Elements along the rows that a lane loads together.
    lane: int


@dataclass(frozen=True, slots=True)
class TileProgram:
    """A region and what of it goes by tiles."""

    region: Region
    # Runs of result axes, first to last, which are walked as one each.
    runs: tuple[tuple[int, int], ...]
    sizes: tuple[Dim, ...]
    # The run along which the elements of the staged operands stand side by side; those
    # of the results do along the last run.
    rows: int
    staged: tuple[Staged, ...]

    @property
    def is_told_by_source(self) -> bool:
        """Whether what is staged is told from other loads by the source alone."""
        return all(staged.alone for staged in self.staged)

    def generic(self, region: Region, dims: Dims) -> TileProgram:
        """The same with sizes that launches give, where sources tell what is staged."""
        staged = tuple(
            replace(
                each,
                offset=dims(_number(each.offset)),
                strides=dims.of([_number(stride) for stride in each.strides]),
            )
            for each in self.staged
        )
        sizes = dims.of([_number(size) for size in self.sizes])
        return replace(self, region=region, sizes=sizes, staged=staged)


@dataclass(frozen=True, slots=True)
class TileSchedule:
    """How tiles are dealt out. All but the tiles of a region are powers of two."""

    # Elements of a tile along the rows' run, and along the last.
    rows: int
    columns: int
    workgroup: int
    # A chunk is `lanes` neighbouring results, of `together` neighbouring rows each.
    lanes: int
    together: int
    # Chunks computed before the first of them is stored, and rounds of that many.
    at_once: int
    rounds: int

    def groups(self, program: TileProgram) -> int:
        """Workgroups, a tile each, of a program of one shape."""
        return _tile_count(program, (self.rows, self.columns))

    def __str__(self) -> str:
        return (
            f"tiles of {self.rows} x {self.columns} by {self.workgroup} invocations, "
            f"{self.lanes} lanes of {self.together} rows"
        )


def _tile_count(program: TileProgram, extents: Sequence[int]) -> int:
    """How many tiles of so many rows and columns cover the results."""
    count = 1
    last = len(program.sizes) - 1
    for run, size in enumerate(program.sizes):
        extent = {program.rows: extents[0], last: extents[1]}.get(run, 1)
        count *= -(-_number(size) // extent)
    return count


def _number(dim: Dim) -> int:
    """A size of a program that is of one shape."""
    assert isinstance(dim, int)
    return dim


# --- where a region loads ---------------------------------------------------


class _Probe(Evaluator):
    """Computes one element of a region, to see where it loads."""

    def __init__(self, info: DeviceInfo, region: Region, shape: Sequence[int]) -> None:
        k = KernelBuilder("probe", info, (1, 1, 1))
        super().__init__(Coordinates(k, 1), region, source_operands(k, region))
        self.seen: dict[int, set[Coordinate]] = {}
        self._axes: dict[Value, int] = {}
        blocks = []
        for axis, size in enumerate(shape):
            place = Linear()
            if size > 1:
                atom = k.metadata(axis, limit=size)
                self._axes[atom] = axis
                place = Linear(((atom, 1),))
            blocks.append(Block((size,), Strided(place, 0)))
        for target in region.targets:
            self.value(target.value, Index(tuple(blocks)))

    def _load(self, action: Load, step: Step, index: Index) -> Pack:
        place = self._place(self.region.sources[action.source], index)
        self.seen.setdefault(action.source, set()).add(place)
        return super()._load(action, step, index)

    def layout(self, place: Coordinate, shape: Sequence[int]) -> Layout | None:
        """The strides of a place along the axes, if it is no more than that."""
        assert isinstance(place, Strided)
        strides = [0] * len(shape)
        for atom, factor in place.base.terms:
            axis = self._axes.get(atom)
            if axis is None or factor < 0:
                return None
            strides[axis] = factor
        return Layout(tuple(shape), tuple(strides), place.base.constant)


def may_cross(info: DeviceInfo, region: Region, total: int) -> bool:
    """Whether some operand may be read across the order of so many results."""
    if info.is_cpu or total < _LEAST_ELEMENTS:
        return False
    for source in region.sources:
        if source.groups and source.groups[-1][1] not in (0, 1):
            return True
    return any(
        isinstance(step.action, Permute)
        and step.action.perm[-1] != len(step.action.perm) - 1
        for step in region.steps
    )


@dataclass(frozen=True, slots=True)
class _Crossing:
    """Loads that cross the order of the results, and along which axis they do not."""

    source: int
    layout: Layout
    axis: int
    alone: bool
    bytes: int


def _crossings(info: DeviceInfo, region: Region, shape: list[int]) -> list[_Crossing]:
    probe = _Probe(info, region, shape)
    last = max(axis for axis, size in enumerate(shape) if size > 1)
    found = []
    for source, places in probe.seen.items():
        itemsize = region.sources[source].dtype.itemsize
        for place in places:
            layout = probe.layout(place, shape)
            if layout is None or layout.strides[last] * itemsize < SECTOR_BYTES:
                continue
            steps = [
                (step, axis) for axis, step in enumerate(layout.strides) if step > 0
            ]
            step, axis = min(steps)
            if axis == last or step * itemsize >= SECTOR_BYTES:
                continue
            size = itemsize * math.prod(shape[axis] for _, axis in steps)
            found.append(_Crossing(source, layout, axis, len(places) == 1, size))
    return found


# --- the choice -------------------------------------------------------------


def choose_tiles(
    info: DeviceInfo, region: Region, lanes: int
) -> tuple[TileProgram, TileSchedule] | None:
    """The tiles of a region of one shape, whose chunks have up to `lanes` elements."""
    shape = [_number(size) for size in region.shape]
    crossings = _crossings(info, region, shape)
    if not crossings:
        return None
    weights: dict[int, int] = {}
    for crossing in crossings:
        weights[crossing.axis] = weights.get(crossing.axis, 0) + crossing.bytes
    axis = max(weights, key=lambda axis: weights[axis])
    chosen = [crossing for crossing in crossings if crossing.axis == axis]
    program = _program(region, shape, chosen, axis)
    sides = _number(program.sizes[program.rows]), _number(program.sizes[-1])
    if min(sides) < _LEAST_EXTENT:
        return None
    schedule = _schedule(info, program, lanes)
    return None if schedule is None else (program, schedule)


def _program(
    region: Region, shape: list[int], chosen: list[_Crossing], axis: int
) -> TileProgram:
    # Loads at several places are told apart by the axes, one by one.
    starts = [n for n, size in enumerate(shape) if size > 1]
    if all(crossing.alone for crossing in chosen):
        layouts = [crossing.layout for crossing in chosen]
        starts = [start for start, _ in axis_runs(shape, [], layouts)]
    starts[0] = 0
    runs = tuple(zip(starts, [*starts[1:], len(shape)], strict=True))
    last = [max(n for n in range(*run) if shape[n] > 1) for run in runs]
    sizes = tuple(math.prod(shape[slice(*run)]) for run in runs)
    rows = next(n for n, run in enumerate(runs) if axis in range(*run))
    staged = []
    for crossing in chosen:
        offset = crossing.layout.offset
        strides = tuple(crossing.layout.strides[n] for n in last)
        lane = _lane(region.sources[crossing.source], offset, strides, sizes[rows])
        step = strides[rows]
        staged.append(
            Staged(crossing.source, offset, strides, step, crossing.alone, lane)
        )
    return TileProgram(region, runs, sizes, rows, tuple(staged))


def _lane(source: Source, offset: int, strides: Sequence[int], rows: int) -> int:
    """Elements that a lane loads together: a whole word at least."""
    itemsize = source.dtype.itemsize
    lane = min(_UNIT_BYTES // itemsize, _power_above(rows))
    if min(strides, key=lambda step: step or math.inf) > 1:
        lane = 1
    others = [step for step in strides if step != 1]
    common = math.gcd(offset, *others)
    while lane > 1 and (common % lane or source.alignment % (lane * itemsize)):
        lane //= 2
    return max(lane, WORD_BYTES // itemsize)


def _schedule(
    info: DeviceInfo, program: TileProgram, lanes: int
) -> TileSchedule | None:
    region, columns = program.region, _number(program.sizes[-1])
    lanes = math.gcd(lanes, columns)
    for target in region.targets:
        narrow = lanes * target.dtype.itemsize < WORD_BYTES
        if narrow and needs_words(target.dtype, info):
            return None
    dtypes = [region.sources[staged.source].dtype for staged in program.staged]
    together = max(WORD_BYTES // min(dtype.itemsize for dtype in dtypes), 1)
    extents = _extents(info, program, sum(dtype.itemsize for dtype in dtypes))
    least = max(together, *(staged.lane for staged in program.staged))
    if extents[0] < least or extents[1] < lanes:
        return None
    area = math.prod(extents)
    chunks = area // (lanes * together)
    most = min(info.max_workgroup_invocations, info.max_workgroup_size[0], _WORKGROUP)
    most = min(most, chunks, *(area // staged.lane for staged in program.staged))
    workgroup = 1 << most.bit_length() - 1
    if workgroup < _LEAST_WORKGROUP:
        return None
    at_once = 1
    if len(region.steps) <= _SHORT_REGION:
        at_once = min(chunks // workgroup, max(_AT_ONCE // together, 1))
    return TileSchedule(
        *extents,
        workgroup,
        lanes,
        together,
        at_once,
        chunks // workgroup // at_once,
    )


def _extents(
    info: DeviceInfo, program: TileProgram, element_bytes: int
) -> tuple[int, int]:
    """Rows and columns of a tile: no larger than the tensor, and many enough."""
    sizes = [_number(program.sizes[program.rows]), _number(program.sizes[-1])]
    ends = [_power_above(size) for size in sizes]
    region = program.region
    widest = max(region.sources[s.source].dtype.itemsize for s in program.staged)
    usual = _EXTENTS[widest]
    extents = [min(pair) for pair in zip(usual, ends, strict=True)]
    for side in range(2):
        while math.prod(extents) < math.prod(usual) and extents[side] < ends[side]:
            extents[side] *= 2

    def is_large() -> bool:
        if math.prod(extents) * element_bytes > min(
            info.max_shared_bytes, _MOST_SHARED
        ):
            return True
        few = _tile_count(program, extents) < _TILES_PER_UNIT * info.compute_units
        return few and math.prod(extents) * widest > _UNIT_BYTES * _WORKGROUP

    while is_large():
        extents[extents[1] > extents[0]] //= 2
    return extents[0], extents[1]


def _power_above(size: int) -> int:
    """The least power of two that is no less."""
    return 1 << (size - 1).bit_length()
