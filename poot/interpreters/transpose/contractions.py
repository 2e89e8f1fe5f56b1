"""Transposes of sums of products over axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from poot.core.ops.matmul import DotGeneral, MatMul, Precision
from poot.interpreters.primitives import cast, transpose, type_of
from poot.interpreters.transpose import table
from poot.interpreters.transpose.table import Cotangent, Linear, require_one_linear

Axes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Factor:
    """The axes of one factor, and which axes of the result its free ones became."""

    contracting: Axes
    batch: Axes
    free: Axes
    kept: Axes


@table.transpose.define(MatMul)
def _matmul(
    op: MatMul, cts: Sequence[Any], operands: Sequence[Any]
) -> tuple[Cotangent, ...]:
    require_one_linear(op, *operands)
    last = type_of(cts[0]).ndim - 1
    batch = tuple(range(last - 1))
    return _dot_general(DotGeneral((last,), (last - 1,), batch, batch), cts, operands)


@table.transpose.define(DotGeneral)
def _dot_general(
    op: DotGeneral, cts: Sequence[Any], operands: Sequence[Any]
) -> tuple[Cotangent, ...]:
    a, b = operands
    (ct,) = cts
    require_one_linear(op, a, b)
    rows = op.lhs_free(table.operand_type(a).ndim)
    columns = op.rhs_free(table.operand_type(b).ndim)
    made = tuple(range(type_of(ct).ndim))
    first, end = len(op.lhs_batch), len(op.lhs_batch) + len(rows)
    left = _Factor(op.lhs_contracting, op.lhs_batch, rows, made[first:end])
    right = _Factor(op.rhs_contracting, op.rhs_batch, columns, made[end:])
    if isinstance(a, Linear):
        found = _other_factor(ct, b, right, left, op.precision)
        return cast(found, a.type.dtype), None
    found = _other_factor(ct, a, left, right, op.precision)
    return None, cast(found, b.type.dtype)


def _other_factor(
    ct: Any, known: Any, given: _Factor, wanted: _Factor, precision: Precision
) -> Any:
    """The cotangent of a factor, from the factor that is known.

    It is summed up in the dtype of `ct`. Batch axes and the two sides come in the order
    that the factor's axes have, if there is one.
    """
    known = cast(known, type_of(ct).dtype)
    order = sorted(range(len(wanted.batch)), key=wanted.batch.__getitem__)
    batch = tuple(given.batch[axis] for axis in order)
    paired = sorted(zip(given.contracting, wanted.contracting, strict=True))
    across = tuple(axis for _, axis in paired)
    front = tuple(wanted.batch[axis] for axis in order)
    by_ct, by_known = (*front, *wanted.free, *across), (*front, *across, *wanted.free)
    if list(by_known) == sorted(by_known):
        dot = DotGeneral(
            given.free, given.kept, batch, tuple(order), precision=precision
        )
        return dot.bind(known, ct)
    dot = DotGeneral(given.kept, given.free, tuple(order), batch, precision=precision)
    product = dot.bind(ct, known)
    return transpose(product, sorted(range(len(by_ct)), key=by_ct.__getitem__))
