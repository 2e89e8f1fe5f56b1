"""16-bit floats by the device's own conversions: when, how, and what it gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from poot.core import dtypes
from poot.core.dtypes import DType
from poot.core.errors import CapabilityError, SpirvError
from poot.core.ops.elementwise import BitcastConvert, Cast, Unary, UnaryOp
from poot.core.types import TensorType
from poot.lowering.device_info import DeviceInfo, DeviceKind
from poot.lowering.kernels.math import pack16, pack_pair, round_to, unpack_pair
from poot.lowering.program import Access, Kernel
from poot.lowering.spirv.builder import KernelBuilder, Value
from poot.lowering.spirv.opcodes import FPEncoding, Glsl, Op
from poot.lowering.spirv.types import F32, U32, vector
from poot.vulkan.half_cases import half_bits, hard_roundings, same_numbers
from tests.backends import device_backend
from tests.kernel_harness import device, one_op, run_graph
from tests.numerics import Array, assert_same_bits, random_bits, rng_of
from tests.spirv_words import capabilities, count, count_glsl, operands, read

HALVES = [dtypes.float16, dtypes.bfloat16]
CONVERTING = DeviceInfo(
    kind=DeviceKind.DISCRETE,
    bfloat16=True,
    exact_half_unpacking=True,
    exact_half_packing=True,
    exact_bfloat_packing=True,
)
COUNT = 8192


# --- what the probe asks ----------------------------------------------------


def test_the_probe_unpacks_every_kind_of_half() -> None:
    bits = half_bits(COUNT)
    assert bits.shape == (COUNT,)
    asked = set(bits.tolist())
    subnormal = {sign | m for sign in (0, 0x8000) for m in range(0x400)}
    assert asked >= subnormal | {0x7C00, 0xFC00, 0x7E00, 0xFE00, 0x0400, 0x7BFF}
    assert {b >> 10 for b in asked} == set(range(64))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_the_probe_asks_at_and_next_to_midpoints(dtype: DType) -> None:
    numbers = hard_roundings(dtype, COUNT)
    assert numbers.shape == (COUNT,) and numbers.dtype == np.float32
    asked = set(numbers.view(np.uint32).tolist())
    half = dtype is dtypes.float16
    # Between 0 and the smallest number, and between the largest and infinity.
    for border in (2.0**-25, 65520.0) if half else (2.0**-134, 2.0**128 - 2.0**119):
        bits = int(np.float32(border).view(np.uint32))
        around = {bits - 1, bits, bits + 1}
        assert asked >= around | {bit | 0x80000000 for bit in around}
    if half:
        assert float(np.uint32(0x477FEFFF).view(np.float32)) == 65519.99609375
        assert 0x477FEFFF in asked
    assert asked >= {0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00000}
    with np.errstate(all="ignore"):
        exponents = np.unique(numbers.astype(dtype.numpy).view(np.uint16) >> 7)
    assert {int(e) >> (3 if half else 0) for e in exponents} == (
        set(range(64)) if half else set(range(512))
    )


def _cut(numbers: Array, dtype: DType) -> Array:
    """Rounded towards 0."""
    nearest = numbers.astype(dtype.numpy)
    beyond = np.abs(nearest.astype(np.float32)) > np.abs(numbers)
    bits = nearest.view(np.uint16)
    return np.where(beyond, bits - 1, bits).astype(np.uint16).view(dtype.numpy)


def _away(numbers: Array, dtype: DType) -> Array:
    """Rounded to nearest, ties away from 0."""
    bits = numbers.view(np.uint32)
    # A bit more than the tie, which the step to the next f32 does not change else.
    more: Array = np.where(np.isfinite(numbers), bits | 1, bits).view(np.float32)
    return more.astype(dtype.numpy)


def _saturated(numbers: Array, dtype: DType) -> Array:
    right = numbers.astype(dtype.numpy)
    bits = right.view(np.uint16)
    over = np.isinf(right) & np.isfinite(numbers)
    return np.where(over, bits - 1, bits).astype(np.uint16).view(dtype.numpy)


def _flushed(numbers: Array, dtype: DType) -> Array:
    right = numbers.astype(dtype.numpy)
    tiny = np.abs(right.astype(np.float32)) < float(ml_dtypes.finfo(dtype.numpy).tiny)
    zero = right.view(np.uint16) & 0x8000
    return np.where(tiny, zero, right.view(np.uint16)).view(dtype.numpy)


def _nan_as_infinity(numbers: Array, dtype: DType) -> Array:
    """The upper bits alone, which a NaN may have outside of them."""
    right = numbers.astype(dtype.numpy)
    infinity = np.uint16(0x7C00 if dtype is dtypes.float16 else 0x7F80)
    lost = numbers.view(np.uint32) == 0x7F800001
    return np.where(lost, infinity, right.view(np.uint16)).view(dtype.numpy)


def _one_sign_of_nan(numbers: Array, dtype: DType) -> Array:
    right = numbers.astype(dtype.numpy)
    bits = right.view(np.uint16)
    return np.where(np.isnan(right), bits & 0x7FFF, bits).view(dtype.numpy)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize(
    "wrong", [_cut, _away, _saturated, _flushed, _nan_as_infinity, _one_sign_of_nan]
)
def test_the_probe_tells_wrong_rounding(
    wrong: Callable[[Array, DType], Array], dtype: DType
) -> None:
    numbers = hard_roundings(dtype, COUNT)
    with np.errstate(all="ignore"):
        right = numbers.astype(dtype.numpy)
        assert same_numbers(right, right.copy())
        assert not same_numbers(wrong(numbers, dtype), right)


# --- what kernels are made of -----------------------------------------------


def kernel_of(
    body: Callable[[KernelBuilder, Value], Value], info: DeviceInfo
) -> Kernel:
    """One that stores a word for each pair of words."""
    k = KernelBuilder("halves", info, (64, 1, 1))
    source, target = k.operand("x", Access.READ), k.operand("y", Access.WRITE)
    index = k.local_index()
    pair = k.load(source, vector(F32, 2), index, 64)
    k.store(target, U32, index, body(k, pair), 64)
    return k.finish()


def packed(dtype: DType) -> Callable[[KernelBuilder, Value], Value]:
    return lambda k, x: pack_pair(k, k.extract(x, 0), k.extract(x, 1), dtype)


def rounded(dtype: DType) -> Callable[[KernelBuilder, Value], Value]:
    return lambda k, x: k.bitcast(round_to(k, k.extract(x, 0), dtype), U32)


def test_bfloats_are_rounded_by_the_conversion_to_their_type() -> None:
    kernel = kernel_of(packed(dtypes.bfloat16), CONVERTING)
    assert "BFloat16TypeKHR" in capabilities(kernel)
    assert not capabilities(kernel) & {"Int16", "Float16"}
    (name,) = operands(kernel, Op.Extension)
    text = b"".join(word.to_bytes(4, "little") for word in name)
    assert text.rstrip(b"\0") == b"SPV_KHR_bfloat16"
    (encoded,) = (words for words in operands(kernel, Op.TypeFloat) if len(words) == 3)
    assert encoded[1:] == (16, FPEncoding.BFloat16KHR)
    # Extensions stand after the capabilities and before what they allow.
    opcodes = [one.opcode for one in read(kernel)]
    assert opcodes.index(Op.Extension) == opcodes.count(Op.Capability)
    (conversion,) = operands(kernel, Op.FConvert)
    (pair,) = (w for w in operands(kernel, Op.TypeVector) if w[1] == encoded[0])
    assert conversion[0] == pair[0] and pair[2] == 2


@pytest.mark.parametrize("make", [packed, rounded])
def test_halves_are_rounded_by_glsl(make: Any) -> None:
    kernel = kernel_of(make(dtypes.float16), CONVERTING)
    assert count_glsl(kernel, Glsl.PackHalf2x16) == 1
    assert not operands(kernel, Op.Extension)
    assert "BFloat16TypeKHR" not in capabilities(kernel)


UNTRUSTED: dict[str, tuple[DType, dict[str, object]]] = {
    "f16 on a CPU": (dtypes.float16, {"kind": DeviceKind.CPU}),
    "f16 inexact": (dtypes.float16, {"exact_half_packing": False}),
    "bf16 on a CPU": (dtypes.bfloat16, {"kind": DeviceKind.CPU}),
    "bf16 inexact": (dtypes.bfloat16, {"exact_bfloat_packing": False}),
    "bf16 missing": (dtypes.bfloat16, {"bfloat16": False}),
}


@pytest.mark.parametrize("name", UNTRUSTED)
@pytest.mark.parametrize("make", [packed, rounded])
def test_untrusted_conversions_are_not_used(make: Any, name: str) -> None:
    dtype, mask = UNTRUSTED[name]
    kernel = kernel_of(make(dtype), CONVERTING.masked(**mask))
    assert count_glsl(kernel, Glsl.PackHalf2x16) == 0
    assert count(kernel, Op.FConvert) == 0
    assert "BFloat16TypeKHR" not in capabilities(kernel)


def test_a_half_that_stays_in_registers_is_unpacked_by_integers() -> None:
    """The two conversions of the device would be taken for nothing at all."""
    kernel = kernel_of(rounded(dtypes.float16), CONVERTING)
    assert count_glsl(kernel, Glsl.PackHalf2x16) == 1
    assert count_glsl(kernel, Glsl.UnpackHalf2x16) == 0


@pytest.mark.parametrize("exact", [True, False])
def test_halves_are_read_by_glsl_if_it_is_exact(exact: bool) -> None:
    def body(k: KernelBuilder, x: Value) -> Value:
        word = k.bitcast(k.extract(x, 0), U32)
        low, high = unpack_pair(k, word, dtypes.float16)
        return k.bitcast(k.add(low, high), U32)

    info = CONVERTING.masked(exact_half_unpacking=exact)
    kernel = kernel_of(body, info)
    assert count_glsl(kernel, Glsl.UnpackHalf2x16) == exact


def test_a_device_without_the_type_refuses_it() -> None:
    with pytest.raises(CapabilityError, match="`bfloat16`"):
        kernel_of(lambda k, x: k.pack_bfloat(x), CONVERTING.masked(bfloat16=False))
    with pytest.raises(SpirvError, match="pack_bfloat of f32;"):
        kernel_of(lambda k, x: k.pack_bfloat(k.extract(x, 0)), CONVERTING)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_conversions_are_shorter_than_integer_arithmetic(dtype: DType) -> None:
    def length(info: DeviceInfo) -> int:
        return len(read(kernel_of(lambda k, x: one(k, x, dtype), info)))

    def one(k: KernelBuilder, x: Value, dtype: DType) -> Value:
        return pack16(k, round_to(k, k.extract(x, 0), dtype), dtype)

    assert length(CONVERTING) < length(CONVERTING.masked(kind=DeviceKind.CPU))


# --- what they give ---------------------------------------------------------

needs_device = pytest.mark.skipif(device_backend() is None, reason="no Vulkan device")


def converting_device(dtype: DType) -> dict[str, object]:
    """What to change for the device's own conversions, if they are right."""
    info = device().info.masked(kind=DeviceKind.DISCRETE)
    trusted = info.packs_halves if dtype is dtypes.float16 else info.packs_bfloats
    if not trusted:
        pytest.skip(f"{info.name} does not round to {dtype} by itself")
    return {"kind": DeviceKind.DISCRETE}


