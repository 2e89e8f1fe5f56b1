"""Contraction with few rows: each invocation sums neighbouring columns by itself.

Nothing is shared among invocations. That is right where a sum is short, as in
depthwise convolutions, or where neighbouring columns stand side by side.
"""

from __future__ import annotations

from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.cache import kernel_cache
from poot.lowering.kernels.contraction import CHUNK, Contraction
from poot.lowering.kernels.contraction_io import Frame
from poot.lowering.program import Kernel

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
def direct_kernel(info: DeviceInfo, problem: Contraction) -> Kernel:
    width = _invocations(info)
    frame = Frame("matmul_direct", info, problem, width)
    k = frame.k
    across = k.ceil_div(frame.n, CHUNK)
    chunks = k.mul(frame.m, across)
    with frame.workgroup(k.ceil_div(chunks, width)) as group:
        chunk = k.value(k.add(k.mul(group, width), k.local_index()))
        with k.when(k.lt(chunk, chunks)):
            row = k.index_div(chunk, across)
            column = k.mul(k.index_rem(chunk, across), CHUNK)
            sums = frame.zeros(CHUNK)
            frame.left.find([row])
            frame.right.find([k.add(column, c) for c in range(CHUNK)])
            with k.loop(frame.depth, max_trips=problem.span_limit) as at:
                a = frame.left.element(row, at)
                columns = frame.right.along_outer(column, at)
                for sum, b in zip(sums, columns, strict=True):
                    frame.accumulate(sum, a, b)
            frame.store(row, column, [sum.load() for sum in sums])
    return k.finish(f"direct {width}")
