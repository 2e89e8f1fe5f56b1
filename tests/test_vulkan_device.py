"""Devices: choice, masks, handles for others, forks, loss, time-outs."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from poot.core.errors import (
    CapabilityError,
    DeviceError,
    DeviceLost,
    DeviceTimeout,
    NoDeviceError,
)
from poot.lowering.device_info import DeviceInfo, DeviceKind
from poot.vulkan import binding
from poot.vulkan.binding import CallCounter
from poot.vulkan.choice import choose
from poot.vulkan.device import (
    Device,
    enabled_extensions,
    enabled_features,
    missing_features,
    open_device,
)
from poot.vulkan.executable import Executable
from poot.vulkan.physical import (
    PhysicalDevice,
    feature_structs,
    physical_devices,
)
from tests import vulkan_programs
from tests.child_output import own_lines
from tests.vulkan_programs import (
    UNPROBED,
    add_program,
    chain_program,
    checked_instance,
    count_up_program,
    fetch,
)

clean_validation = vulkan_programs.clean_validation
device = vulkan_programs.device
own_device = vulkan_programs.own_device
physical = vulkan_programs.physical


# --- choice -----------------------------------------------------------------


def listed(*kinds: DeviceKind) -> list[DeviceInfo]:
    return [
        DeviceInfo(name=f"Card {number} of {kind.value}", kind=kind)
        for number, kind in enumerate(kinds)
    ]


@pytest.mark.parametrize(
    "kinds, chosen",
    [
        ((DeviceKind.CPU, DeviceKind.INTEGRATED, DeviceKind.DISCRETE), 2),
        ((DeviceKind.CPU, DeviceKind.VIRTUAL, DeviceKind.INTEGRATED), 2),
        ((DeviceKind.OTHER, DeviceKind.CPU, DeviceKind.VIRTUAL), 2),
        ((DeviceKind.OTHER, DeviceKind.CPU), 1),
        ((DeviceKind.DISCRETE, DeviceKind.DISCRETE), 0),
    ],
)
def test_the_kind_decides(kinds: tuple[DeviceKind, ...], chosen: int) -> None:
    choice = choose(listed(*kinds))
    assert choice.number == chosen
    assert kinds[chosen].value in choice.reason


def test_an_override_by_number_or_name() -> None:
    devices = listed(DeviceKind.DISCRETE, DeviceKind.CPU)
    assert choose(devices, "1").number == 1
    assert choose(devices, " CARD 1").number == 1
    assert "POOT_DEVICE" in choose(devices, "card").reason
    assert choose(devices, "").number == 0
    for wrong in ("2", "radeon"):
        with pytest.raises(NoDeviceError, match=f"POOT_DEVICE={wrong}.*1: Card 1"):
            choose(devices, wrong)


def test_devices_that_are_too_old() -> None:
    old = [replace(info, api_version=(1, 1, 0)) for info in listed(DeviceKind.DISCRETE)]
    new = listed(DeviceKind.CPU)
    assert choose([*old, *new]).number == 1
    with pytest.raises(NoDeviceError, match=r"Vulkan 1\.2.*Vulkan 1\.1\.0"):
        choose(old)
    with pytest.raises(NoDeviceError, match="mesa-vulkan-drivers"):
        choose([])


def test_the_environment_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POOT_DEVICE", "no such card")
    with pytest.raises(NoDeviceError, match="no such card"):
        open_device()


# --- what a device is -------------------------------------------------------


def test_lavapipe_is_described(physical: PhysicalDevice) -> None:
    info = physical.info
    if "llvmpipe" not in info.driver_name:
        pytest.skip("not Mesa's CPU driver")
    assert info.kind is DeviceKind.CPU and info.unified_memory
    assert info.max_loop_trips == 65535
    assert info.subgroup_arithmetic and info.storage16 and info.int64
    assert info.max_workgroup_count == (65535, 65535, 65535)
    # Mesa 22 and Mesa 25.
    assert info.max_push_bytes in (128, 256) and info.max_shared_bytes == 32768
    assert info.heap_bytes > 1 << 28 and info.max_allocation_bytes > 1 << 28
    assert info.compute_units == os.cpu_count()


def test_masked_features_are_not_enabled(physical: PhysicalDevice) -> None:
    info = physical.info
    bare = info.masked(
        float16=False, int64=False, storage8=False, storage16=False, float64=False
    )
    gone = enabled_features(physical, info) - enabled_features(physical, bare)
    assert gone <= {
        "shaderFloat16",
        "shaderInt64",
        "shaderFloat64",
        "storageBuffer8BitAccess",
        "storageBuffer16BitAccess",
    }
    assert "bufferDeviceAddress" in enabled_features(physical, bare)
    masked = Device(physical, mask={"int64": False, "float16": False})
    assert not masked.info.int64
    executable = Executable(masked, add_program(masked.info, 3))
    a = masked.upload(np.float32([1, 2, 3]))
    assert fetch(masked, executable.call([a, a])[0][0]).tolist() == [2, 4, 6]
    masked.close()


def with_bfloat16(physical: PhysicalDevice) -> PhysicalDevice:
    """A device that offers the type bf16, as far as poot knows."""
    return replace(
        physical,
        features=physical.features | {"shaderBFloat16Type"},
        info=physical.info.masked(bfloat16=True),
    )


def test_extensions_are_enabled_with_their_features(physical: PhysicalDevice) -> None:
    offering = with_bfloat16(physical)
    features = enabled_features(offering, offering.info)
    assert "shaderBFloat16Type" in features
    assert enabled_extensions(features) == ["VK_KHR_shader_bfloat16"]
    masked = enabled_features(offering, offering.info.masked(bfloat16=False))
    assert "shaderBFloat16Type" not in masked
    assert enabled_extensions(masked) == []
    structs = feature_structs((1, 2, 0), ["VK_KHR_shader_bfloat16"])
    (struct,) = (s for s, names in structs if names == ("shaderBFloat16Type",))
    struct.shaderBFloat16Type = True
    assert struct.sType == 1000141000 and struct.shaderBFloat16Type == 1
    assert len(feature_structs((1, 2, 0), [])) == len(structs) - 1


@pytest.mark.skipif(
    "VK_INSTANCE_LAYERS" in os.environ, reason="the suite's own hook would see it too"
)
def test_extensions_reach_the_driver(physical: PhysicalDevice) -> None:
    """A driver that offers none of them refuses to open the device."""
    if "VK_KHR_shader_bfloat16" in physical.extensions:
        pytest.skip(f"{physical.info.name} offers it")
    with pytest.raises(CapabilityError, match="EXTENSION_NOT_PRESENT"):
        Device(with_bfloat16(physical), mask=UNPROBED)
    checked_instance().messages.clear()


def test_missing_features_are_named(physical: PhysicalDevice) -> None:
    lame = replace(
        physical,
        features=physical.features - {"timelineSemaphore"},
        queue_family=None,
    )
    assert len(missing_features(lame)) == 2
    with pytest.raises(CapabilityError, match=r"timelineSemaphore, .*COMPUTE_BIT"):
        Device(lame)


@pytest.mark.skipif(
    "VK_INSTANCE_LAYERS" in os.environ, reason="the suite's own hook would see it too"
)
def test_validation_messages_are_collected() -> None:
    instance = checked_instance()
    own = Device(physical_devices(instance)[0], mask=UNPROBED)
    info = binding.struct("VkBufferCreateInfo", size=0, usage=1)
    made = binding.ffi.new("VkBuffer *")
    own.functions.vkCreateBuffer(own.handle, info, binding.NULL, made)
    if instance.messages:
        assert any("VkBufferCreateInfo" in message for message in instance.messages)
        instance.messages.clear()
    else:
        pytest.skip("no validation layer")
    own.functions.vkDestroyBuffer(own.handle, made[0], binding.NULL)
    own.close()


def test_closing_leaves_no_handle(physical: PhysicalDevice) -> None:
    instance_table = physical.instance.functions
    with CallCounter(instance_table) as outer:
        own = Device(physical, mask=UNPROBED)
        # The device itself is made through the instance's table.
        assert outer.live == {"Device": 1}
    own.close()
    own = Device(physical, mask=UNPROBED)
    held = Executable(own, chain_program(own.info, 100, 3))
    a = own.upload(np.ones(100, np.float32))
    held.call([a])
    own.close()
    own.close()
    with pytest.raises(DeviceError, match="closed"):
        held.call([a])
    with pytest.raises(DeviceError, match="closed"):
        own.upload(np.ones(3, np.float32))
    held.close()


def test_all_device_handles_are_destroyed(
    physical: PhysicalDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables: list[Any] = []
    counters: list[CallCounter] = []
    make_table = binding.device_table

    def counted(*arguments: Any) -> Any:
        table = make_table(*arguments)
        counters.append(CallCounter(table).__enter__())
        tables.append(table)
        return table

    monkeypatch.setattr(binding, "device_table", counted)
    own = Device(physical)
    executable = Executable(own, chain_program(own.info, 100, 3))
    executable.call([own.upload(np.ones(100, np.float32))])
    own.close()
    # The one handle made elsewhere is the device.
    assert counters[0].live == {"Device": -1}


def test_a_device_is_shared_with_another_binding(device: Device) -> None:
    vk = pytest.importorskip("vulkan")
    other = vk.ffi
    instance = other.cast("VkInstance", device.instance_handle)
    physical = other.cast("VkPhysicalDevice", device.physical_handle)
    logical = other.cast("VkDevice", device.handle)
    properties = vk.vkGetPhysicalDeviceProperties(physical)
    assert properties.deviceName == device.info.name
    assert physical in vk.vkEnumeratePhysicalDevices(instance)
    queue = vk.vkGetDeviceQueue(logical, device.queue_family, 0)
    assert int(other.cast("uintptr_t", queue)) == device.queue_handle
    data = np.arange(64, dtype=np.uint32)
    source, target = device.upload(data), device.upload(np.zeros(64, np.uint32))
    pool = vk.vkCreateCommandPool(
        logical,
        vk.VkCommandPoolCreateInfo(queueFamilyIndex=device.queue_family),
        None,
    )
    commands = vk.vkAllocateCommandBuffers(
        logical,
        vk.VkCommandBufferAllocateInfo(
            commandPool=pool,
            level=vk.VK_COMMAND_BUFFER_LEVEL_PRIMARY,
            commandBufferCount=1,
        ),
    )[0]
    vk.vkBeginCommandBuffer(commands, vk.VkCommandBufferBeginInfo())
    vk.vkCmdCopyBuffer(
        commands,
        other.cast("VkBuffer", source.handle),
        other.cast("VkBuffer", target.handle),
        1,
        [vk.VkBufferCopy(source.offset, target.offset, 256)],
    )
    vk.vkEndCommandBuffer(commands)
    device.synchronize()
    submit = vk.VkSubmitInfo(pCommandBuffers=[commands])
    vk.vkQueueSubmit(queue, 1, [submit], vk.VK_NULL_HANDLE)
    vk.vkQueueWaitIdle(queue)
    vk.vkDestroyCommandPool(logical, pool, None)
    assert np.array_equal(fetch(device, target, np.uint32), data)


# --- what may go wrong ------------------------------------------------------


def test_a_lost_device_names_what_ran(
    own_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable = Executable(own_device, add_program(own_device.info, 8))
    a = own_device.upload(np.ones(8, np.float32))
    executable.call([a, a])[1].wait()
    (result,), completion = executable.call([a, a])
    own_device.queue.completed = completion.value - 1
    for name in ("vkWaitSemaphores", "vkGetSemaphoreCounterValue"):
        monkeypatch.setattr(own_device.functions, name, lambda *a: -4)
    with pytest.raises(DeviceLost, match=r"DEVICE_LOST.*running or waiting: \[add\]"):
        completion.wait()
    monkeypatch.undo()
    with CallCounter(own_device.functions) as counter:
        for attempt in (
            lambda: executable.call([a, a]),
            lambda: own_device.upload(np.ones(3)),
            lambda: fetch(own_device, result),
            own_device.synchronize,
        ):
            with pytest.raises(DeviceLost, match="start the process anew"):
                attempt()
    # At once: the driver is not asked again.
    assert counter.calls == {}


def test_a_device_lost_at_submit(
    own_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable = Executable(own_device, add_program(own_device.info, 8))
    a = own_device.upload(np.ones(8, np.float32))
    monkeypatch.setattr(own_device.functions, "vkQueueSubmit", lambda *a: -4)
    with pytest.raises(DeviceLost, match="vkQueueSubmit"):
        executable.call([a, a])
    monkeypatch.undo()
    with pytest.raises(DeviceLost):
        executable.call([a, a])


def test_a_submit_without_memory_can_be_repeated(
    own_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable = Executable(own_device, add_program(own_device.info, 8))
    a = own_device.upload(np.ones(8, np.float32))
    monkeypatch.setattr(own_device.functions, "vkQueueSubmit", lambda *a: -2)
    with pytest.raises(MemoryError):
        executable.call([a, a])
    monkeypatch.undo()
    assert fetch(own_device, executable.call([a, a])[0][0]).tolist() == [2] * 8


def test_a_timeout_says_so_and_can_be_waited_out(own_device: Device) -> None:
    count = 1 << 13
    program = count_up_program(own_device.info, count, 8, slow=True)
    executable = Executable(own_device, program)
    state = own_device.upload(np.zeros(count, np.float32))
    (state,), completion = executable.call([state])
    with pytest.raises(DeviceTimeout, match=r"for 0\.001 s|since 0\.001 s") as caught:
        completion.wait(timeout_s=0.001)
    assert "increment" in str(caught.value)
    assert isinstance(caught.value, TimeoutError)
    completion.wait()
    assert np.all(fetch(own_device, state) == 8)


def test_progress_is_no_standstill(
    own_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = own_device.queue
    steps = iter(range(1, 100))
    queue.submitted, real = 50, own_device.functions.vkGetSemaphoreCounterValue

    def crawling(device: int, semaphore: int, out: Any) -> int:
        out[0] = next(steps)
        return 0

    def waiting(device: int, info: Any, timeout_ns: int) -> int:
        return 0 if queue.completed >= 30 else binding.TIMEOUT

    monkeypatch.setattr(own_device.functions, "vkGetSemaphoreCounterValue", crawling)
    monkeypatch.setattr(own_device.functions, "vkWaitSemaphores", waiting)
    queue.wait(40, timeout_s=0.0)
    assert queue.completed == 40
    monkeypatch.setattr(own_device.functions, "vkGetSemaphoreCounterValue", real)


def test_waits_on_gpus_are_polled_for_some_time(
    own_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within the limit; then they block."""
    queue, functions = own_device.queue, own_device.functions
    real, asked, blocked = functions.vkGetSemaphoreCounterValue, [0], [0]

    def crawling(device: int, semaphore: int, out: Any) -> int:
        asked[0] += 1
        out[0] = min(asked[0], 40)
        return 0

    def waiting(device: int, info: Any, timeout_ns: int) -> int:
        blocked[0] += 1
        return 0

    monkeypatch.setattr(queue, "_polls", True)
    queue.submitted = 60
    monkeypatch.setattr(functions, "vkGetSemaphoreCounterValue", crawling)
    monkeypatch.setattr(functions, "vkWaitSemaphores", waiting)
    queue.wait(40)
    assert (asked[0], blocked[0], queue.completed) == (40, 0, 40)
    began = time.monotonic()
    queue.wait(50, timeout_s=0.001)
    assert blocked[0] == 1
    assert asked[0] > 41
    assert time.monotonic() - began < 1
    monkeypatch.setattr(functions, "vkGetSemaphoreCounterValue", real)


