"""How a contraction is computed: the kind of kernel and its sizes, by device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

from poot.core.errors import LimitError
from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.contraction import CHUNK, Work
from poot.lowering.kernels.contraction_direct import direct_groups, direct_kernel
from poot.lowering.kernels.contraction_dot import (
    Dot,
    dot_kernel,
    loads_ahead,
    subgroups,
)
from poot.lowering.kernels.contraction_lanes import Block, lanes_kernel
from poot.lowering.kernels.contraction_tile import Tile, tile_groups, tile_kernel
from poot.lowering.program import Kernel

_BLOCKS = (Block(32, 2), Block(32, 1), Block(16, 2), Block(16, 1), Block(8, 1))
# What takes the least time to compile. From so many products on, larger blocks pay.
_SMALL_BLOCK = Block(4, 1)
_MANY_PRODUCTS = 1 << 23
_LONE = Dot()
# Up to so many rows no two results of a column are worth computing together.
_FEW_ROWS = 2
# Results of a subgroup, so that their sums stay in registers.
_MOST_SUMS = 16
# What tuning tries has so many products in a loop trip at most: more is much code.
_MOST_PRODUCTS = 512
# Workgroups that hide each other's waits.
_GROUPS_PER_UNIT = 4
# So many rows take no longer than one, if a subgroup has up to this many.
_SKINNY_ROWS = 16
_MOST_ROWS = 8
# Workgroups that each make the left operand, and what columns they have in turn.
_MAKING_GROUPS_PER_UNIT = 32
_MOST_ROUNDS = 64
# Up to so many, tuning tries kernels that compute each result apart.
_MOST_DIRECT_ROWS, _MOST_DOT_ROWS = 64, 8
# Sums of fewer products are not shared by a subgroup.
_SHORT_SUM = 64
# From so much k on several subgroups share a column, each with this much at least.
_SHARED_SUM, _LEAST_SHARE = 8192, 2048
# Invocations that keep a compute unit of a GPU busy.
_INVOCATIONS_PER_UNIT = 128
# What the k of a split is a multiple of.
SPLIT_STEP = 64
_TILES = (Tile(64, 64, 16), Tile(32, 32, 16), Tile(16, 16, 8), Tile(8, 8, 8))


@dataclass(frozen=True, slots=True)
class Extent:
    """What a schedule is chosen by: sizes, and how the right operand is stored."""

    m: int
    n: int
    k: int = 1
    batches: int = 1
    # Whether neighbouring k of a column stand side by side.
    inner_is_dense: bool = False
    # Results that are summed together at each place.
    heads: int = 1
    # How many elements of the right operand one load along k may bring.
    run: int = CHUNK

    @property
    def products(self) -> int:
        return self.m * self.n * self.k * self.batches * self.heads

    @property
    def turned(self) -> Extent:
        """Of the same contraction with the operands exchanged."""
        return Extent(self.n, self.m, self.k, self.batches)


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a contraction is computed: the kernel's kind and its sizes."""

    kind: str
    block: Block = _SMALL_BLOCK
    tile: Tile = _TILES[0]
    dot: Dot = _LONE

    @property
    def stores_chunks(self) -> bool:
        """Whether a kernel stores CHUNK columns at once."""
        return self.kind != "dot" or self.dot.columns == CHUNK

    def __str__(self) -> str:
        if self.kind == "lanes":
            return f"lanes {self.block.rows}x{self.block.chunks}"
        if self.kind == "tile":
            tile = self.tile
            return f"tile {tile.rows}x{tile.columns}x{tile.depth}"
        if self.kind == "dot" and self.dot.unroll > 1:
            return f"dot {self.dot.rows}x{self.dot.columns}, {self.dot.unroll} ahead"
        return self.kind

    def max_span(self, info: DeviceInfo) -> int:
        """The most k that one invocation may sum."""
        if info.max_loop_trips is None:
            return 1 << 30
        spare = 256
        per_trip = {
            "direct": 1,
            "dot": self.dot.step(info.subgroup_size) / self.dot.rounds,
            "lanes": self.block.step(info.subgroup_size),
            "tile": self.tile.depth,
        }[self.kind]
        trips = info.max_loop_trips - spare
        return max(int(trips * per_trip) // SPLIT_STEP * SPLIT_STEP, SPLIT_STEP)

    def kernel(self, info: DeviceInfo, work: Work) -> Kernel:
        if self.kind == "direct":
            return direct_kernel(info, work)
        if self.kind == "dot":
            return dot_kernel(info, work, self.dot)
        if self.kind == "lanes":
            return lanes_kernel(info, work, self.block)
        return tile_kernel(info, work, self.tile)

    def groups(self, info: DeviceInfo, m: int, n: int) -> int:
        """The workgroups of a batch and split."""
        if self.kind == "direct":
            return direct_groups(m, n, info)
        if self.kind == "dot":
            return self.dot.groups(m, n, info)
        if self.kind == "lanes":
            return self.block.count(m, n, info.subgroup_size)
        return tile_groups(m, n, self.tile)


def choose(extent: Extent, info: DeviceInfo, made: bool = False) -> Schedule:
    """The schedule for m rows by n columns, each a sum of k products, in batches.

    `made`: each workgroup makes the left operand first, so that they are not too many.
    """
    if made and _reads_once(extent, info):
        return Schedule("dot", dot=_in_rounds(_dot(extent, info), extent, info))
    m, n = extent.m, extent.n
    if m <= _FEW_ROWS:
        if extent.k < _SHORT_SUM or _fills(extent, info):
            return Schedule("direct")
        if info.subgroup_arithmetic:
            return Schedule("dot", dot=_dot(extent, info))
    if _is_skinny(extent, info):
        return Schedule("dot", dot=_dot(extent, info))
    if _takes_lanes(info):
        return Schedule("lanes", _block(extent, info.subgroup_size))
    fitting = [tile for tile in _TILES if _fits(tile, info, extent.heads)]
    if not fitting:
        raise LimitError(
            f"matmul: the smallest tile needs "
            f"{_TILES[-1].shared_bytes(8, extent.heads)} B of shared "
            f"memory and {_TILES[-1].invocations} invocations; {info.name} has "
            f"{info.max_shared_bytes} and {info.max_workgroup_invocations}"
        )
    for tile in fitting:
        if tile_groups(m, n, tile) * extent.batches >= info.compute_units:
            return Schedule("tile", tile=tile)
    return Schedule("tile", tile=fitting[-1])


def _is_skinny(extent: Extent, info: DeviceInfo) -> bool:
    """Whether reading the right operand takes longer than all else."""
    long = extent.k >= _SHORT_SUM
    return _reads_once(extent, info) and long and not _takes_lanes(info)


def _reads_once(extent: Extent, info: DeviceInfo) -> bool:
    """Whether a subgroup along k may do, with all rows or half of them."""
    few = extent.m <= _SKINNY_ROWS and info.subgroup_arithmetic
    return few and extent.inner_is_dense


def _in_rounds(dot: Dot, extent: Extent, info: DeviceInfo) -> Dot:
    """The same with workgroups that compute columns after columns."""
    wanted = info.compute_units * _MAKING_GROUPS_PER_UNIT
    rounds = extent.n // (dot.across(info) * wanted)
    return replace(dot, rounds=min(max(rounds, 1), _MOST_ROUNDS))


def _dot(extent: Extent, info: DeviceInfo) -> Dot:
    """What a subgroup computes: as many columns as leave enough workgroups."""
    parts = _parts(extent, info)
    rows, width = -(-extent.m // -(-extent.m // _MOST_ROWS)), extent.run
    # On a GPU one row is next to nothing to load again for each column.
    columns = CHUNK if info.is_cpu else 2 if rows > 1 else 1
    enough = info.compute_units * (1 if info.is_cpu else _GROUPS_PER_UNIT)
    while columns > 1 and (
        extent.batches * -(-extent.n // (columns * (subgroups(info) // parts))) < enough
        or rows * columns * extent.heads > _MOST_SUMS
    ):
        columns //= 2
    dot = Dot(rows, columns, width, parts=parts)
    if info.is_cpu:
        return dot
    lanes, size = info.subgroup_size, 16 // width
    unroll = loads_ahead(dot, extent.heads, size, extent.k, lanes)
    return replace(dot, unroll=unroll)


def _parts(extent: Extent, info: DeviceInfo) -> int:
    """The subgroups of a column.

    By k alone: joined with others or not, a contraction adds in the same order.
    """
    parts = 1
    if info.is_cpu or extent.k < _SHARED_SUM:
        return parts
    while 2 * parts <= min(subgroups(info), extent.k // _LEAST_SHARE):
        parts *= 2
    return parts


def candidates(extent: Extent, info: DeviceInfo, made: bool = False) -> list[Schedule]:
    """The schedules that are worth being timed."""
    found = []
    if made:
        dots = _dots(extent, info) if _reads_once(extent, info) else []
        return [Schedule("dot", dot=_in_rounds(dot, extent, info)) for dot in dots]
    if extent.m <= _MOST_DIRECT_ROWS:
        found.append(Schedule("direct"))
    if extent.m <= _MOST_DOT_ROWS and info.subgroup_arithmetic:
        found += [Schedule("dot", dot=dot) for dot in _dots(extent, info)]
    if _takes_lanes(info):
        blocks = (*_fitting_blocks(extent, info.subgroup_size), _SMALL_BLOCK)
        return [*found, *(Schedule("lanes", block) for block in blocks)]
    tiles = [tile for tile in _TILES if _fits(tile, info, extent.heads)]
    return [*found, *(Schedule("tile", tile=tile) for tile in tiles)]


def _dots(extent: Extent, info: DeviceInfo) -> list[Dot]:
    """What subgroups may compute; on a GPU more or fewer columns and loads at once.

    All of them add in the same order.
    """
    usual = _dot(extent, info)
    if info.is_cpu:
        return [usual]
    results = usual.rows * extent.heads
    chunks = extent.k // (usual.parts * info.subgroup_size * usual.width)
    others = [
        replace(usual, columns=columns, unroll=unroll)
        for columns, unroll in product((1, 2, 4), (2, 4, 8, 16))
        if results * columns <= _MOST_SUMS
        and results * columns * unroll * usual.width <= _MOST_PRODUCTS
        and unroll <= chunks
    ]
    return [usual, *others]


def exchange_pays(extent: Extent, info: DeviceInfo) -> bool:
    """Whether columns had better be the rows, for which fewer do."""
    if extent.n >= extent.m:
        return False
    if extent.n <= _FEW_ROWS:
        return True
    if not _takes_lanes(info) or extent.products < _MANY_PRODUCTS:
        return False
    lanes = info.subgroup_size
    costs = [
        _block(one, lanes).cost(one.m, one.n, lanes) for one in (extent, extent.turned)
    ]
    return 1.25 * costs[1] < costs[0]


def _takes_lanes(info: DeviceInfo) -> bool:
    return info.is_cpu and info.subgroup_shuffle and info.subgroup_size >= 4


def _fills(extent: Extent, info: DeviceInfo) -> bool:
    """Whether neighbouring invocations had better differ in their columns, not k."""
    chunks = extent.m * -(-extent.n // CHUNK) * extent.batches
    per_unit = 1 if info.is_cpu else _INVOCATIONS_PER_UNIT
    enough = chunks >= max(info.subgroup_size, info.compute_units * per_unit)
    return enough and not extent.inner_is_dense


def _block(extent: Extent, lanes: int) -> Block:
    """The results of a subgroup: many, unless most would lie past the ends."""
    if extent.products < _MANY_PRODUCTS:
        return _SMALL_BLOCK
    fitting = _fitting_blocks(extent, lanes)
    return min(fitting, key=lambda block: block.cost(extent.m, extent.n, lanes))


def _fitting_blocks(extent: Extent, lanes: int) -> list[Block]:
    """The large blocks that a subgroup can share, and hold for all heads."""
    return [
        b
        for b in _BLOCKS
        if (b.rows % lanes == 0 or lanes % b.rows == 0)
        and (b.chunks * extent.heads <= 2 or b is _BLOCKS[-1])
    ]


def _fits(tile: Tile, info: DeviceInfo, heads: int) -> bool:
    return (
        tile.shared_bytes(8, heads) <= info.max_shared_bytes
        and tile.invocations <= info.max_workgroup_invocations
        and tile.invocations <= info.max_workgroup_size[0]
    )
