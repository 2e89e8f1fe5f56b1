"""Abstract values: what is known of a value without its numbers."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass

from poot.core.types import TensorType


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Aval:
    """A tensor type, and whether the dtype is weak: yields to any other operand's.

    Instances are unique (see `aval_of`), so identity is equality and keys are cheap.
    """

    type: TensorType
    weak: bool

    def __str__(self) -> str:
        return f"{self.type}{' weak' if self.weak else ''}"


_lock = threading.Lock()
_unique: weakref.WeakValueDictionary[tuple[TensorType, bool], Aval] = (
    weakref.WeakValueDictionary()
)


def aval_of(type: TensorType, weak: bool = False) -> Aval:
    """The one Aval of this type and weakness."""
    found = _unique.get((type, weak))
    if found is not None:
        return found
    with _lock:
        found = _unique.get((type, weak))
        if found is None:
            found = _unique[type, weak] = Aval(type, weak)
        return found
