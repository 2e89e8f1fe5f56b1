"""Primitives as plain functions, for rules: no promotion, no checks but of `bind`.

Operands are values of the current interpreter or Scalars; dtypes must fit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from poot.core.dtypes import DType, Kind, Scalar, float32
from poot.core.ops.elementwise import (
    Binary,
    BinaryOp,
    Cast,
    Compare,
    CompareOp,
    Select,
    Unary,
    UnaryOp,
)
from poot.core.ops.reduce import Reduce, ReduceOp
from poot.core.ops.shape import (
    Broadcast,
    Concat,
    Iota,
    Pad,
    Reshape,
    Slice,
    Transpose,
)
from poot.core.types import TensorType, literal_type


def type_of(x: Any) -> TensorType:
    """The tensor type of a value or Scalar."""
    if isinstance(x, Scalar):
        return literal_type(x)
    found: TensorType = x.aval.type
    return found


def number(x: float, dtype: DType) -> Scalar:
    """A Python number as a literal of a dtype."""
    return Scalar.of(x, dtype)


def full(value: Scalar, shape: Sequence[int]) -> Any:
    """A tensor of one number."""
    return Broadcast(tuple(shape)).bind(value)


def zeros(type: TensorType) -> Any:
    """Zeros of a type."""
    return full(number(0, type.dtype), type.shape)


def unary(op: UnaryOp, x: Any) -> Any:
    return Unary(op).bind(x)


def neg(x: Any) -> Any:
    return unary(UnaryOp.NEG, x)


def binary(op: BinaryOp, a: Any, b: Any) -> Any:
    return Binary(op).bind(a, b)


def add(a: Any, b: Any) -> Any:
    """The sum; of what cannot be calculated with, that of the values in f32."""
    dtype = type_of(a).dtype
    if dtype.kind is Kind.STORAGE:
        return cast(add(cast(a, float32), cast(b, float32)), dtype)
    return binary(BinaryOp.ADD, a, b)


def sub(a: Any, b: Any) -> Any:
    return binary(BinaryOp.SUB, a, b)


def mul(a: Any, b: Any) -> Any:
    return binary(BinaryOp.MUL, a, b)


def div(a: Any, b: Any) -> Any:
    return binary(BinaryOp.DIV, a, b)


def compare(op: CompareOp, a: Any, b: Any) -> Any:
    return Compare(op).bind(a, b)


def select(condition: Any, if_true: Any, if_false: Any) -> Any:
    return Select().bind(condition, if_true, if_false)


def cast(x: Any, to: DType) -> Any:
    """The value itself where it has the dtype."""
    return x if type_of(x).dtype is to else Cast(to).bind(x)


def broadcast(x: Any, shape: Sequence[int]) -> Any:
    """The value itself where it has the shape."""
    shape = tuple(shape)
    return x if type_of(x).shape == shape else Broadcast(shape).bind(x)


def reshape(x: Any, shape: Sequence[int]) -> Any:
    """The value itself where it has the shape."""
    shape = tuple(shape)
    return x if type_of(x).shape == shape else Reshape(shape).bind(x)


def transpose(x: Any, perm: Sequence[int]) -> Any:
    """The value itself where the order stays."""
    perm = tuple(perm)
    return x if perm == tuple(range(len(perm))) else Transpose(perm).bind(x)


def move_axis(x: Any, source: int, target: int) -> Any:
    """Axis `source` becomes axis `target`; the others keep their order."""
    axes = [axis for axis in range(type_of(x).ndim) if axis != source]
    axes.insert(target, source)
    return transpose(x, axes)


def slice_axis(x: Any, axis: int, start: int, end: int, stride: int = 1) -> Any:
    return Slice(axis, start, end, stride).bind(x)


def concat(xs: Sequence[Any], axis: int) -> Any:
    return xs[0] if len(xs) == 1 else Concat(axis).bind(*xs)


def iota(dtype: DType, shape: Sequence[int], axis: int) -> Any:
    return Iota(dtype, tuple(shape), axis).bind()


def pad(x: Any, config: Sequence[tuple[int, int, int]]) -> Any:
    """Zeros around and between the elements, as `Pad` has it."""
    config = tuple(config)
    if not any(map(any, config)):
        return x
    return Pad(config).bind(x, Scalar.of(0, type_of(x).dtype))


def reduce_sum(x: Any, axes: Sequence[int]) -> Any:
    """The sum over some axes, which go; those that are neighbours go by one Reduce."""
    left = sorted(axes)
    while left:
        end = start = left.pop()
        while left and left[-1] == start - 1:
            start = left.pop()
        shape = type_of(x).shape
        before, size, after = shape[:start], shape[start : end + 1], shape[end + 1 :]
        if math.prod(size) == 1:
            x = reshape(x, before + after)
            continue
        merged = reshape(x, (*before, math.prod(size), *after))
        x = Reduce(ReduceOp.SUM, start).bind(merged)
    return x


def unbroadcast(x: Any, shape: Sequence[int]) -> Any:
    """The sum over the axes along which a value of `shape` was repeated to x."""
    shape = tuple(shape)
    own = type_of(x).shape
    if own == shape:
        return x
    extra = len(own) - len(shape)
    repeated = [axis for axis, size in enumerate(shape, extra) if size == 1]
    return reshape(reduce_sum(x, [*range(extra), *repeated]), shape)
