"""Contraction by f64 matrix products, which are exact for small integers."""

from __future__ import annotations

import math

import numpy as np

from poot.core.dtypes import DType
from poot.core.ops.matmul import DotGeneral, IndexedMatMul, MatMul
from poot.core.oracle.table import Arithmetic, Array, impl

_DIGIT_BITS = 16
# So many products of two digits (< 2^32 each) add up below 2^53, exactly in f64.
_EXACT_TERMS = 1 << 20


@impl.define(MatMul)
def _matmul(op: MatMul, arithmetic: Arithmetic, a: Array, b: Array) -> Array:
    return rounded_sums(arithmetic, op.out, a, wide_matmul(arithmetic, a, b))


@impl.define(DotGeneral)
def _dot_general(op: DotGeneral, arithmetic: Arithmetic, a: Array, b: Array) -> Array:
    rows, columns = op.lhs_free(a.ndim), op.rhs_free(b.ndim)
    left = a.transpose((*op.lhs_batch, *rows, *op.lhs_contracting))
    right = b.transpose((*op.rhs_batch, *op.rhs_contracting, *columns))
    batch = left.shape[: len(op.lhs_batch)]
    made = tuple(a.shape[axis] for axis in rows)
    across = tuple(b.shape[axis] for axis in columns)
    inner = math.prod(a.shape[axis] for axis in op.lhs_contracting)
    matrices = left.reshape((*batch, math.prod(made), inner))
    others = right.reshape((*batch, inner, math.prod(across)))
    sums = wide_matmul(arithmetic, matrices, others)
    return rounded_sums(arithmetic, op.out, a, sums.reshape(batch + made + across))


@impl.define(IndexedMatMul)
def _indexed_matmul(
    op: IndexedMatMul, arithmetic: Arithmetic, x: Array, w: Array, idx: Array
) -> Array:
    # Clamped as Python's integers: u64 does not fit NumPy's indices.
    chosen = np.array([min(max(int(i), 0), w.shape[0] - 1) for i in idx], np.intp)
    result = np.zeros(
        (x.shape[0], w.shape[2]), x.dtype if op.out is None else op.out.numpy
    )
    for expert in np.unique(chosen):
        rows = chosen == expert
        sums = wide_matmul(arithmetic, x[rows], w[expert])
        result[rows] = rounded_sums(arithmetic, op.out, x, sums)
    return result


def wide_matmul(arithmetic: Arithmetic, a: Array, b: Array) -> Array:
    """Matrix products of floats in f64, of integers mod 2^64.

    Sums start from +0, so that none is -0.
    """
    if a.dtype.kind in "iu":
        return _integer_matmul(a, b)
    sums: Array = np.matmul(arithmetic.widen(a), arithmetic.widen(b)) + 0.0
    return sums


def rounded_sums(
    arithmetic: Arithmetic, out: DType | None, operand: Array, sums: Array
) -> Array:
    """Sums of products in the dtype `out`, or in the operand's where that is None."""
    dtype = operand.dtype if out is None else out.numpy
    return (
        sums.astype(dtype) if sums.dtype.kind in "iu" else arithmetic.round(sums, dtype)
    )


def _digits(x: Array) -> list[Array]:
    """Digits of 16 bits, lowest first, as f64; the highest carries the sign."""
    digits = []
    for _ in range(-(-x.dtype.itemsize * 8 // _DIGIT_BITS) - 1):
        digits.append((x & 0xFFFF).astype(np.float64))
        x = x >> _DIGIT_BITS
    return [*digits, x.astype(np.float64)]


def _integer_matmul(a: Array, b: Array) -> Array:
    """The product mod 2^64."""
    total = np.zeros((*a.shape[:-1], b.shape[-1]), np.uint64)
    for first in range(0, a.shape[-1], _EXACT_TERMS):
        terms = slice(first, first + _EXACT_TERMS)
        for i, left in enumerate(_digits(a[..., terms])):
            for j, right in enumerate(_digits(b[..., terms, :])):
                if (i + j) * _DIGIT_BITS < 64:
                    partial = np.matmul(left, right).astype(np.int64).view(np.uint64)
                    total += partial << np.uint64((i + j) * _DIGIT_BITS)
    return total
