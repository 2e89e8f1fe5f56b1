"""What the interpreters of transformations have in common."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NoReturn, Self

from poot.core.errors import ConcretizationError, PootError, TraceLeak
from poot.core.interpreter import Interpreter, current, interpreting
from poot.core.op import Op
from poot.core.source import Source, user_source
from poot.interpreters.aval import Aval, aval_of
from poot.interpreters.opening import load_rules
from poot.interpreters.tracer import AnyTracer

Origin = tuple[Op, Source] | None


class TransformInterpreter:
    """An interpreter that runs its rules on the one below it, its parent."""

    # What the transformation is called in messages: `grad`, say.
    kind: ClassVar[str]

    def __init__(self, parent: Interpreter, function_name: str) -> None:
        load_rules()
        self.parent = parent
        self.function_name = function_name
        self.is_finished = False

    def origin(self, op: Op) -> Origin:
        """Where the user's function applies an op, if it does so itself."""
        here: Any = current()
        return (op, user_source()) if here is self else None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Current within the block; its values are of no use after, however it ends."""
        try:
            with interpreting(self):  # type: ignore[arg-type]
                yield
        finally:
            self.is_finished = True


def named_batches() -> dict[str, int]:
    """The sizes of the batches around here that have a name."""
    found: dict[str, int] = {}
    interpreter: Any = current()
    while interpreter is not None:
        name = getattr(interpreter, "axis_name", None)
        if name is not None:
            found.setdefault(name, interpreter.size)
        interpreter = getattr(interpreter, "parent", None)
    return found


class TransformTracer(AnyTracer):
    """A value of one TransformInterpreter; subclasses say what it holds."""

    __slots__ = ("interpreter", "origin")
    interpreter: TransformInterpreter
    # The op that made it and its line; None for an argument, or what a rule made.
    origin: Origin

    def remade(self, aval: Aval) -> Self:
        """The same value with another Aval."""
        raise NotImplementedError

    def over(self, move: Callable[[Any], Any]) -> Self:
        """The same value with `move` of what it holds: values of those below."""
        raise NotImplementedError

    def __copy__(self) -> Self:
        # What a call may take the memory of must be the copy's own.
        return self.over(copy.copy)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.__copy__()

    def with_weak(self, weak: bool) -> Self:
        if weak == self.aval.weak:
            return self
        return self.remade(aval_of(self.aval.type, weak))

    def misplaced(self) -> PootError:
        inner = self.interpreter
        function = inner.function_name
        where = (
            f"was used after `{function}` had returned"
            if inner.is_finished
            else f"was used outside of `{function}`"
        )
        made = " made"
        if self.origin is not None:
            op, source = self.origin
            made = f", made by `{op.plain_name}` at {source},"
        return TraceLeak(
            f"a value ({self.aval.type}){made} while {inner.kind} ran `{function}` "
            f"{where} ({user_source()}); return it from `{function}` instead of "
            "storing it"
        )

    def _concretize(self, wanted: str, remedy: str) -> NoReturn:
        if self.interpreter.is_finished:
            raise self.misplaced()
        why = (
            f"{self.interpreter.kind} runs `{self.interpreter.function_name}`, and the "
            f"value ({self.aval.type}) stands for what it makes of it"
        )
        raise ConcretizationError(
            f"{wanted} needs the numbers of a transformed value at {user_source()}, "
            f"but {why}; {remedy}",
            why,
        )
