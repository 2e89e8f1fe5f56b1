"""What other libraries ask of arrays: DLPack by way of the host's memory, devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from poot.core.dtypes import DType, Kind
from poot.core.errors import ArgumentError
from poot.interpreters.backend import backend

if TYPE_CHECKING:
    from poot.interpreters.array import Array

# DLPack's number of the host as a device.
HOST = (1, 0)
# Since this version of the protocol a consumer can be told not to write.
_READ_ONLY_FROM = (1, 0)
# NumPy, which makes the capsules, speaks that version since 2.1.
_NUMPY_SPEAKS_IT = np.lib.NumpyVersion(np.__version__) >= "2.1.0"


def export(
    array: Array,
    stream: Any,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> Any:
    """A capsule with the elements; BufferError for what DLPack or the host cannot hold.

    Where the host sees the device's memory and the consumer can be told not to write,
    it is that memory; else a copy, which the consumer owns.
    """
    if stream is not None:
        raise BufferError("a poot.Array is exported on the host, which has no streams")
    if dl_device is not None and tuple(dl_device) != HOST:
        raise BufferError(f"a poot.Array is exported to device {HOST}, not {dl_device}")
    _require_known(array.aval.type.dtype)
    versioned = max_version is not None and tuple(max_version) >= _READ_ONLY_FROM
    if copy is not True and versioned and _NUMPY_SPEAKS_IT:
        view = backend().host_view(array.live_buffer(), array.aval.type)
        if view is not None:
            # Nobody may overwrite in place what the consumer still reads.
            array.live_buffer().shared = True
            return view.__dlpack__(max_version=max_version)
    if copy is False:
        raise BufferError(
            "this poot.Array cannot be exported without a copy: the host must see the "
            "device's memory, and the consumer must speak DLPack 1.0 (NumPy 2.1 does)"
        )
    options: dict[str, Any] = {"max_version": max_version} if _NUMPY_SPEAKS_IT else {}
    return array.numpy().__dlpack__(**options)


def _require_known(dtype: DType) -> None:
    if dtype.kind is Kind.STORAGE or dtype.name == "bf16":
        raise BufferError(
            f"NumPy's DLPack does not know {dtype}; export `x.view(...)` as unsigned "
            "integers of the same size, or `x.astype(float32)`"
        )


def require_device(where: str, device: Any) -> None:
    """Raise ArgumentError for another device than the one that poot runs on."""
    if device is None:
        return
    (own, *_) = backend().devices
    if device is not own:
        raise ArgumentError(
            f"{where}: poot runs on one device, {own}; given {device!r}. Leave it out"
        )
