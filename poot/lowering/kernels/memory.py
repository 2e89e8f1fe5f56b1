"""Loads and stores of whole chunks, in every dtype, on every device.

A chunk's elements come and go as 32-bit words, up to four at a time, so that 8- and
16-bit elements need no storage feature and no bit changes on the way. In between they
are in compute form, one Value a lane:

    bool           a truth value
    i8 i16 i32     I32          u8 u16 u32     U32
    i64 u64        I64, U64
    f16 bf16 f32   F32          f64            F64
    f8…            U32 that holds the bits

Stores write whole words: past the last element of a tensor of small elements they may
reach into the padding of its buffer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from poot.core import dtypes
from poot.core.dtypes import DType
from poot.core.errors import LoweringError
from poot.lowering.kernels.coordinates import (
    Coordinate,
    Coordinates,
    Linear,
    Strided,
)
from poot.lowering.kernels.math import form as form
from poot.lowering.kernels.math import (
    is_half,
    pack16,
    pack_pair,
    unpack16,
    unpack_pair,
)
from poot.lowering.kernels.pack import Pack, lane_of
from poot.lowering.spirv.builder import KernelBuilder, Pointer, Size, Value
from poot.lowering.spirv.types import I32, U32, vector

WORD_BYTES = 4


# --- between bits and compute form ------------------------------------------


def from_bits(k: KernelBuilder, bits: Value, dtype: DType) -> Value:
    """Compute form of an element of up to 32 bits, which stand in a u32."""
    if dtype.is_bool:
        return k.ne(bits, 0)
    if is_half(dtype):
        return unpack16(k, bits, dtype)
    if dtype.is_signed and dtype.itemsize < WORD_BYTES:
        return k.sign_extend(k.bitcast(bits, I32), dtype.bits)
    return k.bitcast(bits, form(dtype))


def to_bits(
    k: KernelBuilder, value: Value, dtype: DType, rounded: bool = False
) -> Value:
    """The bits of an element of up to 32 bits in a u32, those above them 0.

    With `rounded` the value is one of the dtype already, as those of equations are.
    """
    if dtype.is_bool:
        return k.convert(value, U32)
    if dtype is dtypes.bfloat16 and rounded:
        return k.shr(k.bitcast(value, U32), 16)
    if is_half(dtype):
        return pack16(k, value, dtype)
    bits = k.bitcast(value, U32)
    return bits if dtype.itemsize == WORD_BYTES else k.and_(bits, (1 << dtype.bits) - 1)


def from_words(k: KernelBuilder, words: Sequence[Value], dtype: DType) -> list[Value]:
    """The elements of neighbouring words, lowest bits first."""
    if dtype.itemsize > WORD_BYTES:
        pairs = zip(words[::2], words[1::2], strict=True)
        two = vector(U32, 2)
        return [k.bitcast(k.construct(two, *pair), form(dtype)) for pair in pairs]
    if is_half(dtype):
        return [half for word in words for half in unpack_pair(k, word, dtype)]
    mask = (1 << dtype.bits) - 1
    elements = []
    for word in words:
        for shift in range(0, 32, dtype.bits):
            bits = k.shr(word, shift)
            last = shift + dtype.bits == 32
            elements.append(from_bits(k, bits if last else k.and_(bits, mask), dtype))
    return elements


def to_words(
    k: KernelBuilder, elements: Sequence[Value], dtype: DType, rounded: bool = False
) -> list[Value]:
    """Neighbouring elements as words; missing ones of the last word are 0."""
    if dtype.itemsize > WORD_BYTES:
        pairs = [k.bitcast(element, vector(U32, 2)) for element in elements]
        return [k.extract(pair, half) for pair in pairs for half in range(2)]
    if is_half(dtype) and not (dtype is dtypes.bfloat16 and rounded):
        return _packed_halves(k, elements, dtype)
    return packed_bits(k, [to_bits(k, e, dtype, rounded) for e in elements], dtype)


def _packed_halves(
    k: KernelBuilder, elements: Sequence[Value], dtype: DType
) -> list[Value]:
    pairs = zip(elements[::2], elements[1::2], strict=False)
    words = [pack_pair(k, *pair, dtype) for pair in pairs]
    if len(elements) % 2:
        words.append(pack16(k, elements[-1], dtype))
    return words


def packed_bits(k: KernelBuilder, bits: Sequence[Value], dtype: DType) -> list[Value]:
    """The bits of neighbouring elements of up to 32 bits each, as words."""
    count = WORD_BYTES // dtype.itemsize
    words = []
    for first in range(0, len(bits), count):
        word = bits[first]
        for place, more in enumerate(bits[first + 1 : first + count], 1):
            word = k.or_(word, k.shl(more, place * dtype.bits))
        words.append(word)
    return words


# --- buffers ----------------------------------------------------------------


def load_element(
    k: KernelBuilder, pointer: Pointer, dtype: DType, index: Value, bound: Size
) -> Value:
    """Element `index` of `bound`; past the end, the last."""
    if dtype.itemsize > WORD_BYTES:
        return k.bitcast(k.load(pointer, vector(U32, 2), index, bound), form(dtype))
    if dtype.itemsize == WORD_BYTES:
        return from_bits(k, k.load(pointer, U32, index, bound), dtype)
    return from_bits(k, k.load_small(pointer, dtype.bits, index, bound), dtype)


class ChunkMemory:
    """Loads the elements at a coordinate, stores those of a chunk."""

    def __init__(self, coordinates: Coordinates) -> None:
        self.coordinates = coordinates
        self.k = coordinates.k

    def load(
        self,
        pointer: Pointer,
        dtype: DType,
        at: Coordinate,
        bound: Size,
        alignment: int = 16,
    ) -> Pack:
        """Elements `at`, out of a buffer of `bound` elements, in compute form.

        Equal places are loaded once, neighbouring ones together where the address,
        known to be a multiple of `alignment` bytes, allows it.
        """
        maps = self.coordinates
        if isinstance(at, Strided) and at.step == 0:
            return (self._element(pointer, dtype, at.base, bound),)
        if isinstance(at, Strided) and at.step == -1:
            turned = Strided(at.base.plus(Linear((), 1 - maps.lanes)), 1)
            if self._run(turned, dtype, alignment) > 1:
                pack = self.load(pointer, dtype, turned, bound, alignment)
                return tuple(reversed(pack))
        run = self._run(at, dtype, alignment)
        elements: list[Value] = []
        for lane in range(0, maps.lanes, run):
            place = maps.place(at, lane)
            if run == 1:
                elements.append(self._element(pointer, dtype, place, bound))
            else:
                words = self._words(pointer, dtype, place, bound, run)
                elements += from_words(self.k, words, dtype)
        return tuple(elements)

    def words(
        self,
        pointer: Pointer,
        dtype: DType,
        at: Strided,
        bound: Size,
        alignment: int = 16,
    ) -> list[Value]:
        """The bits of the elements of all lanes, which fill whole words."""
        k, maps = self.k, self.coordinates
        run = self._run(at, dtype, alignment)
        if run * dtype.itemsize >= WORD_BYTES:
            words: list[Value] = []
            for lane in range(0, maps.lanes, run):
                words += self._words(pointer, dtype, maps.place(at, lane), bound, run)
            return words
        bits = [
            k.load_small(pointer, dtype.bits, maps.value(place), bound)
            for place in maps.places(at)
        ]
        return packed_bits(k, bits, dtype)

    def _run(self, at: Coordinate, dtype: DType, alignment: int) -> int:
        """How many neighbouring elements can be loaded as aligned words."""
        if not isinstance(at, Strided) or at.step != 1:
            return 1
        maps = self.coordinates
        run = math.gcd(maps.lanes, maps.multiple(at.base))
        while run * dtype.itemsize >= WORD_BYTES and alignment % min(
            run * dtype.itemsize, 16
        ):
            run //= 2
        return run if run * dtype.itemsize >= WORD_BYTES else 1

    def _words(
        self, pointer: Pointer, dtype: DType, place: Linear, bound: Size, count: int
    ) -> list[Value]:
        """The words of `count` neighbouring elements."""
        k = self.k
        total = count * dtype.itemsize // WORD_BYTES
        width = min(total, 4)
        unit_bytes = width * WORD_BYTES
        words: list[Value] = []
        for part in range(total // width):
            unit = self._unit(place, dtype, unit_bytes, part)
            # Buffers are padded to whole units.
            units = self._units(bound, dtype, unit_bytes)
            if width == 1:
                words.append(k.load(pointer, U32, unit, units))
            else:
                loaded = k.load(pointer, vector(U32, width), unit, units)
                words += [k.extract(loaded, i) for i in range(width)]
        return words

    def _unit(self, place: Linear, dtype: DType, unit_bytes: int, part: int) -> Value:
        """The number of the unit of `unit_bytes` bytes at a place, `part` further."""
        maps = self.coordinates
        if unit_bytes >= dtype.itemsize:
            count = unit_bytes // dtype.itemsize
            at = maps.divide(maps.uniform(place), count)
        else:
            at = maps.scale(maps.uniform(place), dtype.itemsize // unit_bytes)
        return maps.value(maps.place(maps.shift(at, part), 0))

    def _units(self, bound: Size, dtype: DType, unit_bytes: int) -> Size:
        if unit_bytes % dtype.itemsize == 0:
            return self.k.ceil_div(bound, unit_bytes // dtype.itemsize)
        return self.k.mul(bound, dtype.itemsize // unit_bytes)

    def _element(
        self, pointer: Pointer, dtype: DType, place: Linear, bound: Size
    ) -> Value:
        index = self.coordinates.value(place)
        return load_element(self.k, pointer, dtype, index, bound)

    def store(
        self,
        pointer: Pointer,
        dtype: DType,
        chunk: Value,
        pack: Pack,
        total: Size,
        alignment: int = 16,
        rounded: bool = False,
    ) -> None:
        """Write chunk number `chunk` of a dense tensor of `total` elements.

        With `rounded` the elements are numbers of the dtype already.
        """
        k, lanes = self.k, self.coordinates.lanes
        elements = [lane_of(pack, lane) for lane in range(lanes)]
        words = to_words(k, elements, dtype, rounded)
        width = min(len(words), 4)
        while width > 1 and alignment % (width * WORD_BYTES):
            width //= 2
        if alignment % WORD_BYTES:
            raise LoweringError(
                f"store of {dtype}: the buffer stands at a multiple of {alignment} B; "
                f"results need {WORD_BYTES}. Align the buffers"
            )
        if width == 1:
            self._store_words(pointer, chunk, words, self._word_total(dtype, total))
        elif self.coordinates.multiple(total) % lanes == 0:
            self._store_units(pointer, chunk, words, width, dtype, total)
        else:
            full = k.le(k.mul(k.add(chunk, 1), lanes), total)
            with k.when(full) as branch:
                self._store_units(pointer, chunk, words, width, dtype, total)
            with branch.otherwise():
                count = self._word_total(dtype, total)
                self._store_words(pointer, chunk, words, count)

    def _word_total(self, dtype: DType, total: Size) -> Size:
        return self._units(total, dtype, WORD_BYTES)

    def _store_units(
        self,
        pointer: Pointer,
        chunk: Value,
        words: Sequence[Value],
        width: int,
        dtype: DType,
        total: Size,
    ) -> None:
        """All words of a chunk that lies wholly in the tensor."""
        k = self.k
        unit = vector(U32, width)
        parts = len(words) // width
        bound = self._units(total, dtype, width * WORD_BYTES)
        for part in range(parts):
            place = k.add(k.mul(chunk, parts), part)
            value = k.construct(unit, *words[part * width : (part + 1) * width])
            k.store(pointer, unit, place, value, bound)

    def _store_words(
        self, pointer: Pointer, chunk: Value, words: Sequence[Value], total: Size
    ) -> None:
        """Those words of a chunk that lie in the tensor."""
        k = self.k
        for number, word in enumerate(words):
            place = k.add(k.mul(chunk, len(words)), number)
            k.store(pointer, U32, place, word, total)
