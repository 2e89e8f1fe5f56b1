"""Control flow: loops and choices whose bodies are graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from poot.core import dtypes
from poot.core.equation import Export, StateNext, Witness
from poot.core.errors import (
    OperandCountError,
    OutputError,
    ShapeError,
    StorageError,
    TypeMismatchError,
)
from poot.core.graph import Graph
from poot.core.op import Op, register
from poot.core.types import Storage, TensorType, scalar_type

_WORD = scalar_type(dtypes.int32)


@dataclass(frozen=True, slots=True)
class ControlOp(Op):
    """An op that runs sub-graphs, whose inputs are device values and nothing else.

    Sub-graphs have results and witnesses. The last results of the equation are one i32
    scalar a witness of any sub-graph, in order: 0 unless the check failed.
    """

    multiple_results: ClassVar[bool] = True

    @property
    def regions(self) -> tuple[Graph, ...]:
        """The sub-graphs, in the order of the parameters."""
        raise NotImplementedError

    def with_regions(self, regions: Sequence[Graph]) -> ControlOp:
        """The same op over other sub-graphs."""
        raise NotImplementedError

    @property
    def witnesses(self) -> tuple[Witness, ...]:
        """The witnesses of all sub-graphs: one of the last results belongs to each."""
        return tuple(w for region in self.regions for w in region.witnesses)

    def _words(self) -> tuple[TensorType, ...]:
        return (_WORD,) * len(self.witnesses)


def _listed(types: Sequence[TensorType]) -> str:
    return f"({', '.join(map(str, types))})"


def _check_region(where: str, graph: Graph) -> None:
    """Raise unless a sub-graph takes device values only, and gives results only."""
    for value in graph.inputs:
        storage = graph.values[value].storage
        if storage is not Storage.DEVICE:
            raise StorageError(
                f"{where}: input %{value} has storage {storage.value}; takes device "
                "inputs only. Give the value as an operand"
            )
    for output in graph.outputs:
        if isinstance(output, Export | StateNext):
            kind = "an export" if isinstance(output, Export) else "a next state"
            raise OutputError(
                f"{where}: %{output.value} is {kind}; takes results and witnesses only"
            )


def _check_count(where: str, given: int, wanted: int) -> None:
    if given != wanted:
        raise OperandCountError(f"{where}: given {given} operands, takes {wanted}")


def _check_types(
    where: str, given: Sequence[TensorType], wanted: Sequence[TensorType]
) -> None:
    """Raise unless operands have the types of the inputs that they go to."""
    if tuple(given) != tuple(wanted):
        raise TypeMismatchError(
            f"{where} are {_listed(given)}, the sub-graph takes {_listed(wanted)}"
        )


def _check_carries(
    where: str, carries: Sequence[TensorType], made: Sequence[TensorType]
) -> None:
    """Raise unless a body gives each carry as the type that it takes it as."""
    if len(made) < len(carries):
        raise TypeMismatchError(
            f"{where}: the body gives {len(made)} results, takes one at least for each "
            f"of {len(carries)} carries"
        )
    for number, (before, after) in enumerate(zip(carries, made, strict=False)):
        if before != after:
            raise TypeMismatchError(
                f"{where}: carry {number} goes in as {before} and comes out as {after};"
                " the two must be equal"
            )


def _check_parts(where: str, **parts: int) -> None:
    for name, size in parts.items():
        if size < 0:
            raise ShapeError(f"{where}: {name} is {size}, takes 0 or more")


@register
@dataclass(frozen=True, slots=True)
class Scan(ControlOp):
    """Run `body` `length` times, handing carries on and stacking what it gives.

    Operands: `consts` values that every iteration reads, the initial values of
    `carries` carries, then xs with a leading axis of `length`. The body takes the
    consts, the carries and element i of each xs; it gives the next carries, then ys.
    Results: the last carries, the ys stacked along a new leading axis, then a word a
    witness: 0, or 1 + the index of the iteration in which the check failed first.
    With `reverse` the iterations go from the last index to the first.
    """

    body: Graph
    length: int
    consts: int
    carries: int
    reverse: bool = False
    name: ClassVar[str] = "scan"

    @property
    def regions(self) -> tuple[Graph, ...]:
        return (self.body,)

    def with_regions(self, regions: Sequence[Graph]) -> Scan:
        (body,) = regions
        return replace(self, body=body)

    def infer(self, *operands: TensorType) -> tuple[TensorType, ...]:
        _check_region("scan", self.body)
        _check_parts(
            "scan", length=self.length, consts=self.consts, carries=self.carries
        )
        wanted = self.body.input_types
        _check_count("scan", len(operands), len(wanted))
        fixed = self.consts + self.carries
        if fixed > len(wanted):
            raise OperandCountError(
                f"scan: {self.consts} consts and {self.carries} carries of "
                f"{len(wanted)} inputs of the body; takes as many inputs at least"
            )
        for number, xs in enumerate(operands[fixed:]):
            if not xs.shape or xs.shape[0] != self.length:
                raise ShapeError(
                    f"scan: xs {number} is {xs}, takes a leading axis of size "
                    f"{self.length}, the length of the scan"
                )
        elements = [TensorType(xs.shape[1:], xs.dtype) for xs in operands[fixed:]]
        given = (*operands[:fixed], *elements)
        _check_types("scan: consts, carries and elements of xs", given, wanted)
        carries, made = operands[self.consts : fixed], self.body.result_types
        _check_carries("scan", carries, made)
        ys = (
            TensorType((self.length, *y.shape), y.dtype) for y in made[len(carries) :]
        )
        return (*carries, *ys, *self._words())


@register
@dataclass(frozen=True, slots=True)
class While(ControlOp):
    """Run `body` on the carries as long as `condition` holds of them.

    Operands: `condition_consts` values that the condition reads, `body_consts` that
    the body reads, then the initial carries. The condition takes its consts and the
    carries, and gives a bool scalar; the body takes its consts and the carries, and
    gives the next carries. Results: the last carries, then a word a witness (those of
    the condition first): 0, or 1 + the number of the iteration (of how often the
    condition had held) in which the check failed first.
    """

    condition: Graph
    body: Graph
    condition_consts: int
    body_consts: int
    name: ClassVar[str] = "while"

    @property
    def regions(self) -> tuple[Graph, ...]:
        return self.condition, self.body

    def with_regions(self, regions: Sequence[Graph]) -> While:
        condition, body = regions
        return replace(self, condition=condition, body=body)

    def infer(self, *operands: TensorType) -> tuple[TensorType, ...]:
        _check_region("while: condition", self.condition)
        _check_region("while: body", self.body)
        _check_parts(
            "while",
            condition_consts=self.condition_consts,
            body_consts=self.body_consts,
        )
        first, fixed = self.condition_consts, self.condition_consts + self.body_consts
        if len(operands) < fixed:
            raise OperandCountError(
                f"while: given {len(operands)} operands, takes at least {fixed}: "
                f"{first} consts of the condition and {self.body_consts} of the body"
            )
        carries = operands[fixed:]
        _check_types(
            "while: consts and carries of the condition",
            (*operands[:first], *carries),
            self.condition.input_types,
        )
        _check_types(
            "while: consts and carries of the body",
            (*operands[first:fixed], *carries),
            self.body.input_types,
        )
        if self.condition.result_types != (scalar_type(dtypes.bool_),):
            raise TypeMismatchError(
                "while: the condition gives "
                f"{_listed(self.condition.result_types)}, takes a bool scalar"
            )
        made = self.body.result_types
        if len(made) != len(carries):
            raise TypeMismatchError(
                f"while: the body gives {len(made)} results, takes one for each of "
                f"{len(carries)} carries"
            )
        _check_carries("while", carries, made)
        return (*carries, *self._words())


@register
@dataclass(frozen=True, slots=True)
class Cond(ControlOp):
    """Run one of the `branches`: that of the index, clamped to 0..branches-1.

    Operands: the index, an i32 scalar, then the operands that every branch takes.
    Results: those of the branch, then a word a witness of all branches in order: 0
    where the branch did not run, else the word that the branch itself gives.
    """

    branches: tuple[Graph, ...]
    name: ClassVar[str] = "cond"

    @property
    def regions(self) -> tuple[Graph, ...]:
        return self.branches

    def with_regions(self, regions: Sequence[Graph]) -> Cond:
        return replace(self, branches=tuple(regions))

    def infer(self, index: TensorType, *operands: TensorType) -> tuple[TensorType, ...]:
        if not self.branches:
            raise OperandCountError("cond: there is no branch; takes one at least")
        if index != _WORD:
            raise TypeMismatchError(f"cond: the index is {index}, takes {_WORD}")
        made = self.branches[0].result_types
        for number, branch in enumerate(self.branches):
            where = f"cond: branch {number}"
            _check_region(where, branch)
            _check_types(f"{where}: operands", operands, branch.input_types)
            if branch.result_types != made:
                raise TypeMismatchError(
                    f"{where} gives {_listed(branch.result_types)}, branch 0 "
                    f"{_listed(made)}; the two must be equal"
                )
        return (*made, *self._words())
