"""The copy kernels that other kernels are measured against: loads and stores only."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Shape:
    """Bytes of one access, accesses of an invocation, invocations of a workgroup."""

    lane_bytes: int
    accesses: int
    workgroup: int

    def __str__(self) -> str:
        return f"{self.accesses} x {self.lane_bytes} B, workgroup {self.workgroup}"

    @property
    def group_bytes(self) -> int:
        return self.lane_bytes * self.accesses * self.workgroup


SHAPES = tuple(
    Shape(*sizes) for sizes in itertools.product((4, 8, 16), (1, 4), (64, 256))
)


def copy_kernel(info: DeviceInfo, words: int, shape: Shape) -> Kernel:
    """Copy `words` 32-bit words; neighbours in a workgroup access neighbours."""
    lane_bytes, workgroup = shape.lane_bytes, shape.workgroup
    k = KernelBuilder(f"copy{lane_bytes}x{shape.accesses}", info, (workgroup, 1, 1))
    source = k.operand("source", Access.READ, indirect=True)
    target = k.operand("target", Access.WRITE, indirect=True)
    ty = U32 if lane_bytes == 4 else vector(U32, lane_bytes // 4)
    count = words * 4 // lane_bytes
    first = k.workgroup_index() * (workgroup * shape.accesses) + k.local_index()
    indices = [first + number * workgroup for number in range(shape.accesses)]
    loaded = [k.load(source, ty, index, count) for index in indices]
    for index, value in zip(indices, loaded, strict=True):
        k.store(target, ty, index, value, count)
    return k.finish(str(shape))


def copy_program(info: DeviceInfo, words: int, shape: Shape) -> Program:
    """A Program that copies its one argument."""
    kernel = copy_kernel(info, words, shape)
    tensor = TensorType((words,), uint32)
    source = BufferRange(Space.ARGUMENT, 0, 0, tensor.size_bytes)
    target = BufferRange(Space.RESULT, 0, 0, tensor.size_bytes)
    groups = -(-words * 4 // shape.group_bytes)
    dispatch = Dispatch(
        kernel=kernel,
        operands=(source, target),
        grid=fold_grid(groups, info.max_workgroup_count),
        reads=(source,),
        writes=(target,),
        label=kernel.schedule,
    )
    return Program((dispatch,), (tensor,), (ResultSpec(tensor),))
