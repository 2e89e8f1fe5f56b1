"""How far the device's result of one equation may be from the oracle's.

Both have the same operands, bit for bit, so that no error comes from before.

- What neither adds nor multiplies up several floats is within the ulps of its row in
  the table of operations; most of it is exact.
- A sum of n terms in any order, each addition rounded to the accumulator's precision,
  is off by at most (n - 1) u times the sum of the terms' sizes, to first order in u
  (Higham, Accuracy and Stability, 4.2). u is 2^-24, or 2^-53 for f64. One more rounding
  takes it to its dtype. Contractions are sums whose terms are products, each rounded.
  Where the device flushes subnormals of f32, each product and each addition may lose
  one.
- A product of n factors is off by (n - 1) u of itself, if no partial product leaves the
  normal numbers: so it is where the factors above 1 do not, nor those below it.
- log(sum(exp(x))) is m + log(s) with s = sum(exp(x - m)) in 1..n: the relative error of
  s, of n additions and one exp a term, is an absolute one of log(s).

Where a sum of sizes leaves the dtype's range there is no bound: the order of additions
decides whether a partial sum does. The dtypes that are not floats are exact everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from poot.core.dtypes import as_dtype
from poot.core.equation import Eqn
from poot.core.op import PrimitiveKey, RuleTable
from poot.core.ops.conv import Conv
from poot.core.ops.cumulative import Cumulative, CumulativeOp
from poot.core.ops.matmul import DotGeneral, IndexedMatMul, MatMul
from poot.core.ops.reduce import Reduce, ReduceOp
from poot.core.ops.scatter import Scatter, ScatterOp
from poot.core.ops.window import ReduceWindow, WindowOp
from poot.core.oracle.table import Arithmetic, impl
from tests.numerics import SMALLEST_NORMAL_F32, Array, assert_close, flushed
from tests.op_table import TABLE

# Rounding of an exp that is within 4 ulp, and of the subtraction before it.
_EXP_ROUNDINGS = 8

# How many terms or factors an element of the result is made of.
Terms = Callable[[Any, Sequence[Array]], int]
_terms: RuleTable[Terms] = RuleTable("terms")
_SUMS = (
    Reduce[ReduceOp.SUM],
    Cumulative[CumulativeOp.SUM],
    ReduceWindow[WindowOp.SUM],
    Scatter[ScatterOp.ADD],
    PrimitiveKey(MatMul),
    PrimitiveKey(DotGeneral),
    PrimitiveKey(IndexedMatMul),
    PrimitiveKey(Conv),
)
_PRODUCTS = (
    Reduce[ReduceOp.PROD],
    Cumulative[CumulativeOp.PROD],
    ReduceWindow[WindowOp.PROD],
    Scatter[ScatterOp.MUL],
)
_LOGARITHMS = (Cumulative[CumulativeOp.LOGSUMEXP],)
# Of these the order of work decides the last bits.
ACCUMULATING = frozenset({*_SUMS, *_PRODUCTS, *_LOGARITHMS})


@_terms.define(Reduce, Cumulative)
def _along_an_axis(op: Reduce | Cumulative, operands: Sequence[Array]) -> int:
    return operands[0].shape[op.axis]


@_terms.define(ReduceWindow)
def _under_a_window(op: ReduceWindow, operands: Sequence[Array]) -> int:
    return math.prod(op.window)


@_terms.define(Scatter)
def _scattered(op: Scatter, operands: Sequence[Array]) -> int:
    """Each index vector may lead to the one element."""
    return 1 + math.prod(operands[1].shape[:-1])


@_terms.define(MatMul, IndexedMatMul)
def _contracted(op: MatMul | IndexedMatMul, operands: Sequence[Array]) -> int:
    return operands[0].shape[-1]


@_terms.define(DotGeneral)
def _contracted_pairs(op: DotGeneral, operands: Sequence[Array]) -> int:
    return math.prod(operands[0].shape[axis] for axis in op.lhs_contracting)


@_terms.define(Conv)
def _convolved(op: Conv, operands: Sequence[Array]) -> int:
    return math.prod(operands[1].shape[1:])


def accumulates(eqn: Eqn, operands: Sequence[Array]) -> bool:
    """Whether the order of work decides the last bits of the results."""
    return eqn.op.key in ACCUMULATING and as_dtype(operands[0].dtype).is_float


def assert_within_bounds(
    eqn: Eqn,
    operands: Sequence[Array],
    results: Sequence[Array],
    flush: bool,
    where: str,
) -> None:
    """The results of one equation are what the oracle says of these operands."""
    with np.errstate(all="ignore"):
        right = _applied(eqn.op, operands, flush)
        if accumulates(eqn, operands):
            _assert_accumulated(eqn.op, operands, results[0], right[0], flush, where)
            return
    for result, expected in zip(results, right, strict=True):
        row = TABLE[eqn.op.key]
        limit = row.ulps.get(as_dtype(expected.dtype).name, 0)
        assert_close(result, expected, limit, where, flush, row.floor)


def _applied(op: Any, operands: Sequence[Array], flush: bool) -> tuple[Array, ...]:
    made = impl[op.key](op, Arithmetic(flush), *operands)
    return made if op.multiple_results else (made,)


def _assert_accumulated(
    op: Any,
    operands: Sequence[Array],
    result: Array,
    right: Array,
    flush: bool,
    where: str,
) -> None:
    assert (result.shape, result.dtype) == (right.shape, right.dtype), where
    if flush:
        result, right = flushed(result, edge=True), flushed(right, edge=True)
    bound = _bound(op, operands, right) + _spacing(right)
    if flush and op.key in _SUMS and operands[0].dtype != np.float64:
        bound += 2 * _terms[op.key](op, operands) * SMALLEST_NORMAL_F32
    apart = np.abs(result.astype(np.float64) - right.astype(np.float64))
    same = (result == right) | (np.isnan(result) & np.isnan(right))
    good = same | (apart <= bound) | ~np.isfinite(bound)
    if not good.all():
        index = tuple(map(int, np.argwhere(~good)[0]))
        raise AssertionError(
            f"{where}: {np.sum(~good)} of {good.size} elements differ, at "
            f"{list(index)}: given {result[index]!r}, expected {right[index]!r} within "
            f"{bound[index]:.3g}"
        )


def _unit(operands: Sequence[Array]) -> float:
    return 2.0**-53 if operands[0].dtype == np.float64 else 2.0**-24


def _spacing(right: Array) -> Array:
    """One ulp of the result's dtype, f32's smallest subnormal at least."""
    dtype = as_dtype(right.dtype)
    digits = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}[dtype.name]
    return np.abs(right.astype(np.float64)) * 2.0**-digits + 2.0**-149


def _bound(op: Any, operands: Sequence[Array], right: Array) -> Array:
    unit, terms = _unit(operands), _terms[op.key](op, operands)
    if op.key in _SUMS:
        sizes = _of_sizes(op, operands, lambda size: size)
        total = sizes.astype(np.float64) + _spacing(sizes)
        # The oracle's own additions of f64 count too.
        return np.where(np.isfinite(total), 2 * (terms + 1) * unit * total, np.inf)
    if op.key in _PRODUCTS:
        one = np.ones((), operands[0].dtype)
        most = _of_sizes(op, operands, lambda size: np.maximum(size, one))
        least = _of_sizes(op, operands, lambda size: np.minimum(size, one))
        smallest = _smallest_normal(least)
        stays = np.isfinite(most.astype(np.float64)) & (least >= smallest)
        bound = 2 * terms * unit * np.abs(right.astype(np.float64))
        return np.where(stays, bound, np.inf)
    (x,) = operands
    largest = np.max(np.abs(x.astype(np.float64)), op.axis, keepdims=True, initial=0)
    absolute = (terms * (1 + _EXP_ROUNDINGS)) + 4 * (largest + math.log(terms + 1) + 1)
    return np.broadcast_to(2 * unit * absolute, right.shape)


def _of_sizes(
    op: Any, operands: Sequence[Array], change: Callable[[Array], Array]
) -> Array:
    """What the op makes of the sizes of its floats, changed; indices stay."""
    sizes = [change(np.abs(x)) if as_dtype(x.dtype).is_float else x for x in operands]
    return _applied(op, sizes, False)[0]


def _smallest_normal(x: Array) -> float:
    return {"f16": 2.0**-14, "f64": 2.0**-1022}.get(as_dtype(x.dtype).name, 2.0**-126)
