"""Finds a softmax between two contractions: from its exponential to both."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from poot.core.dtypes import Scalar
from poot.core.equation import Eqn, Operand, ValueId
from poot.core.graph import Graph
from poot.core.op import Op, PrimitiveKey
from poot.core.ops.elementwise import Binary, BinaryOp, Unary, UnaryOp
from poot.core.ops.matmul import DotGeneral, MatMul
from poot.core.ops.reduce import Reduce, ReduceOp
from poot.core.ops.shape import Slice
from poot.lowering.passes.attention_axes import MOVES
from poot.lowering.passes.driver import Reason
from poot.lowering.plan.state import ELEMENTWISE

_LARGEST = PrimitiveKey(Reduce, ReduceOp.MAX)
# Equations that are looked through from an exponential to a contraction.
_MOST_AHEAD = 16


class Declined(Exception):
    """Why something that looks like attention is none."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


@dataclass(frozen=True, slots=True)
class Moved:
    """A value, and the moves that make it of another: equation numbers, first first."""

    root: Operand
    moves: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Softmax:
    """A softmax whose shares weigh the rows of a contraction's operand.

    `scores` are the values below whose peak the exponentials are taken; `axis` is that
    of the keys. The moves of `peak`, `total` and `weights` are as in `Moved`: those of
    the largest scores to what is taken off, those of the sums to the divisor, and those
    of the shares (or of the exponentials if `late`) to the contraction.
    """

    scores: ValueId
    axis: int
    peak: Moved
    total: Moved
    # The values of the two reductions and of the difference, the exponentials, and what
    # is weighed: shares or exponentials.
    largest: Eqn
    sum: Eqn
    below: ValueId
    powers: ValueId
    shares: ValueId
    weights: Moved
    # The contraction, and which of its operands the weights are.
    contraction: int
    side: int
    # If late: the moves from the contraction's result to the quotient, and that.
    late: tuple[tuple[int, ...], int] | None
    last: int


class Facts:
    """What finding attention asks of a graph; made once a graph."""

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
        """Through moves back to what they move."""
        moves: list[int] = []
        while True:
            eqn = self.eqn(value)
            if eqn is None or not isinstance(eqn.op, MOVES):
                return Moved(value, tuple(reversed(moves)))
            moves.append(self.makers[eqn.out])
            value = eqn.inputs[0]


def is_contraction(op: Op) -> bool:
    return isinstance(op, DotGeneral | MatMul)


def _is(eqn: Eqn | None, op: Op) -> bool:
    return eqn is not None and eqn.op == op


def reaches_contraction(facts: Facts, start: ValueId) -> bool:
    """Whether elementwise ops, moves and slices lead from a value to a contraction."""
    waiting, seen = [start], 0
    while waiting and seen < _MOST_AHEAD:
        value = waiting.pop()
        for user in facts.readers(value):
            eqn = facts.graph.eqns[user]
            seen += 1
            if is_contraction(eqn.op):
                return True
            moves = isinstance(eqn.op, (*ELEMENTWISE, *MOVES))
            size = facts.graph.type(eqn.out).size
            # A slice takes away shares that weigh nothing, such as that of a sink.
            if isinstance(eqn.op, Slice) or (
                moves and size == facts.graph.type(value).size
            ):
                waiting.append(eqn.out)
    return False


def find_softmax(facts: Facts, index: int) -> Softmax | None:
    """The softmax around the exponential of an equation, if it leads to a contraction.

    Declined if it does, but is none or is not only read there.
    """
    found = _Found(facts, facts.graph.eqns[index])
    if not found.is_candidate or not reaches_contraction(facts, found.powers):
        return None
    return found.softmax()


