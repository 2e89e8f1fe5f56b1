"""The graph: a flat, typed, topologically ordered list of equations in SSA form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from poot.core.dtypes import Scalar
from poot.core.edit import GraphEdit
from poot.core.equation import (
    Eqn,
    Export,
    GraphOutput,
    Operand,
    Result,
    StateNext,
    ValueId,
    Witness,
)
from poot.core.parse import parse_graph
from poot.core.source import UNKNOWN, Source
from poot.core.text import print_graph
from poot.core.types import Storage, TensorType, ValueMeta, literal_type
from poot.core.verify import verify


@dataclass(frozen=True, slots=True, repr=False)
class Graph:
    """A well-formed graph. Made by `Builder.finish` and `GraphEdit.commit` only.

    `payloads` holds the data of constants and `sources` the user's line an equation;
    neither takes part in equality.
    """

    values: tuple[ValueMeta, ...]
    inputs: tuple[ValueId, ...]
    eqns: tuple[Eqn, ...]
    outputs: tuple[GraphOutput, ...]
    payloads: Mapping[ValueId, Any] = field(default_factory=dict, compare=False)
    sources: tuple[Source, ...] = field(default=(), compare=False)
    _hash: int = field(default=0, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        key = (self.values, self.inputs, self.eqns, self.outputs)
        object.__setattr__(self, "_hash", hash(key))

    def __hash__(self) -> int:
        return self._hash

    def type(self, operand: Operand) -> TensorType:
        """The type of a value or literal."""
        if isinstance(operand, Scalar):
            return literal_type(operand)
        return self.values[operand].type

    @property
    def consts(self) -> tuple[ValueId, ...]:
        """The inputs that are weights or tables."""
        return self.inputs_in(Storage.CONST)

    @property
    def slots(self) -> tuple[ValueId, ...]:
        """The inputs that the host writes before each call."""
        return self.inputs_in(Storage.SLOT)

    @property
    def arguments(self) -> tuple[ValueId, ...]:
        """The inputs that a caller gives: all but the constants."""
        return tuple(
            v for v in self.inputs if self.values[v].storage is not Storage.CONST
        )

    def inputs_in(self, storage: Storage) -> tuple[ValueId, ...]:
        """The inputs of one storage class, in order."""
        return tuple(v for v in self.inputs if self.values[v].storage is storage)

    @property
    def input_types(self) -> tuple[TensorType, ...]:
        return tuple(self.values[v].type for v in self.inputs)

    @property
    def results(self) -> tuple[ValueId, ...]:
        return tuple(o.value for o in self.outputs if isinstance(o, Result))

    @property
    def result_types(self) -> tuple[TensorType, ...]:
        return tuple(self.values[v].type for v in self.results)

    @property
    def witnesses(self) -> tuple[Witness, ...]:
        return tuple(o for o in self.outputs if isinstance(o, Witness))

    @property
    def exports(self) -> dict[str, ValueId]:
        return {o.name: o.value for o in self.outputs if isinstance(o, Export)}

    @property
    def state(self) -> tuple[StateNext, ...]:
        """Each state input with the value that overwrites it."""
        return tuple(o for o in self.outputs if isinstance(o, StateNext))

    def source(self, eqn_index: int) -> Source:
        """The user's line that emitted an equation."""
        return self.sources[eqn_index] if self.sources else UNKNOWN

    def definitions(self) -> dict[ValueId, int]:
        """The index of the equation that defines each computed value."""
        return {out: i for i, eqn in enumerate(self.eqns) for out in eqn.outs}

    def uses(self) -> dict[ValueId, list[int]]:
        """The indices of the equations that read each value, in order."""
        found: dict[ValueId, list[int]] = {}
        for i, eqn in enumerate(self.eqns):
            for operand in dict.fromkeys(eqn.inputs):
                if not isinstance(operand, Scalar):
                    found.setdefault(operand, []).append(i)
        return found

    def edit(self) -> GraphEdit:
        """Open a draft of this graph, to change it by one checked commit."""
        return GraphEdit(self)

    def __str__(self) -> str:
        return print_graph(self)

    __repr__ = __str__

    @classmethod
    def parse(cls, text: str, consts: Sequence[Any] = ()) -> Graph:
        """The graph that `str` printed as `text`, checked.

        `consts` are the payloads of all constants in the order of printing; without
        any, the graph can be looked at but not run. ParseError for other text, some
        other GraphError where a rule of the specification is broken.
        """

        def checked(*parts: Any) -> Graph:
            return verify(cls(*parts))

        return cast(Graph, parse_graph(text, checked, consts))
