"""Contraction by f64 matrix products, which are exact for small integers."""

from __future__ import annotations

import numpy as np

from poot.core.ops.matmul import MatMul
from poot.core.oracle.table import Arithmetic, Array, impl

_DIGIT_BITS = 16
# So many products of two digits (< 2^32 each) add up below 2^53, exactly in f64.
_EXACT_TERMS = 1 << 20


@impl.define(MatMul)
def _matmul(op: MatMul, arithmetic: Arithmetic, a: Array, b: Array) -> Array:
    out = a.dtype if op.out is None else op.out.numpy
    if a.dtype.kind in "iu":
        return _integer_matmul(a, b).astype(out)
    return arithmetic.round(np.matmul(arithmetic.widen(a), arithmetic.widen(b)), out)


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
