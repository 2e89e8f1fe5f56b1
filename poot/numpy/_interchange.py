"""Arrays of other libraries, and what the array API standard asks of a namespace."""

from __future__ import annotations

from typing import Any

import numpy as np

from poot.core import dtypes
from poot.core.dtypes import DType, Kind
from poot.core.errors import ArgumentError
from poot.interpreters.array import Array
from poot.interpreters.backend import backend
from poot.interpreters.dlpack import require_device
from poot.interpreters.methods import Value
from poot.interpreters.promotion import default_float, default_int
from poot.interpreters.shaping import as_element_type
from poot.numpy._creation import asarray

# The version of the standard whose names the namespace has. There is no complex dtype.
__array_api_version__ = "2024.12"


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Value:
    """An array of the elements of another library's array, which are copied.

    64-bit data becomes 32-bit unless `config.enable_x64` is on. A poot.Array comes back
    as itself unless `copy`. ArgumentError for `copy=False` and for what has no
    `__dlpack__`, BufferError for dtypes that NumPy's DLPack does not know.
    """
    require_device("from_dlpack", device)
    if isinstance(x, Array):
        return asarray(x, copy=copy or None)
    if copy is False:
        raise ArgumentError(
            "from_dlpack: elements are copied to the device; use copy=None or copy=True"
        )
    if not hasattr(x, "__dlpack__"):
        raise ArgumentError(
            f"from_dlpack: a {type(x).__name__} has no __dlpack__; use "
            "poot.numpy.asarray for lists and numbers"
        )
    return asarray(np.from_dlpack(x))


_KINDS: dict[str, frozenset[Kind]] = {
    "bool": frozenset({Kind.BOOL}),
    "signed integer": frozenset({Kind.INT}),
    "unsigned integer": frozenset({Kind.UINT}),
    "integral": frozenset({Kind.INT, Kind.UINT}),
    "real floating": frozenset({Kind.FLOAT, Kind.STORAGE}),
    "complex floating": frozenset(),
    "numeric": frozenset({Kind.INT, Kind.UINT, Kind.FLOAT, Kind.STORAGE}),
}


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind of the array API, is another dtype, or one of these.

    The kinds: bool, signed integer, unsigned integer, integral, real floating, complex
    floating, numeric.
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, each) for each in kind)
    given = as_element_type(dtype)
    if isinstance(kind, str) and kind in _KINDS:
        return given.kind in _KINDS[kind]
    return given is as_element_type(kind)


# What the standard lists, complex dtypes apart.
_LISTED: tuple[DType, ...] = tuple(
    dtype for dtype in dtypes.ALL if dtype.kind is not Kind.STORAGE
)
_UNLISTED = (dtypes.bfloat16,)


class ArrayNamespaceInfo:
    """What the array API's inspection functions tell of this namespace."""

    def capabilities(self) -> dict[str, Any]:
        """What does not hold of traced values: their shapes are static."""
        return {
            "boolean indexing": True,
            "data-dependent shapes": False,
            "max dimensions": None,
        }

    def default_device(self) -> Any:
        return backend().devices[0]

    def devices(self) -> list[Any]:
        return list(backend().devices)

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype[Any]]:
        """The dtypes of what is made without a dtype."""
        require_device("default_dtypes", device)
        return {
            "real floating": default_float().numpy,
            "integral": default_int().numpy,
            "indexing": default_int().numpy,
        }

    def dtypes(
        self, *, device: Any = None, kind: Any = None
    ) -> dict[str, np.dtype[Any]]:
        """The standard's dtypes, of a kind, that the device calculates with."""
        require_device("dtypes", device)
        info = backend().info
        found = {}
        for dtype in _LISTED:
            has = info.float64 if dtype.is_float else info.int64
            if dtype in _UNLISTED or (dtype.itemsize == 8 and not has):
                continue
            if kind is None or isdtype(dtype.numpy, kind):
                found[dtype.numpy.name] = dtype.numpy
        return found


def __array_namespace_info__() -> ArrayNamespaceInfo:
    """Questions about the namespace, as the array API has them."""
    return ArrayNamespaceInfo()
