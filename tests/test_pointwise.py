"""Pointwise kernels: what they compute, and what code they are."""

from __future__ import annotations

from random import Random
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poot.core import dtypes
from poot.core.builder import Builder
from poot.core.dtypes import Scalar
from poot.core.errors import CapabilityError, DTypeError
from poot.core.graph import Graph
from poot.core.ops.elementwise import (
    Binary,
    BinaryOp,
    BitcastConvert,
    Cast,
    Clamp,
    Compare,
    CompareOp,
    Select,
    Unary,
    UnaryOp,
)
from poot.core.ops.indexing import DynamicSlice, Gather, GatherMode
from poot.core.ops.shape import (
    Broadcast,
    Concat,
    Iota,
    Pad,
    Reshape,
    Reverse,
    Slice,
    Transpose,
)
from poot.core.types import Slot, Storage, TensorType
from poot.lowering.compile import lower
from poot.lowering.device_info import DeviceKind
from poot.lowering.program import Dispatch
from poot.lowering.spirv.opcodes import Op
from tests.kernel_harness import (
    Array,
    assert_exact,
    device,
    one_op,
    plan_graph,
    run_graph,
    run_program,
    same_bits,
    type_of,
)
from tests.pointwise_programs import fused, random_arrays, random_region
from tests.spirv_words import capabilities, count

ADD, SUB, MUL = (Binary(op) for op in (BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL))
NUMPY_DTYPES = [
    np.dtype(each)
    for each in (
        np.bool_,
        np.int8,
        np.uint8,
        np.int16,
        np.uint16,
        np.float16,
        ml_dtypes.bfloat16,
        np.int32,
        np.uint32,
        np.float32,
        np.int64,
        np.uint64,
        np.float64,
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e5m2,
    )
]
# A device with 32-bit types only.
PLAIN = {
    "storage8": False,
    "storage16": False,
    "int8": False,
    "int16": False,
    "int64": False,
    "float16": False,
    "float64": False,
    "subgroup_arithmetic": False,
    "subgroup_shuffle": False,
    "subgroup_ballot": False,
}


def bits(shape: tuple[int, ...], dtype: np.dtype[Any], seed: int = 0) -> Array:
    """Elements of any bit pattern, NaNs and subnormals among them."""
    random = np.random.default_rng(seed)
    if dtype == np.bool_:
        return random.integers(0, 2, shape).astype(np.bool_)
    count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return np.frombuffer(random.bytes(count), dtype).reshape(shape)


def small(shape: tuple[int, ...], dtype: Any = np.float32, seed: int = 0) -> Array:
    """Small whole numbers."""
    return np.random.default_rng(seed).integers(0, 9, shape).astype(dtype)


def check(op: Any, *operands: Array | Scalar, **info: Any) -> None:
    """One op, with its shapes in the kernel and in metadata."""
    graph = one_op(op, *operands)
    args = [operand for operand in operands if not isinstance(operand, Scalar)]
    for generic in (False, True):
        assert_exact(graph, args, info, generic)


def kernel_of(graph: Graph, generic: bool = False, **info: Any) -> Any:
    """The kernel of a graph that plans to one launch."""
    (node,) = plan_graph(graph, info, generic).body
    assert isinstance(node, Dispatch)
    return node.kernel


# --- elements move ----------------------------------------------------------


@pytest.mark.parametrize("dtype", NUMPY_DTYPES, ids=str)
@pytest.mark.parametrize("info", [{}, PLAIN], ids=["whole", "plain"])
def test_every_bit_of_every_dtype_moves(
    dtype: np.dtype[Any], info: dict[str, Any]
) -> None:
    if info and dtype.itemsize == 8:
        with pytest.raises(CapabilityError, match=r"float64|int64"):
            check(Transpose((1, 0)), bits((3, 5), dtype), **info)
        return
    fill = bits((), dtype, 9)
    x = bits((5, 9), dtype)
    check(Transpose((1, 0)), x, **info)
    check(Concat(1), x, bits((5, 3), dtype, 1), bits((5, 6), dtype, 2), **info)
    check(Pad(((1, 2, 0), (-2, 3, 1))), x, fill, **info)
    check(Select(), small((5, 1), np.bool_), x, fill, **info)
    check(Gather(0), x, np.array([4, 0, 7, -1], np.int32), **info)


