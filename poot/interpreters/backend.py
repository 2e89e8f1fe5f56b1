"""What runs graphs: the seam between the interpreters and a device or the oracle."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from poot.core.graph import Graph
from poot.core.types import TensorType

if TYPE_CHECKING:
    from poot.lowering.compile import Lowered
    from poot.lowering.device_info import DeviceInfo
    from poot.lowering.program import Program
    from poot.vulkan.profiler import Profiler


class Buffer(Protocol):
    """The memory of one tensor; it knows on which calls its content depends."""

    # Several owners hold it, so that nobody may write to it in place.
    shared: bool

    def close(self) -> None:
        """Give the memory back now; work that was submitted may still use it."""


class Completion(Protocol):
    """The end of one call."""

    def check(self) -> None:
        """Wait for the end; CheckError if a run-time check failed."""


class Executable(Protocol):
    """A graph made ready to run many times."""

    @property
    def program(self) -> Program:
        """What a device runs for it."""

    @property
    def replay(self) -> str:
        """What a call runs, in numbers, for reports."""

    def call(
        self, buffers: Sequence[Any], scalars: Sequence[Any] = ()
    ) -> tuple[Sequence[Any], Completion]:
        """Start a run: the buffers of its results, and its end.

        `buffers` has one Buffer for each of `graph.arguments`, None for slots, whose
        numbers come as `scalars`. Donated buffers are the results' afterwards. A result
        that is an argument or a constant unchanged comes as that very buffer.
        """


class Backend(Protocol):
    """Holds tensors and runs graphs on them, asynchronously if it can."""

    # The limits and features that lowering goes by.
    info: DeviceInfo

    @property
    def devices(self) -> tuple[Any, ...]: ...

    def upload(self, array: np.ndarray[Any, Any]) -> Buffer:
        """A copy of the array's elements."""

    def download(
        self, buffer: Buffer, type: TensorType, *, checked: bool = True
    ) -> np.ndarray[Any, Any]:
        """Wait for the elements and copy them out; CheckError if a check failed.

        Not `checked`: whatever is there, if the call that failed has made anything.
        """

    def host_view(
        self, buffer: Buffer, type: TensorType
    ) -> np.ndarray[Any, Any] | None:
        """The elements where they stand, once they are there, not to be written.

        None where the host cannot see them; CheckError if a check failed. The view
        keeps the buffer's memory until it goes.
        """

    def wait(self, buffer: Buffer) -> None:
        """Return when the elements are there; CheckError if a check failed."""

    def lower(self, graph: Graph) -> Lowered:
        """A graph for this device, whose passes run when they are needed."""

    def load(self, graph: Graph, *, generic: bool) -> Executable:
        """Make a lowered graph ready; `generic`: by kernels that serve any shape."""

    def start_profiling(self, profiler: Profiler) -> None:
        """Let it know what calls take from now on; CapabilityError without a device."""

    def stop_profiling(self, profiler: Profiler) -> None:
        """Tell it no more."""

    def load_stored(self, lowered: Lowered) -> Executable:
        """The same, by what an earlier process planned if that was kept."""

    def clear_caches(self) -> None:
        """Forget what `lower` and `load` keep to be faster the next time."""


_opener: list[Callable[[], Backend]] = []
_opened: list[Backend] = []
_opening = threading.Lock()


def set_opener(opener: Callable[[], Backend]) -> None:
    """Say how the backend is opened when it is first needed."""
    _opener[:] = [opener]


_forgetting: list[Callable[[], None]] = []
# The backend that was used last, whose executables the caches hold.
_last: list[weakref.ref[Any]] = []


def when_changed(forget: Callable[[], None]) -> None:
    """Call `forget` whenever another backend is put in place.

    What is kept for one must not run for another: its work would not wait for that
    of the other.
    """
    _forgetting.append(forget)


def use_backend(backend: Backend | None) -> None:
    """Put another backend in place (None: open one anew at the next need)."""
    _opened[:] = [] if backend is None else [backend]
    if backend is not None:
        _forget_others(backend)


def backend() -> Backend:
    """The backend that this process uses; opened at the first call."""
    if not _opened:
        with _opening:
            if not _opened:
                _opened.append(_opener[0]())
        _forget_others(_opened[0])
    return _opened[0]


def _forget_others(backend: Backend) -> None:
    if _last and _last[0]() is backend:
        return
    is_first = not _last
    _last[:] = [weakref.ref(backend)]
    for forget in () if is_first else _forgetting:
        forget()
