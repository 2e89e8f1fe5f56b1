"""Composites of contractions: weights as they are stored, and what follows a sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from poot.core.builder import Builder
from poot.core.dtypes import Scalar
from poot.core.equation import Operand, ValueId
from poot.core.errors import OperandCountError, TypeMismatchError
from poot.core.graph import Graph
from poot.core.op import Op, register
from poot.core.ops.composite import Composite, FusedRow
from poot.core.types import TensorType


@register
@dataclass(frozen=True, slots=True)
class ContractionEpilogue(Composite):
    """Contractions that share their lhs, and what is computed of each sum of products.

    Operands: the lhs, or with a `prologue` what that makes the lhs of; the rhs of each
    head; then extras. `body` is elementwise: it takes the heads' results and the extras
    and gives the results, each of the shape of the heads that it is made of. A head's
    result is rounded to its dtype before `body` reads it.
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
