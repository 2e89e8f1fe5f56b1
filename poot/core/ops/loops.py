"""Loops over state that bodies update in place: what passes make of control flow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from poot.core import dtypes
from poot.core.builder import Builder
from poot.core.dtypes import Scalar
from poot.core.equation import ValueId
from poot.core.errors import OperandCountError, OutputError, TypeMismatchError
from poot.core.graph import Graph
from poot.core.op import register
from poot.core.ops.control import Cond, ControlOp, Scan, While
from poot.core.ops.elementwise import Compare, CompareOp
from poot.core.ops.shape import Broadcast, Iota
from poot.core.types import Storage, TensorType, scalar_type

INDEX = scalar_type(dtypes.int32)
_ZERO = Scalar.of(0, dtypes.int32)


@dataclass(frozen=True, slots=True)
class StateLoop(ControlOp):
    """A loop whose body has its carries as state, with a next value each.

    Inputs of the body: what the loop itself gives it, all state, then device inputs
    that no iteration changes. Results: the last states, in order.
    """

    body: Graph
    composite: ClassVar[bool] = True
    # Whether the results of the body are stacked.
    stacks: ClassVar[bool] = False

    @property
    def regions(self) -> tuple[Graph, ...]:
        return (self.body,)

    def with_regions(self, regions: Sequence[Graph]) -> StateLoop:
        (body,) = regions
        return replace(self, body=body)

    @property
    def states(self) -> tuple[ValueId, ...]:
        """The state inputs of the body."""
        return self.body.inputs_in(Storage.STATE)

    @property
    def started(self) -> int:
        """How many of the states have an operand, which they begin as."""
        return len(self.states)

    @property
    def next_values(self) -> dict[ValueId, ValueId]:
        """The value that overwrites each state."""
        return {pair.input: pair.value for pair in self.body.state}

    def _check_body(self, given: int) -> None:
        """Raise unless inputs stand in their order and outputs are of their kinds."""
        storages = [self.body.values[v].storage for v in self.body.inputs]
        states = len(self.states)
        rest = len(storages) - given - states
        wanted = [Storage.DEVICE] * given + [Storage.STATE] * states
        if storages != wanted + [Storage.DEVICE] * rest:
            raise TypeMismatchError(
                f"{self.name}: the body takes {given} device inputs, its states, then "
                f"device inputs; given {', '.join(s.value for s in storages)}"
            )
        results = len(self.body.results)
        if results and not self.stacks:
            raise OutputError(
                f"{self.name}: the body gives {results} results; takes next states only"
            )
        if len(self.body.state) + results != len(self.body.outputs):
            raise OutputError(
                f"{self.name}: the body has exports or witnesses; takes results and "
                "next states only"
            )

    def _check_operands(
        self, given: Sequence[TensorType], wanted: Sequence[TensorType]
    ) -> None:
        if len(given) != len(wanted):
            raise OperandCountError(
                f"{self.name}: given {len(given)} operands, takes {len(wanted)}"
            )
        if tuple(given) != tuple(wanted):
            raise TypeMismatchError(
                f"{self.name}: operands are ({', '.join(map(str, given))}), the body "
                f"takes ({', '.join(map(str, wanted))})"
            )

    def _state_types(self) -> tuple[TensorType, ...]:
        return tuple(self.body.type(v) for v in self.states)


@register
@dataclass(frozen=True, slots=True)
class CountedLoop(StateLoop):
    """Run `body` `trips` times.

    The loop gives the body an i32 scalar, the index of the iteration: 0 to trips - 1,
    or down with `reverse`; and as its last inputs the rows of that index of the last
    `rows` operands. Operands: the initial states, the device inputs, then the tensors
    of rows. The last `fresh` states have no operand: the iterations overwrite all of
    them, and nobody reads an element before. Results: the last states, then what the
    body gives in each iteration, stacked.
    """

    trips: int
    rows: int = 0
    fresh: int = 0
    reverse: bool = False
    name: ClassVar[str] = "counted_loop"
    stacks: ClassVar[bool] = True

    @property
    def started(self) -> int:
        return len(self.states) - self.fresh

    def infer(self, *operands: TensorType) -> tuple[TensorType, ...]:
        self._check_body(1)
        types, states = self.body.input_types, self._state_types()
        if types[0] != INDEX:
            raise TypeMismatchError(
                f"{self.name}: the index is {types[0]}, takes {INDEX}"
            )
        end = len(types) - self.rows
        wanted = (*states[: self.started], *types[1 + len(states) : end])
        stacked = tuple(self._stacked(type) for type in types[end:])
        self._check_operands(operands, (*wanted, *stacked))
        return (*states, *(self._stacked(type) for type in self.body.result_types))

    def _stacked(self, type: TensorType) -> TensorType:
        return TensorType((self.trips, *type.shape), type.dtype)

    def decompose(self, *_: TensorType) -> Graph:
        """A Scan, over the numbers of the iterations too; fresh states are zeros."""
        states, types = self._state_types(), self.body.input_types
        consts = types[1 + len(states) : len(types) - self.rows]
        builder = Builder(composites=True)
        initial = [builder.input(type) for type in states[: self.started]]
        others = [builder.input(type) for type in consts]
        xs = [
            builder.input(self._stacked(type))
            for type in types[len(types) - self.rows :]
        ]
        for type in states[self.started :]:
            zero = Scalar.of(0, type.dtype)
            initial += builder.emit(Broadcast(type.shape), (zero,))
        (indices,) = builder.emit(Iota(dtypes.int32, (self.trips,), 0), ())
        scan = Scan(
            self._step(), self.trips, len(consts), len(states), reverse=self.reverse
        )
        for out in builder.emit(scan, (*others, *initial, indices, *xs)):
            builder.result(out)
        return builder.finish()

    def _step(self) -> Graph:
        """The body of the Scan: consts, states, the index, rows."""
        index, *inputs = self.body.inputs
        count, end = len(self.states), len(inputs) - self.rows
        ordered = [*inputs[count:end], *inputs[:count], index, *inputs[end:]]
        builder = Builder(composites=True)
        given = {value: builder.input(self.body.type(value)) for value in ordered}
        known = builder.inline(self.body, [given[v] for v in self.body.inputs])
        for state in self.states:
            builder.result(known[self.next_values[state]])
        for value in self.body.results:
            builder.result(known[value])
        return builder.finish()


@register
@dataclass(frozen=True, slots=True)
class FlagLoop(StateLoop):
    """Run `body` as long as its first state, an i32 scalar, is not 0.

    Operands: the initial states, then the device inputs.
    """

    name: ClassVar[str] = "flag_loop"

    def infer(self, *operands: TensorType) -> tuple[TensorType, ...]:
        self._check_body(0)
        states = self._state_types()
        if states[:1] != (INDEX,):
            raise TypeMismatchError(
                f"{self.name}: the flag is {', '.join(map(str, states[:1]))}, takes "
                f"{INDEX}"
            )
        self._check_operands(operands, self.body.input_types)
        return states

    def decompose(self, *_: TensorType) -> Graph:
        """A While that looks at the flag."""
        types = self._state_types()
        consts = self.body.input_types[len(types) :]
        condition = Builder()
        flag, *_others = [condition.input(type) for type in types]
        condition.result(*condition.emit(Compare(CompareOp.NE), (flag, _ZERO)))
        body = Builder(composites=True)
        others = [body.input(type) for type in consts]
        known = body.inline(self.body, [*(body.input(t) for t in types), *others])
        for state in self.states:
            body.result(known[self.next_values[state]])
        builder = Builder(composites=True)
        operands = [builder.input(type) for type in self.body.input_types]
        loop = While(condition.finish(), body.finish(), 0, len(consts))
        ordered = (*operands[len(types) :], *operands[: len(types)])
        for out in builder.emit(loop, ordered):
            builder.result(out)
        return builder.finish()


@register
@dataclass(frozen=True, slots=True)
class Switch(ControlOp):
    """Run the one of `branches` that the index names, which is in range.

    Operands: the index, an i32 scalar, then the operands that every branch takes.
    """

    branches: tuple[Graph, ...]
    name: ClassVar[str] = "switch"
    composite: ClassVar[bool] = True

    @property
    def regions(self) -> tuple[Graph, ...]:
        return self.branches

    def with_regions(self, regions: Sequence[Graph]) -> Switch:
        return replace(self, branches=tuple(regions))

    def infer(self, *operands: TensorType) -> tuple[TensorType, ...]:
        return Cond(self.branches).infer(*operands)

    def decompose(self, *_: TensorType) -> Graph:
        """A Cond, which would clamp the index."""
        builder = Builder(composites=True)
        types = (INDEX, *self.branches[0].input_types)
        operands = tuple(builder.input(type) for type in types)
        for out in builder.emit(Cond(self.branches), operands):
            builder.result(out)
        return builder.finish()
