"""How the device rounds where Vulkan leaves it open, asked by a kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from poot.core.dtypes import bfloat16, float16, float32
from poot.core.types import TensorType
from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.math.halves import pack_on_device, unpack_on_device
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
from poot.lowering.spirv.types import F32, U32, ScalarType
from poot.lowering.spirv.value import Value
from poot.vulkan.executable import Executable
from poot.vulkan.half_cases import half_bits, hard_roundings, same_numbers

if TYPE_CHECKING:
    from poot.vulkan.device import Device

Array = np.ndarray[Any, Any]

_WORKGROUP = 64
_GROUPS = 64
_COUNT = _WORKGROUP * _GROUPS
_OPERANDS = 11
_MASK = (1 << 24) - 1


@dataclass(frozen=True, slots=True)
class Rounding:
    """What was found in hard cases; each field is one of DeviceInfo's."""

    exact_division32: bool
    fused_multiply_add32: bool
    exact_half_unpacking: bool
    exact_half_packing: bool
    exact_bfloat_packing: bool


def rounding(device: Device) -> Rounding:
    """Run the cases on the device, all in one launch."""
    info = device.info
    dividend, divisor = _without_subnormals(
        *hard_quotients(_COUNT), keeps=info.keeps_subnormals32
    )
    radicand = hard_squares(_COUNT)
    factors = hard_products(_COUNT)
    halves = half_bits(2 * _COUNT)
    to_half, to_bfloat = (
        hard_roundings(dtype, 2 * _COUNT) for dtype in (float16, bfloat16)
    )
    pairs = [numbers.reshape(-1, 2).T for numbers in (to_half, to_bfloat)]
    words = halves.view(np.uint32).view(np.float32)
    found = _run(
        device,
        np.stack([dividend, divisor, radicand, *factors, words, *pairs[0], *pairs[1]]),
    )
    with np.errstate(all="ignore"):
        quotients = [dividend / divisor, np.sqrt(radicand)]
        left, right, addend = factors.astype(np.float64)
        unpacked = halves.view(np.float16).astype(np.float32)
        packed = to_half.astype(np.float16)
        rounded = to_bfloat.astype(bfloat16.numpy)
    return Rounding(
        exact_division32=_same(found[:2], quotients),
        fused_multiply_add32=_same(found[2:3], [left * right + addend]),
        exact_half_unpacking=same_numbers(found[3:5].T.reshape(-1), unpacked),
        exact_half_packing=same_numbers(found[5].view(np.float16), packed),
        exact_bfloat_packing=info.bfloat16
        and same_numbers(found[6].view(bfloat16.numpy), rounded),
    )


def _same(found: Array, expected: list[Array]) -> bool:
    right = np.stack(expected).astype(np.float32)
    same = found.view(np.uint32) == right.view(np.uint32)
    return bool(np.all(same | (np.isnan(found) & np.isnan(right))))


def _run(device: Device, constants: Array) -> Array:
    operands = device.upload(constants)
    executable = Executable(device, _program(device.info), [operands])
    found = np.empty((_results(device.info), _COUNT), np.float32)
    try:
        (result,), completion = executable.call([])
        completion.wait()
        device.download(result, found)
    finally:
        executable.close()
    return found


