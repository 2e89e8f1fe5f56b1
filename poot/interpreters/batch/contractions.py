"""Batching of contractions. The batch is one more axis of theirs: nothing is moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from poot.core.dtypes import Scalar
from poot.core.ops.elementwise import Clamp
from poot.core.ops.matmul import DotGeneral, IndexedMatMul, MatMul
from poot.interpreters.batch.index_numbers import into_pool, number_dtype
from poot.interpreters.batch.table import (
    Axis,
    Batched,
    all_lifted,
    batch,
    example_type,
    in_front,
    merged,
    split,
)
from poot.interpreters.primitives import cast, type_of


@batch.define(MatMul)
def _matmul(
    op: MatMul, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> Batched:
    a, _ = operands
    leading = example_type(a, axes[0]).ndim - 2
    if axes[0] is not None and axes[0] == axes[1] and axes[0] <= leading:
        return (op.bind(*operands),), (axes[0],)
    pairs = tuple(range(leading))
    general = DotGeneral((leading + 1,), (leading,), pairs, pairs, op.out)
    return _dot_general(general, size, operands, axes)


@batch.define(DotGeneral)
def _dot_general(
    op: DotGeneral, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> Batched:
    """A batch of one operand is a free axis, one of both a batch axis in front."""
    (a, b), (left, right) = operands, axes
    lifted = replace(
        op,
        lhs_contracting=all_lifted(op.lhs_contracting, left),
        rhs_contracting=all_lifted(op.rhs_contracting, right),
        lhs_batch=all_lifted(op.lhs_batch, left),
        rhs_batch=all_lifted(op.rhs_batch, right),
    )
    if left is not None and right is not None:
        paired = replace(
            lifted,
            lhs_batch=(left, *lifted.lhs_batch),
            rhs_batch=(right, *lifted.rhs_batch),
        )
        return (paired.bind(a, b),), (0,)
    rows = lifted.lhs_free(type_of(a).ndim)
    if left is not None:
        place = rows.index(left)
    else:
        place = len(rows) + lifted.rhs_free(type_of(b).ndim).index(right)
    return (lifted.bind(a, b),), (len(op.lhs_batch) + place,)


@batch.define(IndexedMatMul)
def _indexed_matmul(
    op: IndexedMatMul, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> Batched:
    """The rows of all examples as one, and so their matrices where they differ."""
    x, w, idx = operands
    x = merged(in_front(x, axes[0], size), 0)
    idx = in_front(idx, axes[2], size)
    if axes[1] is not None:
        w = in_front(w, axes[1], size)
        count = type_of(w).shape[1]
        w = merged(w, 0)
        idx = cast(idx, number_dtype(type_of(idx).dtype, size * count))
        first, last = (Scalar.of(n, type_of(idx).dtype) for n in (0, max(count - 1, 0)))
        idx = into_pool(Clamp().bind(first, idx, last), count)
    rows = type_of(idx).shape[1]
    result = op.bind(x, w, merged(idx, 0))
    return (split(result, 0, (size, rows)),), (0,)
