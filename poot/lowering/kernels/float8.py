"""Casts from and to the 8-bit floats, which are only stored and moved."""

from __future__ import annotations

from dataclasses import dataclass

from poot.core import dtypes
from poot.core.dtypes import DType, Kind
from poot.lowering.kernels.math import cast, to_odd_f32, unpack16
from poot.lowering.spirv.builder import KernelBuilder, Value
from poot.lowering.spirv.types import F32, U32

_MAGNITUDE32 = 0x7FFFFFFF
_INFINITY32 = 0x7F800000
_NAN32 = 0x7FC00000
_BIAS32 = 127
_MANTISSA32 = 23


@dataclass(frozen=True, slots=True)
class _Format:
    """How an 8-bit float is written."""

    mantissa_bits: int
    bias: int
    largest: int  # the code of the largest finite number
    overflow: int  # what is larger
    nan: int


_FORMATS = {
    dtypes.float8_e4m3fn: _Format(3, 7, 0x7E, 0x7F, 0x7F),
    dtypes.float8_e5m2: _Format(2, 15, 0x7B, 0x7C, 0x7E),
}


def cast_float8(k: KernelBuilder, x: Value, source: DType, target: DType) -> Value:
    """A cast of which one side, at least, is an 8-bit float, by way of f32."""
    if source is target:
        return x
    if source.kind is Kind.STORAGE:
        number = _decode(k, x, source)
    else:
        number = to_odd_f32(k, x, source)
    if target.kind is not Kind.STORAGE:
        return cast(k, number, dtypes.float32, target)
    if target is dtypes.float8_e8m0:
        return _encode_exponent(k, number)
    return _encode(k, number, _FORMATS[target])


def _decode(k: KernelBuilder, code: Value, dtype: DType) -> Value:
    if dtype is dtypes.float8_e5m2:
        # The upper half of an f16.
        return unpack16(k, k.shl(code, 8), dtypes.float16)
    if dtype is dtypes.float8_e8m0:
        bits = k.shl(code, _MANTISSA32)
        bits = k.select(k.eq(code, 0), k.u32(1 << _MANTISSA32 - 1), bits)
        return k.bitcast(k.select(k.eq(code, 0xFF), k.u32(_NAN32), bits), F32)
    form = _FORMATS[dtype]
    magnitude = k.and_(code, 0x7F)
    shifted = k.shl(magnitude, _MANTISSA32 - form.mantissa_bits)
    normal = k.add(shifted, (_BIAS32 - form.bias) << _MANTISSA32)
    step = 2.0 ** (1 - form.bias - form.mantissa_bits)
    tiny = k.bitcast(k.mul(k.convert(magnitude, F32), step), U32)
    bits = k.select(k.lt(magnitude, 1 << form.mantissa_bits), tiny, normal)
    bits = k.select(k.gt(magnitude, form.largest), k.u32(_NAN32), bits)
    return k.bitcast(k.or_(bits, k.shl(k.and_(code, 0x80), 24)), F32)


def _encode(k: KernelBuilder, x: Value, form: _Format) -> Value:
    """Rounded to nearest even; what is too large overflows."""
    bits = k.bitcast(x, U32)
    magnitude = k.and_(bits, _MAGNITUDE32)
    dropped = _MANTISSA32 - form.mantissa_bits
    odd = k.and_(k.shr(magnitude, dropped), 1)
    rounded = k.add(magnitude, k.add(odd, (1 << dropped - 1) - 1))
    rebias = (_BIAS32 - form.bias) << form.mantissa_bits
    normal = k.sub(k.shr(rounded, dropped), rebias)
    steps = 2.0 ** (form.bias - 1 + form.mantissa_bits)
    smallest_normal = (_BIAS32 + 1 - form.bias) << _MANTISSA32
    is_tiny = k.lt(magnitude, smallest_normal)
    tiny = k.select(is_tiny, k.bitcast(magnitude, F32), k.f32(0.0))
    whole = k.convert_raw(k.round_even(k.mul(tiny, steps)), U32)
    code = k.select(is_tiny, whole, normal)
    code = k.select(k.gt(code, form.largest), k.u32(form.overflow), code)
    code = k.select(k.gt(magnitude, _INFINITY32), k.u32(form.nan), code)
    return k.or_(code, k.and_(k.shr(bits, 24), 0x80))


def _encode_exponent(k: KernelBuilder, x: Value) -> Value:
    """To the nearest power of two, the larger of two; NaN for 0 and below."""
    bits = k.bitcast(x, U32)
    half = 1 << _MANTISSA32 - 1
    # Codes count from 2**-127, half of the smallest normal number. As in ml_dtypes,
    # what lies between the two counts as the larger.
    code = k.shr(k.add(bits, half), _MANTISSA32)
    tiny = k.select(k.le(bits, half), k.u32(0), k.u32(1))
    code = k.select(k.lt(bits, 1 << _MANTISSA32), tiny, k.min(code, 0xFF))
    is_positive = k.lt(k.sub(bits, 1), _NAN32)
    return k.select(is_positive, code, k.u32(0xFF))
