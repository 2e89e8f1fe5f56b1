"""Attention: a softmax over keys of what queries and keys make, and its means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from poot.core.builder import Builder
from poot.core.dtypes import DType
from poot.core.equation import ValueId
from poot.core.errors import DTypeError, ShapeError, TypeMismatchError
from poot.core.graph import Graph
from poot.core.op import register
from poot.core.ops.composite import Composite
from poot.core.ops.elementwise import Binary, BinaryOp, Cast, Unary, UnaryOp
from poot.core.ops.matmul import DotGeneral
from poot.core.ops.reduce import Reduce, ReduceOp
from poot.core.ops.shape import Transpose
from poot.core.types import TensorType


@register
@dataclass(frozen=True, slots=True)
class Attention(Composite):
    """softmax(score(q kᵀ, extras)) v, for each index of the batch axes.

    q: [*batch, *rows, D], k: [*batch, S, D], v: [*batch, S, E], then extras of any
    shape. The first `batch` axes are in all three; query heads that share a key head
    are rows. The softmax is over S, and each row of shares weighs the rows of v.
    Operands in other orders of axes come here as views.

    `score` takes the products of queries and keys, [*batch, *rows, S], and the extras;
    it gives the scores in the same shape, element by element. Shares and v are cast to
    dtype `weights` before they are multiplied; the result has dtype `out`, and its axis
    i is axis `order[i]` of [*batch, *rows, E]. With `late` the exponentials weigh the
    rows of v, and the sums of the exponentials divide what comes of that.
    """

    score: Graph
    batch: int
    order: tuple[int, ...]
    weights: DType
    out: DType
    late: bool = False
    name: ClassVar[str] = "attention"

    def infer(
        self, q: TensorType, k: TensorType, v: TensorType, *extras: TensorType
    ) -> TensorType:
        rows = self._rows(q, k, v)
        products = (*q.shape[:-1], k.shape[-2])
        wanted = self.score.input_types
        if wanted[1:] != extras or wanted[0].shape != products:
            raise TypeMismatchError(
                f"attention: the score takes ({', '.join(map(str, wanted))}); the "
                f"products have shape {products}, the extras are "
                f"({', '.join(map(str, extras))})"
            )
        (made,) = self.score.result_types
        if made.shape != products or not made.dtype.is_float:
            raise TypeMismatchError(
                f"attention: the score gives {made}, takes floats of shape {products}"
            )
        whole = (*q.shape[: self.batch], *rows, v.shape[-1])
        if sorted(self.order) != list(range(len(whole))):
            raise ShapeError(
                f"attention: order {self.order} is no permutation of {len(whole)} axes"
            )
        return TensorType(tuple(whole[axis] for axis in self.order), self.out)

    def _rows(self, q: TensorType, k: TensorType, v: TensorType) -> tuple[int, ...]:
        count = self.batch
        shared = q.shape[:count]
        fits = (
            count >= 0
            and q.ndim > count
            and k.ndim == v.ndim == count + 2
            and shared == k.shape[:count] == v.shape[:count]
            and q.shape[-1] == k.shape[-1]
            and k.shape[-2] == v.shape[-2] > 0
        )
        if not fits:
            raise ShapeError(
                f"attention: q, k and v are {q}, {k} and {v}; takes [*batch, *rows, D],"
                f" [*batch, S, D] and [*batch, S, E] with {count} batch axes, S > 0"
            )
        if not (q.dtype is k.dtype and q.dtype.is_float and v.dtype.is_float):
            raise DTypeError(
                f"attention: q, k and v are {q.dtype}, {k.dtype} and {v.dtype}; takes "
                "floats, the first two of one dtype"
            )
        return q.shape[count:-1]

    def decompose(self, *types: TensorType) -> Graph:
        """Contraction, score, softmax, contraction."""
        builder = Builder(composites=True)
        q, k, v, *extras = (builder.input(type) for type in types)
        shared = tuple(range(self.batch))
        last = types[0].ndim - 1
        product = self.score.input_types[0].dtype
        product_of = DotGeneral(
            (last,), (self.batch + 1,), shared, shared, _unless(product, types[0])
        )
        (products,) = builder.emit(product_of, (q, k))
        inner = builder.inline(self.score, [products, *extras])
        scores = inner[self.score.results[0]]
        (peak,) = builder.emit(Reduce(ReduceOp.MAX, last, True), (scores,))
        (below,) = builder.emit(Binary(BinaryOp.SUB), (scores, peak))
        (powers,) = builder.emit(Unary(UnaryOp.EXP), (below,))
        (total,) = builder.emit(Reduce(ReduceOp.SUM, last, True), (powers,))
        weights = powers
        if not self.late:
            (weights,) = builder.emit(Binary(BinaryOp.DIV), (powers, total))
        weights = _as_dtype(builder, weights, self.weights)
        v = _as_dtype(builder, v, self.weights)
        mean_of = DotGeneral(
            (last,),
            (self.batch,),
            shared,
            shared,
            _unless(self.out, builder.type(weights)),
        )
        (result,) = builder.emit(mean_of, (weights, v))
        if self.late:
            total = _as_dtype(builder, total, self.out)
            (result,) = builder.emit(Binary(BinaryOp.DIV), (result, total))
        if self.order != tuple(range(len(self.order))):
            (result,) = builder.emit(Transpose(self.order), (result,))
        builder.result(result)
        return builder.finish()


def _unless(dtype: DType, given: TensorType) -> DType | None:
    """The dtype that a contraction is to be asked for; None if it is the operands'."""
    return None if dtype is given.dtype else dtype


def _as_dtype(builder: Builder, value: ValueId, dtype: DType) -> ValueId:
    if builder.type(value).dtype is dtype:
        return value
    return builder.emit(Cast(dtype), (value,))[0]
