"""Contraction with few rows: a subgroup has some results, its lanes along k.

Right for weights whose k stand side by side: each is read once, 16 bytes a lane, and
several loads are on their way before one is used. Where k is long, several subgroups
share results, so that more loads are.
"""

from __future__ import annotations

import functools
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
# Bytes of weights that a lane has on their way for one row; for several rows, whose
# sums take registers too, fewer, and from which k on it is the latter.
_LONE_BYTES_AHEAD = 256
_BYTES_AHEAD, _MANY_BYTES_AHEAD = 64, 128
_LONG_SUM = 4096


@dataclass(frozen=True, slots=True)
class Dot:
    """Rows and columns of a subgroup, and rounds of columns of a workgroup.

    A lane sums `width` neighbouring elements at a time, `unroll` times in a loop trip.
    `parts` subgroups have parts of k and add what they have in the end.
    """

    rows: int = 1
    columns: int = 1
    width: int = CHUNK
    unroll: int = 1
    rounds: int = 1
    parts: int = 1

    def step(self, lanes: int) -> int:
        """The k that a loop trip sums."""
        return lanes * self.width * self.unroll

    def across(self, info: DeviceInfo) -> int:
        """Columns of a workgroup."""
        return self.columns * (subgroups(info) // self.parts) * self.rounds

    def groups(self, m: int, n: int, info: DeviceInfo) -> int:
        """Workgroups of one batch and split."""
        return -(-m // self.rows) * -(-n // self.across(info))


def subgroups(info: DeviceInfo) -> int:
    """Subgroups of a workgroup, which work apart from each other."""
    if info.is_cpu:
        return 1
    most = min(_INVOCATIONS, info.max_workgroup_invocations, info.max_workgroup_size[0])
    return max(1, most // info.subgroup_size)


def loads_ahead(dot: Dot, heads: int, itemsize: int, depth: int, lanes: int) -> int:
    """How often to unroll the loop of sums of `depth`, so that enough is on its way.

    One row has all its loads in one trip, or as many as there may be: nothing else
    hides that memory is slow to answer. By powers of two, so that kernels for any size
    are few.
    """
    trip_bytes = dot.columns * heads * dot.width * itemsize
    if dot.rows > 1:
        wanted = _BYTES_AHEAD if depth < _LONG_SUM else _MANY_BYTES_AHEAD
        return max(1, wanted // trip_bytes)
    chunks = max(1, depth // (dot.parts * lanes * dot.width))
    return max(1, min(_LONE_BYTES_AHEAD // trip_bytes, 1 << chunks.bit_length() - 1))


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
            there = k.mul(round, dot.columns * (count // dot.parts))
            _round(frame, dot, row, k.add(first, there))
    schedule = f"dot {dot.rows}x{dot.across(info)}x{dot.step(lanes)}"
    together = f", {dot.parts} a column" if dot.parts > 1 else ""
    return k.finish(f"{schedule} subgroups {count}{together}")


# By row, head and column, each in CHUNK parts.
_Sums = list[list[list[list[Variable]]]]
_Totals = list[list[list[Value]]]


def _round(frame: Frame, dot: Dot, row: Size, first: Size) -> None:
    """The results of each subgroup in one round."""
    k = frame.k
    if dot.parts > 1:
        _round_together(frame, dot, row, first)
        return
    column = k.add(first, k.mul(k.subgroup_index(), dot.columns))
    with k.when(k.lt(k.value(column), frame.n)):
        totals = _totals(frame, dot, row, column, 0)
        with k.when(k.lt(k.subgroup_lane(), 1)):
            _store(frame, row, column, totals)


def _round_together(frame: Frame, dot: Dot, row: Size, first: Size) -> None:
    """The results of `parts` subgroups each: the first one adds and writes them."""
    k, heads = frame.k, len(frame.rights)
    count = dot.rows * heads * dot.columns
    kept = k.shared(frame.sum_type, k.subgroup_count * count)
    subgroup = k.subgroup_index()
    team, part = k.index_div(subgroup, dot.parts), k.index_rem(subgroup, dot.parts)
    column = k.add(first, k.mul(team, dot.columns))
    inside = k.lt(k.value(column), frame.n)
    with k.when(inside):
        totals = _totals(frame, dot, row, column, part)
        with k.when(k.lt(k.subgroup_lane(), 1)):
            flat = (value for row in totals for columns in row for value in columns)
            for number, value in enumerate(flat):
                kept.store(k.add(k.mul(subgroup, count), number), value)
    k.barrier()
    is_first = k.lt(k.value(k.add(part, k.subgroup_lane())), 1)
    with k.when(k.logical_and(inside, is_first)):
        start = k.mul(subgroup, count)

        def whole(number: int) -> Value:
            values = [
                kept.load(k.add(start, p * count + number)) for p in range(dot.parts)
            ]
            return functools.reduce(k.add, values)

        added = [
            [
                [whole((r * heads + h) * dot.columns + c) for c in range(dot.columns)]
                for h in range(heads)
            ]
            for r in range(dot.rows)
        ]
        _store(frame, row, column, added)
    if dot.rounds > 1:
        k.barrier()


def _store(frame: Frame, row: Size, column: Size, totals: _Totals) -> None:
    for r, heads in enumerate(totals):
        frame.store(frame.k.add(row, r), column, heads)


def _totals(frame: Frame, dot: Dot, row: Size, column: Size, part: Size) -> _Totals:
    """What a subgroup has of each dot product."""
    k = frame.k
    return [
        [
            [k.subgroup_reduce("add", _added(frame, sums)) for sums in columns]
            for columns in heads
        ]
        for heads in _lane_sums(frame, dot, row, column, part)
    ]


def _lane_sums(frame: Frame, dot: Dot, row: Size, column: Size, part: Size) -> _Sums:
    """What the lane has of each dot product, in its part of k."""
    k, lanes = frame.k, frame.k.subgroup_size
    last = k.sub(frame.m, 1)
    rows = [row if r == 0 else k.min(k.add(row, r), last) for r in range(dot.rows)]
    columns = [k.add(column, c) for c in range(dot.columns)]
    sums = [[[frame.zeros(CHUNK) for _ in columns] for _ in frame.rights] for _ in rows]
    frame.left.find(rows)
    for right in frame.rights:
        right.find(columns)
    mine = k.mul(k.subgroup_lane(), dot.width)
    chunk = lanes * dot.width
    first, length = _share(frame, dot, part)
    done: Size = 0
    # However many loads are on their way, a lane adds the same in the same order.
    for unroll in dict.fromkeys((dot.unroll, 1)):
        step = chunk * unroll
        whole = k.mul(k.index_div(length, step), step)
        if isinstance(whole, int) and whole == done:
            continue
        most = frame.problem.span_limit // step + 1 if done == 0 else dot.unroll
        bound, start = k.add(first, whole), k.add(first, done)
        with k.loop(bound, start=start, step=step, max_trips=most) as at:
            places = [k.add(k.add(at, u * chunk), mine) for u in range(unroll)]
            _add_runs(frame, dot, sums, rows, columns, places)
        done = whole
    if isinstance(done, int) and done == length:
        return sums
    rest = k.add(k.add(first, done), k.subgroup_lane())
    end = k.add(first, length)
    with k.loop(end, start=rest, step=lanes, max_trips=dot.width) as at:
        left = [frame.left.element(r, at) for r in rows]
        for head, right in enumerate(frame.rights):
            for c, there in enumerate(columns):
                b = right.element(there, at)
                for r, a in enumerate(left):
                    frame.accumulate(sums[r][head][c][0], a, b)
    return sums


def _share(frame: Frame, dot: Dot, part: Size) -> tuple[Size, Size]:
    """The first k of a part, and how many it has."""
    k, depth, chunk = frame.k, frame.depth, frame.k.subgroup_size * dot.width
    if dot.parts == 1:
        return 0, depth
    share = k.mul(k.ceil_div(k.ceil_div(depth, chunk), dot.parts), chunk)
    first = k.mul(part, share)
    if isinstance(share, int) and share * dot.parts == depth:
        return first, share
    first = k.min(first, depth)
    return first, k.min(k.sub(depth, first), share)


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
