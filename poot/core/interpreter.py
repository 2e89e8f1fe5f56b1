"""The cell that holds the current interpreter of each thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol


class Interpreter(Protocol):
    """Gives ops their meaning for one kind of value."""

    def process(self, op: Any, operands: tuple[Any, ...]) -> tuple[Any, ...]:
        """Apply `op` to `operands`; all results as a tuple."""

    def lift(self, value: Any, weak: bool = False) -> Any:
        """A NumPy array, a Scalar or a value from outside as the interpreter's own."""

    def witness(self, failed: Any, message: str, values: Sequence[Any]) -> list[Any]:
        """Report `message` if the i32 scalar `failed` turns out not to be zero.

        Returns the values, whose uses depend on the report from then on.
        """


class _Cell(threading.local):
    current: Interpreter | None = None


_cell = _Cell()
_base: list[Interpreter] = []


def set_base(interpreter: Interpreter) -> None:
    """Install the interpreter that every thread starts with (eager evaluation)."""
    _base[:] = [interpreter]


def base() -> Interpreter:
    """The interpreter that every thread starts with."""
    return _base[0]


def current() -> Interpreter:
    """The interpreter that this thread runs now."""
    return _cell.current or _base[0]


@contextmanager
def interpreting(interpreter: Interpreter) -> Iterator[Interpreter]:
    """Make `interpreter` current within the block, whatever ends it."""
    parent = _cell.current
    _cell.current = interpreter
    try:
        yield interpreter
    finally:
        _cell.current = parent
