"""Reductions of one axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from poot.core.ops.elementwise import CompareOp
from poot.core.ops.reduce import ArgReduce, Reduce, ReduceOp
from poot.interpreters.jvp.definitions import (
    One,
    define_constant,
    define_linear,
    like,
)
from poot.interpreters.jvp.products import product_of_others
from poot.interpreters.jvp.table import Tangent, jvp
from poot.interpreters.primitives import (
    cast,
    compare,
    div,
    mul,
    reshape,
    select,
    type_of,
)

define_linear(Reduce[ReduceOp.SUM])
define_constant(ArgReduce, Reduce[ReduceOp.ANY], Reduce[ReduceOp.ALL])


@jvp.define(Reduce[ReduceOp.PROD])
def _prod(op: Reduce, primals: Sequence[Any], tangents: Sequence[Tangent]) -> One:
    (x,), (dx,) = primals, tangents
    add_up = Reduce(ReduceOp.SUM, op.axis, op.keepdim)
    moved = add_up.bind(mul(dx, product_of_others(x, op.axis)))
    return (op.bind(x),), (moved,)


@jvp.define(Reduce[ReduceOp.MAX], Reduce[ReduceOp.MIN])
def _extremum(op: Reduce, primals: Sequence[Any], tangents: Sequence[Tangent]) -> One:
    """The mean of the tangents of all elements that are largest."""
    (x,), (dx,) = primals, tangents
    y = op.bind(x)
    shape, dtype = type_of(x).shape, type_of(x).dtype
    kept = (*shape[: op.axis], 1, *shape[op.axis + 1 :])
    is_chosen = compare(CompareOp.EQ, x, reshape(y, kept))
    add_up = Reduce(ReduceOp.SUM, op.axis, op.keepdim)
    count = add_up.bind(cast(is_chosen, dtype))
    return (y,), (div(add_up.bind(select(is_chosen, dx, like(x, 0))), count),)
