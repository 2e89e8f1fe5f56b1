"""Blocks of tensors: neighbouring elements that are written, and words of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from poot.core import dtypes
from poot.core.dtypes import DType
from poot.lowering.device_info import DeviceInfo
from poot.lowering.plan.layout import dense_strides

_WORD_BYTES = 4
_UNIT_BYTES = 16
_MOST_LANES = 8


@dataclass(frozen=True, slots=True)
class BlockAxis:
    """Axes of a block that are walked as one.

    The first of them is axis `number` of the target, along which the block starts at 0
    to `room`. Steps are those in the target, in elements.
    """

    number: int
    size: int
    step: int
    room: int
    start_step: int


def block_axes(whole: Sequence[int], block: Sequence[int]) -> list[BlockAxis]:
    """An axis that the block spans is walked with that before; the last step is 1."""
    axes: list[BlockAxis] = []
    places = zip(block, whole, dense_strides(whole), strict=True)
    for number, (size, limit, step) in enumerate(places):
        if axes and size == limit:
            axes[-1] = replace(axes[-1], size=axes[-1].size * size, step=step)
        else:
            axes.append(BlockAxis(number, size, step, limit - size, step))
    return axes


def block_lanes(axes: Sequence[BlockAxis], dtype: DType) -> int:
    """How many elements of a block always stand together, aligned; 0: parts of words.

    A power of two, and no more than are loaded at once.
    """
    steps = [axis.step for axis in axes[:-1]]
    steps += [axis.start_step for axis in axes if axis.room]
    common = math.gcd(axes[-1].size, *steps)
    lanes = min(common & -common, _MOST_LANES, _UNIT_BYTES // min(dtype.itemsize, 4))
    return lanes if lanes * dtype.itemsize % _WORD_BYTES == 0 else 0


def needs_words(dtype: DType, info: DeviceInfo) -> bool:
    """Whether single elements of the dtype cannot be stored on their own."""
    if dtype is dtypes.bool_ or dtype.itemsize == 1:
        return not (info.storage8 and info.int8)
    return dtype.itemsize == 2 and not (info.storage16 and info.int16)
