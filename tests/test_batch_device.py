"""What rules of batching bind, on the device: a row of each op of the op table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import poot
from poot.core.ops.control import Cond, Scan, While
from poot.core.ops.shape import Iota
from poot.interpreters.backend import use_backend
from poot.interpreters.batch.rules import batch
from tests.backends import device_backend, forbid_oracle
from tests.batch_runs import apply, axes_of, chosen, examples_of, row_dtype
from tests.op_row import Case, OpRow
from tests.op_table import ROWS
from tests.table_runs import assert_within, keeps_subnormals

pytestmark = pytest.mark.skipif(device_backend() is None, reason="no Vulkan device")

SIZE = 2
# How many applications of a row are tried, with one choice of axes each.
_APPLICATIONS = 5


def one_an_op() -> list[OpRow]:
    """The first row of each op, but for composites, control flow and constants."""
    found: dict[Any, OpRow] = {}
    for row in ROWS:
        op = row.key.op
        if not op.composite and op not in (Scan, While, Cond, Iota):
            found.setdefault(op, row)
    return list(found.values())


Applied = tuple[Case, tuple[Any, ...], list[Any]]


def applications(row: OpRow) -> list[Applied]:
    """Applications with axes, and operands with the batch along them."""
    applied = []
    cases = row.cases(row_dtype(row))
    for case in cases[:: -(-len(cases) // _APPLICATIONS)]:
        ranks = [type.ndim for type in case.types]
        axes = axes_of(ranks, 2, f"device {case}")[-1]
        applied.append((case, axes, chosen(examples_of(row, case, SIZE), axes)))
    return applied


@pytest.mark.parametrize("row", one_an_op(), ids=str)
def test_rules(row: OpRow, monkeypatch: pytest.MonkeyPatch) -> None:
    applied = applications(row)
    flush = not keeps_subnormals()
    expected = []
    for case, _, operands in applied:
        each = [
            [x[n] if isinstance(x, list) else x for x in operands] for n in range(SIZE)
        ]
        expected.append([apply(case.op, xs, flush) for xs in each])
    places: list[Any] = []

    def all_rules(given: list[list[Any]]) -> list[Any]:
        made = []
        for (case, axes, _), xs in zip(applied, given, strict=True):
            results, moved = batch[case.op.key](case.op, SIZE, xs, axes)
            made.append(list(results))
            places.append(moved)
        return made

    forbid_oracle(monkeypatch)
    use_backend(device_backend())
    with poot.config.override(enable_x64=True):
        stacked = [
            [
                poot.device_put(x if axis is None else np.stack(x, axis))
                for x, axis in zip(operands, axes, strict=True)
            ]
            for _, axes, operands in applied
        ]
        results = poot.jit(all_rules)(stacked)
    for (case, _, _), made, moved, right in zip(
        applied, results, places, expected, strict=True
    ):
        for n in range(SIZE):
            taken = [
                np.asarray(x) if place is None else np.asarray(x).take(n, place)
                for x, place in zip(made, moved, strict=True)
            ]
            assert_within(row, case, tuple(taken), right[n])
