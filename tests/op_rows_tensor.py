"""The rows of shape, indexing, reduction, contraction and composite primitives."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from poot.core import dtypes
from poot.core.builder import Builder
from poot.core.dtypes import DType, Scalar
from poot.core.graph import Graph
from poot.core.op import Op
from poot.core.ops.composite import Fused, FusedRow, Table
from poot.core.ops.elementwise import Binary, BinaryOp, Unary, UnaryOp
from poot.core.ops.indexing import DynamicSlice, Gather, GatherMode
from poot.core.ops.matmul import MatMul
from poot.core.ops.reduce import ArgReduce, ArgReduceOp, Reduce, ReduceOp
from poot.core.ops.rope import Rope, RopeForm
from poot.core.ops.shape import (
    Broadcast,
    Concat,
    Iota,
    Pad,
    Reshape,
    Reverse,
    Slice,
    Transpose,
)
from poot.core.types import TensorType
from tests import op_references as ref
from tests.numerics import Array
from tests.op_row import (
    BOOL,
    FLOATS,
    INTEGERS,
    MOVED,
    Case,
    OpRow,
    never,
    on_64_bits,
)

_R = ReduceOp
Cases = Callable[[DType], list[Case]]


def cases_of(*pairs: tuple[Op, tuple[tuple[int, ...], ...]]) -> Cases:
    """Each op on operands of the shapes beside it, all of one dtype."""

    def cases(dtype: DType) -> list[Case]:
        return [
            Case(op, tuple(TensorType(shape, dtype) for shape in shapes))
            for op, shapes in pairs
        ]

    return cases


def moves(
    cases: Cases,
    reference: Callable[..., Any],
    **rest: Any,
) -> OpRow:
    """A primitive that moves elements: any bits, which all stay."""
    key = cases(dtypes.float32)[0].op.key
    return OpRow(key, MOVED, cases, reference, **rest)


def _slices(op: Slice, ndim: int) -> tuple[slice, ...]:
    taken = [slice(None)] * ndim
    taken[op.axis] = slice(op.start, op.end, op.stride)
    return tuple(taken)


def _iota_cases(dtype: DType) -> list[Case]:
    shapes = (
        ((300,), 0),
        ((3, 5), 1),
        ((3, 5), 0),
        ((0, 2), 1),
        ((2, 0), 1),
        ((1,), 0),
    )
    return [Case(Iota(dtype, shape, axis), ()) for shape, axis in shapes]


def _iota(op: Iota) -> Array:
    counts = np.indices(op.shape, np.int64)[op.axis]
    return ref.convert(counts, op.dtype)


SHAPES = [
    moves(
        cases_of(
            (Broadcast((4, 3)), ((3,),)),
            (Broadcast((2, 3, 5)), ((3, 1),)),
            (Broadcast((0, 3)), ((1, 3),)),
            (Broadcast((7,)), ((),)),
            (Broadcast(()), ((),)),
        ),
        lambda op, x: (
            np.zeros(op.shape, x.dtype) + x
            if x.dtype == np.int32
            else np.broadcast_to(x, op.shape)
        ),
    ),
    moves(
        cases_of(
            (Reshape((15,)), ((3, 5),)),
            (Reshape((1, 5, 3)), ((3, 5),)),
            (Reshape((2, 0)), ((0, 4),)),
            (Reshape(()), ((1, 1),)),
        ),
        lambda op, x: x.ravel().reshape(op.shape),
        # It stands in its operand's memory, which is copied as bytes at most.
        needs_int64=never,
    ),
    moves(
        cases_of(
            (Transpose((1, 0)), ((3, 5),)),
            (Transpose((2, 0, 1)), ((3, 5, 7),)),
            (Transpose((0, 2, 1)), ((2, 1, 9),)),
            (Transpose((1, 0)), ((0, 3),)),
            (Transpose(()), ((),)),
        ),
        lambda op, x: np.moveaxis(x, op.perm, range(x.ndim)),
    ),
    moves(
        cases_of(
            (Slice(0, 2, 9), ((11,),)),
            (Slice(0, 1, 11, 3), ((11,),)),
            (Slice(1, 2, 5, 2), ((3, 7),)),
            (Slice(0, 3, 3), ((5, 2),)),
            (Slice(1, 0, 0), ((2, 0),)),
        ),
        lambda op, x: x[_slices(op, x.ndim)],
    ),
    moves(
        cases_of(
            (Concat(0), ((3,), (5,))),
            (Concat(1), ((3, 2), (3, 0), (3, 5))),
            (Concat(0), ((2, 3), (1, 3), (4, 3))),
            (Concat(0), ((0, 2),)),
            (Concat(1), ((2, 1, 3), (2, 4, 3))),
        ),
        lambda op, *xs: np.concatenate(xs, op.axis),
    ),
    moves(
        cases_of(
            (Pad(((2, 1, 0),)), ((5,), ())),
            (Pad(((0, 1, 2), (1, -1, 0))), ((3, 4), ())),
            (Pad(((-2, 3, 0),)), ((7,), ())),
            (Pad(((1, 2, 3),)), ((0,), ())),
            (Pad(((-1, -2, 2),)), ((3,), ())),
            (Pad(()), ((), ())),
        ),
        ref.pad,
    ),
    moves(
        cases_of(
            (Reverse((0,)), ((7,),)),
            (Reverse((0, 2)), ((2, 3, 5),)),
            (Reverse((1,)), ((3, 0),)),
            (Reverse(()), ((3,),)),
        ),
        lambda op, x: np.flip(x, op.axes),
    ),
    OpRow(
        Iota(dtypes.int32, (1,), 0).key,
        FLOATS + INTEGERS,
        _iota_cases,
        _iota,
    ),
]


def _gather_cases(dtype: DType) -> list[Case]:
    places = (
        ((7,), (5,), 0, dtypes.int32),
        ((7, 3), (2, 3), 0, dtypes.int64),
        ((3, 7, 2), (4,), 1, dtypes.int8),
        ((3, 5), (), 1, dtypes.uint32),
        ((4, 3), (0,), 0, dtypes.uint8),
        ((0, 3), (0,), 0, dtypes.int32),
        ((3, 0), (2,), 0, dtypes.uint64),
    )
    return [
        Case(
            Gather(axis, mode),
            (TensorType(source, dtype), TensorType(index, index_dtype)),
        )
        for source, index, axis, index_dtype in places
        for mode in GatherMode
    ]


def _dynamic_slice_cases(dtype: DType) -> list[Case]:
    places = (
        ((7,), (3,), dtypes.int32),
        ((5, 6), (2, 6), dtypes.int64),
        ((5, 6), (0, 2), dtypes.uint8),
        ((4, 3, 5), (1, 2, 5), dtypes.int16),
        ((), (), dtypes.int32),
    )
    return [
        Case(
            DynamicSlice(sizes),
            (
                TensorType(shape, dtype),
                *(TensorType((), start) for _ in shape),
            ),
        )
        for shape, sizes, start in places
    ]


INDEXING = [
    OpRow(
        Gather(0).key,
        MOVED,
        _gather_cases,
        ref.gather,
        ((-100.0, 100.0), (-3.0, 9.0)),
    ),
    OpRow(
        DynamicSlice(()).key,
        MOVED,
        _dynamic_slice_cases,
        ref.dynamic_slice,
        ((-100.0, 100.0), (-3.0, 9.0)),
    ),
]


def _reduce_cases(op: type[Reduce | ArgReduce], member: Any, empty: bool) -> Cases:
    pairs = [
        (op(member, 0), ((17,),)),
        (op(member, 1), ((3, 33),)),
        (op(member, 0), ((5, 3),)),
        (op(member, 1, True), ((2, 7, 3),)),
        (op(member, 2), ((2, 0, 3),)),
        (op(member, 1), ((4, 1),)),
    ]
    if empty:
        pairs += [(op(member, 0), ((0,),)), (op(member, 1, True), ((3, 0),))]
    return cases_of(*pairs)


def reduction(
    member: ReduceOp,
    taken: tuple[DType, ...],
    reference: Callable[..., Any],
    **rest: Any,
) -> OpRow:
    empty = member not in (_R.MAX, _R.MIN)
    cases = _reduce_cases(Reduce, member, empty)
    return OpRow(Reduce(member, 0).key, taken, cases, reference, **rest)


def _folded(step: Callable[[Any, Any], Any], start: Any) -> Callable[..., Any]:
    """Fold an axis from its first element on, in Python's numbers."""

    def reference(op: Reduce, x: Array) -> Array:
        rows = np.moveaxis(x, op.axis, -1)
        dtype = dtypes.as_dtype(x.dtype)
        wide = rows.astype(np.float64) if dtype.is_float else rows
        lists = wide.reshape(-1, x.shape[op.axis]).tolist() if rows.size else None
        if lists is None:
            lists = [[]] * math.prod(rows.shape[:-1])
        results = []
        for row in lists:
            total = start
            for element in row:
                total = element if total is None else step(total, element)
            results.append(total)
        shape = list(x.shape)
        shape[op.axis : op.axis + 1] = [1] if op.keepdim else []
        return as_elements(results, dtype).reshape(shape)

    return reference


