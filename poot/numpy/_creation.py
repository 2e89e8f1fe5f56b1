"""Arrays from data, from one element, and from ranges."""

from __future__ import annotations

import copy as copying
import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from poot.core.conversion import convert
from poot.core.dtypes import DType
from poot.core.errors import ArgumentError, RangeError, ShapeError
from poot.core.interpreter import current
from poot.core.ops.elementwise import UnaryOp
from poot.core.ops.shape import Concat
from poot.interpreters.arithmetic import (
    add,
    equal,
    greater_equal,
    multiply,
    subtract,
    true_divide,
    unary,
)
from poot.interpreters.dlpack import require_device
from poot.interpreters.methods import Value
from poot.interpreters.promotion import (
    WeakDType,
    as_value,
    cast_to,
    default_float,
    default_int,
    dtype_of,
    fits,
    inexact,
    is_number,
    is_value,
    is_weak,
    join,
    promote,
    result_of,
    scalar,
    type_of,
)
from poot.interpreters.shaping import (
    as_element_type,
    astype,
    broadcast_to,
    canonical_axis,
    canonical_shape,
    expand_dims,
    moveaxis,
    reshape,
)
from poot.lax._shape import broadcasted_iota, filled

# --- from data --------------------------------------------------------------


def asarray(
    a: Any,
    dtype: Any = None,
    order: str | None = None,
    *,
    copy: bool | None = None,
    device: Any = None,
) -> Value:
    """Arrays, numbers and nested sequences of them as an array.

    64-bit data becomes 32-bit unless `config.enable_x64` is on or `dtype` says so.
    With `copy` the memory is another one; `copy=False` refuses what needs one.
    """
    require_device("asarray", device)
    _require_order("asarray", order)
    result = _as_array(a, dtype)
    if copy is False and result is not a:
        raise ArgumentError(
            "poot.numpy.asarray: this needs a copy; use copy=None, or give an array of "
            "the wanted dtype"
        )
    return copying.copy(result) if copy and result is a else result


def _require_order(where: str, order: str | None) -> None:
    """Elements are read row by row, however they lie in memory."""
    if order not in (None, "C", "K", "A"):
        raise ArgumentError(
            f"poot.numpy.{where}: order is {order!r}; arrays have no order in memory, "
            "so that it is 'C', 'A', 'K' or None"
        )


def _as_array(a: Any, dtype: Any) -> Value:
    wanted = None if dtype is None else as_element_type(dtype)
    if isinstance(a, list | tuple):
        return _from_sequence(a, wanted)
    if wanted is None:
        return as_value(a, "poot.numpy.asarray")
    if is_number(a):
        dtype_of(a, "poot.numpy.asarray")
        if wanted.is_integer:
            _require_range([a], wanted)
        lifted: Value = current().lift(scalar(a, wanted))
        return lifted
    if isinstance(a, np.ndarray):
        # By way of 32 bits, 64-bit data would lose what an explicit dtype can hold.
        dtype_of(a, "poot.numpy.asarray")
        a = current().lift(_on_host(a, wanted))
    return astype(a, wanted)


def array(
    object: Any,
    dtype: Any = None,
    copy: bool = True,
    order: str | None = "K",
    ndmin: int = 0,
    *,
    device: Any = None,
) -> Value:
    """As `asarray`, with `ndmin` axes at least; the memory is another one if copied."""
    require_device("array", device)
    _require_order("array", order)
    result = asarray(object, dtype, copy=copy or None)
    if result.ndim < ndmin:
        result = reshape(result, (1,) * (ndmin - result.ndim) + result.shape)
    return result


def copy(a: Any) -> Value:
    """An array of the same elements that lives on if `a` is donated or deleted."""
    return array(a, copy=True)


def ascontiguousarray(a: Any) -> Value:
    """As `asarray`, with one axis at least: every array is contiguous."""
    return array(a, copy=False, ndmin=1)


def _from_sequence(items: Sequence[Any], wanted: DType | None) -> Value:
    leaves = list(_leaves(items))
    if any(is_value(leaf) for leaf in leaves):
        stacked = _stacked(items)
        return astype(stacked, stacked.type.dtype if wanted is None else wanted)
    kinds = {_kind(leaf): leaf for leaf in leaves}
    common = join(map(_dtype_of_leaf, kinds.values())).dtype if kinds else None
    given = common or default_float()
    try:
        host = np.asarray(items)
    except ValueError as error:
        raise ShapeError(
            f"poot.numpy.array: the nested sequences are ragged ({error}); rows of one "
            "axis have equal lengths"
        ) from None
    target = given if wanted is None else wanted
    if target.is_integer:
        _require_range(leaves, target)
    lifted: Value = current().lift(_on_host(host, target))
    return lifted


