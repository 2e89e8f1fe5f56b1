"""Rounding, limits and extrema of elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from poot.core.errors import ArgumentError, DTypeError
from poot.core.ops.elementwise import BinaryOp, UnaryOp
from poot.interpreters.arithmetic import binary, multiply, true_divide, unary
from poot.interpreters.promotion import as_value, cast_to

if TYPE_CHECKING:
    from poot.interpreters.methods import Value


def refuse_out(where: str, out: Any) -> None:
    """NumPy's functions of arrays pass `out=None`; anything else has no meaning."""
    if out is not None:
        raise ArgumentError(
            f"{where}: out must be None, since arrays never change; use the result"
        )


def maximum(x: Any, y: Any) -> Value:
    """The larger of two elements; NaN if one is."""
    return binary(BinaryOp.MAX, x, y)


def minimum(x: Any, y: Any) -> Value:
    """The smaller of two elements; NaN if one is."""
    return binary(BinaryOp.MIN, x, y)


def clip(x: Any, min: Any = None, max: Any = None) -> Value:
    """Elements below `min` become it, then those above `max` become that."""
    if min is not None:
        x = maximum(min, x)
    return as_value(x, "clip") if max is None else minimum(max, x)


def round_(a: Any, decimals: int = 0, out: None = None) -> Value:
    """Round to a number of decimals, halves to even."""
    refuse_out("round", out)
    value = as_value(a, "round")
    dtype = value.aval.type.dtype
    if not dtype.is_float:
        if decimals < 0:
            raise DTypeError(
                f"round: {dtype} does not round to {decimals} decimals; cast to float"
            )
        return value
    if decimals == 0:
        return unary(UnaryOp.ROUND, value)
    # Half-precision factors would overflow or lose the decimals.
    wide = cast_to(value, dtype.compute)
    factor = 10.0 ** abs(decimals)
    scale, unscale = multiply, true_divide
    if decimals < 0:
        scale, unscale = true_divide, multiply
    return cast_to(unscale(unary(UnaryOp.ROUND, scale(wide, factor)), factor), dtype)
