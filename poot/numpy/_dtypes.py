"""Dtypes under JAX's names, and questions about them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from poot.core import dtypes
from poot.core.dtypes import DType, Kind
from poot.interpreters.methods import Value
from poot.interpreters.promotion import (
    WeakDType,
    default_float,
    default_int,
    dtype_of,
    is_number,
    join,
)
from poot.interpreters.shaping import as_element_type
from poot.interpreters.value import AbstractValue
from poot.numpy._creation import asarray


class ScalarType:
    """A dtype's name: stands wherever a dtype is taken, and called makes an array."""

    __slots__ = ("dtype",)

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype.numpy

    def __call__(self, x: Any = 0) -> Value:
        return asarray(x, self.dtype)

    def __eq__(self, other: object) -> bool:
        return bool(self.dtype == other)

    def __hash__(self) -> int:
        return hash(self.dtype)

    def __repr__(self) -> str:
        return f"poot.numpy.{self.dtype.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return ScalarType, (dtypes.as_dtype(self.dtype),)


bool_ = ScalarType(dtypes.bool_)
int8 = ScalarType(dtypes.int8)
int16 = ScalarType(dtypes.int16)
int32 = ScalarType(dtypes.int32)
int64 = ScalarType(dtypes.int64)
uint8 = ScalarType(dtypes.uint8)
uint16 = ScalarType(dtypes.uint16)
uint32 = ScalarType(dtypes.uint32)
uint64 = ScalarType(dtypes.uint64)
float16 = ScalarType(dtypes.float16)
bfloat16 = ScalarType(dtypes.bfloat16)
float32 = ScalarType(dtypes.float32)
float64 = ScalarType(dtypes.float64)
float8_e4m3fn = ScalarType(dtypes.float8_e4m3fn)
float8_e5m2 = ScalarType(dtypes.float8_e5m2)
float8_e8m0fnu = ScalarType(dtypes.float8_e8m0)

# Families of dtypes, for issubdtype.
generic = np.generic
number = np.number
integer = np.integer
signedinteger = np.signedinteger
unsignedinteger = np.unsignedinteger
inexact = np.inexact
floating = np.floating

dtype = np.dtype

_FAMILY: dict[Kind, type[np.generic]] = {
    Kind.BOOL: np.bool_,
    Kind.INT: np.signedinteger,
    Kind.UINT: np.unsignedinteger,
    Kind.FLOAT: np.floating,
    Kind.STORAGE: np.floating,
}
_FAMILIES = (
    generic,
    number,
    integer,
    signedinteger,
    unsignedinteger,
    inexact,
    floating,
)


def _is_family(x: Any) -> bool:
    return any(x is family for family in _FAMILIES)


def issubdtype(arg1: Any, arg2: Any) -> bool:
    """Whether a dtype is another one, or of a family such as `floating`."""
    if _is_family(arg2):
        own = arg1 if _is_family(arg1) else _FAMILY[as_element_type(arg1).kind]
        return issubclass(own, arg2)
    if _is_family(arg1):
        return False
    return as_element_type(arg1) is as_element_type(arg2)


def _weak_dtype(x: Any) -> WeakDType:
    """The dtype that an operand has, or a dtype that stands for one."""
    if x is int:
        return WeakDType(default_int(), True)
    if x is float:
        return WeakDType(default_float(), True)
    if isinstance(x, AbstractValue | np.ndarray) or is_number(x):
        return dtype_of(x)
    return WeakDType(dtypes.as_dtype(x))


def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
    """The dtype in which operands meet; Python numbers and their types are weak."""
    return join(map(_weak_dtype, arrays_and_dtypes)).dtype.numpy


def promote_types(a: Any, b: Any) -> np.dtype[Any]:
    """The dtype in which two dtypes meet."""
    return result_type(a, b)


def can_cast(from_: Any, to: Any, casting: Any = "safe") -> bool:
    """Whether NumPy's rule `casting` allows the cast."""
    given, wanted = _weak_dtype(from_).dtype, as_element_type(to)
    return bool(np.can_cast(given.numpy, wanted.numpy, casting))


def finfo(dtype: Any) -> Any:
    """The limits of a float dtype, or of an array's."""
    return ml_dtypes.finfo(_weak_dtype(dtype).dtype.numpy)  # type: ignore[no-untyped-call]


def iinfo(dtype: Any) -> Any:
    """The limits of an integer dtype, or of an array's."""
    return ml_dtypes.iinfo(_weak_dtype(dtype).dtype.numpy)  # type: ignore[no-untyped-call]
