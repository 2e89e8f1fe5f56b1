"""Elementwise ops on single elements in compute form."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from poot.core import dtypes
from poot.core.dtypes import DType, Kind
from poot.core.op import Op
from poot.core.ops.elementwise import (
    Binary,
    BinaryOp,
    BitcastConvert,
    Cast,
    Clamp,
    Compare,
    CompareOp,
    Select,
    Unary,
)
from poot.core.ops.random import Threefry2x32
from poot.lowering.kernels.constants import hidden
from poot.lowering.kernels.float8 import cast_float8
from poot.lowering.kernels.math import cast, lower_binary, lower_unary
from poot.lowering.kernels.math.threefry import threefry2x32
from poot.lowering.kernels.memory import form, from_bits, to_bits
from poot.lowering.kernels.pack import Pack, lane_of
from poot.lowering.spirv.builder import KernelBuilder, Value
from poot.lowering.spirv.types import U32, vector


def apply(
    k: KernelBuilder, op: Op, operands: Sequence[Value], given: DType, made: DType
) -> Value:
    """The op on one element an operand, rounded to the result's dtype `made`.

    `given` is the dtype of the last operand.
    """
    match op:
        case Unary(member):
            return lower_unary(k, member, operands[0], given)
        case Binary(member):
            return lower_binary(k, member, operands[0], operands[1], given)
        case Compare(member):
            return compare(k, member, operands[0], operands[1], given)
        case Select():
            condition, if_true, if_false = operands
            return k.select(_truth(k, condition), if_true, if_false)
        case Clamp():
            low, x, high = operands
            raised = lower_binary(k, BinaryOp.MAX, x, low, given)
            return lower_binary(k, BinaryOp.MIN, raised, high, given)
        case Cast():
            stored_only = Kind.STORAGE in (given.kind, made.kind)
            change = cast_float8 if stored_only else cast
            return change(k, operands[0], given, made)
        case BitcastConvert():
            return reinterpret(k, operands[0], given, made)
    raise AssertionError(op)


def apply_lanes(
    k: KernelBuilder, op: Op, packs: Sequence[Pack], given: DType, made: DType
) -> Pack:
    """The op on each lane; once if all operands are equal in all lanes.

    Of an op with several results first come all lanes of the first result.
    """
    lanes = max((len(pack) for pack in packs), default=1)
    if isinstance(op, Threefry2x32):
        return _random_lanes(k, packs, lanes)
    # Drivers find out that x > x is false, say, and then have a constant 0.
    hide = made.is_float and not given.is_float
    values = []
    for lane in range(lanes):
        operands = [lane_of(pack, lane) for pack in packs]
        value = apply(k, op, operands, given, made)
        values.append(hidden(k, value) if hide else value)
    return tuple(values)


def _random_lanes(k: KernelBuilder, packs: Sequence[Pack], lanes: int) -> Pack:
    words = []
    for lane in range(lanes):
        k1, k2, x1, x2 = (lane_of(pack, lane) for pack in packs)
        words.append(threefry2x32(k, (k1, k2), (x1, x2)))
    first, second = zip(*words, strict=True)
    return (*first, *second)


def compare(k: KernelBuilder, op: CompareOp, a: Value, b: Value, dtype: DType) -> Value:
    """Whether the comparison holds; with NaN only `ne` does."""
    if dtype.is_bool and op not in (CompareOp.EQ, CompareOp.NE):
        a, b = k.convert(a, U32), k.convert(b, U32)
    functions: dict[CompareOp, Callable[[Value, Value], Value]] = {
        CompareOp.EQ: k.eq,
        CompareOp.NE: k.ne,
        CompareOp.LT: k.lt,
        CompareOp.LE: k.le,
        CompareOp.GT: k.gt,
        CompareOp.GE: k.ge,
    }
    return functions[op](a, b)


def _truth(k: KernelBuilder, condition: Value) -> Value:
    return condition if condition.ty.scalar.is_bool else k.ne(condition, 0)


# --- bits -------------------------------------------------------------------


def reinterpret(k: KernelBuilder, value: Value, given: DType, made: DType) -> Value:
    """The same bits as another dtype of the same size."""
    if given.itemsize == 8:
        return k.bitcast(value, form(made))
    return from_bits(k, to_bits(k, value, given), made)


def _words_of(k: KernelBuilder, value: Value, dtype: DType) -> list[Value]:
    if dtype.itemsize < 8:
        return [to_bits(k, value, dtype)]
    pair = k.bitcast(value, vector(U32, 2))
    return [k.extract(pair, 0), k.extract(pair, 1)]


def piece(
    k: KernelBuilder, value: Value, number: Value, given: DType, made: DType
) -> Value:
    """The `number`-th of the narrower elements in the bits of `value`, lowest first."""
    words = _words_of(k, value, given)
    word = words[0]
    per_word = 32 // made.bits
    if len(words) == 2:
        word = k.select(k.ge(number, per_word), words[1], word)
        number = k.and_(number, per_word - 1)
    if per_word == 1:
        return from_bits(k, word, made)
    bits = k.shr(word, k.mul(number, made.bits))
    return from_bits(k, k.and_(bits, (1 << made.bits) - 1), made)


def together(
    k: KernelBuilder, pieces: Sequence[Value], given: DType, made: DType
) -> Value:
    """The wider element whose bits are those of `pieces`, lowest first."""
    words: list[Value] = []
    per_word = 32 // given.bits
    for number, element in enumerate(pieces):
        place = number % per_word
        bits = k.shl(to_bits(k, element, given), place * given.bits)
        if place:
            words[-1] = k.or_(words[-1], bits)
        else:
            words.append(bits)
    if len(words) == 1:
        return from_bits(k, words[0], made)
    return k.bitcast(k.construct(vector(U32, 2), *words), form(made))


def counted(k: KernelBuilder, place: Value, dtype: DType) -> Value:
    """A u32 as a number of another dtype."""
    number = cast(k, place, dtypes.uint32, dtype)
    return hidden(k, number) if dtype.is_float else number
