"""When a call is done, and whether the checks inside it held."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Self

from poot.core.errors import CheckError
from poot.lowering.program import WitnessSpec
from poot.vulkan.queue import Queue

# Contexts hand their packet on while users read it; both are rare and short.
_settling = threading.Lock()


class Completion:
    """The end of one call: a timeline value, and the witnesses to read then.

    `parents` are the calls whose results this one used and whose own checks are still
    open: if one of those failed, this call's results are worth nothing either.
    """

    __slots__ = ("_failure", "_packet", "_queue", "_witnesses", "parents", "value")

    def __init__(
        self,
        queue: Queue,
        value: int,
        parents: tuple[Completion, ...] = (),
        witnesses: Sequence[WitnessSpec] = (),
        packet: Any = None,
    ) -> None:
        self._queue = queue
        self.value = value
        self.parents = parents
        self._witnesses = witnesses
        # The context's words, a writable memoryview; None once they have been read.
        self._packet = packet
        self._failure: CheckError | None = None

    @classmethod
    def failed(cls, queue: Queue, value: int, failure: CheckError) -> Self:
        """The end of a call that is known to have failed."""
        made = cls(queue, value)
        made._failure = failure
        return made

    @property
    def is_suspect(self) -> bool:
        """Whether a check may yet fail, or has failed."""
        return (
            self._packet is not None or bool(self.parents) or self._failure is not None
        )

    def done(self) -> bool:
        return self._queue.is_done(self.value)

    def wait(self, timeout_s: float | None = None) -> None:
        self._queue.wait(self.value, timeout_s)

    def check(self) -> None:
        """Wait, then raise CheckError if this call, or one that it used, failed."""
        self.wait()
        if self.is_suspect:
            self.settle()
        if self._failure is not None:
            raise CheckError(*self._failure.args)

    def settle(self) -> None:
        """Read the witnesses of this call and of its parents; all must be done."""
        with _settling:
            open_calls: dict[Completion, None] = {}
            found = [self]
            while found:
                call = found.pop()
                if call not in open_calls:
                    open_calls[call] = None
                    found.extend(call.parents)
            # A call comes after those that it used, so that the first cause is told.
            for call in sorted(open_calls, key=lambda c: c.value):
                call._read()

    def _read(self) -> None:
        failures = [p._failure for p in self.parents if p._failure is not None]
        packet = self._packet
        if packet is not None:
            failures += [
                CheckError.of(witness.message, witness.source, word)
                for witness in self._witnesses
                if (word := packet[witness.offset // 4])
            ]
            if failures:
                # The next call of the context starts from zeros.
                for index in range(len(packet)):
                    packet[index] = 0
        self._packet = None
        self.parents = ()
        if failures and self._failure is None:
            self._failure = failures[0]
