"""Eager evaluation: each op runs at once, as a graph of one equation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from poot.core import dtypes
from poot.core.builder import Builder
from poot.core.dtypes import Scalar
from poot.core.errors import CheckError
from poot.core.graph import Graph
from poot.core.interpreter import interpreting, set_base
from poot.core.op import Op, RuleTable
from poot.core.ops.elementwise import Select
from poot.core.source import Source, user_source
from poot.core.types import Slot, SlotKey, Storage, TensorType
from poot.interpreters.array import Array
from poot.interpreters.aval import Aval, aval_of
from poot.interpreters.backend import Executable, backend, when_changed
from poot.interpreters.config import settings
from poot.interpreters.nans import require_numbers
from poot.interpreters.opening import load_rules
from poot.interpreters.recording import load
from poot.interpreters.tracer import AnyTracer

SCALAR_SLOT = Slot("scalar")
# A dtype stands for a scalar in a slot, a tensor type for an array.
_OperandKind = TensorType | dtypes.DType
_CACHED_EXECUTABLES = 4096


class EagerInterpreter:
    """The interpreter below all others: its values are Arrays, its literals slots."""

    def process(self, op: Op, operands: tuple[Any, ...]) -> tuple[Array, ...]:
        if op.transient:
            load_rules()
            with interpreting(self):
                return transient[op.key](op, operands)
        kinds: list[_OperandKind] = []
        buffers: list[Any] = []
        numbers: list[Any] = []
        for operand in operands:
            if type(operand) is Array:
                kinds.append(operand.aval.type)
                buffers.append(operand.buffer or operand.live_buffer())
            elif isinstance(operand, Scalar):
                kinds.append(operand.dtype)
                buffers.append(None)
                numbers.append(operand.value)
            else:
                raise _refused(operand)
        executable, avals = _executable(op, tuple(kinds))
        results, completion = executable.call(buffers, numbers)
        now = settings()
        if now.sync_checks:
            completion.check()
        made = tuple(map(Array, results, avals))
        if now.debug_nans:
            require_numbers(op, [self.lift(operand) for operand in operands], made)
        return made

    def lift(self, value: Any, weak: bool = False) -> Any:
        if isinstance(value, AnyTracer):
            raise value.misplaced()
        if type(value) is Array:
            return value
        array = value.array if isinstance(value, Scalar) else np.asarray(value)
        return Array.from_numpy(array, weak)

    def witness(self, failed: Any, message: str, values: Sequence[Any]) -> list[Any]:
        failed = self.lift(failed)
        if not values:
            # Nothing depends on it, so that nobody would hear of it later.
            word = int(failed)
            if word:
                raise CheckError.of(message, user_source(), word)
        return [self._guarded(failed, message, self.lift(value)) for value in values]

    def _guarded(self, failed: Array, message: str, guarded: Array) -> Array:
        """A copy of the value that a failed check spoils."""
        graph = _witness_graph(guarded.type, message, user_source())
        executable = _loaded(graph)
        buffers = [guarded.live_buffer(), failed.live_buffer()]
        (buffer,), completion = executable.call(buffers)
        if settings().sync_checks:
            completion.check()
        return Array(buffer, guarded.aval)


def _refused(operand: Any) -> Exception:
    if isinstance(operand, AnyTracer):
        return operand.misplaced()
    return TypeError(
        f"an op takes arrays and Scalars, given {type(operand).__name__}; use "
        "poot.numpy or poot.lax, which convert"
    )


@lru_cache(maxsize=_CACHED_EXECUTABLES)
def _executable(
    op: Op, kinds: tuple[_OperandKind, ...]
) -> tuple[Executable, tuple[Aval, ...]]:
    graph = one_equation(op, kinds)
    avals = tuple(aval_of(type) for type in graph.result_types)
    return _loaded(graph), avals


def _loaded(graph: Graph) -> Executable:
    """A graph whose kernels serve other shapes too."""
    return load(backend().lower(graph), generic=True)


def one_equation(op: Op, kinds: tuple[_OperandKind, ...]) -> Graph:
    """The graph that applies `op` to arrays and, in slots, scalars."""
    builder = Builder()
    inputs = []
    for number, kind in enumerate(kinds):
        if isinstance(kind, TensorType):
            inputs.append(builder.input(kind))
        else:
            key = SlotKey(f"operand {number}")
            type = TensorType((), kind)
            inputs.append(builder.input(type, Storage.SLOT, key, SCALAR_SLOT))
    # The line that needs the kernel first; errors in making it name this line.
    for out in builder.emit(op, tuple(inputs), user_source()):
        builder.result(out)
    return builder.finish()


def _witness_graph(guarded: TensorType, message: str, source: Source) -> Graph:
    """A copy of one value, which a failed check spoils."""
    builder = Builder()
    value = builder.input(guarded)
    failed = builder.input(TensorType((), dtypes.int32))
    builder.witness(failed, message, source)
    (copied,) = builder.emit(Select(), (failed, value, value), source)
    builder.result(copied)
    return builder.finish()


# (op, operands) -> results, of ops that no device knows.
TransientRule = Callable[[Any, tuple[Any, ...]], tuple[Any, ...]]
transient: RuleTable[TransientRule] = RuleTable("transient")

EAGER = EagerInterpreter()
set_base(EAGER)


def clear_eager_cache() -> None:
    """Drop all executables of eager ops."""
    _executable.cache_clear()


when_changed(clear_eager_cache)
