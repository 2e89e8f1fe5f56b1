"""Forward-mode differentiation of what a function does, op by op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

from poot.core.dtypes import Scalar
from poot.core.interpreter import interpreting
from poot.core.op import Op
from poot.interpreters.aval import Aval
from poot.interpreters.jvp.table import Tangent, jvp
from poot.interpreters.transform import Origin, TransformInterpreter, TransformTracer


class JvpTracer(TransformTracer):
    """A value with its tangent (None: zero everywhere)."""

    __slots__ = ("primal", "tangent")

    def __init__(
        self,
        interpreter: JvpInterpreter,
        primal: Any,
        tangent: Tangent,
        origin: Origin = None,
    ) -> None:
        self.interpreter = interpreter
        self.origin = origin
        self.primal = primal
        self.tangent = tangent
        self.aval = primal.aval

    def remade(self, aval: Aval) -> Self:
        made = self.over(lambda part: part)
        made.aval = aval
        return made

    def over(self, move: Callable[[Any], Any]) -> Self:
        made = type(self)(
            self.interpreter,  # type: ignore[arg-type]
            move(self.primal),
            None if self.tangent is None else move(self.tangent),
            self.origin,
        )
        made.aval = self.aval
        return made

    # What decides the way of the program has no derivative; its numbers are there
    # where the function is differentiated as it runs.
    def __bool__(self) -> bool:
        return bool(self._number())

    def __int__(self) -> int:
        is_float = self.aval.type.dtype.is_float
        return super().__int__() if is_float else int(self._number())

    def __index__(self) -> int:
        return self._number().__index__()  # type: ignore[no-any-return]

    def _number(self) -> Any:
        if self.interpreter.is_finished:
            raise self.misplaced()
        return self.primal

    def __repr__(self) -> str:
        return f"Jvp<{self.primal!r}, tangent {self.tangent!r}>"


class JvpInterpreter(TransformInterpreter):
    """Its values are JvpTracers; primals and tangents are values of the parent."""

    kind: ClassVar[str] = "jvp"

    def process(self, op: Op, operands: tuple[Any, ...]) -> tuple[Any, ...]:
        primals, tangents = [], []
        for operand in operands:
            if type(operand) is JvpTracer and operand.interpreter is self:
                primals.append(operand.primal)
                tangents.append(operand.tangent)
            else:
                primals.append(operand)
                tangents.append(None)
        origin = self.origin(op)
        if all(tangent is None for tangent in tangents):
            outs = self.parent.process(op, tuple(primals))
            return tuple([JvpTracer(self, out, None, origin) for out in outs])
        with interpreting(self.parent):
            outs, moved = jvp[op.key](op, primals, tangents)
        pairs = zip(outs, moved, strict=True)
        return tuple([JvpTracer(self, out, t, origin) for out, t in pairs])

    def lift(self, value: Any, weak: bool = False) -> JvpTracer:
        if type(value) is JvpTracer and value.interpreter is self:
            return value
        return JvpTracer(self, self.parent.lift(value, weak), None)

    def witness(self, failed: Any, message: str, values: Sequence[Any]) -> list[Any]:
        own = [self.lift(value) for value in values]
        tangents = [value.tangent for value in own if value.tangent is not None]
        guarded = iter(
            self.parent.witness(
                self.lift(failed).primal,
                message,
                [*(value.primal for value in own), *tangents],
            )
        )
        primals = [next(guarded) for _ in own]
        return [
            JvpTracer(self, p, None if value.tangent is None else next(guarded))
            for p, value in zip(primals, own, strict=True)
        ]


def is_differentiable(x: Any) -> bool:
    """Whether a value or Scalar may have a tangent."""
    dtype = x.dtype if isinstance(x, Scalar) else x.aval.type.dtype
    found: bool = dtype.is_differentiable
    return found
