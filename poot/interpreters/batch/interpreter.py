"""Batching of what a function does, op by op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

from poot.core.interpreter import Interpreter, interpreting
from poot.core.op import Op, RuleTable
from poot.core.ops.collectives import Collective
from poot.core.ops.reduce import Reduce, ReduceOp
from poot.core.types import TensorType
from poot.interpreters.aval import Aval, aval_of
from poot.interpreters.batch.table import Axis, batch, naming, placed
from poot.interpreters.transform import Origin, TransformInterpreter, TransformTracer

# (op, operands, their axes) -> (results, their axes), for ops over the batch itself.
CollectRule = Callable[
    [Any, Sequence[Any], Sequence[Axis]], tuple[tuple[Any, ...], tuple[Axis, ...]]
]
collect: RuleTable[CollectRule] = RuleTable("collect")


class BatchTracer(TransformTracer):
    """One example's value; the values of all stand along `axis` of what it holds.

    `axis` None: the value is the same for all.
    """

    __slots__ = ("axis", "held")

    def __init__(
        self,
        interpreter: BatchInterpreter,
        held: Any,
        axis: Axis,
        origin: Origin = None,
    ) -> None:
        self.interpreter = interpreter
        self.origin = origin
        self.held = held
        self.axis = axis
        self.aval = held.aval if axis is None else _without(held.aval, axis)

    def remade(self, aval: Aval) -> Self:
        made = self.over(lambda held: held)
        made.aval = aval
        return made

    def over(self, move: Callable[[Any], Any]) -> Self:
        made = type(self)(
            self.interpreter,  # type: ignore[arg-type]
            move(self.held),
            self.axis,
            self.origin,
        )
        made.aval = self.aval
        return made

    def __repr__(self) -> str:
        return f"Batched<{self.aval}, axis {self.axis} of {self.held!r}>"


def _without(aval: Aval, axis: int) -> Aval:
    shape = aval.type.shape
    type = TensorType((*shape[:axis], *shape[axis + 1 :]), aval.type.dtype)
    return aval_of(type, aval.weak)


class BatchInterpreter(TransformInterpreter):
    """Its values are BatchTracers of `size` examples each."""

    kind: ClassVar[str] = "vmap"

    def __init__(
        self,
        parent: Interpreter,
        function_name: str,
        size: int,
        axis_name: str | None = None,
    ) -> None:
        super().__init__(parent, function_name)
        self.size = size
        self.axis_name = axis_name

    def process(self, op: Op, operands: tuple[Any, ...]) -> tuple[Any, ...]:
        held, axes = [], []
        origin = self.origin(op)
        for operand in operands:
            if type(operand) is BatchTracer and operand.interpreter is self:
                held.append(operand.held)
                axes.append(operand.axis)
            else:
                held.append(operand)
                axes.append(None)
        if isinstance(op, Collective) and op.axis_name == self.axis_name:
            with interpreting(self.parent):
                outs, moved = collect[op.key](op, held, axes)
            return self._traced(outs, moved, origin)
        if all(axis is None for axis in axes):
            outs = self.parent.process(op, tuple(held))
            return tuple([BatchTracer(self, out, None, origin) for out in outs])
        with interpreting(self.parent), naming(self.axis_name):
            outs, moved = batch[op.key](op, self.size, held, axes)
        return self._traced(outs, moved, origin)

    def _traced(
        self, outs: Sequence[Any], axes: Sequence[Axis], origin: Origin
    ) -> tuple[BatchTracer, ...]:
        pairs = zip(outs, axes, strict=True)
        return tuple([BatchTracer(self, out, axis, origin) for out, axis in pairs])

    def lift(self, value: Any, weak: bool = False) -> BatchTracer:
        if type(value) is BatchTracer and value.interpreter is self:
            return value
        return BatchTracer(self, self.parent.lift(value, weak), None)

    def witness(self, failed: Any, message: str, values: Sequence[Any]) -> list[Any]:
        own = [self.lift(value) for value in values]
        word = self.lift(failed)
        with interpreting(self.parent):
            any_failed = word.held
            if word.axis is not None:
                any_failed = Reduce(ReduceOp.MAX, 0).bind(word.held)
            guarded = self.parent.witness(any_failed, message, [x.held for x in own])
        return [
            BatchTracer(self, held, value.axis)
            for held, value in zip(guarded, own, strict=True)
        ]


def held_at(tracer: BatchTracer, axis: int) -> Any:
    """What the tracer holds with the batch at `axis`; the parent must be current."""
    assert isinstance(tracer.interpreter, BatchInterpreter)
    return placed(tracer.held, tracer.axis, axis, tracer.interpreter.size)
