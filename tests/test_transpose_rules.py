"""Each transposition rule against the primitive itself, and who has none."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poot.core import dtypes
from poot.core.dtypes import DType, Scalar
from poot.core.errors import NotLinearError
from poot.core.op import Op, PrimitiveKey, primitive_keys
from poot.core.ops.conv import Conv
from poot.core.ops.elementwise import (
    Binary,
    BinaryOp,
    BitcastConvert,
    Cast,
    Select,
    Unary,
    UnaryOp,
)
from poot.core.ops.index_dims import GatherDims, ScatterDims
from poot.core.ops.indexing import DynamicSlice, Gather, GatherMode, GeneralGather
from poot.core.ops.matmul import DotGeneral, IndexedMatMul, MatMul
from poot.core.ops.reduce import Reduce, ReduceOp
from poot.core.ops.scatter import (
    DynamicUpdateSlice,
    Scatter,
    ScatterMode,
    ScatterOp,
    ScatterUpdate,
)
from poot.core.ops.shape import Broadcast, Pad
from poot.core.ops.window import ReduceWindow, WindowOp
from poot.core.types import TensorType
from poot.interpreters.array import Array as PootArray
from poot.interpreters.transpose.rules import Linear, transpose, transpose_rule
from tests.backends import oracle_backend  # noqa: F401 (a fixture)
from tests.numerics import Array, rng_of
from tests.op_row import FLOATS, Case
from tests.op_table import TABLE
from tests.transpose_checks import (
    LINEAR,
    assert_all_transposed,
    assert_transposed,
    f32,
    groups,
    i32,
    operands_of,
    small,
    transposed,
)

pytestmark = pytest.mark.usefixtures("oracle_backend")

F32 = dtypes.float32
KEYS = [key for key in primitive_keys() if not key.op.composite]

# --- which primitives have a rule -------------------------------------------

# Members by family; None for a primitive without members.
NOT_LINEAR: dict[str, str | None] = {
    "Unary": (
        "ABS SIGN EXP EXP2 EXPM1 LOG LOG2 LOG10 LOG1P SQRT RSQRT CBRT RECIP SIN "
        "COS TAN ASIN ACOS ATAN SINH COSH TANH ASINH ACOSH ATANH ERF ERFC "
        "ERF_INV LGAMMA DIGAMMA FLOOR CEIL TRUNC ROUND NOT CLZ POPCOUNT ISNAN "
        "ISINF ISFINITE SIGNBIT"
    ),
    "Binary": (
        "REM MAX MIN POW ATAN2 HYPOT NEXTAFTER COPYSIGN AND OR XOR SHL SHR "
        "SHR_LOGICAL GCD GE GE_U"
    ),
    "Compare": "EQ NE LT LE GT GE",
    "BitcastConvert": None,
    "Clamp": None,
    "Iota": None,
    "Reduce": "PROD MAX MIN ANY ALL",
    "ArgReduce": "ARGMAX ARGMIN",
    "Scatter": "MIN MAX",
    "Cumulative": "PROD MAX MIN LOGSUMEXP",
    "Sort": None,
    "TopK": None,
    "ArgTopK": None,
    "ReduceWindow": "PROD MAX MIN",
    "Threefry2x32": None,
}
# The rules of control flow transpose its sub-graphs, and stand elsewhere.
ELSEWHERE = {"Scan", "While", "Cond"}


def test_every_primitive_is_linear_or_not() -> None:
    names = {str(key) for key in KEYS if key.op.__name__ not in ELSEWHERE}
    others = {
        f"{family}[{member}]" if members else family
        for family, members in NOT_LINEAR.items()
        for member in (members or family).split()
    }
    assert names == {*LINEAR, *others}
    assert others.isdisjoint(LINEAR)
    assert {str(key) for key in KEYS if key in transpose} - ELSEWHERE == set(LINEAR)


@pytest.mark.parametrize(
    "op",
    [
        Unary(UnaryOp.EXP),
        Binary(BinaryOp.MAX),
        Reduce(ReduceOp.PROD, 0),
        BitcastConvert(dtypes.int32),
    ],
    ids=str,
)
def test_no_rule_says_what_to_do(op: Op) -> None:
    name = str(op).replace("[", r"\[").replace("]", r"\]")
    with pytest.raises(
        NotLinearError, match=f"{name} is not linear .* differentiate others by grad"
    ):
        transpose_rule(op)


# --- <ct, A t> = <B ct, t> --------------------------------------------------


def row_operands(case: Case, key: PrimitiveKey) -> list[Array]:
    """Those of the op table, with small whole numbers for floats."""
    rng = rng_of(str(case))
    made = TABLE[key].operands(case, anywhere=False)
    for number, type in enumerate(case.types):
        if type.dtype.is_float:
            made[number] = small(rng, type)
            if str(key) == "Binary[DIV]" and number:
                made[number] = np.exp2(made[number].clip(-3, 3)).astype(
                    type.dtype.numpy
                )
            if str(key) == "Scatter[MUL]" and number:
                made[number] = np.sign(made[number])
    return made


@pytest.mark.parametrize("name", LINEAR)
def test_rows_of_the_op_table(name: str) -> None:
    key = next(key for key in KEYS if str(key) == name)
    for dtype in FLOATS:
        for case in TABLE[key].cases(dtype):
            if name == "Cast" and not case.op.to.is_float:
                continue
            operands = row_operands(case, key)
            for linear in groups(case, key):
                assert_transposed(case, operands, linear)


# --- operands that were repeated --------------------------------------------

SHAPES = (
    ((2, 3), (3,)),
    ((), (2, 3)),
    ((1, 1), (2, 3)),
    ((4, 1, 2), (3, 1)),
    ((1, 5, 1, 2), (3, 1, 4, 1)),
    ((1,), ()),
    ((0, 3), (1, 1)),
    ((1, 1, 1), (1,)),
)


@pytest.mark.parametrize("member", ["ADD", "SUB", "MUL"])
def test_broadcast_operands(member: str) -> None:
    for shapes in SHAPES:
        for a, b in (shapes, shapes[::-1]):
            assert_all_transposed(Case(Binary(BinaryOp[member]), (f32(*a), f32(*b))))


def test_broadcast_operands_of_select() -> None:
    for condition, a, b in (
        ((), (2, 3), (3,)),
        ((2, 3), (), (1, 3)),
        ((4, 1, 1), (3,), (2, 1)),
    ):
        case = Case(Select(), (i32(*condition), f32(*a), f32(*b)))
        count = math.prod(condition)
        assert_all_transposed(case, np.arange(count) % 2)


def test_scalars_as_operands() -> None:
    """Numbers in the graph are known operands."""
    ct, two = PootArray.from_numpy(np.float32([1, 3])), Scalar.of(2, F32)
    x = Linear(f32(2))
    for member, expected in (("MUL", [2, 6]), ("DIV", [0.5, 1.5]), ("ADD", [1, 3])):
        op = Binary(BinaryOp[member])
        made, none = transpose_rule(op)(op, (ct,), (x, two))
        assert none is None
        np.testing.assert_array_equal(np.asarray(made), np.float32(expected))


def test_sums_of_narrow_floats_round_once() -> None:
    """3000 ones are 3000 in f16, which ones added one by one never reach."""
    ct = np.ones((3, 1000), np.float16)
    (made,) = transposed(Broadcast((3, 1000)), ct, [np.float16(0)], [0])
    assert made == 3000


# --- random parameters ------------------------------------------------------

FEW = settings(max_examples=40)
SIZE = st.integers(1, 4)


@st.composite
def pads(draw: Any) -> Case:
    shape = draw(st.lists(st.integers(0, 4), min_size=1, max_size=2))
    config = []
    for size in shape:
        interior = draw(st.integers(0, 2))
        whole = size + max(size - 1, 0) * interior
        low = draw(st.integers(-whole, 3))
        config.append((low, draw(st.integers(-whole - min(low, 0), 3)), interior))
        config[-1] = (low, max(config[-1][1], -whole - low), interior)
    return Case(Pad(tuple(config)), (f32(*shape), f32()))


@FEW
@given(pads())
def test_pad(case: Case) -> None:
    assert_all_transposed(case)


@st.composite
def windows(draw: Any) -> Case:
    shape, axes = [], []
    for _ in range(draw(st.integers(1, 2))):
        size, base = draw(st.integers(0, 5)), draw(st.integers(1, 3))
        whole = (size - 1) * base + 1 if size else 0
        low = draw(st.integers(-2, 5))
        high = draw(st.integers(max(-2, -whole - low), 5))
        shape.append(size)
        padding = (low, max(high, -whole - low))
        axes.append((draw(SIZE), draw(SIZE), padding, base, draw(SIZE)))
    return Case(ReduceWindow(WindowOp.SUM, *zip(*axes, strict=True)), (f32(*shape),))


@FEW
@given(windows())
def test_sums_under_windows(case: Case) -> None:
    assert_all_transposed(case)


@st.composite
def convolutions(draw: Any) -> Case:
    x, w, axes = [], [], []
    for _ in range(draw(st.integers(0, 3))):
        size, hole = draw(SIZE), draw(st.integers(1, 3))
        low = draw(st.integers(-2, 4))
        whole = (size - 1) * hole + 1
        high = draw(st.integers(max(-2, -whole - low), 4))
        x.append(size)
        w.append(draw(st.integers(1, 3)))
        axes.append(
            (draw(st.integers(1, 3)), (low, high), hole, draw(st.integers(1, 3)))
        )
    groups, parts = draw(st.sampled_from([(1, 1), (2, 1), (3, 1), (1, 2), (1, 3)]))
    taken, made, images = draw(SIZE), draw(SIZE) * groups * parts, draw(SIZE) * parts
    numbers = zip(*axes, strict=True) if axes else [()] * 4
    op = Conv(*numbers, groups, parts)
    return Case(op, (f32(images, taken * groups, *x), f32(made, taken, *w)))


@FEW
@given(convolutions())
def test_convolutions(case: Case) -> None:
    assert_all_transposed(case)


@st.composite
def dots(draw: Any) -> Case:
    """Axes of one to three of each kind, in any order on either side."""
    batch, contracted, rows, columns = (
        [draw(SIZE) for _ in range(draw(st.integers(0, 2)))] for _ in range(4)
    )
    sides, axes = [], []
    for free in (rows, columns):
        sizes = [*batch, *contracted, *free]
        order = draw(st.permutations(range(len(sizes))))
        sides.append(f32(*(sizes[number] for number in order)))
        place = [order.index(number) for number in range(len(sizes))]
        end = len(batch) + len(contracted)
        axes.append((tuple(place[len(batch) : end]), tuple(place[: len(batch)])))
    (left, left_batch), (right, right_batch) = axes
    return Case(DotGeneral(left, right, left_batch, right_batch), tuple(sides))


@FEW
@given(dots())
def test_dot_general(case: Case) -> None:
    assert_all_transposed(case)


# --- positions that are data ------------------------------------------------

ROWS = GatherDims((1,), (0,), (0,))
OUTSIDE = [3, -1, 0, 3, 9, -7, 3]


@pytest.mark.parametrize("mode", GatherMode)
def test_gathers_add_where_they_read(mode: GatherMode) -> None:
    """Clamped indices add to the ends, filled ones nowhere."""
    for op in (Gather(0, mode), GeneralGather(ROWS, (1, 2), mode)):
        shape = (7,) if isinstance(op, Gather) else (7, 1)
        case = Case(op, (f32(4, 2), i32(*shape)))
        assert_all_transposed(case, OUTSIDE)
        (made,) = transposed(op, np.ones((7, 2), np.float32), *_at(case, OUTSIDE))
        filled = mode is GatherMode.FILL
        assert made[:, 0].tolist() == ([1, 0, 0, 3] if filled else [3, 0, 0, 4])


def _at(case: Case, *integers: Any) -> tuple[list[Array], list[int]]:
    return operands_of(case, *integers), [0]


@pytest.mark.parametrize("mode", ScatterMode)
@pytest.mark.parametrize("member", [ScatterOp.SET, ScatterOp.ADD])
def test_scatters_with_repeated_indices(member: ScatterOp, mode: ScatterMode) -> None:
    """Windows that overlap in part too: each element belongs to the last update."""
    rows, across = ScatterDims((1,), (0,), (0,)), ScatterDims((0,), (), (0,))
    for dims, shape, count, updates in (
        (rows, (4, 2), (7, 1), (7, 2)),
        (rows, (4, 3), (7, 1), (7, 2)),
        (across, (6,), (7, 1), (3, 7)),
        (ScatterDims((), (0,), (0,)), (0,), (7, 1), (7,)),
        (ScatterDims((), (), ()), (), (7, 0), (7,)),
    ):
        op = Scatter(member, dims, mode)
        case = Case(op, (f32(*shape), i32(*count), f32(*updates)))
        assert_all_transposed(case, OUTSIDE if count[1] else [])


def test_the_last_update_has_the_cotangent() -> None:
    op = Scatter(ScatterOp.SET, ScatterDims((), (0,), (0,)))
    case = Case(op, (f32(4), i32(5, 1), f32(5)))
    ct, operands = np.float32([1, 2, 3, 4]), operands_of(case, [2, 0, 2, 9, -1])
    operand, updates = transposed(op, ct, operands, [0, 2])
    assert (operand.tolist(), updates.tolist()) == ([0, 2, 0, 4], [0, 1, 3, 0, 0])
    rows = ScatterUpdate()
    case = Case(rows, (f32(4), f32(5), i32(5)))
    operands = operands_of(case, [2, 0, 2, 9, -1])
    assert [x.tolist() for x in transposed(rows, ct, operands, [0, 1])] == [
        [0, 2, 0, 4],
        [0, 1, 3, 0, 0],
    ]


@pytest.mark.parametrize("mode", ScatterMode)
def test_updates_that_multiply(mode: ScatterMode) -> None:
    """Where no element is met twice, updates are factors too."""
    dims = ScatterDims((1,), (0,), (0,))
    op = Scatter(ScatterOp.MUL, dims, mode, unique_indices=True)
    case = Case(op, (f32(4, 2), i32(3, 1), f32(3, 2)))
    assert_transposed(case, operands_of(case, [2, 0, 9]), [2])
    one = Case(Scatter(ScatterOp.MUL, dims), (f32(4, 2), i32(1, 1), f32(1, 2)))
    assert_transposed(one, operands_of(one, [2]), [2])


@pytest.mark.parametrize("count", [0, 1, 5])
def test_rows_at_slots(count: int) -> None:
    for rows, rest in ((4, (2, 3)), (4, ()), (0, (2,))):
        case = Case(ScatterUpdate(), (f32(rows, *rest), f32(count, *rest), i32(count)))
        for slots in ([1, -1, 3, 1, 4], [-1, 2, 2, 2, 0]):
            assert_all_transposed(case, slots[:count])


def test_blocks_that_are_clamped() -> None:
    for start in (-3, 1, 9):
        read = Case(DynamicSlice((2, 3)), (f32(4, 3), i32(), i32()))
        assert_all_transposed(read, start, start)
        written = Case(DynamicUpdateSlice(), (f32(4, 3), f32(2, 3), i32(), i32()))
        assert_all_transposed(written, start, start)
        whole = Case(DynamicUpdateSlice(), (f32(4), f32(4), i32()))
        assert_all_transposed(whole, start)


# --- products ---------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 5, 6, 7, 40])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_rows_with_a_matrix_of_their_own(rows: int, dtype: DType) -> None:
    """Few rows and many, of one matrix only too, and matrices without rows."""
    types = (TensorType((rows, 2), dtype), TensorType((3, 2, 4), dtype), i32(rows))
    rng = rng_of(f"{rows}")
    for idx in (rng.integers(-1, 4, rows), np.full(rows, 2), np.arange(rows) // 20):
        assert_all_transposed(Case(IndexedMatMul(), types), idx)


@pytest.mark.parametrize(
    ("op", "factors", "made"),
    [
        (MatMul(F32), ((2, 3), (3, 2)), (2, 2)),
        (DotGeneral((1,), (1,), out=F32), ((2, 3), (2, 3)), (2, 2)),
        (IndexedMatMul(F32), ((2, 3), (2, 3, 2), (2,)), (2, 2)),
        (Conv((1,), ((0, 0),), (1,), (1,), out=F32), ((1, 2, 5), (1, 2, 3)), (1, 1, 3)),
    ],
    ids=str,
)
def test_wide_results_have_wide_cotangents(op: Op, factors: Any, made: Any) -> None:
    """1e-8 is 0 in f16, 100 times as much is not: products are summed up in f32."""
    ct = np.full(made, 1e-8, np.float32)
    given = [np.full(shape, 100, np.float16) for shape in factors[:2]]
    given += [np.zeros(shape, np.int32) for shape in factors[2:]]
    for number in (0, 1):
        (found,) = transposed(op, ct, given, [number])
        assert found.dtype == np.float16
        assert found.max() >= np.float16(1e-6)


@pytest.mark.parametrize(
    "op",
    [
        Binary(BinaryOp.MUL),
        MatMul(),
        DotGeneral((1,), (0,)),
        IndexedMatMul(),
        Conv((), (), (), ()),
        Scatter(ScatterOp.MUL, ScatterDims((), (), ())),
    ],
    ids=str,
)
def test_both_factors_at_once(op: Op) -> None:
    x = Linear(f32(2, 2))
    ct = PootArray.from_numpy(np.ones((2, 2), np.float32))
    known = PootArray.from_numpy(np.zeros((2,), np.int32))
    operands = [x, known, x] if isinstance(op, Scatter) else [x, x]
    operands += [known] if isinstance(op, IndexedMatMul) else []
    name = type(op).__name__
    with pytest.raises(NotLinearError, match=rf"{name}.* in both factors at once"):
        transpose_rule(op)(op, (ct,), operands)


@pytest.mark.parametrize(
    ("op", "operands", "where"),
    [
        (Binary(BinaryOp.DIV), (None, f32(2)), "in the divisor"),
        (Cast(dtypes.int32), (f32(2),), "from f32 to i32"),
        (Cast(F32), (i32(2),), "from i32 to f32"),
        (
            Scatter(ScatterOp.MUL, ScatterDims((), (0,), (0,))),
            (None, np.zeros((2, 1), np.int32), f32(2)),
            "in the updates, unless unique_indices",
        ),
    ],
    ids=str,
)
def test_operands_that_are_not_linear(op: Op, operands: Any, where: str) -> None:
    ct = PootArray.from_numpy(np.ones(2, np.float32))
    given = [
        Linear(x)
        if isinstance(x, TensorType)
        else PootArray.from_numpy(np.ones(2, np.float32) if x is None else x)
        for x in operands
    ]
    with pytest.raises(NotLinearError, match=where):
        transpose_rule(op)(op, (ct,), given)
