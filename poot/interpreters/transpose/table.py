"""The table of rules of transposition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from poot.core.op import RuleTable
from poot.core.types import TensorType


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
