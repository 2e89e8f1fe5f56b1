"""Contraction by subgroups that hand the left operand round, without shared memory.

Each subgroup computes `rows` rows by CHUNK columns a lane. A lane loads CHUNK k of its
share of the rows, which all lanes then get in turn by broadcast, and CHUNK columns of
its own. On a CPU device shared memory and barriers cost more than they save, and loads
cost by the lane, so that the more rows share one load of columns the better.
"""

from __future__ import annotations

from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.cache import kernel_cache
from poot.lowering.kernels.contraction import CHUNK, Contraction
from poot.lowering.kernels.contraction_io import Frame
from poot.lowering.program import Kernel
from poot.lowering.spirv.builder import Size, Value, Variable


def depth_step(rows: int, lanes: int) -> int:
    """The k that one round of the loop sums."""
    return CHUNK * max(lanes // rows, 1)


def lanes_groups(problem_m: int, problem_n: int, rows: int, info: DeviceInfo) -> int:
    """Workgroups of one batch and split."""
    return -(-problem_m // rows) * -(-problem_n // (info.subgroup_size * CHUNK))


@kernel_cache
def lanes_kernel(info: DeviceInfo, problem: Contraction, rows: int) -> Kernel:
    lanes = info.subgroup_size
    frame = Frame("matmul_lanes", info, problem, lanes)
    k = frame.k
    tiles_n = k.ceil_div(frame.n, lanes * CHUNK)
    with frame.workgroup(k.mul(k.ceil_div(frame.m, rows), tiles_n)) as tile:
        first_row = k.mul(k.index_div(tile, tiles_n), rows)
        first_column = k.mul(k.index_rem(tile, tiles_n), lanes * CHUNK)
        column = k.add(first_column, k.mul(k.subgroup_lane(), CHUNK))
        sums = [frame.zeros(CHUNK) for _ in range(rows)]
        _sum(frame, sums, first_row, column)
        for r, row_sums in enumerate(sums):
            values = [sum.load() for sum in row_sums]
            frame.store(k.add(first_row, r), column, values)
    return k.finish(f"lanes {rows}x{lanes * CHUNK}x{depth_step(rows, lanes)}")


def _sum(
    frame: Frame, sums: list[list[Variable]], first_row: Size, column: Size
) -> None:
    k, rows, lanes = frame.k, len(sums), frame.k.subgroup_size
    lane = k.subgroup_lane()
    step = depth_step(rows, lanes)
    my_row = k.add(first_row, k.index_rem(lane, rows))
    last = k.sub(frame.m, 1)
    my_rows = [k.min(k.add(my_row, skip), last) for skip in range(0, rows, lanes)]
    my_inner = k.mul(k.index_div(lane, rows), CHUNK)
    whole = k.mul(k.index_div(frame.depth, step), step)
    most = frame.problem.span_limit // step + 1
    with k.loop(whole, step=step, max_trips=most) as at:
        inner = k.add(at, my_inner)
        held = [frame.left.along_inner(row, inner) for row in my_rows]
        for part in range(step // CHUNK):
            block = frame.right.block(column, k.add(at, part * CHUNK))
            for i in range(CHUNK):
                mine = [values[i] for values in held]
                _update(frame, sums, mine, part * rows, block[i])
    with k.loop(frame.depth, start=whole, max_trips=step) as at:
        mine = [frame.left.element(row, at) for row in my_rows]
        columns = [frame.right.element(k.add(column, c), at) for c in range(CHUNK)]
        _update(frame, sums, mine, 0, columns)


def _update(
    frame: Frame,
    sums: list[list[Variable]],
    held: list[Value],
    first_lane: int,
    columns: list[Value],
) -> None:
    """Add the products of one k; a lane holds the left operand of each of its rows."""
    lanes = frame.k.subgroup_size
    for r, row_sums in enumerate(sums):
        a = frame.k.subgroup_broadcast(held[r // lanes], first_lane + r % lanes)
        for sum, b in zip(row_sums, columns, strict=True):
            frame.accumulate(sum, a, b)