@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.float32, np.float64])
def test_views_at_odd_offsets(dtype: Any) -> None:
    """Neighbours: x[1:] + x[:-1], so that no two operands are aligned alike."""
    builder = Builder()
    x = builder.input(TensorType((3, 37), dtypes.as_dtype(dtype)))
    (late,) = builder.emit(Slice(1, 1, 37), (x,))
    (early,) = builder.emit(Slice(1, 0, 36), (x,))
    (total,) = builder.emit(ADD, (late, early))
    builder.result(total)
    graph = builder.finish()
    for info in ({}, {"storage8": False, "storage16": False}):
        for generic in (False, True):
            assert_exact(graph, [small((3, 37), dtype)], info, generic)


SHAPE_CASES = [
    (Broadcast((4, 3, 5)), [(3, 1)]),
    (Broadcast((7,)), [()]),
    (Reshape((4, 15)), [(5, 12)]),
    (Reshape((2, 1, 30)), [(60,)]),
    (Transpose((2, 0, 3, 1)), [(3, 5, 4, 8)]),
    (Transpose((0, 2, 1)), [(3, 8, 12)]),
    (Slice(0, 2, 7), [(9, 5)]),
    (Slice(1, 1, 8, 3), [(9, 9)]),
    (Reverse((0,)), [(3, 8)]),
    (Reverse((0, 1)), [(3, 8)]),
    (Concat(0), [(3, 8), (2, 8)]),
    (Concat(1), [(3, 8), (3, 4), (3, 3)]),
    (Concat(1), [(5, 3), (5, 0), (5, 6)]),
    (Concat(0), [(0,), (5,)]),
    (Pad(((1, 2, 0), (0, 1, 0))), [(3, 8), ()]),
    (Pad(((-1, 2, 1), (3, -2, 2))), [(3, 8), ()]),
    (Pad(((2, 1, 3),)), [(0,), ()]),
    (Pad(((4, 4, 0),)), [(8,), ()]),
    (Iota(dtypes.int8, (3, 200), 1), []),
    (Iota(dtypes.float16, (3, 4), 0), []),
    (Iota(dtypes.uint64, (5,), 0), []),
]


@pytest.mark.parametrize("case", SHAPE_CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def test_shape_ops(case: tuple[Any, list[tuple[int, ...]]]) -> None:
    op, shapes = case
    check(op, *(small(shape, seed=i) for i, shape in enumerate(shapes)))


INDEX_DTYPES = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32]
INDEX_DTYPES += [np.int64, np.uint64]


@pytest.mark.parametrize("dtype", INDEX_DTYPES)
@pytest.mark.parametrize("mode", list(GatherMode))
def test_gather_takes_every_index_dtype(dtype: Any, mode: GatherMode) -> None:
    limits = np.iinfo(dtype)
    wild = np.array([0, 8, 9, 5, limits.max, limits.min, limits.max - 1, 3], dtype)
    if mode is GatherMode.PROMISE:
        wild = np.clip(wild, 0, 8)
    check(Gather(0, mode), small((9, 8)), wild.reshape(2, 4))
    check(Gather(1, mode), small((3, 9, 5)), wild)
    check(Gather(1, mode), small((3, 9), np.float16), wild[4])


def test_gather_out_of_an_empty_axis_fills() -> None:
    index = np.array([0, 3], np.int32)
    check(Gather(0, GatherMode.FILL), small((0, 3)), index)
    check(Gather(0, GatherMode.FILL), small((0,), np.int16), index)


@pytest.mark.parametrize("starts", [(4, 2), (-3, 100), (0, 0)])
@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.int64])
def test_dynamic_slice_clamps(starts: tuple[int, int], dtype: Any) -> None:
    x = small((5, 7))
    where = [np.asarray(abs(s) if dtype is np.uint8 else s, dtype) for s in starts]
    check(DynamicSlice((2, 3)), x, *where)
    check(DynamicSlice((5, 3)), x, *where)
    literals = [Scalar.of(int(s), dtypes.as_dtype(dtype)) for s in where]
    check(DynamicSlice((2, 7)), x, literals[0], where[1])


