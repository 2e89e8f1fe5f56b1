"""What only a kernel run on the device can tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from poot.core.dtypes import float32
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
from poot.lowering.spirv.types import F32
from poot.vulkan.executable import Executable

if TYPE_CHECKING:
    from poot.vulkan.device import Device

# Pairs of f32 bits: the first three have subnormal products, the others such sums.
_PAIRS = np.array(
    [
        (0x00400000, 0x3F800000),  # 2^-127 * 1
        (0x00800000, 0x3E800000),  # 2^-126 * 1/4
        (0x00000001, 0x3F800000),  # 2^-149 * 1
        (0x00400000, 0x00000000),  # 2^-127 + 0
        (0x00800000, 0x80400000),  # 2^-126 - 2^-127
    ],
    dtype=np.uint32,
)
_PRODUCTS = (0x00400000, 0x00200000, 0x00000001)
_SUMS = (0x00400000, 0x00400000)
_COUNT = len(_PAIRS)
_LANES = 8


def keeps_subnormals32(device: Device) -> bool:
    """Whether the device's f32 products and sums keep subnormals."""
    size = 4 * _COUNT
    operands = device.upload(np.ascontiguousarray(_PAIRS.T))
    executable = Executable(device, _program(device.info, size), [operands])
    try:
        results, completion = executable.call([])
        completion.wait()
        found = np.empty((2, _COUNT), dtype=np.uint32)
        for row, result in zip(found, results, strict=True):
            device.download(result, row)
    finally:
        executable.close()
    products = tuple(found[0, : len(_PRODUCTS)].tolist())
    sums = tuple(found[1, len(_PRODUCTS) :].tolist())
    return products == _PRODUCTS and sums == _SUMS


def _program(info: DeviceInfo, size: int) -> Program:
    left, right = (BufferRange(Space.CONST, 0, k * size, size) for k in range(2))
    results = tuple(BufferRange(Space.RESULT, k, 0, size) for k in range(2))
    row = TensorType((_COUNT,), float32)
    dispatch = Dispatch(
        kernel=_kernel(info),
        operands=(left, right, *results),
        grid=(1, 1, 1),
        reads=(left, right),
        writes=results,
        label="probe of subnormals",
    )
    return Program(
        body=(dispatch,),
        inputs=(),
        results=(ResultSpec(row), ResultSpec(row)),
        consts=(TensorType((2, _COUNT), float32),),
    )


def _kernel(info: DeviceInfo) -> Kernel:
    # Kernels ask for flushing where it can be had and subnormals are not kept; what
    # the device does unasked is the question here.
    unasked = info.masked(denorm_flush32=False)
    k = KernelBuilder("probe_subnormals", unasked, (_LANES, 1, 1))
    left = k.operand("left", Access.READ)
    right = k.operand("right", Access.READ)
    product = k.operand("product", Access.WRITE, indirect=True)
    total = k.operand("sum", Access.WRITE, indirect=True)
    index = k.local_index()
    a, b = (k.load(pointer, F32, index, _COUNT) for pointer in (left, right))
    k.store(product, F32, index, k.mul(a, b), _COUNT)
    k.store(total, F32, index, k.add(a, b), _COUNT)
    return k.finish()
