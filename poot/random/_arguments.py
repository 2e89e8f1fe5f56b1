"""What the functions of random take besides keys: shapes, dtypes and parameters."""

from __future__ import annotations

from typing import Any

from poot import lax
from poot.core.dtypes import DType
from poot.core.errors import ArgumentError, DTypeError, ShapeError
from poot.core.interpreter import current
from poot.interpreters.methods import Value
from poot.interpreters.promotion import (
    converted,
    default_float,
    default_int,
    dtype_of,
    type_of,
)
from poot.interpreters.shaping import as_element_type, canonical_shape


def draw_shape(where: str, shape: Any) -> tuple[int, ...]:
    """A shape to draw; ShapeError for negative sizes."""
    sizes = canonical_shape(shape, f"poot.random.{where}")
    if any(size < 0 for size in sizes):
        raise ShapeError(f"poot.random.{where}: the shape {sizes} has negative sizes")
    return sizes


def parameter_shape(where: str, shape: Any, *parameters: Any) -> tuple[int, ...]:
    """The shape to draw: that of the parameters, or a given one that they fit."""
    shapes = [type_of(parameter).shape for parameter in parameters]
    if shape is None:
        return lax.broadcast_shapes(*shapes)
    sizes = draw_shape(where, shape)
    require_fit(where, sizes, *shapes)
    return sizes


def require_fit(where: str, sizes: tuple[int, ...], *shapes: tuple[int, ...]) -> None:
    """ShapeError unless arrays of these shapes can be repeated to `sizes`."""
    for shape in shapes:
        behind = sizes[len(sizes) - len(shape) :]
        fits = len(shape) <= len(sizes) and all(
            own in (1, size) for own, size in zip(shape, behind, strict=True)
        )
        if not fits:
            raise ShapeError(
                f"poot.random.{where}: a parameter of shape {shape} cannot be repeated "
                f"to the shape {sizes}"
            )


def float_dtype(where: str, dtype: Any) -> DType:
    """The float dtype to draw; the default one for None."""
    wanted = default_float() if dtype is None else as_element_type(dtype)
    if not wanted.is_float:
        raise DTypeError(f"poot.random.{where}: dtype is {wanted}, takes a float dtype")
    return wanted


def integer_dtype(where: str, dtype: Any) -> DType:
    """The integer dtype to draw; the default one for None."""
    wanted = default_int() if dtype is None else as_element_type(dtype)
    if not wanted.is_integer:
        raise DTypeError(
            f"poot.random.{where}: dtype is {wanted}, takes an integer dtype"
        )
    return wanted


def probability_dtype(where: str, p: Any) -> DType:
    """The dtype of a probability; DTypeError unless it is a float."""
    dtype = dtype_of(p, f"poot.random.{where}").dtype
    if not dtype.is_float:
        raise DTypeError(f"poot.random.{where}: p is {dtype}, takes a float dtype")
    return dtype


def parameter(where: str, x: Any, dtype: DType) -> Value:
    """A parameter in the dtype of the draw."""
    own: Value = current().lift(converted(x, dtype, f"poot.random.{where}"))
    return own.with_weak(False)


def require_choice(where: str, name: str, given: Any, *allowed: Any) -> None:
    """ArgumentError for another choice than those allowed."""
    if given not in allowed:
        names = ", ".join(repr(choice) for choice in allowed)
        raise ArgumentError(f"poot.random.{where}: {name} is {given!r}, takes {names}")
