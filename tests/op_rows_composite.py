"""The rows of the composites that passes make of contractions."""

from __future__ import annotations

from typing import Any

import numpy as np

from poot.core import dtypes
from poot.core.builder import Builder
from poot.core.dtypes import DType, Scalar
from poot.core.graph import Graph
from poot.core.op import Op
from poot.core.ops.contractions import (
    ContractionEpilogue,
    DenseContraction,
    DenseRowGather,
    GroupedDenseContraction,
)
from poot.core.ops.elementwise import Binary, BinaryOp, Unary, UnaryOp
from poot.core.ops.indexing import GatherMode
from poot.core.ops.matmul import DotGeneral, MatMul
from poot.core.ops.reduce import Reduce, ReduceOp
from poot.core.ops.rope import Rope, RopeForm
from poot.core.ops.scatter import DynamicUpdateSlice
from poot.core.ops.shape import Reshape
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


def _gated_body(dtype: DType, shape: tuple[int, ...]) -> Graph:
    """max(x, 1) * y of two heads."""
    builder = Builder()
    x, y = (builder.input(TensorType(shape, dtype)) for _ in range(2))
    (most,) = builder.emit(Binary(BinaryOp.MAX), (x, Scalar.of(1, dtype)))
    builder.result(*builder.emit(Binary(BinaryOp.MUL), (most, y)))
    return builder.finish()


def _below_maximum(dtype: DType, shape: tuple[int, ...]) -> Graph:
    """Rows less their largest element."""
    builder = Builder()
    x = builder.input(TensorType(shape, dtype))
    (most,) = builder.emit(Reduce(ReduceOp.MAX, len(shape) - 1, True), (x,))
    builder.result(*builder.emit(Binary(BinaryOp.SUB), (x, most)))
    return builder.finish()


def _gated_cases(dtype: DType) -> list[Case]:
    """With rows as they are, and less their largest element."""
    cases = []
    dot = DotGeneral((1,), (1,))
    for m, n, k, made in ((1, 8, 70, False), (3, 33, 9, True), (2, 4, 40, True)):
        lhs, rhs = TensorType((m, k), dtype), TensorType((n, k), dtype)
        prologue = _below_maximum(dtype, (m, k)) if made else None
        body = _gated_body(dtype, (m, n))
        op = ContractionEpilogue((dot, dot), body, prologue)
        cases.append(Case(op, (lhs, rhs, rhs)))
    return cases


def _turned_cases(dtype: DType) -> list[Case]:
    """One head of 6 columns, of which 4 are turned, written into rows from 2 on."""
    head, cache = TensorType((3, 2, 6), dtype), TensorType((7, 2, 6), dtype)
    table, start = TensorType((1, 1, 2), dtype), TensorType((), dtypes.int32)
    cases = []
    for form in RopeForm:
        builder = Builder(composites=True)
        x = builder.input(TensorType((3, 12), dtype))
        given = [builder.input(type) for type in (table, table, cache, start)]
        cos, sin, old, at = given
        (x,) = builder.emit(Reshape(head.shape), (x,))
        (x,) = builder.emit(Rope(4, form), (x, cos, sin))
        zero = Scalar.of(0, dtypes.int32)
        update = DynamicUpdateSlice()
        builder.result(*builder.emit(update, (old, x, at, zero, zero)))
        op = ContractionEpilogue((MatMul(),), builder.finish())
        types = TensorType((3, 8), dtype), TensorType((8, 12), dtype)
        cases.append(Case(op, (*types, table, table, cache, start)))
    return cases


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
    return [*cases, *_gated_cases(dtype), *_turned_cases(dtype)]


def _turned(op: Rope, x: Array, cos: Array, sin: Array, old: Array, at: Array) -> Array:
    """Heads of 6 columns, of which 4 are turned, written into rows from `at` on."""
    pairs = [np.s_[..., place] for place in op.parts(6)[:2]]
    (a, b), made, first = (x[pair] for pair in pairs), x.copy(), int(np.clip(at, 0, 4))
    made[pairs[0]] = a * cos - b * sin
    made[pairs[1]] = b * cos + a * sin
    return np.concatenate([old[:first], made, old[first + 3 :]])


def _epilogue(op: ContractionEpilogue, a: Array, *others: Array) -> tuple[Array, ...]:
    wide, one = dtypes.as_dtype(a.dtype).compute.numpy, np.asarray(1, a.dtype)
    if op.prologue is not None:
        a = a - a.max(-1, keepdims=True)
    sums = []
    for head, b in zip(op.heads, others, strict=False):
        turned = isinstance(head, DotGeneral) and head.rhs_contracting == (1,)
        right = (b.T if turned else b).astype(wide)
        sums.append(np.matmul(a.astype(wide), right).astype(a.dtype))
    turns = [eqn.op for eqn in op.body.eqns if isinstance(eqn.op, Rope)]
    if turns:
        return (_turned(turns[0], sums[0].reshape(3, 2, 6), *others[1:]),)
    if len(sums) == 2:
        return (np.maximum(sums[0], one) * sums[1],)
    total = np.maximum(sums[0], one) + others[1]
    return total, -total


