"""Transposes of what moves elements."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from poot.core import dtypes
from poot.core.dtypes import Scalar
from poot.core.ops.conv import dilated
from poot.core.ops.shape import (
    Broadcast,
    Concat,
    Pad,
    Reshape,
    Reverse,
    Slice,
    Transpose,
)
from poot.core.types import TensorType
from poot.interpreters import primitives as p
from poot.interpreters.transpose.table import (
    Cotangent,
    Linear,
    operand_type,
    transpose,
)


@transpose.define(Broadcast)
def _broadcast(
    op: Broadcast, cts: Sequence[Any], operands: Sequence[Any]
) -> tuple[Any, ...]:
    return (p.unbroadcast(cts[0], operands[0].type.shape),)


@transpose.define(Reshape)
def _reshape(
    op: Reshape, cts: Sequence[Any], operands: Sequence[Any]
) -> tuple[Any, ...]:
    return (p.reshape(cts[0], operands[0].type.shape),)


@transpose.define(Transpose)
def _transpose(
    op: Transpose, cts: Sequence[Any], operands: Sequence[Any]
) -> tuple[Any, ...]:
    perm = op.perm
    return (p.transpose(cts[0], sorted(range(len(perm)), key=perm.__getitem__)),)


@transpose.define(Reverse)
def _reverse(
    op: Reverse, cts: Sequence[Any], operands: Sequence[Any]
) -> tuple[Any, ...]:
    return (op.bind(cts[0]),)


@transpose.define(Slice)
def _slice(op: Slice, cts: Sequence[Any], operands: Sequence[Any]) -> tuple[Any, ...]:
    """Zeros where elements were left out."""
    (ct,) = cts
    size, taken = operands[0].type.shape[op.axis], p.type_of(ct).shape[op.axis]
    config = [(0, 0, 0)] * p.type_of(ct).ndim
    after = size - op.start - dilated(taken, op.stride)
    config[op.axis] = (op.start, after, op.stride - 1)
    return (p.pad(ct, config),)


@transpose.define(Concat)
def _concat(
    op: Concat, cts: Sequence[Any], operands: Sequence[Any]
) -> tuple[Cotangent, ...]:
    sizes = [operand_type(x).shape[op.axis] for x in operands]
    ends = itertools.accumulate(sizes)
    return tuple(
        _part(cts[0], op.axis, end - size, end) if isinstance(x, Linear) else None
        for x, size, end in zip(operands, sizes, ends, strict=True)
    )


def _part(x: Any, axis: int, start: int, end: int, stride: int = 1) -> Any:
    """A slice along one axis; the value itself where that is the whole axis."""
    if stride == 1 and end - start == p.type_of(x).shape[axis]:
        return x
    return p.slice_axis(x, axis, start, end, stride)


@transpose.define(Pad)
def _pad(
    op: Pad, cts: Sequence[Any], operands: Sequence[Any]
) -> tuple[Cotangent, Cotangent]:
    x, value = operands
    type = operand_type(x)
    taken = _unpadded(op, cts[0], type.shape) if isinstance(x, Linear) else None
    summed = _of_padding(op, cts[0], type) if isinstance(value, Linear) else None
    return taken, summed


def _unpadded(op: Pad, ct: Any, shape: Sequence[int]) -> Any:
    """What stands where elements went; zero for those that were cut off."""
    cut = [(max(-low, 0), max(-high, 0), 0) for low, high, _ in op.config]
    taken = p.pad(ct, cut)
    for axis, ((low, _, interior), size) in enumerate(
        zip(op.config, shape, strict=True)
    ):
        start, stride = max(low, 0), interior + 1
        taken = _part(taken, axis, start, start + dilated(size, stride), stride)
    return taken


def _of_padding(op: Pad, ct: Any, type: TensorType) -> Cotangent:
    """The sum of what stands where the value went.

    By a mask: a difference of sums would lose digits, and meet infinities of others.
    """
    if not any(low > 0 or high > 0 or interior for low, high, interior in op.config):
        return None
    inside = p.full(Scalar.of(False, dtypes.bool_), type.shape)
    is_padding = op.bind(inside, Scalar.of(True, dtypes.bool_))
    zero = p.number(0, type.dtype)
    kept = p.select(is_padding, ct, zero)
    return p.reduce_sum(kept, range(len(op.config)))
