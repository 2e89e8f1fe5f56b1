"""Bodies of epilogues in which columns meet, as bodies of sections that meet instead.

Rope makes elements of two columns of one head. Taken apart, the columns of the first
elements of pairs are one head, and those of the second another, so that every equation
is elementwise again; columns that are not turned are a contraction of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from poot.core.builder import Builder
from poot.core.dtypes import Scalar
from poot.core.equation import Eqn, Operand, ValueId
from poot.core.errors import LoweringError
from poot.core.graph import Graph
from poot.core.ops.rope import Rope, turned
from poot.core.ops.shape import Reshape, Slice
from poot.core.types import TensorType
from poot.lowering.plan.layout import Layout
from poot.lowering.plan.state import ELEMENTWISE


@dataclass(frozen=True, slots=True)
class Section:
    """Some columns of each `period` of them: start, start + step, … below stop."""

    period: int
    start: int
    stop: int
    step: int

    @classmethod
    def of(cls, period: int, part: slice) -> Section:
        return cls(period, part.start, part.stop, part.step)

    @property
    def count(self) -> int:
        """Columns of a period."""
        return len(range(self.start, self.stop, self.step))

    def shape(self, whole: Sequence[int]) -> tuple[int, ...]:
        """Of the section of a tensor whose last axis holds whole periods."""
        periods = whole[-1] // self.period
        return (*whole[:-1], *((periods,) if periods > 1 else ()), self.count)

    def layout(self, whole: Layout) -> Layout:
        """Where the section of a tensor stands."""
        shape, step = whole.shape, whole.strides[-1]
        periods = shape[-1] // self.period
        if periods > 1:
            split = (*shape[:-1], periods, self.period)
            strides = (*whole.strides[:-1], step * self.period, step)
            whole = Layout(split, strides, whole.offset)
        last = len(whole.shape) - 1
        return whole.slice(last, self.start, self.stop, self.step)


@dataclass(frozen=True, slots=True)
class Sectioned:
    """What is made of some sections of a head.

    `body` takes these, then the operands of the whole body but the head. It gives each
    result by sections, then the numbers of the whole body.
    """

    sections: tuple[Section, ...]
    body: Graph


def in_sections(body: Graph, results: int) -> list[Sectioned]:
    """The body of one head, its first operand, by sections that do not meet.

    The first `results` of its results are made of the head, the others are numbers.
    """
    op, period = _turn(body)
    one, two, rest = (Section.of(period, part) for part in op.parts(period))
    found = [(one, two)] if rest.start == rest.stop else [(one, two), (rest,)]
    return [
        Sectioned(sections, _Apart(body, sections).make(results)) for sections in found
    ]


def is_apart(body: Graph) -> bool:
    """Whether columns of a body meet, so that it needs sections."""
    return any(isinstance(eqn.op, Rope) for eqn in body.eqns)


def _turn(body: Graph) -> tuple[Rope, int]:
    """The rope of a body, and the columns over which it reaches."""
    found = [
        (eqn.op, body.type(eqn.out).shape[-1])
        for eqn in body.eqns
        if isinstance(eqn.op, Rope)
    ]
    if len(found) != 1:
        raise LoweringError(f"{len(found)} ropes in one epilogue; takes one at most")
    return found[0]


class _Apart:
    """A body of sections in the making."""

    def __init__(self, body: Graph, sections: tuple[Section, ...]) -> None:
        self.body = body
        self.sections = sections
        self.builder = Builder(composites=True)
        # Values that no head goes into, and others by section.
        self.whole: dict[ValueId, ValueId] = {}
        self.apart: dict[ValueId, tuple[ValueId, ...]] = {}

    def make(self, results: int) -> Graph:
        body, builder = self.body, self.builder
        head, *extras = body.inputs
        type = body.type(head)
        self.apart[head] = tuple(
            builder.input(TensorType(section.shape(type.shape), type.dtype))
            for section in self.sections
        )
        for extra in extras:
            self.whole[extra] = builder.input(body.type(extra))
        for eqn in body.eqns:
            self._take(eqn)
        for value in body.results[:results]:
            for part in self.apart[value]:
                builder.result(part)
        for value in body.results[results:]:
            builder.result(self.whole[value])
        return builder.finish()

    def _take(self, eqn: Eqn) -> None:
        if not any(operand in self.apart for operand in eqn.inputs):
            inputs = (o if isinstance(o, Scalar) else self.whole[o] for o in eqn.inputs)
            outs = self.builder.emit(eqn.op, tuple(inputs))
            self.whole.update(zip(eqn.outs, outs, strict=True))
        elif isinstance(eqn.op, Rope):
            self.apart[eqn.out] = self._turned(eqn, eqn.op)
        elif isinstance(eqn.op, (Reshape, *ELEMENTWISE)):
            self.apart[eqn.out] = tuple(
                self._part(eqn, number) for number in range(len(self.sections))
            )
        else:
            raise LoweringError(f"{eqn.op} in an epilogue in which columns meet")

    def _part(self, eqn: Eqn, number: int) -> ValueId:
        """A section of the result of an equation that treats all columns alike."""
        op, shape = eqn.op, self.body.type(eqn.out).shape
        if isinstance(op, Reshape):
            (value,) = (o for o in eqn.inputs if not isinstance(o, Scalar))
            section, part = self.sections[number], self.apart[value][number]
            if not shape or shape[-1] % section.period:
                # Another one follows, of whole periods.
                return part
            return self._emit(Reshape(section.shape(shape)), part)
        inputs: list[Operand] = []
        for operand in eqn.inputs:
            if isinstance(operand, Scalar):
                inputs.append(operand)
            elif operand in self.apart:
                inputs.append(self.apart[operand][number])
            else:
                section = self.sections[number]
                inputs.append(self._cut(self.whole[operand], section, shape[-1]))
        return self.builder.emit(op, tuple(inputs))[0]

    def _cut(self, value: ValueId, section: Section, columns: int) -> Operand:
        """A section of an operand that repeats to a tensor of so many columns."""
        shape = self.builder.type(value).shape
        periods = columns // section.period
        if not shape or (shape[-1] == 1 and periods == 1):
            return value
        if shape[-1] == 1:
            return self._emit(Reshape((*shape, 1)), value)
        if periods > 1:
            split = (*shape[:-1], periods, section.period)
            value = self._emit(Reshape(split), value)
        return self._slice(value, section)

    def _turned(self, eqn: Eqn, op: Rope) -> tuple[ValueId, ...]:
        x, cos, sin = (o for o in eqn.inputs if not isinstance(o, Scalar))
        parts = self.apart[x]
        if len(parts) == 1:
            return parts
        one, two = parts
        return turned(
            self.builder, (one, two), self._tables(op, cos), self._tables(op, sin)
        )

    def _tables(self, op: Rope, table: ValueId) -> tuple[ValueId, ValueId]:
        """The numbers of the first and of the second elements of pairs."""
        value = self.whole[table]
        if not op.is_wide(self.body.type(table)):
            return value, value
        one, two, _ = (Section.of(op.rotary, part) for part in op.parts(op.rotary))
        return self._slice(value, one), self._slice(value, two)

    def _slice(self, value: ValueId, section: Section) -> ValueId:
        last = len(self.builder.type(value).shape) - 1
        return self._emit(Slice(last, section.start, section.stop, section.step), value)

    def _emit(self, op: Reshape | Slice, value: ValueId) -> ValueId:
        return self.builder.emit(op, (value,))[0]
