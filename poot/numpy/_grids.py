"""Positions in arrays, and the points of grids."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from poot.core.errors import ArgumentError, IndexingError, ShapeError
from poot.interpreters.arithmetic import (
    add,
    bitwise_and,
    floor_divide,
    greater_equal,
    less,
    multiply,
    power,
    remainder,
    select,
)
from poot.interpreters.methods import Value
from poot.interpreters.promotion import cast_to, default_int, inexact, is_value
from poot.interpreters.rounding import clip
from poot.interpreters.shaping import (
    astype,
    canonical_shape,
    moveaxis,
    reshape,
)
from poot.numpy._creation import asarray, linspace
from poot.numpy._elementwise import log10

# --- geometric sequences ----------------------------------------------------


def logspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    base: Any = 10.0,
    dtype: Any = None,
    axis: int = 0,
) -> Value:
    """`base` to the power of `num` even steps from `start` to `stop`."""
    exponents = linspace(start, stop, num, endpoint, axis=axis)
    result = power(base, exponents).with_weak(False)
    return result if dtype is None else astype(result, dtype)


def geomspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    dtype: Any = None,
    axis: int = 0,
) -> Value:
    """`num` numbers from `start` to `stop`, of one sign, each the same factor on."""
    first, last = asarray(start), asarray(stop)
    compute = inexact(add(first, last).type.dtype)
    first, last = cast_to(first, compute), cast_to(last, compute)
    # Two negative ends are mirrored; ends of two signs have no geometric mean: NaN.
    negative = bitwise_and(less(first, 0), less(last, 0))
    way = cast_to(select(negative, -1.0, 1.0), compute)
    low, high = (log10(multiply(way, end)) for end in (first, last))
    result = multiply(way, logspace(low, high, num, endpoint))
    result = moveaxis(result, 0, axis).with_weak(False)
    return result if dtype is None else astype(result, dtype)


# --- grids ------------------------------------------------------------------


class _Grid:
    """`mgrid[0:3, 0:1:5j]`: the coordinates of a grid, given by slices."""

    def __init__(self, name: str, make: Any) -> None:
        self._name = name
        self._make = make

    def __getitem__(self, key: Any) -> Any:
        made = self._make[key]
        if isinstance(made, list | tuple):
            return [asarray(part) for part in made]
        return asarray(made)

    def __repr__(self) -> str:
        return f"poot.numpy.{self._name}"


mgrid = _Grid("mgrid", np.mgrid)
ogrid = _Grid("ogrid", np.ogrid)


def ix_(*args: Any) -> tuple[Value, ...]:
    """Positions along each axis, shaped to broadcast: together the index of a block."""
    found = []
    for place, arg in enumerate(args):
        index = asarray(np.nonzero(arg)[0]) if _is_mask(arg) else asarray(arg)
        if index.ndim != 1:
            raise ShapeError(
                f"poot.numpy.ix_: argument {place} has shape {index.shape}, takes one "
                "axis"
            )
        if not index.size:
            index = astype(index, default_int())
        shape = [1] * len(args)
        shape[place] = index.size
        found.append(reshape(index, shape))
    return tuple(found)


def _is_mask(arg: Any) -> bool:
    return (arg.dtype if is_value(arg) else np.asarray(arg).dtype) == np.bool_


# --- positions --------------------------------------------------------------


def _positions(host: Sequence[np.ndarray[Any, Any]]) -> tuple[Value, ...]:
    return tuple(asarray(index) for index in host)


def diag_indices(n: int, ndim: int = 2) -> tuple[Value, ...]:
    """The index of the main diagonal of an array of `ndim` axes of size n."""
    return _positions(np.diag_indices(operator.index(n), operator.index(ndim)))


def diag_indices_from(arr: Any) -> tuple[Value, ...]:
    """The index of the main diagonal of `arr`, whose axes have one size."""
    shape = asarray(arr).shape
    if len(shape) < 2 or len(set(shape)) != 1:
        raise ShapeError(
            f"poot.numpy.diag_indices_from: given shape {shape}, takes two axes or "
            "more of one size"
        )
    return diag_indices(shape[0], len(shape))


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Value, Value]:
    """The index of what is on and below the k-th diagonal of an n by m matrix."""
    rows, columns = _positions(np.tril_indices(n, k, m))
    return rows, columns


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Value, Value]:
    """The index of what is on and above the k-th diagonal of an n by m matrix."""
    rows, columns = _positions(np.triu_indices(n, k, m))
    return rows, columns


def _of_matrix(where: str, indices: Callable[..., Any], arr: Any, k: int) -> Any:
    shape = asarray(arr).shape
    if len(shape) != 2:
        raise ShapeError(f"poot.numpy.{where}: given shape {shape}, takes a matrix")
    return indices(shape[0], k, shape[1])


def tril_indices_from(arr: Any, k: int = 0) -> tuple[Value, Value]:
    """The index of what is on and below the k-th diagonal of the matrix `arr`."""
    found: tuple[Value, Value] = _of_matrix("tril_indices_from", tril_indices, arr, k)
    return found


def triu_indices_from(arr: Any, k: int = 0) -> tuple[Value, Value]:
    """The index of what is on and above the k-th diagonal of the matrix `arr`."""
    found: tuple[Value, Value] = _of_matrix("triu_indices_from", triu_indices, arr, k)
    return found


def unravel_index(indices: Any, shape: Any) -> tuple[Value, ...]:
    """Row-major positions as an index an axis; negative ones count from the end.

    Positions beyond the ends are taken for the nearest element.
    """
    sizes = canonical_shape(shape, "unravel_index")
    index, total = _whole("unravel_index", indices), math.prod(sizes)
    index = select(less(index, 0), add(index, total), index)
    index = clip(index, 0, max(total - 1, 0))
    found = []
    for size in reversed(sizes):
        found.append(remainder(index, size))
        index = floor_divide(index, size)
    return tuple(reversed(found))


def _whole(where: str, given: Any) -> Value:
    index = asarray(given)
    if not index.type.dtype.is_integer:
        raise IndexingError(
            f"poot.numpy.{where}: given {index.type.dtype}, takes integers"
        )
    return index


def ravel_multi_index(
    multi_index: Sequence[Any], dims: Any, mode: str = "raise", order: str = "C"
) -> Value:
    """An index an axis as row-major positions (column-major with order "F").

    Beyond an axis `mode` "clip" takes the nearest element, "wrap" starts anew, and
    "raise" is an error, for which the index must not be traced.
    """
    sizes = canonical_shape(dims, "ravel_multi_index")
    if len(sizes) != len(multi_index):
        raise ShapeError(
            f"poot.numpy.ravel_multi_index: {len(multi_index)} indices for "
            f"{len(sizes)} axes; takes one an axis"
        )
    if mode not in ("raise", "wrap", "clip") or order not in ("C", "F"):
        raise ArgumentError(
            f"poot.numpy.ravel_multi_index: mode {mode!r} and order {order!r}; takes "
            "mode 'raise', 'wrap' or 'clip' and order 'C' or 'F'"
        )
    total: Any = 0
    pairs = list(zip(sizes, multi_index, strict=True))
    for size, given in pairs if order == "C" else reversed(pairs):
        index = _inside(_whole("ravel_multi_index", given), size, mode)
        total = add(multiply(total, size), index)
    return asarray(total).with_weak(False)


def _inside(index: Value, size: int, mode: str) -> Value:
    if mode == "wrap":
        return remainder(index, size)
    if mode == "clip":
        return clip(index, 0, size - 1)
    if not bool(bitwise_and(greater_equal(index, 0), less(index, size)).all()):
        raise IndexingError(
            f"poot.numpy.ravel_multi_index: an index is out of range for an axis of "
            f"size {size}; use mode 'clip' or 'wrap'"
        )
    return index
