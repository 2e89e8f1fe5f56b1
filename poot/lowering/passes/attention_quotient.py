"""Shares spelled as exponentials over their sum, before or after the contraction."""

from __future__ import annotations

from poot.core.dtypes import Scalar
from poot.core.equation import Eqn, Operand, ValueId
from poot.core.ops.elementwise import Binary, BinaryOp, Unary, UnaryOp
from poot.core.ops.reduce import Reduce
from poot.lowering.passes.attention_axes import MOVES
from poot.lowering.passes.attention_facts import Facts, Moved
from poot.lowering.passes.attention_softmax import (
    Peak,
    Softmax,
    largest_of,
    peak_of,
    side_of,
    sum_of,
    weights_of,
)
from poot.lowering.passes.driver import Declined, Reason


class Quotient:
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
        if below is None or below.op != Binary(BinaryOp.SUB):
            return False
        return largest_of(self.facts, below.inputs[1]) is not None

    def softmax(self) -> Softmax:
        """Declined if it is none, or is not only read by the contraction."""
        facts = self.facts
        peak = peak_of(facts, self.exponent)
        below = facts.makers[peak.below.out]
        own = [facts.makers[self.powers]]
        facts.require_only(peak.below.out, own, "the exponent")
        sum = sum_of(facts, self.powers, peak.axis)
        shares, total = self._shares(sum)
        skip = self._reduced() if shares == self.powers else ()
        weights, contraction = weights_of(facts, shares, skip)
        late, last = None, contraction
        if total is None:
            moved = weights.moves[0] if weights.moves else contraction
            summed = facts.makers[sum.out]
            facts.require_only(self.powers, [summed, moved], "the exponentials")
            late, total, last = self._late(contraction, sum)
        self._require_casts(peak, total, last)
        return Softmax(
            peak.scores,
            peak.axis,
            (peak.moved,),
            total,
            peak.largest,
            sum,
            frozenset((facts.makers[peak.largest.out], below)),
            shares,
            weights,
            contraction,
            side_of(facts, weights, contraction),
            late,
            last,
        )

    def _require_casts(self, peak: Peak, total: Moved, last: int) -> None:
        """Sums may round as what they divide for does; a peak is to stay one."""
        facts, type = self.facts, self.graph.type
        held, made = type(peak.scores).dtype, type(self.graph.eqns[last].out).dtype
        facts.require_held(peak.moved.moves, held, "the largest score")
        facts.require_held(total.moves, made, "the sum")

    def _reduced(self) -> list[int]:
        """What reduces the exponentials."""
        eqns = self.graph.eqns
        readers = self.facts.readers(self.powers)
        return [user for user in readers if isinstance(eqns[user].op, Reduce)]

    def _shares(self, sum: Eqn) -> tuple[ValueId, Moved | None]:
        """What is weighed, and how the sums come to divide it; None: later."""
        summed = self.facts.makers[sum.out]
        others = [u for u in self.facts.readers(self.powers) if u != summed]
        for user in others:
            eqn = self.graph.eqns[user]
            total = self._divisor(eqn, self.powers, sum)
            if total is not None:
                self.facts.require_only(self.powers, [summed, user], "the exponentials")
                return eqn.out, total
        for user in others:
            self._require_no_quotient(self.graph.eqns[user], sum)
        return self.powers, None

    def _require_no_quotient(self, eqn: Eqn, sum: Eqn) -> None:
        """Decline if the exponentials are divided by something else."""
        if eqn.op == Binary(BinaryOp.DIV) and eqn.inputs[0] == self.powers:
            raise Declined(
                Reason.OTHER_TOTAL,
                f"%{eqn.out} divides by {self.facts.made(eqn.inputs[1])}, which is not "
                f"the sum %{sum.out}",
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

    def _late(
        self, contraction: int, sum: Eqn
    ) -> tuple[tuple[tuple[int, ...], int], Moved, int]:
        """The quotient after the contraction."""
        moves: list[int] = []
        value = self.graph.eqns[contraction].out
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
