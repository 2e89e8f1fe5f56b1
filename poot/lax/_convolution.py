"""Convolutions, under lax's names."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from poot.core.dtypes import DType
from poot.core.errors import ArgumentError, ShapeError
from poot.core.op import Op
from poot.core.ops.conv import Conv, dilated
from poot.interpreters.contraction import as_precision, contracted
from poot.interpreters.methods import Value
from poot.interpreters.promotion import as_value
from poot.interpreters.shaping import reshape, transpose
from poot.lax._elementwise import convert_element_type, eq
from poot.lax._operands import same_dtype
from poot.lax._shape import broadcasted_iota, rev
from poot.lax._window import padtype_to_pads

Padding = str | Sequence[tuple[int, int]]


class ConvDimensionNumbers(NamedTuple):
    """Which axes are which, each as (batch or output, feature, *spatial).

    `lhs_spec` is (batch, feature, …), `rhs_spec` (output feature, input feature, …) and
    `out_spec` (batch, feature, …).
    """

    lhs_spec: Sequence[int]
    rhs_spec: Sequence[int]
    out_spec: Sequence[int]


def conv_dimension_numbers(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int], dimension_numbers: Any
) -> ConvDimensionNumbers:
    """Axes by number from three strings such as ("NHWC", "HWIO", "NHWC").

    N is the batch, C the features, O and I those of the weights; other letters are
    spatial axes, in the order that the weights name them. None means that they stand in
    canonical order: ("NCHW", "OIHW", "NCHW").
    """
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return dimension_numbers
    ndim = len(lhs_shape)
    if ndim < 2 or ndim != len(rhs_shape):
        raise ShapeError(
            f"conv: input {tuple(lhs_shape)} and weights {tuple(rhs_shape)}; both take "
            "as many axes, 2 at least"
        )
    if dimension_numbers is None:
        return ConvDimensionNumbers(*(tuple(range(ndim)) for _ in range(3)))
    if len(dimension_numbers) != 3 or not all(
        isinstance(text, str) for text in dimension_numbers
    ):
        raise ArgumentError(
            f"conv: dimension_numbers are {dimension_numbers!r}, take None, three "
            "strings or ConvDimensionNumbers"
        )
    lhs, rhs, out = dimension_numbers
    spatial = [letter for letter in rhs if letter not in "OI"]
    specs = []
    for text, special in ((lhs, "NC"), (rhs, "OI"), (out, "NC")):
        wanted = [*special, *spatial]
        if len(text) != ndim or sorted(text) != sorted(wanted):
            raise ArgumentError(
                f"conv: dimension_numbers {dimension_numbers} of {ndim} axes: {text!r} "
                f"takes each of {''.join(wanted)!r} once"
            )
        specs.append(tuple(text.index(letter) for letter in wanted))
    return ConvDimensionNumbers(*specs)


def conv_general_dilated(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: Padding,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Value:
    """Slide a window over the spatial axes of `lhs`; sum its products with `rhs`.

    Canonically lhs is [N, C, *spatial], rhs [O, C / feature groups, *window] and the
    result [N / batch groups, O, *positions]; `dimension_numbers` name other orders.
    `padding` is "VALID", "SAME", "SAME_LOWER" or a (low, high) pair a spatial axis, of
    which negative ones crop. Dilations put holes between the elements of lhs (with
    zeros) and of the window. Floats add up in f32 at least, whatever the `precision`.
    """
    x, w = same_dtype("conv_general_dilated", as_value(lhs), as_value(rhs)).operands
    numbers = conv_dimension_numbers(x.shape, w.shape, dimension_numbers)
    x, w = transpose(x, numbers.lhs_spec), transpose(w, numbers.rhs_spec)
    strides = _counts(window_strides)
    ones = (1,) * len(strides)
    holes = ones if lhs_dilation is None else _counts(lhs_dilation)
    apart = ones if rhs_dilation is None else _counts(rhs_dilation)
    if isinstance(padding, str) and holes != ones:
        raise ArgumentError(
            f"lax.conv_general_dilated: padding {padding!r} with lhs_dilation {holes}; "
            "give (low, high) pairs, or use lax.conv_transpose"
        )
    pads = _pads(x.shape[2:], w.shape[2:], strides, padding, apart)

    def op(out: DType | None) -> Op:
        groups = operator.index(feature_group_count), operator.index(batch_group_count)
        return Conv(strides, pads, holes, apart, *groups, out)

    as_precision(precision)
    promoted = same_dtype("conv_general_dilated", x, w)
    sums = contracted("conv", op, x, w, promoted, preferred_element_type)
    return transpose(sums, _inverse(numbers.out_spec))


def _pairs(padding: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(operator.index(low), operator.index(high)) for low, high in padding]


def _counts(given: Sequence[int]) -> tuple[int, ...]:
    return tuple(operator.index(number) for number in given)


def _inverse(perm: Sequence[int]) -> list[int]:
    return sorted(range(len(perm)), key=lambda axis: perm[axis])


def _pads(
    spatial: Sequence[int],
    window: Sequence[int],
    strides: Sequence[int],
    padding: Padding,
    apart: Sequence[int],
) -> tuple[tuple[int, int], ...]:
    if not isinstance(padding, str):
        return tuple(_pairs(padding))
    if not len(spatial) == len(strides) == len(apart):
        raise ShapeError(
            f"conv: {len(strides)} strides and {len(apart)} dilations for "
            f"{len(spatial)} spatial axes; takes one of each an axis"
        )
    whole = [dilated(size, by) for size, by in zip(window, apart, strict=True)]
    return tuple(padtype_to_pads(spatial, whole, strides, padding))


def conv(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: str,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Value:
    """The convolution of [N, C, *spatial] with [O, C, *window], padded by name."""
    return conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        padding,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def conv_with_general_padding(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: Padding,
    lhs_dilation: Sequence[int] | None,
    rhs_dilation: Sequence[int] | None,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Value:
    """The same with padding by pairs, and dilations."""
    return conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def conv_transpose(
    lhs: Any,
    rhs: Any,
    strides: Sequence[int],
    padding: Padding,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    transpose_kernel: bool = False,
    precision: Any = None,
    preferred_element_type: Any = None,
    use_consistent_padding: bool = False,
) -> Value:
    """The transposed ("fractionally strided") convolution: `strides` apart are inputs.

    The default axes are those of ("NHWC", "HWIO", "NHWC"). "SAME" gives
    size * stride elements an axis, "VALID" all that the window touches. Pairs are the
    padding around the spread input or, with `use_consistent_padding`, of the forward
    convolution. `transpose_kernel` turns the window around and exchanges its features,
    for the gradient of a convolution.
    """
    x, w = as_value(lhs), as_value(rhs)
    if dimension_numbers is None:
        dimension_numbers = _channels_last(x.ndim)
    numbers = conv_dimension_numbers(x.shape, w.shape, dimension_numbers)
    steps, window = _counts(strides), [w.shape[axis] for axis in numbers.rhs_spec[2:]]
    apart = (1,) * len(steps) if rhs_dilation is None else _counts(rhs_dilation)
    pads = _transposed_pads(window, steps, apart, padding, use_consistent_padding)
    if transpose_kernel:
        w = rev(w, tuple(numbers.rhs_spec[2:]))
        perm = list(range(w.ndim))
        made, taken = numbers.rhs_spec[:2]
        perm[made], perm[taken] = taken, made
        w = transpose(w, perm)
    return conv_general_dilated(
        x,
        w,
        (1,) * len(steps),
        pads,
        steps,
        apart,
        numbers,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def _channels_last(ndim: int) -> tuple[str, str, str]:
    spatial = {2: "", 3: "H", 4: "HW", 5: "HWD"}.get(ndim)
    if spatial is None:
        raise ShapeError(
            f"lax.conv_transpose: input of {ndim} axes; give dimension_numbers for "
            "other than 0 to 3 spatial axes"
        )
    return f"N{spatial}C", f"{spatial}IO", f"N{spatial}C"


def _transposed_pads(
    window: Sequence[int],
    strides: Sequence[int],
    apart: Sequence[int],
    padding: Padding,
    consistent: bool,
) -> list[tuple[int, int]]:
    reach = [dilated(size, by) for size, by in zip(window, apart, strict=True)]
    if not isinstance(padding, str):
        pairs = _pairs(padding)
        if not consistent:
            return pairs
        return [
            (size - 1 - low, size - 1 - high)
            for size, (low, high) in zip(reach, pairs, strict=True)
        ]
    kind = padding.upper()
    if kind not in ("SAME", "VALID"):
        raise ArgumentError(
            f"lax.conv_transpose: padding {padding!r}, takes SAME, VALID or pairs"
        )
    pads = []
    for size, step in zip(reach, strides, strict=True):
        total = size + step - 2
        if kind == "VALID":
            total += max(size - step, 0)
            low = size - 1
        else:
            low = size - 1 if step > size - 1 else -(-total // 2)
        pads.append((low, total - low))
    return pads


def conv_general_dilated_patches(
    lhs: Any,
    filter_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: Padding,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Value:
    """What lies under the window at each position, as features: channel by channel."""
    x, window = as_value(lhs), _counts(filter_shape)
    numbers = conv_dimension_numbers(x.shape, (1, 1, *window), dimension_numbers)
    channels, size = x.shape[numbers.lhs_spec[1]], math.prod(window)
    # For each channel and each place of the window a filter of a single one.
    places = broadcasted_iota(np.int32, (channels, size, size), 1)
    others = broadcasted_iota(np.int32, (channels, size, size), 2)
    single = convert_element_type(eq(places, others), x.type.dtype)
    filters = transpose(
        reshape(single, (channels * size, 1, *window)), _inverse(numbers.rhs_spec)
    )
    return conv_general_dilated(
        x,
        filters,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        numbers,
        feature_group_count=channels,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )
