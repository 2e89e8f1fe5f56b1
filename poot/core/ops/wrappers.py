"""Wrappers of sub-graphs that carry what transformations need; planning sees none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from poot.core.errors import TypeMismatchError
from poot.core.graph import Graph
from poot.core.op import CustomRule, Op, register
from poot.core.types import TensorType


@dataclass(frozen=True, slots=True)
class Wrapper(Op):
    """An op that means its body: evaluation and planning put that in its place."""

    body: Graph
    multiple_results: ClassVar[bool] = True
    transient: ClassVar[bool] = True

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        if types != self.body.input_types:
            raise TypeMismatchError(
                f"{self.name}: operands are ({', '.join(map(str, types))}), the body "
                f"takes ({', '.join(map(str, self.body.input_types))})"
            )
        return self.body.result_types


@register
@dataclass(frozen=True, slots=True)
class CustomJvp(Wrapper):
    """A function whose derivative its user gave as a forward-mode rule.

    The first `captured` operands came from around the function; they must not move.
    """

    rule: CustomRule
    captured: int
    name: ClassVar[str] = "custom_jvp"


@register
@dataclass(frozen=True, slots=True)
class CustomVjp(Wrapper):
    """A function whose derivative its user gave as a reverse-mode rule."""

    rule: CustomRule
    captured: int
    name: ClassVar[str] = "custom_vjp"


@register
@dataclass(frozen=True, slots=True)
class CustomVmap(Wrapper):
    """A function whose batching its user gave as a rule.

    The first `captured` operands came from around the function; they must not be
    batched.
    """

    rule: CustomRule
    captured: int
    name: ClassVar[str] = "custom_vmap"


@register
@dataclass(frozen=True, slots=True)
class Remat(Wrapper):
    """A function of which reverse mode keeps the operands and computes the rest anew.

    `policy` says of ops whose results it keeps too.
    """

    policy: CustomRule | None
    name: ClassVar[str] = "remat"


@register
@dataclass(frozen=True, slots=True)
class CheckpointName(Wrapper):
    """A value under a label that policies of `Remat` know it by."""

    label: str
    name: ClassVar[str] = "checkpoint_name"


@register
@dataclass(frozen=True, slots=True)
class OptimizationBarrier(Op):
    """Its operands. No pass merges what stands before it with what comes after."""

    name: ClassVar[str] = "optimization_barrier"
    multiple_results: ClassVar[bool] = True
    transient: ClassVar[bool] = True

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        return types


@register
@dataclass(frozen=True, slots=True)
class CustomTangent(Op):
    """The tangents of a `CustomVjp`: linear in its tangents, known by its transpose.

    Operands: `results` values, whose types those of the results are, `residuals` values
    that the forward function kept, then tangents of the operands.
    """

    rule: CustomRule
    results: int
    residuals: int
    name: ClassVar[str] = "custom_tangent"
    multiple_results: ClassVar[bool] = True
    transient: ClassVar[bool] = True

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        return types[: self.results]
