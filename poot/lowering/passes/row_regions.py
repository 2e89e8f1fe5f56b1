"""Makes the FusedRow equations of row groups."""

from __future__ import annotations

from collections.abc import Sequence

from poot.core.builder import Builder
from poot.core.dtypes import Scalar
from poot.core.edit import GraphEdit
from poot.core.equation import Eqn, Operand, ValueId
from poot.core.graph import Graph
from poot.core.op import Op
from poot.core.ops.composite import FusedRow
from poot.core.ops.elementwise import broadcast_shapes
from poot.core.ops.indexing import GeneralGather
from poot.core.ops.reduce import ArgReduce, Reduce
from poot.core.ops.shape import Broadcast, Iota, Reshape
from poot.core.types import TensorType
from poot.lowering.passes.row_forms import Fit, Form, row_gather
from poot.lowering.passes.row_group import RowGroup
from poot.lowering.passes.units import Units

Outer = tuple[ValueId, tuple[int, ...]]


class RowRegion:
    """A row group that is done growing, as a region in one fixed form.

    Its values have shape [*rows, n], or [*rows, 1] where the group has one a row;
    operands may broadcast to these. Changes of axes vanish.
    """

    def __init__(self, units: Units, group: RowGroup) -> None:
        self.units = units
        self.graph = units.graph
        self.group = group
        self.members = sorted(group.members)
        self._trim()
        self.own = {out for i in self.members for out in self.graph.eqns[i].outs}
        self.operands: list[Outer] = list(
            dict.fromkeys(
                (self._base(value), shape)
                for index in self.members
                for value, shape in group.fits[index].outer
                if value not in self.own
            )
        )
        inside = set(self.members)
        self.results = sorted(v for v in self.own if self._escapes(v, inside))

    def _escapes(self, value: ValueId, inside: set[int]) -> bool:
        return value in self.units.kept or any(
            user not in inside for user in self.units.users.get(value, ())
        )

    def _base(self, value: ValueId) -> ValueId:
        """The value of which `value` is only another shape."""
        while value in self.units.makers:
            maker = self.units.makers[value]
            eqn = self.graph.eqns[maker]
            holder = self.units.writer[maker]
            # Within another group the operand may not be stored.
            if holder.is_open and holder is not self.group:
                break
            if not isinstance(eqn.op, Reshape) or isinstance(eqn.inputs[0], Scalar):
                break
            value = eqn.inputs[0]
        return value

    def _is_made(self, eqn: Eqn, inside: set[int]) -> bool:
        values = self.units.values(eqn.inputs)
        return any(self.units.makers.get(value) in inside for value in values)

    def _trim(self) -> None:
        """Leave outside what only changes axes at the rim of the group."""
        inside = set(self.members)
        for index in self.members:
            eqn = self.graph.eqns[index]
            if isinstance(eqn.op, Reshape) and not self._is_made(eqn, inside):
                inside.remove(index)
                self._give(eqn.out, self.group.fits[index].form)
        for index in reversed(self.members):
            eqn = self.graph.eqns[index]
            readers = self.units.users.get(eqn.outs[0], ())
            is_read = eqn.outs[0] in self.units.kept or inside.intersection(readers)
            if isinstance(eqn.op, Broadcast | Reshape) and not is_read:
                inside.discard(index)
        self.members = [index for index in self.members if index in inside]

    def _give(self, value: ValueId, form: Form) -> None:
        """Have members that read a value take it from outside, as some do already."""
        taken = value, self.group.domain.shape(form)
        for user in self.units.users.get(value, ()):
            fit = self.group.fits.get(user)
            if fit is not None and taken not in fit.outer:
                self.group.fits[user] = Fit(fit.form, (*fit.outer, taken))

    def body(self) -> tuple[Graph, dict[ValueId, int]]:
        """The region, and which of its results each escaping value is."""
        builder = Builder()
        outer: dict[Outer, Operand] = {
            (value, shape): builder.input(
                TensorType(shape, self.graph.type(value).dtype)
            )
            for value, shape in self.operands
        }
        known: dict[ValueId, Operand] = {}
        for index in self.members:
            eqn = self.graph.eqns[index]
            for value, shape in self.group.fits[index].outer:
                if value not in self.own:
                    known[value] = outer[self._base(value), shape]
            operands = tuple(
                o if isinstance(o, Scalar) else known[o] for o in eqn.inputs
            )
            made = self._emit(builder, index, eqn, operands)
            known.update(zip(eqn.outs, made, strict=True))
        numbers: dict[Operand, int] = {}
        for value in self.results:
            result = known[value]
            assert not isinstance(result, Scalar)
            if result not in numbers:
                builder.result(result)
                numbers[result] = len(numbers)
        return builder.finish(), {v: numbers[known[v]] for v in self.results}

    def _emit(
        self, builder: Builder, index: int, eqn: Eqn, operands: tuple[Operand, ...]
    ) -> tuple[Operand, ...]:
        shape = self.group.domain.shape(self.group.fits[index].form)
        axis = len(self.group.domain.rows)
        op: Op = eqn.op
        match op:
            case Reduce(member):
                op = Reduce(member, axis, keepdim=True)
            case ArgReduce(member):
                op = ArgReduce(member, axis, keepdim=True)
            case Reshape():
                return operands[:1]
            case Broadcast() if builder.type(operands[0]).shape == shape:
                return operands[:1]
            case Broadcast():
                op = Broadcast(shape)
            case GeneralGather():
                op = row_gather(axis + 1, axis, op)
                vectors = Reshape((*self.group.domain.rows, 1, 1))
                operands = (operands[0], *builder.emit(vectors, operands[1:]))
            case Iota(dtype):
                op = op if op.shape == shape else Iota(dtype, shape, axis)
            case _:
                shapes = (builder.type(operand).shape for operand in operands)
                if broadcast_shapes(op.name, *shapes) != shape:
                    (first,) = builder.emit(Broadcast(shape), operands[:1])
                    operands = (first, *operands[1:])
        return builder.emit(op, operands, self.graph.source(index))


def emit_row_regions(graph: Graph, units: Units, groups: Sequence[RowGroup]) -> Graph:
    """The graph with a FusedRow in place of the members of each group."""
    if not groups:
        return graph
    edit = graph.edit()
    for group in groups:
        _emit_region(edit, RowRegion(units, group), group)
    return edit.commit()


def _emit_region(edit: GraphEdit, region: RowRegion, group: RowGroup) -> None:
    graph = edit.graph
    body, numbers = region.body()
    source = graph.source(region.members[-1])
    at = group.position

    def shaped(value: ValueId, shape: tuple[int, ...]) -> ValueId:
        if edit.type(value).shape == shape:
            return value
        return edit.emit(Reshape(shape), (value,), at, source)[0]

    operands = tuple(shaped(value, shape) for value, shape in region.operands)
    outs = edit.emit(FusedRow(body), operands, at, source)
    for value, number in numbers.items():
        edit.replace(value, shaped(outs[number], graph.type(value).shape))
    for index in region.members:
        edit.remove(index)
