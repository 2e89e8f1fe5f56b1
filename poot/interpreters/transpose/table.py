"""The table of rules of transposition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from poot.core.errors import NotLinearError
from poot.core.op import Op, RuleTable
from poot.core.types import TensorType
from poot.interpreters.primitives import type_of


@dataclass(frozen=True, slots=True)
class Linear:
    """An operand that the results depend on linearly: only its type is known."""

    type: TensorType


# None is a cotangent that is zero everywhere.
Cotangent = Any | None

# (op, cotangents of the results, operands) -> cotangents of the operands. At least one
# cotangent is not None and one operand is Linear; the others are values or Scalars.
# Cotangents have the types of what they are of; those of operands that are not Linear
# are None.
TransposeRule = Callable[
    [Any, Sequence[Cotangent], Sequence[Any]], tuple[Cotangent, ...]
]
transpose: RuleTable[TransposeRule] = RuleTable("transpose")


def transpose_rule(op: Op) -> TransposeRule:
    """The rule of an op; NotLinearError if it has none."""
    if op.key not in transpose:
        raise not_linear(op)
    return transpose[op.key]


def not_linear(op: Op, where: str = "in any operand") -> NotLinearError:
    """What says that an op has no transpose, and what to do."""
    return NotLinearError(
        f"{op} is not linear {where}, so it has no transpose; transpose functions that "
        "are linear (in a custom derivative: linear in the tangents), and "
        "differentiate others by grad or vjp"
    )


def operand_type(x: Any) -> TensorType:
    """The type of an operand, Linear or not."""
    return x.type if isinstance(x, Linear) else type_of(x)


def require_one_linear(op: Op, a: Any, b: Any) -> None:
    """Raise NotLinearError if both factors of a product are Linear."""
    if isinstance(a, Linear) and isinstance(b, Linear):
        raise not_linear(op, "in both factors at once")
