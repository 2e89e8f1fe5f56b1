"""A heap that is too small, for a user's program: a clear error, and it goes on."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import poot
from poot.core.errors import LimitError, OutOfMemory
from poot.interpreters.backend import use_backend
from poot.interpreters.backend_vulkan import VulkanBackend
from poot.vulkan.binding import CallCounter
from poot.vulkan.device import Device
from tests import vulkan_programs
from tests.backends import device_backend
from tests.vulkan_programs import UNPROBED

clean_validation = vulkan_programs.clean_validation
MIB = 1 << 20
ONES = np.ones(300_000, np.float32)

pytestmark = pytest.mark.skipif(device_backend() is None, reason="no Vulkan device")


@pytest.fixture
def tiny() -> Iterator[Device]:
    """The device that all of poot uses, with 8 MiB of memory for arrays."""
    physical = vulkan_programs.the_physical()
    device = Device(physical, mask=UNPROBED, heap_bytes=8 * MIB)
    poot.clear_caches()
    use_backend(VulkanBackend(device))
    yield device
    poot.clear_caches()
    use_backend(None)
    device.close()


def fill(make: Any) -> tuple[list[Any], str]:
    """Arrays until there is no memory for another, and what the error says."""
    kept: list[Any] = []
    with pytest.raises(OutOfMemory) as caught:
        for _ in range(20):
            kept.append(make())
    assert isinstance(caught.value, MemoryError)
    return kept, str(caught.value)


def user_program() -> None:
    """Runs out of memory in every way, and each time goes on after it."""
    double = poot.jit(lambda x: (x * 2, x.sum()))
    x = poot.device_put(ONES)
    for make in (
        lambda: double(x)[0],
        lambda: x + 1,
        lambda: poot.device_put(ONES),
    ):
        kept, message = fill(make)
        assert "1200000 bytes" in message and f"of {8 * MIB} bytes" in message
        assert 3 <= len(kept) <= 6
        right = np.asarray(kept[0])[0]
        assert all(np.all(np.asarray(y) == right) for y in kept)
        kept.clear()
        np.testing.assert_array_equal(double(x)[0], 2 * ONES)
    # No memory for the result, and none for what lies between two launches.
    repeated = poot.jit(lambda x: poot.numpy.concatenate([x] * 8).reshape(8, -1))
    wide = poot.jit(lambda x: (x[:, None] * poot.numpy.arange(8.0)).T.sum(axis=0))
    for function in (repeated, wide):
        with pytest.raises(OutOfMemory, match="9600000 bytes"):
            function(x)
    np.testing.assert_array_equal(repeated(x[:10]), np.ones((8, 10)))
    np.testing.assert_array_equal(wide(x[:10]), 28 * ONES[:10])
    np.testing.assert_array_equal(x + 1, 2 * ONES)


def settle(device: Device) -> None:
    poot.clear_caches()
    gc.collect()
    device.synchronize()
    device.collect()
    for pool in (device.arrays, device.tables, device.readback):
        pool.release_empty()


def assert_empty(device: Device) -> None:
    now = device.memory_statistics()
    assert (now.buffers, now.in_use_bytes, now.blocks, now.reserved_bytes) == (0,) * 4


def test_a_user_program_survives_a_tiny_heap_and_leaves_nothing(tiny: Device) -> None:
    user_program()
    settle(tiny)
    assert_empty(tiny)
    with CallCounter(tiny.functions) as counter:
        for _ in range(3):
            user_program()
        settle(tiny)
    assert counter.calls["vkQueueSubmit"] > 30
    # Pipelines stay for their next users.
    live = {k: n for k, n in counter.live.items() if not k.startswith("Pipeline")}
    assert live == {}
    assert_empty(tiny)


def test_an_array_beyond_a_single_allocation(tiny: Device) -> None:
    too_large = np.ones(3 * MIB, np.float32)
    with pytest.raises((OutOfMemory, LimitError), match=str(too_large.nbytes)):
        poot.device_put(too_large)
    np.testing.assert_array_equal(poot.device_put(ONES) + 1, 2 * ONES)
