"""Every primitive on the device, jitted and eager, against the oracle: by the table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import poot
from poot.core.dtypes import DType
from poot.core.ops.composite import Table
from poot.interpreters.backend import use_backend
from tests.backends import device_backend, forbid_oracle
from tests.kernel_harness import run_graph
from tests.numerics import assert_same_bits
from tests.op_row import OpRow
from tests.op_table import graph_of, rows_and_dtypes
from tests.table_runs import (
    applications,
    as_tuple,
    assert_within,
    expected_results,
    shaped,
)

pytestmark = pytest.mark.skipif(device_backend() is None, reason="no Vulkan device")

PAIRS = [
    pytest.param(row, dtype, id=f"{row}-{dtype}") for row, dtype in rows_and_dtypes()
]
# A table has no kernel of its own.
COMPOSITES = [
    p for p in PAIRS if p.values[0].key.op.composite and p.values[0].key.op is not Table
]
PRIMITIVES = [p for p in PAIRS if not p.values[0].key.op.composite]


@pytest.mark.parametrize(("row", "dtype"), PRIMITIVES)
def test_primitives(row: OpRow, dtype: DType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jitted within ulps of the oracle; eager as jitted, bit for bit."""
    applied = shaped(row, dtype)
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