def _on_host(a: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """Input in the dtype that it is to have on the device, rounded once."""
    with np.errstate(all="ignore"):
        return convert(a, dtype.numpy)


def _leaves(items: Any) -> Iterator[Any]:
    if isinstance(items, list | tuple):
        for item in items:
            yield from _leaves(item)
    else:
        yield items


def _kind(leaf: Any) -> Any:
    return leaf.dtype if isinstance(leaf, np.ndarray | np.generic) else type(leaf)


def _dtype_of_leaf(leaf: Any) -> WeakDType:
    return dtype_of(leaf, "poot.numpy.array")


def _require_range(leaves: list[Any], dtype: DType) -> None:
    for leaf in leaves:
        if isinstance(leaf, int) and not fits(leaf, dtype):
            raise RangeError(
                f"poot.numpy.array: the Python int {leaf} does not fit {dtype}; give a "
                "wider dtype, or enable poot.config.enable_x64"
            )


def _stacked(items: Any) -> Value:
    """Nested sequences with values inside, put together on the device."""
    if not isinstance(items, list | tuple):
        return as_value(items, "poot.numpy.array")
    if not items:
        return zeros((0,))
    promoted = promote("array", *map(_stacked, items))
    shapes = {x.shape for x in promoted.operands}
    if len(shapes) > 1:
        raise ShapeError(
            f"poot.numpy.array: items have shapes {sorted(shapes)}, takes equal ones"
        )
    rows = [expand_dims(x, 0) for x in promoted.operands]
    return result_of(promoted, Concat(0).bind(*rows))


# --- from one element -------------------------------------------------------


def full(
    shape: Any, fill_value: Any, dtype: Any = None, *, device: Any = None
) -> Value:
    """An array of `fill_value`, which broadcasts; weak if a Python number gives it."""
    require_device("full", device)
    if isinstance(fill_value, list | tuple):
        fill_value = asarray(fill_value)
    sizes = canonical_shape(shape, "full")
    return filled("full", sizes, fill_value, dtype)


def zeros(shape: Any, dtype: Any = None, *, device: Any = None) -> Value:
    """An array of zeros, f32 unless a dtype is given."""
    require_device("zeros", device)
    return full(shape, 0, default_float() if dtype is None else dtype)


def ones(shape: Any, dtype: Any = None, *, device: Any = None) -> Value:
    """An array of ones, f32 unless a dtype is given."""
    require_device("ones", device)
    return full(shape, 1, default_float() if dtype is None else dtype)


def empty(shape: Any, dtype: Any = None, *, device: Any = None) -> Value:
    """An array of zeros: memory that nobody has written is never shown."""
    require_device("empty", device)
    return zeros(shape, dtype)


def full_like(
    a: Any,
    fill_value: Any,
    dtype: Any = None,
    shape: Any = None,
    *,
    device: Any = None,
) -> Value:
    """As `full`, with the dtype and shape of `a` where none is given."""
    require_device("full_like", device)
    a = asarray(a) if isinstance(a, list | tuple) else a
    like = type_of(a)
    sizes = like.shape if shape is None else shape
    result = full(sizes, fill_value, like.dtype if dtype is None else dtype)
    return result.with_weak(dtype is None and is_weak(a))


def zeros_like(
    a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None
) -> Value:
    """Zeros with the dtype and shape of `a` where none is given."""
    require_device("zeros_like", device)
    return full_like(a, 0, dtype, shape)


def ones_like(
    a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None
) -> Value:
    """Ones with the dtype and shape of `a` where none is given."""
    require_device("ones_like", device)
    return full_like(a, 1, dtype, shape)


def empty_like(
    a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None
) -> Value:
    """As `zeros_like`."""
    require_device("empty_like", device)
    return zeros_like(a, dtype, shape)


# --- ranges -----------------------------------------------------------------


def _plain_number(x: Any) -> int | float:
    """A bound of a range: its numbers make the shape, so they are needed here."""
    if dtype_of(x, "poot.numpy.arange").dtype.is_float:
        return float(x)
    return operator.index(x)


def arange(
    start: Any,
    stop: Any = None,
    step: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
) -> Value:
    """start, start + step, … below `stop`; from 0 if one bound is given."""
    require_device("arange", device)
    if stop is None:
        start, stop = 0, start
    bounds = (start, stop) if step is None else (start, stop, step)
    given = join(dtype_of(x, "poot.numpy.arange") for x in bounds).dtype
    wanted = given if dtype is None else as_element_type(dtype)
    first, end = _plain_number(start), _plain_number(stop)
    stride = 1 if step is None else _plain_number(step)
    if stride == 0:
        raise ShapeError("poot.numpy.arange: the step is 0, needs another number")
    count = max(0, _count(end - first, stride))
    compute = wanted.compute
    index = broadcasted_iota(compute, (count,), 0)
    if stride != 1:
        index = multiply(index, scalar(stride, compute))
    if first != 0:
        index = add(index, scalar(first, compute))
    return cast_to(index, wanted)


def _count(length: int | float, stride: int | float) -> int:
    if isinstance(length, int) and isinstance(stride, int):
        return -(-length // stride)
    return math.ceil(length / stride)


def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Any:
    """`num` even steps from `start` to `stop`, which broadcast against each other."""
    require_device("linspace", device)
    count = operator.index(num)
    if count < 0:
        raise ShapeError(f"poot.numpy.linspace: num is {count}, needs 0 or more")
    start, stop = asarray(start), asarray(stop)
    given = inexact(join((dtype_of(start), dtype_of(stop))).dtype)
    wanted = given if dtype is None else as_element_type(dtype)
    compute = wanted.compute if wanted.is_float else given.compute
    first, last = (cast_to(x, compute).with_weak(False) for x in (start, stop))
    steps = count - 1 if endpoint else count
    part = broadcasted_iota(compute, (count,), 0)
    if steps > 0:
        part = true_divide(part, float(steps))
    rank = max(first.ndim, last.ndim)
    part = reshape(part, (count,) + (1,) * rank)
    lower, upper = multiply(first, subtract(1.0, part)), multiply(last, part)
    result = add(lower, upper)
    if wanted.is_integer:
        result = unary(UnaryOp.FLOOR, result)
    place = canonical_axis(axis, result.ndim, "linspace")
    result = moveaxis(cast_to(result, wanted), 0, place)
    if not retstep:
        return result
    span = subtract(last, first)
    return result, true_divide(span, float(steps) if steps > 0 else math.nan)


# --- matrices and grids -----------------------------------------------------


def _row_and_column(rows: int, columns: int, k: Any) -> tuple[Value, Value]:
    """The row index, moved by k, and the column index, to be compared."""
    row = broadcasted_iota(default_int(), (rows, 1), 0)
    return add(row, k), broadcasted_iota(default_int(), (1, columns), 1)


def _sizes(where: str, n: Any, m: Any) -> tuple[int, int]:
    rows = operator.index(n)
    columns = rows if m is None else operator.index(m)
    if rows < 0 or columns < 0:
        raise ShapeError(f"poot.numpy.{where}: ({rows}, {columns}) is no shape")
    return rows, columns


def eye(
    N: int,
    M: int | None = None,
    k: Any = 0,
    dtype: Any = None,
    *,
    device: Any = None,
) -> Value:
    """Ones on the k-th diagonal of an N by M matrix, zeros elsewhere."""
    require_device("eye", device)
    row, column = _row_and_column(*_sizes("eye", N, M), k)
    wanted = default_float() if dtype is None else as_element_type(dtype)
    return cast_to(equal(row, column), wanted)


def identity(n: int, dtype: Any = None) -> Value:
    """Ones on the diagonal of an n by n matrix, zeros elsewhere."""
    return eye(n, dtype=dtype)


def triangle(rows: int, columns: int, k: Any) -> Value:
    """True on and below the k-th diagonal."""
    return greater_equal(*_row_and_column(rows, columns, k))


def tri(N: int, M: int | None = None, k: Any = 0, dtype: Any = None) -> Value:
    """Ones on and below the k-th diagonal of an N by M matrix, zeros above."""
    wanted = default_float() if dtype is None else as_element_type(dtype)
    return cast_to(triangle(*_sizes("tri", N, M), k), wanted)


def meshgrid(
    *xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy"
) -> list[Value]:
    """One array an axis, that holds this axis's coordinate at each point of a grid.

    All of them are copies, since arrays have no views.
    """
    if not copy:
        raise ArgumentError("poot.numpy.meshgrid: arrays have no views; use copy=True")
    if indexing not in ("xy", "ij"):
        raise ShapeError(
            f"poot.numpy.meshgrid: indexing is {indexing!r}, takes 'xy' or 'ij'"
        )
    coordinates = [asarray(x) for x in xi]
    if any(x.ndim > 1 for x in coordinates):
        given = ", ".join(str(x.shape) for x in coordinates)
        raise ShapeError(f"poot.numpy.meshgrid: given shapes {given}, takes one axis")
    places = list(range(len(coordinates)))
    if indexing == "xy" and len(places) > 1:
        places[:2] = [1, 0]
    sizes = [1] * len(places)
    for place, x in zip(places, coordinates, strict=True):
        sizes[place] = x.size
    grids = []
    for place, x in zip(places, coordinates, strict=True):
        shape = [1] * len(places)
        shape[place] = x.size
        grid = reshape(x, shape)
        grids.append(grid if sparse else broadcast_to(grid, sizes))
    return grids


def indices(dimensions: Sequence[int], dtype: Any = None, sparse: bool = False) -> Any:
    """The index along each axis of a grid: stacked, or one array an axis if sparse."""
    sizes = canonical_shape(dimensions, "indices")
    wanted = default_int() if dtype is None else as_element_type(dtype)
    if sparse:
        shapes = [
            tuple(size if axis == own else 1 for axis, size in enumerate(sizes))
            for own in range(len(sizes))
        ]
        return tuple(
            broadcasted_iota(wanted, shape, own) for own, shape in enumerate(shapes)
        )
    if not sizes:
        return zeros((0,), wanted)
    rows = [
        broadcasted_iota(wanted, (1, *sizes), axis + 1) for axis in range(len(sizes))
    ]
    return rows[0] if len(rows) == 1 else Concat(0).bind(*rows)
