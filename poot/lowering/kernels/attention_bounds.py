"""Which keys a row of attention can see, found out from its score.

A score that is some constant wherever a comparison of the key's place with what does
not depend on the key says so (causal masks, windows, caches that are filled up to a
position) tells bounds of the keys that matter. They are told as a graph over the
inputs of the score, so that they may depend on what only the running kernel knows.

Bounds are computed in i32 as the masks are: no sum in a mask may leave it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from poot.core import dtypes
from poot.core.builder import Builder
from poot.core.dtypes import Scalar
from poot.core.equation import Eqn, Operand, ValueId
from poot.core.graph import Graph
from poot.core.op import Op
from poot.core.ops.elementwise import (
    Binary,
    BinaryOp,
    Cast,
    Compare,
    CompareOp,
    Select,
    Unary,
    UnaryOp,
)
from poot.core.ops.shape import Broadcast, Iota, Reshape, Slice, Transpose

# What is added to scores so that nothing is left of them.
_VERY_SMALL = -1e30
_NEGATED = {
    CompareOp.LT: CompareOp.GE,
    CompareOp.LE: CompareOp.GT,
    CompareOp.GT: CompareOp.LE,
    CompareOp.GE: CompareOp.LT,
    CompareOp.EQ: CompareOp.NE,
    CompareOp.NE: CompareOp.EQ,
}
_TURNED = {
    CompareOp.LT: CompareOp.GT,
    CompareOp.LE: CompareOp.GE,
    CompareOp.GT: CompareOp.LT,
    CompareOp.GE: CompareOp.LE,
    CompareOp.EQ: CompareOp.EQ,
}


@dataclass(frozen=True, slots=True)
class Bounds:
    """The score with two results more: the first key seen, and one past the last.

    Both are i32 of the score's shape with one key. Other scores are at most `masked`.
    """

    graph: Graph
    first: ValueId
    end: ValueId
    masked: float


@dataclass(frozen=True, slots=True)
class _Spot:
    """A value of the score, where its axis of keys is, and how to get back.

    `key` is None where the value does not depend on the key. `way` are the ops, with
    one key, that make of the value's shape that of the score; the last is done first.
    """

    value: Operand
    key: int | None
    way: tuple[Op, ...] = ()


@dataclass(frozen=True, slots=True)
class _Linear:
    """key * sign plus the sum of spots, each times 1 or -1, plus a constant."""

    sign: int
    terms: tuple[tuple[int, _Spot], ...] = ()
    constant: int = 0

    def minus(self, other: _Linear) -> _Linear:
        turned = tuple((-sign, spot) for sign, spot in other.terms)
        return _Linear(
            self.sign - other.sign,
            (*self.terms, *turned),
            self.constant - other.constant,
        )

    def plus(self, other: _Linear) -> _Linear:
        return self.minus(_Linear(0).minus(other))


# Layers have equal scores.
@functools.lru_cache(256)
def find_bounds(score: Graph) -> Bounds | None:
    """The bounds of the keys that each row sees, if the score tells any."""
    return _Search(score).run()


class _Search:
    """One walk from the score to the masks in it."""

    def __init__(self, score: Graph) -> None:
        self.score = score
        self.makers = score.definitions()
        self.shape = score.result_types[0].shape

    def run(self) -> Bounds | None:
        spot = _Spot(self.score.results[0], len(self.shape) - 1)
        masked, conditions = self._masks(spot)
        if masked is None:
            return None
        limits = [
            limit
            for truth, condition in conditions
            for limit in self._limits(condition, truth)
        ]
        return self._bounds(limits, masked) if limits else None

    def _eqn(self, value: Operand) -> Eqn | None:
        maker = None if isinstance(value, Scalar) else self.makers.get(value)
        return None if maker is None else self.score.eqns[maker]

    # --- masks --------------------------------------------------------------

    def _masks(self, spot: _Spot) -> tuple[float | None, list[tuple[bool, _Spot]]]:
        """What masked scores are, and the conditions of all that are not masked."""
        masked: float | None = None
        conditions: list[tuple[bool, _Spot]] = []
        narrowed = [self.score.type(spot.value).dtype]
        while True:
            eqn = self._eqn(spot.value)
            if eqn is None:
                break
            found: tuple[Scalar, bool, _Spot, Operand] | None = None
            if isinstance(eqn.op, Select):
                found = self._select(eqn, spot)
            elif isinstance(eqn.op, Binary) and eqn.op.op is BinaryOp.ADD:
                found = self._added(eqn, spot)
            if found is None:
                inner = self._through(eqn, spot)
                if inner is None:
                    break
                narrowed.append(self.score.type(inner.value).dtype)
                spot = inner
                continue
            fill, truth, condition, rest = found
            number = float(fill.value)
            for dtype in reversed(narrowed):
                number = float(Scalar.of(number, dtype).value)
            if not number < math.inf:
                break
            masked = number if masked is None else max(masked, number)
            conditions.append((truth, condition))
            spot = self._operand(spot, rest)
        return masked, conditions

    def _select(
        self, eqn: Eqn, spot: _Spot
    ) -> tuple[Scalar, bool, _Spot, Operand] | None:
        condition, if_true, if_false = eqn.inputs
        if not self.score.type(condition).dtype.is_bool:
            return None
        for fill, truth, rest in (
            (self._number(if_false), True, if_true),
            (self._number(if_true), False, if_false),
        ):
            if fill is not None and fill.dtype.is_float:
                return fill, truth, self._operand(spot, condition), rest
        return None

    def _added(
        self, eqn: Eqn, spot: _Spot
    ) -> tuple[Scalar, bool, _Spot, Operand] | None:
        """A bias that is 0 or very small, at most half of which is taken for granted.

        Products that weigh up half of the smallest numbers are taken not to be.
        """
        for bias, rest in (eqn.inputs, eqn.inputs[::-1]):
            at: _Spot | None = self._operand(spot, bias)
            while at is not None:
                maker = self._eqn(at.value)
                if maker is None:
                    break
                if isinstance(maker.op, Select):
                    found = self._small_or_zero(maker, at)
                    if found is not None:
                        return *found, rest
                    break
                at = self._through(maker, at)
        return None

    def _small_or_zero(
        self, eqn: Eqn, spot: _Spot
    ) -> tuple[Scalar, bool, _Spot] | None:
        """Half of the small number, and where what is chosen is 0 instead."""
        condition = eqn.inputs[0]
        if_true, if_false = (self._number(choice) for choice in eqn.inputs[1:])
        for zero, small, truth in (
            (if_true, if_false, True),
            (if_false, if_true, False),
        ):
            if zero is not None and small is not None and not zero.value:
                most = float(small.value) / 2
                if most <= _VERY_SMALL:
                    half = Scalar.of(most, small.dtype)
                    return half, truth, self._operand(spot, condition)
        return None

    def _number(self, value: Operand) -> Scalar | None:
        """The number that a value repeats, if it does."""
        while not isinstance(value, Scalar):
            eqn = self._eqn(value)
            if eqn is None or not isinstance(eqn.op, Broadcast | Reshape | Transpose):
                return None
            value = eqn.inputs[0]
        return value

    # --- through ops --------------------------------------------------------

    def _operand(self, spot: _Spot, operand: Operand) -> _Spot:
        """An operand that is broadcast to the value at a spot."""
        shape, given = self._shape(spot.value), self._shape(operand)
        way = (*spot.way, Broadcast(self._one_key(shape, spot.key)))
        key = spot.key
        if key is not None:
            key -= len(shape) - len(given)
            if key < 0 or given[key] == 1:
                key = None
        return _Spot(operand, key, way)

    def _shape(self, operand: Operand) -> tuple[int, ...]:
        return self.score.type(operand).shape

    @staticmethod
    def _one_key(shape: tuple[int, ...], key: int | None) -> tuple[int, ...]:
        if key is None:
            return shape
        return (*shape[:key], 1, *shape[key + 1 :])

    def _through(self, eqn: Eqn, spot: _Spot) -> _Spot | None:
        """The operand of an op that moves or casts, with its axis of keys."""
        if len(eqn.inputs) != 1:
            return None
        (source,) = eqn.inputs
        shape, key = self._shape(spot.value), spot.key
        match eqn.op:
            case Cast() | Broadcast():
                return self._operand(spot, source)
            case Transpose(perm):
                inner = None if key is None else perm[key]
                return _Spot(source, inner, (*spot.way, eqn.op))
            case Reshape():
                given = self._shape(source)
                inner = None if key is None else self._same_axis(shape, key, given)
                if key is not None and inner is None:
                    return None
                way = Reshape(self._one_key(shape, key))
                return _Spot(source, inner, (*spot.way, way))
        return None

    @staticmethod
    def _same_axis(
        shape: tuple[int, ...], axis: int, other: tuple[int, ...]
    ) -> int | None:
        """The axis of another shape of the same elements that is this one."""
        before = math.prod(shape[:axis])
        for place, size in enumerate(other):
            if size == shape[axis] and math.prod(other[:place]) == before:
                return place
        return None

    # --- conditions ---------------------------------------------------------

    def _limits(self, spot: _Spot, truth: bool) -> Iterator[tuple[CompareOp, _Linear]]:
        """What must hold where the condition is as said: key <= …, key >= …."""
        eqn = self._eqn(spot.value)
        if eqn is None:
            return
        match eqn.op:
            case Binary(BinaryOp.AND) if truth:
                yield from self._all(eqn.inputs, spot, truth)
            case Binary(BinaryOp.OR) if not truth:
                yield from self._all(eqn.inputs, spot, truth)
            case Unary(UnaryOp.NOT):
                yield from self._all(eqn.inputs, spot, not truth)
            case Select():
                condition, if_true, if_false = eqn.inputs
                other = self._number(if_false)
                if truth and other is not None and not other.value:
                    yield from self._all((condition, if_true), spot, True)
            case Compare(op):
                yield from self._compared(op if truth else _NEGATED[op], eqn, spot)
            case _:
                inner = self._through(eqn, spot)
                if inner is not None and self.score.type(inner.value).dtype.is_bool:
                    yield from self._limits(inner, truth)

    def _all(
        self, operands: tuple[Operand, ...], spot: _Spot, truth: bool
    ) -> Iterator[tuple[CompareOp, _Linear]]:
        for operand in operands:
            yield from self._limits(self._operand(spot, operand), truth)

    def _compared(
        self, op: CompareOp, eqn: Eqn, spot: _Spot
    ) -> Iterator[tuple[CompareOp, _Linear]]:
        if op is CompareOp.NE:
            return
        sides = [self._linear(self._operand(spot, side)) for side in eqn.inputs]
        if sides[0] is None or sides[1] is None:
            return
        distance = sides[0].minus(sides[1])
        if abs(distance.sign) != 1:
            return
        rest = replace(distance, sign=0)
        # sign * key + rest op 0
        if distance.sign > 0:
            yield op, _Linear(0).minus(rest)
        else:
            yield _TURNED[op], rest

    def _linear(self, spot: _Spot) -> _Linear | None:
        """A value as a multiple of the key and what does not depend on it."""
        if isinstance(spot.value, Scalar):
            number = spot.value
            if number.dtype is not dtypes.int32:
                return None
            return _Linear(0, constant=int(number.value))
        if self.score.type(spot.value).dtype is not dtypes.int32:
            return None
        eqn = self._eqn(spot.value)
        if eqn is not None:
            if isinstance(eqn.op, Iota) and eqn.op.axis == spot.key:
                return _Linear(1)
            if isinstance(eqn.op, Binary) and eqn.op.op in (BinaryOp.ADD, BinaryOp.SUB):
                parts = [self._linear(self._operand(spot, o)) for o in eqn.inputs]
                if parts[0] is not None and parts[1] is not None:
                    if eqn.op.op is BinaryOp.ADD:
                        return parts[0].plus(parts[1])
                    return parts[0].minus(parts[1])
            inner = self._through(eqn, spot)
            if inner is not None and inner.key is not None:
                return self._linear(inner)
        if spot.key is None or (eqn is not None and isinstance(eqn.op, Iota)):
            return _Linear(0, ((1, spot),))
        return None

    # --- the graph ----------------------------------------------------------

    def _bounds(self, limits: list[tuple[CompareOp, _Linear]], masked: float) -> Bounds:
        builder = Builder()
        inputs = [builder.input(type) for type in self.score.input_types]
        inner = builder.inline(self.score, inputs)
        emit = _Emitter(builder, inner, self.shape)
        first: Operand = Scalar.of(0, dtypes.int32)
        end: Operand = Scalar.of(self.shape[-1], dtypes.int32)
        last = Scalar.of(self.shape[-1] - 1, dtypes.int32)
        before = Scalar.of(-1, dtypes.int32)
        one = Scalar.of(1, dtypes.int32)
        for op, linear in limits:
            value = emit.linear(linear)
            if op in (CompareOp.LE, CompareOp.EQ):
                beyond = emit(BinaryOp.ADD, emit(BinaryOp.MIN, value, last), one)
                end = emit(BinaryOp.MIN, end, beyond)
            if op is CompareOp.LT:
                end = emit(BinaryOp.MIN, end, value)
            if op in (CompareOp.GE, CompareOp.EQ):
                first = emit(BinaryOp.MAX, first, value)
            if op is CompareOp.GT:
                beyond = emit(BinaryOp.ADD, emit(BinaryOp.MAX, value, before), one)
                first = emit(BinaryOp.MAX, first, beyond)
        results = [inner[self.score.results[0]], emit.row(first), emit.row(end)]
        for result in results:
            builder.result(result)
        return Bounds(builder.finish(), results[1], results[2], masked)


class _Emitter:
    """Emits arithmetic on i32 values of the score's shape with one key."""

    def __init__(
        self, builder: Builder, inner: dict[ValueId, ValueId], shape: tuple[int, ...]
    ) -> None:
        self._builder = builder
        self._inner = inner
        self._shape = (*shape[:-1], 1)

    def __call__(self, op: BinaryOp, a: Operand, b: Operand) -> Operand:
        return self._builder.emit(Binary(op), (a, b))[0]

    def linear(self, linear: _Linear) -> Operand:
        total: Operand = Scalar.of(linear.constant, dtypes.int32)
        for sign, spot in linear.terms:
            op = BinaryOp.ADD if sign > 0 else BinaryOp.SUB
            total = self(op, total, self._spot(spot))
        return total

    def _spot(self, spot: _Spot) -> Operand:
        value = spot.value
        if isinstance(value, Scalar):
            return value
        value = self._inner[value]
        if spot.key is not None:
            # An iota along another axis, which is the same for all keys.
            (value,) = self._builder.emit(Slice(spot.key, 0, 1), (value,))
        for op in reversed(spot.way):
            if op != Broadcast(self._builder.type(value).shape):
                (value,) = self._builder.emit(op, (value,))
        return value

    def row(self, value: Operand) -> ValueId:
        """A result, one a row."""
        return self._builder.emit(Broadcast(self._shape), (value,))[0]
