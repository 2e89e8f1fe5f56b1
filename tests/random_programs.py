"""Random programs of every primitive and dtype, on operands of any kind.

They differ from `TableGraph`s in that inexact values are worked on further: a program
is judged equation by equation, so that no error builds up.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from hypothesis import strategies as st

from poot.core.dtypes import DType, Scalar
from poot.core.equation import ValueId
from poot.core.graph import Graph
from poot.core.ops.elementwise import Binary, BinaryOp, Unary, UnaryOp
from poot.core.types import TensorType
from tests.error_bounds import ACCUMULATING
from tests.op_row import Domain, OpRow
from tests.table_graphs import DRAWN_ROWS, TableGraph

MOST_EQUATIONS = 30
# Neighbours that fusion joins, what adds up, and everything else.
_ELEMENTWISE = tuple(row for row in DRAWN_ROWS if row.special)
_SUMS = tuple(row for row in DRAWN_ROWS if row.key in ACCUMULATING)
_OTHERS = tuple(
    row for row in DRAWN_ROWS if row not in _ELEMENTWISE and row not in _SUMS
)
_KINDS = (_ELEMENTWISE, _ELEMENTWISE, _OTHERS, _SUMS)
# Elements that are added or multiplied up stay where bounds mean something.
_ACCUMULATED: Domain = (-64.0, 64.0)


@dataclass(frozen=True)
class Program:
    """A graph that shows itself as the text which `Graph.parse` reads."""

    graph: Graph

    def __repr__(self) -> str:
        return str(self.graph)


class RandomProgram(TableGraph):
    """A program that grows by rows of the op table, its operands as they come."""

    def __init__(self, choose: random.Random) -> None:
        super().__init__(choose)
        # How the operands of the row that is applied are brought into its domain.
        self._tames = False
        self._limits = False

    def grow(self, equations: int) -> Program:
        """Rows until there are so many equations, brought operands included."""
        choose = self.choose
        while self.equations < equations:
            dtype = self._type(self._pick()).dtype
            kind = choose.choice(_KINDS)
            rows = [row for row in kind if dtype in row.dtypes]
            row = choose.choice(rows or kind)
            self.apply(row, dtype if rows else choose.choice(row.dtypes))
        return Program(self.finish().graph)

    def _pick_for(self, type: TensorType) -> ValueId:
        """A value that is of the type already, if there is one, more often than not."""
        of_type = [v for v in self.values if self._type(v) == type]
        of_dtype = [v for v in self.values if self._type(v).dtype is type.dtype]
        found = of_type or of_dtype
        if not found or self.choose.random() < 0.1:
            return self._pick()
        return self.choose.choice(found[-4:])

    def apply(self, row: OpRow, dtype: DType) -> None:
        accumulates = row.key in ACCUMULATING and dtype.is_float
        self._tames = accumulates and self.choose.random() < 0.5
        self._limits = accumulates and not self._tames
        super().apply(row, dtype)
        self.values += self.inexact
        self.inexact.clear()
        self._tames = self._limits = False

    def _tamed(self, value: ValueId, domain: Domain) -> ValueId:
        """Whole numbers for half of all sums, which are exact then in any order."""
        if self._tames:
            return super()._tamed(value, domain)
        if self._limits and self._type(value).dtype.is_float:
            # tanh keeps NaN and gives numbers of every size below 1.
            value = self._emit(Unary(UnaryOp.TANH), value)
            return self._scaled(value, _ACCUMULATED[1])
        return value

    def _scaled(self, value: ValueId, size: float) -> ValueId:
        dtype = self._type(value).dtype
        factor = Scalar.of(self.choose.choice((1.0, size)), dtype)
        return self._emit(Binary(BinaryOp.MUL), value, factor)


@st.composite
def random_programs(draw: st.DrawFn, equations: int = MOST_EQUATIONS) -> Program:
    """Random programs whose every choice is Hypothesis', so that failures shrink."""
    choose = draw(st.randoms(use_true_random=False))
    return RandomProgram(choose).grow(draw(st.integers(1, equations)))
