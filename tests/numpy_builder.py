"""A stand-in for the SPIR-V builder that computes at once, on NumPy arrays.

Functions of poot.lowering.kernels.math are written against the builder's methods, so
the very text that makes SPIR-V runs here: one NumPy operation an instruction, each
rounded to its type. Subnormals are flushed as a device that flushes them does, or
kept; division and square root are exact, or as far off as Vulkan allows. Conversions
of 16-bit floats round to nearest even and make every NaN the same positive one.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from poot.core import dtypes
from poot.core.dtypes import DType
from poot.lowering.device_info import DeviceInfo, DeviceKind
from poot.lowering.spirv.types import (
    BOOL,
    F32,
    I32,
    U32,
    ScalarType,
    VectorType,
    signed,
    unsigned,
    vector,
)
from poot.lowering.spirv.value import Value

_NUMPY = {
    "bool": np.bool_,
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
    "u64": np.uint64,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "f32": np.float32,
    "f64": np.float64,
}


class Quality(enum.Enum):
    """How good the device's division and square root are."""

    EXACT = "exact"
    RECIPROCAL = "reciprocal"  # a * (1/b), with both operations exact
    ROUGH = "rough"  # up to Vulkan's 2.5 ulp off


def fused(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a * b + c of f32 with one rounding: the product is exact in f64, the sum odd."""
    product, addend = a.astype(np.float64) * b, c.astype(np.float64)
    total = product + addend
    part = total - product
    rest = (product - (total - part)) + (addend - part)
    # Where the sum was rounded to an even number, the neighbour on the other side of
    # the exact one is odd: f32 has so few bits that this one rounds as the exact one.
    even = (total.view(np.uint64) & 1) == 0
    toward = np.where(rest > 0, np.inf, -np.inf)
    odd = np.nextafter(total, toward)
    inexact = np.isfinite(total) & (rest != 0) & even
    return np.where(inexact, odd, total).astype(np.float32)


class NumpyBuilder:
    """Executes what a kernel writer asks for. `Value.id` is the array."""

    def __init__(
        self,
        *,
        keeps_subnormals: bool = True,
        quality: Quality = Quality.RECIPROCAL,
        trusted: bool = False,
        fuses: bool = False,
        converts: bool = False,
        seed: int = 0,
    ) -> None:
        self.info = DeviceInfo(
            keeps_subnormals32=keeps_subnormals,
            exact_division32=trusted,
            fused_multiply_add32=fuses,
            kind=DeviceKind.DISCRETE if converts else DeviceKind.CPU,
            bfloat16=converts,
            exact_half_unpacking=converts,
            exact_half_packing=converts,
            exact_bfloat_packing=converts,
        )
        self.quality = quality
        self.operations = 0
        self._random = np.random.default_rng(seed)
        self._masks: list[np.ndarray] = []
        self._breaks: list[np.ndarray] = []

    # --- values -------------------------------------------------------------

    def wrap(self, array: Any, ty: ScalarType) -> Value:
        return Value(self, np.asarray(array, _NUMPY[ty.name]), ty)  # type: ignore[arg-type]

    def limit(self, value: Value) -> int | None:
        return None

    def bits(self, ty: ScalarType, bits: int) -> Value:
        raw = np.array(bits, np.dtype(f"u{ty.bits // 8}"))
        return self.wrap(raw.view(_NUMPY[ty.name]), ty)

    def const(self, ty: ScalarType, number: float) -> Value:
        if ty.is_integer:
            number &= (1 << ty.bits) - 1
            return self.bits(ty, number)
        with np.errstate(over="ignore"):
            return self.wrap(_NUMPY[ty.name](number), ty)

    def u32(self, number: int) -> Value:
        return self.const(U32, number)

    def i32(self, number: int) -> Value:
        return self.const(I32, number)

    def f32(self, number: float) -> Value:
        return self.const(F32, number)

    def bool_(self, truth: bool) -> Value:
        return self.wrap(truth, BOOL)

    def value(self, number: Any, ty: ScalarType = U32) -> Value:
        return number if isinstance(number, Value) else self.const(ty, number)

    def _pair(self, a: Any, b: Any) -> tuple[Value, Value]:
        ty = a.ty if isinstance(a, Value) else b.ty
        a, b = self.value(a, ty), self.value(b, ty)
        assert a.ty is b.ty, (a.ty, b.ty)
        return a, b

    def _flush(self, array: np.ndarray, ty: ScalarType) -> np.ndarray:
        if ty is not F32 or self.info.keeps_subnormals32:
            return array
        tiny = np.abs(array) < np.finfo(np.float32).tiny
        return np.where(tiny, np.copysign(np.float32(0), array), array)

    def _float(self, ty: ScalarType, f: Callable[..., Any], *values: Value) -> Value:
        self.operations += 1
        arrays = [self._flush(v.id, v.ty) for v in values]
        with np.errstate(all="ignore"):
            result = np.asarray(f(*arrays), _NUMPY[ty.name])
        return self.wrap(self._flush(result, ty), ty)

    def _integer(self, ty: ScalarType, f: Callable[..., Any], *values: Value) -> Value:
        self.operations += 1
        with np.errstate(all="ignore"):
            return self.wrap(f(*(v.id for v in values)), ty)

    def _arithmetic(self, f: Callable[..., Any], a: Any, b: Any) -> Value:
        a, b = self._pair(a, b)
        assert not a.ty.is_bool
        run = self._float if a.ty.is_float else self._integer
        return run(a.ty, f, a, b)

    # --- arithmetic ---------------------------------------------------------

    def add(self, a: Any, b: Any) -> Value:
        return self._arithmetic(np.add, a, b)

    def sub(self, a: Any, b: Any) -> Value:
        return self._arithmetic(np.subtract, a, b)

    def mul(self, a: Any, b: Any) -> Value:
        return self._arithmetic(np.multiply, a, b)

    def neg(self, a: Value) -> Value:
        if a.ty.is_float:  # flips the sign bit and nothing else
            self.operations += 1
            return self.wrap(-a.id, a.ty)
        return self._integer(a.ty, np.negative, a)

    def fma(self, a: Value, b: Any, c: Any) -> Value:
        b, c = self.value(b, a.ty), self.value(c, a.ty)
        assert a.ty is F32
        return self._float(a.ty, fused, a, b, c)

    def fdiv(self, a: Any, b: Any) -> Value:
        a, b = self._pair(a, b)
        assert a.ty.is_float
        if self.quality is Quality.EXACT:
            return self._float(a.ty, np.divide, a, b)
        one = _NUMPY[a.ty.name](1)
        self.operations += 1
        if self.quality is Quality.RECIPROCAL:
            return self.mul(a, self._float(b.ty, lambda d: np.divide(one, d), b))
        return self._float(a.ty, lambda p, q: self._rough(np.divide(p, q), 2.0), a, b)

    def _rough(self, exact: np.ndarray, ulps: float) -> np.ndarray:
        """Move normal results by up to `ulps` units in the last place."""
        steps = self._random.integers(-int(ulps), int(ulps) + 1, exact.shape)
        with np.errstate(all="ignore"):
            moved = exact + steps * np.spacing(np.abs(exact))
        plain = np.isfinite(exact) & (exact != 0) & np.isfinite(moved)
        return np.where(plain, moved, exact).astype(exact.dtype)

    def div(self, a: Any, b: Any) -> Value:
        """Truncated; x/0 = 0 and MIN/-1 = MIN, as the builder defines it."""
        a, b = self._pair(a, b)
        assert a.ty.is_integer
        return self._integer(a.ty, _truncated_quotient, a, b)

    def rem(self, a: Any, b: Any) -> Value:
        a, b = self._pair(a, b)
        quotient = self.div(a, b)
        remainder = self.wrap(a.id - quotient.id * b.id, a.ty)
        return self.wrap(np.where(b.id == 0, 0, remainder.id), a.ty)

    def index_div(self, a: Any, b: Any) -> Value:
        a, b = self._pair(a, b)
        assert not a.ty.is_signed and np.all(b.id)
        return self._integer(a.ty, np.floor_divide, a, b)

    def index_rem(self, a: Any, b: Any) -> Value:
        a, b = self._pair(a, b)
        assert not a.ty.is_signed and np.all(b.id)
        return self._integer(a.ty, np.remainder, a, b)

    def min(self, a: Any, b: Any) -> Value:
        return self._bitwise(np.minimum, a, b)

    def max(self, a: Any, b: Any) -> Value:
        return self._bitwise(np.maximum, a, b)

    def umul_extended(self, a: Any, b: Any) -> tuple[Value, Value]:
        """Low and high word of the product of two u32."""
        return self._two_words(np.multiply, a, b)

    def add_carry(self, a: Any, b: Any) -> tuple[Value, Value]:
        return self._two_words(np.add, a, b)

    def _two_words(self, f: Callable[..., Any], a: Any, b: Any) -> tuple[Value, Value]:
        a, b = self._pair(a, b)
        assert a.ty is U32
        self.operations += 1
        wide = f(a.id.astype(np.uint64), b.id.astype(np.uint64))
        return self.wrap(wide & 0xFFFFFFFF, U32), self.wrap(wide >> np.uint64(32), U32)

    # --- bits ---------------------------------------------------------------

    def _bitwise(self, f: Callable[..., Any], a: Any, b: Any) -> Value:
        a, b = self._pair(a, b)
        assert a.ty.is_integer
        return self._integer(a.ty, f, a, b)

    def and_(self, a: Any, b: Any) -> Value:
        return self._bitwise(np.bitwise_and, a, b)

    def or_(self, a: Any, b: Any) -> Value:
        return self._bitwise(np.bitwise_or, a, b)

    def xor(self, a: Any, b: Any) -> Value:
        return self._bitwise(np.bitwise_xor, a, b)

    def not_(self, a: Value) -> Value:
        return self._integer(a.ty, np.invert, a)

    def _shift(self, f: Callable[..., Any], a: Value, b: Any, past: Any) -> Value:
        """Amounts that are not below the width, read as unsigned, give `past`."""
        a, b = self._pair(a, b)
        unsigned = np.dtype(f"u{a.ty.bits // 8}")
        amount = b.id.astype(unsigned)
        inside = amount < a.ty.bits
        count = np.where(inside, amount, 0).astype(a.id.dtype)
        self.operations += 1
        return self.wrap(np.where(inside, f(a.id, count), past), a.ty)

    def shl(self, a: Value, b: Any) -> Value:
        return self._shift(np.left_shift, a, b, 0)

    def shr(self, a: Value, b: Any) -> Value:
        word = unsigned(a.ty.bits)
        return self.bitcast(
            self._shift(np.right_shift, self.bitcast(a, word), self._as(b, word), 0),
            a.ty,
        )

    def sar(self, a: Value, b: Any) -> Value:
        word = signed(a.ty.bits)
        raw = self.bitcast(a, word)
        shifted = self._shift(
            np.right_shift, raw, self._as(b, word), np.where(raw.id < 0, -1, 0)
        )
        return self.bitcast(shifted, a.ty)

    def _as(self, b: Any, ty: ScalarType) -> Any:
        return self.bitcast(b, ty) if isinstance(b, Value) else b

    def shift_right(self, a: Value, b: Any) -> Value:
        return (self.sar if a.ty.is_signed else self.shr)(a, b)

    def sign_extend(self, a: Value, bits: int) -> Value:
        return self.sar(self.shl(self.bitcast(a, I32), 32 - bits), 32 - bits)

    def clz(self, a: Value) -> Value:
        assert a.ty.bits == 32
        return self._integer(a.ty, _leading_zeros, a)

    def popcount(self, a: Value) -> Value:
        assert a.ty.bits == 32
        return self._integer(a.ty, np.bitwise_count, a)

    # --- comparisons --------------------------------------------------------

    def _compare(self, f: Callable[..., Any], a: Any, b: Any) -> Value:
        a, b = self._pair(a, b)
        self.operations += 1
        return self.wrap(f(self._flush(a.id, a.ty), self._flush(b.id, b.ty)), BOOL)

    def eq(self, a: Any, b: Any) -> Value:
        return self._compare(np.equal, a, b)

    def ne(self, a: Any, b: Any) -> Value:
        return self._compare(np.not_equal, a, b)

    def lt(self, a: Any, b: Any) -> Value:
        return self._compare(np.less, a, b)

    def le(self, a: Any, b: Any) -> Value:
        return self._compare(np.less_equal, a, b)

    def gt(self, a: Any, b: Any) -> Value:
        return self._compare(np.greater, a, b)

    def ge(self, a: Any, b: Any) -> Value:
        return self._compare(np.greater_equal, a, b)

    def logical_and(self, a: Value, b: Value) -> Value:
        return self._integer(BOOL, np.logical_and, a, b)

    def logical_or(self, a: Value, b: Value) -> Value:
        return self._integer(BOOL, np.logical_or, a, b)

    def logical_not(self, a: Value) -> Value:
        return self._integer(BOOL, np.logical_not, a)

    def select(self, condition: Value, a: Any, b: Any) -> Value:
        a, b = self._pair(a, b)
        assert condition.ty is BOOL
        return self._integer(a.ty, np.where, condition, a, b)

    # --- conversions and the functions of GLSL.std.450 ----------------------

    def convert(self, a: Value, ty: ScalarType) -> Value:
        assert not a.ty.is_float or not ty.is_integer, "that is convert_raw"
        if ty is a.ty:
            return a
        if ty.is_bool:
            return self._integer(ty, lambda x: (x != 0) | np.isnan(x), a)
        run = self._float if a.ty.is_float and ty.is_float else self._integer
        return run(ty, lambda x: x.astype(_NUMPY[ty.name]), a)

    def convert_raw(self, a: Value, ty: ScalarType) -> Value:
        """Truncate; what does not fit becomes a pattern that no result may show."""
        self.operations += 1
        info = np.iinfo(_NUMPY[ty.name])
        x = self._flush(a.id, a.ty)
        with np.errstate(all="ignore"):
            fits = (x > float(info.min) - 1) & (x < float(info.max) + 1)
            if ty.bits == 64:
                fits = (x >= float(info.min)) & (x < float(info.max))
            result = np.where(fits, x, 0).astype(_NUMPY[ty.name])
        return self.wrap(np.where(fits, result, 0x5A5A5A5A), ty)

    def bitcast(self, a: Value, ty: ScalarType) -> Value:
        assert a.ty.bits == ty.bits
        return self.wrap(np.ascontiguousarray(a.id).view(_NUMPY[ty.name]), ty)

    def construct(self, ty: VectorType, *parts: Any) -> Value:
        """Components stand along a last axis."""
        arrays = [self.value(part, ty.scalar).id for part in parts]
        return Value(self, np.stack(np.broadcast_arrays(*arrays), -1), ty)  # type: ignore[arg-type]

    def extract(self, a: Value, component: int) -> Value:
        return self.wrap(a.id[..., component], a.ty.scalar)

    def unpack_half(self, a: Value) -> Value:
        assert a.ty is U32
        self.operations += 1
        halves = np.ascontiguousarray(a.id[..., None]).view(np.float16)
        numbers = _without_signs_of_nan(halves.astype(np.float32))
        return Value(self, numbers, vector(F32, 2))  # type: ignore[arg-type]

    def pack_half(self, a: Value) -> Value:
        return self._packed(a, dtypes.float16)

    def pack_bfloat(self, a: Value) -> Value:
        return self._packed(a, dtypes.bfloat16)

    def _packed(self, a: Value, dtype: DType) -> Value:
        assert a.ty is vector(F32, 2)
        self.operations += 1
        with np.errstate(all="ignore"):
            halves = _without_signs_of_nan(a.id.astype(dtype.numpy))
        return self.wrap(np.ascontiguousarray(halves).view(np.uint32)[..., 0], U32)

    def fabs(self, a: Value) -> Value:
        self.operations += 1
        return self.wrap(np.abs(a.id), a.ty)

    def floor(self, a: Value) -> Value:
        return self._float(a.ty, np.floor, a)

    def ceil(self, a: Value) -> Value:
        return self._float(a.ty, np.ceil, a)

    def trunc(self, a: Value) -> Value:
        return self._float(a.ty, np.trunc, a)

    def round_even(self, a: Value) -> Value:
        return self._float(a.ty, np.rint, a)

    def sqrt(self, a: Value) -> Value:
        if self.quality is Quality.ROUGH:
            return self._float(a.ty, lambda x: self._rough(np.sqrt(x), 3.0), a)
        return self._float(a.ty, np.sqrt, a)

    # --- control ------------------------------------------------------------

    @contextlib.contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        self._masks.append(condition.id & self._mask())
        yield
        self._masks.pop()

    def _mask(self) -> np.ndarray:
        return self._masks[-1] if self._masks else np.array(True)

    def variable(self, ty: ScalarType, init: Value) -> Variable:
        return Variable(self, self.value(init, ty))

    def select_mask(self, new: Value, old: Value) -> np.ndarray:
        return np.where(self._mask(), new.id, old.id)


class Variable:
    """Function storage: stores reach only the lanes that are active."""

    def __init__(self, k: NumpyBuilder, init: Value) -> None:
        self._k = k
        self._value = init

    def load(self) -> Value:
        return self._value

    def store(self, value: Any) -> None:
        value = self._k.value(value, self._value.ty)
        assert value.ty is self._value.ty
        merged = self._k.select_mask(value, self._value)
        self._value = self._k.wrap(merged, value.ty)


def _without_signs_of_nan(numbers: np.ndarray) -> np.ndarray:
    one = np.iinfo(f"i{numbers.itemsize}").max  # all bits but the sign
    bits = numbers.view(f"u{numbers.itemsize}")
    return np.where(np.isnan(numbers), bits.dtype.type(one), bits).view(numbers.dtype)


def _truncated_quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    divisor = np.where(b == 0, 1, b)
    floor = np.floor_divide(a, divisor)
    rest = a - floor * divisor
    ceil = (rest != 0) & ((a < 0) != (divisor < 0)) & (a.dtype.kind == "i")
    return np.where(b == 0, 0, floor + ceil.astype(a.dtype))


def _leading_zeros(x: np.ndarray) -> np.ndarray:
    width = x.dtype.itemsize * 8
    count = np.full(x.shape, width, np.int64)
    raw = np.array(x).view(np.dtype(f"u{width // 8}"))
    for bit in range(width):
        is_set = (raw >> raw.dtype.type(bit)) & raw.dtype.type(1)
        count = np.where(is_set, width - 1 - bit, count)
    return count.astype(x.dtype)


def numpy_iterate(
    k: NumpyBuilder,
    state: tuple[Value, ...],
    go_on: Callable[[tuple[Value, ...]], Value],
    step: Callable[[tuple[Value, ...]], tuple[Value, ...]],
    most: int,
) -> tuple[Value, ...]:
    """`loops.iterate` for the NumPy builder: lanes that are done keep their values."""
    for _ in range(most):
        active = go_on(state)
        if not np.any(active.id):
            return state
        fresh = step(state)
        state = tuple(
            k.select(active, new, old) for new, old in zip(fresh, state, strict=True)
        )
    assert not np.any(go_on(state).id), f"{most} steps do not suffice"
    return state
