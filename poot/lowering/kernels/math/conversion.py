"""Conversions between dtypes, and rounding to the dtype of a result.

Values are in compute form: f16 and bf16 as F32, integers under 32 bits extended to 32,
bool as a truth value.
"""

from __future__ import annotations

from poot.core import dtypes
from poot.core.dtypes import DType
from poot.core.errors import LoweringError
from poot.lowering.kernels.math.arithmetic import DOUBLE, SINGLE, FloatMath
from poot.lowering.kernels.math.halves import (
    INFINITY32,
    QUIET32,
    SIGN32,
    is_half,
    round16,
)
from poot.lowering.spirv.builder import KernelBuilder
from poot.lowering.spirv.types import (
    BOOL,
    F32,
    F64,
    I32,
    I64,
    U32,
    U64,
    ScalarType,
)
from poot.lowering.spirv.value import Value


def form(dtype: DType) -> ScalarType:
    """The type of an element in compute form."""
    if dtype.is_bool:
        return BOOL
    wide = dtype.itemsize == 8
    if dtype.is_float:
        return F64 if wide else F32
    if dtype.is_signed:
        return I64 if wide else I32
    return U64 if wide else U32


def float_math(k: KernelBuilder, dtype: DType) -> FloatMath:
    """The arithmetic in which one equation on a float dtype calculates."""
    return FloatMath(k, DOUBLE if dtype is dtypes.float64 else SINGLE)


def round_to(k: KernelBuilder, x: Value, dtype: DType) -> Value:
    """A result in compute form, rounded (floats) or wrapped (integers) to its dtype."""
    if is_half(dtype):
        return round16(k, x, dtype)
    if dtype.is_integer and dtype.bits < 32:
        if dtype.is_signed:
            return k.sign_extend(x, dtype.bits)
        return x & ((1 << dtype.bits) - 1)
    return x


# --- casts ------------------------------------------------------------------


def cast(k: KernelBuilder, x: Value, source: DType, target: DType) -> Value:
    """As `Cast` says: floats round to nearest even, integers wrap; floats to integers
    saturate and NaN gives 0; to bool: not zero."""
    if source is target:
        return x
    if target.is_bool:
        return k.convert(x, BOOL)
    if source.is_bool:
        return k.convert(x, form(target))
    if not (source.is_float or source.is_integer):
        raise LoweringError(
            f"cast: elements of {source} are only stored; given {source}"
        )
    if source.is_integer:
        if target.is_integer:
            return round_to(k, k.convert(x, form(target)), target)
        return _integer_to_float(k, x, source, target)
    if target.is_integer:
        return _float_to_integer(k, x, source, target)
    return _float_to_float(k, x, source, target)


def _float_to_float(k: KernelBuilder, x: Value, source: DType, target: DType) -> Value:
    if target is dtypes.float64:
        return _widen(k, x)
    if source is not dtypes.float64:
        return round_to(k, x, target)
    if target is dtypes.float32:
        return _narrow(k, x)
    return round_to(k, to_odd_f32(k, x, source), target)


def to_odd_f32(k: KernelBuilder, x: Value, source: DType) -> Value:
    """A number as F32, cut, with an odd last bit if that lost anything.

    So a further rounding to half as many bits is the only one that counts.
    """
    if source is dtypes.float64:
        return _narrow_to_odd(k, x)
    if source.is_integer and source.bits >= 32:
        return _large_integer_to_float(k, x, source, to_odd=True)
    return cast(k, x, source, dtypes.float32)


def _widen(k: KernelBuilder, x: Value) -> Value:
    """F32 to F64; subnormals through integers, since conversions may flush them."""
    bits = k.bitcast(x, U32)
    magnitude = bits & (SIGN32 - 1)
    tiny = k.convert(magnitude, F64) * 2.0**-149
    tiny = k.select(k.lt(k.bitcast(x, I32), 0), k.neg(tiny), tiny)
    return k.select(magnitude < 1 << 23, tiny, k.convert(x, F64))


def _sign32(k: KernelBuilder, x: Value) -> Value:
    """The sign bit of an F64 in a u32."""
    return k.convert(k.bitcast(x, U64) >> 32, U32) & SIGN32


def _narrow(k: KernelBuilder, x: Value) -> Value:
    """F64 to F32, to nearest even."""
    m = FloatMath(k, DOUBLE)
    a = m.abs(x)
    _, steps = m.round(k.select(a < 2.0**-126, a * 2.0**149, 0.0))
    tiny = k.convert(m.word(m.rounded_integer(steps)), U32) | _sign32(k, x)
    return k.select(a < 2.0**-126, k.bitcast(tiny, F32), k.convert(x, F32))