@pytest.mark.parametrize(
    ("given", "made"),
    [
        (np.float32, dtypes.uint32),
        (np.float16, dtypes.int16),
        (np.int64, dtypes.float64),
        (np.uint32, dtypes.uint8),
        (np.float64, dtypes.uint16),
        (np.int64, dtypes.int32),
        (np.uint16, dtypes.int8),
        (np.uint8, dtypes.uint16),
        (np.uint8, dtypes.float64),
        (np.float16, dtypes.uint32),
        (np.int32, dtypes.int64),
    ],
)
def test_bitcasts_of_every_size(given: Any, made: dtypes.DType) -> None:
    ratio = made.itemsize // np.dtype(given).itemsize
    shape = (3, 5, ratio) if ratio > 1 else (3, 5)
    check(BitcastConvert(made), bits(shape, np.dtype(given)))


# --- elements are computed --------------------------------------------------


@pytest.mark.parametrize(
    "shapes",
    [
        [(5, 7), (5, 7)],
        [(5, 8), (8,)],
        [(5, 8), (5, 1)],
        [(3, 1, 5), (4, 1)],
        [(1000,), ()],
        [(), ()],
        [(1, 1), (1,)],
        [(2, 3, 4, 5), (3, 1, 5)],
        [(0, 3), (3,)],
    ],
    ids=str,
)
def test_operands_broadcast(shapes: list[tuple[int, ...]]) -> None:
    for dtype in (np.float32, np.uint8, np.float16):
        check(ADD, *(small(shape, dtype, i) for i, shape in enumerate(shapes)))


COMPARED = [each for each in NUMPY_DTYPES if "float8" not in str(each)]


@pytest.mark.parametrize("dtype", COMPARED, ids=str)
def test_compare_select_clamp_on_every_dtype(dtype: np.dtype[Any]) -> None:
    a, b = small((7, 9), dtype, 1), small((7, 9), dtype, 2)
    if dtype.kind not in "biu":
        a = np.where(small(a.shape, seed=3) == 4, np.nan, a).astype(dtype)
    for op in CompareOp:
        check(Compare(op), a, b)
    check(Select(), small((9,), np.int32), a, b)
    if dtype != np.bool_:
        check(Clamp(), small((), dtype, 5), a, b)


def test_casts_between_all_dtypes() -> None:
    numbers = [0, 1, 2, 127, 128, 255, 256, 32767, 65535, 3e9, -1, -129, 0.5, 1e30]
    for dtype in COMPARED:
        with np.errstate(all="ignore"):
            x = np.array(numbers).astype(dtype)
        for target in COMPARED:
            assert_exact(one_op(Cast(dtypes.as_dtype(target)), x), [x])


