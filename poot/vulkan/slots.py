"""Packing the scalars of a call into the bytes that kernels read."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from poot.core.errors import DTypeError
from poot.lowering.program import SlotSpec

_FORMATS = {
    "bool": "?",
    "i8": "b",
    "i16": "h",
    "i32": "i",
    "i64": "q",
    "u8": "B",
    "u16": "H",
    "u32": "I",
    "u64": "Q",
    "f16": "e",
    "f32": "f",
    "f64": "d",
}

Packer = Callable[[Any, Sequence[Any]], None]


def slot_bytes(slots: Sequence[SlotSpec]) -> int:
    return max((slot.offset + slot.type.size_bytes for slot in slots), default=0)


def make_packer(slots: Sequence[SlotSpec]) -> Packer:
    """A function that writes one value a slot, in the order of `slots`, to a buffer."""
    order = sorted(range(len(slots)), key=lambda number: slots[number].offset)
    layout = _struct_format([slots[number] for number in order])

    def pack_by_numpy(target: Any, values: Sequence[Any]) -> None:
        for slot, value in zip(slots, values, strict=True):
            raw = _raw(slot, value)
            target[slot.offset : slot.offset + len(raw)] = raw

    if layout is None:
        return pack_by_numpy
    pack_into = struct.Struct(layout).pack_into
    sorted_already = order == list(range(len(slots)))

    def pack(target: Any, values: Sequence[Any]) -> None:
        try:
            if sorted_already:
                pack_into(target, 0, *values)
            else:
                pack_into(target, 0, *(values[number] for number in order))
        except (struct.error, OverflowError, TypeError):
            # What does not fit its format: 1e300 is an infinity as f32, for one.
            pack_by_numpy(target, values)

    return pack


def _struct_format(slots: Sequence[SlotSpec]) -> str | None:
    """The struct format of slots in order of offset; None where there is none."""
    position, parts = 0, ["<"]
    for slot in slots:
        letter = _FORMATS.get(slot.type.dtype.name)
        if letter is None or slot.type.size != 1 or slot.offset < position:
            return None
        parts += ["x" * (slot.offset - position), letter]
        position = slot.offset + slot.type.size_bytes
    return "".join(parts)


def _raw(slot: SlotSpec, value: Any) -> bytes:
    dtype = slot.type.dtype
    try:
        with np.errstate(over="ignore"):
            return np.asarray(value).astype(dtype.numpy).tobytes()
    except (TypeError, ValueError, OverflowError) as error:
        raise DTypeError(
            f"input {slot.input_index} takes a scalar of dtype {dtype.name}; "
            f"given {value!r}"
        ) from error
