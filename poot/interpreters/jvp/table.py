"""The table of rules of forward-mode differentiation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from poot.core.op import Op, RuleTable
from poot.interpreters.primitives import type_of, zeros

# None is a tangent that is zero everywhere; integers and bools have no other.
Tangent = Any | None

# (op, primals, tangents) -> (results, their tangents). At least one tangent is not
# None. Primals may be Scalars; a tangent has the type of its primal, in the result too.
# Ops that the rule binds go to the interpreter below the one of the derivative.
JvpRule = Callable[
    [Any, Sequence[Any], Sequence[Tangent]],
    tuple[tuple[Any, ...], tuple[Tangent, ...]],
]
jvp: RuleTable[JvpRule] = RuleTable("jvp")


def instantiated(tangent: Tangent, primal: Any) -> Any:
    """A tangent as a value, zeros where it is None."""
    return zeros(type_of(primal)) if tangent is None else tangent


def results_of(op: Op, operands: Sequence[Any]) -> tuple[Any, ...]:
    """All results of an op, as a tuple always."""
    made = op.bind(*operands)
    return tuple(made) if op.multiple_results else (made,)
