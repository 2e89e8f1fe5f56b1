"""Contraction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from poot.core.dtypes import DType, Kind
from poot.core.errors import DTypeError, ShapeError
from poot.core.op import Op, register
from poot.core.ops.elementwise import require_kind, require_same_dtype
from poot.core.types import TensorType


@register
@dataclass(frozen=True, slots=True)
class MatMul(Op):
    """`a[..., M, K] @ b[..., K, N]` with equal leading axes.

    Floats are accumulated in f32 (f64 if f64), integers wrap in the result's dtype.
    The result has dtype `out`, or the operands' where that is None.
    """

    out: DType | None = None
    name: ClassVar[str] = "matmul"

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        dtype = require_same_dtype("matmul", a, b)
        require_kind("matmul", dtype, frozenset({Kind.FLOAT, Kind.INT, Kind.UINT}))
        if a.ndim < 2 or a.ndim != b.ndim or a.shape[:-2] != b.shape[:-2]:
            raise ShapeError(
                f"matmul: {a.shape} @ {b.shape}; takes [..., M, K] @ [..., K, N] with "
                "equal leading axes"
            )
        if a.shape[-1] != b.shape[-2]:
            raise ShapeError(
                f"matmul: lhs contracts {a.shape[-1]} along its last axis, rhs "
                f"{b.shape[-2]} along its last but one; the two must be equal"
            )
        out = dtype if self.out is None else self.out
        if out.is_float != dtype.is_float or out.itemsize < dtype.itemsize:
            raise DTypeError(f"matmul: {dtype} operands do not accumulate to {out}")
        return TensorType((*a.shape[:-1], b.shape[-1]), out)
