"""Transposes of convolutions, which are convolutions themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from poot.core.ops.conv import Conv, dilated
from poot.core.ops.shape import Reverse
from poot.core.types import TensorType
from poot.interpreters.primitives import cast, reshape, type_of
from poot.interpreters.primitives import transpose as permuted
from poot.interpreters.transpose.reductions import transposed_padding
from poot.interpreters.transpose.table import (
    Cotangent,
    Linear,
    operand_type,
    require_one_linear,
    transpose,
)


@transpose.define(Conv)
def _conv(
    op: Conv, cts: Sequence[Any], operands: Sequence[Any]
) -> tuple[Cotangent, Cotangent]:
    """Summed up in the dtype of the result, and rounded to the operand's."""
    x, w = operands
    (ct,) = cts
    require_one_linear(op, x, w)
    x_type, w_type, ct_type = operand_type(x), operand_type(w), type_of(ct)
    if not (x_type.size and w_type.size and ct_type.size):
        return None, None
    if isinstance(x, Linear):
        found = _of_input(op, ct, cast(w, ct_type.dtype), x_type)
        return cast(found, x_type.dtype), None
    found = _of_weights(op, ct, cast(x, ct_type.dtype), w_type)
    return None, cast(found, w_type.dtype)


def _of_input(op: Conv, ct: Any, w: Any, x: TensorType) -> Any:
    """The cotangent spread by the strides, under the window turned around.

    Input and output features change places within each group. Of batch groups, whose
    parts of the batch make features of their own, come features that go back there.
    """
    shape, places = type_of(w).shape, type_of(ct).shape[2:]
    groups, parts = op.feature_group_count, op.batch_group_count
    weights = _turned(_swapped(w, groups * parts))
    padding = tuple(
        transposed_padding(
            dilated(size, op.lhs_dilation[axis]),
            op.padding[axis][0],
            dilated(shape[2 + axis], op.rhs_dilation[axis]),
            dilated(places[axis], op.strides[axis]),
        )
        for axis, size in enumerate(x.shape[2:])
    )
    back = Conv(
        strides=op.lhs_dilation,
        padding=padding,
        lhs_dilation=op.strides,
        rhs_dilation=op.rhs_dilation,
        feature_group_count=groups * parts,
    )
    made = back.bind(ct, weights)
    if parts == 1:
        return made
    batch, features, *rest = x.shape
    split = reshape(made, (batch // parts, parts, features, *rest))
    return reshape(_exchanged(split), x.shape)


def _of_weights(op: Conv, ct: Any, x: Any, w: TensorType) -> Any:
    """The input under the cotangent as the window, with images as its features.

    Strides and the window's dilation change places, and so do the kinds of groups.
    """
    sizes, places = type_of(x).shape[2:], type_of(ct).shape[2:]
    padding = []
    for axis, (size, made) in enumerate(zip(sizes, places, strict=True)):
        low, _ = op.padding[axis]
        reach = dilated(w.shape[2 + axis], op.rhs_dilation[axis])
        window = dilated(made, op.strides[axis])
        given = dilated(size, op.lhs_dilation[axis])
        padding.append((low, window + reach - 1 - low - given))
    over = replace(
        op,
        strides=op.rhs_dilation,
        padding=tuple(padding),
        rhs_dilation=op.strides,
        feature_group_count=op.batch_group_count,
        batch_group_count=op.feature_group_count,
        out=None,
    )
    return _exchanged(over.bind(_exchanged(x), _exchanged(ct)))


def _exchanged(x: Any) -> Any:
    """With the first two axes exchanged."""
    return permuted(x, (1, 0, *range(2, type_of(x).ndim)))


def _swapped(w: Any, groups: int) -> Any:
    """Weights of the same groups from output features to input features."""
    made, taken, *window = type_of(w).shape
    if groups == 1:
        return _exchanged(w)
    grouped = reshape(w, (groups, made // groups, taken, *window))
    turned = permuted(grouped, (0, 2, 1, *range(3, 3 + len(window))))
    return reshape(turned, (groups * taken, made // groups, *window))


def _turned(w: Any) -> Any:
    """Weights with the window's axes reversed."""
    window = type_of(w).shape[2:]
    axes = [axis for axis, size in enumerate(window, 2) if size > 1]
    return Reverse(tuple(axes)).bind(w) if axes else w
