"""Functions that move or convert elements, behind the methods of arrays."""

from __future__ import annotations

import copy as copying
import math
import operator
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from poot.core import dtypes
from poot.core.dtypes import Scalar
from poot.core.errors import ArgumentError, ShapeError
from poot.core.interpreter import current
from poot.core.ops.elementwise import BitcastConvert
from poot.core.ops.shape import Broadcast, Reshape, Transpose
from poot.interpreters.dlpack import require_device
from poot.interpreters.promotion import (
    as_value,
    cast_to,
    default_float,
    default_int,
    result_like,
)

if TYPE_CHECKING:
    from poot.interpreters.methods import Value


# --- axes and shapes --------------------------------------------------------


def canonical_axis(axis: Any, ndim: int, where: str) -> int:
    """An axis counted from the front; ShapeError if there is none such."""
    number = operator.index(axis)
    if not -ndim <= number < ndim:
        raise ShapeError(
            f"{where}: axis {number} is out of range for an array of {ndim} axes"
        )
    return number % ndim


def canonical_axes(axes: Any, ndim: int, where: str) -> tuple[int, ...]:
    """One axis, several, or None for all, counted from the front."""
    if axes is None:
        return tuple(range(ndim))
    given = axes if isinstance(axes, Iterable) else (axes,)
    found = tuple(canonical_axis(axis, ndim, where) for axis in given)
    if len(set(found)) != len(found):
        raise ShapeError(f"{where}: axes {tuple(given)} name an axis twice")
    return found


def canonical_shape(shape: Any, where: str) -> tuple[int, ...]:
    """A shape given as one size or several, as a tuple of ints."""
    sizes = shape if isinstance(shape, Iterable) else (shape,)
    return tuple(operator.index(size) for size in sizes)


# --- functions --------------------------------------------------------------


def reshape(a: Any, shape: Any, order: str = "C", *, copy: bool | None = None) -> Value:
    """The elements in another shape, row by row (or with order "F" column by column).

    One size may be -1. With `copy` it lives on if `a` is donated or deleted.
    """
    if copy:
        a = copying.copy(as_value(a, "reshape"))
    value = as_value(a, "reshape")
    sizes = canonical_shape(shape, "reshape")
    if _is_by_columns("reshape", order):
        return transpose(reshape(transpose(value), sizes[::-1]))
    if -1 in sizes:
        sizes = _with_inferred_size(value.shape, sizes)
    if sizes == value.shape:
        return value
    return result_like(value, Reshape(sizes).bind(value))


