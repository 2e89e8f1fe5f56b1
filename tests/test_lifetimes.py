"""Many calls, and functions made and dropped: memory stays flat."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poot
from poot.vulkan.device import Device

X = np.arange(16, dtype=np.float32)
# What the allocators of Python and of the driver may keep in reserve.
SLACK_BYTES = 8 << 20


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def buffers_in_use() -> int:
    (device,) = poot.devices()
    if not isinstance(device, Device):
        pytest.skip("no Vulkan device")
    return device.memory_statistics().buffers


def test_ten_thousand_calls_leave_memory_flat() -> None:
    f = poot.jit(lambda x, s: x * s + 1)
    x = poot.device_put(X)
    for _ in range(500):
        y = f(x, 2.0)
    gc.collect()
    resident, buffers = resident_bytes(), buffers_in_use()
    for _ in range(10_000):
        y = f(x, 2.0)
    gc.collect()
    np.testing.assert_array_equal(y, X * 2 + 1)
    assert buffers_in_use() == buffers
    assert resident_bytes() < resident + SLACK_BYTES


def test_two_hundred_functions_made_called_and_dropped() -> None:
    x = poot.device_put(X)

    def round_trip(number: int) -> None:
        table = np.full(16, number, np.float32)
        f = poot.jit(lambda x: (x * (number % 7 + 0.5) + table, x))
        f(x)[0].block_until_ready()

    for number in range(20):
        round_trip(number)
    gc.collect()
    resident, buffers = resident_bytes(), buffers_in_use()
    for number in range(200):
        round_trip(number)
    gc.collect()
    # The device frees what ended when it makes the next executable.
    round_trip(0)
    gc.collect()
    assert buffers_in_use() <= buffers + 4
    assert resident_bytes() < resident + SLACK_BYTES


def test_a_dropped_function_lets_go_of_what_it_closed_over() -> None:
    def make() -> tuple[Any, weakref.ref[Any]]:
        weights = poot.device_put(X)
        f = poot.jit(lambda x: x + weights)
        f(X)
        return f, weakref.ref(weights)

    f, weights = make()
    gc.collect()
    assert weights() is not None
    del f
    gc.collect()
    assert weights() is None


def test_clear_caches_lets_go_of_executables() -> None:
    f = poot.jit(lambda x: x + 1)
    f(X)
    (compiled,) = f._compiled.values()
    held = weakref.ref(compiled)
    del compiled
    poot.clear_caches()
    gc.collect()
    assert held() is None
    np.testing.assert_array_equal(f(X), X + 1)
