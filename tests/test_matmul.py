"""Matmul kernels: every schedule, size, dtype and layout gives exact sums."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from poot.core.builder import Builder
from poot.core.dtypes import as_dtype
from poot.core.errors import LimitError
from poot.core.graph import Graph
from poot.core.ops.matmul import MatMul
from poot.core.ops.shape import Broadcast, Slice, Transpose
from poot.lowering.device_info import DeviceKind
from poot.lowering.kernels.contraction_lanes import Block
from poot.lowering.kernels.contraction_schedule import Extent, choose
from tests.kernel_harness import device, plan_graph, run_graph, type_of

DTYPES = (np.float32, np.float16, ml_dtypes.bfloat16, np.float64)
INTEGERS = (np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64)
# (batch axes, M, N, K): none divides the tiles, or all do.
SIZES = (
    ((), 1, 1, 1),
    ((), 64, 64, 64),
    ((2,), 17, 33, 70),
    ((3, 2), 1, 63, 129),
    ((), 63, 1, 127),
    ((), 2, 65, 16),
    ((), 15, 16, 17),
)
# Made-up limits under which the planner takes each kind of kernel.
PROFILES = {
    "as it is": {},
    "no small storage": {"storage16": False, "storage8": False},
    "no subgroup operations": {
        "subgroup_ballot": False,
        "subgroup_arithmetic": False,
        "subgroup_shuffle": False,
    },
    "GPU tiles": {"kind": DeviceKind.DISCRETE},
}


def matmul_graph(a, b, *, turn_a=False, turn_b=False, out=None) -> Graph:
    """a @ b, where turned operands are stored the other way round."""
    builder = Builder()
    values = []
    for array, turn in ((a, turn_a), (b, turn_b)):
        value = builder.input(type_of(array))
        if turn:
            axes = tuple(range(array.ndim))
            perm = (*axes[:-2], axes[-1], axes[-2])
            (value,) = builder.emit(Transpose(perm), (value,))
        values.append(value)
    builder.result(*builder.emit(MatMul(out), tuple(values)))
    return builder.finish()


def small_integers(rng, shape, dtype):
    low = 0 if np.dtype(dtype).kind == "u" else -3
    return rng.integers(low, 4, shape).astype(dtype)


def check_exact(sizes, dtype, profile, *, generic, turn_a=False, turn_b=False):
    batch, m, n, k = sizes
    rng = np.random.default_rng(m * 1000 + n)
    a = small_integers(rng, (*batch, m, k), dtype)
    b = small_integers(rng, (*batch, k, n), dtype)
    wanted = np.matmul(a.astype(np.int64), b.astype(np.int64)).astype(dtype)
    stored_a = np.swapaxes(a, -1, -2).copy() if turn_a else a
    stored_b = np.swapaxes(b, -1, -2).copy() if turn_b else b
    graph = matmul_graph(stored_a, stored_b, turn_a=turn_a, turn_b=turn_b)
    (got,) = run_graph(graph, (stored_a, stored_b), PROFILES[profile], generic)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("turns", [(False, False), (False, True), (True, False)])
@pytest.mark.parametrize("generic", [False, True])
@pytest.mark.parametrize("profile", PROFILES)
def test_f32_of_every_layout(sizes, turns, generic, profile):
    turn_a, turn_b = turns
    check_exact(
        sizes, np.float32, profile, generic=generic, turn_a=turn_a, turn_b=turn_b
    )


@pytest.mark.parametrize("dtype", DTYPES[1:] + INTEGERS)
@pytest.mark.parametrize("profile", PROFILES)
def test_every_dtype(dtype, profile):
    check_exact(((2,), 17, 33, 70), dtype, profile, generic=True)
    check_exact(((), 5, 16, 64), dtype, profile, generic=False, turn_b=True)


def test_many_sizes_share_one_generic_kernel():
    rng = np.random.default_rng(1)
    names = set()
    for m, n, k in ((9, 21, 13), (33, 35, 37), (11, 131, 51)):
        a, b = (small_integers(rng, s, np.float32) for s in ((m, k), (k, n)))
        program = plan_graph(matmul_graph(a, b), generic=True)
        names |= set(program.kernels)
    assert len(names) == 1


def test_long_contraction_is_exact():
    a, b = np.ones((1, 70000), np.float32), np.ones((70000, 3), np.float32)
    (got,) = run_graph(matmul_graph(a, b), (a, b))
    assert (got == 70000).all()
    a = np.ones((8, 70000), np.float32)
    (got,) = run_graph(matmul_graph(a, b), (a, b))
    assert (got == 70000).all()


def test_contraction_past_the_loop_limit_is_split():
    a, b = np.ones((8, 9000), np.float32), np.ones((9000, 40), np.float32)
    profile = {"max_loop_trips": 600}
    program = plan_graph(matmul_graph(a, b), profile)
    assert len(program.dispatches) == 2
    assert all(d.kernel.loop_trips <= 600 for d in program.dispatches)
    (got,) = run_graph(matmul_graph(a, b), (a, b), profile)
    assert (got == 9000).all()


def test_contraction_that_cannot_be_split_is_refused_with_numbers():
    a, b = np.ones((8, 300000), np.float32), np.ones((300000, 40), np.float32)
    with pytest.raises(LimitError, match="contracts 300000 elements"):
        plan_graph(matmul_graph(a, b), {"max_loop_trips": 600})


def test_f16_accumulates_to_f32():
    a, b = np.full((1, 4096), 16, np.float16), np.full((4096, 1), 16, np.float16)
    graph = matmul_graph(a, b, out=as_dtype(np.float32))
    (got,) = run_graph(graph, (a, b))
    assert got == 1048576


def test_operands_at_odd_offsets():
    rng = np.random.default_rng(2)
    whole = small_integers(rng, (6, 33), np.float32)
    right = small_integers(rng, (32, 8), np.float32)
    builder = Builder()
    left = builder.input(type_of(whole))
    (cut,) = builder.emit(Slice(1, 1, 33), (left,))
    builder.result(*builder.emit(MatMul(), (cut, builder.input(type_of(right)))))
    (got,) = run_graph(builder.finish(), (whole, right))
    np.testing.assert_array_equal(got, whole[:, 1:] @ right)


@pytest.mark.parametrize("shapes", [((3, 0), (0, 4)), ((0, 3), (3, 4))])
def test_empty_axes(shapes):
    a, b = (np.ones(shape, np.float32) for shape in shapes)
    (got,) = run_graph(matmul_graph(a, b), (a, b))
    np.testing.assert_array_equal(got, np.zeros((shapes[0][0], 4), np.float32))


def test_tiles_fit_the_device():
    info = device().info.masked(
        kind=DeviceKind.DISCRETE, max_shared_bytes=4096, max_workgroup_invocations=64
    )
    tile = choose(Extent(512, 512), info).tile
    assert tile.shared_bytes(8) <= 4096
    assert tile.invocations <= 64
    tiny = info.masked(max_shared_bytes=64, subgroup_arithmetic=False)
    with pytest.raises(LimitError, match="shared memory"):
        choose(Extent(512, 512), tiny)


@pytest.mark.parametrize(
    ("m", "n", "k", "block"),
    [
        (300, 202, 331, Block(32, 2)),
        (600, 31, 1000, Block(32, 1)),
        (16, 700, 1001, Block(16, 2)),
        (16, 32, 17003, Block(16, 1)),
        (7, 5000, 332, Block(8, 1)),
        (5, 60, 333, Block(4, 1)),
    ],
)
def test_much_work_takes_large_blocks_a_subgroup(m, n, k, block):
    info = device().info
    if not info.is_cpu:
        pytest.skip("subgroups hand rows round by shuffles on CPU devices only")
    assert choose(Extent(m, n, k), info).block == block
    rng = np.random.default_rng(m)
    a = small_integers(rng, (m, k), np.float32)
    b = small_integers(rng, (k, n), np.float32)
    (got,) = run_graph(matmul_graph(a, b), (a, b))
    np.testing.assert_array_equal(got, a.astype(np.int64) @ b.astype(np.int64))


@pytest.mark.parametrize("profile", PROFILES)
def test_batches_that_share_the_right_operand_are_rows(profile):
    rng = np.random.default_rng(5)
    a = small_integers(rng, (3, 5, 7, 12), np.float32)
    b = small_integers(rng, (20, 12), np.float32)
    builder = Builder()
    left, stored = builder.input(type_of(a)), builder.input(type_of(b))
    (right,) = builder.emit(Transpose((1, 0)), (stored,))
    (right,) = builder.emit(Broadcast((3, 5, 12, 20)), (right,))
    builder.result(*builder.emit(MatMul(), (left, right)))
    graph = builder.finish()
    (got,) = run_graph(graph, (a, b), PROFILES[profile])
    np.testing.assert_array_equal(got, a @ b.T)
    flat = matmul_graph(a.reshape(105, 12), b, turn_b=True)
    kernels = [set(plan_graph(g, PROFILES[profile]).kernels) for g in (graph, flat)]
    assert kernels[0] == kernels[1]


def test_batches_apart_from_each_other_stay_batches():
    rng = np.random.default_rng(6)
    a = small_integers(rng, (4, 6, 8), np.float32)
    b = small_integers(rng, (8, 16), np.float32)
    builder = Builder()
    (cut,) = builder.emit(Slice(1, 0, 5), (builder.input(type_of(a)),))
    (right,) = builder.emit(Broadcast((4, 8, 16)), (builder.input(type_of(b)),))
    builder.result(*builder.emit(MatMul(), (cut, right)))
    (got,) = run_graph(builder.finish(), (a, b))
    np.testing.assert_array_equal(got, a[:, :5] @ b)
