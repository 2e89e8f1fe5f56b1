"""Sorting: special values, stability, long axes, launches, refusals."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poot.core.builder import Builder
from poot.core.errors import DTypeError, LimitError, OperandCountError, ShapeError
from poot.core.ops.shape import Transpose
from poot.core.ops.sort import ArgTopK, Sort, TopK
from poot.core.types import TensorType
from poot.lowering.device_info import DeviceInfo
from poot.lowering.plan.planner import make_program
from tests.kernel_harness import (
    assert_exact,
    one_op,
    oracle,
    plan_graph,
    run_graph,
    type_of,
)
from tests.numerics import random_bits, special_values

FLOATS = (np.float32, np.float16, ml_dtypes.bfloat16, np.float64)


def specials(dtype, count=1000):
    """Special values many times over, NaN of both signs and subnormals among them."""
    values = special_values(type_of(np.zeros(0, dtype)).dtype)
    rng = np.random.default_rng(count)
    return rng.choice(values.view(f"u{values.itemsize}"), count).view(dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("count", [1000, 3000])
@pytest.mark.parametrize("descending", [False, True])
def test_special_values(dtype, count, descending):
    """Zeros, NaN and the like keep their order, which the second operand shows."""
    x, place = specials(dtype, count), np.arange(count, dtype=np.int32)
    graph = one_op(Sort(0, 1, descending), x, place)
    assert_exact(graph, (x, place))
    ordered, places = run_graph(graph, (x, place))
    wide = ordered.astype(np.float64)
    numbers = wide[~np.isnan(wide)]
    nans = wide[: -numbers.size] if descending else wide[numbers.size :]
    assert np.isnan(nans).all() and nans.size
    before, after = (
        (numbers[1:], numbers[:-1])
        if descending
        else (
            numbers[:-1],
            numbers[1:],
        )
    )
    assert (before <= after).all()
    for level in (wide == 0, np.isnan(wide), wide == 1):
        assert np.all(np.diff(places[level]) > 0) and level.sum() > 10


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("count", [1000, 3000])
def test_largest_of_special_values(dtype, count):
    """Here +0 is above -0."""
    x = specials(dtype, count)
    graph = one_op(TopK(count), x)
    assert_exact(graph, (x,))
    values, _ = run_graph(graph, (x,))
    zeros = values[values == 0]
    assert np.all(np.diff(np.signbit(zeros).astype(int)) >= 0)
    assert np.signbit(zeros).any() and not np.signbit(zeros).all()
    assert np.isnan(values[0])
    assert_exact(one_op(TopK(50), x), (x,))


def test_every_axis_and_a_strided_operand():
    x = np.random.default_rng(1).integers(0, 50, (5, 7, 11)).astype(np.int16)
    for axis in range(3):
        for generic in (False, True):
            assert_exact(one_op(Sort(axis), x, x), (x, x), None, generic)
    builder = Builder()
    value = builder.input(type_of(x))
    (turned,) = builder.emit(Transpose((2, 0, 1)), (value,))
    for out in builder.emit(Sort(1), (turned,)):
        builder.result(out)
    assert_exact(builder.finish(), (x,))


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint16, np.float32, np.int64])
def test_long_axes(dtype):
    x = np.random.default_rng(2).integers(0, 2, (70_000,)).astype(dtype)
    if np.dtype(dtype).itemsize > 1:
        x = np.random.default_rng(2).integers(0, 30_000, (70_000,)).astype(dtype)
    place = np.arange(x.size, dtype=np.int32)
    for descending in (False, True):
        assert_exact(one_op(Sort(0, 1, descending), x, place), (x, place))
    assert_exact(one_op(TopK(20), x), (x,))
    assert_exact(one_op(ArgTopK(1000), x), (x,))


def test_a_million_floats():
    x = np.random.default_rng(3).standard_normal(1 << 20).astype(np.float32)
    (got,) = run_graph(one_op(Sort(0), x), (x,))
    np.testing.assert_array_equal(got, np.sort(x))


def test_the_largest_of_many_rows():
    x = np.random.default_rng(4).standard_normal((200, 64)).astype(np.float16)
    assert_exact(one_op(TopK(8), x), (x,))
    assert_exact(one_op(ArgTopK(2), x), (x,), None, True)


@pytest.mark.slow
def test_very_long_axes():
    x = np.random.default_rng(5).integers(0, 256, (1 << 22) + 3).astype(np.uint8)
    (got,) = run_graph(one_op(Sort(0), x), (x,))
    np.testing.assert_array_equal(got, np.sort(x))
    graph = one_op(TopK(64), x)
    for mine, right in zip(run_graph(graph, (x,)), oracle(graph, (x,)), strict=True):
        np.testing.assert_array_equal(mine, right)


DTYPES = (np.bool_, np.int8, np.uint16, np.int32, np.uint64, *FLOATS)


@given(st.data())
@settings(max_examples=40)
def test_any_shape_and_keys(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=3)))
    axis = data.draw(st.integers(0, len(shape) - 1))
    names = data.draw(st.lists(st.sampled_from(DTYPES), min_size=1, max_size=4))
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    keys = data.draw(st.integers(1, len(names)))
    operands = []
    for dtype in names:
        few = rng.integers(-2, 3, shape).astype(np.int8).astype(dtype)
        any_bits = random_bits(rng, type_of(few))
        operands.append(np.where(rng.random(shape) < 0.8, few, any_bits))
    op = Sort(axis, keys, data.draw(st.booleans()))
    assert_exact(one_op(op, *operands), operands, None, True)


def test_launches():
    """Words, order, elements; of the largest, each part of a row by itself."""
    for op, shape, launches in (
        (Sort(1), (9, 2048), 3),
        (Sort(0), (2048, 9), 3),
        (Sort(0), (1 << 20,), 14),
        (ArgTopK(4), (9, 64), 2),
        (TopK(4), (9, 64), 4),
        (ArgTopK(64), (1 << 20,), 4),
        (ArgTopK(300), (1 << 20,), 14),
    ):
        x = np.broadcast_to(np.float32(0), shape)
        assert len(plan_graph(one_op(op, x)).dispatches) == launches, (op, shape)


def test_refusals():
    with pytest.raises(OperandCountError, match="2 of 1 operands are keys"):
        Sort(0, 2).infer_all(TensorType((3,), type_of(np.zeros(1)).dtype))
    x, y = type_of(np.zeros((3, 4))), type_of(np.zeros((3, 5)))
    with pytest.raises(ShapeError, match=r"operands of one shape, given f64\[3,4\]"):
        Sort(0).infer_all(x, y)
    with pytest.raises(ShapeError, match="the 5 largest of"):
        TopK(5).infer_all(x)
    with pytest.raises(DTypeError, match="sort: given f8e5m2"):
        Sort(0).infer_all(type_of(np.zeros(3, ml_dtypes.float8_e5m2)))
    huge = DeviceInfo().masked(max_allocation_bytes=1 << 40, max_buffer_bytes=1 << 40)
    flat = np.broadcast_to(np.float32(0), (2, 1 << 30))
    with pytest.raises(LimitError, match="a sort of 2 rows of 1073741824 elements"):
        make_program(one_op(Sort(1), flat), huge)
