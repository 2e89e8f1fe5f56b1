"""Which dtype operands meet in, after JAX's lattice, and values made from anything.

A dtype is weak if it comes from a Python number: it yields to any operand's dtype of
the same or a higher kind, so that `x * 0.1` keeps the dtype of a float `x`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard, cast

import numpy as np

from poot.core import dtypes
from poot.core.dtypes import DType, Kind, Scalar
from poot.core.errors import DTypeError, RangeError
from poot.core.interpreter import current
from poot.core.ops.elementwise import Cast
from poot.core.types import TensorType
from poot.interpreters.aval import aval_of
from poot.interpreters.config import settings
from poot.interpreters.value import AbstractValue

if TYPE_CHECKING:
    from poot.interpreters.methods import Value

_NARROW = {
    dtypes.int64: dtypes.int32,
    dtypes.uint64: dtypes.uint32,
    dtypes.float64: dtypes.float32,
}


class WeakDType(NamedTuple):
    """A dtype and whether it is weak."""

    dtype: DType
    weak: bool = False


# --- the lattice ------------------------------------------------------------

# What stands directly above each dtype; the names are the weak ones.
_WEAK_INT, _WEAK_FLOAT = "weak int", "weak float"
_Node = DType | str
_ABOVE: dict[_Node, tuple[_Node, ...]] = {
    dtypes.bool_: (_WEAK_INT,),
    _WEAK_INT: (dtypes.uint8, dtypes.int8),
    dtypes.uint8: (dtypes.int16, dtypes.uint16),
    dtypes.uint16: (dtypes.int32, dtypes.uint32),
    dtypes.uint32: (dtypes.int64, dtypes.uint64),
    dtypes.uint64: (_WEAK_FLOAT,),
    dtypes.int8: (dtypes.int16,),
    dtypes.int16: (dtypes.int32,),
    dtypes.int32: (dtypes.int64,),
    dtypes.int64: (_WEAK_FLOAT,),
    _WEAK_FLOAT: (
        dtypes.bfloat16,
        dtypes.float16,
        dtypes.float8_e4m3fn,
        dtypes.float8_e5m2,
        dtypes.float8_e8m0,
    ),
    dtypes.bfloat16: (dtypes.float32,),
    dtypes.float16: (dtypes.float32,),
    dtypes.float32: (dtypes.float64,),
    dtypes.float64: (),
    dtypes.float8_e4m3fn: (),
    dtypes.float8_e5m2: (),
    dtypes.float8_e8m0: (),
}


@cache
def _at_or_above(node: _Node) -> frozenset[_Node]:
    return frozenset({node}).union(*(_at_or_above(upper) for upper in _ABOVE[node]))


@cache
def _least_upper_bound(nodes: frozenset[_Node]) -> _Node:
    common = frozenset.intersection(*(_at_or_above(node) for node in nodes))
    for node in common:
        if common <= _at_or_above(node):
            return node
    given = " and ".join(sorted(str(node) for node in nodes))
    raise DTypeError(f"{given} have no common dtype; cast one with .astype(…)")


def _node(given: WeakDType) -> _Node:
    if not given.weak or given.dtype.is_bool:
        return given.dtype
    return _WEAK_FLOAT if given.dtype.is_float else _WEAK_INT


def join(given: Iterable[WeakDType]) -> WeakDType:
    """The least dtype that all of `given` convert to, as in JAX.

    Without `config.enable_x64` a 64-bit dtype comes out only if one went in.
    """
    return _join(tuple(given), settings().enable_x64)


@cache
def _join(given: tuple[WeakDType, ...], x64: bool) -> WeakDType:
    strong = {g.dtype for g in given if not g.weak}
    if len({g.dtype for g in given}) == 1:
        return WeakDType(given[0].dtype, not strong and not given[0].dtype.is_bool)
    if not strong:
        node = _least_upper_bound(frozenset(g.dtype for g in given))
        assert isinstance(node, DType)
        return WeakDType(node, True)
    node = _least_upper_bound(frozenset(_node(g) for g in given))
    if node is _WEAK_FLOAT:
        return WeakDType(dtypes.float64 if x64 else dtypes.float32, True)
    if node is _WEAK_INT:
        return WeakDType(dtypes.int64 if x64 else dtypes.int32, True)
    assert isinstance(node, DType)
    return WeakDType(node if x64 or node in strong else _NARROW.get(node, node))


# --- dtypes -----------------------------------------------------------------


def canonical(dtype: DType) -> DType:
    """The dtype itself, or its 32-bit kin without `config.enable_x64`."""
    return dtype if settings().enable_x64 else _NARROW.get(dtype, dtype)


def default_int() -> DType:
    """The dtype of Python ints and of counts."""
    return dtypes.int64 if settings().enable_x64 else dtypes.int32


def default_float() -> DType:
    """The dtype of Python floats and of what is made without a dtype."""
    return dtypes.float64 if settings().enable_x64 else dtypes.float32


def inexact(dtype: DType) -> DType:
    """The float dtype in which functions such as `exp` take elements of `dtype`."""
    if dtype.is_float:
        return dtype
    if dtype.kind is Kind.STORAGE:
        raise DTypeError(
            f"{dtype} is for storage only; cast to a float dtype with .astype(…)"
        )
    return dtypes.float64 if dtype.itemsize == 8 else dtypes.float32


def dtype_of(x: Any, where: str = "poot") -> WeakDType:
    """The dtype of any operand: a value, a Python number or something of NumPy's."""
    if isinstance(x, AbstractValue):
        return WeakDType(x.aval.type.dtype, x.aval.weak)
    if isinstance(x, bool):
        return WeakDType(dtypes.bool_)
    if isinstance(x, np.ndarray | np.generic):
        return WeakDType(canonical(dtypes.as_dtype(x.dtype)))
    if isinstance(x, int):
        return WeakDType(default_int(), True)
    if isinstance(x, float):
        return WeakDType(default_float(), True)
    if isinstance(x, Scalar):
        return WeakDType(x.dtype)
    if hasattr(x, "__array__"):
        return WeakDType(canonical(dtypes.as_dtype(np.asarray(x).dtype)))
    raise DTypeError(
        f"{where} takes arrays and numbers, given {type(x).__name__}; lists and "
        "tuples go through poot.numpy.asarray"
    )


