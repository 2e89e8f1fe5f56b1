"""Runs a test on the device and again on the oracle backend."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest

import poot
from poot.core.errors import NoDeviceError
from poot.interpreters.backend import Backend, use_backend
from poot.interpreters.backend_oracle import OracleBackend
from poot.interpreters.backend_vulkan import VulkanBackend
from poot.vulkan.device import open_device


@functools.cache
def device_backend() -> Backend | None:
    """The backend of the Vulkan device, opened once; None where there is none."""
    try:
        return VulkanBackend(open_device())
    except NoDeviceError:
        return None


@pytest.fixture(params=["device", "oracle"])
def each_backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """The backend that the test runs on: first the device, then the oracle."""
    on_device = request.param == "device"
    chosen = device_backend() if on_device else OracleBackend()
    if chosen is None:
        pytest.skip("no Vulkan device")
    use_backend(chosen)
    poot.clear_caches()
    try:
        yield chosen
    finally:
        poot.clear_caches()
        use_backend(None)
