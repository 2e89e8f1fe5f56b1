"""Composites of contractions: weights as they are stored, and what follows a sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from poot.core import dtypes
from poot.core.builder import Builder
from poot.core.dtypes import DType, Scalar
from poot.core.equation import Operand, ValueId
from poot.core.errors import (
    DTypeError,
    OperandCountError,
    ShapeError,
    TypeMismatchError,
)
from poot.core.graph import Graph
from poot.core.op import Op, register
from poot.core.ops.composite import Composite, FusedRow
from poot.core.ops.elementwise import Cast
from poot.core.ops.indexing import Gather, GatherMode
from poot.core.ops.matmul import DotGeneral
from poot.core.ops.shape import Reshape
from poot.core.types import TensorType

# What a contraction may read as it is stored and widen exactly.
STORED: tuple[DType, ...] = (dtypes.float32, dtypes.bfloat16, dtypes.float16)


def widened(where: str, *operands: TensorType) -> DType:
    """The dtype that has all elements of the operands: f32 if they differ in theirs."""
    for type in operands:
        if type.dtype not in STORED:
            raise DTypeError(f"{where}: given {type.dtype}, takes f32, bf16 and f16")
    given = {type.dtype for type in operands}
    return operands[0].dtype if len(given) == 1 else dtypes.float32


@register
@dataclass(frozen=True, slots=True)
class DenseContraction(Composite):
    """DotGeneral of operands that are read as they are stored, each in its dtype.

    Where the dtypes (f32, bf16, f16) differ, elements are widened to f32. Axes may come
    in any order: a weight [N, K] of a checkpoint contracts its axis 1. Sums are f32,
    the result has dtype `out`, or that of the widened operands where it is None.
    """

    lhs_contracting: tuple[int, ...]
    rhs_contracting: tuple[int, ...]
    lhs_batch: tuple[int, ...] = ()
    rhs_batch: tuple[int, ...] = ()
    out: DType | None = None
    name: ClassVar[str] = "dense_contraction"

    @property
    def dot(self) -> DotGeneral:
        """The contraction of the widened operands."""
        return DotGeneral(
            self.lhs_contracting,
            self.rhs_contracting,
            self.lhs_batch,
            self.rhs_batch,
            self.out,
        )

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        wide = widened(self.name, a, b)
        return self.dot.infer(TensorType(a.shape, wide), TensorType(b.shape, wide))

    def decompose(self, *types: TensorType) -> Graph:
        builder = Builder()
        wide = widened(self.name, *types)
        operands = [_as(builder, builder.input(type), wide) for type in types]
        builder.result(*builder.emit(self.dot, tuple(operands)))
        return builder.finish()


@register
@dataclass(frozen=True, slots=True)
class GroupedDenseContraction(Composite):
    """Result [G, M, N]: matrix g of [G, M, K] times block g of a weight [G * N, K].

    Dtypes and `out` are as in `DenseContraction`.
    """

    out: DType | None = None
    name: ClassVar[str] = "grouped_dense_contraction"

    @property
    def dense(self) -> DenseContraction:
        """The contraction with the weight as [G, N, K]."""
        return DenseContraction((2,), (2,), (0,), (0,), self.out)

    def blocks(self, a: TensorType, w: TensorType) -> tuple[int, int, int]:
        """The shape [G, N, K] of the weight's blocks."""
        if a.ndim != 3 or w.ndim != 2 or a.shape[2] != w.shape[1]:
            raise ShapeError(
                f"{self.name}: given {a.shape} and {w.shape}; takes [G, M, K] and "
                "[G * N, K]"
            )
        groups = a.shape[0]
        if not groups or w.shape[0] % groups:
            raise ShapeError(
                f"{self.name}: {w.shape[0]} rows of the weight are not {groups} blocks"
            )
        return groups, w.shape[0] // groups, w.shape[1]

    def infer(self, a: TensorType, w: TensorType) -> TensorType:
        return self.dense.infer(a, TensorType(self.blocks(a, w), w.dtype))

    def decompose(self, *types: TensorType) -> Graph:
        builder = Builder(composites=True)
        a, w = (builder.input(type) for type in types)
        (blocks,) = builder.emit(Reshape(self.blocks(*types)), (w,))
        builder.result(*builder.emit(self.dense, (a, blocks)))
        return builder.finish()


