"""Staging: ops become equations of a graph."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from poot.core.builder import Builder
from poot.core.dtypes import Scalar, as_dtype
from poot.core.equation import Operand, ValueId
from poot.core.errors import PootError
from poot.core.interpreter import current
from poot.core.op import Op
from poot.core.source import Source, user_source
from poot.core.text import payload_digest
from poot.core.types import (
    ANONYMOUS,
    Identity,
    Slot,
    Storage,
    TensorType,
    Weight,
    literal_type,
)
from poot.interpreters.array import Array
from poot.interpreters.aval import Aval, aval_of
from poot.interpreters.methods import Value
from poot.interpreters.tracer import AnyTracer, Tracer


class StagingInterpreter:
    """Builds the graph of one call of one function; its values are Tracers."""

    def __init__(self, function_name: str) -> None:
        self.function_name = function_name
        self.is_finished = False
        self.builder = Builder()
        # Where values come from, for messages: words, or an op and its line.
        self._origins: dict[ValueId, str | tuple[Op, Source]] = {}
        # Constants: Arrays by identity (kept alive, so that it stays theirs) and NumPy
        # arrays by content.
        self._captures: dict[int, tuple[Array, ValueId]] = {}
        self._copies: dict[str, ValueId] = {}

    # --- inputs -------------------------------------------------------------

    def input(
        self,
        aval: Aval,
        name: str,
        storage: Storage = Storage.DEVICE,
        identity: Identity = ANONYMOUS,
        slot: Slot | None = None,
    ) -> Tracer:
        """A new input of the graph."""
        value = self.builder.input(aval.type, storage, identity, slot)
        self._origins[value] = f"the argument `{name}`"
        return Tracer(self, value, aval)

    def origin(self, value: ValueId) -> str:
        """Words for messages: what made a value, and at which line."""
        origin = self._origins[value]
        if isinstance(origin, str):
            return origin
        op, source = origin
        return f"made by `{op.plain_name}` at {source}"

    @property
    def constants(self) -> set[ValueId]:
        """The values that came from outside the function."""
        return {value for _, value in self._captures.values()} | {
            *self._copies.values()
        }

    # --- the interpreter ----------------------------------------------------

    def process(self, op: Op, operands: tuple[Any, ...]) -> tuple[Tracer, ...]:
        source = user_source()
        own = tuple(self._operand(operand) for operand in operands)
        outs = self.builder.emit(op, own, source)
        for out in outs:
            self._origins[out] = op, source
        return tuple(Tracer(self, out, aval_of(self.builder.type(out))) for out in outs)

    def lift(self, value: Any, weak: bool = False) -> Tracer:
        if type(value) is Tracer and value.staging is self:
            return value
        operand = self._operand(value)
        if isinstance(value, Value):
            weak = value.aval.weak
        if isinstance(operand, Scalar):
            return Tracer(self, operand, aval_of(literal_type(operand), weak))
        return Tracer(self, operand, aval_of(self.builder.type(operand), weak))

    def witness(self, failed: Any, message: str, values: Sequence[Any]) -> list[Any]:
        source = user_source()
        self.builder.witness(self.value_id(self.lift(failed)), message, source)
        return list(values)

    # --- operands -----------------------------------------------------------

    def value_id(self, tracer: Tracer) -> ValueId:
        """The value of a tracer as the graph's output; literals become constants."""
        if isinstance(tracer.operand, Scalar):
            return self._copied(tracer.operand.array)
        return tracer.operand

    def _operand(self, operand: Any) -> Operand:
        if type(operand) is Tracer and operand.staging is self:
            return operand.operand
        if self.is_finished:
            raise PootError(f"the trace of `{self.function_name}` has ended")
        if isinstance(operand, Scalar):
            return operand
        if isinstance(operand, AnyTracer):
            return self._foreign(operand)
        if type(operand) is Array:
            return self._captured(operand)
        if isinstance(operand, np.ndarray | np.generic):
            return self._copied(operand)
        raise TypeError(
            f"an op takes arrays, traced values and Scalars, given "
            f"{type(operand).__name__}; use poot.numpy or poot.lax, which convert"
        )

    def _foreign(self, traced: AnyTracer) -> Operand:
        """A value that belongs to another interpreter."""
        raise traced.misplaced()

    def _captured(self, array: Array) -> ValueId:
        """An Array is a constant by identity; its memory must not change any more."""
        if id(array) not in self._captures:
            array.live_buffer()
            weight = Weight(array.reference())
            value = self._constant(copy.copy(array), weight)
            self._captures[id(array)] = (array, value)
        return self._captures[id(array)][1]

    def _copied(self, array: Any) -> ValueId:
        """The user may change a NumPy array later, or between two uses in a trace."""
        copied = np.array(array, order="C")
        digest = payload_digest(copied)
        if digest not in self._copies:
            copied.flags.writeable = False
            self._copies[digest] = self._constant_of(copied, digest)
        return self._copies[digest]

    def _constant_of(self, copied: Any, digest: str) -> ValueId:
        return self._constant(copied, Weight(digest))

    def _constant(self, payload: Any, identity: Weight) -> ValueId:
        type = TensorType(payload.shape, as_dtype(payload.dtype))
        value = self.builder.constant(type, payload, identity)
        self._origins[value] = "a constant from outside the function"
        return value


def traced_function() -> str | None:
    """The function that is being staged around here, where nothing is computed."""
    interpreter: Any = current()
    while interpreter is not None:
        if isinstance(interpreter, StagingInterpreter):
            return interpreter.function_name
        interpreter = getattr(interpreter, "parent", None)
    return None
