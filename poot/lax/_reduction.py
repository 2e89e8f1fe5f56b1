"""Reductions, under lax's names, in the operand's own dtype."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from poot.core.errors import ArgumentError, DTypeError, ShapeError
from poot.core.ops.elementwise import BinaryOp
from poot.core.ops.reduce import ArgReduce, ArgReduceOp, ReduceOp
from poot.core.ops.shape import Iota
from poot.interpreters import reductions
from poot.interpreters.arithmetic import binary, not_equal
from poot.interpreters.arithmetic import select as choose
from poot.interpreters.methods import Value
from poot.interpreters.promotion import as_value, cast_to, type_of
from poot.interpreters.shaping import (
    as_element_type,
    broadcast_to,
    canonical_axes,
    canonical_axis,
)
from poot.interpreters.shaping import expand_dims as with_axes
from poot.lax import _elementwise
from poot.lax._operands import same_dtype


def _reduction(name: str, op: ReduceOp, doc: str) -> Callable[..., Value]:
    def function(operand: Any, axes: Sequence[int]) -> Value:
        x = as_value(operand, f"lax.{name}")
        return reductions.reduce(
            op, x, canonical_axes(axes, x.ndim, f"lax.{name}"), False
        )

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


reduce_sum = _reduction("reduce_sum", ReduceOp.SUM, "The sum along axes.")
reduce_prod = _reduction("reduce_prod", ReduceOp.PROD, "The product along axes.")
reduce_max = _reduction("reduce_max", ReduceOp.MAX, "The largest element along axes.")
reduce_min = _reduction("reduce_min", ReduceOp.MIN, "The smallest element along axes.")


def reduce_and(operand: Any, axes: Sequence[int]) -> Value:
    """And of the bits, or of bools, along axes."""
    return _bitwise("reduce_and", ReduceOp.ALL, operand, axes)


def reduce_or(operand: Any, axes: Sequence[int]) -> Value:
    """Or of the bits, or of bools, along axes."""
    return _bitwise("reduce_or", ReduceOp.ANY, operand, axes)


def _bitwise(name: str, op: ReduceOp, operand: Any, axes: Sequence[int]) -> Value:
    """Bools are reduced as they are; the bits of integers each as a bool."""
    x = as_value(operand, f"lax.{name}")
    places = canonical_axes(axes, x.ndim, f"lax.{name}")
    dtype = x.type.dtype
    if dtype.is_bool:
        return reductions.reduce(op, x, places, False)
    if not dtype.is_integer:
        raise DTypeError(f"lax.{name}: given {dtype}, takes bool and integers")
    shifts: Value = Iota(dtype, (dtype.bits,), 0).bind()
    ones = binary(BinaryOp.SHL, 1, shifts)
    bits = not_equal(binary(BinaryOp.AND, with_axes(x, -1), ones), 0)
    held = choose(reductions.reduce(op, bits, places, False), ones, 0)
    return reductions.reduce(ReduceOp.SUM, held, (held.ndim - 1,), False)


def _arg_reduction(name: str, op: ArgReduceOp, doc: str) -> Callable[..., Value]:
    def function(operand: Any, axis: int, index_dtype: Any) -> Value:
        x = as_value(operand, f"lax.{name}")
        dtype = as_element_type(index_dtype)
        if not dtype.is_integer:
            raise DTypeError(f"lax.{name}: {dtype} is no dtype of an index")
        place = canonical_axis(axis, x.ndim, f"lax.{name}")
        return cast_to(ArgReduce(op, place).bind(x), dtype)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


argmax = _arg_reduction(
    "argmax", ArgReduceOp.ARGMAX, "The index of the first largest element of an axis."
)
argmin = _arg_reduction(
    "argmin", ArgReduceOp.ARGMIN, "The index of the first smallest element of an axis."
)

_MONOIDS: dict[Any, Callable[..., Value]] = {
    _elementwise.add: reduce_sum,
    _elementwise.mul: reduce_prod,
    _elementwise.max: reduce_max,
    _elementwise.min: reduce_min,
    _elementwise.bitwise_and: reduce_and,
    _elementwise.bitwise_or: reduce_or,
}


def reduce(
    operand: Any, init_value: Any, computation: Any, dimensions: Sequence[int]
) -> Value:
    """Combine along axes, and with `init_value`, by one of lax's own functions.

    Those are add, mul, max, min, bitwise_and and bitwise_or.
    """
    combined = _MONOIDS.get(computation)
    if combined is None:
        names = ", ".join(f"lax.{function.__name__}" for function in _MONOIDS)
        raise ArgumentError(
            f"lax.reduce: {computation!r} is not known to be associative; takes {names}"
        )
    x = as_value(operand, "lax.reduce")
    if type_of(init_value).shape:
        raise ShapeError(
            f"lax.reduce: starts from a scalar, given {type_of(init_value)}"
        )
    dtype = same_dtype("reduce", x, init_value).dtype
    start = cast_to(as_value(init_value), dtype)
    axes = canonical_axes(dimensions, x.ndim, "lax.reduce")
    if any(x.shape[axis] == 0 for axis in axes):
        kept = [size for axis, size in enumerate(x.shape) if axis not in axes]
        return broadcast_to(start, kept)
    result: Value = computation(combined(cast_to(x, dtype), axes), start)
    return result
