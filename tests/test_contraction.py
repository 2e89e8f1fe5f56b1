"""Contractions of every shape: dot_general and indexed_matmul against the oracle."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poot.core.builder import Builder
from poot.core.dtypes import as_dtype
from poot.core.errors import DTypeError, ShapeError
from poot.core.graph import Graph
from poot.core.ops.matmul import DotGeneral, IndexedMatMul, MatMul
from poot.core.ops.shape import Broadcast, Slice, Transpose
from poot.core.types import TensorType
from poot.lowering.device_info import DeviceInfo, DeviceKind
from poot.lowering.kernels.contraction_dot import Dot
from poot.lowering.kernels.contraction_schedule import Extent, choose, exchange_pays
from poot.lowering.program import Copy
from poot.lowering.tuned import Tuned
from tests.kernel_harness import (
    assert_exact,
    device,
    one_op,
    plan_graph,
    run_graph,
    same_bits,
    type_of,
)
from tests.test_matmul import PROFILES, matmul_graph, small_integers

SIZES = (0, 1, 2, 15, 16, 17, 63, 64, 65, 127, 129)


@pytest.mark.parametrize("turned", [False, True])
def test_sizes_around_tiles_and_vectors(turned: bool) -> None:
    """A Latin square: all pairs of sizes of M and N, of M and K, and of N and K."""
    rng = np.random.default_rng(0)
    for i, j in itertools.product(range(len(SIZES)), repeat=2):
        m, n, k = SIZES[i], SIZES[j], SIZES[(i + j) % len(SIZES)]
        a = small_integers(rng, (m, k), np.float32)
        b = small_integers(rng, (n, k) if turned else (k, n), np.float32)
        graph = matmul_graph(a, b, turn_b=turned)
        (got,) = run_graph(graph, (a, b), generic=True)
        np.testing.assert_array_equal(got, a @ (b.T if turned else b), f"{m} {n} {k}")


# --- any axes in any order --------------------------------------------------


@st.composite
def dots(draw: Any) -> tuple[DotGeneral, list[int], list[int], list[int], list[int]]:
    """Axes of either operand by role, mixed, and how both are stored."""
    size = st.integers(1, 6)
    batch = draw(st.lists(size, max_size=2))
    inner = draw(st.lists(size, max_size=3))
    rows, columns = draw(st.lists(size, max_size=2)), draw(st.lists(size, max_size=2))
    sides = []
    for free in (rows, columns):
        sizes = [*batch, *inner, *free]
        places = draw(st.permutations(range(len(sizes))))
        shape = [0] * len(sizes)
        for axis, place in enumerate(places):
            shape[place] = sizes[axis]
        stored = draw(st.permutations(range(len(sizes))))
        count = len(batch)
        roles = places[:count], places[count : count + len(inner)]
        sides.append((shape, roles, stored))
    (a, (a_batch, a_inner), a_perm), (b, (b_batch, b_inner), b_perm) = sides
    op = DotGeneral(*map(tuple, (a_inner, b_inner, a_batch, b_batch)))
    return op, a, b, a_perm, b_perm


def stored_graph(op: DotGeneral, operands: list[Any]) -> tuple[Graph, list[Any]]:
    """The op on views that are cut out of larger buffers, whose axes are permuted."""
    builder = Builder()
    values, arrays = [], []
    for array, perm in operands:
        # Axis i of the operand is axis perm[i] of what is stored.
        order = sorted(range(len(perm)), key=lambda place: perm[place])
        stored = array.transpose(order)
        cut = max(range(stored.ndim), key=lambda i: stored.shape[i], default=None)
        if cut is None:
            values.append(builder.input(type_of(array)))
            arrays.append(array)
            continue
        widths = [(0, 0)] * stored.ndim
        widths[cut] = (1, 2)
        wide = np.pad(stored, widths, constant_values=99)
        value = builder.input(type_of(wide))
        end = 1 + stored.shape[cut]
        (value,) = builder.emit(Slice(cut, 1, end), (value,))
        (value,) = builder.emit(Transpose(tuple(perm)), (value,))
        values.append(value)
        arrays.append(wide)
    builder.result(*builder.emit(op, tuple(values)))
    return builder.finish(), arrays


@settings(max_examples=40, deadline=None)
@given(dots(), st.sampled_from(list(PROFILES)), st.booleans())
def test_any_axes_as_they_are_stored(drawn: Any, profile: str, generic: bool) -> None:
    op, a, b, a_perm, b_perm = drawn
    rng = np.random.default_rng(math.prod(a) + math.prod(b))
    operands = [
        (small_integers(rng, tuple(shape), np.int32), perm)
        for shape, perm in ((a, a_perm), (b, b_perm))
    ]
    graph, arrays = stored_graph(op, operands)
    assert_exact(graph, arrays, PROFILES[profile], generic)


def test_operands_are_read_where_they_stand() -> None:
    # No stride walks batch and rows, nor the two contracted axes, of either operand.
    op = DotGeneral((1, 3), (3, 0), (2,), (1,))
    a, b = np.ones((6, 4, 3, 5), np.float32), np.ones((5, 3, 8, 4), np.float32)
    program = plan_graph(one_op(op, a, b))
    assert len(program.dispatches) == 1 and program.arena_bytes == 0
    assert not any(isinstance(node, Copy) for node in program.body)


@pytest.mark.parametrize("profile", PROFILES)
def test_batches_that_share_the_left_operand_are_columns(profile: str) -> None:
    rng = np.random.default_rng(6)
    a = small_integers(rng, (9, 12), np.float32)
    b = small_integers(rng, (3, 12, 20), np.float32)
    builder = Builder()
    left, right = builder.input(type_of(a)), builder.input(type_of(b))
    (left,) = builder.emit(Broadcast((3, 9, 12)), (left,))
    builder.result(*builder.emit(MatMul(), (left, right)))
    graph = builder.finish()
    (got,) = run_graph(graph, (a, b), PROFILES[profile])
    np.testing.assert_array_equal(got, a @ b)
    (node,) = plan_graph(graph, PROFILES[profile]).body
    assert node.flops == 2 * 3 * 9 * 12 * 20


def test_matmul_and_dot_general_are_one_kernel() -> None:
    a, b = np.ones((3, 20, 24), np.float32), np.ones((3, 24, 40), np.float32)
    dot = DotGeneral((2,), (1,), (0,), (0,))
    kernels = [set(plan_graph(one_op(op, a, b)).kernels) for op in (MatMul(), dot)]
    assert kernels[0] == kernels[1]


@pytest.mark.parametrize("profile", PROFILES)
def test_long_contractions_are_exact(profile: str) -> None:
    ones = np.ones((5, 70000), np.float32)
    op = DotGeneral((1,), (1,))
    (got,) = run_graph(one_op(op, ones, ones), (ones, ones), PROFILES[profile])
    assert (got == 70000).all()
    lone = np.ones((70000,), np.float32)
    dot = one_op(DotGeneral((0,), (0,)), lone, lone)
    (got,) = run_graph(dot, (lone, lone), PROFILES[profile])
    assert got == 70000


def test_sums_of_signed_zeros_are_positive() -> None:
    a, b = np.full((3, 2), -1, np.float32), np.zeros((2, 4), np.float32)
    for generic in (False, True):
        (got,) = run_graph(one_op(MatMul(), a, b), (a, b), generic=generic)
        assert not np.signbit(got).any()


# --- schedules --------------------------------------------------------------


def test_few_columns_become_the_rows() -> None:
    info = device().info
    assert exchange_pays(Extent(1000, 2), info)
    assert not exchange_pays(Extent(2, 1000), info)
    if info.is_cpu:
        assert exchange_pays(Extent(1000, 9, 5000), info)
    rng = np.random.default_rng(3)
    a = small_integers(rng, (1000, 900), np.float32)
    b = small_integers(rng, (900, 10), np.float32)
    (got,) = run_graph(matmul_graph(a, b), (a, b))
    np.testing.assert_array_equal(got, a @ b)


def test_few_rows_take_a_kernel_by_what_stands_side_by_side() -> None:
    # So small a device that these columns keep it busy.
    info = device().info.masked(compute_units=2)
    wide, deep = Extent(1, 5000, 5000), Extent(1, 5000, 5000, inner_is_dense=True)
    assert choose(wide, info).kind == "direct"
    assert choose(Extent(1, 5000, 9, 100), info).kind == "direct"
    assert choose(deep, info).kind == "dot"
    assert choose(deep, info.masked(subgroup_arithmetic=False)).kind != "dot"


# --- indexed_matmul ---------------------------------------------------------


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("index", [np.int8, np.uint32, np.int64])
def test_each_row_has_its_matrix(profile: str, index: Any) -> None:
    rng = np.random.default_rng(4)
    x = small_integers(rng, (17, 70), np.float32)
    w = small_integers(rng, (5, 70, 36), np.float32)
    idx = rng.integers(0 if index == np.uint32 else -3, 9, 17).astype(index)
    graph = one_op(IndexedMatMul(), x, w, idx)
    for generic in (False, True):
        (got,) = run_graph(graph, (x, w, idx), PROFILES[profile], generic)
        chosen = w[np.clip(idx.astype(np.int64), 0, 4)]
        np.testing.assert_array_equal(got, np.einsum("mk,mkn->mn", x, chosen))


def test_matrices_are_not_copied_and_rows_do_their_own_work_only() -> None:
    shapes = ((9, 64), (16, 64, 128))
    x, w = (np.ones(shape, np.float32) for shape in shapes)
    idx = np.zeros(9, np.int32)
    (node,) = plan_graph(one_op(IndexedMatMul(), x, w, idx)).body
    assert node.flops == 2 * 9 * 64 * 128
    builder = Builder()
    values = [builder.input(type_of(array)) for array in (x, np.swapaxes(w, 1, 2), idx)]
    (turned,) = builder.emit(Transpose((0, 2, 1)), (values[1],))
    out = builder.emit(IndexedMatMul(), (values[0], turned, values[2]))
    builder.result(*out)
    program = plan_graph(builder.finish())
    assert len(program.body) == 1 and program.arena_bytes == 0


def test_indexed_long_contraction_is_exact() -> None:
    x, w = np.ones((3, 70000), np.float32), np.ones((2, 70000, 4), np.float32)
    idx = np.array([0, 1, 7], np.int32)
    (got,) = run_graph(one_op(IndexedMatMul(), x, w, idx), (x, w, idx))
    assert (got == 70000).all()


# --- refusals ---------------------------------------------------------------

F = as_dtype(np.float32)
REFUSED = (
    (
        DotGeneral((0,), (0,)),
        [(3,), (4,)],
        ShapeError,
        r"contracts axes .*\[3\].*\[4\]",
    ),
    (DotGeneral((), (), (0,), (0,)), [(3,), (4,)], ShapeError, "batches axes"),
    (DotGeneral((1,), (0,)), [(3,), (3,)], ShapeError, "each axis in 0..0"),
    (DotGeneral((0,), (0,), (0,), (0,)), [(3,), (3,)], ShapeError, "at most once"),
    (
        DotGeneral((0,), (0,), out=as_dtype(np.int32)),
        [(3,), (3,)],
        DTypeError,
        "to i32",
    ),
    (IndexedMatMul(), [(2, 3), (4, 5, 6), (2,)], ShapeError, r"\[E, K, N\]"),
    (IndexedMatMul(), [(2, 3), (4, 3, 6), (3,)], ShapeError, "3 indices of 2 rows"),
    (IndexedMatMul(), [(2, 3), (0, 3, 6), (2,)], ShapeError, "w is empty"),
)


@pytest.mark.parametrize(("op", "shapes", "error", "words"), REFUSED, ids=str)
def test_refusals(op: Any, shapes: Any, error: Any, words: str) -> None:
    types = [TensorType(shape, F) for shape in shapes]
    if isinstance(op, IndexedMatMul):
        types[2] = TensorType(shapes[2], as_dtype(np.int32))
    with pytest.raises(error, match=words):
        op.infer(*types)


def test_indices_are_integers() -> None:
    types = [TensorType(shape, F) for shape in ((2, 3), (4, 3, 6), (2,))]
    with pytest.raises(DTypeError, match="indices are f32"):
        IndexedMatMul().infer(*types)


# --- few rows ---------------------------------------------------------------

GPU = {"kind": DeviceKind.DISCRETE, "max_loop_trips": None}


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize(
    ("m", "rows"), [(1, 1), (2, 2), (5, 5), (8, 8), (9, 5), (16, 8)]
)
def test_few_rows_share_what_a_subgroup_reads(m: int, rows: int, dtype: Any) -> None:
    info = device().info.masked(**GPU)
    rng = np.random.default_rng(m)
    for n, k in ((9, 200), (300, 328), (128, 128)):
        a, b = (small_integers(rng, shape, dtype) for shape in ((m, k), (n, k)))
        graph = one_op(DotGeneral((1,), (1,)), a, b)
        (node,) = plan_graph(graph, info).body
        assert node.kernel.schedule.startswith(f"dot {rows}x")
        assert_exact(graph, (a, b), info)


@pytest.mark.parametrize(("m", "k"), [(1, 8192), (3, 8451)])
def test_subgroups_share_long_sums(m: int, k: int) -> None:
    info = device().info.masked(**GPU)
    rng = np.random.default_rng(k)
    a, b = (small_integers(rng, shape, np.float32) for shape in ((m, k), (9, k)))
    graph = one_op(DotGeneral((1,), (1,)), a, b)
    (node,) = plan_graph(graph, info).body
    assert node.kernel.schedule.endswith(", 4 a column")
    assert_exact(graph, (a, b), info)


@pytest.mark.parametrize(("m", "k"), [(1, 2040), (1, 8440), (2, 2040), (2, 8440)])
def test_a_sum_is_the_same_beside_any_others(m: int, k: int) -> None:
    """In every bit, however many columns a subgroup has and loads are on their way."""
    info = device().info.masked(**GPU)
    rng = np.random.default_rng(k)
    x = rng.standard_normal((m, k)).astype(np.float32)
    few, many = (rng.standard_normal((n, k)).astype(np.float32) for n in (8, 4300))
    many[:8] = few
    found = []
    for weights in (few, many):
        graph = one_op(DotGeneral((1,), (1,)), x, weights)
        found.append(run_graph(graph, (x, weights), info)[0][:, :8])
    assert same_bits(*found)


@pytest.mark.parametrize("m", [1, 4])
def test_tried_schedules_of_few_rows_give_the_same_bits(m: int) -> None:
    info = device().info.masked(**GPU)
    rng = np.random.default_rng(m)
    x, w = (rng.standard_normal((n, 1100)).astype(np.float32) for n in (m, 21))
    graph = one_op(DotGeneral((1,), (1,)), x, w)
    seen: dict[str, list[str]] = {}
    plan_graph(graph, info.masked(tuned=Tuned({}, seen)))
    ((key, names),) = seen.items()
    dots = [name for name in names if name.startswith("dot ")]
    assert f"dot {m}x1, 2 ahead" in dots and len(dots) > 3, dots
    found = []
    for name in dots:
        tuned = info.masked(tuned=Tuned({key: name}))
        assert plan_graph(graph, tuned).dispatches[0].kernel.name.startswith("matmul_d")
        found.append(run_graph(graph, (x, w), tuned)[0])
    assert all(same_bits(found[0], other) for other in found[1:])


def test_schedules_of_few_rows() -> None:
    info = DeviceInfo(subgroup_size=32, compute_units=132, kind=DeviceKind.DISCRETE)
    wide = Extent(1, 8192, 2048, inner_is_dense=True, run=8)
    # All weights of a lane on their way at once, up to 256 bytes.
    assert choose(wide, info).dot == Dot(1, 1, 8, 8)
    assert choose(replace(wide, k=1800), info).dot == Dot(1, 1, 8, 4)
    assert choose(replace(wide, k=8191), info).dot == Dot(1, 1, 8, 16)
    assert choose(replace(wide, heads=2), info).dot == Dot(1, 1, 8, 8)
    assert choose(replace(wide, k=4096, heads=2), info).dot == Dot(1, 1, 8, 8)
    # Of several rows fewer, on as many columns as leave workgroups.
    assert choose(replace(wide, m=4), info).dot == Dot(4, 2, 8, 2)
    assert choose(replace(wide, m=4, n=2048), info).dot == Dot(4, 1, 8, 4)
    assert choose(replace(wide, m=4, k=4096), info).dot == Dot(4, 2, 8, 4)
    assert choose(replace(wide, k=8191), info).dot.parts == 1
    assert choose(replace(wide, k=8192), info).dot == Dot(1, 1, 8, 8, parts=4)
    assert choose(replace(wide, k=1 << 20), info).dot.parts == 4
    assert choose(replace(wide, k=8192), DeviceInfo()).dot.parts == 1
    assert choose(replace(wide, m=16), info).dot.rows == 8
    assert choose(replace(wide, m=17), info).kind == "tile"
    assert choose(replace(wide, m=16, inner_is_dense=False), info).kind == "tile"
    assert choose(replace(wide, m=4, k=32), info).kind == "tile"
    assert choose(wide, DeviceInfo()).dot == Dot(1, 4, 8)
    assert choose(replace(wide, n=3), DeviceInfo()).dot == Dot(1, 2, 8)
