"""What the SPIR-V builder knows: folding, bounds, clamps, reach, loop rounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poot.core.errors import LimitError
from poot.lowering.device_info import DeviceInfo, DeviceKind
from poot.lowering.program import Access
from poot.lowering.spirv.builder import KernelBuilder, Pointer, Size, Value
from poot.lowering.spirv.opcodes import Op
from poot.lowering.spirv.types import BOOL, F16, F32, I32, U8, U32, U64, vector
from tests.spirv_words import clamps, count, operands

# A GPU, since indices take an instruction more on CPU devices.
INFO = DeviceInfo(kind=DeviceKind.DISCRETE)
LEAST = -(1 << 31)


def make() -> KernelBuilder:
    return KernelBuilder("k", INFO)


def given_u32(k: KernelBuilder, limit: int | None = None) -> Value:
    """A u32 that is known only when the kernel runs."""
    return k.metadata(k.metadata_words, limit=limit)


# --- folding ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "result"),
    [
        (lambda k: k.u32(7) + 8, 15),
        (lambda k: k.u32(7) - 8, 0xFFFFFFFF),
        (lambda k: k.u32(1 << 31) * 2, 0),
        (lambda k: k.i32(LEAST) - 1, (1 << 31) - 1),
        (lambda k: k.div(k.i32(-7), 2), -3),
        (lambda k: k.rem(k.i32(-7), 3), -1),
        (lambda k: k.div(k.i32(LEAST), -1), LEAST),
        (lambda k: k.rem(k.i32(LEAST), -1), 0),
        (lambda k: k.div(k.i32(5), 0), 0),
        (lambda k: k.rem(k.u32(5), 0), 0),
        (lambda k: k.u32(17) // 5, 3),
        (lambda k: k.u32(17) % 5, 2),
        (lambda k: k.ceil_div(k.u32(17), 5), 4),
        (lambda k: -k.i32(LEAST), LEAST),
        (lambda k: ~k.u32(1), 0xFFFFFFFE),
        (lambda k: k.shl(k.u32(1), 32), 0),
        (lambda k: k.u32(1) << 31, 1 << 31),
        (lambda k: k.shr(k.i32(-1), 31), 1),
        (lambda k: k.shr(k.u32(5), 40), 0),
        (lambda k: k.sub(k.i32(3), 5) & 0xFF, 0xFE),
        (lambda k: k.u32(12) | 3, 15),
        (lambda k: k.u32(12) ^ 4, 8),
        (lambda k: k.min(k.i32(-3), 2), -3),
        (lambda k: k.max(k.u32(3), 2), 3),
        (lambda k: k.lt(k.i32(-3), 2), True),
        (lambda k: k.ge(k.u32(3), 4), False),
        (lambda k: k.logical_not(k.eq(k.u32(3), 3)), False),
        (lambda k: k.select(k.bool_(False), k.u32(3), 4), 4),
        (lambda k: k.convert(k.i32(-1), U64), (1 << 64) - 1),
        (lambda k: k.convert(k.i32(-1), U8), 255),
        (lambda k: k.convert(k.u32(3), BOOL), True),
        (lambda k: k.bitcast(k.i32(-1), U32), 0xFFFFFFFF),
    ],
)
def test_constants_fold(build: Callable[[KernelBuilder], Value], result: int) -> None:
    value = build(make())
    assert value.const == result


@pytest.mark.parametrize(
    "identity",
    [
        lambda x: x + 0,
        lambda x: 0 + x,
        lambda x: x - 0,
        lambda x: x * 1,
        lambda x: x // 1,
        lambda x: x | 0,
        lambda x: x ^ 0,
        lambda x: x << 0,
        lambda x: x >> 0,
        lambda x: x % 10,
        lambda x: x.k.min(x, 9),
        lambda x: x.k.div(x, 1),
        lambda x: x.k.select(True, x, 3),
        lambda x: x.k.convert(x, U32),
    ],
)
def test_identities_emit_nothing(identity: Callable[[Value], Value]) -> None:
    x = given_u32(make(), limit=10)
    assert identity(x) is x


def test_zero_of_integers_folds() -> None:
    x = given_u32(make(), limit=10)
    for zero in (x * 0, x & 0, x // 10, x % 1):
        assert zero.const == 0


def test_floats_are_never_folded() -> None:
    k = make()
    out = k.operand("out", Access.WRITE)
    x = k.load(k.operand("x", Access.READ), F32, 0, 1)
    for index, value in enumerate([x + 0.0, x * 1.0, x * 0.0, x - 0.0, x / 1.0]):
        k.store(out, F32, index, value, 8)
    kernel = k.finish()
    emitted = [count(kernel, op) for op in (Op.FAdd, Op.FMul, Op.FSub, Op.FDiv)]
    assert emitted == [1, 2, 1, 1]


def test_sizes_stay_python_numbers() -> None:
    k = make()
    results: list[Size] = [k.add(2, 3), k.sub(2, 3), k.mul(2, 3), k.div(7, 2)]
    results += [k.rem(7, 2), k.index_div(7, 2), k.index_rem(7, 2), k.ceil_div(7, 2)]
    results += [k.min(2, 3), k.max(2, 3)]
    assert results == [5, -1, 6, 3, 1, 3, 1, 4, 2, 3]


def test_equal_instructions_are_emitted_once_where_they_reach() -> None:
    k = make()
    out = k.operand("out", Access.WRITE)
    n = given_u32(k)
    inside = []
    for _ in range(2):
        with k.when(n > 5):
            first, second = n * 3 + 1, n * 3 + 1
            assert first is second
            inside.append(first)
            k.store(out, U32, 0, first, 1)
    assert inside[0] is not inside[1]
    kernel = k.finish()
    assert count(kernel, Op.IMul) == 2
    assert count(kernel, Op.ULessThan) == 1


def test_loads_are_not_merged() -> None:
    k = make()
    x = k.operand("x", Access.UPDATE)
    k.store(x, U32, 0, k.load(x, U32, 0, 1) + 1, 1)
    k.store(x, U32, 0, k.load(x, U32, 0, 1) + 1, 1)
    assert count(k.finish(), Op.Store) == 2


# --- limits -----------------------------------------------------------------

Step = tuple[str, Callable[[Any, Any, Any], Any], Callable[[int, int], int]]

STEPS: list[Step] = [
    ("+", lambda k, a, b: a + b, lambda a, b: a + b),
    ("-", lambda k, a, b: a - b, lambda a, b: a - b),
    ("*", lambda k, a, b: a * b, lambda a, b: a * b),
    ("div", lambda k, a, b: k.div(a, b), lambda a, b: a // b if b else 0),
    ("rem", lambda k, a, b: k.rem(a, b), lambda a, b: a % b if b else 0),
    ("//", lambda k, a, b: a // k.max(b, 1), lambda a, b: a // max(b, 1)),
    ("%", lambda k, a, b: a % k.max(b, 1), lambda a, b: a % max(b, 1)),
    ("&", lambda k, a, b: a & b, lambda a, b: a & b),
    ("|", lambda k, a, b: a | b, lambda a, b: a | b),
    ("^", lambda k, a, b: a ^ b, lambda a, b: a ^ b),
    ("<<", lambda k, a, b: a << b, lambda a, b: a << b if b < 32 else 0),
    (">>", lambda k, a, b: a >> b, lambda a, b: a >> b if b < 32 else 0),
    ("min", lambda k, a, b: k.min(a, b), min),
    ("max", lambda k, a, b: k.max(a, b), max),
    ("select", lambda k, a, b: k.select(a < b, a, b), lambda a, b: a if a < b else b),
    ("bitcast", lambda k, a, b: k.bitcast(k.bitcast(a, I32), U32), lambda a, b: a),
]
VALUES = st.one_of(st.integers(0, 40), st.integers(0, (1 << 32) - 1))


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[tuple[int, bool]], list[Any]]:
    """Inputs (value, whether it is a constant) and steps on any two results so far."""
    inputs = draw(st.lists(st.tuples(VALUES, st.booleans()), min_size=2, max_size=4))
    pick = st.integers(0, 99)
    steps = draw(
        st.lists(st.tuples(st.sampled_from(STEPS), pick, pick), min_size=1, max_size=8)
    )
    return inputs, steps


@given(programs(), st.integers(0, 5))
def test_limits_and_constants_are_right(
    program: tuple[list[tuple[int, bool]], list[Any]], slack: int
) -> None:
    """What the builder says of a value holds for the number that it stands for."""
    k = make()
    inputs, steps = program
    numbers = [number for number, _ in inputs]
    values = [
        k.u32(number)
        if constant
        else given_u32(k, min(number + 1 + slack * number, 1 << 32))
        for number, constant in inputs
    ]
    for (_, emit, compute), first, second in steps:
        at, by = first % len(values), second % len(values)
        values.append(emit(k, values[at], values[by]))
        numbers.append(compute(numbers[at], numbers[by]) & 0xFFFFFFFF)
    for value, number in zip(values, numbers, strict=True):
        assert value.limit is None or number < value.limit
        assert value.const is None or value.const == number


def test_limits_that_kernels_rely_on() -> None:
    k = make()
    x, y = given_u32(k, limit=100), given_u32(k, limit=10)
    assert (x + y).limit == 109
    assert (x * 10 + y).limit == 1000
    assert (x // 7).limit == 15
    assert (x % 7).limit == 7
    assert (given_u32(k) % 7).limit == 7
    assert (99 - x).limit == 100
    assert (given_u32(k) & 15).limit == 16
    assert (given_u32(k) >> 28).limit == 16
    assert (x - 1).limit is None  # it wraps at 0
    assert (x * given_u32(k)).limit is None
    assert k.local_index().limit == 64
    assert k.subgroup_lane().limit == 8
    assert k.subgroup_index().limit == 8
    assert [k.local_id(axis).limit for axis in range(3)] == [64, 1, 1]


# --- clamps and guards ------------------------------------------------------

Build = Callable[[KernelBuilder, Pointer, Value], None]


def _plain(k: KernelBuilder, x: Pointer, n: Value) -> None:
    k.load(x, F32, given_u32(k), 100)


def _by_metadata(k: KernelBuilder, x: Pointer, n: Value) -> None:
    k.load(x, F32, given_u32(k), n)


def _after_block(k: KernelBuilder, x: Pointer, n: Value) -> None:
    with k.when(n < 100):
        pass
    k.load(x, F32, n, 100)


def _other_bound(k: KernelBuilder, x: Pointer, n: Value) -> None:
    with k.when(given_u32(k) < n):
        k.load(x, F32, given_u32(k), n)


def _in_otherwise(k: KernelBuilder, x: Pointer, n: Value) -> None:
    i = given_u32(k)
    with k.when(i < n) as branch:
        pass
    with branch.otherwise():
        k.load(x, F32, i, n)


def _either(k: KernelBuilder, x: Pointer, n: Value) -> None:
    i = given_u32(k)
    with k.when(k.logical_or(i < n, i > 7)):
        k.load(x, F32, i, n)


@pytest.mark.parametrize(
    "build", [_plain, _by_metadata, _after_block, _other_bound, _in_otherwise, _either]
)
def test_unproven_index_is_clamped(build: Build) -> None:
    k = make()
    build(k, k.operand("x", Access.READ), given_u32(k))
    assert clamps(k.finish()) == 1


def _constant(k: KernelBuilder, x: Pointer, n: Value) -> None:
    k.load(x, F32, 99, 100)


def _remainder(k: KernelBuilder, x: Pointer, n: Value) -> None:
    k.load(x, F32, given_u32(k) % 100, 100)
    k.load(x, F32, given_u32(k) % n, n)


def _guarded(k: KernelBuilder, x: Pointer, n: Value) -> None:
    i = given_u32(k)
    with k.when(i < 100):
        k.load(x, F32, i, 100)
        k.load(x, F32, i * 3 + 2, 300)
    with k.when(n > i):
        k.load(x, F32, i, n)


def _both(k: KernelBuilder, x: Pointer, n: Value) -> None:
    i, j = given_u32(k), given_u32(k)
    with k.when(k.logical_and(i < n, j <= 9)):
        k.load(x, F32, i, n)
        k.load(x, F32, j, 10)


def _negated(k: KernelBuilder, x: Pointer, n: Value) -> None:
    i = given_u32(k)
    with k.when(i >= n) as branch:
        pass
    with branch.otherwise():
        k.load(x, F32, i, n)
    with k.when(k.logical_not(k.logical_or(i >= n, i > 7))):
        k.load(x, F32, i, n)
        k.load(x, F32, i, 8)


def _looped(k: KernelBuilder, x: Pointer, n: Value) -> None:
    with k.loop(n, max_trips=9) as i:
        k.load(x, F32, i, n)
    with k.loop(96, start=3, step=4) as i:
        k.load(x, F32, i, 96)
        k.load(x, F32, i + 4, 100)
    with k.loop(100) as i:
        k.break_if(i >= n)
        k.load(x, F32, i, n)


def _clamped_once(k: KernelBuilder, x: Pointer, n: Value) -> None:
    inside = k.min(given_u32(k), 5)
    k.load(x, F32, inside, 6)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (_constant, 0),
        (_remainder, 0),
        (_guarded, 0),
        (_both, 0),
        (_negated, 0),
        (_looped, 0),
        (_clamped_once, 1),
    ],
)
def test_proven_index_is_not_clamped(build: Build, expected: int) -> None:
    k = make()
    build(k, k.operand("x", Access.READ), given_u32(k))
    assert clamps(k.finish()) == expected


@pytest.mark.parametrize(("index_limit", "guards"), [(None, 1), (100, 0), (101, 1)])
def test_store_is_guarded_unless_proven(index_limit: int | None, guards: int) -> None:
    k = make()
    out = k.operand("out", Access.WRITE)
    k.store(out, F32, given_u32(k, index_limit), 1.0, 100)
    assert count(k.finish(), Op.SelectionMerge) == guards


def test_shared_memory_is_bounded() -> None:
    k = make()
    shared = k.shared(F32, 64)
    shared.store(k.local_index(), 1.0)
    shared.load(k.local_index())
    kernel_index = given_u32(k)
    shared.store(kernel_index, 1.0)
    shared.load(kernel_index)
    kernel = k.finish()
    assert count(kernel, Op.SelectionMerge) == 1
    assert clamps(kernel) == 1
    assert kernel.shared_bytes == 256


def test_bound_of_zero_from_metadata_reads_the_first_element() -> None:
    """bound - 1 must not wrap to an index past everything."""
    k = make()
    n = given_u32(k)
    k.load(k.operand("x", Access.READ), F32, given_u32(k), n)
    kernel = k.finish()
    (subtraction,) = operands(kernel, Op.ISub)
    assert subtraction[2] != n.id


@pytest.mark.parametrize(
    ("ty", "bound", "path_length"),
    [
        (F16, 1 << 31, 2),
        (F16, (1 << 31) + 1, 3),
        (U8, None, 3),
        (F32, None, 2),
        (vector(F16, 2), None, 2),
    ],
)
def test_indices_stay_below_the_sign_bit(
    ty: Any, bound: int | None, path_length: int
) -> None:
    """OpAccessChain takes its indices as signed numbers."""
    k = make()
    x = k.operand("x", Access.READ)
    size: Size = given_u32(k) if bound is None else bound
    k.load(x, ty, given_u32(k), size)
    chains = operands(k.finish(), Op.AccessChain)
    # Type, result, base, then indices; those of push constants have one.
    assert max(len(words) - 3 for words in chains) == path_length


# --- control flow -----------------------------------------------------------


def test_constant_conditions_emit_no_branch() -> None:
    k = make()
    with k.when(k.local_index() < 64):
        k.barrier()
    with k.when(True):
        k.barrier()
    assert count(k.finish(), Op.BranchConditional) == 0


def test_the_other_case_of_an_always_true_condition_never_runs() -> None:
    k = make()
    out = k.operand("out", Access.WRITE)
    with k.when(True) as branch:
        k.store(out, U32, 0, 1, 2)
    with branch.otherwise():
        k.store(out, U32, 1, 1, 2)
    kernel = k.finish()
    (false,) = operands(kernel, Op.ConstantFalse)
    (jump,) = operands(kernel, Op.BranchConditional)
    assert jump[0] == false[1]


@pytest.mark.parametrize(
    ("start", "bound", "step", "trips"),
    [(0, 10, 1, 10), (3, 10, 4, 2), (10, 10, 1, 0), (12, 10, 1, 0), (0, 1, 5, 1)],
)
def test_trips_of_a_static_loop(start: int, bound: int, step: int, trips: int) -> None:
    k = make()
    with k.loop(bound, start, step) as i:
        reached = list(range(start, bound, step))
        assert i.limit == (reached[-1] + 1 if reached else start + 1)
    assert len(reached) == trips
    assert k.loop_trips == trips


def test_trips_of_nested_and_successive_loops() -> None:
    k = make()
    with k.loop(100), k.loop(50):
        pass
    # Each of the 100 rounds runs 50 rounds and one that finds the end.
    assert k.loop_trips == 100 * (1 + 51)
    with k.when(k.local_index() < 3) as branch, k.loop(7):
        pass
    with branch.otherwise(), k.loop(20, step=3):
        pass
    # Lanes of one subgroup may take both branches.
    assert k.loop_trips == 100 * (1 + 51) + 1 + 7 + 1 + 7
    assert k.finish().loop_trips == k.loop_trips


def test_trips_of_a_loop_to_a_value() -> None:
    k = make()
    with k.loop(given_u32(k), max_trips=12):
        pass
    assert k.loop_trips == 12
    with k.loop(given_u32(k, limit=101), start=k.local_index(), step=8):
        pass
    assert k.loop_trips == 12 + 1 + math.ceil(100 / 8)


def test_too_many_trips_are_refused() -> None:
    k = make()
    with k.loop(65535):
        pass
    assert k.finish().loop_trips == 65535
    k = make()
    with k.loop(300), k.loop(300):
        pass
    with pytest.raises(LimitError, match=r"90600.*65535"):
        k.finish()
    k = KernelBuilder("k", INFO.masked(max_loop_trips=None))
    with k.loop(1 << 20):
        pass
    assert k.finish().loop_trips == 1 << 20


def test_loop_that_would_wrap_is_refused() -> None:
    k = make()
    with pytest.raises(LimitError, match="passes 2"):
        k.loop((1 << 32) - 1, step=2)


def test_blocks_nest() -> None:
    k = make()
    out = k.operand("out", Access.WRITE)
    total = k.variable(U32, 0)
    with k.loop(10) as i:
        with k.when(i < 5) as branch, k.loop(3, unroll=True) as j:
            k.break_if(j * i > 6)
            total.store(total.load() + j)
        with branch.otherwise():
            with k.when(k.eq(i, 7)):
                k.break_if(total.load() > 100)
            total.store(total.load() + i)
    k.store(out, U32, k.local_index(), total.load(), 64)
    kernel = k.finish()
    assert count(kernel, Op.LoopMerge) == 2
    assert count(kernel, Op.SelectionMerge) == 4
