"""Contraction with few rows: a subgroup has some results, its lanes along k.

Right for weights whose k stand side by side: each is read once, 16 bytes a lane, and
several loads are on their way before one is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.cache import kernel_cache
from poot.lowering.kernels.contraction import CHUNK, Work
from poot.lowering.kernels.contraction_io import Frame, frames, tasks
from poot.lowering.program import Kernel
from poot.lowering.spirv.builder import KernelBuilder, Size, Value, Variable

# Invocations of a workgroup where there are compute units to share.
_INVOCATIONS = 128
# Bytes of weights that a lane has on their way.
_BYTES_AHEAD = 64


@dataclass(frozen=True, slots=True)
class Dot:
    """Rows and columns of a subgroup, and rounds of columns of a workgroup.

    A lane sums `width` neighbouring elements at a time, `unroll` times in a loop trip.
    """

    rows: int = 1
    columns: int = 1
    width: int = CHUNK
    unroll: int = 1
    rounds: int = 1

    def step(self, lanes: int) -> int:
        """The k that a loop trip sums."""
        return lanes * self.width * self.unroll

    def across(self, info: DeviceInfo) -> int:
        """Columns of a workgroup."""
        return self.columns * subgroups(info) * self.rounds

    def groups(self, m: int, n: int, info: DeviceInfo) -> int:
        """Workgroups of one batch and split."""
        return -(-m // self.rows) * -(-n // self.across(info))


def subgroups(info: DeviceInfo) -> int:
    """Subgroups of a workgroup, which work apart from each other."""
    if info.is_cpu:
        return 1
    most = min(_INVOCATIONS, info.max_workgroup_invocations, info.max_workgroup_size[0])
    return max(1, most // info.subgroup_size)


def loads_ahead(columns: int, width: int, itemsize: int) -> int:
    """How often to unroll the loop, so that enough is on its way."""
    return max(1, _BYTES_AHEAD // (columns * width * itemsize))


@kernel_cache
def dot_kernel(info: DeviceInfo, work: Work, dot: Dot) -> Kernel:
    lanes, count = info.subgroup_size, subgroups(info)
    k = KernelBuilder("matmul_dot", info, (lanes * count, 1, 1))

    def tiles(frame: Frame) -> Size:
        across = k.ceil_div(frame.n, dot.across(info))
        return k.mul(k.ceil_div(frame.m, dot.rows), across)

    for frame, tile in tasks(k, frames(k, work), tiles):
        across = k.ceil_div(frame.n, dot.across(info))
        row = k.mul(k.index_div(tile, across), dot.rows)
        first = k.mul(k.index_rem(tile, across), dot.across(info))
        if dot.rounds == 1:
            _round(frame, dot, row, first)
            continue
        with k.loop(dot.rounds) as round:
            there = k.mul(round, dot.columns * count)
            _round(frame, dot, row, k.add(first, there))
    schedule = f"dot {dot.rows}x{dot.across(info)}x{dot.step(lanes)}"
    return k.finish(f"{schedule} subgroups {count}")


# By row, head and column, each in CHUNK parts.
_Sums = list[list[list[list[Variable]]]]


def _round(frame: Frame, dot: Dot, row: Size, first: Size) -> None:
    """The results of each subgroup in one round."""
    k = frame.k
    column = k.add(first, k.mul(k.subgroup_index(), dot.columns))
    with k.when(k.lt(k.value(column), frame.n)):
        sums = _lane_sums(frame, dot, row, column)
        totals = [
            [
                [k.subgroup_reduce("add", _added(frame, parts)) for parts in columns]
                for columns in heads
            ]
            for heads in sums
        ]
        with k.when(k.lt(k.subgroup_lane(), 1)):
            for r, heads in enumerate(totals):
                frame.store(k.add(row, r), column, heads)


def _lane_sums(frame: Frame, dot: Dot, row: Size, column: Size) -> _Sums:
    """The lane's part of each dot product."""
    k, lanes = frame.k, frame.k.subgroup_size
    last = k.sub(frame.m, 1)
    rows = [row if r == 0 else k.min(k.add(row, r), last) for r in range(dot.rows)]
    columns = [k.add(column, c) for c in range(dot.columns)]
    sums = [[[frame.zeros(CHUNK) for _ in columns] for _ in frame.rights] for _ in rows]
    frame.left.find(rows)
    for right in frame.rights:
        right.find(columns)
    mine = k.mul(k.subgroup_lane(), dot.width)
    step = dot.step(lanes)
    whole = k.mul(k.index_div(frame.depth, step), step)
    most = frame.problem.span_limit // step + 1
    with k.loop(whole, step=step, max_trips=most) as at:
        places = [
            k.add(k.add(at, u * lanes * dot.width), mine) for u in range(dot.unroll)
        ]
        _add_runs(frame, dot, sums, rows, columns, places)
    rest = k.add(whole, k.subgroup_lane())
    trips = dot.width * dot.unroll
    with k.loop(frame.depth, start=rest, step=lanes, max_trips=trips) as at:
        left = [frame.left.element(r, at) for r in rows]
        for head, right in enumerate(frame.rights):
            for c, there in enumerate(columns):
                b = right.element(there, at)
                for r, a in enumerate(left):
                    frame.accumulate(sums[r][head][c][0], a, b)
    return sums


def _add_runs(
    frame: Frame,
    dot: Dot,
    sums: _Sums,
    rows: Sequence[Size],
    columns: Sequence[Size],
    places: Sequence[Size],
) -> None:
    """Add the products of neighbouring elements from each of some places on."""
    heads = range(len(frame.rights))
    weights = {
        (u, head, c): frame.rights[head].along(there, place, dot.width)
        for (u, place), head, (c, there) in product(
            enumerate(places), heads, enumerate(columns)
        )
    }
    for u, place in enumerate(places):
        for r, row in enumerate(rows):
            left = frame.left.along(row, place, dot.width)
            for head, c in product(heads, range(len(columns))):
                parts = sums[r][head][c]
                for i, (a, b) in enumerate(zip(left, weights[u, head, c], strict=True)):
                    frame.accumulate(parts[i % CHUNK], a, b)


def _added(frame: Frame, sums: list[Variable]) -> Value:
    k = frame.k
    low = k.add(sums[0].load(), sums[2].load())
    return k.add(low, k.add(sums[1].load(), sums[3].load()))
