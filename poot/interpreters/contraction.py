"""Matrix products with NumPy's rules for axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from poot.core import dtypes
from poot.core.errors import ShapeError
from poot.core.ops.elementwise import broadcast_shapes
from poot.core.ops.matmul import MatMul
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
    moveaxis,
    reshape,
)

if TYPE_CHECKING:
    from poot.interpreters.methods import Value


def matmul(x: Any, y: Any, preferred_element_type: Any = None) -> Value:
    """The product of matrices in the last two axes; leading axes broadcast."""
    a, b, promoted = _operands("matmul", x, y)
    if not a.ndim or not b.ndim:
        raise ShapeError(
            f"matmul: {a.shape} @ {b.shape}; takes arrays of one axis or more, use "
            "multiply for scalars"
        )
    a_is_vector, b_is_vector = a.ndim == 1, b.ndim == 1
    if a_is_vector:
        a = reshape(a, (1, *a.shape))
    if b_is_vector:
        b = reshape(b, (*b.shape, 1))
    product = _batched(a, b, promoted, preferred_element_type)
    *lead, rows, columns = product.shape
    kept = [*lead, *([] if a_is_vector else [rows])]
    kept += [] if b_is_vector else [columns]
    return reshape(product, kept)


def dot(x: Any, y: Any, preferred_element_type: Any = None) -> Value:
    """The sum over the last axis of `x` and the last but one (or only one) of `y`."""
    a, b, _ = _operands("dot", x, y)
    if not a.ndim or not b.ndim:
        return multiply(a, b)
    if a.ndim <= 2 and b.ndim <= 2:
        return matmul(a, b, preferred_element_type)
    axis = max(b.ndim - 2, 0)
    if a.shape[-1] != b.shape[axis]:
        raise ShapeError(
            f"dot: lhs contracts {a.shape[-1]} along axis {a.ndim - 1}, rhs "
            f"{b.shape[axis]} along axis {axis}; the two must be equal"
        )
    size = a.shape[-1]
    rest = (*b.shape[:axis], *b.shape[axis + 1 :])
    left = reshape(a, (_product(a.shape[:-1]), size))
    right = reshape(moveaxis(b, axis, 0), (size, _product(rest)))
    product = matmul(left, right, preferred_element_type)
    return reshape(product, (*a.shape[:-1], *rest))


def _product(sizes: tuple[int, ...]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total


def _operands(where: str, x: Any, y: Any) -> tuple[Value, Value, Promoted]:
    promoted = promote(where, as_value(x, where), as_value(y, where))
    a, b = promoted.operands
    return a, b, promoted


def _batched(a: Value, b: Value, promoted: Promoted, preferred: Any) -> Value:
    lead = broadcast_shapes("matmul", a.shape[:-2], b.shape[:-2])
    a = _with_lead(a, lead)
    b = _with_lead(b, lead)
    if promoted.dtype.is_bool:
        # Whether any pair of elements is true in both.
        a, b = cast_to(a, dtypes.int32), cast_to(b, dtypes.int32)
        return not_equal(MatMul().bind(a, b), 0)
    out = None if preferred is None else as_element_type(preferred)
    if out is promoted.dtype:
        out = None
    return result_of(promoted, MatMul(out).bind(a, b))


def _with_lead(x: Value, lead: tuple[int, ...]) -> Value:
    return broadcast_to(x, (*lead, *x.shape[-2:]))
