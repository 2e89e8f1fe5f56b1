"""What is imported when it is first needed, so that `import poot` is quick.

The backend: a Vulkan device, else the oracle with a warning. What lowers graphs and
runs them, `poot.lowering` and `poot.vulkan`, stands behind it and is more than half of
poot; one thread opens it while others wait. The rules of the transformations. Public
modules of which many programs use none. JAX, an extra that `poot.crosscheck` runs
graphs in. Here, and nowhere else, modules are imported by name.
"""

from __future__ import annotations

import functools
import warnings
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from poot.core.errors import NoDeviceError
from poot.core.source import user_source
from poot.interpreters.backend import Backend, set_opener

if TYPE_CHECKING:
    from poot.interpreters.backend_oracle import OracleBackend
    from poot.interpreters.backend_vulkan import VulkanBackend


def open_backend() -> Backend:
    """The best Vulkan device; without one, NumPy on the host and a warning."""
    try:
        return _vulkan_backend().open()
    except NoDeviceError as error:
        source = user_source()
        warnings.warn_explicit(
            "poot has no Vulkan device and calculates with NumPy on the host, which "
            f"is slow: {error} (`poot doctor` says more)",
            RuntimeWarning,
            source.file,
            source.line,
        )
        return _oracle_backend()()


def _vulkan_backend() -> type[VulkanBackend]:
    found: type[VulkanBackend] = import_module(
        "poot.interpreters.backend_vulkan"
    ).VulkanBackend
    return found


def _oracle_backend() -> type[OracleBackend]:
    found: type[OracleBackend] = import_module(
        "poot.interpreters.backend_oracle"
    ).OracleBackend
    return found


@functools.cache
def load_rules() -> None:
    """Fill the tables of all transformations."""
    import_module("poot.interpreters.rules")


# Public modules that load at their first use, and functions that stand in them.
LAZY_MODULES = ("debug", "nn", "random", "slots", "testing")
LAZY_FUNCTIONS = {
    "crosscheck": "testing",
    "draw": "inspection",
    "explain": "inspection",
    "profile": "inspection",
    "tune": "inspection",
}


def lazily(name: str) -> Any:
    """A public module or function of poot by its name; AttributeError for another."""
    if name in LAZY_MODULES:
        return import_module(f"poot.{name}")
    if name in LAZY_FUNCTIONS:
        return getattr(import_module(f"poot.{LAZY_FUNCTIONS[name]}"), name)
    raise AttributeError(f"module 'poot' has no attribute {name!r}")


def optional_jax() -> Any | None:
    """The module `jax` with what rules need of it; None if it is not installed."""
    if find_spec("jax") is None:
        return None
    import_module("jax.extend.random")
    return import_module("jax")


set_opener(open_backend)
