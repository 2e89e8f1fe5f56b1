"""The binding: generated files, result codes, structures, the call counter."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from poot.core.errors import (
    CapabilityError,
    DeviceError,
    DeviceLost,
    DeviceTimeout,
    NoDeviceError,
    OutOfMemory,
)
from poot.vulkan import binding
from poot.vulkan._vk import ffi
from poot.vulkan.declarations import RESULT_NAMES

GENERATOR = Path(__file__).resolve().parent.parent / "tools" / "generate_vulkan.py"


def test_generated_files_are_current() -> None:
    pytest.importorskip("vulkan_object")
    done = subprocess.run(
        [sys.executable, str(GENERATOR), "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_importing_loads_no_loader() -> None:
    code = (
        "import poot.vulkan.device, sys; from poot.vulkan import binding; "
        "print(binding.loader.cache_info().currsize)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "0", done.stderr


@pytest.mark.parametrize(
    "code, kind",
    [
        (-4, DeviceLost),
        (-1, OutOfMemory),
        (-2, OutOfMemory),
        (2, DeviceTimeout),
        (-8, CapabilityError),
        (-7, CapabilityError),
        (-9, NoDeviceError),
        (-3, DeviceError),
        (5, DeviceError),
        (-12345, DeviceError),
        (777, DeviceError),
    ],
)
def test_result_codes_are_typed_errors(code: int, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="vkSomething") as caught:
        binding.check(code, "vkSomething")
    assert str(code) in str(caught.value)
    assert RESULT_NAMES.get(code, "unknown") in str(caught.value)


def test_success_is_silent() -> None:
    binding.check(0, "vkSomething")


def test_structures_keep_what_they_point_to() -> None:
    names = binding.strings(["first", "second"])
    info = binding.struct("VkInstanceCreateInfo", ppEnabledLayerNames=names)
    del names
    gc.collect()
    [ffi.new("char[]", b"overwritten") for _ in range(1000)]
    assert ffi.string(info.ppEnabledLayerNames[1]) == b"second"
    assert info.sType == 1


def test_an_absent_loader_is_told_with_its_remedy() -> None:
    with pytest.raises(NoDeviceError, match="apt install libvulkan1"):
        binding.Loader(["libno-such-vulkan.so.9"])


def test_enumerations_that_grow_are_asked_again() -> None:
    answers = iter([(2, 0), (1, binding.INCOMPLETE), (3, 0), (3, 0)])

    def enumerate_things(count: object, items: object) -> int:
        number, result = next(answers)
        count[0] = number  # type: ignore[index]
        return result

    found = binding.enumerate_all("vkThings", "VkPhysicalDevice", enumerate_things)
    assert len(found) == 3


def test_the_counter_counts_calls_and_live_handles() -> None:
    table = SimpleNamespace(
        vkCreateBuffer=lambda device, info, allocator, made: 0,
        vkDestroyBuffer=lambda device, handle, allocator: None,
        vkCreateComputePipelines=lambda *arguments: 0,
        vkDestroyPipeline=lambda device, handle, allocator: None,
        vkAllocateMemory=lambda *arguments: -2,
        vkQueueSubmit=lambda *arguments: 0,
    )
    original = table.vkCreateBuffer
    with binding.CallCounter(table) as counter:
        for _ in range(3):
            table.vkCreateBuffer(1, 2, 3, 4)
        table.vkDestroyBuffer(1, 5, None)
        table.vkDestroyBuffer(1, 0, None)
        table.vkCreateComputePipelines(1, 2, 3, 4, 5, 6)
        table.vkDestroyPipeline(1, 5, None)
        table.vkAllocateMemory(1, 2, 3, 4)
    assert table.vkCreateBuffer is original
    assert counter.live == {"Buffer": 2}
    assert counter.calls["vkCreateBuffer"] == 3
    assert counter.calls["vkQueueSubmit"] == 0
