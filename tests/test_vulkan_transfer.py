"""Copies between host and device, where the host sees arrays and where it does not."""

from __future__ import annotations

import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from poot.core.errors import CheckError, LimitError
from poot.vulkan.device import Device
from poot.vulkan.executable import Executable
from poot.vulkan.transfer import STAGING_BYTES
from tests import vulkan_programs
from tests.vulkan_programs import (
    add_program,
    checked_program,
    count_up_program,
    fetch,
)

clean_validation = vulkan_programs.clean_validation
device = vulkan_programs.device
split_device = vulkan_programs.split_device


@pytest.fixture(params=["device", "split_device"])
def either(request: pytest.FixtureRequest) -> Any:
    """A device with unified memory, and one with memory of its own."""
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.float16, np.int64])
def test_small_round_trips(either: Device, dtype: Any) -> None:
    for count in (1, 3, 64, 1001):
        data = (np.arange(count) % 2).astype(dtype)
        assert np.array_equal(fetch(either, either.upload(data), dtype), data)


def test_bfloat16_and_scalars(either: Device) -> None:
    data = np.arange(5).astype(ml_dtypes.bfloat16)
    out = np.zeros(5, ml_dtypes.bfloat16)
    either.download(either.upload(data), out)
    assert np.array_equal(out, data)
    scalar = np.zeros((), np.float64)
    either.download(either.upload(np.float64(2.5).reshape(())), scalar)
    assert scalar == 2.5


@pytest.mark.parametrize("extra", [-4, 0, 4])
def test_large_round_trips(split_device: Device, extra: int) -> None:
    count = (5 * STAGING_BYTES + extra) // 4
    data = np.arange(count, dtype=np.uint32)
    buffer = split_device.upload(data)
    assert buffer.host is None
    assert np.array_equal(fetch(split_device, buffer, np.uint32), data)


def test_an_upload_takes_its_bytes_at_once(either: Device) -> None:
    data = np.ones(100_000, np.float32)
    buffers = []
    for number in range(10):
        data[:] = number
        buffers.append(either.upload(data))
    for number, buffer in enumerate(buffers):
        assert np.all(fetch(either, buffer) == number)


def test_uploads_come_before_later_calls(either: Device) -> None:
    executable = Executable(either, add_program(either.info, 50_000))
    kept = []
    for number in range(20):
        a = either.upload(np.full(50_000, number, np.float32))
        kept.append(executable.call([a, a])[0][0])
    for number, total in enumerate(kept):
        assert np.all(fetch(either, total) == 2 * number)
    executable.close()


def test_an_upload_into_memory_that_running_work_still_reads(either: Device) -> None:
    count = 1 << 12
    slow = Executable(either, count_up_program(either.info, count, 4, slow=True))
    add = Executable(either, add_program(either.info, count))
    for number in range(5):
        state = either.upload(np.zeros(count, np.float32))
        (state,), _ = slow.call([state])
        (total,), _ = add.call([state, state])
        address = state.address
        del state
        again = either.upload(np.full(count, 99, np.float32))
        assert again.address == address
        assert np.all(fetch(either, total) == 8), number
        assert np.all(fetch(either, again) == 99)
        del again, total
    slow.close()
    add.close()


def test_fills_and_duplicates(either: Device) -> None:
    buffer = either.allocate(1000)
    either.fill(buffer, 0x3F800000)
    copied = either.duplicate(buffer)
    either.fill(buffer, 0)
    assert np.all(fetch(either, copied) == 1)
    assert np.all(fetch(either, buffer) == 0)
    empty = either.duplicate(either.allocate(0))
    either.fill(empty, 7)
    assert empty.size_bytes == 0


def test_a_duplicate_of_a_poisoned_array_is_poisoned(either: Device) -> None:
    executable = Executable(either, checked_program(either.info))
    (result,), _ = executable.call([either.upload(np.float32([13])), None], [0])
    copied = either.duplicate(result)
    with pytest.raises(CheckError):
        fetch(either, copied)
    executable.close()


def test_refused_downloads(either: Device) -> None:
    buffer = either.upload(np.zeros(4, np.float32))
    with pytest.raises(LimitError, match="20 bytes from a buffer of 16"):
        either.download(buffer, np.zeros(5, np.float32))
    with pytest.raises(ValueError, match="C-contiguous"):
        either.download(buffer, np.zeros((2, 4), np.float32)[:, ::2])


def test_threads_copy_through_one_ring(split_device: Device) -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        for step in range(3):
            count = STAGING_BYTES // 4 * (step + 1) + 1000 * seed
            data = np.full(count, seed * 10 + step, np.float32)
            if not np.array_equal(fetch(split_device, split_device.upload(data)), data):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