# --- values -----------------------------------------------------------------


def is_value(x: Any) -> TypeGuard[Value]:
    """Whether `x` is a `poot.Array` or a traced value."""
    return isinstance(x, AbstractValue)


def is_number(x: Any) -> bool:
    """Whether `x` is a Python or NumPy scalar, which may become a literal or slot."""
    return isinstance(x, bool | int | float | np.generic)


def is_operand(x: Any) -> bool:
    """Whether operators of values take `x`: what has a dtype or is a number."""
    return isinstance(x, AbstractValue | bool | int | float | np.ndarray | np.generic)


def type_of(x: Any) -> TensorType:
    """The tensor type that `x` has as an operand."""
    if isinstance(x, AbstractValue):
        return x.aval.type
    shape = () if is_number(x) else np.shape(x)
    return TensorType(tuple(shape), dtype_of(x).dtype)


def is_weak(x: Any) -> bool:
    """Whether the dtype of `x` yields to other operands' dtypes."""
    return dtype_of(x).weak


def scalar(x: Any, dtype: DType) -> Scalar:
    """A Python or NumPy number as an element of `dtype`.

    A Python int wraps as in JAX if it fits the default int at least.
    """
    if isinstance(x, int) and not isinstance(x, bool):
        x = _checked_int(x, dtype)
    elif isinstance(x, complex | np.complexfloating):
        raise DTypeError(f"complex numbers are not supported; given {x}")
    return Scalar.of(x, dtype)


def _checked_int(x: int, dtype: DType) -> int:
    if not dtype.is_integer:
        try:
            float(x)
        except OverflowError:
            raise RangeError(f"the Python int {x} is too large for {dtype}") from None
        return x
    if not (fits(x, dtype) or fits(x, default_int())):
        raise RangeError(
            f"the Python int {x} fits neither {dtype} nor {default_int()}; use a "
            "wider dtype or poot.config.enable_x64"
        )
    return x


def fits(x: int, dtype: DType) -> bool:
    """Whether the integer dtype holds `x` as it is."""
    if dtype.is_signed:
        return -(1 << dtype.bits - 1) <= x < 1 << dtype.bits - 1
    return 0 <= x < 1 << dtype.bits


def as_value(x: Any, where: str = "poot") -> Value:
    """Any operand as a value of the current interpreter; Python numbers are weak."""
    if isinstance(x, AbstractValue):
        return cast("Value", x)
    dtype, weak = dtype_of(x, where)
    if is_number(x):
        return cast("Value", current().lift(scalar(x, dtype), weak))
    return cast("Value", current().lift(np.asarray(x).astype(dtype.numpy)))


def converted(x: Any, dtype: DType, where: str = "poot") -> Value | Scalar:
    """`x` as something to bind, of `dtype`: numbers as Scalars, the rest cast."""
    if isinstance(x, AbstractValue):
        return cast_to(cast("Value", x), dtype)
    if is_number(x):
        return scalar(x, dtype)
    if isinstance(x, Scalar):
        return x if x.dtype is dtype else Scalar.of(x.array, dtype)
    return cast_to(as_value(x, where), dtype)


def cast_to(x: Value, dtype: DType) -> Value:
    """`x` in another dtype; itself if it has it already. Keeps weakness."""
    if x.aval.type.dtype is dtype:
        return x
    return result_like(x, Cast(dtype).bind(x))


class Promoted(NamedTuple):
    """Operands of one dtype, ready to bind, and whether their result is weak."""

    operands: tuple[Any, ...]
    dtype: DType
    weak: bool


def promote(where: str, *xs: Any) -> Promoted:
    """Bring operands to the dtype in which they meet."""
    dtype, weak = join([dtype_of(x, where) for x in xs])
    return Promoted(tuple([converted(x, dtype, where) for x in xs]), dtype, weak)


def promote_inexact(where: str, *xs: Any) -> Promoted:
    """Bring operands to the float dtype in which they meet."""
    dtype, weak = join([dtype_of(x, where) for x in xs])
    dtype = inexact(dtype)
    return Promoted(tuple([converted(x, dtype, where) for x in xs]), dtype, weak)


def result_of(promoted: Promoted, value: Value) -> Value:
    """The result that an op just gave on promoted operands, weak if they all were."""
    if promoted.weak:
        value.aval = aval_of(value.aval.type, True)
    return value


def result_like(x: Value, value: Value) -> Value:
    """The result that an op just gave on `x` alone, weak if `x` is."""
    if x.aval.weak:
        value.aval = aval_of(value.aval.type, True)
    return value
