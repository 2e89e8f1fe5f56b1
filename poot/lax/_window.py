"""Reductions under moving windows, under lax's names."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from poot.core.errors import ArgumentError, ShapeError
from poot.core.ops.window import (
    ReduceWindow,
    WindowOp,
    window_identity,
    window_positions,
)
from poot.interpreters.methods import Value
from poot.interpreters.promotion import as_value, cast_to, is_number, scalar, type_of
from poot.lax import _elementwise
from poot.lax._operands import same_dtype

_MONOIDS = {
    _elementwise.add: WindowOp.SUM,
    _elementwise.mul: WindowOp.PROD,
    _elementwise.max: WindowOp.MAX,
    _elementwise.min: WindowOp.MIN,
}
Pairs = Sequence[tuple[int, int]]


def reduce_window(
    operand: Any,
    init_value: Any,
    computation: Any,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None = None,
    padding: str | Pairs = "VALID",
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Value:
    """Combine `init_value` and what lies under a window, at each of its places.

    `computation` is lax.add, mul, max or min. All other parameters are one an axis;
    padding is a (low, high) pair an axis, "VALID", "SAME" or "SAME_LOWER". What padding
    and base dilation put around and between the elements counts for nothing.
    """
    x = as_value(operand, "lax.reduce_window")
    op = _monoid(computation)
    if type_of(init_value).shape:
        raise ShapeError(
            f"lax.reduce_window: starts from a scalar, given {type_of(init_value)}"
        )
    dtype = same_dtype("reduce_window", x, init_value).dtype
    x = cast_to(x, dtype)
    window = _numbers(window_dimensions)
    ones = (1,) * len(window)
    strides = ones if window_strides is None else _numbers(window_strides)
    base = ones if base_dilation is None else _numbers(base_dilation)
    apart = ones if window_dilation is None else _numbers(window_dilation)
    pads = _pads(x.shape, window, strides, padding, apart)
    found: Value = ReduceWindow(op, window, strides, pads, base, apart).bind(x)
    if _is_identity(op, init_value, dtype):
        return found
    result: Value = computation(found, cast_to(as_value(init_value), dtype))
    return result


def _monoid(computation: Any) -> WindowOp:
    op = _MONOIDS.get(computation)
    if op is None:
        names = ", ".join(f"lax.{function.__name__}" for function in _MONOIDS)
        raise ArgumentError(
            f"lax.reduce_window: {computation!r} is not known to be associative and "
            f"commutative; takes {names}"
        )
    return op


def _numbers(given: Sequence[int]) -> tuple[int, ...]:
    return tuple(operator.index(number) for number in given)


def _is_identity(op: WindowOp, init_value: Any, dtype: Any) -> bool:
    """Whether a start that is known changes nothing; a sum of -0 starts at +0."""
    if not is_number(init_value):
        return False
    identity = window_identity(op, dtype)
    return scalar(init_value, dtype).value == identity.value


def _pads(
    shape: Sequence[int],
    window: Sequence[int],
    strides: Sequence[int],
    padding: str | Pairs,
    dilation: Sequence[int],
) -> tuple[tuple[int, int], ...]:
    if not isinstance(padding, str):
        return tuple(
            (operator.index(low), operator.index(high)) for low, high in padding
        )
    lengths = {len(shape), len(window), len(strides), len(dilation)}
    if len(lengths) > 1:
        raise ShapeError(
            f"lax.reduce_window: windows {tuple(window)}, strides {tuple(strides)} and "
            f"dilations {tuple(dilation)} for {len(shape)} axes; takes one of each an "
            "axis"
        )
    reach = [(n - 1) * d + 1 for n, d in zip(window, dilation, strict=True)]
    return tuple(padtype_to_pads(shape, reach, strides, padding))


def padtype_to_pads(
    in_shape: Sequence[int],
    window_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: str,
) -> list[tuple[int, int]]:
    """The (low, high) pairs that "VALID", "SAME" or "SAME_LOWER" stands for.

    "SAME" gives ceil(size / stride) places; an odd one out is behind the axis, with
    "SAME_LOWER" before it.
    """
    kind = padding.upper()
    if kind == "VALID":
        return [(0, 0)] * len(in_shape)
    if kind not in ("SAME", "SAME_LOWER"):
        raise ArgumentError(
            f"padding {padding!r} is not known; takes VALID, SAME, SAME_LOWER, or a "
            "(low, high) pair an axis"
        )
    pairs = []
    for size, window, stride in zip(
        in_shape, window_shape, window_strides, strict=True
    ):
        total = max((-(-size // stride) - 1) * stride + window - size, 0)
        less, more = total // 2, total - total // 2
        pairs.append((less, more) if kind == "SAME" else (more, less))
    return pairs


def reduce_window_shape_tuple(
    operand_shape: Sequence[int],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Pairs,
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> tuple[int, ...]:
    """The shape that `reduce_window` gives."""
    ones = (1,) * len(operand_shape)
    axes = zip(
        operand_shape,
        window_dimensions,
        window_strides,
        padding,
        base_dilation or ones,
        window_dilation or ones,
        strict=True,
    )
    return tuple(window_positions(*axis) for axis in axes)
