"""Runs a test on the device and again on the oracle backend."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest

import poot
from poot.core.errors import NoDeviceError
from poot.core.oracle import impl
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


def on_cpu(test: Any) -> Any:
    """Run a test only on a CPU driver, whose schedules or choices it tells."""
    found = device_backend()
    is_cpu = found is not None and found.info.is_cpu
    return pytest.mark.skipif(not is_cpu, reason="schedules of CPU devices")(test)


def _forbidden(op: Any, *_: Any) -> Any:
    raise AssertionError(f"{op} was computed on the host, though there is a device")


def forbid_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every rule of the oracle raise, so that the host computes nothing."""
    rules = dict.fromkeys(impl._rules, _forbidden)
    monkeypatch.setattr(impl, "_rules", rules)


@pytest.fixture(params=["device", "oracle"])
def each_backend(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Backend]:
    """The backend that the test runs on: first the device, then the oracle.

    On the device every rule of the oracle raises.
    """
    on_device = request.param == "device"
    chosen = device_backend() if on_device else OracleBackend()
    if chosen is None:
        pytest.skip("no Vulkan device")
    if on_device:
        forbid_oracle(monkeypatch)
    use_backend(chosen)
    poot.clear_caches()
    try:
        yield chosen
    finally:
        poot.clear_caches()
        use_backend(None)


@pytest.fixture(scope="module")
def oracle_backend() -> Iterator[Backend]:
    """The oracle as the backend of a whole module."""
    chosen = OracleBackend()
    use_backend(chosen)
    poot.clear_caches()
    try:
        yield chosen
    finally:
        poot.clear_caches()
        use_backend(None)
