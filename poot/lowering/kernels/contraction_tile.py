"""Contraction by tiles in shared memory, each invocation with a tile of registers."""

from __future__ import annotations

from dataclasses import dataclass

from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.cache import kernel_cache
from poot.lowering.kernels.contraction import CHUNK, Contraction
from poot.lowering.kernels.contraction_io import Frame, Reader
from poot.lowering.program import Kernel
from poot.lowering.spirv.builder import Shared, Size, Value, Variable


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows, columns and k of a workgroup; each invocation has CHUNK x CHUNK results."""

    rows: int
    columns: int
    depth: int

    @property
    def invocations(self) -> int:
        return self.rows * self.columns // CHUNK**2

    def shared_bytes(self, itemsize: int) -> int:
        return self.depth * (self.rows + self.columns) * itemsize

    def __str__(self) -> str:
        return f"tile {self.rows}x{self.columns}x{self.depth}"


def tile_groups(m: int, n: int, tile: Tile) -> int:
    """Workgroups of one batch and split."""
    return -(-m // tile.rows) * -(-n // tile.columns)


@kernel_cache
def tile_kernel(info: DeviceInfo, problem: Contraction, tile: Tile) -> Kernel:
    frame = Frame("matmul_tile", info, problem, tile.invocations)
    k = frame.k
    left = k.shared(frame.sum_type, tile.depth * tile.rows)
    right = k.shared(frame.sum_type, tile.depth * tile.columns)
    tiles_n = k.ceil_div(frame.n, tile.columns)
    across = tile.columns // CHUNK
    my_row = k.mul(k.index_div(k.local_index(), across), CHUNK)
    my_column = k.mul(k.index_rem(k.local_index(), across), CHUNK)
    with frame.workgroup(k.mul(k.ceil_div(frame.m, tile.rows), tiles_n)) as number:
        row = k.mul(k.index_div(number, tiles_n), tile.rows)
        column = k.mul(k.index_rem(number, tiles_n), tile.columns)
        sums = [frame.zeros(CHUNK) for _ in range(CHUNK)]
        most = problem.span_limit // tile.depth + 1
        with k.loop(frame.depth, step=tile.depth, max_trips=most) as at:
            _fill(frame, frame.left, left, tile.rows, row, frame.m, at, tile)
            _fill(frame, frame.right, right, tile.columns, column, frame.n, at, tile)
            k.barrier()
            for i in range(tile.depth):
                _update(
                    frame,
                    sums,
                    left,
                    k.add(my_row, i * tile.rows),
                    right,
                    k.add(my_column, i * tile.columns),
                )
            k.barrier()
        for r, row_sums in enumerate(sums):
            values = [sum.load() for sum in row_sums]
            at_row = k.add(row, k.add(my_row, r))
            frame.store(at_row, k.add(column, my_column), values)
    return k.finish(str(tile))


def _update(
    frame: Frame,
    sums: list[list[Variable]],
    left: Shared,
    row: Size,
    right: Shared,
    column: Size,
) -> None:
    """Add the outer product of CHUNK rows and CHUNK columns at one k."""
    k = frame.k
    rows = [left.load(k.add(row, r)) for r in range(CHUNK)]
    columns = [right.load(k.add(column, c)) for c in range(CHUNK)]
    for row_sums, a in zip(sums, rows, strict=True):
        for sum, b in zip(row_sums, columns, strict=True):
            frame.accumulate(sum, a, b)


def _fill(
    frame: Frame,
    source: Reader,
    target: Shared,
    width: int,
    first: Size,
    limit: Size,
    at: Value,
    tile: Tile,
) -> None:
    """Bring `depth` x `width` elements to shared memory, zeros past the end of k."""
    k = frame.k
    chunks = tile.depth * width // CHUNK
    local = k.local_index()
    inner_first = source.vector != "outer"
    for round in range(-(-chunks // tile.invocations)):
        number = k.add(local, round * tile.invocations)
        with k.when(k.lt(k.value(number), chunks)):
            if inner_first:
                per_row = tile.depth // CHUNK
                outer = k.index_div(number, per_row)
                depth = k.mul(k.index_rem(number, per_row), CHUNK)
            else:
                per_row = width // CHUNK
                depth = k.index_div(number, per_row)
                outer = k.mul(k.index_rem(number, per_row), CHUNK)
            values = _chunk(frame, source, k.add(first, outer), limit, at, depth)
            for i, value in enumerate(values):
                d, o = (i, 0) if inner_first else (0, i)
                place = k.mul(k.add(depth, d), width)
                target.store(k.add(place, k.add(outer, o)), value)


def _chunk(
    frame: Frame, source: Reader, outer: Size, limit: Size, at: Value, depth: Size
) -> list[Value]:
    """CHUNK elements along k or along the rows; zero where k is past the end."""
    k = frame.k
    inner = k.add(at, depth)
    zero = k.const(frame.sum_type, 0)
    if source.vector == "outer":
        inside = k.lt(k.value(inner), frame.depth)
        return [k.select(inside, v, zero) for v in source.run(outer, inner)]
    row = k.min(outer, k.sub(limit, 1))
    if source.vector == "inner":
        values = source.run(row, inner)
    else:
        values = [source.element(row, k.add(inner, i)) for i in range(CHUNK)]
    return [
        k.select(k.lt(k.value(k.add(inner, i)), frame.depth), value, zero)
        for i, value in enumerate(values)
    ]
