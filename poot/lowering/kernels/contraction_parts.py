"""The parts of a contraction with an epilogue, and where their results go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from poot.core.builder import Builder
from poot.core.dtypes import Scalar
from poot.core.equation import Eqn, Operand, ValueId
from poot.core.errors import LoweringError
from poot.core.extract import needed_equations
from poot.core.graph import Graph
from poot.core.ops.contractions import ContractionEpilogue
from poot.core.types import TensorType
from poot.lowering.kernels.contraction import CHUNK, Landing, Start
from poot.lowering.kernels.contraction_plan import Epilogue, Part
from poot.lowering.kernels.contraction_roles import Roles
from poot.lowering.kernels.describe import alignment_of
from poot.lowering.kernels.sections import updated_place
from poot.lowering.kernels.shapes import walked_as_one
from poot.lowering.plan.column_sections import (
    Section,
    Sectioned,
    in_sections,
    is_apart,
)
from poot.lowering.plan.context import PlanContext
from poot.lowering.plan.layout import ALIGNMENT, Layout, View
from poot.lowering.plan.state import block_update


@dataclass(frozen=True, slots=True)
class _Goal:
    """Where a result goes: a buffer, its elements in there, and places that data says.

    `result` is a value of the body: the block, if the result is an update.
    """

    result: ValueId
    view: View
    layout: Layout
    # Of each start that is data: the value, how many there can be, and the step.
    starts: tuple[tuple[ValueId, int, int], ...] = ()


class Group:
    """Some heads of a composite, on which nothing else depends, with their results."""

    def __init__(
        self,
        ctx: PlanContext,
        eqn: Eqn,
        heads: Sequence[int],
        results: Sequence[int],
    ) -> None:
        assert isinstance(eqn.op, ContractionEpilogue)
        self.ctx, self.eqn, self.op = ctx, eqn, eqn.op
        self.heads, self.results = heads, results
        self.body = eqn.op.body
        self.extras = tuple(map(ctx.view, eqn.op.parts(eqn.inputs)[2]))

    @property
    def head(self) -> TensorType:
        """The type of each head."""
        return self.body.type(self.body.inputs[self.heads[0]])

    def parts(self, rights: Sequence[View], roles: Roles) -> list[Part]:
        """What is computed together, of the right operand of each head."""
        goals = [self._goal(number) for number in self.results]
        values = [goal.result for goal in goals]
        starts = [value for goal in goals for value, _, _ in goal.starts]
        numbers = list(dict.fromkeys(starts))
        body = self._extracted([*values, *numbers])
        mine = tuple(rights[number] for number in self.heads)
        if not is_apart(body):
            landings: tuple[Landing, ...] = ()
            if any(goal.layout != goal.view.layout for goal in goals):
                landings = tuple(self._landing(goal, numbers) for goal in goals)
            epilogue = Epilogue(body, self.extras, self.head)
            outs = tuple(goal.view for goal in goals)
            return [Part(mine, roles, outs, epilogue, landings)]
        if len(mine) > 1:
            raise LoweringError(
                f"columns of {len(mine)} heads that meet; takes one head"
            )
        return [
            self._sectioned(apart, mine[0], roles, goals, numbers)
            for apart in in_sections(body, len(goals))
        ]

    def _sectioned(
        self,
        apart: Sectioned,
        right: View,
        roles: Roles,
        goals: Sequence[_Goal],
        numbers: Sequence[ValueId],
    ) -> Part:
        """The part that computes some sections of a head."""
        step = roles.columns[-1].right
        rights = tuple(_from(right, each.start * step) for each in apart.sections)
        pairs = [(goal, section) for goal in goals for section in apart.sections]
        return Part(
            rights,
            roles.at_sections(apart.sections),
            tuple(goal.view for goal, _ in pairs),
            Epilogue(apart.body, self.extras, apart.body.input_types[0]),
            tuple(self._landing(goal, numbers, section) for goal, section in pairs),
        )

    def _goal(self, number: int) -> _Goal:
        """Where result `number` of the composite goes."""
        body, result = self.body, self.body.results[number]
        update = block_update(body, result)
        if update is None:
            view = self.ctx.output(self.eqn.outs[number])
            return _Goal(result, view, view.layout)
        target, block, *places = update.inputs
        assert not isinstance(target, Scalar) and not isinstance(block, Scalar)
        at = self.op.lhs_count + body.inputs.index(target)
        view = updated_place(self.ctx, self.eqn, body, number, target, at)
        sizes, strides = body.type(block).shape, view.layout.strides
        offset = view.layout.offset
        starts = []
        for place, size, whole, step in zip(
            places, sizes, view.shape, strides, strict=True
        ):
            if size == whole:
                continue
            if isinstance(place, Scalar):
                offset += min(max(int(place.value), 0), whole - size) * step
            else:
                starts.append((place, whole - size + 1, step))
        return _Goal(block, view, Layout(sizes, strides, offset), tuple(starts))

    def _landing(
        self,
        goal: _Goal,
        numbers: Sequence[ValueId],
        section: Section | None = None,
    ) -> Landing:
        layout = goal.layout if section is None else section.layout(goal.layout)
        chunk_bytes = min(CHUNK * goal.view.dtype.itemsize, ALIGNMENT)
        starts = (
            Start(numbers.index(value), self.body.type(value).dtype, count, step)
            for value, count, step in goal.starts
        )
        return Landing(
            layout.shape,
            walked_as_one(layout),
            layout.offset,
            goal.view.bound,
            alignment_of(goal.view) % chunk_bytes == 0,
            tuple(starts),
        )

    def _extracted(self, results: Sequence[ValueId]) -> Graph:
        """What of the body makes some values of these heads and the extras."""
        body, builder = self.body, Builder(composites=True)
        inputs = [body.inputs[number] for number in self.heads]
        inputs += body.inputs[len(self.op.heads) :]
        known: dict[ValueId, ValueId] = {
            value: builder.input(body.type(value)) for value in inputs
        }

        def inner(operand: Operand) -> Operand:
            return operand if isinstance(operand, Scalar) else known[operand]

        for index in needed_equations(body, results, inputs):
            eqn = body.eqns[index]
            outs = builder.emit(
                eqn.op, tuple(map(inner, eqn.inputs)), body.source(index)
            )
            known.update(zip(eqn.outs, outs, strict=True))
        for result in results:
            builder.result(known[result])
        return builder.finish()


def _from(view: View, distance: int) -> View:
    """The operand from a column some elements further on."""
    layout = view.layout
    return view.with_layout(
        Layout(layout.shape, layout.strides, layout.offset + distance)
    )
