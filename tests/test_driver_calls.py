"""What a user's jitted function asks of the driver from its second call on."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import poot
from poot.interpreters.backend import use_backend
from poot.interpreters.backend_vulkan import VulkanBackend
from poot.vulkan.binding import CallCounter
from poot.vulkan.device import Device
from tests.backends import device_backend

X = np.arange(16, dtype=np.float32)
# Recording, making things, and waiting.
FORBIDDEN = re.compile(
    r"vk(Cmd|Begin|End|Create|Allocate|Destroy|Free)\w*|vk\w*Wait\w*"
)


@pytest.fixture
def device() -> Iterator[Device]:
    backend = device_backend()
    if not isinstance(backend, VulkanBackend):
        pytest.skip("no Vulkan device")
    use_backend(backend)
    yield backend.device
    use_backend(None)


def normed(x: Any, scale: Any) -> Any:
    centred = x - x.mean()
    return centred * scale, (centred * centred).sum()


def stepped(state: Any, x: Any) -> Any:
    return {"state": state["state"] * 0.5 + x}


def matrix(x: Any, scale: Any) -> Any:
    square = x.reshape(4, 4)
    return (square @ square.T + scale).max(axis=0)


@pytest.mark.parametrize("function", [normed, matrix])
def test_a_second_call_is_one_submit(device: Device, function: Any) -> None:
    f = poot.jit(function)
    x = poot.device_put(X)
    expected = [np.asarray(y) for y in poot.tree.leaves(f(x, 2.0))]
    with CallCounter(device.functions) as counter:
        results = f(x, 2.0)
    assert dict(counter.calls) == {"vkQueueSubmit": 1}
    for result, right in zip(poot.tree.leaves(results), expected, strict=True):
        np.testing.assert_array_equal(result, right)


def test_many_calls_record_and_make_and_await_nothing(device: Device) -> None:
    f = poot.jit(stepped, donate_argnums=0)
    x = poot.device_put(X)
    state = f({"state": poot.device_put(X)}, x)
    state["state"].block_until_ready()
    log: list[str] = []
    for _ in range(20):
        with CallCounter(device.functions) as counter:
            state = f(state, x)
        log += counter.log
        state["state"].block_until_ready()
    assert log.count("vkQueueSubmit") == 20
    assert [name for name in log if FORBIDDEN.fullmatch(name)] == []


def test_a_call_returns_before_half_a_second_of_work_has_ended(device: Device) -> None:
    size = 1024 if device.info.is_cpu else 8192
    w = poot.device_put(np.full((size, size), 1 / size, np.float32))

    def products(count: int) -> Callable[[Any], Any]:
        def f(x: Any) -> Any:
            for _ in range(count):
                x = x @ w
            return x

        return poot.jit(f)

    def seconds(f: Callable[[Any], Any]) -> float:
        f(w).block_until_ready()
        begin = time.perf_counter()
        f(w).block_until_ready()
        return time.perf_counter() - begin

    count = math.ceil(0.8 / seconds(products(1)))
    f = products(count)
    f(w).block_until_ready()
    begin = time.perf_counter()
    y = f(w)
    returned = time.perf_counter() - begin
    assert not device.is_ready(y.buffer)
    y.block_until_ready()
    took = time.perf_counter() - begin
    assert took > 0.5 and returned < 0.05
    np.testing.assert_allclose(y, np.full((size, size), 1 / size), rtol=1e-5)