@pytest.mark.parametrize(
    "source", [np.int8, np.int16, np.int32, np.uint8, np.uint32, np.float32, np.bool_]
)
@pytest.mark.parametrize("target", [dtypes.int64, dtypes.uint64])
def test_numbers_extended_to_64_bits_are_compared_as_such(
    source: Any, target: dtypes.DType
) -> None:
    """Drivers take comparisons of extended numbers for ones of narrow numbers."""
    with np.errstate(all="ignore"):
        x = np.arange(-3, 6).astype(np.int32).astype(source)
    if source is np.int32:
        x[:2] = np.iinfo(np.int32).min, np.iinfo(np.int32).max
    builder = Builder()
    (wide,) = builder.emit(Cast(target), (builder.input(type_of(x)),))
    for number in (0, 2, 1 << 31, 1 << 40):
        for kind in CompareOp:
            pair = wide, Scalar.of(number, target)
            for operands in (pair, pair[::-1]):
                builder.result(*builder.emit(Compare(kind), operands))
    for op in (Unary(UnaryOp.SIGN), Unary(UnaryOp.ABS), Cast(dtypes.float32)):
        builder.result(*builder.emit(op, (wide,)))
    lowered = lower(builder.finish(), device().info).graph
    assert all(eqn.op.composite for eqn in lowered.eqns)
    assert_exact(lowered, [x])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_every_equation_rounds_to_its_dtype(dtype: Any) -> None:
    """In f32 throughout, (x * x) * x + x would come out otherwise."""
    small_float = dtypes.as_dtype(dtype)
    body = Builder()
    x = body.input(TensorType((997,), small_float))
    (square,) = body.emit(MUL, (x, x))
    (cube,) = body.emit(MUL, (square, x))
    (total,) = body.emit(ADD, (cube, x))
    body.result(total)
    numbers = np.random.default_rng(0).standard_normal(997).astype(dtype)
    assert_exact(fused(body.finish()), [numbers])


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_constants_keep_ieee_arithmetic(dtype: Any) -> None:
    """Drivers fold 0 * x, x + 0 and their kin, if they can see the zero."""
    x = np.array([np.inf, -np.inf, np.nan, -1, 1, 0.0, -0.0, 2], dtype)
    kind = dtypes.as_dtype(dtype)
    for number in (0.0, -0.0, 1.0, -1.0):
        constant = Scalar.of(number, kind)
        for op in (BinaryOp.MUL, BinaryOp.ADD, BinaryOp.SUB, BinaryOp.DIV):
            check(Binary(op), x, constant)
            check(Binary(op), constant, x)
    for op in (BinaryOp.MUL, BinaryOp.ADD, BinaryOp.SUB, BinaryOp.DIV):
        check(Binary(op), x, x)


def test_constants_are_not_folded_to_zeros() -> None:
    body = Builder()
    x = body.input(TensorType((2, 4), dtypes.float32))
    one = Scalar.of(1.0, dtypes.float32)
    (place,) = body.emit(Iota(dtypes.float32, (2, 4), 1), ())
    (none,) = body.emit(SUB, (one, one))
    (whole,) = body.emit(Cast(dtypes.float32), (Scalar.of(0, dtypes.int32),))
    (border,) = body.emit(Pad(((0, 0, 0), (2, -2, 0))), (x, Scalar.of(0.0, one.dtype)))
    (never,) = body.emit(Compare(CompareOp.GT), (place, place))
    (false,) = body.emit(Cast(dtypes.float32), (never,))
    for zero in (place, none, whole, border, false):
        (product,) = body.emit(MUL, (x, zero))
        body.result(product)
    signs = np.array([[-1, np.inf, -2, -3], [np.nan, -4, -np.inf, -5]], np.float32)
    assert_exact(fused(body.finish()), [signs])


FLOAT8 = [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e8m0fnu]


@pytest.mark.parametrize("dtype", FLOAT8)
def test_8_bit_floats_are_read(dtype: Any) -> None:
    codes = np.arange(256, dtype=np.uint8).view(dtype)
    for target in (np.float32, np.float16, np.int32, np.bool_, np.float64):
        check(Cast(dtypes.as_dtype(target)), codes)


@pytest.mark.parametrize("dtype", FLOAT8)
def test_8_bit_floats_are_written(dtype: Any) -> None:
    ends = [np.inf, -np.inf, np.nan, 0.0, -0.0, 464.0, 465.0, 61440.0, 61439.0]
    numbers = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)
    finite = np.unique(numbers[np.isfinite(numbers)])
    between = (finite[1:] + finite[:-1]) / 2
    near = [np.nextafter(between, np.float32(way)) for way in (-np.inf, np.inf)]
    x = np.concatenate([finite, between, *near, np.array(ends, np.float32)])
    to = Cast(dtypes.as_dtype(dtype))
    check(to, x.astype(np.float32))
    check(to, bits((999,), np.dtype(np.float32)))
    check(to, bits((999,), np.dtype(np.float16)))
    check(to, np.arange(-128, 128, dtype=np.int8))


def test_8_bit_floats_are_not_calculated_with() -> None:
    with pytest.raises(DTypeError, match="f8e4m3fn"):
        one_op(ADD, *[np.ones(4, ml_dtypes.float8_e4m3fn)] * 2)


