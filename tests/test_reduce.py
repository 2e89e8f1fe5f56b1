"""Reductions: every op, dtype, axis, length and way of reducing."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from poot.core.ops.reduce import ArgReduce, ArgReduceOp, Reduce, ReduceOp
from poot.lowering.compile import lower
from poot.lowering.device_info import DeviceKind
from tests.kernel_harness import (
    assert_exact,
    device,
    one_op,
    oracle,
    plan_graph,
    run_graph,
)

FLOATS = (np.float32, np.float16, ml_dtypes.bfloat16, np.float64)
INTEGERS = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32)
WIDE = (np.int64, np.uint64)
NUMBER_OPS = (ReduceOp.SUM, ReduceOp.PROD, ReduceOp.MAX, ReduceOp.MIN)
BOOL_OPS = (ReduceOp.ANY, ReduceOp.ALL, ReduceOp.MAX, ReduceOp.MIN)
SHAPES = (
    ((3, 5), 1),
    ((7, 1000), 1),
    ((65,), 0),
    ((4, 1, 1), 0),
    ((300, 17), 0),
    ((3, 70, 5), 1),
)
PROFILES = (
    {},
    {"storage16": False, "storage8": False},
    {
        "subgroup_arithmetic": False,
        "subgroup_shuffle": False,
        "subgroup_ballot": False,
    },
)


def exact_elements(shape, dtype, op):
    """Elements whose sums and products are exact in every order."""
    rng = np.random.default_rng(sum(shape))
    if np.dtype(dtype) == np.bool_:
        return rng.integers(0, 2, shape).astype(bool)
    if op is ReduceOp.PROD:
        return rng.choice(np.array([1, 1, 1, 2]), shape).astype(dtype)
    low = 0 if np.dtype(dtype).kind == "u" else -2
    return rng.integers(low, 3, shape).astype(dtype)


@pytest.mark.parametrize("shape,axis", SHAPES, ids=str)
@pytest.mark.parametrize("op", NUMBER_OPS)
@pytest.mark.parametrize("generic", [False, True])
def test_every_shape(shape, axis, op, generic):
    x = exact_elements(shape, np.int32, op)
    for keepdim in (False, True):
        assert_exact(one_op(Reduce(op, axis, keepdim), x), (x,), None, generic)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS + WIDE + (np.bool_,))
@pytest.mark.parametrize("profile", PROFILES, ids=("all", "no storage", "no groups"))
def test_every_dtype(dtype, profile):
    ops = BOOL_OPS if dtype is np.bool_ else NUMBER_OPS
    for op in ops:
        for shape, axis in (((5, 37), 1), ((9, 6), 0)):
            x = exact_elements(shape, dtype, op)
            if op is ReduceOp.PROD:
                x = x[:, :20] if axis else x
            assert_exact(one_op(Reduce(op, axis), x), (x,), profile, True)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS[:2] + WIDE + (np.bool_,))
@pytest.mark.parametrize("profile", PROFILES, ids=("all", "no storage", "no groups"))
def test_positions_in_every_dtype(dtype, profile):
    for op in ArgReduceOp:
        for shape, axis in (((5, 37), 1), ((9, 6), 0)):
            x = exact_elements(shape, dtype, op)
            assert_exact(one_op(ArgReduce(op, axis), x), (x,), profile, True)


SPECIAL = np.array(
    [
        [1, np.nan, 2, np.nan],
        [-np.inf, -1, np.inf, 0],
        [-0.0, 0.0, -0.0, 0.0],
        [0.0, -0.0, 0.0, -0.0],
        [-np.inf] * 4,
        [np.inf] * 4,
        [1e-45, -1e-45, 1e-40, -1e-40],
    ],
    np.float64,
)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("axis", [0, 1])
def test_special_values(dtype, axis):
    x = SPECIAL.astype(dtype)
    x = np.ascontiguousarray(x.T) if axis == 0 else x
    for op in (ReduceOp.MAX, ReduceOp.MIN):
        assert_exact(one_op(Reduce(op, axis), x), (x,))
    for place in ArgReduceOp:
        assert_exact(one_op(ArgReduce(place, axis), x), (x,))


def test_negative_nan_wins_too():
    x = np.array([1.0, 0.0, 3.0], np.float32)
    x[1] = np.uint32(0xFFC00001).view(np.float32)
    for op in (ReduceOp.MAX, ReduceOp.MIN):
        (got,) = run_graph(one_op(Reduce(op, 0), x), (x,))
        assert np.isnan(got)
    for place in ArgReduceOp:
        (got,) = run_graph(one_op(ArgReduce(place, 0), x), (x,))
        assert got == 1


def test_empty_axes_give_the_identity():
    x = np.ones((3, 0), np.float32)
    for op, wanted in ((ReduceOp.SUM, 0), (ReduceOp.PROD, 1)):
        (got,) = run_graph(one_op(Reduce(op, 1), x), (x,))
        np.testing.assert_array_equal(got, np.full(3, wanted, np.float32))
    for op, truth in ((ReduceOp.ANY, False), (ReduceOp.ALL, True)):
        (got,) = run_graph(one_op(Reduce(op, 0), x.T.astype(bool)), (x.T.astype(bool),))
        assert got.shape == (3,) and (got == truth).all()


def test_long_sums_are_right():
    """Past what one invocation may loop over, and past what f32 counts one by one."""
    for count, slack in ((131072, 0), (2**24 + 3, 2)):
        x = np.ones(count, np.float32)
        graph = one_op(Reduce(ReduceOp.SUM, 0), x)
        program = plan_graph(graph)
        assert all(d.kernel.loop_trips < 65536 for d in program.dispatches)
        (got,) = run_graph(graph, (x,))
        assert abs(float(got) - count) <= slack


@pytest.mark.slow
def test_sum_of_70_million_ones_is_exact():
    x = np.ones(70_000_000, np.float32)
    (got,) = run_graph(one_op(Reduce(ReduceOp.SUM, 0), x), (x,))
    assert got == 70_000_000


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.bool_])
def test_long_rows_and_columns_in_parts(dtype):
    """Every kind of reduction survives being taken in parts."""
    ops = BOOL_OPS if dtype is np.bool_ else NUMBER_OPS
    for shape, axis in (((1, 300_000), 1), ((40_000, 3), 0)):
        for op in ops:
            x = exact_elements(shape, dtype, op)
            if op is ReduceOp.PROD:
                x = np.ones(shape, dtype)
                x.reshape(-1)[7::90_000] = 2
            graph = one_op(Reduce(op, axis), x)
            assert len(plan_graph(graph).dispatches) == 2
            assert_exact(graph, (x,), None, True)
        x = exact_elements(shape, dtype, None)
        for place in ArgReduceOp:
            assert_exact(one_op(ArgReduce(place, axis), x), (x,), None, True)


@pytest.mark.parametrize("generic", [False, True])
@pytest.mark.parametrize("length", [7, 2100])
def test_columns_on_gpus_load_several_elements_at_a_time(length, generic):
    gpu = {"kind": DeviceKind.DISCRETE}
    x = exact_elements((2, length, 5), np.float32, ReduceOp.SUM)
    graph = one_op(Reduce(ReduceOp.SUM, 1), x)
    assert "8 at a time" in plan_graph(graph, gpu).dispatches[0].kernel.schedule
    assert_exact(graph, (x,), gpu, generic)
    x = exact_elements((length, 20), np.float16, None)
    assert_exact(one_op(ArgReduce(ArgReduceOp.ARGMIN, 0), x), (x,), gpu, generic)


def test_columns_that_fill_a_gpu_need_no_parts():
    """Each part costs a launch, and what it holds is written and read again."""
    gpu = device().info.masked(kind=DeviceKind.DISCRETE, compute_units=132)
    for shape, axis, launches in (
        ((256, 1024, 1024), 1, 1),
        ((65536, 4096), 0, 2),
        ((100, 4096), 0, 1),
    ):
        x = np.broadcast_to(np.float32(0), shape)
        program = plan_graph(one_op(Reduce(ReduceOp.MAX, axis), x), gpu)
        assert len(program.dispatches) == launches


def test_first_of_equal_elements_across_parts():
    x = np.zeros(500_000, np.float32)
    x[[400_001, 400_002]] = 7
    (got,) = run_graph(one_op(ArgReduce(ArgReduceOp.ARGMAX, 0), x), (x,))
    assert got == 400_001
    x[450_000] = np.nan
    (got,) = run_graph(one_op(ArgReduce(ArgReduceOp.ARGMAX, 0), x), (x,))
    assert got == 450_000


def test_f16_sums_accumulate_in_f32():
    for count, wanted in ((3000, 3000), (60000, 60000), (70000, np.inf)):
        x = np.ones(count, np.float16)
        (got,) = run_graph(one_op(Reduce(ReduceOp.SUM, 0), x), (x,))
        assert got == np.float16(wanted)


def test_random_sums_stay_close_to_the_oracle():
    rng = np.random.default_rng(5)
    x = rng.standard_normal((13, 4099)).astype(np.float32)
    for axis in (0, 1):
        graph = one_op(Reduce(ReduceOp.SUM, axis), x)
        (got,), (wanted,) = run_graph(graph, (x,)), oracle(graph, (x,))
        scale = np.abs(x).sum(axis)
        assert (np.abs(got - wanted) <= 4e-7 * scale).all()


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.float16])
@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("profile", PROFILES, ids=("all", "no storage", "no groups"))
def test_short_rows_of_small_elements_spare_their_neighbours(dtype, length, profile):
    """Through the passes, whose row bodies keep the reduced axis."""
    op = ReduceOp.ANY if dtype is np.bool_ else ReduceOp.SUM
    x = exact_elements((7, length), dtype, op)
    x[:, 0] = 1
    lowered = lower(one_op(Reduce(op, 1, True), x), device().info).graph
    assert_exact(lowered, (x,), profile)