def as_elements(results: list[Any], dtype: DType) -> Array:
    """Python's numbers as elements; integers wrap."""
    if dtype.is_integer:
        wrapped = [r % (1 << dtype.bits) for r in results]
        return np.array(wrapped, np.dtype(f"u{dtype.itemsize}")).view(dtype.numpy)
    kind = np.float64 if dtype.is_float else np.bool_
    with np.errstate(all="ignore"):
        return np.array(results, kind).astype(dtype.numpy)


def _arg_reduce(best: Callable[..., Any]) -> Callable[..., Any]:
    def reference(op: ArgReduce, x: Array) -> Array:
        rows = np.moveaxis(x, op.axis, -1)
        wide = rows.astype(np.float64) if dtypes.as_dtype(x.dtype).is_float else rows
        places = []
        for row in wide.reshape(-1, x.shape[op.axis]).tolist() if wide.size else []:
            nans = [i for i, element in enumerate(row) if element != element]
            places.append(nans[0] if nans else row.index(best(row)))
        shape = list(x.shape)
        shape[op.axis : op.axis + 1] = [1] if op.keepdim else []
        return np.array(places, np.int32).reshape(shape)

    return reference


_SMALL = {"anywhere": False, "whole": True}
NUMBERS = FLOATS + INTEGERS