# --- regions ----------------------------------------------------------------


@settings(max_examples=60)
@given(st.randoms(use_true_random=False), st.integers(0, 1 << 30))
def test_random_regions(random: Random, seed: int) -> None:
    graph = random_region(random)
    args = random_arrays(graph, seed)
    assert_exact(graph, args)
    assert_exact(graph, args, PLAIN)


@settings(max_examples=25)
@given(st.randoms(use_true_random=False), st.integers(0, 1 << 30))
def test_random_regions_with_shapes_in_metadata(random: Random, seed: int) -> None:
    graph = random_region(random)
    assert_exact(graph, random_arrays(graph, seed), generic=True)


def test_results_of_several_dtypes() -> None:
    body = Builder()
    x = body.input(TensorType((5, 13), dtypes.float32))
    row = body.input(TensorType((13,), dtypes.float32))
    (large,) = body.emit(Compare(CompareOp.GT), (x, row))
    (half,) = body.emit(Cast(dtypes.float16), (x,))
    (wide,) = body.emit(Cast(dtypes.float64), (x,))
    (byte,) = body.emit(Cast(dtypes.uint8), (x,))
    for value in (large, half, wide, byte):
        body.result(value)
    graph = fused(body.finish())
    assert len(plan_graph(graph).dispatches) == 1
    args = [small((5, 13)), small((13,), seed=1)]
    assert_exact(graph, args)
    assert_exact(graph, args, generic=True)


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.float16])
def test_reversed_neighbours_are_loaded_together(dtype: Any) -> None:
    def loads(size: int) -> int:
        graph = one_op(Reverse((0,)), small((size,), dtype))
        assert_exact(graph, [small((size,), dtype, seed=size)])
        assert_exact(graph, [small((size,), dtype)], {"kind": DeviceKind.DISCRETE})
        return count(kernel_of(graph, kind=DeviceKind.DISCRETE), Op.Load)

    lanes = 16 // np.dtype(dtype).itemsize
    # So many words that they have no invocation each.
    whole = 4 * lanes if lanes > 4 else 1 << 14
    assert loads(whole + lanes // 2) > loads(whole)
    assert loads(whole + 1) == loads(whole) + lanes - 1


def test_few_elements_have_an_invocation_each_on_gpus() -> None:
    """But for those of less than a word, which are stored as whole words."""
    gpu = {"kind": DeviceKind.DISCRETE, "compute_units": 2}
    for dtype, size, lanes in (
        (np.float32, 128, 1),
        (np.float32, 129, 4),
        (np.int64, 100, 1),
        (np.float16, 128, 8),
    ):
        x = small((size,), dtype)
        graph = one_op(ADD, x, x)
        assert kernel_of(graph, **gpu).schedule.startswith(f"{lanes} lanes")
        for generic in (False, True):
            assert_exact(graph, [x, x], gpu, generic)
    x = small((128,))
    assert kernel_of(one_op(ADD, x, x)).schedule.startswith("4 lanes")


def test_a_long_chain_needs_no_recursion() -> None:
    body = Builder()
    x = value = body.input(TensorType((6, 5), dtypes.int32))
    for number in range(1500):
        operand = Scalar.of(number, dtypes.int32) if number % 3 else x
        (value,) = body.emit(ADD if number % 2 else SUB, (value, operand))
    body.result(value)
    assert_exact(fused(body.finish()), [small((6, 5), np.int32)])


def test_shared_values_are_computed_once() -> None:
    """y = x + x, 40 times over: 2**40 additions if nothing was remembered."""
    body = Builder()
    value = body.input(TensorType((64,), dtypes.uint32))
    for _ in range(40):
        (value,) = body.emit(ADD, (value, value))
    body.result(value)
    graph = fused(body.finish())
    assert count(kernel_of(graph), Op.IAdd) < 4 * 40 + 10
    assert_exact(graph, [small((64,), np.uint32)])


def test_many_operands_pass_the_push_constants() -> None:
    body = Builder()
    inputs = [body.input(TensorType((33,), dtypes.int32)) for _ in range(28)]
    value = inputs[0]
    for other in inputs[1:]:
        (value,) = body.emit(ADD, (value, other))
    body.result(value)
    graph = fused(body.finish())
    # The least that Vulkan guarantees; devices may have more.
    profile = {"max_push_bytes": 128}
    assert kernel_of(graph, **profile).wide
    assert_exact(graph, [small((33,), np.int32, i) for i in range(28)], profile)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint8, np.float64])
