"""The kernel of a region by tiles: see `tile_plan`.

Rows of the tile in shared memory are columns of the results. Its words are reordered,
by exclusive or of their low bits, such that neither the lanes that write rows nor those
that read columns meet in a bank.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.cache import kernel_cache
from poot.lowering.kernels.coordinates import Coordinates, Linear, Strided
from poot.lowering.kernels.elements import store_element
from poot.lowering.kernels.evaluate import SIZE_LIMIT, Evaluator
from poot.lowering.kernels.index import Block, Index
from poot.lowering.kernels.memory import WORD_BYTES, ChunkMemory, form, from_bits
from poot.lowering.kernels.operands import source_operands, target_operands
from poot.lowering.kernels.pack import Pack, lane_of
from poot.lowering.kernels.region import Dim, Load, Step, Target
from poot.lowering.kernels.tile_plan import Staged, TileProgram, TileSchedule
from poot.lowering.program import Kernel
from poot.lowering.spirv.builder import KernelBuilder, Pointer, Size, Value
from poot.lowering.spirv.grid import fold_grid
from poot.lowering.spirv.memory import Shared
from poot.lowering.spirv.types import U32, vector

_BANKS, _QUAD = 32, 4
# Lanes side by side along a row of 16 bytes each, before the next row: whole lines.
_SIDE = 8


@kernel_cache
def tile_kernel(
    info: DeviceInfo, program: TileProgram, schedule: TileSchedule
) -> Kernel:
    """The kernel of a tile program. Operands: the buffers read, then the results."""
    return _TileKernel(info, program, schedule).build()


class _Tile:
    """One operand's tile in shared memory, in words, or in pairs of them."""

    def __init__(
        self, k: KernelBuilder, staged: Staged, program: TileProgram, s: TileSchedule
    ) -> None:
        self.k, self.staged = k, staged
        self.source = program.region.sources[staged.source]
        itemsize = self.source.dtype.itemsize
        # Elements of a unit, and units of a row.
        self.per_unit = max(WORD_BYTES // itemsize, 1)
        self.width = s.rows // self.per_unit
        self.lanes = s.lanes
        # What columns and chunks of them change of their places: only bits below their
        # own, so that no two places become one.
        self.low = min(s.lanes, _QUAD) - 1 if self.width > 1 else 0
        self.spread = _QUAD if self.width * s.lanes > _QUAD else 0
        self.is_wide = itemsize > WORD_BYTES
        unit = vector(U32, 2) if self.is_wide else U32
        count = max(self.width * s.columns, _BANKS)
        self.memory: Shared = k.shared(unit, count)

    def put(self, column: Value, place: Value, words: Sequence[Value]) -> None:
        """Write neighbouring units of a column from the unit `place` on."""
        k = self.k
        units = list(words)
        if self.is_wide:
            pair, two = zip(words[::2], words[1::2], strict=True), vector(U32, 2)
            units = [k.construct(two, *each) for each in pair]
        start = k.add(k.mul(column, self.width), place)
        chunk = k.shr(column, self.lanes.bit_length() - 1)
        mask = k.xor(self._mask(chunk), k.and_(column, self.low))
        first = k.xor(start, mask)
        for number, unit in enumerate(units):
            self.memory.store(k.xor(first, number), unit)

    def get(self, chunk: Value, place: Value) -> list[Value]:
        """Unit `place` of each of the columns of a chunk."""
        k = self.k
        start = k.add(k.mul(chunk, self.lanes * self.width), place)
        first = k.xor(start, self._mask(chunk))
        return [
            self.memory.load(k.xor(first, lane * self.width ^ lane & self.low))
            for lane in range(self.lanes)
        ]

    def _mask(self, chunk: Value) -> Value:
        return self.k.and_(self.k.mul(chunk, self.spread), _BANKS - 1)


class _Results(Evaluator):
    """Computes results from tiles."""

    def __init__(
        self,
        coordinates: Coordinates,
        program: TileProgram,
        pointers: Sequence[Pointer],
        tiles: Sequence[_Tile],
    ) -> None:
        super().__init__(coordinates, program.region, pointers)
        self._program, self._tiles = program, tiles
        # Where the lanes are now: in the runs, and in which row of the group.
        self._at: Index = Index(())
        self._row = 0
        # Of each tile, the units of that group of rows.
        self._units: list[list[list[Value]]] = []

    def begin(self, chunk: Value, group: Value, together: int) -> None:
        """Go to a chunk of columns and a group of rows of the tile."""
        k = self.k
        self._units = []
        for tile in self._tiles:
            parts = together // tile.per_unit
            first = k.mul(group, parts)
            self._units.append(
                [tile.get(chunk, k.add(first, part)) for part in range(parts)]
            )

    def results(self, at: Index, row: int) -> list[Pack]:
        """The results at the runs `at`, which is row number `row` of the group."""
        self._at, self._row = at, row
        return [self.value(target.value, at) for target in self.region.targets]

    def _load(self, action: Load, step: Step, index: Index) -> Pack:
        for number, tile in enumerate(self._tiles):
            staged = tile.staged
            if staged.source == action.source and (
                staged.alone or self._place(tile.source, index) == self._there(staged)
            ):
                return self._staged(number, tile)
        return super()._load(action, step, index)

    def _there(self, staged: Staged) -> Strided:
        """Where the lanes look, in a program of one shape."""
        assert isinstance(staged.offset, int)
        base, step = Linear((), staged.offset), 0
        for block, stride in zip(self._at.blocks, staged.strides, strict=True):
            assert isinstance(block.flat, Strided) and isinstance(stride, int)
            base = base.plus(block.flat.base.times(stride))
            step += block.flat.step * stride
        return Strided(base, step)

    def _staged(self, number: int, tile: _Tile) -> Pack:
        k, dtype = self.k, tile.source.dtype
        part, element = divmod(self._row, tile.per_unit)
        units = self._units[number][part]
        if tile.is_wide:
            return tuple(k.bitcast(unit, form(dtype)) for unit in units)
        if tile.per_unit == 1:
            return tuple(from_bits(k, unit, dtype) for unit in units)
        bits = [k.shr(unit, element * dtype.bits) for unit in units]
        if element + 1 < tile.per_unit:
            bits = [k.and_(each, (1 << dtype.bits) - 1) for each in bits]
        return tuple(from_bits(k, each, dtype) for each in bits)


class _TileKernel:
    """The kernel in the making."""

    def __init__(
        self, info: DeviceInfo, program: TileProgram, schedule: TileSchedule
    ) -> None:
        self.program, self.schedule = program, schedule
        region = program.region
        name = f"tiles_{region.targets[0].dtype}_{len(region.steps)}"
        self.k = KernelBuilder(name, info, (schedule.workgroup, 1, 1))
        self.sources = source_operands(self.k, region)
        self.targets = target_operands(self.k, region.targets)
        # Of single numbers.
        self.maps = Coordinates(self.k, 1)
        self.sizes = [self._size(self.maps, dim) for dim in program.sizes]

    def _size(self, maps: Coordinates, dim: Dim) -> Size:
        if isinstance(dim, int):
            return dim
        word = self.k.metadata(dim.number, limit=SIZE_LIMIT)
        return maps.note_multiple(word, dim.multiple)

    def build(self) -> Kernel:
        k, schedule = self.k, self.schedule
        self._find_tile()
        tiles = [
            _Tile(k, staged, self.program, schedule) for staged in self.program.staged
        ]
        waiting = [(tile, *each) for tile in tiles for each in self._loads(tile)]
        for tile, column, place, words in waiting:
            tile.put(column, place, words)
        k.barrier()
        coordinates = Coordinates(k, schedule.lanes)
        results = _Results(coordinates, self.program, self.sources, tiles)
        if schedule.rounds == 1:
            self._compute(results, k.u32(0))
        else:
            with k.loop(schedule.rounds) as number, results.scope():
                self._compute(results, k.mul(number, schedule.at_once))
        return k.finish(str(schedule))

    # --- where the tile is --------------------------------------------------

    def _find_tile(self) -> None:
        """The first place of the tile along each run."""
        k, program, schedule = self.k, self.program, self.schedule
        sizes, last = self.sizes, len(self.sizes) - 1
        rows = k.ceil_div(sizes[program.rows], schedule.rows)
        columns = k.ceil_div(sizes[-1], schedule.columns)
        others = [run for run in range(last) if run != program.rows]
        batch = self.maps.product(sizes[run] for run in others)
        layer = k.mul(rows, columns)
        groups = k.mul(layer, batch)
        group = k.workgroup_index()
        # A folded grid has a few workgroups more, which must not store.
        self.exists = k.lt(group, groups)
        if isinstance(groups, int):
            grid = math.prod(fold_grid(groups, k.info.max_workgroup_count))
            if grid == groups:
                self.exists = k.bool_(True)
                k.assume_below(group, groups)
        place, rest = k.index_rem(group, layer), k.index_div(group, layer)
        # Tiles along the last run follow each other: other orders were slower.
        row, column = k.index_div(place, columns), k.index_rem(place, columns)
        self.first: list[Linear] = [Linear()] * len(sizes)
        self.first[program.rows] = _times(row, schedule.rows)
        self.first[-1] = _times(column, schedule.columns)
        for run in reversed(others):
            self.first[run] = _times(k.index_rem(rest, sizes[run]), 1)
            rest = k.index_div(rest, sizes[run])

    def _fields(self, number: Value, *sizes: int) -> list[Value]:
        """The digits of a number, lowest first, of sizes that are powers of two."""
        k, fields, shift = self.k, [], 0
        for size in sizes:
            bits = size.bit_length() - 1
            fields.append(k.and_(k.shr(number, shift), size - 1))
            shift += bits
        return fields

    def _pair(self, number: Value, along: int, across: int) -> tuple[Value, Value]:
        """Which of so many places a lane has: lines along first, then across."""
        k, side = self.k, min(along, _SIDE)
        low, other, high = self._fields(number, side, across, along // side)
        return k.add(low, k.mul(high, side)), other

    # --- in, and out --------------------------------------------------------

    def _loads(self, tile: _Tile) -> list[tuple[Value, Value, list[Value]]]:
        """Load the tile: column, unit and words of what this invocation has."""
        k, program, schedule = self.k, self.program, self.schedule
        staged, source = tile.staged, tile.source
        maps = Coordinates(k, staged.lane)
        memory = ChunkMemory(maps)
        offset = maps.linear(self._size(maps, staged.offset))
        strides = [self._size(maps, stride) for stride in staged.strides]
        along = schedule.rows // staged.lane
        found = []
        for start in range(0, along * schedule.columns, schedule.workgroup):
            number = k.add(k.local_index(), start)
            chunk, column = self._pair(number, along, schedule.columns)
            places = list(self.first)
            places[program.rows] = places[program.rows].plus(_times(chunk, staged.lane))
            places[-1] = places[-1].plus(_times(column, 1))
            base = offset
            for place, stride in zip(places, strides, strict=True):
                base = base.plus(_stretched(maps, place, stride))
            words = memory.words(
                self.sources[source.pointer],
                source.dtype,
                Strided(base, staged.step),
                self._size(maps, source.bound),
                source.alignment,
            )
            unit = k.mul(chunk, staged.lane // tile.per_unit)
            found.append((column, unit, words))
        return found

    def _compute(self, results: _Results, first: Value) -> None:
        """Compute `at_once` chunks from number `first` on, then store them."""
        k, schedule = self.k, self.schedule
        ready = []
        for later in range(schedule.at_once):
            turn = k.mul(k.add(first, later), schedule.workgroup)
            number = k.add(k.local_index(), turn)
            chunks = schedule.columns // schedule.lanes
            groups = schedule.rows // schedule.together
            chunk, group = self._pair(number, chunks, groups)
            results.begin(chunk, group, schedule.together)
            for row in range(schedule.together):
                at, inside = self._at(chunk, group, row)
                ready.append((at, inside, results.results(at, row)))
        # Only now, so that the loads of all are under way.
        for at, inside, packs in ready:
            with k.when(inside):
                self._store(results, at, packs)

    def _at(self, chunk: Value, group: Value, row: int) -> tuple[Index, Value]:
        """Where the results of a chunk stand in the runs, and whether there are any."""
        k, program, schedule = self.k, self.program, self.schedule
        places = list(self.first)
        inner = _times(group, schedule.together).plus(Linear((), row))
        places[program.rows] = places[program.rows].plus(inner)
        places[-1] = places[-1].plus(_times(chunk, schedule.lanes))
        inside = self.exists
        for side, extent in ((program.rows, schedule.rows), (-1, schedule.columns)):
            size = self.sizes[side]
            if not isinstance(size, int) or size % extent:
                there = k.lt(self.maps.value(places[side]), size)
                inside = k.logical_and(inside, there)
        blocks = []
        for number, (run, place) in enumerate(zip(program.runs, places, strict=True)):
            last = number == len(places) - 1
            step = 1 if last and schedule.lanes > 1 else 0
            shape = program.region.shape[slice(*run)]
            sizes = tuple(self._size(self.maps, size) for size in shape)
            blocks.append(Block(sizes, Strided(place, step)))
        return Index(tuple(blocks)), inside

    def _store(self, results: _Results, at: Index, packs: Sequence[Pack]) -> None:
        k, lanes = self.k, self.schedule.lanes
        region = self.program.region
        maps = results.coordinates
        base = Linear()
        step: Size = 1
        sizes = [self._size(maps, dim) for dim in self.program.sizes]
        for block, size in zip(reversed(at.blocks), reversed(sizes), strict=True):
            assert isinstance(block.flat, Strided)
            base = base.plus(_stretched(maps, block.flat.base, step))
            step = maps.product((step, size))
        total = results.size(region.total)
        chunk = maps.value(maps.place(maps.divide(maps.uniform(base), lanes), 0))
        for target, pointer, pack in zip(
            region.targets, self.targets, packs, strict=True
        ):
            if lanes * target.dtype.itemsize >= WORD_BYTES:
                results.memory.store(
                    pointer, target.dtype, chunk, pack, total, target.alignment, True
                )
            else:
                self._store_small(pointer, target, k.mul(chunk, lanes), pack, total)

    def _store_small(
        self, pointer: Pointer, target: Target, first: Value, pack: Pack, total: Size
    ) -> None:
        """Chunks that are no whole words."""
        k = self.k
        for lane in range(self.schedule.lanes):
            value = lane_of(pack, lane)
            place = k.add(first, lane)
            store_element(k, pointer, target.dtype, place, value, total)


def _times(atom: Value, factor: int) -> Linear:
    """A number of the kernel times a factor."""
    if atom.const is not None:
        return Linear((), atom.const * factor)
    return Linear(((atom, factor),))


def _stretched(maps: Coordinates, number: Linear, factor: Size) -> Linear:
    """A number of the kernel times a size."""
    scaled = maps.scale(Strided(number, 0), factor)
    assert isinstance(scaled, Strided)
    return scaled.base
