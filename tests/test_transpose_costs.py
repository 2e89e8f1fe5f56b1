"""What transposition rules bind: it is what a user's gradient costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from poot.core import dtypes
from poot.core.interpreter import current, interpreting
from poot.core.op import Op
from poot.core.ops.conv import Conv
from poot.core.ops.cumulative import Cumulative, CumulativeOp
from poot.core.ops.elementwise import Binary, BinaryOp, Select
from poot.core.ops.index_dims import ScatterDims
from poot.core.ops.indexing import DynamicSlice, Gather
from poot.core.ops.matmul import DotGeneral, IndexedMatMul, MatMul
from poot.core.ops.reduce import Reduce, ReduceOp
from poot.core.ops.scatter import DynamicUpdateSlice, Scatter, ScatterOp, ScatterUpdate
from poot.core.ops.shape import Broadcast, Concat, Pad, Reshape, Slice, Transpose
from poot.core.ops.window import ReduceWindow, WindowOp
from poot.core.types import TensorType
from tests.backends import oracle_backend  # noqa: F401 (a fixture)
from tests.numerics import rng_of
from tests.op_row import Case
from tests.transpose_checks import f32, i32, operands_of, small, transposed

pytestmark = pytest.mark.usefixtures("oracle_backend")


class Recorder:
    """Remembers what is bound, and the largest of all results."""

    def __init__(self) -> None:
        self.below = current()
        self.names: list[str] = []
        self.largest = 0

    def process(self, op: Any, operands: tuple[Any, ...]) -> tuple[Any, ...]:
        results = self.below.process(op, operands)
        self.names.append(str(op))
        self.largest = max(self.largest, *(result.size for result in results))
        return results


def cost(case: Case, linear: Sequence[int], *integers: Any) -> Recorder:
    operands = operands_of(case, *integers)
    ct = small(rng_of("cost"), case.op.infer_all(*case.types)[0])
    with interpreting(Recorder()) as recorder:
        transposed(case.op, ct, operands, linear)
    return recorder


_WINDOW = ReduceWindow(WindowOp.SUM, (3,), (2,), ((1, 1),), (2,), (2,))
_EVEN = Conv((2, 1), ((1, 2), (-1, 3)), (1, 2), (2, 1))
_SET = Scatter(ScatterOp.SET, ScatterDims((), (0,), (0,)))
COSTS: tuple[tuple[Op, Any, Sequence[int], str], ...] = (
    (Binary(BinaryOp.ADD), (f32(3), f32(3)), (0, 1), ""),
    (Binary(BinaryOp.SUB), (f32(3), f32(3)), (0,), ""),
    (Binary(BinaryOp.SUB), (f32(2, 3), f32(3)), (1,), "Reduce[SUM] Unary[NEG]"),
    (Binary(BinaryOp.MUL), (f32(3), f32(3)), (1,), "Binary[MUL]"),
    (
        Binary(BinaryOp.MUL),
        (f32(2, 1, 3), f32(4, 1)),
        (1,),
        "Binary[MUL] Reduce[SUM] Reduce[SUM] Reshape",
    ),
    (Select(), (i32(3), f32(3), f32(3)), (1, 2), "Select Select"),
    (Broadcast((2, 4, 3)), (f32(3),), (0,), "Reshape Reduce[SUM]"),
    (Broadcast((1, 3)), (f32(3),), (0,), "Reshape"),
    (Reshape((6,)), (f32(2, 3),), (0,), "Reshape"),
    (Transpose((1, 2, 0)), (f32(2, 3, 4),), (0,), "Transpose"),
    (Slice(0, 1, 6, 2), (f32(7),), (0,), "Pad"),
    (Slice(0, 0, 7), (f32(7),), (0,), ""),
    (Concat(0), (f32(3), f32(4), f32(0)), (1,), "Slice"),
    (Concat(0), (f32(3), f32(0)), (0,), ""),
    (Pad(((1, 2, 0), (0, 0, 0))), (f32(3, 2), f32()), (0,), "Slice"),
    (Pad(((1, -2, 1),)), (f32(3), f32()), (0,), "Pad Slice"),
    (Pad(((-1, 0, 0),)), (f32(3), f32()), (1,), ""),
    (
        Pad(((1, 2, 0),)),
        (f32(3), f32()),
        (1,),
        "Broadcast Pad Select Reduce[SUM]",
    ),
    (Reduce(ReduceOp.SUM, 1), (f32(2, 3),), (0,), "Reshape Broadcast"),
    (Reduce(ReduceOp.SUM, 1, True), (f32(2, 3),), (0,), "Broadcast"),
    (Cumulative(CumulativeOp.SUM, 0), (f32(3),), (0,), "Cumulative[SUM]"),
    (_WINDOW, (f32(9),), (0,), "ReduceWindow[SUM]"),
    (MatMul(), (f32(5, 2, 3), f32(5, 3, 4)), (0,), "DotGeneral"),
    (MatMul(), (f32(5, 2, 3), f32(5, 3, 4)), (1,), "DotGeneral"),
    (DotGeneral((1,), (1,)), (f32(2, 3), f32(4, 3)), (1,), "DotGeneral"),
    (DotGeneral((0,), (0,)), (f32(3, 2), f32(3, 4)), (0,), "DotGeneral"),
    (
        DotGeneral((2,), (1,), (0, 1), (2, 0)),
        (f32(5, 2, 3), f32(2, 3, 5, 4)),
        (0,),
        "DotGeneral",
    ),
    (
        MatMul(dtypes.float32),
        (TensorType((3, 3), dtypes.float16),) * 2,
        (0,),
        "Cast DotGeneral Cast",
    ),
    (_EVEN, (f32(2, 3, 6, 5), f32(5, 3, 2, 3)), (0,), "Transpose Reverse Conv"),
    (
        _EVEN,
        (f32(2, 3, 6, 5), f32(5, 3, 2, 3)),
        (1,),
        "Transpose Transpose Conv Transpose",
    ),
    (Gather(0), (f32(4, 2), i32(3)), (0,), "Reshape Broadcast Scatter[ADD]"),
    (DynamicSlice((4,)), (f32(4), i32()), (0,), ""),
    (DynamicSlice((2,)), (f32(4), i32()), (0,), "Broadcast DynamicUpdateSlice"),
    (DynamicUpdateSlice(), (f32(4), f32(2), i32()), (1,), "DynamicSlice"),
    (
        Scatter(ScatterOp.ADD, _SET.dims),
        (f32(4), i32(3, 1), f32(3)),
        (0, 2),
        "GeneralGather",
    ),
    (_SET, (f32(4), i32(1, 1), f32(1)), (2,), "GeneralGather"),
    (ScatterUpdate(), (f32(4), f32(1), i32(1)), (1,), "Reshape GeneralGather"),
)


@pytest.mark.parametrize(
    "number", range(len(COSTS)), ids=lambda n: f"{COSTS[n][0]}-{n}"
)
def test_what_rules_bind(number: int) -> None:
    op, types, linear, names = COSTS[number]
    case = Case(op, types)
    integers = [np.zeros(t.shape) for t in types if not t.dtype.is_float]
    assert cost(case, linear, *integers).names == names.split()


def test_outer_products_are_not_held_at_once() -> None:
    """Of 512 rows with 4 matrices no more than 8 matrices' worth is held."""
    case = Case(IndexedMatMul(), (f32(512, 16), f32(4, 16, 32), i32(512)))
    recorder = cost(case, (1,), rng_of("outer").integers(0, 4, 512))
    assert recorder.largest <= max(8 * 16 * 32, 2 * 512 * 32)
    assert len(recorder.names) <= 40
