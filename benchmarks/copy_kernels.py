"""The copy kernels that other kernels are measured against: one load, one store."""

from __future__ import annotations

from poot.core.dtypes import uint32
from poot.core.types import TensorType
from poot.lowering.device_info import DeviceInfo
from poot.lowering.program import (
    Access,
    BufferRange,
    Dispatch,
    Kernel,
    Program,
    ResultSpec,
    Space,
)
from poot.lowering.spirv.builder import KernelBuilder
from poot.lowering.spirv.grid import fold_grid
from poot.lowering.spirv.types import U32, vector

LANE_BYTES = (4, 8, 16)
WORKGROUPS = (64, 256)


def copy_kernel(
    info: DeviceInfo, words: int, lane_bytes: int, workgroup: int
) -> Kernel:
    """Copy `words` 32-bit words, each invocation `lane_bytes` of them."""
    k = KernelBuilder(f"copy{lane_bytes}", info, (workgroup, 1, 1))
    source = k.operand("source", Access.READ, indirect=True)
    target = k.operand("target", Access.WRITE, indirect=True)
    ty = U32 if lane_bytes == 4 else vector(U32, lane_bytes // 4)
    count = words * 4 // lane_bytes
    index = k.workgroup_index() * workgroup + k.local_index()
    k.store(target, ty, index, k.load(source, ty, index, count), count)
    return k.finish(f"{lane_bytes}-byte lanes, workgroup {workgroup}")


def copy_program(
    info: DeviceInfo, words: int, lane_bytes: int, workgroup: int
) -> Program:
    """A Program that copies its one argument."""
    kernel = copy_kernel(info, words, lane_bytes, workgroup)
    tensor = TensorType((words,), uint32)
    source = BufferRange(Space.ARGUMENT, 0, 0, tensor.size_bytes)
    target = BufferRange(Space.RESULT, 0, 0, tensor.size_bytes)
    groups = -(-words * 4 // (lane_bytes * workgroup))
    dispatch = Dispatch(
        kernel=kernel,
        operands=(source, target),
        grid=fold_grid(groups, info.max_workgroup_count),
        reads=(source,),
        writes=(target,),
        label=kernel.schedule,
    )
    return Program((dispatch,), (tensor,), (ResultSpec(tensor),))
