"""Element types and scalars: what one element of a tensor is."""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from poot.core.conversion import convert, int_to_odd_f64
from poot.core.errors import DTypeError


class Kind(enum.Enum):
    """The arithmetic family of a dtype."""

    BOOL = "bool"
    INT = "int"
    UINT = "uint"
    FLOAT = "float"
    STORAGE = "storage"


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """An element type. Instances are unique, so identity is equality."""

    name: str
    kind: Kind
    itemsize: int
    numpy: np.dtype[Any]

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return by_name, (self.name,)

    @property
    def bits(self) -> int:
        return self.itemsize * 8

    @property
    def is_bool(self) -> bool:
        return self.kind is Kind.BOOL

    @property
    def is_float(self) -> bool:
        return self.kind is Kind.FLOAT

    @property
    def is_differentiable(self) -> bool:
        """Whether it may have tangents: floats do, and numbers stored like them."""
        return self.is_float or self.name in ("f8e4m3fn", "f8e5m2")

    @property
    def is_signed(self) -> bool:
        return self.kind is Kind.INT

    @property
    def is_unsigned(self) -> bool:
        return self.kind is Kind.UINT

    @property
    def is_integer(self) -> bool:
        return self.kind in (Kind.INT, Kind.UINT)

    @property
    def compute(self) -> DType:
        """The dtype in which one equation on this dtype calculates."""
        return float32 if self.is_float and self.itemsize < 4 else self


def _make(name: str, kind: Kind, numpy_type: Any) -> DType:
    numpy_dtype = np.dtype(numpy_type)
    return DType(name, kind, numpy_dtype.itemsize, numpy_dtype)


bool_ = _make("bool", Kind.BOOL, np.bool_)
int8 = _make("i8", Kind.INT, np.int8)
int16 = _make("i16", Kind.INT, np.int16)
int32 = _make("i32", Kind.INT, np.int32)
int64 = _make("i64", Kind.INT, np.int64)
uint8 = _make("u8", Kind.UINT, np.uint8)
uint16 = _make("u16", Kind.UINT, np.uint16)
uint32 = _make("u32", Kind.UINT, np.uint32)
uint64 = _make("u64", Kind.UINT, np.uint64)
float16 = _make("f16", Kind.FLOAT, np.float16)
bfloat16 = _make("bf16", Kind.FLOAT, ml_dtypes.bfloat16)
float32 = _make("f32", Kind.FLOAT, np.float32)
float64 = _make("f64", Kind.FLOAT, np.float64)
float8_e4m3fn = _make("f8e4m3fn", Kind.STORAGE, ml_dtypes.float8_e4m3fn)
float8_e5m2 = _make("f8e5m2", Kind.STORAGE, ml_dtypes.float8_e5m2)
float8_e8m0 = _make("f8e8m0", Kind.STORAGE, ml_dtypes.float8_e8m0fnu)

ALL = (
    bool_,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
    float16,
    bfloat16,
    float32,
    float64,
    float8_e4m3fn,
    float8_e5m2,
    float8_e8m0,
)
_BY_NAME = {dtype.name: dtype for dtype in ALL}
_BY_NUMPY = {dtype.numpy: dtype for dtype in ALL}


def by_name(name: str) -> DType:
    """The dtype that graph text calls `name`."""
    try:
        return _BY_NAME[name]
    except KeyError:
        known = ", ".join(_BY_NAME)
        raise DTypeError(f"no dtype is called {name!r}; known: {known}") from None


def as_dtype(value: Any) -> DType:
    """The dtype that a NumPy dtype, type, name or DType means."""
    if isinstance(value, DType):
        return value
    try:
        numpy_dtype = np.dtype(value)
    except TypeError:
        raise DTypeError(f"{value!r} is no dtype") from None
    found = _BY_NUMPY.get(numpy_dtype.newbyteorder("="))
    if found is None:
        known = ", ".join(str(dtype.numpy) for dtype in ALL)
        raise DTypeError(f"dtype {numpy_dtype} is not supported; supported: {known}")
    return found


@dataclass(frozen=True, slots=True)
class Scalar:
    """One element, kept as bits: -0.0 differs from 0.0 and a NaN equals itself."""

    dtype: DType
    bits: int

    @classmethod
    def of(cls, value: Any, dtype: DType) -> Scalar:
        """`value` as an element of `dtype`, converted as `Cast` does: rounded once."""
        if isinstance(value, int | np.integer):
            value = int(value)
            if dtype.is_integer:
                return cls(dtype, value & ((1 << dtype.bits) - 1))
            if not dtype.is_bool:
                is_wide = dtype is float64
                value = float(value) if is_wide else int_to_odd_f64(value)
        with np.errstate(all="ignore"):
            raw = convert(np.asarray(value), dtype.numpy).tobytes()
        return cls(dtype, int.from_bytes(raw, "little"))

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The element as a zero-dimensional NumPy array."""
        raw = self.bits.to_bytes(self.dtype.itemsize, "little")
        return np.frombuffer(raw, self.dtype.numpy).reshape(())

    @property
    def value(self) -> bool | int | float:
        """The element as a Python number."""
        if self.dtype.kind is Kind.FLOAT and self.dtype.itemsize == 8:
            return float(struct.unpack("<d", self.bits.to_bytes(8, "little"))[0])
        item = self.array.item()
        return item if isinstance(item, bool | int | float) else float(item)

    def __str__(self) -> str:
        """`1.5:f32`, or the bits where a decimal would not bring them back."""
        if not self.dtype.is_float and self.dtype.kind is not Kind.STORAGE:
            return f"{int(self.value)}:{self.dtype.name}"
        decimal = repr(float(self.value))
        if Scalar.of(float(decimal), self.dtype) == self:
            return f"{decimal}:{self.dtype.name}"
        return f"0x{self.bits:x}:{self.dtype.name}"
