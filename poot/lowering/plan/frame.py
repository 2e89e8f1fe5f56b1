"""The frame of a program: where inputs stand and where outputs have to go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from poot.core.equation import Export, Result, StateNext, ValueId, Witness
from poot.core.graph import Graph
from poot.core.ops.composite import Fused, Table
from poot.core.ops.shape import Reshape
from poot.core.types import Storage
from poot.lowering.plan.layout import ALIGNMENT, padded
from poot.lowering.plan.state import ELEMENTWISE, can_overwrite, updated_operand
from poot.lowering.program import (
    BufferRange,
    ResultSpec,
    SlotSpec,
    Space,
    WitnessSpec,
)


@dataclass(slots=True)
class Frame:
    """Where inputs stand, where outputs go, and the copies that takes."""

    inputs: dict[ValueId, BufferRange] = field(default_factory=dict)
    # Computed values that are written straight to where an output wants them.
    homes: dict[ValueId, BufferRange] = field(default_factory=dict)
    # Computed values that may not be left as views of what is overwritten later.
    stored: set[ValueId] = field(default_factory=set)
    # Copies to make before the first equation, and after the last one.
    early: list[tuple[ValueId, BufferRange]] = field(default_factory=list)
    late: list[tuple[ValueId, BufferRange]] = field(default_factory=list)
    # State inputs whose old content is to go to another state buffer in the end.
    moved: list[tuple[ValueId, BufferRange]] = field(default_factory=list)
    results: list[ResultSpec] = field(default_factory=list)
    slots: list[SlotSpec] = field(default_factory=list)
    witnesses: list[WitnessSpec] = field(default_factory=list)
    exports: dict[str, int] = field(default_factory=dict)
    donated: frozenset[int] = frozenset()


def make_frame(graph: Graph) -> Frame:
    """Decide where all inputs and outputs of a graph stand."""
    return _FrameMaker(graph).make()


def make_inner_frame(
    graph: Graph,
    inputs: Mapping[ValueId, BufferRange],
    results: Sequence[BufferRange] = (),
) -> Frame:
    """Where the outputs of a sub-graph go whose inputs stand somewhere already.

    State is overwritten where it stands; `results` are the places of the results.
    """
    return _FrameMaker(graph).make_inner(inputs, results)


def tables_of(graph: Graph) -> tuple[ValueId, ...]:
    """The results of the tables, in the order in which programs number them."""
    return tuple(eqn.out for eqn in graph.eqns if isinstance(eqn.op, Table))


_SPACES = {
    Storage.DEVICE: Space.ARGUMENT,
    Storage.STATE: Space.STATE,
    Storage.CONST: Space.CONST,
}


class _FrameMaker:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.frame = Frame()
        self.definitions = graph.definitions()
        self.uses = graph.uses()
        self.numbers = {value: i for i, value in enumerate(graph.arguments)}
        constants = (*graph.consts, *tables_of(graph))
        self.const_numbers = {value: i for i, value in enumerate(constants)}
        # State inputs by the value that overwrites them, as far as it is a result too.
        self.next_of: dict[ValueId, ValueId] = {}
        self.kept: set[ValueId] = set()
        self.passed: set[ValueId] = set()

    def make(self) -> Frame:
        frame, graph = self.frame, self.graph
        self._place_inputs()
        for value in tables_of(graph):
            size = graph.type(value).size_bytes
            number = self.const_numbers[value]
            frame.inputs[value] = BufferRange(Space.CONST, number, 0, size)
        for pair in graph.state:
            self._take_state(pair)
        for output in graph.outputs:
            if isinstance(output, Result):
                self._take_result(output.value)
        for output in graph.outputs:
            if isinstance(output, Export):
                frame.exports[output.name] = len(frame.results)
                self._take_result(output.value)
            elif isinstance(output, Witness):
                self._take_witness(output)
        frame.donated = frozenset(
            number
            for value, number in self.numbers.items()
            if graph.values[value].storage is Storage.STATE
        )
        return frame

    def make_inner(
        self, inputs: Mapping[ValueId, BufferRange], results: Sequence[BufferRange]
    ) -> Frame:
        self.frame.inputs.update(inputs)
        for pair in self.graph.state:
            self._take_state(pair)
        for value, target in zip(self.graph.results, results, strict=True):
            base = self._base(value)
            if base in inputs:
                self.frame.early.append((base, target))
            elif self._stores_at(base, target):
                self._write(base, target)
            else:
                self.frame.stored.add(base)
                self.frame.late.append((base, target))
        return self.frame

    def _stores_at(self, value: ValueId, target: BufferRange) -> bool:
        """Whether what computes a value can write to a target that stands anywhere."""
        if target.space is not Space.ROW or target.offset == 0:
            return True
        eqn = self.graph.eqns[self.definitions[value]]
        if updated_operand(eqn, value) is not None:
            return False
        return isinstance(eqn.op, (Fused, *ELEMENTWISE))

    def _place_inputs(self) -> None:
        slot_end = 0
        for value in self.graph.inputs:
            meta = self.graph.values[value]
            size = meta.type.size_bytes
            if meta.storage is Storage.SLOT:
                where = BufferRange(Space.SLOT, 0, slot_end, size)
                number = self.numbers[value]
                self.frame.slots.append(SlotSpec(number, meta.type, slot_end))
                slot_end += padded(size)
            else:
                numbers = (
                    self.const_numbers
                    if meta.storage is Storage.CONST
                    else self.numbers
                )
                where = BufferRange(_SPACES[meta.storage], numbers[value], 0, size)
            self.frame.inputs[value] = where

    def _base(self, value: ValueId) -> ValueId:
        """The value whose bytes, in order, are those of `value`: reshapes undone."""
        while value in self.definitions:
            eqn = self.graph.eqns[self.definitions[value]]
            operand = eqn.inputs[0] if isinstance(eqn.op, Reshape) else None
            if not isinstance(operand, int):
                break
            value = operand
        return value

    def _take_state(self, pair: StateNext) -> None:
        frame, base = self.frame, self._base(pair.value)
        target = frame.inputs[pair.input]
        if base == pair.input:
            self.kept.add(base)
            self.next_of.setdefault(base, pair.input)
            return
        if base in frame.inputs:
            is_state = self.graph.values[base].storage is Storage.STATE
            (frame.moved if is_state else frame.late).append((base, target))
            return
        self.next_of.setdefault(base, pair.input)
        maker = self.definitions[base]
        if base not in frame.homes and can_overwrite(
            self.graph, self.uses, pair.input, maker, base
        ):
            frame.homes[base] = target
            self._chain_updates(base, target, pair.input)
        else:
            frame.stored.add(base)
            frame.late.append((base, target))

    def _chain_updates(
        self, made: ValueId, target: BufferRange, state: ValueId | None = None
    ) -> None:
        """Have what is updated in `target`, again and again maybe, made there too."""
        graph, uses = self.graph, self.uses
        shown = {self._base(output.value) for output in graph.outputs}
        while True:
            maker = self.definitions[made]
            before = updated_operand(graph.eqns[maker], made)
            if before is None or before in shown or before not in self.definitions:
                return
            earlier = self.definitions[before]
            if not can_overwrite(graph, uses, before, maker, made):
                return
            if state is not None and not can_overwrite(
                graph, uses, state, earlier, before
            ):
                return
            self.frame.homes[before] = target
            made = before

    def _take_result(self, value: ValueId) -> None:
        """Add a result; the first of a state's next value is the state's buffer."""
        frame, base = self.frame, self._base(value)
        type = self.graph.type(value)
        number = len(frame.results)
        target = BufferRange(Space.RESULT, number, 0, type.size_bytes)
        if base in self.next_of and base not in self.passed:
            self.passed.add(base)
            state = self.numbers[self.next_of[base]]
            frame.results.append(ResultSpec(type, input_index=state))
            return
        if base not in frame.inputs:
            frame.results.append(ResultSpec(type))
            self._write(base, target)
            return
        # A failed check spoils what a call returns, but not what it was given.
        shares = not self.graph.witnesses
        storage = self.graph.values[base].storage
        if shares and base in self.const_numbers:
            frame.results.append(ResultSpec(type, const_index=self.const_numbers[base]))
        elif shares and storage is Storage.DEVICE:
            frame.results.append(ResultSpec(type, input_index=self.numbers[base]))
        else:
            frame.results.append(ResultSpec(type))
            frame.early.append((base, target))

    def _take_witness(self, output: Witness) -> None:
        frame, base = self.frame, self._base(output.value)
        # A word each 16 bytes, so that no write of one reaches into the next.
        offset = ALIGNMENT * len(frame.witnesses)
        source = str(output.source)
        frame.witnesses.append(WitnessSpec(offset, output.message, source))
        target = BufferRange(Space.WITNESS, 0, offset, 4)
        if base in frame.inputs:
            frame.early.append((base, target))
        else:
            self._write(base, target)

    def _write(self, base: ValueId, target: BufferRange) -> None:
        """Have a computed value written to `target`, directly or by a copy."""
        if base in self.frame.homes:
            self.frame.late.append((base, target))
        else:
            self.frame.homes[base] = target
            self._chain_updates(base, target)
