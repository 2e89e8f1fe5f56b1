"""Contractions: sums of products over axes of two operands."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from poot.core.dtypes import DType, Kind
from poot.core.errors import DTypeError, ShapeError
from poot.core.op import Op, register
from poot.core.ops.elementwise import require_kind, require_same_dtype
from poot.core.types import TensorType

_NUMBERS = frozenset({Kind.FLOAT, Kind.INT, Kind.UINT})


def contracted_dtype(where: str, out: DType | None, *operands: TensorType) -> DType:
    """The dtype of sums of products: `out`, or the operands' where that is None."""
    dtype = require_same_dtype(where, *operands)
    require_kind(where, dtype, _NUMBERS)
    if out is None:
        return dtype
    if out.kind is not dtype.kind or out.itemsize < dtype.itemsize:
        raise DTypeError(
            f"{where}: {dtype} operands do not accumulate to {out}; takes a dtype of "
            "the same kind that is no narrower"
        )
    return out


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
        dtype = contracted_dtype("matmul", self.out, a, b)
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
        return TensorType((*a.shape[:-1], b.shape[-1]), dtype)


class Precision(enum.Enum):
    """JAX's wishes for f32 contractions. poot's f32 is f32: all three mean the same."""

    DEFAULT = "default"
    HIGH = "high"
    HIGHEST = "highest"


def free_axes(ndim: int, *taken: Sequence[int]) -> tuple[int, ...]:
    """The axes that no sequence names, in their order."""
    named = {axis for axes in taken for axis in axes}
    return tuple(axis for axis in range(ndim) if axis not in named)


def _require_axes(side: str, x: TensorType, *groups: Sequence[int]) -> None:
    axes = [axis for group in groups for axis in group]
    if len(set(axes)) != len(axes) or not all(0 <= axis < x.ndim for axis in axes):
        raise ShapeError(
            f"dot_general: contracting and batch axes {axes} of the {side} "
            f"{x.shape}; each axis in 0..{x.ndim - 1} at most once"
        )


@register
@dataclass(frozen=True, slots=True)
class DotGeneral(Op):
    """Sums of products over pairs of axes, for each index of the paired batch axes.

    The result's axes: batch axes as `lhs_batch` lists them, the free ones of the lhs,
    the free ones of the rhs. Accumulation and `out` are as in `MatMul`.
    """

    lhs_contracting: tuple[int, ...]
    rhs_contracting: tuple[int, ...]
    lhs_batch: tuple[int, ...] = ()
    rhs_batch: tuple[int, ...] = ()
    out: DType | None = None
    precision: Precision = Precision.DEFAULT
    name: ClassVar[str] = "dot_general"

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        dtype = contracted_dtype("dot_general", self.out, a, b)
        _require_axes("lhs", a, self.lhs_contracting, self.lhs_batch)
        _require_axes("rhs", b, self.rhs_contracting, self.rhs_batch)
        for kind, left, right in (
            ("contracts", self.lhs_contracting, self.rhs_contracting),
            ("batches", self.lhs_batch, self.rhs_batch),
        ):
            mine, others = (
                [x.shape[i] for i in axes] for x, axes in ((a, left), (b, right))
            )
            if mine != others:
                raise ShapeError(
                    f"dot_general: lhs {a.shape} {kind} axes {left} of sizes {mine}, "
                    f"rhs {b.shape} axes {right} of {others}; they must be equal"
                )
        batch = tuple(a.shape[axis] for axis in self.lhs_batch)
        rows = (a.shape[axis] for axis in self.lhs_free(a.ndim))
        columns = (b.shape[axis] for axis in self.rhs_free(b.ndim))
        return TensorType((*batch, *rows, *columns), dtype)

    def lhs_free(self, ndim: int) -> tuple[int, ...]:
        """The axes of the lhs that are neither contracted nor batch axes."""
        return free_axes(ndim, self.lhs_contracting, self.lhs_batch)

    def rhs_free(self, ndim: int) -> tuple[int, ...]:
        """The same of the rhs."""
        return free_axes(ndim, self.rhs_contracting, self.rhs_batch)


@register
@dataclass(frozen=True, slots=True)
class IndexedMatMul(Op):
    """Row m of the result is `x[m] @ w[idx[m]]`: each row has a matrix of its own.

    x: [M, K], w: [E, K, N], idx: [M] integers, which are clamped to 0..E-1; the result
    is [M, N]. Accumulation and `out` are as in `MatMul`.
    """

    out: DType | None = None
    name: ClassVar[str] = "indexed_matmul"

    def infer(self, x: TensorType, w: TensorType, idx: TensorType) -> TensorType:
        dtype = contracted_dtype("indexed_matmul", self.out, x, w)
        if not idx.dtype.is_integer:
            raise DTypeError(f"indexed_matmul: indices are {idx.dtype}, takes integers")
        if (x.ndim, w.ndim, idx.ndim) != (2, 3, 1) or x.shape[1] != w.shape[1]:
            raise ShapeError(
                f"indexed_matmul: x {x.shape}, w {w.shape}, idx {idx.shape}; takes "
                "[M, K], [E, K, N] and [M]"
            )
        if idx.shape != x.shape[:1]:
            raise ShapeError(
                f"indexed_matmul: {idx.shape[0]} indices of {x.shape[0]} rows; takes "
                "one a row"
            )
        if w.shape[0] == 0 and x.shape[0]:
            raise ShapeError("indexed_matmul: there is no matrix to take; w is empty")
        return TensorType((x.shape[0], w.shape[2]), dtype)
