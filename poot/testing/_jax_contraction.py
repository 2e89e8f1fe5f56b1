"""Contractions and convolutions in JAX."""

from __future__ import annotations

from typing import Any

from poot.core.ops.conv import Conv
from poot.core.ops.matmul import DotGeneral, IndexedMatMul
from poot.testing._jax_table import jax


def _out(op: Any, x: Any) -> Any:
    return x.dtype if op.out is None else op.out.numpy


def _unsigned_zeros(module: Any, sums: Any) -> Any:
    """+0 for -0, which a lone product may be in JAX; poot's sums start from +0."""
    return module.numpy.where(sums == 0, 0, sums)


@jax.define(DotGeneral)
def _dot_general(op: DotGeneral, j: Any, a: Any, b: Any) -> Any:
    numbers = (
        (op.lhs_contracting, op.rhs_contracting),
        (op.lhs_batch, op.rhs_batch),
    )
    sums = j.lax.dot_general(a, b, numbers, preferred_element_type=_out(op, a))
    return _unsigned_zeros(j, sums)


@jax.define(IndexedMatMul)
def _indexed_matmul(op: IndexedMatMul, j: Any, x: Any, w: Any, idx: Any) -> Any:
    chosen = w[j.numpy.clip(idx, 0, w.shape[0] - 1)]
    sums = j.numpy.einsum("mk,mkn->mn", x, chosen, preferred_element_type=_out(op, x))
    return _unsigned_zeros(j, sums)


@jax.define(Conv)
def _conv(op: Conv, j: Any, x: Any, w: Any) -> Any:
    sums = j.lax.conv_general_dilated(
        x,
        w,
        op.strides,
        op.padding,
        op.lhs_dilation,
        op.rhs_dilation,
        feature_group_count=op.feature_group_count,
        batch_group_count=op.batch_group_count,
        preferred_element_type=_out(op, x),
    )
    return _unsigned_zeros(j, sums)
