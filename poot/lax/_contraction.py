"""Sums of products, under lax's names. Operands have one dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from poot.core.errors import ArgumentError, ShapeError
from poot.interpreters import contraction
from poot.interpreters.methods import Value
from poot.interpreters.promotion import as_value
from poot.interpreters.shaping import canonical_axes
from poot.lax._operands import same_dtype

Numbers = tuple[
    tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]
]


def dot(
    lhs: Any,
    rhs: Any,
    preferred_element_type: Any = None,
    *,
    dimension_numbers: Numbers | None = None,
    precision: Any = None,
) -> Value:
    """The product of vectors and matrices; floats add up in f32.

    With `dimension_numbers` it is `dot_general`.
    """
    if dimension_numbers is not None:
        return dot_general(
            lhs, rhs, dimension_numbers, precision, preferred_element_type
        )
    a, b = same_dtype("dot", as_value(lhs), as_value(rhs)).operands
    if not (1 <= a.ndim <= 2 and 1 <= b.ndim <= 2):
        raise ShapeError(
            f"lax.dot: given {a.shape} and {b.shape}, takes one or two axes each; use "
            "lax.dot_general or poot.numpy.matmul"
        )
    return contraction.dot(a, b, preferred_element_type, precision=precision)


def dot_general(
    lhs: Any,
    rhs: Any,
    dimension_numbers: Numbers,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Value:
    """Sums of products over pairs of axes, for each index of pairs of batch axes.

    `dimension_numbers` are ((lhs contracting, rhs contracting), (lhs batch, rhs
    batch)). The result's axes: batch, what is left of lhs, what is left of rhs. Floats
    add up in f32 (f64 if f64) and sums are rounded once, to `preferred_element_type` if
    given; integers wrap in the result's dtype. Every `precision` means the same: f32 is
    f32. ShapeError if paired sizes differ.
    """
    a, b = same_dtype("dot_general", as_value(lhs), as_value(rhs)).operands
    try:
        pairs = [tuple(pair) for pair in dimension_numbers]
        (lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch) = pairs
    except (TypeError, ValueError):
        raise ArgumentError(
            f"lax.dot_general: dimension_numbers are {dimension_numbers!r}, take "
            "((lhs contracting, rhs contracting), (lhs batch, rhs batch))"
        ) from None
    where = "lax.dot_general"
    return contraction.dot_general(
        a,
        b,
        (
            canonical_axes(lhs_contracting, a.ndim, where),
            canonical_axes(rhs_contracting, b.ndim, where),
        ),
        (
            canonical_axes(lhs_batch, a.ndim, where),
            canonical_axes(rhs_batch, b.ndim, where),
        ),
        preferred_element_type=preferred_element_type,
        precision=precision,
    )


def batch_matmul(
    lhs: Any, rhs: Any, precision: Any = None, *, preferred_element_type: Any = None
) -> Value:
    """The product of matrices in the last two axes, one a batch; batches are equal."""
    a, b = same_dtype("batch_matmul", as_value(lhs), as_value(rhs)).operands
    if a.ndim < 2 or a.ndim != b.ndim or a.shape[:-2] != b.shape[:-2]:
        raise ShapeError(
            f"lax.batch_matmul: given {a.shape} and {b.shape}, takes equal axes before "
            "the last two; use poot.numpy.matmul, which broadcasts"
        )
    return contraction.matmul(a, b, preferred_element_type, precision=precision)
