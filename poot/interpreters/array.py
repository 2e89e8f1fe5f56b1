"""`poot.Array`: an immutable tensor in device memory, filled asynchronously."""

from __future__ import annotations

import itertools
import operator
import threading
from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from poot.core.dtypes import as_dtype
from poot.core.errors import DeletedArrayError
from poot.core.types import TensorType
from poot.interpreters import dlpack
from poot.interpreters.aval import Aval, aval_of
from poot.interpreters.backend import Buffer, backend
from poot.interpreters.methods import Value

_serial = itertools.count(1)
_claiming = threading.Lock()


class _ArrayType(type):
    """Lets `isinstance(x, Array)` hold for traced values too: they stand for arrays."""

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, Value)


class Array(Value, metaclass=_ArrayType):
    """An immutable tensor on the device.

    Made by `poot.numpy`, `poot.device_put` and jitted functions. Work on it is
    asynchronous: only looking at its elements waits.
    """

    __slots__ = ("__weakref__", "_deleted_by", "_reference", "buffer")
    buffer: Buffer | None
    _deleted_by: str
    _reference: str

    def __init__(self, buffer: Buffer, aval: Aval) -> None:
        self.buffer = buffer
        self.aval = aval

    def reference(self) -> str:
        """A name that no other array of the process has."""
        try:
            return self._reference
        except AttributeError:
            self._reference = f"array {next(_serial)}"
            return self._reference

    @classmethod
    def from_numpy(cls, array: np.ndarray[Any, Any], weak: bool = False) -> Self:
        """A copy of a NumPy array, dtype and all, in device memory."""
        type = TensorType(array.shape, as_dtype(array.dtype))
        native = array.astype(type.dtype.numpy, copy=False)
        return cls(backend().upload(native), aval_of(type, weak))

    def with_weak(self, weak: bool) -> Self:
        if weak == self.aval.weak:
            return self
        buffer = self.live_buffer()
        buffer.shared = True
        return type(self)(buffer, aval_of(self.aval.type, weak))

    # --- life and readiness -------------------------------------------------

    def live_buffer(self) -> Buffer:
        """The memory; DeletedArrayError if it was given away."""
        if self.buffer is None:
            raise self.deleted_error("this array")
        return self.buffer

    def deleted_error(self, subject: str) -> DeletedArrayError:
        """The error for a use of `subject`, this array, after its deletion."""
        return DeletedArrayError(
            f"{subject} ({self.aval.type}) {self._deleted_by}; copy it before "
            "(poot.numpy.copy), or use what the call returned"
        )

    def is_deleted(self) -> bool:
        return self.buffer is None

    def delete(self) -> None:
        """Give the memory back now, not when the last reference goes."""
        if self.buffer is not None:
            if not self.buffer.shared:
                self.buffer.close()
            self.mark_deleted("was deleted by .delete()")

    def claim(self, how: str) -> Buffer | None:
        """Take the memory away from the array; None if it had none. One caller gets it.

        `how` is as of `mark_deleted`; `restore` undoes it.
        """
        with _claiming:
            buffer = self.buffer
            if buffer is not None:
                self.mark_deleted(how)
        return buffer

    def restore(self, buffer: Buffer) -> None:
        """Give back what was claimed."""
        self.buffer = buffer

    def mark_deleted(self, how: str) -> None:
        """Let go of the memory; `how` completes `this array …` in errors."""
        self._deleted_by = how
        self.buffer = None

    def block_until_ready(self) -> Self:
        """Wait for the elements; raises what a failed check has to say."""
        backend().wait(self.live_buffer())
        return self

    def devices(self) -> set[Any]:
        return set(backend().devices)

    # --- the elements on the host -------------------------------------------

    def numpy(self) -> np.ndarray[Any, Any]:
        """The elements as a new NumPy array."""
        return backend().download(self.live_buffer(), self.aval.type)

    def __array__(
        self, dtype: Any = None, copy: bool | None = None
    ) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError(
                "a poot.Array is in device memory, so that NumPy cannot view it; use "
                "copy=None or copy=True"
            )
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A DLPack capsule on the host.

        Where the host sees the device's memory and the consumer can be told not to
        write, it is that memory; else a copy. BufferError if neither can be.
        """
        return dlpack.export(self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.HOST

    def item(self, *index: Any) -> bool | int | float:
        """The only element (or the one at `index`) as a Python number."""
        value: bool | int | float = self.numpy().item(*index)
        return value

    def tolist(self) -> Any:
        return self.numpy().tolist()

    def tobytes(self) -> bytes:
        """The elements, row by row."""
        return self.numpy().tobytes()

    def _only_element(self, wanted: str) -> Any:
        if self.shape:
            raise TypeError(
                f"only an array without axes becomes {wanted}; this one has shape "
                f"{self.shape}: index it, or use .item()"
            )
        return self.numpy()[()]

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError(
                f"the truth of an array of shape {self.shape} is ambiguous; use "
                ".any() or .all()"
            )
        return bool(self.item())

    def __int__(self) -> int:
        return int(self._only_element("an int"))

    def __float__(self) -> float:
        return float(self._only_element("a float"))

    def __complex__(self) -> complex:
        return complex(self._only_element("a complex number"))

    def __index__(self) -> int:
        if self.shape or not self.aval.type.dtype.is_integer:
            raise TypeError(
                "only an integer scalar array can be an index; this one is "
                f"{self.aval.type}"
            )
        return operator.index(self.numpy()[()])

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over an array without axes")
        return iter([self[i] for i in range(self.shape[0])])

    # --- printing, pickling, copying ----------------------------------------

    def __repr__(self) -> str:
        if self.buffer is None:
            return f"Array({self.aval.type}, deleted)"
        weak = ", weak_type=True" if self.aval.weak else ""
        elements = np.array2string(
            self.numpy(), separator=", ", prefix="Array(", threshold=1000
        )
        shape = f", shape={self.shape}" if 0 in self.shape or self.size > 1000 else ""
        return f"Array({elements}{shape}, dtype={self.dtype}{weak})"

    def __str__(self) -> str:
        return str(self.numpy())

    def __format__(self, spec: str) -> str:
        if self.shape or not spec:
            return format(str(self), spec)
        return format(self.numpy()[()], spec)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self.numpy(), self.aval.weak)

    def __copy__(self) -> Self:
        # The elements never change, so the memory can be shared: who donates a shared
        # buffer does not write to it.
        buffer = self.live_buffer()
        buffer.shared = True
        return type(self)(buffer, self.aval)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.__copy__()


def _unpickled(array: np.ndarray[Any, Any], weak: bool) -> Array:
    return Array.from_numpy(array, weak)
