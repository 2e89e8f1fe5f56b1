"""Shares spelled by a logarithm: exp(scores - log(sum(exp(scores)))).

With the largest score m taken off inside, that is exp((s - m) - log t), as log_softmax
spells it, or exp(s - (log t + m)), as logsumexp does, where t = sum(exp(s - m)). Both
are exp(s - m) / t but for roundings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from poot.core.equation import Eqn
from poot.core.ops.elementwise import Binary, BinaryOp, Select, Unary, UnaryOp
from poot.core.ops.reduce import Reduce, ReduceOp
from poot.core.text import print_operand
from poot.lowering.passes.attention_axes import MOVES
from poot.lowering.passes.attention_facts import Facts, Moved
from poot.lowering.passes.attention_softmax import (
    Peak,
    Softmax,
    largest_of,
    peak_of,
    require_axis,
    side_of,
    weights_of,
)
from poot.lowering.passes.driver import Declined, Reason

_LOG, _EXP = Unary(UnaryOp.LOG), Unary(UnaryOp.EXP)
_ADD, _SUB = Binary(BinaryOp.ADD), Binary(BinaryOp.SUB)
# Equations that are looked through from an exponent back to a logarithm.
_MOST_BACK = 8
_STEPS = (_ADD, _SUB, Unary(UnaryOp.NEG), Select())


@dataclass(frozen=True, slots=True)
class _Logarithm:
    """A logarithm of a sum of exponentials."""

    eqn: Eqn
    # From the sum to what the logarithm is of.
    moves: tuple[int, ...]
    sum: Eqn
    powers: Eqn


class Logs:
    """One exponential of differences that leads to a contraction."""

    def __init__(self, facts: Facts, eqn: Eqn) -> None:
        self.facts = facts
        self.shares = eqn
        self.exponent = eqn.inputs[0]
        self.log = next(self._logarithms(), None)

    @property
    def is_candidate(self) -> bool:
        """Whether the exponent has to do with the logarithm of such a sum."""
        return self.log is not None

    def _logarithms(self) -> Iterator[_Logarithm]:
        """Those that the exponent is made of by sums, choices and moves."""
        waiting, seen = [self.exponent], 0
        while waiting and seen < _MOST_BACK:
            eqn = self.facts.eqn(waiting.pop())
            if eqn is None:
                continue
            seen += 1
            if eqn.op == _LOG:
                found = self._of_sum(eqn)
                if found is not None:
                    yield found
            elif eqn.op in _STEPS or isinstance(eqn.op, MOVES):
                waiting += eqn.inputs

    def _of_sum(self, eqn: Eqn) -> _Logarithm | None:
        moved = self.facts.traced(eqn.inputs[0])
        total = self.facts.eqn(moved.root)
        if total is None or not isinstance(total.op, Reduce):
            return None
        powers = self.facts.eqn(total.inputs[0])
        is_sum = total.op.op is ReduceOp.SUM
        if not is_sum or powers is None or powers.op != _EXP:
            return None
        return _Logarithm(eqn, moved.moves, total, powers)

    # --- the softmax --------------------------------------------------------

    def softmax(self) -> Softmax:
        """Declined if the logarithm is of another sum, or read elsewhere too."""
        facts, log = self.facts, self.log
        assert log is not None
        peak = peak_of(facts, log.powers.inputs[0])
        require_axis(log.sum, peak.axis)
        less = facts.eqn(self.exponent)
        if less is None or less.op != _SUB:
            self._decline_exponent(log)
        given, taken = less.inputs
        outer = facts.traced(taken)
        peaks, scored = [peak.moved], {peak.largest.out, peak.below.out}
        if outer.root == log.eqn.out and given == peak.below.out:
            inner: tuple[int, ...] = ()
        else:
            inner, again = self._raised(log, peak, less, outer)
            peaks.append(again)
            scored.add(less.out)
        self._require_unread(log, peak, less)
        weights, contraction = weights_of(facts, self.shares.out, ())
        after = (*inner, *outer.moves)
        dtype = facts.graph.type(peak.scores).dtype
        facts.require_held(log.moves, dtype, "the sum")
        facts.require_held(after, dtype, "the logarithm")
        for moved in peaks:
            facts.require_held(moved.moves, dtype, "the largest score")
        return Softmax(
            peak.scores,
            peak.axis,
            tuple(peaks),
            Moved(log.sum.out, (*log.moves, *after)),
            peak.largest,
            log.sum,
            frozenset(facts.makers[value] for value in scored),
            self.shares.out,
            weights,
            contraction,
            side_of(facts, weights, contraction),
            None,
            contraction,
        )

    def _raised(
        self, log: _Logarithm, peak: Peak, less: Eqn, outer: Moved
    ) -> tuple[tuple[int, ...], Moved]:
        """The moves to the sum of logarithm and largest score, and those of the latter.

        Declined if something else is taken off, or of something else.
        """
        facts, added = self.facts, self.facts.eqn(outer.root)
        if added is None or added.op != _ADD or less.inputs[0] != peak.scores:
            self._decline_difference(log, peak, less)
        for one, other in (added.inputs, added.inputs[::-1]):
            moved, largest = facts.traced(one), largest_of(facts, other)
            if moved.root != log.eqn.out or largest is None:
                continue
            again, eqn = largest
            if eqn.out != peak.largest.out:
                break
            self._require_shape(added)
            return moved.moves, Moved(eqn.out, (*again.moves, *outer.moves))
        self._decline_difference(log, peak, less)

    def _require_shape(self, added: Eqn) -> None:
        """A logarithm and a largest score are of the same row if none is repeated."""
        facts, shape = self.facts, self.facts.graph.type(added.out).shape
        if any(facts.graph.type(o).shape != shape for o in added.inputs):
            one, other = map(facts.named, added.inputs)
            raise Declined(
                Reason.OTHER_AXES,
                f"{facts.named(added.out)} is {one} and {other}, one of them repeated",
            )

    def _require_unread(self, log: _Logarithm, peak: Peak, less: Eqn) -> None:
        """What is between the scores and the shares is read in between alone."""
        facts, makers = self.facts, self.facts.makers
        below, powers = peak.below.out, log.powers.out
        facts.require_only(below, [makers[powers], makers[less.out]], "the exponent")
        facts.require_only(powers, [makers[log.sum.out]], "the exponentials")
        facts.require_only(less.out, [makers[self.shares.out]], "the exponent")
        value, waiting = log.eqn.out, less.out
        while value != waiting:
            readers = facts.readers(value)[:1]
            facts.require_only(value, readers, "the logarithm of their sum")
            value = facts.graph.eqns[readers[0]].out

    # --- why not ------------------------------------------------------------

    def _decline_exponent(self, log: _Logarithm) -> NoReturn:
        raise Declined(
            Reason.OTHER_TOTAL,
            f"the exponent {self.facts.made(self.exponent)} is no difference, from "
            f"which {self.facts.made(log.eqn.out)} is taken off",
        )

    def _decline_difference(self, log: _Logarithm, peak: Peak, less: Eqn) -> NoReturn:
        given, taken = less.inputs
        made = self.facts.made(self.facts.traced(taken).root)
        raise Declined(
            Reason.OTHER_TOTAL,
            f"{made} is taken off {print_operand(given)}; takes %{log.eqn.out}, the "
            f"logarithm of the sum, off %{peak.below.out}, or that plus "
            f"%{peak.largest.out} off %{peak.scores}",
        )