REDUCTIONS = [
    reduction(
        _R.SUM,
        NUMBERS,
        _folded(lambda a, b: a + b, 0),
        domains=((-8.0, 8.0),),
        **_SMALL,
    ),
    reduction(
        _R.PROD,
        NUMBERS,
        _folded(lambda a, b: a * b, 1),
        domains=((1.0, 2.0),),
        **_SMALL,
    ),
    *(
        reduction(
            member,
            NUMBERS + BOOL,
            _folded(best, None),
            needs_int64=on_64_bits,
        )
        for member, best in (
            (_R.MAX, ref.largest),
            (_R.MIN, ref.smallest),
        )
    ),
    reduction(_R.ANY, BOOL, _folded(lambda a, b: a or b, False)),
    reduction(_R.ALL, BOOL, _folded(lambda a, b: a and b, True)),
    *(
        OpRow(
            ArgReduce(member, 0).key,
            NUMBERS + BOOL,
            _reduce_cases(ArgReduce, member, False),
            _arg_reduce(best),
            # Few numbers, so that the first of several equal ones is asked for.
            ((-3.0, 3.0),),
            whole=True,
        )
        for member, best in ((ArgReduceOp.ARGMAX, max), (ArgReduceOp.ARGMIN, min))
    ),
]


def _matmul_cases(dtype: DType) -> list[Case]:
    shapes = (
        ((1, 1), (1, 1)),
        ((3, 5), (5, 2)),
        ((17, 33), (33, 65)),
        ((2, 15, 16), (2, 16, 17)),
        ((2, 3, 1, 7), (2, 3, 7, 4)),
        ((3, 0), (0, 4)),
        ((0, 3), (3, 2)),
        ((2, 0, 3), (2, 3, 0)),
    )
    wider = {
        "f16": dtypes.float32,
        "bf16": dtypes.float32,
        "i8": dtypes.int32,
        "u8": dtypes.uint32,
    }
    cases = [
        Case(MatMul(), (TensorType(a, dtype), TensorType(b, dtype))) for a, b in shapes
    ]
    if dtype.name in wider:
        out = MatMul(wider[dtype.name])
        cases += [Case(out, case.types) for case in cases[1:4]]
    return cases


def _matmul(op: MatMul, a: Array, b: Array) -> Array:
    """Products of Python's integers; the operands are whole numbers."""
    out = dtypes.as_dtype(a.dtype) if op.out is None else op.out
    left = a.astype(np.float64 if dtypes.as_dtype(a.dtype).is_float else a.dtype)
    right = b.astype(left.dtype)
    exact = (
        np.matmul(left.astype(object), right.astype(object))
        if a.size and b.size
        else np.zeros((*a.shape[:-1], b.shape[-1]), object)
    )
    return as_elements(exact.ravel().tolist(), out).reshape(exact.shape)


CONTRACTIONS = [
    OpRow(
        MatMul().key,
        NUMBERS,
        _matmul_cases,
        _matmul,
        ((-3.0, 3.0),),
        **_SMALL,
    )
]


def pointwise_body(dtype: DType, shape: tuple[int, ...]) -> Graph:
    """max(x * x, y) + 2 and its negative, with y broadcast."""
    builder = Builder()
    x = builder.input(TensorType(shape, dtype))
    y = builder.input(TensorType(shape[-1:], dtype))
    (squared,) = builder.emit(Binary(BinaryOp.MUL), (x, x))
    (most,) = builder.emit(Binary(BinaryOp.MAX), (squared, y))
    (sum_,) = builder.emit(Binary(BinaryOp.ADD), (most, Scalar.of(2, dtype)))
    (negative,) = builder.emit(Unary(UnaryOp.NEG), (sum_,))
    builder.result(sum_)
    builder.result(negative)
    return builder.finish()


