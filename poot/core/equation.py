"""Equations and outputs: what a graph is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NewType

from poot.core.dtypes import Scalar
from poot.core.source import UNKNOWN, Source

if TYPE_CHECKING:
    from poot.core.op import Op

ValueId = NewType("ValueId", int)
Operand = ValueId | Scalar


@dataclass(frozen=True, slots=True)
class Eqn:
    """One operation on values and literals."""

    op: Op
    inputs: tuple[Operand, ...]
    outs: tuple[ValueId, ...]

    @property
    def out(self) -> ValueId:
        """The only result."""
        (out,) = self.outs
        return out


@dataclass(frozen=True, slots=True)
class Result:
    """A value that the graph returns."""

    value: ValueId


@dataclass(frozen=True, slots=True)
class Witness:
    """An i32 scalar that is not zero where a run-time check failed."""

    value: ValueId
    message: str
    source: Source = field(default=UNKNOWN, compare=False)


@dataclass(frozen=True, slots=True)
class Export:
    """A named extra value, readable from the executable."""

    value: ValueId
    name: str


@dataclass(frozen=True, slots=True)
class StateNext:
    """The value that overwrites the buffer of the state input `input`."""

    value: ValueId
    input: ValueId


GraphOutput = Result | Witness | Export | StateNext
