"""Batching of the primitives that combine elements along axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from poot.core.ops.cumulative import Cumulative
from poot.core.ops.reduce import ArgReduce, Reduce
from poot.core.ops.window import ReduceWindow
from poot.interpreters.batch.table import Axis, Batched, batch, inserted, lifted, only


@batch.define(Reduce, ArgReduce)
def _reduce(
    op: Reduce | ArgReduce, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> Batched:
    x, axis = only(operands, axes)
    reduced = lifted(op.axis, axis)
    result = replace(op, axis=reduced).bind(x)
    # The axis that goes may stand before the batch.
    moved = not op.keepdim and reduced < axis
    return (result,), (axis - moved,)


@batch.define(Cumulative)
def _cumulative(
    op: Cumulative, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> Batched:
    x, axis = only(operands, axes)
    return (replace(op, axis=lifted(op.axis, axis)).bind(x),), (axis,)


@batch.define(ReduceWindow)
def _reduce_window(
    op: ReduceWindow, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> Batched:
    """A window of one element along the batch."""
    x, axis = only(operands, axes)
    window = ReduceWindow(
        op.op,
        inserted(op.window, axis, 1),
        inserted(op.strides, axis, 1),
        inserted(op.padding, axis, (0, 0)),
        inserted(op.base_dilation, axis, 1),
        inserted(op.window_dilation, axis, 1),
    )
    return (window.bind(x),), (axis,)
