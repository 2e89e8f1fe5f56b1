"""The value types of kernels. Instances are unique, so identity is equality."""

from __future__ import annotations

from dataclasses import dataclass

from poot.core.errors import SpirvError


@dataclass(frozen=True, slots=True, eq=False)
class ScalarType:
    """One number or truth value in a register."""

    name: str
    bits: int
    is_float: bool = False
    is_signed: bool = False
    is_bool: bool = False

    def __repr__(self) -> str:
        return self.name

    @property
    def scalar(self) -> ScalarType:
        return self

    @property
    def count(self) -> int:
        return 1

    @property
    def is_integer(self) -> bool:
        return not (self.is_float or self.is_bool)

    @property
    def size_bytes(self) -> int:
        return self.bits // 8


@dataclass(frozen=True, slots=True, eq=False)
class VectorType:
    """Two, three or four equal scalars. Made by `vector`."""

    scalar: ScalarType
    count: int

    def __repr__(self) -> str:
        return f"{self.scalar}x{self.count}"

    @property
    def size_bytes(self) -> int:
        return self.scalar.bits // 8 * self.count


Type = ScalarType | VectorType

BOOL = ScalarType("bool", 1, is_bool=True)
U8 = ScalarType("u8", 8)
U16 = ScalarType("u16", 16)
U32 = ScalarType("u32", 32)
U64 = ScalarType("u64", 64)
I8 = ScalarType("i8", 8, is_signed=True)
I16 = ScalarType("i16", 16, is_signed=True)
I32 = ScalarType("i32", 32, is_signed=True)
I64 = ScalarType("i64", 64, is_signed=True)
F16 = ScalarType("f16", 16, is_float=True)
BF16 = ScalarType("bf16", 16, is_float=True)
F32 = ScalarType("f32", 32, is_float=True)
F64 = ScalarType("f64", 64, is_float=True)

_UNSIGNED = {8: U8, 16: U16, 32: U32, 64: U64}
_SIGNED = {8: I8, 16: I16, 32: I32, 64: I64}
_VECTORS: dict[tuple[ScalarType, int], VectorType] = {}


def vector(scalar: ScalarType, count: int) -> VectorType:
    """The vector of `count` (2, 3 or 4) of `scalar`."""
    if count not in (2, 3, 4):
        raise SpirvError(f"vector: a vector has 2, 3 or 4 components, not {count}")
    return _VECTORS.setdefault((scalar, count), VectorType(scalar, count))


def with_scalar(shape: Type, scalar: ScalarType) -> Type:
    """`scalar`, or a vector of it as wide as `shape`."""
    return scalar if shape.count == 1 else vector(scalar, shape.count)


def unsigned(bits: int) -> ScalarType:
    """The unsigned integer of `bits` bits."""
    return _UNSIGNED[bits]


def signed(bits: int) -> ScalarType:
    """The signed integer of `bits` bits."""
    return _SIGNED[bits]
