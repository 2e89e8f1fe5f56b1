"""What a jitted call on 16 floats costs above a bare submit and wait.

.venv/bin/python benchmarks/call_overhead.py
"""

from __future__ import annotations

import numpy as np

import poot
from poot.vulkan import binding
from poot.vulkan._vk import ffi
from poot.vulkan.device import Device
from poot.vulkan.executable import Executable
from timing import medians

CALLS = 300
TIMEOUT_NS = 10_000_000_000


def bare_loop(device: Device, executable: Executable, count: int) -> None:
    """Submit the executable's first command buffer and wait, as the driver allows.

    It waits as poot's queue does: polling on a GPU, blocking on a CPU driver.
    """
    functions, queue = device.functions, device.queue
    submission = executable._contexts[0].submission
    submit, handle, info = functions.vkQueueSubmit, queue.handle, submission.info
    values = ffi.new("uint64_t[1]")
    wait_info = binding.struct(
        "VkSemaphoreWaitInfo",
        semaphoreCount=1,
        pSemaphores=queue.semaphore_pointer,
        pValues=values,
    )
    signal, logical = submission.signal, device.handle
    wait, poll = functions.vkWaitSemaphores, functions.vkGetSemaphoreCounterValue
    reached, semaphore = ffi.new("uint64_t[1]"), queue.semaphore
    polls = not device.info.is_cpu
    value = queue.submitted
    for _ in range(count):
        value += 1
        signal[0] = values[0] = value
        submit(handle, 1, info, 0)
        if polls:
            while reached[0] < value:
                poll(logical, semaphore, reached)
        else:
            wait(logical, wait_info, TIMEOUT_NS)
    # The queue counts its submissions itself; tell it of these.
    queue.submitted = queue.completed = value


def overhead_microseconds() -> tuple[float, float]:
    """Microseconds of a jitted call with its wait, and of the bare loop."""
    add = poot.jit(lambda x, y: x + y)
    x = poot.device_put(np.arange(16, dtype=np.float32))
    y = poot.device_put(np.ones(16, np.float32))
    add(x, y).block_until_ready()
    # The very executable that the calls replay; its tables hold this call's addresses.
    (compiled,) = add._compiled.values()
    executable: Executable = compiled._executable
    device = executable.device

    def calls(count: int) -> None:
        for _ in range(count):
            add(x, y).block_until_ready()

    def bare(count: int) -> None:
        bare_loop(device, executable, count)

    taken = medians(
        {"calls": lambda: calls(CALLS), "bare": lambda: bare(CALLS)}, rounds=41
    )
    return taken["calls"] / CALLS * 1e6, taken["bare"] / CALLS * 1e6


if __name__ == "__main__":
    call, bare = overhead_microseconds()
    print(f"call {call:.2f} us, bare {bare:.2f} us, above it {call - bare:.2f} us")
