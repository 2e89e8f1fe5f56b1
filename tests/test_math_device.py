"""The elementwise functions on the device, and the shape of their code."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from poot.core import dtypes
from poot.core.dtypes import DType
from poot.core.ops.elementwise import Binary, BinaryOp, Unary, UnaryOp
from poot.core.types import TensorType
from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels.math import lower_binary, lower_unary
from poot.lowering.program import Access, Kernel
from poot.lowering.spirv.builder import KernelBuilder
from poot.lowering.spirv.opcodes import Glsl, Op
from poot.lowering.spirv.types import F32
from poot.lowering.spirv.value import Value
from poot.vulkan.probe_rounding import hard_quotients, hard_squares
from tests import spirv_val
from tests.kernel_harness import device, one_op, oracle, run_graph
from tests.math_sweep import BINARY, UNARY, Function, compute, errors, pairs, points
from tests.numerics import (
    Array,
    assert_same_bits,
    random_bits,
    rng_of,
    special_values,
)
from tests.numpy_builder import NumpyBuilder, Quality
from tests.spirv_words import capabilities, count_glsl, read

FUNCTIONS = UNARY + BINARY
SIZES = [dtypes.float32, dtypes.float64]
# Where the device divides otherwise than the NumPy builder, the last bits may differ.
_INEXACT_DIVISION_ULPS = 3


def operands(function: Function, dtype: DType) -> list[Array]:
    name = f"device {function}{dtype}"
    if isinstance(function.op, UnaryOp):
        return [points(name, dtype, 1 << 14, function.domain)]
    return list(pairs(name, dtype, 1 << 14, function.domain))


def run(function: Function, xs: list[Array]) -> Array:
    op = function.op
    equation = Unary(op) if isinstance(op, UnaryOp) else Binary(op)
    (result,) = run_graph(one_op(equation, *xs), xs)
    return result


@pytest.mark.parametrize("dtype", SIZES, ids=str)
@pytest.mark.parametrize("function", FUNCTIONS, ids=str)
def test_the_device_computes_what_numpy_does(function: Function, dtype: DType) -> None:
    """Instruction for instruction: bit for bit on lavapipe, whose division is exact."""
    info = device().info
    if dtype is dtypes.float64 and not (info.float64 and info.int64):
        pytest.skip(f"{info.name} has no 64-bit types")
    xs = operands(function, dtype)
    keeps = info.keeps_subnormals32
    k = NumpyBuilder(
        keeps_subnormals=keeps,
        quality=Quality.EXACT,
        trusted=info.exact_division32,
        fuses=info.fused_multiply_add32,
    )
    expected = compute(k, function, dtype, *xs)
    got = run(function, xs)
    if info.is_cpu:
        assert_same_bits(got, expected, str(function))
        return
    wide = np.longdouble if dtype is dtypes.float64 else np.float64
    with np.errstate(all="ignore"):
        distance = errors(got, expected.astype(wide), dtype, keeps, function.floor)
    assert distance.max() <= _INEXACT_DIVISION_ULPS


def test_the_probe_tells_exact_division() -> None:
    """Its cases catch results that are wrong once in 2^16 times on random operands."""
    dividend, divisor = hard_quotients(1 << 12)
    with np.errstate(all="ignore"):
        exact = dividend / divisor
        by_inverse = dividend * (np.float32(1) / divisor)
        wide = dividend.astype(np.float64) / divisor
        nearly = (wide * (1 + 2.0**-40)).astype(
            np.float32
        )  # off by 2^-16 ulp before the last rounding
    ordinary = slice(0, 1 << 11)
    assert np.mean(by_inverse[ordinary] != exact[ordinary]) > 0.3
    assert np.mean(nearly[ordinary] != exact[ordinary]) > 0.3
    roots = hard_squares(1 << 12)[6:]
    off = np.sqrt(roots.astype(np.float64)) * (1 + 2.0**-40)
    assert np.mean(off.astype(np.float32) != np.sqrt(roots)) > 0.3


@pytest.mark.parametrize("fuses", [True, False], ids=["fuses", "rounds"])
def test_untrusted_division_is_exact_on_the_device(fuses: bool) -> None:
    """Where the device divides exactly, this is what the longer way must give too."""
    if fuses and not device().info.fused_multiply_add32:
        pytest.skip(f"{device().info.name} rounds products before it adds to them")
    for op in (BinaryOp.DIV, UnaryOp.SQRT, UnaryOp.RECIP):
        (function,) = (f for f in FUNCTIONS if f.op is op)
        xs = operands(function, dtypes.float32)
        graph = one_op(Unary(op) if isinstance(op, UnaryOp) else Binary(op), *xs)
        rounding = {"exact_division32": False, "fused_multiply_add32": fuses}
        (got,) = run_graph(graph, xs, rounding)
        assert_same_bits(got, oracle(graph, xs)[0], op.name)


LOOPING = [
    (BinaryOp.GCD, dtypes.int8),
    (BinaryOp.GCD, dtypes.int32),
    (BinaryOp.GCD, dtypes.uint64),
    (BinaryOp.POW, dtypes.int16),
    (BinaryOp.POW, dtypes.uint32),
    (BinaryOp.POW, dtypes.int64),
]


@pytest.mark.parametrize(("op", "dtype"), LOOPING, ids=str)
def test_loops_of_integers(op: BinaryOp, dtype: DType) -> None:
    rng = rng_of(f"{op}{dtype}")
    if dtype.bits == 64 and not device().info.int64:
        pytest.skip(f"{device().info.name} has no 64-bit integers")
    special = special_values(dtype)
    one, other = (x.ravel() for x in np.meshgrid(special, special))
    a, b = (random_bits(rng, TensorType((1 << 10,), dtype)) for _ in range(2))
    xs = [np.concatenate([one, a]), np.concatenate([other, b])]
    graph = one_op(Binary(op), *xs)
    assert_same_bits(run_graph(graph, xs)[0], oracle(graph, xs)[0], f"{op} {dtype}")


# --- the code ---------------------------------------------------------------


def kernel_of(body: Callable[[KernelBuilder, Value], Value], name: str) -> Kernel:
    k = KernelBuilder(name, DeviceInfo(keeps_subnormals32=True), (64, 1, 1))
    source, target = k.operand("x", Access.READ), k.operand("y", Access.WRITE)
    index = k.local_index()
    x = k.load(source, F32, index, 64)
    y = body(k, x)
    if y.ty.scalar.is_bool:
        y = k.convert(y, F32)
    k.store(target, F32, index, y, 64)
    return k.finish()


def unary_kernel(op: UnaryOp) -> Kernel:
    return kernel_of(lambda k, x: lower_unary(k, op, x, dtypes.float32), op.value)


def binary_kernel(op: BinaryOp) -> Kernel:
    return kernel_of(lambda k, x: lower_binary(k, op, x, x, dtypes.float32), op.value)


_INTEGER_ONLY_UNARY = {UnaryOp.NOT, UnaryOp.CLZ, UnaryOp.POPCOUNT}
_FLOAT_BINARY = [f.op for f in BINARY if isinstance(f.op, BinaryOp)]
_FLOAT_BINARY += [BinaryOp.ADD, BinaryOp.MAX, BinaryOp.NEXTAFTER, BinaryOp.COPYSIGN]
KERNELS = [
    *(unary_kernel(op) for op in UnaryOp if op not in _INTEGER_ONLY_UNARY),
    *(binary_kernel(op) for op in _FLOAT_BINARY),
]
# Functions that drivers may compute as badly as they like.
_FORBIDDEN = [
    number
    for name, number in vars(Glsl).items()
    if name in ("Exp", "Exp2", "Log", "Log2", "Pow", "Sin", "Cos", "Tan", "Tanh", "Fma")
]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_single_precision_needs_no_64_bit_type(kernel: Kernel) -> None:
    assert not capabilities(kernel) & {"Float64", "Int64", "Float16"}
    assert spirv_val.fault(kernel.words) is None
    assert not any(count_glsl(kernel, number) for number in _FORBIDDEN)


def calculations(kernel: Kernel) -> int:
    """Instructions that calculate, but for those of the empty kernel."""
    free = {Op.Bitcast, Op.Constant, Op.Decorate}
    empty = kernel_of(lambda _, x: x, "empty")
    length = [
        sum(one.opcode not in free for one in read(module))
        for module in (kernel, empty)
    ]
    return length[0] - length[1]


def test_functions_of_hot_loops_are_short() -> None:
    """Chains of elementwise work must stay as fast as memory."""
    assert calculations(unary_kernel(UnaryOp.EXP)) <= 32
    assert calculations(unary_kernel(UnaryOp.TANH)) <= 48
    assert calculations(binary_kernel(BinaryOp.MAX)) <= 12


def test_special_functions_compile_quickly() -> None:
    """Drivers translate each instruction, of both ways that a branch may take."""
    assert calculations(unary_kernel(UnaryOp.ERF_INV)) <= 100
    assert calculations(unary_kernel(UnaryOp.LGAMMA)) <= 235
    assert calculations(unary_kernel(UnaryOp.DIGAMMA)) <= 200


def test_only_long_remainders_loop() -> None:
    assert [kernel.name for kernel in KERNELS if kernel.loop_trips] == ["rem"]
    (rem,) = (kernel for kernel in KERNELS if kernel.name == "rem")
    assert rem.loop_trips == 16


@pytest.mark.parametrize("quality", Quality, ids=str)
def test_how_good_division_is_changes_no_quotient(quality: Quality) -> None:
    (divide,) = (f for f in BINARY if f.op is BinaryOp.DIV)
    xs = operands(divide, dtypes.float32)
    exact = compute(NumpyBuilder(quality=Quality.EXACT), divide, dtypes.float32, *xs)
    other = compute(NumpyBuilder(quality=quality), divide, dtypes.float32, *xs)
    assert_same_bits(other, exact)
