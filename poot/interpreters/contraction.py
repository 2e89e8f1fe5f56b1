"""Sums of products over axes of two operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from poot.core import dtypes
from poot.core.dtypes import DType, Kind
from poot.core.errors import ArgumentError, DTypeError, ShapeError
from poot.core.op import Op
from poot.core.ops.elementwise import broadcast_shapes
from poot.core.ops.matmul import DotGeneral, MatMul, Precision
from poot.interpreters.arithmetic import multiply, not_equal
from poot.interpreters.promotion import (
    Promoted,
    as_value,
    cast_to,
    promote,
    result_of,
)
from poot.interpreters.shaping import (
    as_element_type,
    broadcast_to,
    reshape,
)

if TYPE_CHECKING:
    from poot.interpreters.methods import Value

# JAX's names for each wish, of which the first is that of the enum.
_PRECISIONS = {
    Precision.DEFAULT: ("default", "fastest", "bfloat16"),
    Precision.HIGH: ("high", "bfloat16_3x", "tensorfloat32"),
    Precision.HIGHEST: ("highest", "float32"),
}


def as_precision(precision: Any) -> Precision:
    """JAX's precision argument: None, a name, a `lax.Precision`, or a pair of these.

    All mean the same here, since f32 is always f32.
    """
    if isinstance(precision, tuple | list) and len(precision) == 2:
        found = [as_precision(one) for one in precision]
        return max(found, key=list(Precision).index)
    if precision is None:
        return Precision.DEFAULT
    for known, names in _PRECISIONS.items():
        if precision is known or precision in names:
            return known
    raise ArgumentError(
        f"precision is {precision!r}, takes None, a lax.Precision, one of "
        f"{sum(_PRECISIONS.values(), ())}, or a pair of these; poot's f32 products and "
        "sums are f32 with any of them"
    )


def matmul(
    x: Any, y: Any, preferred_element_type: Any = None, *, precision: Any = None
) -> Value:
    """The product of matrices in the last two axes; leading axes broadcast.

    Floats add up in f32 at least, whatever the `precision`.
    """
    promoted = promote("matmul", as_value(x, "matmul"), as_value(y, "matmul"))
    a, b = promoted.operands
    if not a.ndim or not b.ndim:
        raise ShapeError(
            f"matmul: {a.shape} @ {b.shape}; takes arrays of one axis or more, use "
            "multiply for scalars"
        )
    wish = as_precision(precision)
    a_is_vector, b_is_vector = a.ndim == 1, b.ndim == 1
    if a_is_vector:
        a = reshape(a, (1, *a.shape))
    if b_is_vector:
        b = reshape(b, (*b.shape, 1))
    product = _batched(a, b, promoted, preferred_element_type, wish)
    *lead, rows, columns = product.shape
    kept = [*lead, *([] if a_is_vector else [rows])]
    kept += [] if b_is_vector else [columns]
    return reshape(product, kept)


def _batched(
    a: Value, b: Value, promoted: Promoted, preferred: Any, precision: Precision
) -> Value:
    lead = broadcast_shapes("matmul", a.shape[:-2], b.shape[:-2])
    if a.shape[:-2] == lead and math.prod(b.shape[:-2]) == 1 and lead:
        # One matrix for all: it need not be repeated.
        shared = reshape(b, b.shape[-2:])
        dims = ((a.ndim - 1,), (0,))
        if a.shape[-1] == shared.shape[0]:
            return _dot_general(
                a, shared, promoted, dims, ((), ()), preferred, precision
            )
    a = broadcast_to(a, (*lead, *a.shape[-2:]))
    b = broadcast_to(b, (*lead, *b.shape[-2:]))
    return contracted("matmul", MatMul, a, b, promoted, preferred)


def dot(
    x: Any, y: Any, preferred_element_type: Any = None, *, precision: Any = None
) -> Value:
    """The sum over the last axis of `x` and the last but one (or only one) of `y`."""
    promoted = promote("dot", as_value(x, "dot"), as_value(y, "dot"))
    a, b = promoted.operands
    if not a.ndim or not b.ndim:
        as_precision(precision)
        product = multiply(a, b)
        if preferred_element_type is None:
            return product
        return cast_to(product, as_element_type(preferred_element_type))
    if a.ndim <= 2 and b.ndim <= 2:
        return matmul(a, b, preferred_element_type, precision=precision)
    axis = max(b.ndim - 2, 0)
    if a.shape[-1] != b.shape[axis]:
        raise ShapeError(
            f"dot: lhs contracts {a.shape[-1]} along axis {a.ndim - 1}, rhs "
            f"{b.shape[axis]} along axis {axis}; the two must be equal"
        )
    dims = ((a.ndim - 1,), (axis,))
    return dot_general(
        a, b, dims, preferred_element_type=preferred_element_type, precision=precision
    )


Axes = tuple[Sequence[int], Sequence[int]]


def dot_general(
    x: Any,
    y: Any,
    contracting: Axes,
    batch: Axes = ((), ()),
    *,
    preferred_element_type: Any = None,
    precision: Any = None,
) -> Value:
    """Sums of products over pairs of axes, for each index of pairs of batch axes.

    The result's axes: batch, what is left of `x`, what is left of `y`.
    """
    promoted = promote("dot_general", as_value(x), as_value(y))
    a, b = promoted.operands
    wish, wanted = as_precision(precision), preferred_element_type
    return _dot_general(a, b, promoted, contracting, batch, wanted, wish)


def _dot_general(
    a: Value,
    b: Value,
    promoted: Promoted,
    contracting: Axes,
    batch: Axes,
    preferred: Any,
    precision: Precision,
) -> Value:
    (own, other), (own_batch, other_batch) = contracting, batch

    def op(out: DType | None) -> Op:
        return DotGeneral(
            tuple(own),
            tuple(other),
            tuple(own_batch),
            tuple(other_batch),
            out,
            precision,
        )

    return contracted("dot_general", op, a, b, promoted, preferred)


def contracted(
    where: str,
    op: Callable[[DType | None], Op],
    a: Value,
    b: Value,
    promoted: Promoted,
    preferred: Any,
) -> Value:
    """Bind a contraction so that it sums up in the dtype `preferred`, if any.

    Of bools: whether any pair of elements is true in both.
    """
    dtype = promoted.dtype
    wanted = dtype if preferred is None else as_element_type(preferred)
    if dtype.is_bool:
        a, b = cast_to(a, dtypes.int32), cast_to(b, dtypes.int32)
        return cast_to(not_equal(op(None).bind(a, b), 0), wanted)
    if wanted.is_float != dtype.is_float or not (wanted.is_float or wanted.is_integer):
        raise DTypeError(
            f"{where}: {dtype} operands do not accumulate to {wanted}; "
            "preferred_element_type takes a float dtype for floats and an integer "
            "dtype for integers"
        )
    result = result_of(promoted, op(_accumulated(dtype, wanted)).bind(a, b))
    return result if preferred is None else cast_to(result, wanted).with_weak(False)


def _accumulated(given: DType, wanted: DType) -> DType | None:
    """The op's `out`: as wide as wanted and of the operands' kind, or None for theirs.

    Sums wrap, so that their bits are right as signed and as unsigned numbers.
    """
    if wanted.itemsize < given.itemsize or wanted is given:
        return None
    if wanted.kind is given.kind:
        return wanted
    if wanted.itemsize == given.itemsize:
        return None
    kinds = {dtype.itemsize: dtype for dtype in dtypes.ALL if dtype.kind is given.kind}
    assert given.kind in (Kind.INT, Kind.UINT)
    return kinds[wanted.itemsize]
