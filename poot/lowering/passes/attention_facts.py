"""What finding attention asks of a graph."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from poot.core.dtypes import DType, Scalar
from poot.core.equation import Eqn, Operand, ValueId
from poot.core.graph import Graph
from poot.core.op import Op
from poot.core.ops.elementwise import Binary, BinaryOp, Cast
from poot.core.ops.matmul import DotGeneral, MatMul
from poot.core.ops.reduce import Reduce, ReduceOp
from poot.core.ops.shape import Slice
from poot.core.text import print_operand
from poot.lowering.passes.attention_axes import MOVES
from poot.lowering.passes.driver import Declined, Reason, named
from poot.lowering.passes.origins import holds_all_of
from poot.lowering.plan.state import ELEMENTWISE

# Equations that are looked through from an exponential to a contraction.
_MOST_AHEAD = 16


@dataclass(frozen=True, slots=True)
class Moved:
    """A value, and the moves that make it of another: equation numbers, first first."""

    root: Operand
    moves: tuple[int, ...]


class Facts:
    """The makers and readers of a graph's values; made once a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.makers = graph.definitions()
        self.users = graph.uses()
        self.kept = frozenset(output.value for output in graph.outputs)

    def eqn(self, value: Operand) -> Eqn | None:
        maker = None if isinstance(value, Scalar) else self.makers.get(value)
        return None if maker is None else self.graph.eqns[maker]

    def readers(self, value: ValueId) -> list[int]:
        return self.users.get(value, [])

    def traced(self, value: Operand) -> Moved:
        """Through moves back to what they move; casts to and from floats among them."""
        moves: list[int] = []
        while True:
            eqn = self.eqn(value)
            if eqn is None or not isinstance(eqn.op, MOVES) or self._cuts(eqn):
                return Moved(value, tuple(reversed(moves)))
            moves.append(self.makers[eqn.out])
            value = eqn.inputs[0]

    def _cuts(self, eqn: Eqn) -> bool:
        """Whether a cast changes numbers by more than a float's rounding."""
        return isinstance(eqn.op, Cast) and not eqn.op.to.is_float

    def require_only(self, value: ValueId, readers: Collection[int], what: str) -> None:
        """Decline unless only these equations read a value."""
        others = [user for user in self.readers(value) if user not in readers]
        if value in self.kept:
            raise Declined(Reason.SHARES_USED, f"%{value}, {what}, is an output")
        if others:
            user = self.graph.eqns[others[0]]
            raise Declined(
                Reason.SHARES_USED,
                f"%{value}, {what}, is read by {user.op} for %{user.outs[0]} too",
            )

    def require_held(self, moves: Iterable[int], dtype: DType, what: str) -> None:
        """Decline if moves cast to what does not hold all numbers of a dtype."""
        for index in moves:
            eqn = self.graph.eqns[index]
            to = self.graph.type(eqn.out).dtype
            if to is dtype or not isinstance(eqn.op, Cast) or holds_all_of(to, dtype):
                continue
            raise Declined(
                Reason.OTHER_DTYPE,
                f"%{eqn.out} is {what} cast to {to}; takes what holds all numbers of "
                f"{dtype}",
            )

    def named(self, operand: Operand) -> str:
        """An operand with its type, as graphs print both."""
        return named(self.graph, operand)

    def made(self, operand: Operand) -> str:
        """An operand, and what makes it."""
        eqn = self.eqn(operand)
        if eqn is None:
            return print_operand(operand)
        given = ", ".join(map(print_operand, eqn.inputs))
        return f"{print_operand(operand)} = {eqn.op}({given})"


def is_contraction(op: Op) -> bool:
    return isinstance(op, DotGeneral | MatMul)


def reaches_contraction(facts: Facts, start: ValueId) -> bool:
    """Whether elementwise ops, moves and slices lead from a value to a contraction.

    Products that are summed are one, too.
    """
    waiting, seen = [start], 0
    while waiting and seen < _MOST_AHEAD:
        value = waiting.pop()
        for user in facts.readers(value):
            eqn = facts.graph.eqns[user]
            seen += 1
            if is_contraction(eqn.op) or _is_spelled_out(facts, value, eqn):
                return True
            moves = isinstance(eqn.op, (*ELEMENTWISE, *MOVES))
            size = facts.graph.type(eqn.out).size
            # A slice takes away shares that weigh nothing, such as that of a sink.
            if isinstance(eqn.op, Slice) or (
                moves and size == facts.graph.type(value).size
            ):
                waiting.append(eqn.out)
    return False


def _is_spelled_out(facts: Facts, value: ValueId, eqn: Eqn) -> bool:
    """Whether the value is multiplied by more elements than it has, for a sum."""
    if eqn.op != Binary(BinaryOp.MUL):
        return False
    readers = (facts.graph.eqns[user].op for user in facts.readers(eqn.out))
    return facts.graph.type(eqn.out).size > facts.graph.type(value).size and any(
        isinstance(op, Reduce) and op.op is ReduceOp.SUM for op in readers
    )
