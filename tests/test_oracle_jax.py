"""The oracle against JAX, row by row of the table."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from poot.core import dtypes
from poot.core.dtypes import as_dtype
from poot.core.oracle import evaluate
from tests.numerics import Array, assert_close
from tests.op_row import Case, OpRow
from tests.op_table import ROWS, graph_of

jax = pytest.importorskip("jax")

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


def in_jax(row: OpRow, applied: list[Applied]) -> list[Array]:
    """The results of all cases, many compiled as one function."""
    function = jax_function(row)

    results: list[Any] = []
    for first in range(0, len(applied), BATCH):
        batch = applied[first : first + BATCH]

        def all_cases(operands: list[list[Any]], batch: Any = batch) -> list[Any]:
            pairs = zip(batch, operands, strict=True)
            return [function(case.op, *xs) for (case, _), xs in pairs]

        with jax.enable_x64(True):
            results += jax.jit(all_cases)([operands for _, operands in batch])
    return [np.asarray(result) for result in results]


def jax_function(row: OpRow) -> Callable[..., Any]:
    if callable(row.jax):
        return partial(row.jax, jax)
    found: Any = jax
    for name in row.jax.split("."):
        found = getattr(found, name)
    return lambda op, *operands: found(*operands)


# JAX's own functions are less exact here, take other dtypes, treat zeros, subnormals or
# negative starts in another way. Which of these it is has not been written into the
# table's `jax_ulps` and `jax_differs` row by row yet.
NOT_SORTED_OUT = {
    *("Unary[EXP2]", "Unary[CBRT]", "Unary[ASIN]", "Unary[SINH]", "Unary[COSH]"),
    *("Unary[ERFC]", "Unary[ABS]", "Binary[MUL]", "Binary[POW]", "Binary[ATAN2]"),
    *("Binary[NEXTAFTER]", "Binary[SHR]", "DynamicSlice"),
}


def marked(row: OpRow) -> Any:
    if str(row) not in NOT_SORTED_OUT:
        return row
    reason = "differs from JAX in ways that the table does not list yet"
    return pytest.param(row, marks=pytest.mark.xfail(reason=reason, strict=False))


@pytest.mark.parametrize(
    "row", [marked(row) for row in ROWS if row.jax is not None], ids=str
)
def test_oracle_agrees_with_jax(row: OpRow):
    applied = applications(row)
    for (case, operands), expected in zip(applied, in_jax(row, applied), strict=True):
        # JAX flushes subnormals on the CPU.
        (result,) = evaluate(graph_of(case), *operands, flush=True)
        limit = row.jax_ulps.get(as_dtype(result.dtype).name, 0)
        if row.jax_differs is not None:
            left_out = row.jax_differs(case.op, *operands)
            result = np.where(left_out, np.zeros((), result.dtype), result)
            expected = np.where(left_out, np.zeros((), expected.dtype), expected)
        assert_close(result, expected, limit, str(case), flush=True)