def hard_quotients(count: int) -> tuple[Array, Array]:
    """Operands whose quotients nearly lie midway between two floats; and special ones.

    For an odd significand b there is a midpoint m with m b = 2^24 a + c for a small c:
    then a / b is that midpoint but for c / (2^24 b).
    """
    random = np.random.default_rng(0)
    b = random.integers(1 << 22, 1 << 23, 4 * count, np.uint64) * 2 + 1
    c = random.integers(-4, 4, 4 * count) * 2 + 1
    midpoint = ((c.astype(np.uint64) * _inverse(b)) & np.uint64(_MASK)) + (1 << 24)
    a = (midpoint * b - c.astype(np.uint64)) >> np.uint64(24)
    fits = np.flatnonzero(a < 1 << 24)[:count]
    assert len(fits) == count
    # Of every size, so that quotients overflow and become subnormal too.
    exponents = random.integers(-140, 100, (2, count))
    exponents[:, : count // 2] = -23
    dividend, divisor = (
        np.ldexp(significand[fits].astype(np.float32), exponent)
        for significand, exponent in zip((a, b), exponents, strict=True)
    )
    special = np.array([0, -0.0, 1, np.inf, -np.inf, np.nan, 3e38, -2], np.float32)
    pairs = np.stack(np.meshgrid(special, special)).reshape(2, -1)
    dividend[-pairs.shape[1] :], divisor[-pairs.shape[1] :] = pairs
    return dividend, divisor


def hard_squares(count: int) -> Array:
    """Numbers whose square roots nearly lie midway between two floats; special ones.

    q^2 + q = 2^24 x + d for a small d: then the root of 2^24 x is q + 1/2, nearly.
    """
    random = np.random.default_rng(1)
    d = (random.integers(-32, 32, 4 * count) * 2).astype(np.uint64)
    q = random.integers(0, 2, 4 * count, np.uint64)  # either root modulo 2
    for _ in range(5):  # Newton's steps double the number of right bits.
        q = (q - (q * q + q - d) * _inverse(2 * q + 1)) & np.uint64(_MASK)
    fits = np.flatnonzero(q >= 1 << 23)[:count]
    assert len(fits) == count
    x = ((q * q + q - d) >> np.uint64(24))[fits]
    numbers: Array = np.ldexp(x.astype(np.float32), random.integers(-60, 50, count) * 2)
    numbers[:6] = [0.0, -0.0, np.inf, -1.0, np.nan, 2.0]
    return numbers


def hard_products(count: int) -> Array:
    """Two factors and what their rounded product is to be lessened by.

    The result of one rounding is the error of that product, of two zero. It is exact
    in f64, and far from subnormal.
    """
    random = np.random.default_rng(2)
    significands = random.integers(1 << 23, 1 << 24, (2, count)).astype(np.float32)
    left, right = np.ldexp(significands, random.integers(-40, 10, (2, count)))
    return np.stack([left, right, -(left * right)])


def _inverse(odd: Array) -> Array:
    """The inverse of odd numbers modulo 2^64."""
    inverse: Array = odd  # right in three bits
    for _ in range(5):
        inverse = inverse * (2 - odd * inverse)
    return inverse


def _without_subnormals(
    dividend: Array, divisor: Array, *, keeps: bool
) -> tuple[Array, Array]:
    """The operands with 1 / 1 for those that meet subnormals, unless these are kept."""
    with np.errstate(all="ignore"):
        numbers = np.stack([dividend, divisor, dividend / divisor])
    tiny = (np.abs(numbers) < np.finfo(np.float32).tiny) & (numbers != 0)
    # What a quotient was rounded up from may have been subnormal.
    tiny[2] |= np.abs(numbers[2]) == np.finfo(np.float32).tiny
    avoid = tiny.any(axis=0) & (not keeps)
    one = np.float32(1)
    return np.where(avoid, one, dividend), np.where(avoid, one, divisor)


def _results(info: DeviceInfo) -> int:
    """Rows of results; the last is that of the type bf16, if there is one."""
    return 7 if info.bfloat16 else 6


def _program(info: DeviceInfo) -> Program:
    given = TensorType((_OPERANDS, _COUNT), float32)
    made = TensorType((_results(info), _COUNT), float32)
    operands = BufferRange(Space.CONST, 0, 0, given.size_bytes)
    results = BufferRange(Space.RESULT, 0, 0, made.size_bytes)
    dispatch = Dispatch(
        kernel=_kernel(info),
        operands=(operands, results),
        grid=(_GROUPS, 1, 1),
        reads=(operands,),
        writes=(results,),
        label="probe of rounding",
    )
    return Program(
        body=(dispatch,), inputs=(), results=(ResultSpec(made),), consts=(given,)
    )


def _kernel(info: DeviceInfo) -> Kernel:
    k = KernelBuilder("probe_rounding", info, (_WORKGROUP, 1, 1))
    operands = k.operand("operands", Access.READ)
    results = k.operand("results", Access.WRITE, indirect=True)
    index = k.workgroup_index() * _WORKGROUP + k.local_index()

    def load(row: int, ty: ScalarType = F32) -> Value:
        place = k.add(index, row * _COUNT)
        return k.load(operands, ty, place, _OPERANDS * _COUNT)

    a, b, x, left, right, addend = (load(row) for row in range(6))
    halves = load(6, U32)
    made = [
        *(k.fdiv(a, b), k.sqrt(x), k.fma(left, right, addend)),
        *(unpack_on_device(k, halves, half) for half in range(2)),
        k.bitcast(pack_on_device(k, load(7), load(8), float16), F32),
    ]
    if info.bfloat16:
        made.append(k.bitcast(pack_on_device(k, load(9), load(10), bfloat16), F32))
    for row, value in enumerate(made):
        place = k.add(index, row * _COUNT)
        k.store(results, F32, place, value, len(made) * _COUNT)
    return k.finish()
