"""The row of attention."""

from __future__ import annotations

import math

import numpy as np

from poot.core import dtypes
from poot.core.builder import Builder
from poot.core.dtypes import DType, Scalar
from poot.core.graph import Graph
from poot.core.ops.attention import Attention
from poot.core.ops.elementwise import Binary, BinaryOp, Compare, CompareOp, Select
from poot.core.ops.shape import Iota
from poot.core.types import TensorType
from tests.numerics import Array
from tests.op_row import Case, OpRow

SCALE = 0.5


def causal_score(
    shape: tuple[int, ...], dtype: DType, bias: bool, masked: float
) -> Graph:
    """Products by half, a bias added maybe, and what lies ahead masked."""
    builder = Builder()
    score = builder.input(TensorType(shape, dtype))
    extra = builder.input(TensorType(shape[-1:], dtype)) if bias else None
    (score,) = builder.emit(Binary(BinaryOp.MUL), (score, Scalar.of(SCALE, dtype)))
    if extra is not None:
        (score,) = builder.emit(Binary(BinaryOp.ADD), (score, extra))
    rows, keys = (
        builder.emit(Iota(dtypes.int32, shape, axis), ())[0]
        for axis in (len(shape) - 2, len(shape) - 1)
    )
    (seen,) = builder.emit(Compare(CompareOp.LE), (keys, rows))
    (score,) = builder.emit(Select(), (seen, score, Scalar.of(masked, dtype)))
    builder.result(score)
    return builder.finish()


def attention_case(
    dtype: DType,
    batch: tuple[int, ...],
    rows: tuple[int, ...],
    keys: int,
    features: int,
    values: int,
    *,
    bias: bool = False,
    masked: float = -np.inf,
    order: tuple[int, ...] | None = None,
    late: bool = False,
) -> Case:
    score = causal_score((*batch, *rows, keys), dtype, bias, masked)
    whole = tuple(range(len(batch) + len(rows) + 1))
    op = Attention(score, len(batch), order or whole, dtype, dtype, late)
    shapes = (*batch, *rows, features), (*batch, keys, features), (*batch, keys, values)
    return Case(
        op,
        (*(TensorType(shape, dtype) for shape in shapes), *score.input_types[1:]),
    )


def _cases(dtype: DType) -> list[Case]:
    least = -60000.0
    return [
        attention_case(dtype, (2,), (2,), 7, 3, 5),
        attention_case(dtype, (2,), (2, 9), 21, 8, 4, bias=True, masked=least),
        attention_case(dtype, (3,), (1, 3), 6, 4, 8, order=(2, 0, 1, 3), late=True),
        attention_case(dtype, (), (1,), 1, 1, 1),
        attention_case(dtype, (0,), (2,), 3, 4, 4),
    ]


def _attention(op: Attention, *operands: Array) -> Array:
    q, k, v, *bias = (x.astype(np.float64) for x in operands)
    count = op.batch
    rows = q.shape[count:-1]
    flat = q.reshape(*q.shape[:count], math.prod(rows), q.shape[-1])
    products = np.einsum("...td,...sd->...ts", flat, k)
    scores = products.reshape(*q.shape[:-1], k.shape[-2]) * SCALE + sum(bias)
    ahead = np.arange(k.shape[-2]) > np.arange(rows[-1])[:, None]
    scores = np.where(ahead, -np.inf, scores)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    shares = powers / powers.sum(-1, keepdims=True)
    shares = shares.reshape(*products.shape)
    means = np.einsum("...ts,...sd->...td", shares, v)
    means = means.reshape(*q.shape[:-1], v.shape[-1])
    return np.transpose(means, op.order).astype(operands[0].dtype)


_ULPS = {"f16": 64, "bf16": 64, "f32": 64}

ROWS = [
    OpRow(
        attention_case(dtypes.float32, (), (1,), 1, 1, 1).op.key,
        (dtypes.float16, dtypes.bfloat16, dtypes.float32),
        _cases,
        _attention,
        ((-2.0, 2.0),),
        anywhere=False,
        ulps=_ULPS,
        reference_ulps=_ULPS,
        floor=0.25,
    )
]
