"""Rules of batching: the op on each example, for all primitives, axes and sizes."""

from __future__ import annotations

import pytest

from poot.core.op import primitive_keys
from poot.core.ops.control import Cond, Scan, While
from poot.core.ops.shape import Iota
from poot.interpreters.batch.rules import batch
from tests.batch_runs import axes_of, check, chosen, examples_of, row_dtype
from tests.op_table import ROWS

LARGEST = 3
# How many choices of operands and axes are tried of one application.
_CHOICES = 10
# What a rule may bind, and the most: to find a place among those of all examples.
_MOST_OPS = 14

# Their rules batch the graphs within them: see the tests of control flow. Iota has no
# operands.
_ELSEWHERE = (Scan, While, Cond, Iota)

PRIMITIVES = [key for key in primitive_keys() if not key.op.composite]
BATCHED_ROWS = [
    row for row in ROWS if not row.key.op.composite and row.key.op not in _ELSEWHERE
]


@pytest.mark.parametrize("key", PRIMITIVES, ids=str)
def test_every_primitive_has_a_rule(key):
    assert key in batch


# --- every row of the op table ----------------------------------------------


@pytest.mark.parametrize("row", BATCHED_ROWS, ids=str)
def test_a_rule_gives_the_op_of_each_example(row):
    for case in row.cases(row_dtype(row)):
        examples = examples_of(row, case, LARGEST)
        ranks = [type.ndim for type in case.types]
        choices = axes_of(ranks, _CHOICES, str(case))
        for axes in choices:
            check(case.op, chosen(examples, axes), axes, LARGEST)
        check(case.op, chosen(examples, choices[0]), choices[0], 0)


@pytest.mark.parametrize("row", BATCHED_ROWS, ids=str)
def test_a_rule_binds_as_many_ops_whatever_the_size(row):
    for case in row.cases(row_dtype(row)):
        examples = examples_of(row, case, LARGEST)
        axes = (0,) * len(examples)
        operands = chosen(examples, axes)
        one, more = (check(case.op, operands, axes, size) for size in (1, LARGEST))
        assert [type(op) for op in one] == [type(op) for op in more]
        assert len(more) <= _MOST_OPS
