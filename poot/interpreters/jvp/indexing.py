"""Reads and writes at positions that are data: the tangents go the same way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from poot.core.ops.index_dims import GatherDims
from poot.core.ops.indexing import DynamicSlice, Gather, GatherMode, GeneralGather
from poot.core.ops.scatter import DynamicUpdateSlice, ScatterUpdate
from poot.interpreters.jvp.definitions import (
    One,
    define_jointly_linear,
    define_linear,
    like,
)
from poot.interpreters.jvp.table import Tangent, jvp
from poot.interpreters.primitives import reshape, type_of

define_linear(DynamicSlice)
define_jointly_linear(DynamicUpdateSlice, ScatterUpdate)


@jvp.define(Gather)
def _gather(op: Gather, primals: Sequence[Any], tangents: Sequence[Tangent]) -> One:
    (src, idx), (moved, _) = primals, tangents
    y = op.bind(src, idx)
    if op.mode is not GatherMode.FILL:
        return (y,), (op.bind(moved, idx),)
    shape, places = type_of(src).shape, type_of(idx).shape
    dims = GatherDims(
        (*range(op.axis), *range(op.axis + len(places), type_of(y).ndim)),
        (op.axis,),
        (op.axis,),
    )
    window = (*shape[: op.axis], 1, *shape[op.axis + 1 :])
    general = GeneralGather(dims, window, op.mode, like(src, 0))
    return (y,), (general.bind(moved, reshape(idx, (*places, 1))),)


@jvp.define(GeneralGather)
def _general_gather(
    op: GeneralGather, primals: Sequence[Any], tangents: Sequence[Tangent]
) -> One:
    """What is filled in has no tangent."""
    operand, indices = primals
    fill = like(operand, 0) if op.mode is GatherMode.FILL else op.fill
    moved = replace(op, fill=fill).bind(tangents[0], indices)
    return (op.bind(operand, indices),), (moved,)
