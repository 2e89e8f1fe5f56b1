"""What runs graphs: the seam between the interpreters and a device or the oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from poot.core.dtypes import DType
from poot.core.graph import Graph
from poot.core.types import TensorType
from poot.lowering.device_info import DeviceInfo


class Buffer(Protocol):
    """The memory of one tensor, and the calls on whose checks its content depends."""

    # Several owners hold it, so that nobody may write to it in place.
    shared: bool

    def close(self) -> None:
        """Give the memory back now; work that was submitted may still use it."""


# A Buffer, or the little-endian bytes of a slot's scalar.
Argument = Any


class Executable(Protocol):
    """A graph made ready to run many times."""

    def __call__(self, arguments: Sequence[Argument]) -> Sequence[Buffer]:
        """Start a run on `graph.arguments`; the buffers of its results, in order.

        A result that is an argument or a constant unchanged comes as that very buffer.
        """


class Backend(Protocol):
    """Holds tensors and runs graphs on them, asynchronously if it can."""

    # What `lower` and `plan` go by.
    info: DeviceInfo

    @property
    def devices(self) -> tuple[Any, ...]: ...

    def upload(self, array: np.ndarray[Any, Any]) -> Buffer:
        """A copy of the array's elements."""

    def download(self, buffer: Buffer, type: TensorType) -> np.ndarray[Any, Any]:
        """Wait for the elements and copy them out; CheckError if a check failed."""

    def wait(self, buffer: Buffer) -> None:
        """Return when the elements are there; CheckError if a check failed."""

    def compile(self, graph: Graph, generic: bool) -> Executable:
        """Load the graph; `generic`: with kernels that serve any shape."""

    def clear_caches(self) -> None:
        """Forget what `compile` keeps to be faster the next time."""


_opener: list[Callable[[], Backend]] = []
_opened: list[Backend] = []


def set_opener(opener: Callable[[], Backend]) -> None:
    """Say how the backend is opened when it is first needed."""
    _opener[:] = [opener]


def use_backend(backend: Backend | None) -> None:
    """Put another backend in place (None: open one anew at the next need)."""
    _opened[:] = [] if backend is None else [backend]


def backend() -> Backend:
    """The backend that this process uses; opened at the first call."""
    if not _opened:
        _opened[:] = [_opener[0]()]
    return _opened[0]


def slot_bytes(value: Any, dtype: DType) -> bytes:
    """What the host writes into a slot."""
    return np.asarray(value).astype(dtype.numpy).tobytes()
