"""Contraction by subgroups that hand the left operand round, without shared memory.

Each subgroup computes a block of results: some rows by some chunks of columns a lane. A
lane loads its share of the rows, which all lanes then get in turn by shuffles, and
columns of its own. On a CPU device shared memory and barriers cost more than they save,
and loads cost by the lane, so that the more results share a load the better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.cache import kernel_cache
from poot.lowering.kernels.contraction import CHUNK, Work
from poot.lowering.kernels.contraction_io import Frame, Reader, frames, move_up, tasks
from poot.lowering.program import Kernel
from poot.lowering.spirv.builder import KernelBuilder, Size, Value, Variable

# What a load costs a subgroup, in products of as many lanes (measured on lavapipe).
_LOAD_COST = 50
# Rows that a round of the closing loop stores.
_STORED_ROWS = 2


@dataclass(frozen=True, slots=True)
class Block:
    """The results of a subgroup: rows, and chunks of columns a lane."""

    rows: int
    chunks: int

    def step(self, lanes: int) -> int:
        """The k that one round of the loop sums."""
        return CHUNK * max(lanes // self.rows, 1)

    def columns(self, lanes: int) -> int:
        return self.chunks * lanes * CHUNK

    def count(self, m: int, n: int, lanes: int) -> int:
        """How many cover m rows by n columns."""
        return -(-m // self.rows) * -(-n // self.columns(lanes))

    def cost(self, m: int, n: int, lanes: int) -> float:
        """What m rows by n columns take for each k, by the loads and the products."""
        own = self.chunks * CHUNK
        loads = self.rows / lanes + own
        return self.count(m, n, lanes) * (_LOAD_COST * loads + self.rows * own)


@kernel_cache
def lanes_kernel(info: DeviceInfo, work: Work, block: Block) -> Kernel:
    lanes = info.subgroup_size
    k = KernelBuilder("matmul_lanes", info, (lanes, 1, 1))

    # Neighbouring workgroups share columns, which are far apart in memory: so they stay
    # in the cache. Rows are read in their order, which needs it less.
    def tiles(frame: Frame) -> Size:
        across = k.ceil_div(frame.n, block.columns(lanes))
        return k.mul(k.ceil_div(frame.m, block.rows), across)

    for frame, number in tasks(k, frames(k, work), tiles):
        down = k.ceil_div(frame.m, block.rows)
        row = k.mul(k.index_rem(number, down), block.rows)
        first_column = k.mul(k.index_div(number, down), block.columns(lanes))
        column = k.add(first_column, k.mul(k.subgroup_lane(), CHUNK))
        columns = [k.add(column, lanes * CHUNK * i) for i in range(block.chunks)]
        count = block.chunks * CHUNK
        sums = [[frame.zeros(count) for _ in frame.rights] for _ in range(block.rows)]
        _sum(frame, sums, row, columns, block.step(lanes))
        _store(frame, sums, row, columns)
    return k.finish(f"lanes {block.rows}x{block.columns(lanes)}x{block.step(lanes)}")


# By row, head and column.
_Sums = list[list[list[Variable]]]


def _sum(
    frame: Frame,
    sums: _Sums,
    first_row: Size,
    columns: Sequence[Size],
    step: int,
) -> None:
    k, rows, lanes = frame.k, len(sums), frame.k.subgroup_size
    lane = k.subgroup_lane()
    last = k.sub(frame.m, 1)
    my_row = k.add(first_row, k.index_rem(lane, rows))
    my_rows = [k.min(k.add(my_row, skip), last) for skip in range(0, rows, lanes)]
    my_inner = k.mul(k.index_div(lane, rows), CHUNK)
    places = [k.add(column, c) for column in columns for c in range(CHUNK)]
    frame.left.find(my_rows)
    for right in frame.rights:
        right.find(places)
    whole = k.mul(k.index_div(frame.depth, step), step)
    most = frame.problem.span_limit // step + 1
    with k.loop(whole, step=step, max_trips=most) as at:
        inner = k.add(at, my_inner)
        held = [frame.left.along_inner(row, inner) for row in my_rows]
        for part in range(step // CHUNK):
            here = k.add(at, part * CHUNK)
            mine = [_columns(k, right, columns, here) for right in frame.rights]
            _update(frame, sums, held, mine, part * rows)
    if isinstance(frame.depth, int) and frame.depth % step == 0:
        return
    with k.loop(frame.depth, start=whole, max_trips=step) as at:
        held = [[frame.left.element(row, at)] for row in my_rows]
        mine = [[[r.element(place, at) for place in places]] for r in frame.rights]
        _update(frame, sums, held, mine, 0)


def _columns(
    k: KernelBuilder, right: Reader, columns: Sequence[Size], at: Size
) -> list[list[Value]]:
    """The lane's part of a right operand, by CHUNK k and then by column."""
    chunks = [right.block(column, at) for column in columns]
    return [list(chain.from_iterable(by_k)) for by_k in zip(*chunks, strict=True)]


def _update(
    frame: Frame,
    sums: _Sums,
    held: list[list[Value]],
    columns: list[list[list[Value]]],
    first_lane: int,
) -> None:
    """Add the products of some k; a lane holds the left operand of each of its rows.

    Row by row and sum by sum: there are more sums than registers, so each is best
    fetched once for all k.
    """
    k = frame.k
    lanes = k.subgroup_size
    for r, heads in enumerate(sums):
        source = first_lane + r % lanes
        row = [k.subgroup_shuffle(value, source) for value in held[r // lanes]]
        for head_sums, mine in zip(heads, columns, strict=True):
            for c, sum in enumerate(head_sums):
                total = sum.load()
                for a, by_column in zip(row, mine, strict=True):
                    total = k.add(total, k.mul(a, by_column[c]))
                sum.store(total)


def _store(frame: Frame, sums: _Sums, first_row: Size, columns: Sequence[Size]) -> None:
    """Write all rows, a few a round, moving the others up: stores are much code."""
    k = frame.k
    few = min(len(sums), 1 if frame.problem.epilogue else _STORED_ROWS)
    with k.loop(len(sums), step=few) as done:
        for r in range(few):
            for chunk, column in enumerate(columns):
                part = slice(chunk * CHUNK, (chunk + 1) * CHUNK)
                values = [[sum.load() for sum in head[part]] for head in sums[r]]
                frame.store(k.add(first_row, k.add(done, r)), column, values)
        move_up(sums, few)
