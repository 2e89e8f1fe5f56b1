"""Rotary embedding, which passes make of the products and sums that spell it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import ClassVar

from poot.core.builder import Builder
from poot.core.dtypes import Kind
from poot.core.equation import ValueId
from poot.core.errors import ShapeError
from poot.core.graph import Graph
from poot.core.op import Op, register
from poot.core.ops.composite import Composite
from poot.core.ops.elementwise import (
    Binary,
    BinaryOp,
    broadcast_shapes,
    require_kind,
    require_same_dtype,
)
from poot.core.ops.shape import Concat, Reshape, Slice
from poot.core.types import TensorType


class RopeForm(enum.Enum):
    """Which elements of a head make a pair."""

    HALF = "half"  # i and i + rotary / 2
    INTERLEAVED = "interleaved"  # 2 i and 2 i + 1


@register
@dataclass(frozen=True, slots=True)
class Rope(Composite):
    """Pairs (a, b) of the last axis become (a cos - b sin, b cos + a sin).

    Operands: x [..., D], cos and sin, which repeat along the axes before the last.
    The first `rotary` elements are turned, the rest stays. Along the last axis cos and
    sin have a number a pair, `rotary / 2`, or one an element, `rotary`. Products and
    sums round to the dtype each.
    """

    rotary: int
    form: RopeForm
    name: ClassVar[str] = "rope"

    def infer(self, x: TensorType, cos: TensorType, sin: TensorType) -> TensorType:
        dtype = require_same_dtype(self.name, x, cos, sin)
        require_kind(self.name, dtype, frozenset({Kind.FLOAT}))
        rotary = self.rotary
        if not x.shape or rotary % 2 or not 2 <= rotary <= x.shape[-1]:
            raise ShapeError(
                f"rope: {rotary} elements of {x} are to be turned; takes an even "
                "number from 2 to the last axis"
            )
        for table in (cos, sin):
            if not table.shape or table.shape[-1] not in (rotary // 2, rotary):
                raise ShapeError(
                    f"rope: {table} for {rotary} turned elements; takes a last axis of "
                    f"{rotary // 2} or {rotary}"
                )
            lead = table.shape[:-1]
            if broadcast_shapes("rope", lead, x.shape[:-1]) != x.shape[:-1]:
                raise ShapeError(f"rope: {table} does not repeat over the rows of {x}")
        if cos.shape[-1] != sin.shape[-1]:
            raise ShapeError(f"rope: cos is {cos}, sin {sin}; takes equal last axes")
        return x

    def is_wide(self, cos: TensorType) -> bool:
        """Whether cos and sin have a number for each element of a pair."""
        return cos.shape[-1] == self.rotary

    def parts(self, size: int) -> tuple[slice, slice, slice]:
        """Where first and second elements of pairs stand in heads, and the others.

        With `size` = `rotary` this is where the numbers of wide tables stand.
        """
        rotary = self.rotary
        if self.form is RopeForm.HALF:
            pairs = slice(0, rotary // 2, 1), slice(rotary // 2, rotary, 1)
        else:
            pairs = slice(0, rotary, 2), slice(1, rotary, 2)
        return (*pairs, slice(rotary, size, 1))

    def decompose(self, *types: TensorType) -> Graph:
        """The products and sums of each half of the pairs, put together again."""
        return _Chain(self, types).graph()


def turned(
    builder: Builder,
    pair: tuple[ValueId, ValueId],
    cosines: tuple[ValueId, ValueId],
    sines: tuple[ValueId, ValueId],
) -> tuple[ValueId, ValueId]:
    """The first and the second elements of pairs, turned; tables are those of each."""

    def emit(op: BinaryOp, a: ValueId, b: ValueId) -> ValueId:
        return builder.emit(Binary(op), (a, b))[0]

    mul, (a, b) = BinaryOp.MUL, pair
    first = emit(BinaryOp.SUB, emit(mul, a, cosines[0]), emit(mul, b, sines[0]))
    second = emit(BinaryOp.ADD, emit(mul, b, cosines[1]), emit(mul, a, sines[1]))
    return first, second


class _Chain:
    """The decomposition in the making."""

    def __init__(self, op: Rope, types: tuple[TensorType, ...]) -> None:
        self.op = op
        self.builder = Builder()
        self.x, self.cos, self.sin = (self.builder.input(type) for type in types)
        self.wide = op.is_wide(types[1])

    def graph(self) -> Graph:
        shape = self.builder.type(self.x).shape
        axis = len(shape) - 1
        one, two, rest = self.op.parts(shape[-1])
        pair = self._slice(self.x, one), self._slice(self.x, two)
        cosines, sines = self._tables(self.cos), self._tables(self.sin)
        parts = list(turned(self.builder, pair, cosines, sines))
        if self.op.form is RopeForm.INTERLEAVED:
            parts = [self._woven(*parts)]
        if rest.start < rest.stop:
            parts.append(self._slice(self.x, rest))
        whole = self._emit(Concat(axis), *parts) if len(parts) > 1 else parts[0]
        self.builder.result(whole)
        return self.builder.finish()

    def _tables(self, table: ValueId) -> tuple[ValueId, ValueId]:
        if not self.wide:
            return table, table
        one, two, _ = self.op.parts(self.op.rotary)
        return self._slice(table, one), self._slice(table, two)

    def _woven(self, first: ValueId, second: ValueId) -> ValueId:
        shape = self.builder.type(first).shape
        columns = [self._emit(Reshape((*shape, 1)), value) for value in (first, second)]
        pairs = self._emit(Concat(len(shape)), *columns)
        return self._emit(Reshape((*shape[:-1], self.op.rotary)), pairs)

    def _slice(self, value: ValueId, part: slice) -> ValueId:
        axis = len(self.builder.type(value).shape) - 1
        return self._emit(Slice(axis, part.start, part.stop, part.step), value)

    def _emit(self, op: Op, *operands: ValueId) -> ValueId:
        (out,) = self.builder.emit(op, operands)
        return out
