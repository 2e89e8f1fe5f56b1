"""Composites: what passes make of primitives. Each means its decomposition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from poot.core.errors import TypeMismatchError
from poot.core.graph import Graph
from poot.core.op import Op, register
from poot.core.types import TensorType


class Composite(Op):
    """What a pass makes of primitives; a tracer that emits one is refused."""

    __slots__ = ()
    composite: ClassVar[bool] = True

    def decompose(self, *types: TensorType) -> Graph:
        """The composite on operands of these types, one step nearer to primitives.

        This is its one definition: the oracle runs it, kernels are tested against it,
        and planning falls back to it where a device cannot run the composite.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class _Region(Composite):
    """A region of primitives that one kernel computes."""

    body: Graph
    multiple_results: ClassVar[bool] = True

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        wanted = self.body.input_types
        if types != wanted:
            raise TypeMismatchError(
                f"{self.name}: operands are ({', '.join(map(str, types))}), the region "
                f"takes ({', '.join(map(str, wanted))})"
            )
        return self.body.result_types

    def decompose(self, *types: TensorType) -> Graph:
        return self.body


@register
@dataclass(frozen=True, slots=True)
class Table(Composite):
    """The one result of `body`, which depends on no input: computed before all calls.

    Values of it have the storage COMPUTED: a constant that the graph defines.
    """

    body: Graph
    name: ClassVar[str] = "table"

    def infer(self) -> TensorType:
        (type,) = self.body.result_types
        return type

    def decompose(self, *types: TensorType) -> Graph:
        return self.body


@register
@dataclass(frozen=True, slots=True)
class Fused(_Region):
    """Elementwise and shape primitives, computed element by element of the results.

    Operands and results are those of `body`, in order. Results of one shape are
    computed side by side; those of other shapes take turns in the same launch. A result
    may be a DynamicUpdateSlice of an operand that nothing else in `body` reads: only
    the block is computed, and written into the operand's place if that is free.
    """

    name: ClassVar[str] = "fused"


@register
@dataclass(frozen=True, slots=True)
class FusedRow(_Region):
    """Reductions over the last axis with the elementwise primitives around them.

    Every value of `body` is a tensor over the same rows: of shape [*rows, n], or
    [*rows, 1] or [*rows] once reduced, or broadcast to these. Gathers with the rows as
    batch axes take one element of each, at indices [*rows, 1, 1].
    """

    name: ClassVar[str] = "fused_row"