@pytest.mark.parametrize("size", [1, 5, 64, 1003])
def test_state_is_updated_in_place(dtype: Any, size: int) -> None:
    """A result that overwrites an operand of its own kernel; another reads it too."""
    kind = dtypes.as_dtype(dtype)
    body = Builder()
    x = body.input(TensorType((size,), kind))
    (more,) = body.emit(ADD, (x, Scalar.of(1, kind)))
    (odd,) = body.emit(MUL, (x, x))
    body.result(more)
    body.result(odd)
    outer = Builder(composites=True)
    state = outer.input(TensorType((size,), kind), Storage.STATE)
    first, second = outer.emit(fused_op(body.finish()), (state,))
    outer.result(first)
    outer.result(second)
    outer.state_next(state, first)
    graph = outer.finish()
    program = plan_graph(graph)
    assert program.results[0].input_index == 0
    assert len(program.body) == 1
    x0 = small((size,), dtype)
    got = run_program(graph, program, [x0])
    np.testing.assert_array_equal(got[0], x0 + np.asarray(1, dtype))
    np.testing.assert_array_equal(got[1], x0 * x0)


def fused_op(body: Graph) -> Any:
    (eqn,) = fused(body).eqns
    return eqn.op


def test_slots_are_scalars_of_every_dtype() -> None:
    for dtype in (np.bool_, np.int8, np.float16, np.int32, np.float32, np.float64):
        kind = dtypes.as_dtype(dtype)
        builder = Builder()
        slot = builder.input(TensorType((), kind), Storage.SLOT, slot=Slot("scalar"))
        x = builder.input(TensorType((5,), kind))
        (mask,) = builder.emit(Compare(CompareOp.LE), (x, slot))
        (value,) = builder.emit(Select(), (mask, x, slot))
        builder.result(value)
        graph = builder.finish()
        for info in ({}, {"storage8": False, "storage16": False}):
            args = [np.asarray(1, dtype), small((5,), dtype)]
            assert_exact(graph, args, info, generic=True)


# --- the code ---------------------------------------------------------------


def add_graph(shape: tuple[int, ...], other: tuple[int, ...]) -> Graph:
    return one_op(ADD, np.empty(shape, np.float32), np.empty(other, np.float32))


def test_contiguous_operands_take_one_load_of_16_bytes() -> None:
    def loads(*shapes: tuple[int, ...]) -> int:
        # CPU devices access vectors one component at a time.
        gpu = {"kind": DeviceKind.DISCRETE}
        return count(kernel_of(add_graph(*shapes), **gpu), Op.Load)

    # Addresses come through the table: two loads each.
    dense = loads((64, 64), (64, 64))
    assert dense == loads((64, 64), (64,)) == loads((64, 64), (64, 1))
    assert dense == loads((64, 64), ())
    assert loads((63, 63), (63,)) == dense + 3


def test_one_generic_kernel_serves_all_shapes() -> None:
    def name(*shapes: tuple[int, ...]) -> str:
        return kernel_of(add_graph(*shapes), generic=True).name

    assert name((3, 5), (3, 5)) == name((7, 9, 11), (7, 9, 11)) == name((33,), (33,))
    assert name((64, 64), (64, 64)) == name((8, 16, 4), (8, 16, 4))
    assert name((5, 7), (7,)) == name((3, 2, 9), (9,))
    assert name((5, 7), (5, 1)) == name((3, 2, 9), (3, 2, 1))


def test_equal_graphs_are_one_kernel() -> None:
    assert kernel_of(add_graph((4, 6), (4, 6))) is kernel_of(add_graph((24,), (24,)))


