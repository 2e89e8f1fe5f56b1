"""The oracle against JAX, row by row of the table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from poot.core import dtypes
from poot.core.dtypes import as_dtype
from poot.core.oracle import evaluate
from poot.testing import _jax_run  # noqa: F401 (fills the table)
from poot.testing._jax_table import jax as jax_rules
from tests.numerics import SMALLEST_NORMAL_F32, Array, assert_close
from tests.op_row import Case, OpRow
from tests.op_table import ROWS, graph_of

jax = pytest.importorskip("jax")
pytest.importorskip("jax.extend.random")

# Enough to see each kind once, and for arithmetic each width of integers. XLA takes
# functions of bf16 in bf16 itself, so those are compared with NumPy only.
MOVED = (dtypes.bool_, dtypes.int8, dtypes.bfloat16, dtypes.float32)
DTYPES = (
    dtypes.bool_,
    dtypes.int8,
    dtypes.int32,
    dtypes.uint64,
    dtypes.float32,
)
# Of a primitive that works element by element the first case is one of many elements.
ELEMENTWISE = ("Unary", "Binary", "Compare")
PRIMITIVES = [row for row in ROWS if not row.key.op.composite]
# XLA's compile time grows faster than the number of results of a function.
BATCH = 24
Applied = tuple[Case, list[Array]]


def applications(row: OpRow) -> list[Applied]:
    applied = []
    elementwise = row.key.op.__name__ in ELEMENTWISE
    for dtype in DTYPES if elementwise else MOVED:
        if dtype in row.dtypes:
            cases = row.cases(dtype)[: 1 if elementwise else None]
            applied += [(case, row.operands(case, anywhere=False)) for case in cases]
            applied += [row.special_case(dtype)] if row.special else []
    return applied


def in_jax(row: OpRow, applied: list[Applied]) -> list[list[Array]]:
    """The results of each case, many compiled as one function."""
    rule = jax_rules[row.key]
    results: list[Any] = []
    for first in range(0, len(applied), BATCH):
        batch = applied[first : first + BATCH]

        def all_cases(operands: list[list[Any]], batch: Any = batch) -> list[Any]:
            pairs = zip(batch, operands, strict=True)
            return [rule(case.op, jax, *xs) for (case, _), xs in pairs]

        with jax.enable_x64(True):
            results += jax.jit(all_cases)([operands for _, operands in batch])
    several = row.key.op.multiple_results
    tuples = results if several else [(result,) for result in results]
    return [[np.asarray(each) for each in results] for results in tuples]


def left_out(row: OpRow, case: Case, operands: list[Array]) -> Any:
    """Where JAX means something else: subnormals, and what the row says."""
    out: Any = False
    if row.jax_differs is not None:
        out = row.jax_differs(case.op, *operands)
    if row.key.op.__name__ in ELEMENTWISE and as_dtype(operands[0].dtype).is_float:
        for x in operands:
            # On the CPU the smallest normal number may count as a subnormal.
            out = out | ((x != 0) & (np.abs(x) <= SMALLEST_NORMAL_F32))
    return out


@pytest.mark.parametrize("row", PRIMITIVES, ids=str)
def test_oracle_agrees_with_jax(row: OpRow):
    applied = applications(row)
    for (case, operands), expected in zip(applied, in_jax(row, applied), strict=True):
        results = evaluate(graph_of(case), *operands, flush=True)
        out = left_out(row, case, operands)
        for result, right in zip(results, expected, strict=True):
            limit = row.jax_ulps.get(as_dtype(result.dtype).name, 0)
            ours = np.where(out, np.zeros((), result.dtype), result)
            theirs = np.where(out, np.zeros((), right.dtype), right)
            assert_close(ours, theirs, limit, str(case), True, row.floor)
