"""Indices of examples as numbers: their dtypes, and their places in a shared pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from poot.core import dtypes
from poot.core.dtypes import DType, Scalar
from poot.core.ops.elementwise import Clamp
from poot.interpreters.batch.table import Axis
from poot.interpreters.primitives import (
    add,
    broadcast,
    cast,
    concat,
    iota,
    mul,
    reshape,
    type_of,
)


def number_dtype(dtype: DType, largest: int) -> DType:
    """A dtype that holds all indices of `dtype`, and `largest`."""
    if dtype.itemsize < 4:
        dtype = dtypes.int32
    fits = largest < 1 << dtype.bits - dtype.is_signed
    return dtype if fits else dtypes.int64


def into_pool(idx: Any, count: int) -> Any:
    """Indices [size, n] into parts of `count` rows as indices into all the parts."""
    type = type_of(idx)
    parts = iota(type.dtype, (type.shape[0], 1), 0)
    return add(idx, mul(parts, Scalar.of(count, type.dtype)))


def index_vectors(
    size: int, starts: Sequence[Any], axes: Sequence[Axis], rooms: Sequence[int]
) -> Any:
    """Scalar starts as one index vector an example: [size, number of starts].

    They count as if clamped to 0..rooms[i]; where their dtypes differ they are.
    """
    if len({type_of(start).dtype for start in starts}) > 1:
        wanted = number_dtype(dtypes.int32, max(rooms))
        starts = [
            _narrowed(start, room, wanted)
            for start, room in zip(starts, rooms, strict=True)
        ]
    columns = [
        broadcast(start if axis is None else reshape(start, (size, 1)), (size, 1))
        for start, axis in zip(starts, axes, strict=True)
    ]
    return concat(columns, 1)


def _narrowed(start: Any, room: int, wanted: DType) -> Any:
    if isinstance(start, Scalar):
        return Scalar.of(min(max(int(start.value), 0), room), wanted)
    held = number_dtype(type_of(start).dtype, room)
    low, high = Scalar.of(0, held), Scalar.of(room, held)
    return cast(Clamp().bind(low, cast(start, held), high), wanted)