class _Found:
    """One exponential that leads to a contraction."""

    def __init__(self, facts: Facts, eqn: Eqn) -> None:
        self.facts, self.graph = facts, facts.graph
        self.powers = eqn.out
        self.exponent = eqn.inputs[0]

    @property
    def is_candidate(self) -> bool:
        """Whether exponentials are summed, or of what is below some largest."""
        readers = (self.graph.eqns[u] for u in self.facts.readers(self.powers))
        if any(isinstance(eqn.op, Reduce) for eqn in readers):
            return True
        below = self.facts.eqn(self.exponent)
        if below is None or not _is(below, Binary(BinaryOp.SUB)):
            return False
        largest = self.facts.eqn(self.facts.traced(below.inputs[1]).root)
        return largest is not None and largest.op.key == _LARGEST

    def softmax(self) -> Softmax:
        scores, peak, largest, below = self._peak()
        assert isinstance(largest.op, Reduce)
        axis = largest.op.axis
        sum = self._sum(axis)
        shares, total = self._shares(sum)
        weights, contraction = self._weights(shares)
        late, last = None, contraction
        if total is None:
            moved = weights.moves[0] if weights.moves else contraction
            summed = self.facts.makers[sum.out]
            self._only(self.powers, [summed, moved], "the exponentials")
            late, total, last = self._late(contraction, sum)
        eqn = self.graph.eqns[contraction]
        target = weights.root if not weights.moves else self._out(weights.moves[-1])
        side = eqn.inputs.index(target)
        return Softmax(
            scores,
            axis,
            peak,
            total,
            largest,
            sum,
            below,
            self.powers,
            shares,
            weights,
            contraction,
            side,
            late,
            last,
        )

    def _out(self, index: int) -> ValueId:
        return self.graph.eqns[index].out

    def _only(self, value: ValueId, readers: Iterable[int], what: str) -> None:
        """Decline unless only these equations read a value."""
        others = [user for user in self.facts.readers(value) if user not in readers]
        if value in self.facts.kept:
            raise Declined(Reason.SHARES_USED, f"%{value}, {what}, is an output")
        if others:
            user = self.graph.eqns[others[0]]
            raise Declined(
                Reason.SHARES_USED,
                f"%{value}, {what}, is read by {user.op} for %{user.outs[0]} too",
            )

    # --- before the exponential ---------------------------------------------

    def _peak(self) -> tuple[ValueId, Moved, Eqn, ValueId]:
        below = self.facts.eqn(self.exponent)
        if below is None or not _is(below, Binary(BinaryOp.SUB)):
            raise Declined(
                Reason.NO_PEAK, f"the exponent {_named(self.exponent)} is no difference"
            )
        scores, taken = below.inputs
        peak = self.facts.traced(taken)
        largest = self.facts.eqn(peak.root)
        is_largest = largest is not None and largest.op.key == _LARGEST
        if largest is None or not is_largest or isinstance(scores, Scalar):
            raise Declined(
                Reason.NO_PEAK, f"{_named(taken)} is taken off, which is no largest"
            )
        if largest.inputs[0] != scores:
            raise Declined(
                Reason.NO_PEAK,
                f"{_named(taken)} is the largest of {_named(largest.inputs[0])}, and "
                f"taken off {_named(scores)}",
            )
        self._only(below.out, [self.facts.makers[self.powers]], "the exponent")
        return scores, peak, largest, below.out

    # --- after it -----------------------------------------------------------

    def _sum(self, axis: int) -> Eqn:
        wanted = [
            self.graph.eqns[user]
            for user in self.facts.readers(self.powers)
            if isinstance(self.graph.eqns[user].op, Reduce)
        ]
        for eqn in wanted:
            op = eqn.op
            assert isinstance(op, Reduce)
            if op.op is ReduceOp.SUM and op.axis == axis:
                return eqn
        for eqn in wanted:
            op = eqn.op
            assert isinstance(op, Reduce)
            raise Declined(
                Reason.OTHER_TOTAL,
                f"%{eqn.out} is the {op.op.value} along axis {op.axis}, the largest "
                f"was along axis {axis}",
            )
        raise Declined(Reason.OTHER_TOTAL, f"nothing sums %{self.powers}")

    def _shares(self, sum: Eqn) -> tuple[ValueId, Moved | None]:
        """What is weighed, and how the sums come to divide it; None: later."""
        summed = self.facts.makers[sum.out]
        others = [u for u in self.facts.readers(self.powers) if u != summed]
        for user in others:
            eqn = self.graph.eqns[user]
            total = self._divisor(eqn, self.powers, sum)
            if total is not None:
                self._only(self.powers, [summed, user], "the exponentials")
                return eqn.out, total
        for user in others:
            self._require_no_quotient(self.graph.eqns[user], sum)
        return self.powers, None

    def _require_no_quotient(self, eqn: Eqn, sum: Eqn) -> None:
        """Decline if the exponentials are divided by something else."""
        if _is(eqn, Binary(BinaryOp.DIV)) and eqn.inputs[0] == self.powers:
            raise Declined(
                Reason.OTHER_TOTAL,
                f"%{eqn.out} divides by {_named(eqn.inputs[1])}, which is not the sum "
                f"%{sum.out}",
            )

    def _divisor(self, eqn: Eqn, dividend: ValueId, sum: Eqn) -> Moved | None:
        """The sum as divisor, or as what the reciprocal that multiplies is of."""
        if eqn.op == Binary(BinaryOp.DIV) and eqn.inputs[0] == dividend:
            total = self.facts.traced(eqn.inputs[1])
            return total if total.root == sum.out else None
        if eqn.op != Binary(BinaryOp.MUL):
            return None
        for one, other in (eqn.inputs, eqn.inputs[::-1]):
            if one != dividend:
                continue
            outer = self.facts.traced(other)
            maker = self.facts.eqn(outer.root)
            source = None if maker is None else _reciprocal_of(maker)
            if source is not None:
                inner = self.facts.traced(source)
                if inner.root == sum.out:
                    return Moved(sum.out, (*inner.moves, *outer.moves))
        return None

    def _weights(self, shares: ValueId) -> tuple[Moved, int]:
        """The moves of the shares to the contraction, and that."""
        skip = set()
        if shares == self.powers:
            skip = {
                user
                for user in self.facts.readers(shares)
                if isinstance(self.graph.eqns[user].op, Reduce)
            }
        moves: list[int] = []
        value = shares
        while True:
            readers = [user for user in self.facts.readers(value) if user not in skip]
            if value in self.facts.kept or len(readers) != 1:
                self._only(value, readers[:1], "the shares")
            eqn = self.graph.eqns[readers[0]]
            if is_contraction(eqn.op):
                return Moved(shares, tuple(moves)), readers[0]
            if not isinstance(eqn.op, MOVES):
                raise Declined(
                    Reason.SHARES_CHANGED,
                    f"{eqn.op} makes %{eqn.outs[0]} of the shares %{value}",
                )
            moves.append(readers[0])
            value, skip = eqn.out, set()

    def _late(
        self, contraction: int, sum: Eqn
    ) -> tuple[tuple[tuple[int, ...], int], Moved, int]:
        """The quotient after the contraction."""
        moves: list[int] = []
        value = self._out(contraction)
        while True:
            readers = self.facts.readers(value)
            if value in self.facts.kept or len(readers) != 1:
                raise Declined(
                    Reason.OTHER_TOTAL,
                    f"%{value}, which the sum %{sum.out} is to divide, is read by "
                    f"{len(readers)} others or is an output",
                )
            eqn = self.graph.eqns[readers[0]]
            total = self._divisor(eqn, value, sum)
            if total is not None:
                return (tuple(moves), readers[0]), total, readers[0]
            if not isinstance(eqn.op, MOVES):
                raise Declined(
                    Reason.OTHER_TOTAL,
                    f"{eqn.op} makes %{eqn.outs[0]} of %{value}, which the sum "
                    f"%{sum.out} does not divide",
                )
            moves.append(readers[0])
            value = eqn.out


def _reciprocal_of(eqn: Eqn) -> Operand | None:
    if eqn.op == Unary(UnaryOp.RECIP):
        return eqn.inputs[0]
    if eqn.op == Binary(BinaryOp.DIV):
        one = eqn.inputs[0]
        if isinstance(one, Scalar) and one.value == 1:
            return eqn.inputs[1]
    return None


def _named(operand: Operand) -> str:
    return str(operand) if isinstance(operand, Scalar) else f"%{operand}"
