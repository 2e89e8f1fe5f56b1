"""Forward-mode rules, each called by itself: against JAX and central differences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import poot
from poot.core import dtypes
from poot.core.dtypes import DType
from poot.core.equation import Eqn
from poot.core.op import Op, PrimitiveKey, primitive_keys
from poot.core.ops.control import Cond, Scan, While
from poot.core.ops.conv import Conv
from poot.core.ops.cumulative import Cumulative, CumulativeOp
from poot.core.ops.elementwise import (
    Binary,
    BinaryOp,
    BitcastConvert,
    Cast,
    Clamp,
    Compare,
    Select,
    Unary,
    UnaryOp,
)
from poot.core.ops.indexing import DynamicSlice, Gather, GeneralGather
from poot.core.ops.matmul import DotGeneral, IndexedMatMul, MatMul
from poot.core.ops.reduce import Reduce, ReduceOp
from poot.core.ops.scatter import (
    DynamicUpdateSlice,
    Scatter,
    ScatterOp,
    ScatterUpdate,
)
from poot.core.ops.shape import (
    Broadcast,
    Concat,
    Pad,
    Reshape,
    Reverse,
    Slice,
    Transpose,
)
from poot.core.ops.window import ReduceWindow, WindowOp
from poot.interpreters.array import Array
from poot.interpreters.jvp.rules import jvp
from poot.interpreters.jvp.table import results_of
from tests.jvp_runs import (
    Numbers,
    by_jax,
    cases_of,
    floats_of,
    on_the_oracle,  # noqa: F401 (a fixture)
    pushed,
    tangents_of,
)
from tests.op_row import Case, OpRow
from tests.op_table import ROWS

pytestmark = pytest.mark.usefixtures("on_the_oracle")
CONTROL_FLOW = (Scan, While, Cond)
PRIMITIVES = [
    key
    for key in primitive_keys()
    if not key.op.composite and key.op not in CONTROL_FLOW
]


@pytest.mark.parametrize("key", PRIMITIVES, ids=str)
def test_every_primitive_has_a_rule(key: PrimitiveKey) -> None:
    assert key in jvp


# --- the rule, JAX and differences ------------------------------------------


def differentiable(dtype: DType) -> list[OpRow]:
    refused = (Binary[BinaryOp.NEXTAFTER], Scatter[ScatterOp.MUL])
    return [
        row
        for row in ROWS
        if dtype in row.dtypes and row.key in PRIMITIVES and row.key not in refused
    ]


def subsets(tangents: Sequence[Numbers | None]) -> Iterator[list[Numbers | None]]:
    """All of them, and where there are several each alone."""
    yield list(tangents)
    places = [place for place, t in enumerate(tangents) if t is not None]
    for place in places if len(places) > 1 else ():
        yield [t if i == place else None for i, t in enumerate(tangents)]


def evaluated(op: Op, operands: Sequence[Numbers]) -> list[Numbers]:
    arrays = [Array.from_numpy(x) for x in operands]
    return [result.numpy() for result in results_of(op, arrays)]


def by_differences(
    op: Op, primals: Sequence[Numbers], tangents: Sequence[Numbers | None], step: float
) -> list[Numbers | None]:
    """Central differences along the tangents, None for results that are no floats."""
    ends = []
    for way in (step, -step):
        moved = [
            x if t is None else x + way * t
            for x, t in zip(primals, tangents, strict=True)
        ]
        ends.append(evaluated(op, moved))
    return [
        (a - b) / (2 * step) if a.dtype == np.float64 else None
        for a, b in zip(*ends, strict=True)
    ]


@np.errstate(all="ignore")
def check_by_differences(
    op: Op, primals: Sequence[Numbers], tangents: Sequence[Numbers | None], where: str
) -> None:
    found = pushed(op, primals, tangents)
    steps = [by_differences(op, primals, tangents, step) for step in (2e-6, 1e-6)]
    values = evaluated(op, primals)
    for tangent, coarse, fine, value in zip(found, *steps, values, strict=True):
        if coarse is None or fine is None:
            assert tangent is None, where
            continue
        moved = np.zeros_like(fine) if tangent is None else tangent
        finite = np.isfinite(value)
        assert not moved[~finite].any(), where
        rounding = 1e-8 * np.abs(value) + 1e-7
        # Near poles and steps the differences are not the derivative.
        good = np.abs(coarse - fine) <= 1e-6 * np.abs(fine) + rounding
        assert good[finite].sum() >= 0.95 * finite.sum(), where
        bad = ~(np.abs(moved - fine) <= 2e-6 * np.abs(fine) + 2 * rounding) & good
        assert not bad.any(), (where, moved[bad], fine[bad])


SMOOTH = [
    row
    for row in differentiable(dtypes.float64)
    if row.key.op not in (Cast, BitcastConvert, Compare)
]


@pytest.mark.parametrize("row", SMOOTH, ids=str)
def test_against_differences(row: OpRow) -> None:
    for case, operands in cases_of(row, dtypes.float64):
        for tangents in subsets(tangents_of(case, operands)):
            check_by_differences(case.op, operands, tangents, str(case))


# JAX's derivative of digamma is wrong left of 0, and those of scatters are NaN where
# an update goes nowhere: these have tests of their own.
JAX_IS_WRONG = (
    Unary[UnaryOp.DIGAMMA],
    Scatter[ScatterOp.MIN],
    Scatter[ScatterOp.MAX],
)


NAMES = sorted({row.key.op.name for row in differentiable(dtypes.float32)})


@pytest.mark.parametrize("name", NAMES)
def test_against_jax(name: str) -> None:
    """All members of an op, each at one point."""
    applications = []
    for row in differentiable(dtypes.float32):
        if row.key.op.name == name and row.key not in JAX_IS_WRONG:
            for case, operands in list(cases_of(row, dtypes.float32))[:4][-1:]:
                tangents = tangents_of(case, operands)
                applications.append((case.op, operands, tangents))
    for application, expected in zip(applications, by_jax(applications), strict=True):
        found = pushed(*application)
        for tangent, wanted in zip(found, expected, strict=True):
            assert_near(tangent, wanted, 1e-4, str(application[0]))


def assert_near(
    actual: Numbers | None, expected: Numbers | None, relative: float, where: str
) -> None:
    """Near, measured by each element and a little by the largest."""
    if expected is None:
        assert actual is None, where
        return
    wide = expected.astype(np.float64)
    if actual is not None:
        with np.errstate(over="ignore"):
            wide = wide.astype(actual.dtype).astype(np.float64)
    finite = np.abs(wide[np.isfinite(wide)])
    found = np.zeros_like(wide) if actual is None else actual.astype(np.float64)
    floor = relative * float(finite.max(initial=0.0)) / 10
    np.testing.assert_allclose(found, wide, relative, floor, err_msg=where)


# Those of which an op means the same whatever the dtype.
SAME_FOR_ALL = (Unary, Binary, Clamp, Reduce, Cumulative, ReduceWindow, MatMul)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=str)
def test_narrow_floats(dtype: DType) -> None:
    """Near the tangents in f64 at the same point."""
    limit = 16 * float(ml_dtypes.finfo(dtype.numpy).eps)
    for row in differentiable(dtype):
        if row.key.op not in SAME_FOR_ALL:
            continue
        low, high = row.domains[0]
        near = replace(row, domains=((max(low, -1.4), min(high, 1.4)),))
        for case, operands in list(cases_of(near, dtype))[:2]:
            tangents = tangents_of(case, operands)
            found = pushed(case.op, operands, tangents)
            wide = [None if t is None else t.astype(np.float64) for t in tangents]
            points = [x.astype(np.float64) for x in operands]
            expected = pushed(case.op, points, wide)
            for tangent, wanted in zip(found, expected, strict=True):
                if tangent is None or wanted is None:
                    assert tangent is wanted, str(case)
                    continue
                # Slopes beyond f16's numbers have no tangents there.
                good = np.abs(wanted) < 1e3
                assert_near(tangent[good], wanted[good], limit, str(case))


# --- what tangents are made of ----------------------------------------------

BY_FIRST = (
    Unary[UnaryOp.NEG],
    Binary[BinaryOp.DIV],
    Reduce[ReduceOp.SUM],
    Cumulative[CumulativeOp.SUM],
    ReduceWindow[WindowOp.SUM],
    *map(PrimitiveKey, (Broadcast, Reshape, Transpose, Slice, Reverse, Cast)),
    *map(PrimitiveKey, (Gather, GeneralGather, DynamicSlice)),
)
BY_FIRST_TWO = (
    Binary[BinaryOp.ADD],
    Binary[BinaryOp.SUB],
    *map(PrimitiveKey, (Pad, DynamicUpdateSlice, ScatterUpdate)),
)
# By which operands together each op is linear that has a transpose.
LINEAR_BY: dict[PrimitiveKey, tuple[int, ...]] = {
    **dict.fromkeys(BY_FIRST, (0,)),
    **dict.fromkeys(BY_FIRST_TWO, (0, 1)),
    PrimitiveKey(Select): (1, 2),
    Scatter[ScatterOp.ADD]: (0, 2),
    Scatter[ScatterOp.SET]: (0, 2),
}
BY_EITHER = (
    Binary[BinaryOp.MUL],
    *map(PrimitiveKey, (MatMul, DotGeneral, IndexedMatMul, Conv)),
)


def is_linear(op: Op, places: Sequence[int]) -> bool:
    """Whether an op is linear by these operands together, and has a transpose."""
    if isinstance(op, Concat):
        return True
    if op.key in BY_EITHER:
        return len(places) == 1 and places[0] < 2
    return set(places) <= set(LINEAR_BY.get(op.key, ()))


def tangent_equations(case: Case, operands: Sequence[Numbers]) -> list[Eqn]:
    """What the rule does with tangents; each is checked to be linear in them."""
    places = floats_of(operands)

    def function(primals: Any, tangents: Any) -> Any:
        given = dict(zip(places, tangents, strict=True))
        return jvp[case.op.key](
            case.op, primals, [given.get(i) for i in range(len(primals))]
        )

    tangents = [operands[place] for place in places]
    graph = poot.make_graph(function)(list(operands), tangents)
    moved = set(graph.arguments[len(operands) :])
    found = []
    for eqn in graph.eqns:
        by = [place for place, x in enumerate(eqn.inputs) if x in moved]
        if by:
            assert is_linear(eqn.op, by), f"{case}: {eqn.op} by operands {by}"
            moved.update(eqn.outs)
            found.append(eqn)
    return found


@pytest.mark.parametrize("row", differentiable(dtypes.float32), ids=str)
def test_tangents_meet_linear_primitives_only(row: OpRow) -> None:
    for case, operands in list(cases_of(row, dtypes.float32))[:4]:
        made = tangent_equations(case, operands)
        if row.key.op is Unary:
            assert len(made) <= 1, case
