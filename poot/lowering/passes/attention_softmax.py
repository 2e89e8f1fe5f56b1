"""A softmax between two contractions, and the parts that all its spellings have."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from poot.core.dtypes import Scalar
from poot.core.equation import Eqn, Operand, ValueId
from poot.core.op import PrimitiveKey
from poot.core.ops.elementwise import Binary, BinaryOp, Select, Unary, UnaryOp
from poot.core.ops.reduce import Reduce, ReduceOp
from poot.lowering.passes.attention_axes import MOVES
from poot.lowering.passes.attention_facts import Facts, Moved, is_contraction
from poot.lowering.passes.driver import Declined, Reason

_LARGEST = PrimitiveKey(Reduce, ReduceOp.MAX)


@dataclass(frozen=True, slots=True)
class Softmax:
    """A softmax whose shares weigh the rows of a contraction's operand.

    `scores` are the values below whose peak the exponentials are taken; `axis` is that
    of the keys. The moves of `peaks`, `total` and `weights` are as in `Moved`: those of
    the largest scores to what they are taken off, those of the sums to the divisor (or
    to what their logarithm is taken off), and those of the shares (or of the
    exponentials if `late`) to the contraction.
    """

    scores: ValueId
    axis: int
    peaks: tuple[Moved, ...]
    total: Moved
    # The two reductions, and the equations that read the scores.
    largest: Eqn
    sum: Eqn
    scored: frozenset[int]
    # What is weighed: shares or exponentials.
    shares: ValueId
    weights: Moved
    # The contraction, and which of its operands the weights are.
    contraction: int
    side: int
    # If late: the moves from the contraction's result to the quotient, and that.
    late: tuple[tuple[int, ...], int] | None
    last: int


@dataclass(frozen=True, slots=True)
class Peak:
    """An exponent: scores below the largest of them."""

    scores: ValueId
    moved: Moved
    largest: Eqn
    # The difference.
    below: Eqn

    @property
    def axis(self) -> int:
        assert isinstance(self.largest.op, Reduce)
        return self.largest.op.axis


def largest_of(facts: Facts, taken: Operand) -> tuple[Moved, Eqn] | None:
    """The reduction that a value is moved from, if it is the largest of something.

    In front of it may stand a choice of 0 for what is infinite or NaN: rows with such a
    largest element are NaN with and without it.
    """
    moved = facts.traced(taken)
    eqn = facts.eqn(moved.root)
    if eqn is not None and _is_finite_or_zero(facts, eqn):
        inner = facts.traced(eqn.inputs[1])
        moved = Moved(inner.root, (*inner.moves, *moved.moves))
        eqn = facts.eqn(inner.root)
    return (moved, eqn) if eqn is not None and eqn.op.key == _LARGEST else None


def _is_finite_or_zero(facts: Facts, eqn: Eqn) -> bool:
    if not isinstance(eqn.op, Select):
        return False
    condition, given, zero = eqn.inputs
    maker = facts.eqn(condition)
    literal = facts.traced(zero).root
    is_zero = isinstance(literal, Scalar) and literal.value == 0
    if maker is None or maker.op != Unary(UnaryOp.ISFINITE):
        return False
    if facts.graph.type(given) != facts.graph.type(eqn.out):
        # Zeros of more axes repeat it along these.
        return False
    return maker.inputs[0] == given and is_zero


def peak_of(facts: Facts, exponent: Operand) -> Peak:
    """What an exponential is of; Declined if it is not below the largest score."""
    below = facts.eqn(exponent)
    if below is None or below.op != Binary(BinaryOp.SUB):
        raise Declined(
            Reason.NO_PEAK, f"the exponent {facts.made(exponent)} is no difference"
        )
    scores, taken = below.inputs
    found = largest_of(facts, taken)
    if found is None or isinstance(scores, Scalar):
        made = facts.made(facts.traced(taken).root)
        raise Declined(
            Reason.NO_PEAK,
            f"{made} is taken off {facts.named(scores)}, and is no largest of it",
        )
    moved, largest = found
    if largest.inputs[0] != scores:
        raise Declined(
            Reason.NO_PEAK,
            f"%{largest.out} is the largest of {facts.named(largest.inputs[0])}, and "
            f"taken off {facts.named(scores)}",
        )
    return Peak(scores, moved, largest, below)


def sum_of(facts: Facts, powers: ValueId, axis: int) -> Eqn:
    """The sum of exponentials along the axis that their largest is of."""
    readers = [facts.graph.eqns[user] for user in facts.readers(powers)]
    for eqn in readers:
        op = eqn.op
        if isinstance(op, Reduce) and op.op is ReduceOp.SUM and op.axis == axis:
            return eqn
    for eqn in readers:
        if isinstance(eqn.op, Reduce):
            raise _other_axis(eqn, axis)
    read = ", ".join(f"{eqn.op} for %{eqn.outs[0]}" for eqn in readers)
    raise Declined(Reason.OTHER_TOTAL, f"nothing sums %{powers}, read by {read}")


def require_axis(sum: Eqn, axis: int) -> None:
    assert isinstance(sum.op, Reduce)
    if sum.op.axis != axis:
        raise _other_axis(sum, axis)


def _other_axis(sum: Eqn, axis: int) -> Declined:
    assert isinstance(sum.op, Reduce)
    return Declined(
        Reason.OTHER_TOTAL,
        f"%{sum.out} is the {sum.op.op.value} along axis {sum.op.axis}, the largest "
        f"was along axis {axis}",
    )


def weights_of(
    facts: Facts, shares: ValueId, skip: Collection[int]
) -> tuple[Moved, int]:
    """The moves of the shares to the contraction, and that.

    `skip` are readers of the shares that are none of these.
    """
    moves: list[int] = []
    value = shares
    while True:
        readers = [user for user in facts.readers(value) if user not in skip]
        if value in facts.kept or len(readers) != 1:
            facts.require_only(value, readers[:1], "the shares")
        eqn = facts.graph.eqns[readers[0]]
        if is_contraction(eqn.op):
            return Moved(shares, tuple(moves)), readers[0]
        if not isinstance(eqn.op, MOVES):
            raise Declined(Reason.SHARES_CHANGED, _change(facts, value, eqn))
        moves.append(readers[0])
        value, skip = eqn.out, ()


def _change(facts: Facts, shares: ValueId, eqn: Eqn) -> str:
    change = f"{eqn.op} makes {facts.named(eqn.outs[0])} of the shares "
    change += facts.named(shares)
    if isinstance(eqn.op, Select) and isinstance(eqn.inputs[2], Scalar):
        condition, _, other = eqn.inputs
        assert not isinstance(condition, Scalar)
        change += f", {other} where %{condition} does not hold"
        chosen = [facts.graph.eqns[user].op for user in facts.readers(condition)]
        if chosen.count(Select()) > 1:
            # It chooses scores too.
            change += "; the kernel has NaN, not that, in rows where it never does"
    return change


def side_of(facts: Facts, weights: Moved, contraction: int) -> int:
    """Which operand of the contraction the weights are."""
    target = weights.root
    if weights.moves:
        target = facts.graph.eqns[weights.moves[-1]].out
    return facts.graph.eqns[contraction].inputs.index(target)
