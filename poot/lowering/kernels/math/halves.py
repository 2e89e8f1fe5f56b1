"""The 16-bit floats: their bits in 32-bit words, and their numbers as F32.

The device's own conversions are used where a probe has found them right, but for the
sign of NaN, which they may lose; else integer arithmetic does it.
"""

from __future__ import annotations

from dataclasses import dataclass

from poot.core import dtypes
from poot.core.dtypes import DType
from poot.core.errors import LoweringError
from poot.lowering.spirv.builder import KernelBuilder
from poot.lowering.spirv.types import F32, U32, vector
from poot.lowering.spirv.value import Value

SIGN32 = 0x80000000
INFINITY32 = 0x7F800000
QUIET32 = 0x00400000
_UPPER = 0xFFFF0000


@dataclass(frozen=True, slots=True)
class SmallFloat:
    """A format of 16 bits."""

    mantissa_bits: int
    bias: int

    @property
    def infinity(self) -> int:
        return (2 * self.bias + 1) << self.mantissa_bits

    @property
    def dropped(self) -> int:
        """Mantissa bits of f32 that it has not."""
        return 23 - self.mantissa_bits

    @property
    def smallest_normal32(self) -> int:
        """The smallest normal number, as bits of f32."""
        return (128 - self.bias) << 23

    @property
    def rounder(self) -> float:
        """An f32 whose last bit counts as the smallest subnormal number."""
        return 2.0 ** (24 - self.bias - self.mantissa_bits)


_HALF = SmallFloat(10, 15)
_BFLOAT = SmallFloat(7, 127)
_SMALL = {dtypes.float16: _HALF, dtypes.bfloat16: _BFLOAT}


def is_half(dtype: DType) -> bool:
    """Whether it is one of the dtypes that the functions below take."""
    return dtype in _SMALL


def _small(dtype: DType) -> SmallFloat:
    try:
        return _SMALL[dtype]
    except KeyError:
        raise LoweringError(f"{dtype} has no 16-bit form; takes f16 or bf16") from None


# --- by the device's conversions --------------------------------------------


def _packs_on_device(k: KernelBuilder, dtype: DType) -> bool:
    is_bfloat = dtype is dtypes.bfloat16
    return k.info.packs_bfloats if is_bfloat else k.info.packs_halves


def unpack_on_device(k: KernelBuilder, word: Value, half: int) -> Value:
    """The F32 of the f16 in the lower (0) or the upper (1) half of a u32."""
    number = k.extract(k.unpack_half(word), half)
    return _with_sign(k, number, word if half else word << 16)


def pack_on_device(k: KernelBuilder, low: Value, high: Value, dtype: DType) -> Value:
    """Two F32 as the two f16 or bf16 in a u32, rounded as the device likes."""
    signs = ((k.bitcast(low, U32) >> 16) & 0x8000) | (k.bitcast(high, U32) & SIGN32)
    return _packed(k, low, high, dtype) | signs


def _packed(k: KernelBuilder, low: Value, high: Value, dtype: DType) -> Value:
    pair = k.construct(vector(F32, 2), low, high)
    return k.pack_bfloat(pair) if dtype is dtypes.bfloat16 else k.pack_half(pair)


def _with_sign(k: KernelBuilder, x: Value, signed: Value) -> Value:
    """A number as it is; NaN with the sign of the word `signed`, if x has lost it."""
    return k.bitcast(k.bitcast(x, U32) | (signed & SIGN32), F32)


# --- from bits --------------------------------------------------------------


def unpack16(k: KernelBuilder, bits: Value, dtype: DType) -> Value:
    """The F32 that f16 or bf16 bits in a u32 stand for; bits above 16 must be 0."""
    small = _small(dtype)
    if small is _BFLOAT:
        return k.bitcast(bits << 16, F32)
    if k.info.exact_half_unpacking:
        return unpack_on_device(k, bits, 0)
    return _unpack_by_integers(k, bits, small)


def unpack_pair(k: KernelBuilder, word: Value, dtype: DType) -> tuple[Value, Value]:
    """The F32 of the f16 or bf16 in each half of a u32, the lower half first."""
    small = _small(dtype)
    if small is _BFLOAT:
        return k.bitcast(word << 16, F32), k.bitcast(word & _UPPER, F32)
    if k.info.exact_half_unpacking:
        return unpack_on_device(k, word, 0), unpack_on_device(k, word, 1)
    low, high = word & 0xFFFF, word >> 16
    return _unpack_by_integers(k, low, small), _unpack_by_integers(k, high, small)


def _unpack_by_integers(k: KernelBuilder, bits: Value, small: SmallFloat) -> Value:
    magnitude = bits & 0x7FFF
    shifted = magnitude << small.dropped
    rebased = shifted + ((127 - small.bias) << 23)
    # Infinity and NaN have the highest exponent in both formats.
    special = shifted + ((255 - 2 * small.bias - 1) << 23)
    number = k.select(magnitude < small.infinity, rebased, special)
    tiny = k.convert(magnitude, F32) * 2.0 ** (1 - small.bias - small.mantissa_bits)
    number = k.select(
        magnitude < 1 << small.mantissa_bits, k.bitcast(tiny, U32), number
    )
    return k.bitcast(number | ((bits & 0x8000) << 16), F32)