# --- weights as they are stored ---------------------------------------------


def _other_dtypes(dtype: DType) -> list[DType]:
    return [other for other in FLOATS[:3] if other is not dtype]


def _dense_cases(dtype: DType) -> list[Case]:
    first, second = _other_dtypes(dtype)
    checkpoint = DenseContraction((1,), (1,))
    given = (
        (checkpoint, (3, 16), dtype, (9, 16)),
        (checkpoint, (1, 130), first, (33, 130)),
        (checkpoint, (5, 72), second, (8, 72)),
        (DenseContraction((2,), (0,), out=dtypes.float32), (2, 4, 7), first, (7, 5)),
        (DenseContraction((1,), (2,), (0,), (1,)), (2, 6, 4), second, (5, 2, 6)),
        (checkpoint, (2, 0), first, (3, 0)),
    )
    return [
        Case(op, (TensorType(a, dtype), TensorType(b, weight)))
        for op, a, weight, b in given
    ]


def _dense(op: DenseContraction, a: Array, b: Array) -> Array:
    letters = "abcdefgh"
    left, right = letters[: a.ndim], list("ijklmno"[: b.ndim])
    for mine, other in zip(
        (*op.lhs_contracting, *op.lhs_batch),
        (*op.rhs_contracting, *op.rhs_batch),
        strict=True,
    ):
        right[other] = left[mine]
    batch = [left[axis] for axis in op.lhs_batch]
    free = [left[axis] for axis in op.dot.lhs_free(a.ndim)]
    across = [right[axis] for axis in op.dot.rhs_free(b.ndim)]
    names = f"{left},{''.join(right)}->{''.join([*batch, *free, *across])}"
    sums = np.einsum(names, a.astype(np.float64), b.astype(np.float64))
    types = (TensorType(x.shape, dtypes.as_dtype(x.dtype)) for x in (a, b))
    return sums.astype(op.infer(*types).dtype.numpy)


def _grouped_cases(dtype: DType) -> list[Case]:
    sizes = ((1, 1, 1, 1), (3, 5, 16, 9), (2, 1, 70, 8))
    return [
        Case(
            GroupedDenseContraction(),
            (TensorType((g, m, k), dtype), TensorType((g * n, k), weight)),
        )
        for (g, m, k, n), weight in zip(sizes, FLOATS[:3], strict=True)
    ]


def _grouped(op: GroupedDenseContraction, a: Array, w: Array) -> Array:
    blocks = w.reshape(a.shape[0], -1, w.shape[1])
    return _dense(op.dense, a, blocks)


def _rows_cases(dtype: DType) -> list[Case]:
    ids = ((dtypes.int32, (4,)), (dtypes.uint8, ()), (dtypes.int64, (2, 3)))
    cases = [
        Case(DenseRowGather(mode), (TensorType((5, 9), dtype), TensorType(shape, kind)))
        for mode in GatherMode
        for kind, shape in ids
    ]
    empty = (TensorType((0, 3), dtype), TensorType((2,), dtypes.int32))
    return [*cases, Case(DenseRowGather(GatherMode.FILL), empty)]


def _rows(op: DenseRowGather, table: Array, ids: Array) -> Array:
    if not table.shape[0]:
        return np.full((*ids.shape, *table.shape[1:]), np.nan, np.float32)
    place = np.clip(ids.astype(np.int64), 0, table.shape[0] - 1)
    rows = table[place].astype(np.float32)
    if op.mode is GatherMode.FILL:
        rows[place != ids.astype(np.int64)] = np.nan
    return rows


ROWS = [
    OpRow(
        DenseContraction((), ()).key,
        FLOATS[:3],
        _dense_cases,
        _dense,
        ((-3.0, 3.0),),
        **_SMALL,
    ),
    OpRow(
        GroupedDenseContraction().key,
        FLOATS[:3],
        _grouped_cases,
        _grouped,
        ((-3.0, 3.0),),
        **_SMALL,
    ),
    OpRow(
        DenseRowGather().key,
        FLOATS[:2],
        _rows_cases,
        _rows,
        ((-3.0, 3.0), (-2.0, 7.0)),
        anywhere=False,
    ),
    OpRow(
        ContractionEpilogue((MatMul(),), _body(dtypes.float32, (1, 1))).key,
        FLOATS[:3],
        _epilogue_cases,
        _epilogue,
        ((-3.0, 3.0),),
        **_SMALL,
    ),
]