def test_no_64_bit_types_without_64_bit_dtypes() -> None:
    random = Random(7)
    for _ in range(25):
        for generic in (False, True):
            for kernel in plan_graph(
                random_region(random), {}, generic
            ).kernels.values():
                assert not capabilities(kernel) & {"Float64", "Int64"}


def test_schedules_are_printed() -> None:
    schedule = kernel_of(add_graph((4096,), (4096,))).schedule
    assert "4 lanes" in schedule
    assert "32-bit indices" in schedule


@pytest.mark.parametrize("generic", [False, True])
@pytest.mark.parametrize("columns", [64, 67])
def test_gathers_on_gpus_have_several_rows_under_way(
    columns: int, generic: bool
) -> None:
    x = small((50, columns))
    index = np.random.default_rng(0).integers(-3, 60, 2100).astype(np.int32)
    graph = one_op(Gather(0, GatherMode.FILL), x, index)
    gpu = {"kind": DeviceKind.DISCRETE, "compute_units": 2}
    (dispatch,) = plan_graph(graph, gpu).dispatches
    assert "2 chunks each" in dispatch.kernel.schedule
    assert_exact(graph, [x, index], gpu, generic)
    cpu = kernel_of(graph, kind=DeviceKind.CPU)
    assert "1 chunk each" in cpu.schedule


@pytest.mark.parametrize("generic", [False, True])
@pytest.mark.parametrize("size", [131_075, 262_144])
def test_invocations_of_gpus_take_several_chunks_of_much_work(
    size: int, generic: bool
) -> None:
    """Of little work they take one, as CPUs and devices with room for all do."""
    x = small((size,)) / np.float32(8)
    body = Builder()
    given = body.input(TensorType((size,), dtypes.float32))
    (tanh,) = body.emit(Unary(UnaryOp.TANH), (given,))
    (exp,) = body.emit(Unary(UnaryOp.EXP), (given,))
    (product,) = body.emit(MUL, (tanh, exp))
    (more,) = body.emit(Unary(UnaryOp.EXP), (product,))
    body.result(more)
    much, some = fused(body.finish()), one_op(Unary(UnaryOp.EXP), x)
    gpu = {
        "kind": DeviceKind.DISCRETE,
        "compute_units": 2,
        "keeps_subnormals32": False,
        "fused_multiply_add32": True,
    }
    # Few workgroups are not made fewer.
    large = {**gpu, "compute_units": 1 << 8}
    for graph, chunks in ((much, 4), (some, 2), (one_op(MUL, x, x), 1)):
        end = "chunk" + "s" * (chunks > 1)
        assert f"{chunks} {end} each" in kernel_of(graph, generic, **gpu).schedule
        assert "1 chunk each" in kernel_of(graph, generic, **large).schedule
        args = [x] * len(graph.inputs)
        mine, right = (run_graph(graph, args, i, generic)[0] for i in (gpu, large))
        assert same_bits(mine, right)
    assert "1 chunk each" in kernel_of(much, kind=DeviceKind.CPU).schedule


def test_small_workgroups_suffice() -> None:
    limits = {"max_workgroup_invocations": 16, "max_workgroup_size": (8, 16, 1)}
    x = small((70_000,), np.int32)
    graph = one_op(MUL, x, x)
    assert kernel_of(graph, **limits).workgroup == (8, 1, 1)
    assert_exact(graph, [x, x], limits)


def test_huge_grids_are_folded() -> None:
    x = np.arange(70_001, dtype=np.int32)
    limits = {"max_workgroup_count": (7, 3, 65535)}
    graph = one_op(ADD, x, Scalar.of(1, dtypes.int32))
    (dispatch,) = plan_graph(graph, limits).dispatches
    assert dispatch.grid[2] > 1
    assert_exact(graph, [x], limits)


def test_missing_features_are_refused_by_name() -> None:
    graph = one_op(Unary(UnaryOp.NEG), np.ones((3, 4)))
    with pytest.raises(CapabilityError, match=r"neg|NEG") as caught:
        plan_graph(graph, {"float64": False})
    assert "float64" in str(caught.value)
    assert device().info.name in str(caught.value)
