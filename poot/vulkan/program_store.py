"""Programs on disk, so that a later process need not plan them again."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from poot.core import dtypes
from poot.core.graph import Graph
from poot.core.ops.control import ControlOp
from poot.core.types import TensorType
from poot.lowering.device_info import DeviceInfo
from poot.lowering.program import (
    Access,
    Branch,
    BufferRange,
    Copy,
    Dispatch,
    Kernel,
    KernelOperand,
    Loop,
    Program,
    ResultSpec,
    SlotSpec,
    Space,
    While,
    WitnessSpec,
)
from poot.vulkan.disk_cache import DiskCache

# Smaller graphs are planned in no more time than it takes to look for their files.
_LEAST_EQUATIONS = 200
# Beyond this many files those that were written first go.
_MOST_FILES = 256

# What a file may hold; anything else is refused before it is made.
_CLASSES = {
    (cls.__module__, cls.__qualname__): cls
    for cls in (
        *(Access, Branch, BufferRange, Copy, Dispatch, Kernel, KernelOperand, Loop),
        *(Program, ResultSpec, SlotSpec, Space, TensorType, While, WitnessSpec),
    )
}


class _Pickler(pickle.Pickler):
    def persistent_id(self, value: Any) -> str | None:
        return value.name if isinstance(value, dtypes.DType) else None


class _Unpickler(pickle.Unpickler):
    """Makes programs only: no other class, no function."""

    def persistent_load(self, name: Any) -> dtypes.DType:
        return dtypes.by_name(name)

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "frozenset"):
            return frozenset
        found = _CLASSES.get((module, name))
        if found is None:
            raise pickle.UnpicklingError(f"a program has no {module}.{name}")
        return found


def encode(program: Program) -> bytes:
    """A program as bytes."""
    file = io.BytesIO()
    _Pickler(file, protocol=5).dump(program)
    return file.getvalue()


def decode(content: bytes) -> Program:
    """The program of bytes that `encode` gave."""
    program = _Unpickler(io.BytesIO(content)).load()
    if not isinstance(program, Program):
        raise pickle.UnpicklingError(f"{type(program).__name__} is no program")
    return program


class ProgramStore:
    """The programs of one device in a folder; without a folder there are none.

    A file is found by the text of the graph with its lines of source, by all that the
    device can do, and by the code of poot that plans.
    """

    def __init__(self, folder: Path | None, info: DeviceInfo) -> None:
        self._folder = folder and folder.with_name("programs")
        self._info = info

    @functools.cached_property
    def _planner(self) -> bytes:
        """What decides, beside the graph, how it is planned."""
        return f"{self._info!r}\n{_code_stamp()}".encode()

    def find(self, graph: Graph) -> Program | None:
        """The program of a traced graph, if an earlier process has planned it."""
        if self._folder is None or not _is_large(graph):
            return None
        content = self._file(graph).load()
        try:
            return decode(content) if content else None
        except pickle.UnpicklingError:
            # Whoever may write the file put something else there.
            return None

    def keep(self, graph: Graph, program: Program) -> None:
        """Write the program of a traced graph, if it is large."""
        if self._folder is None or not _is_large(graph):
            return
        self._file(graph).store(encode(program))
        self._drop_oldest()

    def _file(self, graph: Graph) -> DiskCache:
        assert self._folder is not None
        digest = hashlib.sha256(self._planner)
        for part in _text(graph):
            digest.update(part.encode())
        return DiskCache(self._folder, digest.digest())

    def _drop_oldest(self) -> None:
        assert self._folder is not None
        # Another process may drop them at the same time.
        with contextlib.suppress(OSError):
            files = sorted(self._folder.glob("*.bin"), key=lambda f: f.stat().st_mtime)
            for file in files[:-_MOST_FILES]:
                file.unlink(missing_ok=True)


def _is_large(graph: Graph) -> bool:
    return _count(graph) >= _LEAST_EQUATIONS


def _count(graph: Graph) -> int:
    return len(graph.eqns) + sum(map(_count, _regions(graph)))


def _regions(graph: Graph) -> Iterator[Graph]:
    for eqn in graph.eqns:
        if isinstance(eqn.op, ControlOp):
            yield from eqn.op.regions


def _text(graph: Graph) -> Iterator[str]:
    """All of a graph that plans depend on, the lines of source for messages too."""
    yield str(graph)
    waiting = [graph]
    while waiting:
        part = waiting.pop()
        yield "\n".join(str(part.source(i)) for i in range(len(part.eqns)))
        waiting += _regions(part)


def _code_stamp() -> str:
    """Changes whenever a file of poot's core or lowering does."""
    package = Path(__file__).parent.parent
    stamps = []
    for folder in ("core", "lowering"):
        for file in sorted((package / folder).rglob("*.py")):
            status = file.stat()
            stamps.append(f"{file.name} {status.st_size} {status.st_mtime_ns}")
    return hashlib.sha256("\n".join(stamps).encode()).hexdigest()
