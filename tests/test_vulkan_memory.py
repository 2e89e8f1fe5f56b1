"""The allocator's bookkeeping, pools on a device, limits, recovery."""

from __future__ import annotations

import gc
import random
import threading
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poot.core.errors import CapabilityError, LimitError, OutOfMemory
from poot.lowering.program import Program, ResultSpec
from poot.vulkan.allocator import ALIGNMENT, Block, Chunk, ChunkAllocator, rounded
from poot.vulkan.binding import CallCounter
from poot.vulkan.device import Device
from poot.vulkan.executable import Executable
from poot.vulkan.memory_types import (
    CACHED,
    COHERENT,
    DEVICE_LOCAL,
    VISIBLE,
    MemoryType,
    choose_layout,
)
from poot.vulkan.physical import PhysicalDevice
from tests import vulkan_programs
from tests.vulkan_programs import UNPROBED, add_program, chain_program, fetch, floats

clean_validation = vulkan_programs.clean_validation
device = vulkan_programs.device
physical = vulkan_programs.physical
MIB = 1 << 20


# --- bookkeeping ------------------------------------------------------------


def drop(chunk: Chunk) -> None:
    chunk.waiting.append(chunk)


def check_blocks(allocator: ChunkAllocator) -> None:
    """Chunks tile their blocks, and no two free ones are neighbours."""
    for block in allocator.blocks:
        end, free_before = 0, False
        for chunk in block.chunks():
            assert chunk.offset == end and chunk.size > 0
            assert chunk.address == block.address + chunk.offset
            assert not (chunk.free and free_before)
            end, free_before = end + chunk.size, chunk.free
        assert end == block.size


@given(st.integers(0, 1 << 32))
def test_random_takes_and_drops(seed: int) -> None:
    rng = random.Random(seed)
    allocator, held = ChunkAllocator(), []
    allocator.add(Block(1 << 16, address=1 << 20))
    for _ in range(60):
        action = rng.random()
        if action < 0.55:
            size = rounded(rng.choice([1, 64, 100, 1000, 5000, rng.randrange(1, 9000)]))
            waiting = allocator.waiting(size)
            chunk = waiting.pop() if waiting else allocator.take(size)
            if chunk is None:
                allocator.flush()
                chunk = allocator.take(size)
            if chunk is not None:
                assert chunk.size >= size
                held.append(chunk)
        elif action < 0.95 and held:
            drop(held.pop(rng.randrange(len(held))))
        else:
            allocator.flush()
        check_places(held)
    assert allocator.in_use() == (sum(c.size for c in held), len(held))
    for chunk in held:
        drop(chunk)
    allocator.flush()
    check_blocks(allocator)
    assert [block.is_empty for block in allocator.blocks] == [True]
    assert allocator.taken_bytes == 0


def check_places(held: list[Chunk]) -> None:
    ends = sorted((chunk.offset, chunk.offset + chunk.size) for chunk in held)
    for (_, end), (start, _) in pairwise(ends):
        assert end <= start


