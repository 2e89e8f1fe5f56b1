"""How the backend is found: a Vulkan device, else the oracle with a warning."""

from __future__ import annotations

import warnings

from poot.core.errors import NoDeviceError
from poot.interpreters.backend import Backend, set_opener
from poot.interpreters.backend_oracle import OracleBackend
from poot.interpreters.backend_vulkan import VulkanBackend
from poot.vulkan.device import open_device


def open_backend() -> Backend:
    """The best Vulkan device; without one, NumPy on the host and a warning."""
    try:
        return VulkanBackend(open_device())
    except NoDeviceError as error:
        warnings.warn(
            f"poot runs on the host by its NumPy oracle, which is slow: {error} "
            "(`poot doctor` says more)",
            RuntimeWarning,
            stacklevel=2,
        )
        return OracleBackend()


set_opener(open_backend)