@needs_device
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("count", [2 * COUNT, 5])
def test_numbers_round_to_nearest_even(dtype: DType, count: int) -> None:
    mask = converting_device(dtype)
    any_bits = random_bits(rng_of(str(dtype)), TensorType((COUNT,), dtypes.float32))
    x = np.concatenate([any_bits, hard_roundings(dtype, COUNT)])[-count:]
    with np.errstate(all="ignore"):
        right = x.astype(dtype.numpy)
    (found,) = run_graph(one_op(Cast(dtype), x), [x], mask)
    assert_same_bits(found, right)
    # In compute form, without a store in between.
    (root,) = run_graph(one_op(Unary(UnaryOp.ABS), right), [right], mask)
    assert_same_bits(root, np.abs(right))
    np.testing.assert_array_equal(np.signbit(found), np.signbit(right))


@needs_device
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("on_device", [True, False], ids=["device", "integers"])
def test_every_pattern_is_read_and_written(dtype: DType, on_device: bool) -> None:
    mask: dict[str, object] = {"exact_half_unpacking": False, "bfloat16": False}
    if on_device:
        mask = converting_device(dtype)
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy)
    (wide,) = run_graph(one_op(Cast(dtypes.float32), x), [x], mask)
    assert_same_bits(wide, x.astype(np.float32))
    np.testing.assert_array_equal(np.signbit(wide), np.signbit(x))
    (negative,) = run_graph(one_op(Unary(UnaryOp.SIGNBIT), x), [x], mask)
    np.testing.assert_array_equal(negative, np.signbit(x))
    (bits,) = run_graph(one_op(BitcastConvert(dtypes.uint16), x), [x], mask)
    assert_same_bits(bits.view(dtype.numpy), x)
    np.testing.assert_array_equal(bits >> 15, np.signbit(x))
