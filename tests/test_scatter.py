"""Updates by index on many shapes and devices, in place, and the same at every run."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot.core import dtypes
from poot.core.builder import Builder
from poot.core.dtypes import DType, Scalar
from poot.core.equation import ValueId
from poot.core.graph import Graph
from poot.core.op import Op
from poot.core.ops.elementwise import Binary, BinaryOp
from poot.core.ops.index_dims import ScatterDims
from poot.core.ops.scatter import (
    DynamicUpdateSlice,
    Scatter,
    ScatterMode,
    ScatterOp,
    ScatterUpdate,
)
from poot.core.ops.shape import Reshape, Slice
from poot.core.types import Storage, TensorType
from poot.lowering.compile import lower, plan
from poot.lowering.device_info import DeviceKind
from poot.lowering.program import Copy, Dispatch, Space
from tests.backends import device_backend
from tests.graph_runs import assert_right
from tests.kernel_harness import (
    assert_exact,
    device,
    one_op,
    plan_graph,
    run_graph,
    same_bits,
)
from tests.numerics import Array, rng_of
from tests.pass_harness import graph_of

pytestmark = pytest.mark.skipif(device_backend() is None, reason="no Vulkan device")

ROWS = ScatterDims((1,), (0,), (0,))
# Devices whose kernels differ: of a GPU's schedule, without small storage.
PROFILES: tuple[dict[str, Any], ...] = (
    {},
    {"kind": DeviceKind.OTHER},
    {"storage8": False, "storage16": False},
)
# Rows of updates around a chunk, and of several levels; widths around units.
COUNTS_AND_WIDTHS = ((1, 4), (31, 3), (32, 1), (33, 16), (65, 5), (1500, 8), (3000, 1))


def operands(dtype: DType, rows: int, count: int, width: int) -> list[Array]:
    """Whole numbers, so that sums are exact, and indices on both sides of the rows."""
    rng = rng_of(f"{dtype}{rows}{count}{width}")

    def numbers(shape: tuple[int, ...]) -> Array:
        return rng.integers(0, 4, shape).astype(dtype.numpy)

    indices = rng.integers(-1, rows + 1, (count, 1)).astype(np.int32)
    return [numbers((rows, width)), indices, numbers((count, width))]


@pytest.mark.parametrize("profile", PROFILES, ids=str)
@pytest.mark.parametrize("member", [ScatterOp.SET, ScatterOp.ADD], ids=str)
def test_rows_of_every_number_and_width(
    member: ScatterOp, profile: dict[str, Any]
) -> None:
    for number, (count, width) in enumerate(COUNTS_AND_WIDTHS):
        dtype = (dtypes.float32, dtypes.bfloat16, dtypes.int8)[number % 3]
        given = operands(dtype, 7, count, width)
        assert_exact(one_op(Scatter(member, ROWS), *given), given, profile, True)


@pytest.mark.parametrize("member", ScatterOp, ids=str)
def test_promises_change_nothing_where_they_hold(member: ScatterOp) -> None:
    base, indices, updates = operands(dtypes.float32, 50, 120, 4)
    ordered = np.sort(indices, 0)
    for mode in ScatterMode:
        op = Scatter(member, ROWS, mode, indices_are_sorted=True)
        assert_exact(one_op(op, base, ordered, updates), (base, ordered, updates))
    once = np.random.default_rng(0).permutation(50)[:40, None].astype(np.int32)
    op = Scatter(member, ROWS, unique_indices=True)
    given = base, once, updates[:40]
    assert_exact(one_op(op, *given), given)


def test_columns_by_more_keys_or_by_turning_the_target() -> None:
    """Axes before the one led into are keys, or the target is turned, by the work."""
    columns = ScatterDims((0, 2), (1,), (1,))
    rng = rng_of("columns")
    for shape, count in (((3, 50, 4), 2), ((6, 9, 4), 70)):
        base = rng.integers(0, 9, shape).astype(np.float32)
        updates = rng.integers(0, 9, (shape[0], count, shape[2])).astype(np.float32)
        indices = rng.integers(-1, shape[1] + 1, (count, 1)).astype(np.int32)
        for member in (ScatterOp.SET, ScatterOp.ADD):
            given = base, indices, updates
            assert_exact(one_op(Scatter(member, columns), *given), given)


def test_many_updates_of_one_element() -> None:
    ones = np.ones((70001, 1), np.float32)
    index = np.zeros((70001, 1), np.int32)
    graph = one_op(Scatter(ScatterOp.ADD, ROWS), ones[:2], index, ones)
    (result,) = run_graph(graph, (ones[:2], index, ones))
    assert result.ravel().tolist() == [70002, 1]


def test_sums_have_the_same_bits_at_every_run() -> None:
    rng = rng_of("runs")
    base = rng.standard_normal((40, 8)).astype(np.float32)
    index = rng.integers(0, 40, (4000, 1)).astype(np.int32)
    updates = rng.standard_normal((4000, 8)).astype(np.float32)
    graph = one_op(Scatter(ScatterOp.ADD, ROWS), base, index, updates)
    runs = [run_graph(graph, (base, index, updates))[0] for _ in range(3)]
    assert all(same_bits(run, runs[0]) for run in runs)
    exact = base.astype(np.float64)
    np.add.at(exact, index[:, 0], updates.astype(np.float64))
    np.testing.assert_allclose(runs[0], exact, rtol=1e-5, atol=1e-5)


def test_narrow_floats_are_rounded_once() -> None:
    """Each of these would vanish in a sum of f16, but together they count."""
    base = np.full((1, 1), 2048, np.float16)
    updates = np.ones((100, 1), np.float16)
    index = np.zeros((100, 1), np.int32)
    given = base, index, updates
    graph = one_op(Scatter(ScatterOp.ADD, ROWS), *given)
    assert run_graph(graph, given)[0].item() == 2148


# --- in place ---------------------------------------------------------------


def updated_state(*ops: tuple[Op, tuple[TensorType, ...]], kept: bool = False) -> Graph:
    """The state after one update after the other."""
    builder = Builder()
    state = builder.input(TensorType((64, 8), dtypes.float32), Storage.STATE)
    value = state
    for op, types in ops:
        rest = tuple(builder.input(type) for type in types)
        (value,) = builder.emit(op, (value, *rest))
    if kept:
        builder.result(state)
    builder.state_next(state, value)
    return builder.finish()


I32 = dtypes.int32
THREE_ROWS = TensorType((3, 8), dtypes.float32)
IN_PLACE: tuple[tuple[Op, tuple[TensorType, ...]], ...] = (
    (ScatterUpdate(), (THREE_ROWS, TensorType((3,), I32))),
    (DynamicUpdateSlice(), (THREE_ROWS, TensorType((), I32), TensorType((), I32))),
    (Scatter(ScatterOp.ADD, ROWS), (TensorType((3, 1), I32), THREE_ROWS)),
)


@pytest.mark.parametrize(
    "applied", [*((each,) for each in IN_PLACE), IN_PLACE], ids=str
)
def test_donated_storage_is_updated_where_it_stands(applied: Any) -> None:
    graph = updated_state(*applied)
    program = plan_graph(graph)
    assert not any(isinstance(node, Copy) for node in program.body)
    writes = [
        where
        for node in program.body
        if isinstance(node, Dispatch)
        for where in node.writes
        if where.space is Space.STATE
    ]
    assert len(writes) == len(applied)
    assert program.arena_bytes < 64 * 8 * 4
    assert_right(graph)


def test_state_that_is_asked_for_later_is_copied() -> None:
    graph = updated_state(*IN_PLACE, kept=True)
    assert any(isinstance(node, Copy) for node in plan_graph(graph).body)
    assert_right(graph)


def test_what_is_of_no_use_afterwards_is_updated_where_it_stands() -> None:
    """From the argument to the result there is one copy, of zeros there is none."""

    def three(x: Any, i: Any, y: Any) -> Any:
        return x.at[i].set(y).at[i].add(y).at[0].multiply(y[0])

    def sums(x: Any, i: Any, y: Any) -> Any:
        """The last update is no result, but part of one."""
        return three(x, i, y) * 2, jnp.zeros((5, 4)).at[i].add(y)

    def kept(x: Any, i: Any, y: Any) -> Any:
        """Each of these is needed as it was."""
        one = x.at[i].set(y)
        rows = one[:3]
        return one.at[i].add(rows), one.at[i].add(one[0]) + one

    x = np.arange(20, dtype=np.float32).reshape(5, 4)
    index, y = np.array([1, 3, 1], np.int32), x[:3] + 7
    for function, copies in ((three, 1), (sums, 1), (kept, 3)):
        graph = poot.make_graph(function)(x, index, y)
        program = plan(lower(graph, device().info).graph, device().info)
        assert sum(isinstance(node, Copy) for node in program.body) == copies
        assert_right(graph)


def test_an_update_of_what_cannot_be_made_where_the_state_stands() -> None:
    """The state is read once more after that."""
    graph = graph_of("""
        state %0: f32[8,4]
        device %1: f32[1,4]
        %2: f32[8,4] = unary[op=abs](%0)
        %3: f32[8,4] = reverse[axes=(0)](%0)
        %4: f32[8,4] = dynamic_update_slice(%2, %1, 5:i32, 0:i32)
        result %3
        next %0 = %4
    """)
    assert_right(graph)


def test_few_slots_take_two_launches() -> None:
    program = plan_graph(updated_state(IN_PLACE[0]))
    assert len(program.body) == 2
    program = plan_graph(updated_state(IN_PLACE[1]))
    assert len(program.body) == 1


def test_an_update_of_all_is_a_copy() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    builder = Builder()
    old, new = builder.input(THREE_ROWS), builder.input(THREE_ROWS)
    zero = Scalar.of(0, I32)
    builder.result(*builder.emit(DynamicUpdateSlice(), (old, new, zero, zero)))
    (node,) = plan_graph(builder.finish()).body
    assert isinstance(node, Copy)
    starts = np.array(1, np.int32), np.array(-7, np.int32)
    given = x, x + 20, *starts
    assert_exact(one_op(DynamicUpdateSlice(), *given), given)


class Updates:
    """A random graph of updates of a state and an argument, views of them and sums."""

    def __init__(self, seed: int) -> None:
        self.choose = Random(seed)
        self.builder = Builder()
        self.type = TensorType((6, 4), dtypes.float32)
        self.state = self.builder.input(self.type, Storage.STATE)
        self.values = [self.state, self.builder.input(self.type)]
        self.rows = [self.builder.input(TensorType((3, 4), dtypes.float32))]
        self.index = self.builder.input(TensorType((3, 1), I32))

    def graph(self) -> Graph:
        choose = self.choose
        for _ in range(choose.randint(2, 9)):
            choose.choice((self._update, self._update, self._view, self._sum))()
        for value in choose.sample(self.values, choose.randint(1, 2)):
            self.builder.result(value)
        following = choose.choice(self.values[-3:])
        self.builder.state_next(self.state, following)
        return self.builder.finish()

    def _pick(self) -> ValueId:
        recent = self.choose.random() < 0.6
        return self.values[-1] if recent else self.choose.choice(self.values)

    def _emit(self, op: Op, *operands: ValueId | Scalar) -> ValueId:
        return self.builder.emit(op, operands)[0]

    def _update(self) -> None:
        x, rows = self._pick(), self.choose.choice(self.rows)
        kind = self.choose.randrange(3)
        if kind == 0:
            member = self.choose.choice(list(ScatterOp)[:2])
            made = self._emit(Scatter(member, ROWS), x, self.index, rows)
        elif kind == 1:
            slots = self._emit(Reshape((3,)), self.index)
            made = self._emit(ScatterUpdate(), x, rows, slots)
        else:
            start = Scalar.of(self.choose.randint(0, 3), I32)
            made = self._emit(DynamicUpdateSlice(), x, rows, start, Scalar.of(0, I32))
        self.values.append(made)

    def _view(self) -> None:
        start = self.choose.randint(0, 3)
        self.rows.append(self._emit(Slice(0, start, start + 3), self._pick()))

    def _sum(self) -> None:
        other = self._pick()
        self.values.append(self._emit(Binary(BinaryOp.MAX), self._pick(), other))


@pytest.mark.parametrize("seed", range(60))
def test_random_rows_of_updates(seed: int) -> None:
    assert_right(Updates(seed).graph(), seed)