@register
@dataclass(frozen=True, slots=True)
class DenseRowGather(Composite):
    """Rows of a bf16 or f16 table [V, *rest] at integer ids, widened to f32.

    The shape is ids.shape + rest; `mode` is as in `Gather`.
    """

    mode: GatherMode = GatherMode.CLIP
    name: ClassVar[str] = "dense_row_gather"

    def infer(self, table: TensorType, ids: TensorType) -> TensorType:
        if table.dtype not in STORED[1:]:
            raise DTypeError(f"{self.name}: given {table.dtype}, takes bf16 and f16")
        rows = Gather(0, self.mode).infer(table, ids)
        return TensorType(rows.shape, dtypes.float32)

    def decompose(self, *types: TensorType) -> Graph:
        builder = Builder()
        table, ids = (builder.input(type) for type in types)
        (rows,) = builder.emit(Gather(0, self.mode), (table, ids))
        builder.result(_as(builder, rows, dtypes.float32))
        return builder.finish()


def _as(builder: Builder, value: ValueId, dtype: DType) -> ValueId:
    if builder.type(value).dtype is dtype:
        return value
    return builder.emit(Cast(dtype), (value,))[0]


@register
@dataclass(frozen=True, slots=True)
class ContractionEpilogue(Composite):
    """Contractions that share their lhs, and what is computed of each sum of products.

    Operands: the lhs, or with a `prologue` what that makes the lhs of; the rhs of each
    head; then extras. `body` takes the heads' results and the extras and gives the
    results. What it makes of heads is elementwise on them or a Reshape; of a lone head
    one Rope may turn pairs of columns. A result may be a DynamicUpdateSlice of an extra
    that nothing else reads: the block is written into its place if that is free. A
    head's result is rounded to its dtype before `body` reads it.
    """

    heads: tuple[Op, ...]
    body: Graph
    prologue: Graph | None = None
    name: ClassVar[str] = "contraction_epilogue"
    multiple_results: ClassVar[bool] = True

    @property
    def lhs_count(self) -> int:
        """How many operands the lhs is made of."""
        return 1 if self.prologue is None else len(self.prologue.inputs)

    def parts(
        self, operands: Sequence[Operand]
    ) -> tuple[Sequence[Operand], Sequence[Operand], Sequence[Operand]]:
        """What makes the lhs, the rhs of each head, and the extras."""
        first = self.lhs_count
        second = first + len(self.heads)
        return operands[:first], operands[first:second], operands[second:]

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        first = self.lhs_count
        second = first + len(self.heads)
        if not self.heads or len(types) < second:
            raise OperandCountError(
                f"{self.name}: given {len(types)} operands, takes at least {second} "
                f"for {len(self.heads)} heads, of which there is one at least"
            )
        lhs = types[0]
        if self.prologue is not None:
            self._require(types[:first], self.prologue.input_types, "the prologue")
            (lhs,) = self.prologue.result_types
        made = [
            head.infer_all(lhs, rhs)[0]
            for head, rhs in zip(self.heads, types[first:second], strict=True)
        ]
        self._require((*made, *types[second:]), self.body.input_types, "the body")
        return self.body.result_types

    def _require(
        self, given: Sequence[TensorType], wanted: Sequence[TensorType], what: str
    ) -> None:
        if tuple(given) != tuple(wanted):
            raise TypeMismatchError(
                f"{self.name}: {what} is given ({', '.join(map(str, given))}), takes "
                f"({', '.join(map(str, wanted))})"
            )

    def decompose(self, *types: TensorType) -> Graph:
        builder = Builder(composites=True)
        inputs = [builder.input(type) for type in types]
        sources, weights, extras = self.parts(inputs)
        (lhs, *_) = sources
        if self.prologue is not None:
            (lhs,) = builder.emit(FusedRow(self.prologue), tuple(sources))
            rest = ContractionEpilogue(self.heads, self.body)
            for result in builder.emit(rest, (lhs, *weights, *extras)):
                builder.result(result)
            return builder.finish()
        heads = [
            builder.emit(head, (lhs, rhs))[0]
            for head, rhs in zip(self.heads, weights, strict=True)
        ]
        values = [v for v in (*heads, *extras) if not isinstance(v, Scalar)]
        known = builder.inline(self.body, values)
        for result in self.body.results:
            builder.result(known[result])
        return builder.finish()

    def head_groups(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Heads that results are made of together, and these results, by number."""
        body = self.body
        reads: dict[ValueId, frozenset[int]] = {
            value: frozenset({number} if number < len(self.heads) else ())
            for number, value in enumerate(body.inputs)
        }
        for eqn in body.eqns:
            read = [reads[o] for o in eqn.inputs if not isinstance(o, Scalar)]
            reads.update(dict.fromkeys(eqn.outs, frozenset().union(*read)))
        groups: list[tuple[set[int], list[int]]] = []
        for number, result in enumerate(body.results):
            heads, results = set(reads[result]), [number]
            for group in [g for g in groups if not heads.isdisjoint(g[0])]:
                groups.remove(group)
                heads |= group[0]
                results += group[1]
            groups.append((heads, results))
        ordered = sorted(groups, key=lambda group: min(group[0], default=0))
        return [(tuple(sorted(heads)), tuple(sorted(r))) for heads, r in ordered]