def _with_inferred_size(
    given: tuple[int, ...], sizes: tuple[int, ...]
) -> tuple[int, ...]:
    known = math.prod(size for size in sizes if size != -1)
    total = math.prod(given)
    if sizes.count(-1) > 1 or known == 0 or total % known:
        raise ShapeError(
            f"reshape: {given} has {total} elements, which do not fill {sizes}; one "
            "size at most may be -1, and the others must divide the number"
        )
    return tuple(total // known if size == -1 else size for size in sizes)


def _is_by_columns(where: str, order: str) -> bool:
    if order not in ("C", "F"):
        raise ArgumentError(f"{where}: order is {order!r}, takes 'C' or 'F'")
    return order == "F"


def ravel(a: Any, order: str = "C") -> Value:
    """The elements in one axis, row by row (or with order "F" column by column)."""
    a = as_value(a, "ravel")
    return reshape(a, (a.size,), order)


def transpose(a: Any, axes: Any = None) -> Value:
    """Reorder axes; None turns their order around."""
    value = as_value(a, "transpose")
    if axes is None:
        perm = tuple(reversed(range(value.ndim)))
    else:
        perm = canonical_axes(axes, value.ndim, "transpose")
        if len(perm) != value.ndim:
            raise ShapeError(
                f"transpose: {tuple(axes)} is no order of {value.ndim} axes; name each "
                "axis once"
            )
    if perm == tuple(range(value.ndim)):
        return value
    return result_like(value, Transpose(perm).bind(value))


def swapaxes(a: Any, axis1: int, axis2: int) -> Value:
    """Exchange two axes."""
    a = as_value(a, "swapaxes")
    first = canonical_axis(axis1, a.ndim, "swapaxes")
    second = canonical_axis(axis2, a.ndim, "swapaxes")
    perm = list(range(a.ndim))
    perm[first], perm[second] = second, first
    return transpose(a, perm)


def moveaxis(a: Any, source: Any, destination: Any) -> Value:
    """Move axes to other places; the rest keep their order."""
    a = as_value(a, "moveaxis")
    sources = canonical_axes(source, a.ndim, "moveaxis")
    destinations = canonical_axes(destination, a.ndim, "moveaxis")
    if len(sources) != len(destinations):
        raise ShapeError(
            f"moveaxis: {len(sources)} axes to move to {len(destinations)} places"
        )
    perm = [axis for axis in range(a.ndim) if axis not in sources]
    for place, axis in sorted(zip(destinations, sources, strict=True)):
        perm.insert(place, axis)
    return transpose(a, perm)


def squeeze(a: Any, axis: Any = None) -> Value:
    """Drop axes of size 1: those given, or all."""
    a = as_value(a, "squeeze")
    if axis is None:
        dropped = tuple(i for i, size in enumerate(a.shape) if size == 1)
    else:
        dropped = canonical_axes(axis, a.ndim, "squeeze")
    for i in dropped:
        if a.shape[i] != 1:
            raise ShapeError(
                f"squeeze: axis {i} of {a.shape} has size {a.shape[i]}, needs 1"
            )
    return reshape(a, [size for i, size in enumerate(a.shape) if i not in dropped])


def expand_dims(a: Any, axis: Any) -> Value:
    """Put in axes of size 1 so that they stand at `axis` of the result."""
    a = as_value(a, "expand_dims")
    given = tuple(axis) if isinstance(axis, Sequence) else (axis,)
    ndim = a.ndim + len(given)
    places = canonical_axes(given, ndim, "expand_dims")
    sizes = iter(a.shape)
    return reshape(a, [1 if i in places else next(sizes) for i in range(ndim)])


def broadcast_to(x: Any, shape: Any) -> Value:
    """Repeat along new leading axes and axes of size 1."""
    value = as_value(x, "broadcast_to")
    sizes = canonical_shape(shape, "broadcast_to")
    if sizes == value.shape:
        return value
    return result_like(value, Broadcast(sizes).bind(value))


def astype(x: Any, dtype: Any, copy: bool = False, device: Any = None) -> Value:
    """The elements in another dtype, which is not weak; `float` and `int` mean the
    default ones. With `copy` it lives on if `x` is donated or deleted."""
    require_device("astype", device)
    x = as_value(x, "astype")
    result = cast_to(x, as_element_type(dtype)).with_weak(False)
    return copying.copy(result) if copy and result is x else result


def zeros_of(x: Any) -> Value:
    """Zeros of the type of `x`."""
    x = as_value(x, "zeros_of")
    zero = Scalar.of(0, x.aval.type.dtype)
    return broadcast_to(current().lift(zero, x.aval.weak), x.shape)


def view(x: Any, dtype: Any) -> Value:
    """The same bits as another dtype; of another width, the last axis takes it up."""
    x = as_value(x, "view")
    wanted, given = as_element_type(dtype), x.aval.type.dtype
    sizes = [wanted.itemsize, given.itemsize]
    ratio, is_wider = max(sizes) // min(sizes), wanted.itemsize > given.itemsize
    x = x.with_weak(False)
    if ratio > 1 and (not x.shape or (is_wider and x.shape[-1] % ratio)):
        raise ShapeError(
            f"view: {x.aval.type} as {wanted} needs a last axis"
            + (f" whose size is a multiple of {ratio}" if is_wider else "")
        )
    if is_wider:
        x = reshape(x, (*x.shape[:-1], x.shape[-1] // ratio, ratio))
    bits: Value = BitcastConvert(wanted).bind(x)
    if ratio == 1 or is_wider:
        return bits
    return reshape(bits, (*x.shape[:-1], x.shape[-1] * ratio))


def as_element_type(dtype: Any) -> dtypes.DType:
    """The dtype that a user names; Python's `float` and `int` follow enable_x64."""
    if dtype is float:
        return default_float()
    if dtype is int:
        return default_int()
    return dtypes.as_dtype(dtype)
