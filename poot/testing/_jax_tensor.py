"""Primitives that move, reduce, order and contract, in JAX."""

from __future__ import annotations

from typing import Any

import numpy as np

from poot.core.dtypes import as_dtype
from poot.core.ops.cumulative import Cumulative
from poot.core.ops.matmul import MatMul
from poot.core.ops.reduce import ArgReduce, Reduce, ReduceOp
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
from poot.core.ops.sort import ArgTopK, Sort, TopK
from poot.core.ops.window import ReduceWindow, WindowOp, window_identity
from poot.testing._jax_table import found, jax

# --- shape ------------------------------------------------------------------


@jax.define(Broadcast)
def _broadcast(op: Broadcast, j: Any, x: Any) -> Any:
    return j.numpy.broadcast_to(x, op.shape)


@jax.define(Reshape)
def _reshape(op: Reshape, j: Any, x: Any) -> Any:
    return j.lax.reshape(x, op.shape)


@jax.define(Transpose)
def _transpose(op: Transpose, j: Any, x: Any) -> Any:
    return j.lax.transpose(x, op.perm)


@jax.define(Slice)
def _slice(op: Slice, j: Any, x: Any) -> Any:
    return j.lax.slice_in_dim(x, op.start, op.end, op.stride, op.axis)


@jax.define(Concat)
def _concat(op: Concat, j: Any, *xs: Any) -> Any:
    return j.lax.concatenate(xs, op.axis)


@jax.define(Pad)
def _pad(op: Pad, j: Any, x: Any, value: Any) -> Any:
    return j.lax.pad(x, value, op.config)


@jax.define(Reverse)
def _reverse(op: Reverse, j: Any, x: Any) -> Any:
    return j.lax.rev(x, op.axes)


@jax.define(Iota)
def _iota(op: Iota, j: Any) -> Any:
    return j.lax.broadcasted_iota(op.dtype.numpy, op.shape, op.axis)


# --- reductions and scans ---------------------------------------------------


@jax.define(Reduce)
def _reduce(op: Reduce, j: Any, x: Any) -> Any:
    exact = op.op in (ReduceOp.SUM, ReduceOp.PROD)
    kept = {"dtype": x.dtype} if exact else {}
    function = found(j, f"numpy.{op.op.value}")
    return function(x, op.axis, keepdims=op.keepdim, **kept)


@jax.define(ArgReduce)
def _arg_reduce(op: ArgReduce, j: Any, x: Any) -> Any:
    function = found(j, f"numpy.{op.op.value}")
    return function(x, op.axis, keepdims=op.keepdim).astype(np.int32)


@jax.define(Cumulative)
def _cumulative(op: Cumulative, j: Any, x: Any) -> Any:
    # JAX takes no bools, which order as numbers do.
    numbers = x.astype(np.int8) if x.dtype == np.bool_ else x
    function = found(j, f"lax.cum{op.op.value}")
    return function(numbers, op.axis, op.reverse).astype(x.dtype)


_WINDOW = {
    WindowOp.SUM: "lax.add",
    WindowOp.PROD: "lax.mul",
    WindowOp.MAX: "lax.max",
    WindowOp.MIN: "lax.min",
}


@jax.define(ReduceWindow)
def _reduce_window(op: ReduceWindow, j: Any, x: Any) -> Any:
    start = window_identity(op.op, as_dtype(x.dtype)).array[()]
    shape = (op.window, op.strides, op.padding, op.base_dilation, op.window_dilation)
    return j.lax.reduce_window(x, start, found(j, _WINDOW[op.op]), *shape)


# --- order ------------------------------------------------------------------


@jax.define(Sort)
def _sort(op: Sort, j: Any, *operands: Any) -> tuple[Any, ...]:
    """Descending: turned operands sorted upwards, turned back, which is stable."""

    def turned(xs: Any) -> list[Any]:
        return [j.lax.rev(x, (op.axis,)) if op.descending else x for x in xs]

    results = j.lax.sort(turned(operands), dimension=op.axis, num_keys=op.num_keys)
    return tuple(turned(results))


@jax.define(TopK)
def _top_k(op: TopK, j: Any, x: Any) -> tuple[Any, ...]:
    return tuple(j.lax.top_k(x, op.k))


@jax.define(ArgTopK)
def _arg_top_k(op: ArgTopK, j: Any, x: Any) -> Any:
    return j.lax.top_k(x, op.k)[1]


# --- contraction ------------------------------------------------------------


@jax.define(MatMul)
def _matmul(op: MatMul, j: Any, a: Any, b: Any) -> Any:
    out = a.dtype if op.out is None else op.out.numpy
    return j.numpy.matmul(a, b, preferred_element_type=out)
