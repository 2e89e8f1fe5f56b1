"""Batching of Conv: the batch joins the images, the features or the groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from poot.core.ops.conv import Conv
from poot.core.types import TensorType
from poot.interpreters.batch.table import (
    Axis,
    Batched,
    batch,
    example_type,
    lifted,
    merged,
    split,
)
from poot.interpreters.primitives import move_axis, zeros


@batch.define(Conv)
def _conv(
    op: Conv, size: int, operands: Sequence[Any], axes: Sequence[Axis]
) -> Batched:
    (x, w), (axis, weights_axis) = operands, axes
    made = op.infer(example_type(x, axis), example_type(w, weights_axis))
    images, features = made.shape[:2]
    if weights_axis is None:
        assert axis is not None
        result = op.bind(_joined(x, axis, 0, op.batch_group_count), w)
        return (split(result, 0, (size, images)),), (0,)
    if axis is not None:
        if size == 0:
            # There is no convolution of no groups.
            return (zeros(TensorType((0, *made.shape), made.dtype)),), (0,)
        result = _grouped(op, size, x, axis, _joined(w, weights_axis, 0))
        return (split(result, 1, (size, features)),), (1,)
    groups = op.feature_group_count * op.batch_group_count
    result = op.bind(x, _joined(w, weights_axis, 0, groups))
    if groups == 1:
        return (split(result, 1, (size, features)),), (1,)
    result = split(result, 1, (groups, size, features // groups))
    return (merged(move_axis(result, 2, 1), 2),), (1,)


def _grouped(op: Conv, size: int, x: Any, axis: int, w: Any) -> Any:
    """Each example as a group: of images where they need not be moved, or of features.

    The features of the result, and the weights that make them, are the examples' one
    after the other. Only one of the two numbers of groups may be above 1.
    """
    if op.feature_group_count == 1 and (axis == 0 or op.batch_group_count > 1):
        by_images = replace(op, batch_group_count=size * op.batch_group_count)
        return by_images.bind(_joined(x, axis, 0), w)
    by_features = replace(op, feature_group_count=size * op.feature_group_count)
    return by_features.bind(_joined(x, axis, 1), w)


def _joined(x: Any, axis: int, target: int, groups: int = 1) -> Any:
    """The batch as a part of an example's axis: within each of its groups the first."""
    if groups == 1:
        return merged(move_axis(x, axis, target), target)
    place = lifted(target, axis)
    count = example_type(x, axis).shape[target] // groups
    x = split(x, place, (groups, count))
    # The batch goes between the two; before them it already stands one axis ahead.
    moved = move_axis(x, axis if axis < place else axis + 1, target + 1)
    return merged(moved, target, 3)