def row_body(dtype: DType, shape: tuple[int, ...]) -> Graph:
    """x less its row's maximum, and the sum of these per row."""
    builder = Builder()
    axis = len(shape) - 1
    x = builder.input(TensorType(shape, dtype))
    (most,) = builder.emit(Reduce(_R.MAX, axis, True), (x,))
    (below,) = builder.emit(Binary(BinaryOp.SUB), (x, most))
    (total,) = builder.emit(Reduce(_R.SUM, axis), (below,))
    builder.result(below)
    builder.result(total)
    return builder.finish()


def _pointwise(op: Fused, x: Array, y: Array) -> tuple[Array, Array]:
    two = np.asarray(2, x.dtype)
    # Each step rounds to the dtype, as NumPy's own arithmetic does.
    result = np.maximum(x * x, y) + two
    return result, -result


def _row(op: FusedRow, x: Array) -> tuple[Array, Array]:
    below = x - x.max(-1, keepdims=True)
    wide = np.float64 if dtypes.as_dtype(x.dtype).is_float else x.dtype
    return below, below.sum(-1, dtype=wide).astype(x.dtype)


def _rope_cases(dtype: DType) -> list[Case]:
    half, interleaved = RopeForm.HALF, RopeForm.INTERLEAVED
    shapes = (
        (Rope(8, half), (2, 3, 8), (3, 4)),
        (Rope(8, half), (3, 16), (1, 8)),
        (Rope(6, half), (5, 7), (5, 3)),
        (Rope(8, interleaved), (2, 3, 8), (3, 8)),
        (Rope(4, interleaved), (2, 9), (2,)),
        (Rope(2, interleaved), (2,), (1,)),
        (Rope(4, half), (0, 4), (2,)),
    )
    return [
        Case(op, tuple(TensorType(shape, dtype) for shape in (x, table, table)))
        for op, x, table in shapes
    ]


def _rope(op: Rope, x: Array, cos: Array, sin: Array) -> Array:
    """As public model code has it: x cos + rotated(x) sin, over whole heads."""
    turned, rest = x[..., : op.rotary], x[..., op.rotary :]
    half = op.rotary // 2
    rotated = np.empty_like(turned)
    first, second = slice(0, None, 2), slice(1, None, 2)
    if op.form is RopeForm.HALF:
        first, second = slice(0, half), slice(half, None)
    rotated[..., first], rotated[..., second] = -turned[..., second], turned[..., first]
    if cos.shape[-1] == half:
        half_form = op.form is RopeForm.HALF
        cos, sin = (
            np.concatenate([t, t], -1) if half_form else np.repeat(t, 2, -1)
            for t in (cos, sin)
        )
    return np.concatenate([turned * cos + rotated * sin, rest], -1)


def _squares(dtype: DType) -> Graph:
    """The squares of the first numbers."""
    builder = Builder()
    (numbers,) = builder.emit(Iota(dtype, (9,), 0), ())
    (squares,) = builder.emit(Binary(BinaryOp.MUL), (numbers, numbers))
    builder.result(squares)
    return builder.finish()


COMPOSITES = [
    OpRow(
        Table(_squares(dtypes.float32)).key,
        NUMBERS,
        lambda dtype: [Case(Table(_squares(dtype)), ())],
        lambda op: np.square(np.arange(9).astype(op.body.result_types[0].dtype.numpy)),
        ((-1.0, 1.0),),
    ),
    OpRow(
        Rope(2, RopeForm.HALF).key,
        FLOATS,
        _rope_cases,
        _rope,
        ((-8.0, 8.0), (-1.0, 1.0), (-1.0, 1.0)),
        **_SMALL,
    ),
    OpRow(
        Fused(pointwise_body(dtypes.float32, (1,))).key,
        NUMBERS,
        lambda dtype: [
            Case(Fused(body), body.input_types)
            for shape in ((3, 5), (2, 1, 9), (0, 3), (1031,))
            for body in [pointwise_body(dtype, shape)]
        ],
        _pointwise,
        ((-8.0, 8.0),),
        needs_int64=on_64_bits,
        **_SMALL,
    ),
    OpRow(
        FusedRow(row_body(dtypes.float32, (1,))).key,
        NUMBERS,
        lambda dtype: [
            Case(FusedRow(body), body.input_types)
            for shape in ((3, 5), (2, 3, 1), (0, 3), (2, 700))
            for body in [row_body(dtype, shape)]
        ],
        _row,
        ((-4.0, 4.0),),
        needs_int64=on_64_bits,
        **_SMALL,
    ),
]

ROWS = [*SHAPES, *INDEXING, *REDUCTIONS, *CONTRACTIONS, *COMPOSITES]
