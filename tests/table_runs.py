"""What the rows of the op table are run on, and how results are judged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from poot.core.dtypes import DType, as_dtype
from poot.core.oracle import evaluate
from poot.lowering.plan.state import ELEMENTWISE
from tests.backends import device_backend
from tests.numerics import Array, assert_close
from tests.op_row import Case, OpRow
from tests.op_table import ROWS, graph_of

Applied = tuple[Case, list[Array]]


def keeps_subnormals() -> bool:
    backend = device_backend()
    assert backend is not None
    return backend.info.keeps_subnormals32


def applications(row: OpRow, dtype: DType) -> list[Applied]:
    applied = [(case, row.operands(case, anywhere=True)) for case in row.cases(dtype)]
    return applied + ([row.special_case(dtype)] if row.special else [])


def few(applied: Sequence[Applied]) -> list[Applied]:
    """Of each op the first application, the last, and the special values."""
    by_op: dict[Any, list[Applied]] = {}
    for one in applied:
        by_op.setdefault(one[0].op, []).append(one)
    return [one for same in by_op.values() for one in (*same[:1], *same[1:][-2:])]


# The members of a family share how they reach for elements: the first has all shapes.
_FIRST = {row.key.op: row for row in reversed(ROWS)}


def shaped(row: OpRow, dtype: DType) -> list[Applied]:
    """All applications of a row, but few of an elementwise family's further members."""
    applied = applications(row, dtype)
    has_all = row is _FIRST[row.key.op] or row.key.op not in ELEMENTWISE
    return applied if has_all else few(applied)


def expected_results(applied: list[Applied]) -> list[tuple[Array, ...]]:
    flush = not keeps_subnormals()
    return [evaluate(graph_of(case), *xs, flush=flush) for case, xs in applied]


def assert_within(
    row: OpRow, case: Case, results: tuple[Any, ...], expected: tuple[Array, ...]
) -> None:
    for result, right in zip(results, expected, strict=True):
        limit = row.ulps.get(as_dtype(right.dtype).name, 0)
        flush = not keeps_subnormals()
        assert_close(np.asarray(result), right, limit, str(case), flush, row.floor)


def as_tuple(case: Case, result: Any) -> tuple[Any, ...]:
    return result if case.op.multiple_results else (result,)
