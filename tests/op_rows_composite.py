"""The rows of the composites that passes make of contractions."""

from __future__ import annotations

from typing import Any

import numpy as np

from poot.core import dtypes
from poot.core.builder import Builder
from poot.core.dtypes import DType, Scalar
from poot.core.graph import Graph
from poot.core.op import Op
from poot.core.ops.contractions import ContractionEpilogue
from poot.core.ops.elementwise import Binary, BinaryOp, Unary, UnaryOp
from poot.core.ops.matmul import DotGeneral, MatMul
from poot.core.types import TensorType
from tests.numerics import Array
from tests.op_row import FLOATS, Case, OpRow

_SMALL: dict[str, Any] = {"anywhere": False, "whole": True}


def _body(dtype: DType, shape: tuple[int, ...]) -> Graph:
    """max(x, 1) + bias, and its negative."""
    builder = Builder()
    x = builder.input(TensorType(shape, dtype))
    bias = builder.input(TensorType(shape[-1:], dtype))
    (most,) = builder.emit(Binary(BinaryOp.MAX), (x, Scalar.of(1, dtype)))
    (total,) = builder.emit(Binary(BinaryOp.ADD), (most, bias))
    builder.result(total)
    builder.result(*builder.emit(Unary(UnaryOp.NEG), (total,)))
    return builder.finish()


def _epilogue_cases(dtype: DType) -> list[Case]:
    dots: tuple[tuple[Op, tuple[int, ...], tuple[int, ...]], ...] = (
        (MatMul(), (3, 8), (8, 5)),
        (MatMul(), (2, 1, 130), (2, 130, 8)),
        (DotGeneral((1,), (1,)), (1, 70), (33, 70)),
        (DotGeneral((1,), (0,)), (4, 0), (0, 4)),
        (DotGeneral((1,), (0,)), (0, 4), (4, 4)),
    )
    cases = []
    for op, a, b in dots:
        types = [TensorType(shape, dtype) for shape in (a, b)]
        (made,) = op.infer_all(*types)
        composite = ContractionEpilogue((op,), _body(dtype, made.shape))
        types.append(TensorType(made.shape[-1:], dtype))
        cases.append(Case(composite, tuple(types)))
    return cases


def _epilogue(
    op: ContractionEpilogue, a: Array, b: Array, bias: Array
) -> tuple[Array, Array]:
    wide = dtypes.as_dtype(a.dtype).compute.numpy
    (head,) = op.heads
    right = b.T if isinstance(head, DotGeneral) and head.rhs_contracting == (1,) else b
    sums = np.matmul(a.astype(wide), right.astype(wide)).astype(a.dtype)
    total = np.maximum(sums, np.asarray(1, a.dtype)) + bias
    return total, -total


ROWS = [
    OpRow(
        ContractionEpilogue((MatMul(),), _body(dtypes.float32, (1, 1))).key,
        FLOATS[:3],
        _epilogue_cases,
        _epilogue,
        ((-3.0, 3.0),),
        **_SMALL,
    ),
]
