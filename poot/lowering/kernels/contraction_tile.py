"""Contraction by tiles in shared memory, each invocation with a tile of registers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.cache import kernel_cache
from poot.lowering.kernels.contraction import CHUNK, Work
from poot.lowering.kernels.contraction_io import Frame, Reader, frames, move_up, tasks
from poot.lowering.kernels.contraction_prologue import KeptRows
from poot.lowering.program import Kernel
from poot.lowering.spirv.builder import KernelBuilder, Shared, Size, Value, Variable


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows, columns and k of a workgroup; each invocation has CHUNK x CHUNK results."""

    rows: int
    columns: int
    depth: int

    @property
    def invocations(self) -> int:
        return self.rows * self.columns // CHUNK**2

    def shared_bytes(self, itemsize: int, heads: int = 1) -> int:
        return self.depth * (self.rows + heads * self.columns) * itemsize

    def __str__(self) -> str:
        return f"tile {self.rows}x{self.columns}x{self.depth}"


def tile_groups(m: int, n: int, tile: Tile) -> int:
    """Workgroups of one batch and split."""
    return -(-m // tile.rows) * -(-n // tile.columns)


@kernel_cache
def tile_kernel(info: DeviceInfo, work: Work, tile: Tile) -> Kernel:
    k = KernelBuilder("matmul_tile", info, (tile.invocations, 1, 1))
    all_frames = frames(k, work)
    heads = work.heads
    ty = all_frames[0].sum_type
    left = k.shared(ty, tile.depth * tile.rows)
    rights = [k.shared(ty, tile.depth * tile.columns) for _ in range(heads)]
    across = tile.columns // CHUNK
    my_row = k.mul(k.index_div(k.local_index(), across), CHUNK)
    my_column = k.mul(k.index_rem(k.local_index(), across), CHUNK)

    def tiles(frame: Frame) -> Size:
        tiles_n = k.ceil_div(frame.n, tile.columns)
        return k.mul(k.ceil_div(frame.m, tile.rows), tiles_n)

    for frame, number in tasks(k, all_frames, tiles):
        tiles_n = k.ceil_div(frame.n, tile.columns)
        row = k.mul(k.index_div(number, tiles_n), tile.rows)
        column = k.mul(k.index_rem(number, tiles_n), tile.columns)
        place = _Place(row, column, my_row, my_column)
        sums = _sums(frame, tile, left, rights, place)
        _store(frame, sums, k.add(row, my_row), k.add(column, my_column))
    return k.finish(str(tile))


class _Place(NamedTuple):
    """Where a workgroup's tile begins, and the results of an invocation in it."""

    row: Size
    column: Size
    my_row: Size
    my_column: Size


# Of an invocation: by row, head and column.
_Sums = list[list[list[Variable]]]


def _sums(
    frame: Frame, tile: Tile, left: Shared, rights: Sequence[Shared], place: _Place
) -> _Sums:
    k = frame.k
    sums = [[frame.zeros(CHUNK) for _ in frame.rights] for _ in range(CHUNK)]
    fills = [Fill(frame, tile, frame.left, left, tile.rows, place.row, frame.m)]
    for reader, shared in zip(frame.rights, rights, strict=False):
        part = (reader, shared, tile.columns, place.column, frame.n)
        fills.append(Fill(frame, tile, *part))
    most = frame.problem.span_limit // tile.depth + 1
    with k.loop(frame.depth, step=tile.depth, max_trips=most) as at:
        for fill in fills:
            fill.run(at)
        k.barrier()
        for i in range(tile.depth):
            _update(frame, tile, sums, left, rights, place, i)
        k.barrier()
    return sums


def _update(
    frame: Frame,
    tile: Tile,
    sums: _Sums,
    left: Shared,
    rights: Sequence[Shared],
    place: _Place,
    i: int,
) -> None:
    """Add the outer product of CHUNK rows and CHUNK columns of each head at one k."""
    k = frame.k
    row = k.add(place.my_row, i * tile.rows)
    column = k.add(place.my_column, i * tile.columns)
    rows = [left.load(k.add(row, r)) for r in range(CHUNK)]
    for head, right in enumerate(rights[: len(frame.rights)]):
        columns = [right.load(k.add(column, c)) for c in range(CHUNK)]
        for row_sums, a in zip(sums, rows, strict=True):
            for sum, b in zip(row_sums[head], columns, strict=True):
                frame.accumulate(sum, a, b)


def _store(frame: Frame, sums: _Sums, row: Size, column: Size) -> None:
    """Write all rows, one a round if an epilogue makes it much code."""
    k = frame.k
    if frame.problem.epilogue is None:
        for r, heads in enumerate(sums):
            values = [[sum.load() for sum in head] for head in heads]
            frame.store(k.add(row, r), column, values)
        return
    with k.loop(CHUNK) as done:
        values = [[sum.load() for sum in head] for head in sums[0]]
        frame.store(k.add(row, done), column, values)
        move_up(sums, 1)


class Fill:
    """How a workgroup brings its rows or columns of an operand to shared memory."""

    def __init__(
        self,
        frame: Frame,
        tile: Tile,
        source: Reader | KeptRows,
        target: Shared,
        width: int,
        first: Size,
        limit: Size,
    ) -> None:
        self._frame, self._tile = frame, tile
        self._source, self._target, self._width = source, target, width
        self._inner_first = source.vector != "outer"
        last = frame.k.sub(limit, 1)
        self._chunks: list[tuple[Size, Size, Size, Size]] = []
        for number, outer, depth in self._walk():
            row = frame.k.add(first, outer)
            # Chunks along the outer axis are whole ones, and bounded by the operand.
            row = frame.k.min(row, last) if self._inner_first else row
            self._chunks.append((number, outer, depth, row))
        source.find([row for *_, row in self._chunks])

    def _walk(self) -> Iterator[tuple[Size, Size, Size]]:
        """The chunks of an invocation: number, place along the tile, and along k."""
        k, tile, width = self._frame.k, self._tile, self._width
        for round in range(-(-tile.depth * width // CHUNK // tile.invocations)):
            number = k.add(k.local_index(), round * tile.invocations)
            if self._inner_first:
                per_row = tile.depth // CHUNK
                outer = k.index_div(number, per_row)
                yield number, outer, k.mul(k.index_rem(number, per_row), CHUNK)
            else:
                per_row = width // CHUNK
                outer = k.mul(k.index_rem(number, per_row), CHUNK)
                yield number, outer, k.index_div(number, per_row)

    def run(self, at: Value) -> None:
        """Bring `depth` x `width` elements from `at` on, zeros past the end of k."""
        k, width = self._frame.k, self._width
        for number, outer, depth, row in self._chunks:
            with k.when(k.lt(k.value(number), self._tile.depth * width // CHUNK)):
                values = self._chunk(row, k.add(at, depth))
                for i, value in enumerate(values):
                    d, o = (i, 0) if self._inner_first else (0, i)
                    place = k.mul(k.add(depth, d), width)
                    self._target.store(k.add(place, k.add(outer, o)), value)

    def _chunk(self, row: Size, inner: Size) -> list[Value]:
        """CHUNK elements along k or along the rows; zero where k is past the end."""
        frame, source = self._frame, self._source
        k, zero = frame.k, frame.k.const(frame.sum_type, 0)
        if source.vector == "outer":
            inside = k.lt(k.value(inner), frame.depth)
            return [k.select(inside, v, zero) for v in source.run(row, inner)]
        return [
            k.select(k.lt(k.value(k.add(inner, i)), frame.depth), value, zero)
            for i, value in enumerate(source.along_inner(row, inner))
        ]
