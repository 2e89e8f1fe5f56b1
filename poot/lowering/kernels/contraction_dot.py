"""Contraction with few rows: a subgroup a result, its lanes along k."""

from __future__ import annotations

from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.cache import kernel_cache
from poot.lowering.kernels.contraction import CHUNK, Contraction
from poot.lowering.kernels.contraction_io import Frame, frames, tasks
from poot.lowering.program import Kernel
from poot.lowering.spirv.builder import KernelBuilder, Size, Value, Variable


def _subgroups(info: DeviceInfo) -> int:
    """Subgroups of a workgroup, which work apart from each other."""
    if info.is_cpu:
        return 1
    return max(1, min(128, info.max_workgroup_invocations) // info.subgroup_size)


def dot_groups(m: int, n: int, info: DeviceInfo) -> int:
    """Workgroups of one batch and split."""
    return -(-m * n // _subgroups(info))


@kernel_cache
def dot_kernel(info: DeviceInfo, problems: tuple[Contraction, ...]) -> Kernel:
    lanes, subgroups = info.subgroup_size, _subgroups(info)
    k = KernelBuilder("matmul_dot", info, (lanes * subgroups, 1, 1))

    def tiles(frame: Frame) -> Size:
        return k.ceil_div(k.mul(frame.m, frame.n), subgroups)

    for frame, first in tasks(k, frames(k, problems), tiles):
        result = k.value(k.add(k.mul(first, subgroups), k.subgroup_index()))
        with k.when(k.lt(result, k.mul(frame.m, frame.n))):
            row, column = k.index_div(result, frame.n), k.index_rem(result, frame.n)
            sums = _lane_sums(frame, row, column)
            totals = [[k.subgroup_reduce("add", sum)] for sum in sums]
            with k.when(k.lt(k.subgroup_lane(), 1)):
                frame.store(row, column, totals)
    return k.finish(f"dot lanes {lanes} subgroups {subgroups}")


def _lane_sums(frame: Frame, row: Size, column: Size) -> list[Value]:
    """The lane's part of the dot product of each head."""
    k, lanes = frame.k, frame.k.subgroup_size
    lane = k.subgroup_lane()
    heads = [frame.zeros(CHUNK) for _ in frame.rights]
    frame.left.find([row])
    for right in frame.rights:
        right.find([column])
    step = lanes * CHUNK
    whole = k.mul(k.index_div(frame.depth, step), step)
    most = frame.problem.span_limit // step + 1
    with k.loop(whole, step=step, max_trips=most) as at:
        inner = k.add(at, k.mul(lane, CHUNK))
        left = frame.left.along_inner(row, inner)
        for sums, right in zip(heads, frame.rights, strict=True):
            elements = right.along_inner(column, inner)
            for sum, a, b in zip(sums, left, elements, strict=True):
                frame.accumulate(sum, a, b)
    rest = k.add(whole, lane)
    with k.loop(frame.depth, start=rest, step=lanes, max_trips=CHUNK) as at:
        a = frame.left.element(row, at)
        for sums, right in zip(heads, frame.rights, strict=True):
            frame.accumulate(sums[0], a, right.element(column, at))
    return [_added(frame, sums) for sums in heads]


def _added(frame: Frame, sums: list[Variable]) -> Value:
    k = frame.k
    low = k.add(sums[0].load(), sums[2].load())
    return k.add(low, k.add(sums[1].load(), sums[3].load()))
