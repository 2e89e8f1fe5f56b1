"""Single elements and short runs at plain indices, in compute form."""

from __future__ import annotations

from collections.abc import Sequence

from poot.core.dtypes import DType
from poot.lowering.kernels.memory import (
    WORD_BYTES,
    from_words,
    to_bits,
    to_words,
)
from poot.lowering.spirv.builder import KernelBuilder, Pointer, Size, Value
from poot.lowering.spirv.types import U32, vector

_UNIT_WORDS = 4


def clamped_index(k: KernelBuilder, value: Value, dtype: DType, size: Size) -> Value:
    """An integer of `dtype` in compute form as the nearest index below `size`."""
    last = k.value(k.sub(size, 1))
    if dtype.is_signed:
        value = k.max(value, 0)
    if value.ty.scalar.bits == 64:
        value = k.convert(k.min(value, k.convert(last, value.ty)), U32)
    else:
        value = k.min(k.bitcast(value, U32), last)
    return k.assume_below(value, size) if isinstance(size, int) else value


def store_element(
    k: KernelBuilder,
    pointer: Pointer,
    dtype: DType,
    index: Value,
    value: Value,
    bound: Size,
) -> None:
    """Write element `index` of `bound`, if there is one.

    Elements under 32 bits need the device's storage feature: see `needs_words`.
    """
    if dtype.itemsize > WORD_BYTES:
        pair = k.bitcast(value, vector(U32, 2))
        k.store(pointer, vector(U32, 2), index, pair, bound)
    elif dtype.itemsize == WORD_BYTES:
        k.store(pointer, U32, index, to_bits(k, value, dtype), bound)
    else:
        bits = to_bits(k, value, dtype)
        k.store_small(pointer, dtype.bits, index, bits, bound)


def load_run(
    k: KernelBuilder,
    pointer: Pointer,
    dtype: DType,
    index: Value,
    count: int,
    bound: Size,
) -> list[Value]:
    """`count` elements from `index` on, which is a multiple of `count`."""
    return from_units(k, load_units(k, pointer, dtype, index, count, bound), dtype)


def load_units(
    k: KernelBuilder,
    pointer: Pointer,
    dtype: DType,
    index: Value,
    count: int,
    bound: Size,
) -> list[Value]:
    """The bits of a run, as they are loaded: nothing waits for them yet."""
    words = count * dtype.itemsize // WORD_BYTES
    width = min(words, _UNIT_WORDS)
    parts = words // width
    units = k.mul(k.ceil_div(bound, count), parts)
    first = k.mul(k.index_div(index, count), parts)
    unit = U32 if width == 1 else vector(U32, width)
    return [k.load(pointer, unit, k.add(first, part), units) for part in range(parts)]


def from_units(k: KernelBuilder, units: Sequence[Value], dtype: DType) -> list[Value]:
    """The elements of a run that was loaded as units: words, or vectors of some."""
    words: list[Value] = []
    for unit in units:
        if unit.ty is U32:
            words.append(unit)
        else:
            words += [k.extract(unit, i) for i in range(unit.ty.count)]
    return from_words(k, words, dtype)


def store_run(
    k: KernelBuilder,
    pointer: Pointer,
    dtype: DType,
    index: Value,
    values: Sequence[Value],
    bound: Size,
) -> None:
    """Write whole runs from `index` on, a multiple of their length."""
    words = to_words(k, values, dtype)
    width = min(len(words), _UNIT_WORDS)
    parts = len(words) // width
    units = k.mul(k.ceil_div(bound, len(values)), parts)
    first = k.mul(k.index_div(index, len(values)), parts)
    for part in range(parts):
        unit = words[part * width : (part + 1) * width]
        at = k.add(first, part)
        if width == 1:
            k.store(pointer, U32, at, unit[0], units)
        else:
            k.store(
                pointer,
                vector(U32, width),
                at,
                k.construct(vector(U32, width), *unit),
                units,
            )
