"""Where in the user's code a value was made."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

_PACKAGE_DIRECTORY = os.path.join(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))), ""
)
# Maps over trees call poot's functions from there.
_TREE_LIBRARY = f"{os.sep}optree{os.sep}"


@dataclass(frozen=True, slots=True)
class Source:
    """A line of a file and the function it stands in."""

    file: str
    line: int
    function: str
    # The names of the scopes around it, with slashes between.
    scope: str = ""

    def __str__(self) -> str:
        where = f" in {self.scope}" if self.scope else ""
        return f"{self.file}:{self.line} ({self.function}{where})"


UNKNOWN = Source("<unknown>", 0, "<unknown>")


class _Replayed(threading.local):
    source: Source | None = None


_replayed = _Replayed()


class _Scopes(threading.local):
    path: str = ""


_scopes = _Scopes()


@contextmanager
def named_scope(name: str) -> Iterator[None]:
    """Name what the block computes, in the sources of equations, reports and errors.

    Scopes nest, as in `encoder/attention`. It decorates functions too, as
    `@poot.named_scope("attention")`.
    """
    if not isinstance(name, str):
        raise TypeError(f"named_scope takes a string, given a {type(name).__name__}")
    before = _scopes.path
    _scopes.path = f"{before}/{name}" if before else name
    try:
        yield
    finally:
        _scopes.path = before


@contextmanager
def replayed_sources() -> Iterator[_Replayed]:
    """Within the block the user's line is what is set as `source` of the value."""
    before = _replayed.source
    try:
        yield _replayed
    finally:
        _replayed.source = before


@contextmanager
def at_source(source: Source) -> Iterator[None]:
    """Within the block the user's line is this one, if it is known."""
    with replayed_sources() as line:
        if source is not UNKNOWN:
            line.source = source
        yield


def user_source() -> Source:
    """The innermost frame outside poot and its trees: the user's line.

    Where a graph is replayed, the line that emitted the equation.
    """
    if _replayed.source is not None:
        return _replayed.source
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_PACKAGE_DIRECTORY) and _TREE_LIBRARY not in name:
            function = frame.f_code.co_name
            return Source(name, frame.f_lineno, function, _scopes.path)
        frame = frame.f_back
    return UNKNOWN
