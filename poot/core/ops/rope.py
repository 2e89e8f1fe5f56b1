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

    def decompose(self, *types: TensorType) -> Graph:
        """The products and sums of each half of the pairs, put together again."""
        return _Chain(self, types).graph()


class _Chain:
    """The decomposition in the making."""

    def __init__(self, op: Rope, types: tuple[TensorType, ...]) -> None:
        self.op = op
        self.builder = Builder()
        self.x, self.cos, self.sin = (self.builder.input(type) for type in types)
        self.wide = op.is_wide(types[1])

    def graph(self) -> Graph:
        rotary, shape = self.op.rotary, self.builder.type(self.x).shape
        axis = len(shape) - 1
        turned = self._slice(self.x, 0, rotary)
        a, b = self._pair(turned)
        cosines, sines = self._tables(self.cos), self._tables(self.sin)
        mul, add, sub = BinaryOp.MUL, BinaryOp.ADD, BinaryOp.SUB
        first = self._binary(
            sub, self._binary(mul, a, cosines[0]), self._binary(mul, b, sines[0])
        )
        second = self._binary(
            add, self._binary(mul, b, cosines[1]), self._binary(mul, a, sines[1])
        )
        parts = [first, second]
        if self.op.form is RopeForm.INTERLEAVED:
            parts = [self._woven(first, second)]
        if rotary < shape[-1]:
            parts.append(self._slice(self.x, rotary, shape[-1]))
        whole = self._emit(Concat(axis), *parts) if len(parts) > 1 else parts[0]
        self.builder.result(whole)
        return self.builder.finish()

    def _tables(self, table: ValueId) -> tuple[ValueId, ValueId]:
        return self._pair(table) if self.wide else (table, table)

    def _pair(self, value: ValueId) -> tuple[ValueId, ValueId]:
        """The first and the second elements of all pairs."""
        rotary = self.op.rotary
        if self.op.form is RopeForm.HALF:
            half = rotary // 2
            return self._slice(value, 0, half), self._slice(value, half, rotary)
        return self._slice(value, 0, rotary, 2), self._slice(value, 1, rotary, 2)

    def _woven(self, first: ValueId, second: ValueId) -> ValueId:
        shape = self.builder.type(first).shape
        columns = [self._emit(Reshape((*shape, 1)), value) for value in (first, second)]
        pairs = self._emit(Concat(len(shape)), *columns)
        return self._emit(Reshape((*shape[:-1], self.op.rotary)), pairs)

    def _slice(self, value: ValueId, start: int, end: int, stride: int = 1) -> ValueId:
        shape = self.builder.type(value).shape
        if (start, end, stride) == (0, shape[-1], 1):
            return value
        return self._emit(Slice(len(shape) - 1, start, end, stride), value)

    def _binary(self, op: BinaryOp, a: ValueId, b: ValueId) -> ValueId:
        return self._emit(Binary(op), a, b)

    def _emit(self, op: Op, *operands: ValueId) -> ValueId:
        (out,) = self.builder.emit(op, operands)
        return out