# --- to bits, rounded to nearest even ---------------------------------------


def pack16(k: KernelBuilder, x: Value, dtype: DType) -> Value:
    """The bits of an F32 as f16 or bf16, rounded to nearest even, in a u32."""
    small = _small(dtype)
    if _packs_on_device(k, dtype):
        return pack_on_device(k, x, k.f32(0.0), dtype)
    bits = k.bitcast(x, U32)
    if small is _BFLOAT:
        return _round_bfloat_by_integers(k, bits) >> 16
    return _pack_by_integers(k, bits, small)


def pack_pair(k: KernelBuilder, low: Value, high: Value, dtype: DType) -> Value:
    """Two F32 as the two f16 or bf16 in a u32, each rounded to nearest even."""
    small = _small(dtype)
    if _packs_on_device(k, dtype):
        return pack_on_device(k, low, high, dtype)
    bits = [k.bitcast(x, U32) for x in (low, high)]
    if small is _BFLOAT:
        rounded = [_round_bfloat_by_integers(k, each) for each in bits]
        return (rounded[0] >> 16) | (rounded[1] & _UPPER)
    packed = [_pack_by_integers(k, each, small) for each in bits]
    return packed[0] | (packed[1] << 16)


def round16(k: KernelBuilder, x: Value, dtype: DType) -> Value:
    """F32 to the nearest number of f16 or bf16, as F32."""
    small = _small(dtype)
    bits = k.bitcast(x, U32)
    if small is _BFLOAT:
        if k.info.packs_bfloats:
            # With 0 in the lower half the word is the F32.
            word = _packed(k, k.f32(0.0), x, dtype)
            return _with_sign(k, k.bitcast(word, F32), bits)
        return k.bitcast(_round_bfloat_by_integers(k, bits) & _UPPER, F32)
    if k.info.packs_halves:
        # Not unpacked by the device: some compilers take the two for nothing at all.
        packed = pack_on_device(k, x, k.f32(0.0), dtype)
        return _unpack_by_integers(k, packed & 0xFFFF, small)
    return _round_by_integers(k, bits, small)


def _rounded_mantissa(bits: Value, dropped: int) -> Value:
    """Round f32 bits to nearest even; the dropped bits are left to be cleared."""
    return bits + (((bits >> dropped) & 1) + ((1 << dropped - 1) - 1))


def _round_bfloat_by_integers(k: KernelBuilder, bits: Value) -> Value:
    """The bits of the nearest bf16 in the upper half, anything in the lower.

    Rounding never carries into the sign but for NaN, which becomes a quiet one.
    """
    rounded = _rounded_mantissa(bits, 16)
    quiet = (bits & SIGN32) | (INFINITY32 | QUIET32)
    return k.select((bits & (SIGN32 - 1)) > INFINITY32, quiet, rounded)


def _pack_by_integers(k: KernelBuilder, bits: Value, small: SmallFloat) -> Value:
    sign = (bits >> 16) & 0x8000
    magnitude = bits & (SIGN32 - 1)
    rounded = _rounded_mantissa(magnitude, small.dropped) >> small.dropped
    rebased = rounded - ((127 - small.bias) << small.mantissa_bits)
    rounded = k.min(rebased, k.u32(small.infinity))
    tiny = k.bitcast(k.bitcast(magnitude, F32) + small.rounder, U32)
    tiny = tiny - k.bitcast(k.f32(small.rounder), U32)
    is_tiny = magnitude < small.smallest_normal32
    rounded = k.select(is_tiny, tiny, rounded)
    quiet = k.u32(small.infinity | 1 << small.mantissa_bits - 1)
    return sign | k.select(magnitude > INFINITY32, quiet, rounded)


def _round_by_integers(k: KernelBuilder, bits: Value, small: SmallFloat) -> Value:
    magnitude = bits & (SIGN32 - 1)
    kept = (1 << 32) - (1 << small.dropped)
    rounded = _rounded_mantissa(magnitude, small.dropped) & kept
    largest = (small.bias + 127) << 23 | ((1 << small.mantissa_bits) - 1) << 13
    rounded = k.select(rounded > largest, k.u32(INFINITY32), rounded)
    tiny = (k.bitcast(magnitude, F32) + small.rounder) - small.rounder
    is_tiny = magnitude < small.smallest_normal32
    rounded = k.select(is_tiny, k.bitcast(tiny, U32), rounded)
    quiet = k.u32(INFINITY32 | QUIET32)
    rounded = k.select(magnitude > INFINITY32, quiet, rounded)
    return k.bitcast(rounded | (bits & SIGN32), F32)
