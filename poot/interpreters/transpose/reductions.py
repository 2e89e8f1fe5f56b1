"""Transposes of sums: over an axis, up to each element, and under moving windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from poot.core.ops.conv import dilated
from poot.core.ops.cumulative import Cumulative, CumulativeOp
from poot.core.ops.reduce import Reduce, ReduceOp
from poot.core.ops.window import ReduceWindow, WindowOp
from poot.interpreters.primitives import broadcast, reshape, type_of
from poot.interpreters.transpose.table import transpose


@transpose.define(Reduce[ReduceOp.SUM])
def _sum(op: Reduce, cts: Sequence[Any], operands: Sequence[Any]) -> tuple[Any, ...]:
    shape = operands[0].type.shape
    kept = (*shape[: op.axis], 1, *shape[op.axis + 1 :])
    return (broadcast(reshape(cts[0], kept), shape),)


@transpose.define(Cumulative[CumulativeOp.SUM])
def _cumulative_sum(
    op: Cumulative, cts: Sequence[Any], operands: Sequence[Any]
) -> tuple[Any, ...]:
    return (replace(op, reverse=not op.reverse).bind(cts[0]),)


@transpose.define(ReduceWindow[WindowOp.SUM])
def _window_sum(
    op: ReduceWindow, cts: Sequence[Any], operands: Sequence[Any]
) -> tuple[Any, ...]:
    """Sums under windows of the cotangent: strides and base dilation change places."""
    (ct,) = cts
    axes = zip(operands[0].type.shape, type_of(ct).shape, strict=True)
    padding = tuple(_padding(op, axis, *sizes) for axis, sizes in enumerate(axes))
    turned = replace(
        op, strides=op.base_dilation, padding=padding, base_dilation=op.strides
    )
    return (turned.bind(ct),)


def _padding(op: ReduceWindow, axis: int, size: int, places: int) -> tuple[int, int]:
    reach = dilated(op.window[axis], op.window_dilation[axis])
    return transposed_padding(
        dilated(size, op.base_dilation[axis]),
        op.padding[axis][0],
        reach,
        dilated(places, op.strides[axis]),
    )


def transposed_padding(given: int, low: int, reach: int, made: int) -> tuple[int, int]:
    """What the cotangent of sliding windows takes, so that a place is an element.

    All sizes are those after dilation: of the operand, of the window, of the result.
    """
    before = reach - 1 - low
    return before, given + reach - 1 - before - made
