"""Programs of empty launches: what a driver takes for a launch that does nothing."""

from __future__ import annotations

from collections.abc import Callable

from poot.lowering.device_info import DeviceInfo
from poot.lowering.program import Dispatch, Program
from poot.lowering.spirv.builder import KernelBuilder
from poot.vulkan.device import Device
from poot.vulkan.executable import Executable


def empty_program(info: DeviceInfo, count: int) -> Program:
    """So many launches of a kernel of one invocation that returns at once."""
    kernel = KernelBuilder("empty", info, (1, 1, 1)).finish("nothing")
    launch = Dispatch(kernel, (), (1, 1, 1), label="nothing")
    return Program((launch,) * count, (), ())


def empty_launches(device: Device, count: int) -> dict[str, Callable[[], object]]:
    """A call of one empty launch and one of `count` more, each with its wait."""

    def run(launches: int) -> Callable[[], object]:
        executable = Executable(device, empty_program(device.info, launches))
        return lambda: executable.call([])[1].wait()

    return {"1 empty": run(1), "all empty": run(1 + count)}