def _narrow_to_odd(k: KernelBuilder, x: Value) -> Value:
    m = FloatMath(k, DOUBLE)
    a = m.abs(x)
    magnitude = m.word(m.magnitude(x))
    zero, one = k.const(U64, 0), k.const(U64, 1)
    cut = (magnitude >> 29) - ((1023 - 127) << 23)
    cut = cut | k.select(k.ne(magnitude & ((1 << 29) - 1), 0), one, zero)
    cut = k.select(a >= 2.0**128, k.const(U64, INFINITY32 - 1), cut)
    scaled = k.select(a < 2.0**-126, a * 2.0**149, 0.0)
    whole = k.floor(scaled)
    tiny = k.bitcast(k.convert_raw(whole, I64), U64)
    tiny = tiny | k.select(k.ne(whole, scaled), one, zero)
    cut = k.select(a < 2.0**-126, tiny, cut)
    cut = k.select(magnitude >= DOUBLE.infinity, k.const(U64, INFINITY32), cut)
    cut = k.select(m.is_nan(x), k.const(U64, INFINITY32 | QUIET32), cut)
    return k.bitcast(k.convert(cut, U32) | _sign32(k, x), F32)


def _float_to_integer(
    k: KernelBuilder, x: Value, source: DType, target: DType
) -> Value:
    """Cut the fraction; saturate."""
    low = -(1 << target.bits - 1) if target.is_signed else 0
    high = (1 << target.bits - target.is_signed) - 1
    ty = form(target)
    real = x.ty
    # Comparisons with powers of two are exact; low - 1 need not be a number.
    above = k.ge(x, float(high + 1))
    below = k.le(x, float(low))
    nan = float_math(k, source).is_nan(x)
    outside = k.logical_or(k.logical_or(above, below), nan)
    inside = k.select(outside, k.const(real, 0.0), x)
    result = k.convert_raw(inside, ty)
    result = k.select(below, k.const(ty, low), result)
    return k.select(above, k.const(ty, high), result)


def _integer_to_float(
    k: KernelBuilder, x: Value, source: DType, target: DType
) -> Value:
    """Rounded once, to nearest even. Drivers choose how their conversion rounds, so it
    is only used where it is exact."""
    if source.bits < 32:
        return round_to(k, k.convert(x, form(target)), target)
    if is_half(target):
        return round_to(k, to_odd_f32(k, x, source), target)
    if target is dtypes.float32:
        return _large_integer_to_float(k, x, source, to_odd=False)
    negative, magnitude = _magnitude(k, x, source)
    is_wide = source.bits == 64
    real = _exact_sum(k, magnitude, F64) if is_wide else k.convert(magnitude, F64)
    return k.select(negative, k.neg(real), real)


def _large_integer_to_float(
    k: KernelBuilder, x: Value, source: DType, to_odd: bool
) -> Value:
    """An integer of 32 or 64 bits as F32, rounded to nearest even or to odd."""
    negative, magnitude = _magnitude(k, x, source)
    exponent: Value | None = None
    if source.bits == 64:
        magnitude, exponent = _top_word(k, magnitude)
    if to_odd:
        # Cut to 24 bits with a sticky last one, which the conversion keeps.
        magnitude = _sticky_24(k, magnitude)
    real = _exact_sum(k, magnitude, F32)
    if exponent is not None:
        real = real * FloatMath(k, SINGLE).power_of_two(k.bitcast(exponent, I32))
    return k.select(negative, k.neg(real), real)


def _magnitude(k: KernelBuilder, x: Value, source: DType) -> tuple[Value, Value]:
    """Whether an integer is negative, and its magnitude without a sign."""
    negative = k.lt(x, 0) if source.is_signed else k.bool_(False)
    word = U64 if source.bits == 64 else U32
    return negative, k.bitcast(k.select(negative, k.neg(x), x), word)


def _exact_sum(k: KernelBuilder, magnitude: Value, real: ScalarType) -> Value:
    """An unsigned integer as a float, whose only rounding is that of one addition."""
    half = magnitude.ty.scalar.bits // 2
    high = k.convert(magnitude >> half, real)
    low = k.convert(magnitude & ((1 << half) - 1), real)
    return high * 2.0**half + low


def _top_word(k: KernelBuilder, magnitude: Value) -> tuple[Value, Value]:
    """A u64 as u32 times 2**exponent, with a sticky last bit."""
    high, low = k.convert(magnitude >> 32, U32), k.convert(magnitude, U32)
    zeros = k.clz(high)
    fits = k.eq(high, 0)
    lost = low << zeros
    top = (high << zeros) | ((low >> 1) >> (31 - zeros))
    top = top | k.select(k.ne(lost, 0), k.u32(1), k.u32(0))
    return k.select(fits, low, top), k.select(fits, k.u32(0), 32 - zeros)


def _sticky_24(k: KernelBuilder, magnitude: Value) -> Value:
    """A u32 with at most its upper 24 significant bits; the last of them is sticky."""
    shift = 8 - k.min(k.clz(magnitude), k.u32(8))
    kept = (magnitude >> shift) << shift
    lost = k.ne(kept, magnitude)
    return kept | k.select(lost, k.u32(1) << shift, k.u32(0))
