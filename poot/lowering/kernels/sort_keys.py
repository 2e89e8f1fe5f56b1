"""Elements as u32 words that have their order.

An element of up to 32 bits gives one word with its bits at the bottom; one of 64 bits
two, the upper one first. Words compare as the elements do; NaN has all bits set.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.core import dtypes
from poot.core.builder import Builder
from poot.core.dtypes import DType, Scalar
from poot.core.equation import Operand, ValueId
from poot.core.op import Op
from poot.core.ops.elementwise import (
    Binary,
    BinaryOp,
    BitcastConvert,
    Cast,
    Compare,
    CompareOp,
    Select,
)
from poot.core.ops.shape import Reshape, Slice

_WORD_BITS = 32
_ALL = (1 << _WORD_BITS) - 1
_SIGN = 1 << _WORD_BITS - 1
# The bits of infinity; of f64 those of its upper word.
_INFINITY = {
    dtypes.float16: 0x7C00,
    dtypes.bfloat16: 0x7F80,
    dtypes.float32: 0x7F800000,
    dtypes.float64: 0x7FF00000,
}
_UNSIGNED = {8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.uint32}


def _word(number: int) -> Scalar:
    return Scalar.of(number, dtypes.uint32)


_ZERO = _word(0)


@dataclass(frozen=True, slots=True)
class KeyOrder:
    """In which order elements are to be, as far as words can tell."""

    descending: bool
    # Whether -0 is equal to +0; else it is below.
    zeros_are_equal: bool


def word_bits(dtype: DType) -> tuple[int, ...]:
    """How many bits the words of an element have."""
    if dtype.is_bool:
        return (1,)
    return (dtype.bits,) if dtype.bits <= _WORD_BITS else (_WORD_BITS, _WORD_BITS)


def emit_words(builder: Builder, value: ValueId, order: KeyOrder) -> list[ValueId]:
    """Emit the words of the elements of `value`, each of its shape."""
    return _Words(builder, order).of(value)


class _Words:
    """Emits u32 arithmetic on bits."""

    def __init__(self, builder: Builder, order: KeyOrder) -> None:
        self.builder, self.order = builder, order

    def of(self, value: ValueId) -> list[ValueId]:
        dtype = self.builder.type(value).dtype
        if dtype.bits > _WORD_BITS:
            words = self._pair(value, dtype)
        elif dtype.is_float:
            words = [self._float(self._bits(value, dtype), dtype)]
        elif dtype.is_signed:
            sign = 1 << dtype.bits - 1
            words = [self._binary(BinaryOp.XOR, self._bits(value, dtype), sign)]
        else:
            words = [self._emit(Cast(dtypes.uint32), value)]
        if not self.order.descending:
            return words
        masks = [(1 << bits) - 1 for bits in word_bits(dtype)]
        pairs = zip(words, masks, strict=True)
        return [self._binary(BinaryOp.XOR, word, mask) for word, mask in pairs]

    def _bits(self, value: ValueId, dtype: DType) -> ValueId:
        raw = self._emit(BitcastConvert(_UNSIGNED[dtype.bits]), value)
        return self._emit(Cast(dtypes.uint32), raw)

    def _float(self, bits: ValueId, dtype: DType) -> ValueId:
        mask, sign = (1 << dtype.bits) - 1, 1 << dtype.bits - 1
        magnitude = self._binary(BinaryOp.AND, bits, sign - 1)
        if self.order.zeros_are_equal:
            bits = self._select(self._compare(CompareOp.EQ, magnitude, 0), _ZERO, bits)
        negative = self._compare(CompareOp.GE, bits, sign)
        turned = self._select(negative, _word(mask), _word(sign))
        word = self._emit(Binary(BinaryOp.XOR), bits, turned)
        nan = self._compare(CompareOp.GT, magnitude, _INFINITY[dtype])
        return self._select(nan, _word(mask), word)

    def _pair(self, value: ValueId, dtype: DType) -> list[ValueId]:
        low, high = self._halves(value)
        if dtype.is_signed:
            high = self._binary(BinaryOp.XOR, high, _SIGN)
        if not dtype.is_float:
            return [high, low]
        magnitude = self._binary(BinaryOp.AND, high, _SIGN - 1)
        rest = self._compare(CompareOp.NE, low, 0)
        infinity = _INFINITY[dtype]
        nan = self._emit(
            Binary(BinaryOp.OR),
            self._compare(CompareOp.GT, magnitude, infinity),
            self._emit(
                Binary(BinaryOp.AND),
                self._compare(CompareOp.EQ, magnitude, infinity),
                rest,
            ),
        )
        if self.order.zeros_are_equal:
            none = self._compare(CompareOp.EQ, magnitude, 0)
            positive = self._select(rest, high, _ZERO)
            high = self._select(none, positive, high)
        negative = self._compare(CompareOp.GE, high, _SIGN)
        ones = _word(_ALL)
        turned = (
            self._select(negative, ones, _word(_SIGN)),
            self._select(negative, ones, _ZERO),
        )
        words = [
            self._emit(Binary(BinaryOp.XOR), word, turn)
            for word, turn in zip((high, low), turned, strict=True)
        ]
        return [self._select(nan, ones, word) for word in words]

    def _halves(self, value: ValueId) -> list[ValueId]:
        shape = self.builder.type(value).shape
        both = self._emit(BitcastConvert(dtypes.uint32), value)
        halves = [self._emit(Slice(len(shape), n, n + 1), both) for n in range(2)]
        return [self._emit(Reshape(shape), half) for half in halves]

    # --- instructions -------------------------------------------------------

    def _emit(self, op: Op, *operands: Operand) -> ValueId:
        return self.builder.emit(op, operands)[0]

    def _binary(self, op: BinaryOp, a: ValueId, b: int) -> ValueId:
        return self._emit(Binary(op), a, _word(b))

    def _compare(self, op: CompareOp, a: ValueId, b: int) -> ValueId:
        return self._emit(Compare(op), a, _word(b))

    def _select(self, condition: ValueId, a: Operand, b: Operand) -> ValueId:
        return self._emit(Select(), condition, a, b)
