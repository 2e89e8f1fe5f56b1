"""Checked changes to a graph: open a draft, change it, commit it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from poot.core.dtypes import Scalar
from poot.core.equation import (
    Eqn,
    Export,
    GraphOutput,
    Operand,
    StateNext,
    ValueId,
    Witness,
)
from poot.core.errors import (
    CycleError,
    LostOutputError,
    OutputError,
    UndefinedValueError,
)
from poot.core.op import Op
from poot.core.source import UNKNOWN, Source
from poot.core.types import (
    ANONYMOUS,
    Identity,
    Storage,
    TensorType,
    ValueMeta,
    literal_type,
)
from poot.core.verify import verify

if TYPE_CHECKING:
    from poot.core.graph import Graph


class GraphEdit:
    """A draft of one graph.

    Equations may be added anywhere: `commit` puts them in topological order, the old
    order kept where it can be, then renumbers the values and checks the whole.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._values = list(graph.values)
        self._eqns: list[Eqn | None] = list(graph.eqns)
        self._sources = [graph.source(i) for i in range(len(graph.eqns))]
        # Where an added equation would like to stand: after this old position.
        self._places = [float(i) for i in range(len(graph.eqns))]
        self._outputs: list[GraphOutput | None] = list(graph.outputs)
        self._replaced: dict[ValueId, Operand] = {}

    def type(self, operand: Operand) -> TensorType:
        if isinstance(operand, Scalar):
            return literal_type(operand)
        return self._values[operand].type

    def emit(
        self,
        op: Op,
        operands: tuple[Operand, ...],
        at: int,
        source: Source = UNKNOWN,
        identity: Identity = ANONYMOUS,
        storage: Storage = Storage.DEVICE,
    ) -> tuple[ValueId, ...]:
        """Add an equation beside the old equation number `at`; its results."""
        types = op.infer_all(*(self.type(operand) for operand in operands))
        outs = []
        for type in types:
            self._values.append(ValueMeta(type, storage, identity))
            outs.append(ValueId(len(self._values) - 1))
        self._eqns.append(Eqn(op, tuple(operands), tuple(outs)))
        self._sources.append(source)
        self._places.append(at + 0.5)
        return tuple(outs)

    def replace(self, old: ValueId, new: Operand) -> None:
        """Let every use of `old`, outputs included, read `new`."""
        self._replaced[old] = new

    def rewire(self, eqn_index: int, operands: tuple[Operand, ...]) -> None:
        """Let an equation of the old graph read other operands of the same types."""
        eqn = self._eqns[eqn_index]
        assert eqn is not None, "a removed equation reads nothing"
        self._eqns[eqn_index] = Eqn(eqn.op, operands, eqn.outs)

    def remove(self, eqn_index: int) -> None:
        """Drop an equation of the old graph; its results may have no use left."""
        self._eqns[eqn_index] = None

    def reorder(self, order: Sequence[int]) -> None:
        """Wish for the old equations in this order of their numbers."""
        for place, index in enumerate(order):
            self._places[index] = float(place)

    def drop_output(self, index: int) -> None:
        """Drop an output of the old graph; `commit` refuses to lose it."""
        self._outputs[index] = None

    def commit(self) -> Graph:
        """The changed graph, checked; LostOutputError if it lost an output."""
        eqns = {
            i: Eqn(e.op, tuple(self._final(o) for o in e.inputs), e.outs)
            for i, e in enumerate(self._eqns)
            if e is not None
        }
        order = self._order(eqns)
        outputs = [self._final_output(o) for o in self._outputs if o is not None]
        self._require_same_contract(outputs)
        return self._renumber([eqns[i] for i in order], order, outputs)

    def _final(self, operand: Operand) -> Operand:
        seen = set()
        while not isinstance(operand, Scalar) and operand in self._replaced:
            if operand in seen:
                raise CycleError(f"%{operand} is replaced by itself")
            seen.add(operand)
            operand = self._replaced[operand]
        return operand

    def _final_output(self, output: GraphOutput) -> GraphOutput:
        value = self._final(output.value)
        if isinstance(value, Scalar):
            raise OutputError(f"output %{output.value} was replaced by a literal")
        return replace(output, value=value)

    def _order(self, eqns: Mapping[int, Eqn]) -> list[int]:
        """Depth-first over operands from each equation in its wished-for place."""
        maker = {out: i for i, eqn in eqns.items() for out in eqn.outs}
        makers = {
            i: [maker[o] for o in e.inputs if not isinstance(o, Scalar) and o in maker]
            for i, e in eqns.items()
        }
        done: set[int] = set()
        active: set[int] = set()
        order: list[int] = []
        stack = sorted(eqns, key=lambda i: (-self._places[i], -i))
        while stack:
            i = stack[-1]
            needed = [m for m in makers[i] if m not in done]
            if i in done or not needed:
                stack.pop()
                if i not in done:
                    done.add(i)
                    order.append(i)
            elif i in active:
                raise CycleError(f"equation `{eqns[i].op}` needs its own result")
            else:
                active.add(i)
                stack.extend(reversed(needed))
        return order

    def _require_same_contract(self, outputs: list[GraphOutput]) -> None:
        before = _contract(self.graph.outputs, self.type)
        after = _contract(tuple(outputs), self.type)
        for entry in before:
            if entry not in after:
                raise LostOutputError(f"the edit loses or changes {entry}")
            after.remove(entry)
        if after:
            raise LostOutputError(f"the edit adds {after[0]}")

    def _renumber(
        self, eqns: list[Eqn], order: list[int], outputs: list[GraphOutput]
    ) -> Graph:
        new_ids: dict[ValueId, ValueId] = {}
        values: list[ValueMeta] = []
        for old in [*self.graph.inputs, *(out for e in eqns for out in e.outs)]:
            new_ids[old] = ValueId(len(values))
            values.append(self._values[old])

        def renamed(operand: Operand) -> Operand:
            if isinstance(operand, Scalar):
                return operand
            if operand not in new_ids:
                raise UndefinedValueError(
                    f"%{operand} is used, but the equation that made it was removed"
                )
            return new_ids[operand]

        return verify(
            replace(
                self.graph,
                values=tuple(values),
                inputs=tuple(new_ids[v] for v in self.graph.inputs),
                eqns=tuple(
                    Eqn(
                        e.op,
                        tuple(renamed(o) for o in e.inputs),
                        tuple(new_ids[out] for out in e.outs),
                    )
                    for e in eqns
                ),
                outputs=tuple(_rename_output(o, renamed) for o in outputs),
                payloads={new_ids[v]: p for v, p in self.graph.payloads.items()},
                sources=tuple(self._sources[i] for i in order),
            )
        )


def _contract(
    outputs: tuple[GraphOutput, ...], type_of: Callable[[Operand], TensorType]
) -> list[str]:
    """What of the outputs an edit must keep, as comparable entries."""
    entries = []
    results = 0
    for output in outputs:
        if isinstance(output, Witness):
            entries.append(f"witness {output.message!r}")
        elif isinstance(output, Export):
            entries.append(f"export {output.name!r}: {type_of(output.value)}")
        elif isinstance(output, StateNext):
            entries.append(f"state %{output.input}")
        else:
            entries.append(f"result {results}: {type_of(output.value)}")
            results += 1
    return entries


def _rename_output(
    output: GraphOutput, renamed: Callable[[Operand], Operand]
) -> GraphOutput:
    def value_of(value: ValueId) -> ValueId:
        new = renamed(value)
        assert not isinstance(new, Scalar)
        return new

    if isinstance(output, StateNext):
        return StateNext(value_of(output.value), value_of(output.input))
    return replace(output, value=value_of(output.value))