def test_a_counter_gone_wild_means_a_lost_device(
    own_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wild(device: int, semaphore: int, out: Any) -> int:
        out[0] = (1 << 64) - 1
        return 0

    monkeypatch.setattr(own_device.functions, "vkGetSemaphoreCounterValue", wild)
    with pytest.raises(DeviceLost, match="never submitted"):
        own_device.queue.is_done(10**6)


FORK = """
    import gc, os, sys
    import numpy as np
    from poot.core.errors import ForkError
    from poot.vulkan.device import open_device
    from poot.vulkan.instance import Instance

    device = open_device()
    buffer = device.upload(np.ones(4, np.float32))
    child = os.fork()
    if child == 0:
        code = 0
        for attempt in (
            lambda: device.upload(np.ones(4, np.float32)),
            lambda: device.wait(buffer),
            device.synchronize,
            Instance,
            open_device,
        ):
            try:
                attempt()
                code = 1
            except ForkError as error:
                assert "spawn" in str(error)
        device.close()
        del buffer, device
        gc.collect()
        # As multiprocessing does: a driver's own exit handlers are not for a child.
        os._exit(code)
    _, status = os.waitpid(child, 0)
    out = np.zeros(4, np.float32)
    device.download(buffer, out)
    print(os.waitstatus_to_exitcode(status), out.tolist())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_gets_an_error_and_the_parent_goes_on() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FORK)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    told = (done.stdout + done.stderr).strip()
    assert own_lines(done.stdout) == ["0 [1.0, 1.0, 1.0, 1.0]"], told


def test_the_process_ends_while_work_runs() -> None:
    code = """
        import numpy as np
        from poot.vulkan.device import open_device
        from poot.vulkan.executable import Executable
        from tests.vulkan_programs import count_up_program

        device = open_device()
        program = count_up_program(device.info, 1 << 12, 20, slow=True)
        executable = Executable(device, program)
        kept = executable.call([device.upload(np.zeros(1 << 12, np.float32))])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_device_that_cannot_be_opened_leaves_nothing(
    physical: PhysicalDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    counters: list[CallCounter] = []
    make_table = binding.device_table

    def failing(*arguments: Any) -> Any:
        table = make_table(*arguments)
        counters.append(CallCounter(table).__enter__())
        pools, make = [], table.vkCreateCommandPool

        def third_fails(*given: Any) -> int:
            pools.append(given)
            return -1 if len(pools) == 3 else make(*given)

        table.vkCreateCommandPool = third_fails
        return table

    monkeypatch.setattr(binding, "device_table", failing)
    with pytest.raises(MemoryError, match="vkCreateCommandPool"):
        Device(physical)
    assert counters[0].live == {"Device": -1}
