"""The oracle against NumPy and exact arithmetic, row by row of the table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from poot.core.dtypes import DType, as_dtype
from poot.core.op import primitive_keys
from poot.core.oracle import evaluate
from tests.numerics import Array, assert_close
from tests.op_row import Case, OpRow
from tests.op_table import ROWS, TABLE, graph_of, rows_and_dtypes

PAIRS = [
    pytest.param(row, dtype, id=f"{row}-{dtype}") for row, dtype in rows_and_dtypes()
]


def test_every_primitive_has_one_row():
    assert set(TABLE) == set(primitive_keys())
    assert len(TABLE) == len(ROWS)


def expected_results(row: OpRow, case: Case, operands: list[Array]) -> tuple[Any, ...]:
    with np.errstate(all="ignore"):
        results = row.reference(case.op, *operands)
    return results if case.op.multiple_results else (results,)


@pytest.mark.parametrize(("row", "dtype"), PAIRS)
def test_oracle_agrees_with_numpy(row: OpRow, dtype: DType):
    for case in row.cases(dtype):
        operands = row.operands(case, anywhere=True)
        results = evaluate(graph_of(case), *operands)
        for result, expected in zip(
            results, expected_results(row, case, operands), strict=True
        ):
            limit = row.reference_ulps.get(as_dtype(result.dtype).name, 0)
            assert_close(result, expected, limit, str(case), floor=row.floor)


@pytest.mark.parametrize(("row", "dtype"), [p for p in PAIRS if p.values[0].special])
def test_oracle_agrees_with_numpy_on_special_values(row: OpRow, dtype: DType):
    case, operands = row.special_case(dtype)
    (result,) = evaluate(graph_of(case), *operands)
    (expected,) = expected_results(row, case, operands)
    limit = row.reference_ulps.get(as_dtype(result.dtype).name, 0)
    assert_close(result, expected, limit, str(case), floor=row.floor)
