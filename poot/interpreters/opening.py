"""How the backend is found: a Vulkan device, else the oracle with a warning."""

from __future__ import annotations

import warnings

from poot.core.errors import NoDeviceError
from poot.core.source import user_source
from poot.interpreters.backend import Backend, set_opener
from poot.interpreters.backend_oracle import OracleBackend
from poot.interpreters.backend_vulkan import VulkanBackend
from poot.vulkan.device import open_device


def open_backend() -> Backend:
    """The best Vulkan device; without one, NumPy on the host and a warning."""
    try:
        return VulkanBackend(open_device())
    except NoDeviceError as error:
        source = user_source()
        warnings.warn_explicit(
            "poot has no Vulkan device and calculates with NumPy on the host, which "
            f"is slow: {error} (`poot doctor` says more)",
            RuntimeWarning,
            source.file,
            source.line,
        )
        return OracleBackend()


set_opener(open_backend)
