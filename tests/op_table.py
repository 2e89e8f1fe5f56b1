"""One row a primitive, which drives the tests of all executors."""

from __future__ import annotations

from poot.core.builder import Builder
from poot.core.dtypes import DType
from poot.core.graph import Graph
from poot.core.op import PrimitiveKey
from tests import (
    op_rows_attention,
    op_rows_composite,
    op_rows_contraction,
    op_rows_control,
    op_rows_cumulative,
    op_rows_elementwise,
    op_rows_gather,
    op_rows_random,
    op_rows_scatter,
    op_rows_sort,
    op_rows_tensor,
    op_rows_window,
)
from tests.op_row import Case, OpRow

ROWS: tuple[OpRow, ...] = (
    *op_rows_elementwise.ROWS,
    *op_rows_tensor.ROWS,
    *op_rows_attention.ROWS,
    *op_rows_contraction.ROWS,
    *op_rows_composite.ROWS,
    *op_rows_gather.ROWS,
    *op_rows_scatter.ROWS,
    *op_rows_cumulative.ROWS,
    *op_rows_sort.ROWS,
    *op_rows_random.ROWS,
    *op_rows_window.ROWS,
    *op_rows_control.ROWS,
)
TABLE: dict[PrimitiveKey, OpRow] = {row.key: row for row in ROWS}


def rows_and_dtypes() -> list[tuple[OpRow, DType]]:
    return [(row, dtype) for row in ROWS for dtype in row.dtypes]


def graph_of(case: Case) -> Graph:
    """A graph of the one application."""
    builder = Builder(composites=True)
    operands = tuple(builder.input(type) for type in case.types)
    for value in builder.emit(case.op, operands):
        builder.result(value)
    return builder.finish()
