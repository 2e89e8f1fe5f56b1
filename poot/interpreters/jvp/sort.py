"""What brings elements into order: the tangents come into the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from poot.core import dtypes
from poot.core.ops.sort import ArgTopK, Sort, TopK
from poot.interpreters.jvp.along import take_along
from poot.interpreters.jvp.definitions import define_constant
from poot.interpreters.jvp.table import Tangent, jvp
from poot.interpreters.primitives import iota, type_of

define_constant(ArgTopK)


@jvp.define(Sort)
def _sort(op: Sort, primals: Sequence[Any], tangents: Sequence[Tangent]) -> Any:
    places = iota(dtypes.int32, type_of(primals[0]).shape, op.axis)
    *results, order = op.bind(*primals, places)
    moved = (None if t is None else take_along(t, order, op.axis) for t in tangents)
    return tuple(results), tuple(moved)


@jvp.define(TopK)
def _top_k(op: TopK, primals: Sequence[Any], tangents: Sequence[Tangent]) -> Any:
    values, places = op.bind(*primals)
    moved = take_along(tangents[0], places, type_of(values).ndim - 1)
    return (values, places), (moved, None)