@given(st.integers(1, 1 << 34))
def test_rounding(size: int) -> None:
    wide = rounded(size)
    assert wide >= size and wide % ALIGNMENT == 0 and rounded(wide) == wide
    assert wide - size < max(ALIGNMENT, size // 8)


def test_a_joined_chunk_is_as_young_as_its_parts() -> None:
    allocator = ChunkAllocator()
    allocator.add(Block(256))
    parts = [allocator.take(64) for _ in range(4)]
    for value, chunk in enumerate(parts):
        assert chunk is not None
        chunk.last_use = value
        drop(chunk)
    allocator.flush()
    joined = allocator.take(256)
    assert joined is not None and joined.last_use == 3


def test_memory_types_of_a_discrete_gpu() -> None:
    flags = [0, DEVICE_LOCAL, VISIBLE | COHERENT, VISIBLE | COHERENT | CACHED]
    flags.append(DEVICE_LOCAL | VISIBLE | COHERENT)
    heaps = [1, 0, 1, 1, 2]
    sizes = [140 << 30, 100 << 30, 256 << 20]
    types = [
        MemoryType(n, flag, heap, sizes[heap])
        for n, (flag, heap) in enumerate(zip(flags, heaps, strict=True))
    ]
    layout = choose_layout(types, unified=False)
    numbers = layout.arrays.number, layout.tables.number, layout.readback.number
    assert numbers == (1, 4, 3)
    with pytest.raises(CapabilityError, match="property flags"):
        choose_layout(types[:2], unified=False)


# --- pools ------------------------------------------------------------------


def capped(physical: PhysicalDevice, heap_bytes: int) -> Device:
    return Device(physical, mask=UNPROBED, heap_bytes=heap_bytes)


def test_buffers_are_aligned_and_apart(device: Device) -> None:
    buffers = [device.allocate(size) for size in (1, 63, 64, 65, 4000, 100_000)]
    places = sorted((b.address, b.address + b.size_bytes) for b in buffers)
    assert all(buffer.address % 64 == 0 for buffer in buffers)
    for (_, end), (start, _) in pairwise(places):
        assert end <= start
    # The handle and the offset name the same bytes as the address.
    first, second = buffers[0], buffers[1]
    if first.handle == second.handle:
        assert first.address - first.offset == second.address - second.offset


def test_dropped_buffers_are_reused_and_counted(device: Device) -> None:
    before = device.memory_statistics()
    buffer = device.allocate(12345)
    address = buffer.address
    during = device.memory_statistics()
    assert during.buffers == before.buffers + 1
    assert 12345 <= during.in_use_bytes - before.in_use_bytes < 13500
    del buffer
    again = device.allocate(12345)
    assert again.address == address
    again.close()
    again.close()
    assert again.is_closed
    after = device.memory_statistics()
    assert (after.buffers, after.in_use_bytes) == (before.buffers, before.in_use_bytes)
    assert after.peak_bytes >= during.in_use_bytes


def test_an_allocation_beyond_the_device_limit(physical: PhysicalDevice) -> None:
    limited = Device(physical, mask={**UNPROBED, "max_allocation_bytes": MIB})
    limited.allocate(MIB)
    with pytest.raises(LimitError, match=rf"{2 * MIB} bytes .* at most {MIB}"):
        limited.allocate(2 * MIB)
    limited.close()


def test_a_tiny_heap_ends_in_an_error_and_recovers(physical: PhysicalDevice) -> None:
    tiny = capped(physical, 4 * MIB)
    held = [tiny.allocate(300_000) for _ in range(10)]
    with pytest.raises(OutOfMemory, match="2000000 bytes"):
        tiny.allocate(2_000_000)
    with pytest.raises(OutOfMemory) as caught:
        for _ in range(10):
            held.append(tiny.allocate(300_000))
    text = str(caught.value)
    statistics = tiny.memory_statistics()
    assert f"{statistics.in_use_bytes} of {4 * MIB} bytes are in use" in text
    assert f"{4 * MIB - statistics.in_use_bytes} are left" in text
    assert isinstance(caught.value, MemoryError)
    assert statistics.reserved_bytes <= 4 * MIB
    held.clear()
    # Small blocks give way to one large one.
    large = tiny.upload(np.arange(900_000, dtype=np.float32))
    assert np.array_equal(fetch(tiny, large), np.arange(900_000, dtype=np.float32))
    tiny.close()


def test_garbage_is_collected_before_an_allocation_fails(
    physical: PhysicalDevice,
) -> None:
    tiny = capped(physical, 4 * MIB)
    gc.disable()
    try:
        for _ in range(10):
            cycle: list[Any] = [tiny.allocate(3 * MIB)]
            cycle.append(cycle)
            assert tiny.memory_statistics().buffers == 1
            del cycle
    finally:
        gc.enable()
    tiny.close()


def test_results_that_do_not_fit(physical: PhysicalDevice) -> None:
    tiny = capped(physical, 4 * MIB)
    count = 300_000
    executable = Executable(tiny, add_program(tiny.info, count))
    a = tiny.upload(np.ones(count, np.float32))
    results = []
    with pytest.raises(OutOfMemory):
        for _ in range(10):
            results.append(executable.call([a, a])[0][0])
    assert np.all(fetch(tiny, results[0]) == 2)
    results.clear()
    for _ in range(10):
        (result,), _ = executable.call([a, a])
    assert np.all(fetch(tiny, result) == 2)
    tiny.close()


def test_large_blocks_go_back_to_the_driver(physical: PhysicalDevice) -> None:
    capped_device = capped(physical, 64 * MIB)
    with CallCounter(capped_device.functions) as counter:
        for megabytes in (20, 30, 40, 50, 20, 60):
            capped_device.allocate(megabytes * MIB).close()
        capped_device.arrays.release_empty()
    assert counter.live == {}
    assert capped_device.memory_statistics().reserved_bytes == 0
    capped_device.close()


def test_driver_refusals_become_out_of_memory(
    physical: PhysicalDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = capped(physical, 1 << 30)
    kept = own.allocate(MIB)
    monkeypatch.setattr(own.functions, "vkAllocateMemory", lambda *arguments: -2)
    with CallCounter(own.functions) as counter, pytest.raises(OutOfMemory):
        own.allocate(100 * MIB)
    assert counter.live["Buffer"] <= 0
    monkeypatch.undo()
    assert own.allocate(100 * MIB).address and kept.address
    own.close()


def test_memory_is_flat_over_many_calls(device: Device) -> None:
    executable = Executable(device, chain_program(device.info, 1000, 3))
    a = device.upload(np.ones(1000, np.float32))
    with CallCounter(device.functions) as counter:
        executable.call([a])
        begin = device.memory_statistics()
        for _ in range(300):
            executable.call([a])
        end = device.memory_statistics()
    assert begin.reserved_bytes == end.reserved_bytes
    assert end.peak_bytes <= begin.peak_bytes + 20 * 4096
    assert counter.calls["vkAllocateMemory"] == 0
    executable.close()


def test_a_result_is_not_reused_while_its_bytes_are_read(device: Device) -> None:
    """Dropped memory goes to later work on the queue, in order."""
    executable = Executable(device, add_program(device.info, 1000))
    values = [device.upload(np.full(1000, n, np.float32)) for n in range(4)]
    kept = []
    for step in range(200):
        (total,), _ = executable.call([values[step % 4], values[1]])
        (twice,), _ = executable.call([total, total])
        del total
        kept.append((step % 4 + 1, twice))
        if len(kept) > 20:
            number, result = kept.pop(0)
            assert np.all(fetch(device, result) == 2 * number)
    executable.close()


def test_threads_allocate_and_drop(device: Device) -> None:
    before = device.memory_statistics()
    clashes: list[int] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for step in range(40):
            count = rng.choice([10, 100, 5000])
            data = np.full(count, seed * 1000 + step, np.float32)
            buffers = [device.upload(data) for _ in range(5)]
            if not all(np.array_equal(fetch(device, b), data) for b in buffers):
                clashes.append(seed)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clashes == []
    after = device.memory_statistics()
    assert (after.buffers, after.in_use_bytes) == (before.buffers, before.in_use_bytes)


def test_a_program_without_results_needs_no_memory(device: Device) -> None:
    program = Program(
        body=(), inputs=(floats(4),), results=(ResultSpec(floats(4), input_index=0),)
    )
    before = device.memory_statistics()
    executable = Executable(device, replace(program, arena_bytes=0))
    assert device.memory_statistics().in_use_bytes == before.in_use_bytes
    executable.close()
