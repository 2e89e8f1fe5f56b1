"""Executables whose records come back in a ring, which the host reads a call."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from poot.core.ops.host import HostCall, holds
from poot.interpreters.backend import Completion, Executable, backend
from poot.interpreters.hosted import HostedExecutable

if TYPE_CHECKING:
    from poot.lowering.compile import Lowered
    from poot.lowering.program import Program
    from poot.lowering.records import Ring, Site


def load(lowered: Lowered, *, generic: bool) -> Executable:
    """A lowered graph made ready; `generic`: by kernels that serve any shape."""
    if holds(lowered.source, HostCall):
        return HostedExecutable(
            lowered.graph, lambda part: load(backend().lower(part), generic=generic)
        )
    if lowered.ring is not None:
        executable = backend().load(lowered.graph, generic=generic)
        return RecordingExecutable(executable, lowered.ring)
    if generic:
        return backend().load(lowered.graph, generic=True)
    return backend().load_stored(lowered)


class RecordingExecutable:
    """An Executable of a graph with a ring. Each call waits, and hands the records on.

    The functions of records are called in the order of the records, by the thread that
    made the call, before this returns.
    """

    def __init__(self, executable: Executable, ring: Ring) -> None:
        self._executable = executable
        self._ring = ring

    @property
    def program(self) -> Program:
        return self._executable.program

    @property
    def replay(self) -> str:
        return self._executable.replay

    def call(
        self, buffers: Sequence[Any], scalars: Sequence[Any] = ()
    ) -> tuple[Sequence[Any], Completion]:
        found, completion = self._executable.call(buffers, scalars)
        *results, ring, count = found
        # Records of a call in which a check failed may say why.
        download = functools.partial(backend().download, checked=False)
        made = int(download(count, self._ring.count_type))
        rows = download(ring, self._ring.type)
        deliver(self._ring, rows, made)
        return results, completion


def deliver(ring: Ring, rows: np.ndarray[Any, Any], made: int) -> None:
    """Call the functions of the `made` records, as far as the ring still has them."""
    lost = max(made - ring.rows, 0)
    if lost:
        warnings.warn(
            f"the first {lost} of {made} records of debug.print and debug.callback "
            f"were lost: the ring keeps {ring.rows} of {4 * ring.row_words} B; print "
            "less often, or less",
            RuntimeWarning,
            stacklevel=2,
        )
    for number in range(lost, made):
        row = rows[number % ring.rows]
        site = ring.sites[row[0]]
        operands = decoded(site, row[1:])
        for function in site.op.site.functions:
            function(site.op, operands)


def decoded(site: Site, words: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """The values of one record, from its words."""
    values = []
    start = 0
    for type, wide in zip(site.types, site.encodings, strict=True):
        end = start + type.size * (wide.itemsize // 4)
        own = words[start:end].view(wide.numpy).astype(type.dtype.numpy)
        values.append(own.reshape(type.shape))
        start = end
    return values
