"""Rules of batching: the op on each example, for all primitives, axes and sizes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from poot.core import dtypes
from poot.core.op import Op, primitive_keys
from poot.core.ops.control import Cond, Scan, While
from poot.interpreters.batch.rules import batch
from poot.interpreters.batch.table import Axis
from tests.batch_runs import Operand, axes_of, check
from tests.op_row import Case, OpRow
from tests.op_table import ROWS

LARGEST = 3
# How many choices of operands and axes are tried of one application.
_CHOICES = 10

# Their rules batch the graphs within them: see the tests of control flow.
_CONTROL = (Scan, While, Cond)

PRIMITIVES = [key for key in primitive_keys() if not key.op.composite]
BATCHED_ROWS = [
    row for row in ROWS if not row.key.op.composite and row.key.op not in _CONTROL
]


@pytest.mark.parametrize("key", PRIMITIVES, ids=str)
def test_every_primitive_has_a_rule(key):
    assert key in batch


# --- every row of the op table ----------------------------------------------


def operands_of(row: OpRow, case: Case) -> list[list]:
    """Of each operand an array an example."""
    sets = [row.operands(case, True, number) for number in range(LARGEST)]
    return [list(each) for each in zip(*sets, strict=True)]


def chosen(examples: Sequence[list], axes: Sequence[Axis]) -> list[Operand]:
    return [
        each[0] if axis is None else each
        for each, axis in zip(examples, axes, strict=True)
    ]


def kinds(ops: Sequence[Op]) -> list[type[Op]]:
    return [type(op) for op in ops]


def dtype_of(row: OpRow):
    return dtypes.float32 if dtypes.float32 in row.dtypes else row.dtypes[0]


@pytest.mark.parametrize("row", BATCHED_ROWS, ids=str)
def test_a_rule_gives_the_op_of_each_example(row):
    for case in row.cases(dtype_of(row)):
        if not case.types:
            continue
        examples = operands_of(row, case)
        ranks = [type.ndim for type in case.types]
        for number, axes in enumerate(axes_of(ranks, _CHOICES, str(case))):
            operands = chosen(examples, axes)
            bound = check(case.op, operands, axes, LARGEST)
            if number == 0:
                for size in (0, 1):
                    # As many ops, whatever the size of the batch.
                    fewer = check(case.op, operands, axes, size)
                    assert size == 0 or kinds(fewer) == kinds(bound)
