"""Contraction with few rows: each invocation sums neighbouring columns by itself.

Nothing is shared among invocations. That is right where a sum is short, as in
depthwise convolutions, or where neighbouring columns stand side by side.
"""

from __future__ import annotations

from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.cache import kernel_cache
from poot.lowering.kernels.contraction import CHUNK, Work
from poot.lowering.kernels.contraction_io import Frame, frames, tasks
from poot.lowering.program import Kernel
from poot.lowering.spirv.builder import KernelBuilder, Size, Variable

_INVOCATIONS = 128


def _invocations(info: DeviceInfo) -> int:
    if info.is_cpu:
        return info.subgroup_size
    most = min(info.max_workgroup_invocations, info.max_workgroup_size[0])
    return min(_INVOCATIONS, most)


def direct_groups(m: int, n: int, info: DeviceInfo) -> int:
    """Workgroups of one batch and split."""
    return -(-m * -(-n // CHUNK) // _invocations(info))


@kernel_cache
def direct_kernel(info: DeviceInfo, work: Work) -> Kernel:
    width = _invocations(info)
    k = KernelBuilder("matmul_direct", info, (width, 1, 1))

    def tiles(frame: Frame) -> Size:
        return k.ceil_div(k.mul(frame.m, k.ceil_div(frame.n, CHUNK)), width)

    for frame, group in tasks(k, frames(k, work), tiles):
        across = k.ceil_div(frame.n, CHUNK)
        chunk = k.value(k.add(k.mul(group, width), k.local_index()))
        with k.when(k.lt(chunk, k.mul(frame.m, across))):
            row = k.index_div(chunk, across)
            column = k.mul(k.index_rem(chunk, across), CHUNK)
            sums = _sums(frame, row, column)
            frame.store(row, column, [[s.load() for s in head] for head in sums])
    return k.finish(f"direct {width}")


def _sums(frame: Frame, row: Size, column: Size) -> list[list[Variable]]:
    """The sums of neighbouring columns of a row, by head."""
    k = frame.k
    sums = [frame.zeros(CHUNK) for _ in frame.rights]
    frame.left.find([row])
    for right in frame.rights:
        right.find([k.add(column, c) for c in range(CHUNK)])
    with k.loop(frame.depth, max_trips=frame.problem.span_limit) as at:
        a = frame.left.element(row, at)
        for head, right in zip(sums, frame.rights, strict=True):
            columns = right.along_outer(column, at)
            for sum, b in zip(head, columns, strict=True):
                frame.accumulate(sum, a, b)
    return sums
