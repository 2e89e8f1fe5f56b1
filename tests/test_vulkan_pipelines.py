"""Pipelines by content, and the driver's cache on disk."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poot.core.errors import DeviceError
from poot.lowering.program import Access, Kernel
from poot.lowering.spirv.builder import KernelBuilder
from poot.lowering.spirv.types import U32
from poot.vulkan.binding import CallCounter
from poot.vulkan.device import Device
from poot.vulkan.disk_cache import DiskCache
from poot.vulkan.executable import Executable
from poot.vulkan.physical import PhysicalDevice
from tests import vulkan_programs
from tests.vulkan_programs import add_program, fetch

clean_validation = vulkan_programs.clean_validation
own_device = vulkan_programs.own_device
physical = vulkan_programs.physical


def constant_kernel(device: Device, constant: int) -> Kernel:
    k = KernelBuilder(f"constant_{constant}", device.info, (1, 1, 1))
    k.store(k.operand("x", Access.WRITE), U32, 0, k.u32(constant), 1)
    return k.finish()


def test_one_pipeline_a_content(own_device: Device) -> None:
    pipelines = own_device.pipelines
    kernels = [constant_kernel(own_device, number % 3) for number in range(9)]
    with CallCounter(own_device.functions) as counter:
        first = pipelines.acquire(kernels)
        second = pipelines.acquire([replace(kernels[0], name="another")])
    assert counter.calls["vkCreateComputePipelines"] == 3
    assert counter.live["ShaderModule"] == 0
    assert second[0] is first[0] and first[0] is first[3]
    assert len({pipeline.layout for pipeline in first}) == 1
    pipelines.release(first + second)
    assert [pipeline.users for pipeline in first] == [0] * 9


def test_unused_pipelines_go_in_order_of_age(own_device: Device) -> None:
    pipelines = own_device.pipelines
    with CallCounter(own_device.functions) as counter:
        held = pipelines.acquire([constant_kernel(own_device, 0)])
        for number in range(1, 100):
            pipelines.release(pipelines.acquire([constant_kernel(own_device, number)]))
        assert counter.live["Pipeline"] == 33
        before = counter.calls["vkCreateComputePipelines"]
        again = pipelines.acquire(
            [constant_kernel(own_device, number) for number in (0, 99)]
        )
        assert counter.calls["vkCreateComputePipelines"] == before
        pipelines.release(held + again)


def test_a_pipeline_that_fails_leaves_nothing(
    own_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = [constant_kernel(own_device, number) for number in range(4)]
    real, calls = own_device.functions.vkCreateComputePipelines, []

    def third_fails(*arguments: Any) -> int:
        calls.append(1)
        return -13 if len(calls) == 3 else real(*arguments)

    functions = own_device.functions
    monkeypatch.setattr(functions, "vkCreateComputePipelines", third_fails)
    with CallCounter(functions) as counter:
        with pytest.raises(DeviceError, match=r"constant_\d"):
            own_device.pipelines.acquire(kernels)
        live = {k: n for k, n in counter.live.items() if k != "PipelineLayout"}
        assert live == {}
    monkeypatch.undo()
    own_device.pipelines.release(own_device.pipelines.acquire(kernels))


# --- on disk ----------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    return DiskCache(tmp_path / "deep" / "folder", b"this driver")


def test_what_is_stored_comes_back(cache: DiskCache) -> None:
    assert cache.load() == b""
    assert cache.store(b"pipelines")
    assert cache.load() == b"pipelines"
    assert cache.store(b"newer")
    assert cache.load() == b"newer"
    assert [path.name for path in cache.path.parent.iterdir()] == [cache.path.name]


def test_the_file_is_private(cache: DiskCache) -> None:
    cache.store(b"pipelines")
    assert stat.S_IMODE(cache.path.stat().st_mode) == 0o600
    cache.path.chmod(0o622)
    assert cache.load() == b""


def test_a_link_is_not_followed(cache: DiskCache, tmp_path: Path) -> None:
    cache.store(b"pipelines")
    cache.path.rename(tmp_path / "elsewhere")
    cache.path.symlink_to(tmp_path / "elsewhere")
    assert cache.load() == b""


def test_a_foreign_owner_is_ignored(
    cache: DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.store(b"pipelines")
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert cache.load() == b""


@pytest.mark.parametrize("position", [0, 20, 50, 60, 90, -1])
def test_a_changed_byte_is_noticed(cache: DiskCache, position: int) -> None:
    cache.store(b"pipelines of some length")
    raw = bytearray(cache.path.read_bytes())
    raw[position] ^= 1
    cache.path.write_bytes(raw)
    assert cache.load() == b""


def test_a_cut_or_longer_file_is_noticed(cache: DiskCache) -> None:
    cache.store(b"pipelines")
    raw = cache.path.read_bytes()
    for changed in (raw[:-1], raw[:10], b"", raw + b"x"):
        cache.path.write_bytes(changed)
        assert cache.load() == b""


def test_another_driver_has_another_file(cache: DiskCache) -> None:
    cache.store(b"pipelines")
    other = DiskCache(cache.path.parent, b"another driver")
    assert other.load() == b""
    cache.path.rename(other.path)
    assert other.load() == b""


def test_a_disk_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    assert not DiskCache(tmp_path / "file" / "x", b"driver").store(b"pipelines")


def test_devices_use_the_cache(
    physical: PhysicalDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[int] = []
    real = DiskCache.load

    def load(self: DiskCache) -> bytes:
        payload = real(self)
        loaded.append(len(payload))
        return payload

    monkeypatch.setattr(DiskCache, "load", load)
    for _ in range(2):
        device = Device(physical, cache_folder=tmp_path)
        executable = Executable(device, add_program(device.info, 8))
        a = device.upload(np.ones(8, np.float32))
        assert fetch(device, executable.call([a, a])[0][0]).tolist() == [2] * 8
        device.close()
    assert loaded[0] == 0 and loaded[1] > 0
    (file,) = tmp_path.iterdir()
    file.write_bytes(b"rubbish" * 100)
    device = Device(physical, cache_folder=tmp_path)
    device.close()
    assert loaded[2] == 0
