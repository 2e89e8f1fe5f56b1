"""Contraction with few rows: a subgroup a result, its lanes along k."""

from __future__ import annotations

from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.cache import kernel_cache
from poot.lowering.kernels.contraction import CHUNK, Contraction
from poot.lowering.kernels.contraction_io import Frame
from poot.lowering.program import Kernel
from poot.lowering.spirv.builder import Size, Value


def _subgroups(info: DeviceInfo) -> int:
    """Subgroups of a workgroup, which work apart from each other."""
    if info.is_cpu:
        return 1
    return max(1, min(128, info.max_workgroup_invocations) // info.subgroup_size)


def dot_groups(m: int, n: int, info: DeviceInfo) -> int:
    """Workgroups of one batch and split."""
    return -(-m * n // _subgroups(info))


@kernel_cache
def dot_kernel(info: DeviceInfo, problem: Contraction) -> Kernel:
    lanes, subgroups = info.subgroup_size, _subgroups(info)
    frame = Frame("matmul_dot", info, problem, lanes * subgroups)
    k = frame.k
    results = k.mul(frame.m, frame.n)
    with frame.workgroup(k.ceil_div(results, subgroups)) as first:
        result = k.value(k.add(k.mul(first, subgroups), k.subgroup_index()))
        with k.when(k.lt(result, results)):
            row, column = k.index_div(result, frame.n), k.index_rem(result, frame.n)
            total = k.subgroup_reduce("add", _lane_sum(frame, row, column))
            with k.when(k.lt(k.subgroup_lane(), 1)):
                frame.store(row, column, [total])
    return k.finish(f"dot lanes {lanes} subgroups {subgroups}")


def _lane_sum(frame: Frame, row: Size, column: Size) -> Value:
    """The lane's part of one dot product."""
    k, lanes = frame.k, frame.k.subgroup_size
    lane = k.subgroup_lane()
    sums = frame.zeros(CHUNK)
    frame.left.find([row])
    frame.right.find([column])
    step = lanes * CHUNK
    whole = k.mul(k.index_div(frame.depth, step), step)
    most = frame.problem.span_limit // step + 1
    with k.loop(whole, step=step, max_trips=most) as at:
        inner = k.add(at, k.mul(lane, CHUNK))
        left = frame.left.along_inner(row, inner)
        right = frame.right.along_inner(column, inner)
        for sum, a, b in zip(sums, left, right, strict=True):
            frame.accumulate(sum, a, b)
    rest = k.add(whole, lane)
    with k.loop(frame.depth, start=rest, step=lanes, max_trips=CHUNK) as at:
        a, b = frame.left.element(row, at), frame.right.element(column, at)
        frame.accumulate(sums[0], a, b)
    low = k.add(sums[0].load(), sums[2].load())
    return k.add(low, k.add(sums[1].load(), sums[3].load()))
