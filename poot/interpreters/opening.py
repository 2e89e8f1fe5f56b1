"""How the backend is found: a Vulkan device, else the oracle with a warning; and JAX.

What lowers graphs and runs them, `poot.lowering` and `poot.vulkan`, stands behind the
backend and is more than half of poot. Nothing needs it before the first array, so
`import poot` leaves it out: here, and nowhere else, modules are imported by name, when
the backend is opened, which one thread does while others wait. So is JAX, an extra that
`poot.crosscheck` runs graphs in.
"""

from __future__ import annotations

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


def optional_jax() -> Any | None:
    """The module `jax` with what rules need of it; None if it is not installed."""
    if find_spec("jax") is None:
        return None
    import_module("jax.extend.random")
    return import_module("jax")


set_opener(open_backend)
