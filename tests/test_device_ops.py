"""Every primitive on the device, jitted and eager, against the oracle: by the table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import poot
from poot.core.dtypes import DType, as_dtype
from poot.core.oracle import evaluate
from poot.interpreters.backend import use_backend
from tests.backends import device_backend, forbid_oracle
from tests.kernel_harness import run_graph
from tests.numerics import Array, assert_close, assert_same_bits
from tests.op_row import Case, OpRow
from tests.op_table import graph_of, rows_and_dtypes

pytestmark = pytest.mark.skipif(device_backend() is None, reason="no Vulkan device")

PAIRS = [
    pytest.param(row, dtype, id=f"{row}-{dtype}") for row, dtype in rows_and_dtypes()
]
COMPOSITES = [p for p in PAIRS if p.values[0].key.op.composite]
PRIMITIVES = [p for p in PAIRS if not p.values[0].key.op.composite]
Applied = tuple[Case, list[Array]]


def keeps_subnormals() -> bool:
    backend = device_backend()
    assert backend is not None
    return backend.info.keeps_subnormals32


def applications(row: OpRow, dtype: DType) -> list[Applied]:
    applied = [(case, row.operands(case, anywhere=True)) for case in row.cases(dtype)]
    return applied + ([row.special_case(dtype)] if row.special else [])


def expected_results(applied: list[Applied]) -> list[tuple[Array, ...]]:
    flush = not keeps_subnormals()
    return [evaluate(graph_of(case), *xs, flush=flush) for case, xs in applied]


def assert_within(
    row: OpRow, case: Case, results: tuple[Any, ...], expected: tuple[Array, ...]
) -> None:
    for result, right in zip(results, expected, strict=True):
        limit = row.ulps.get(as_dtype(right.dtype).name, 0)
        flush = not keeps_subnormals()
        assert_close(np.asarray(result), right, limit, str(case), flush)


def as_tuple(case: Case, result: Any) -> tuple[Any, ...]:
    return result if case.op.multiple_results else (result,)


@pytest.mark.parametrize(("row", "dtype"), PRIMITIVES)
def test_primitives(row: OpRow, dtype: DType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jitted within ulps of the oracle; eager as jitted, bit for bit."""
    applied = applications(row, dtype)
    expected = expected_results(applied)

    def all_cases(operands: list[list[Any]]) -> list[Any]:
        pairs = zip(applied, operands, strict=True)
        return [as_tuple(case, case.op.bind(*xs)) for (case, _), xs in pairs]

    forbid_oracle(monkeypatch)
    use_backend(device_backend())
    with poot.config.override(enable_x64=True):
        operands = [[poot.device_put(x) for x in xs] for _, xs in applied]
        jitted = poot.jit(all_cases)(operands)
        eager = all_cases(operands)
    for (case, _), one, other, right in zip(
        applied, jitted, eager, expected, strict=True
    ):
        assert_within(row, case, one, right)
        for mine, theirs in zip(other, one, strict=True):
            assert_same_bits(mine, np.asarray(theirs), f"eager and jitted {case}")


@pytest.mark.parametrize(("row", "dtype"), COMPOSITES)
def test_composites(row: OpRow, dtype: DType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel made from a region gives what its decomposition gives."""
    applied = applications(row, dtype)
    expected = expected_results(applied)
    forbid_oracle(monkeypatch)
    for (case, operands), right in zip(applied, expected, strict=True):
        for generic in (False, True):
            results = run_graph(graph_of(case), operands, generic=generic)
            assert_within(row, case, results, right)
