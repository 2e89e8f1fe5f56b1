"""Executables: what replays compute, how they wait, poison, donate and clean up."""

from __future__ import annotations

import gc
import threading
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from poot.core.dtypes import bfloat16, bool_, float16, float32, int32, uint8
from poot.core.errors import (
    CheckError,
    DeletedArrayError,
    DeviceError,
    LoweringError,
)
from poot.core.types import TensorType
from poot.lowering.program import (
    Access,
    BufferRange,
    Copy,
    Program,
    ResultSpec,
    SlotSpec,
    Space,
)
from poot.lowering.spirv.builder import KernelBuilder
from poot.lowering.spirv.types import F32
from poot.vulkan.binding import CallCounter
from poot.vulkan.device import Device
from poot.vulkan.executable import Executable
from poot.vulkan.slots import make_packer
from tests import vulkan_programs
from tests.vulkan_programs import (
    add_program,
    chain_program,
    checked_program,
    count_up_program,
    fetch,
    floats,
    increment_kernel,
    launch,
    whole,
)

clean_validation = vulkan_programs.clean_validation
device = vulkan_programs.device


def test_results_of_many_calls(device: Device) -> None:
    executable = Executable(device, add_program(device.info, 100))
    a = np.arange(100, dtype=np.float32)
    left = device.upload(a)
    kept = []
    for number in range(12):
        right = device.upload(np.full(100, number, np.float32))
        (total,), _ = executable.call([left, right])
        kept.append(total)
    for number, total in enumerate(kept):
        assert np.array_equal(fetch(device, total), a + number)
    executable.close()


def test_one_array_for_two_arguments(device: Device) -> None:
    executable = Executable(device, add_program(device.info, 5))
    a = device.upload(np.arange(5, dtype=np.float32))
    (total,), _ = executable.call([a, a])
    assert fetch(device, total).tolist() == [0, 2, 4, 6, 8]
    executable.close()


def test_a_chain_through_the_arena(device: Device) -> None:
    executable = Executable(device, chain_program(device.info, 1000, 20))
    a = device.upload(np.ones(1000, np.float32))
    for _ in range(3):
        (total,), _ = executable.call([a])
        assert np.array_equal(fetch(device, total), np.full(1000, 2.0**20, np.float32))
    executable.close()


def test_donated_buffers_become_results(device: Device) -> None:
    executable = Executable(device, count_up_program(device.info, 3, 50))
    state = device.upload(np.zeros(3, np.float32))
    (result,), _ = executable.call([state])
    assert result is state
    (result,), _ = executable.call([result])
    assert fetch(device, result).tolist() == [100, 100, 100]
    executable.close()


def test_state_that_is_no_result_is_waited_for(device: Device) -> None:
    count = 1 << 12
    program = count_up_program(device.info, count, 8, slow=True)
    executable = Executable(device, replace(program, results=()))
    state = device.upload(np.zeros(count, np.float32))
    results, completion = executable.call([state])
    assert results == [] and state.ready == completion.value
    assert np.all(fetch(device, state) == 8)
    executable.close()


def test_a_shared_buffer_is_copied_before_it_is_donated(device: Device) -> None:
    executable = Executable(device, count_up_program(device.info, 3, 1))
    state = device.upload(np.zeros(3, np.float32))
    state.shared = True
    (result,), _ = executable.call([state])
    assert fetch(device, result).tolist() == [1, 1, 1]
    assert fetch(device, state).tolist() == [0, 0, 0]
    executable.close()


def test_donating_what_is_an_argument_too(device: Device) -> None:
    info = device.info
    program = count_up_program(info, 3, 1)
    program = Program(
        body=program.body,
        inputs=(floats(3), floats(3)),
        results=(*program.results, ResultSpec(floats(3), input_index=1)),
        donated=frozenset({0}),
    )
    executable = Executable(device, program)
    array = device.upload(np.zeros(3, np.float32))
    (bumped, same), _ = executable.call([array, array])
    assert same is array and same.shared
    assert fetch(device, bumped).tolist() == [1, 1, 1]
    assert fetch(device, same).tolist() == [0, 0, 0]
    executable.close()


def test_constants_passed_through_are_shared(device: Device) -> None:
    const = device.upload(np.ones(3, np.float32))
    program = Program(
        body=(),
        inputs=(),
        results=(ResultSpec(floats(3), const_index=0),),
        consts=(floats(3),),
    )
    executable = Executable(device, program, [const])
    (result,), completion = executable.call([])
    assert result is const and const.shared and completion.done()
    executable.close()


def test_constants_outlive_the_calls_that_read_them(device: Device) -> None:
    """Their memory is not written to anew while work goes on, if nobody holds them."""
    count = 1 << 12
    slow = count_up_program(device.info, count, 8, slow=True)
    ends = whole(Space.CONST, 0, floats(count)), whole(Space.RESULT, 1, floats(count))
    program = replace(
        slow,
        body=(*slow.body, Copy(*ends)),
        results=(*slow.results, ResultSpec(floats(count))),
        consts=(floats(count),),
    )
    ones = np.ones(count, np.float32)
    executable = Executable(device, program, [device.upload(ones)])
    state = device.upload(np.zeros(count, np.float32))
    (_, result), completion = executable.call([state])
    del executable
    others = [device.upload(np.full(count, 2, np.float32)) for _ in range(4)]
    assert not completion.done()
    assert np.all(fetch(device, result) == 1)
    assert all(np.all(fetch(device, other) == 2) for other in others)


def test_arrays_without_elements(device: Device) -> None:
    program = Program(body=(), inputs=(floats(0),), results=(ResultSpec(floats(0)),))
    executable = Executable(device, program)
    (result,), _ = executable.call([device.upload(np.zeros(0, np.float32))])
    assert (result.size_bytes, result.address, result.handle) == (0, 0, 0)
    assert fetch(device, result).size == 0
    executable.close()


@pytest.mark.parametrize("operands", [20, 70])
def test_kernels_with_more_operands_than_push_constants(
    device: Device, operands: int
) -> None:
    info = device.info
    k = KernelBuilder(f"sum_{operands}", info, (1, 1, 1))
    sources = [
        k.operand(f"x{n}", Access.READ, indirect=n % 2 == 0) for n in range(operands)
    ]
    result = k.operand("result", Access.WRITE, indirect=True)
    total: Any = k.f32(0.0)
    for pointer in sources:
        total = total + k.load(pointer, F32, 0, 1)
    k.store(result, F32, 0, total, k.metadata(0))
    kernel = k.finish()
    assert kernel.wide == (8 * (operands + 2) > info.max_push_bytes)
    spans = [
        BufferRange(Space.ARGUMENT if n % 2 == 0 else Space.CONST, n // 2, 0, 4)
        for n in range(operands)
    ]
    target = BufferRange(Space.RESULT, 0, 0, 4)
    half = operands // 2
    program = Program(
        body=(launch(info, kernel, (*spans, target), 1, (1,)),),
        inputs=(floats(1),) * half,
        results=(ResultSpec(floats(1)),),
        consts=(floats(1),) * half,
    )
    values = [device.upload(np.float32([n])) for n in range(operands)]
    executable = Executable(device, program, values[1::2])
    for _ in range(5):
        (found,), _ = executable.call(values[::2])
        assert fetch(device, found).tolist() == [sum(range(operands))]
    executable.close()


@pytest.mark.parametrize("dtype", [uint8, float16, float32], ids=str)
@pytest.mark.parametrize("count, start", [(1, 0), (7, 0), (33, 3), (1000, 16), (64, 1)])
def test_copies_between_arguments_and_results(
    device: Device, dtype: Any, count: int, start: int
) -> None:
    whole_type = TensorType((count + start + 5,), dtype)
    size = count * dtype.itemsize
    source = BufferRange(Space.ARGUMENT, 0, start * dtype.itemsize, size)
    program = Program(
        body=(
            Copy(
                whole(Space.ARGUMENT, 1, whole_type), whole(Space.RESULT, 0, whole_type)
            ),
            Copy(source, BufferRange(Space.RESULT, 0, dtype.itemsize, size)),
            Copy(source, BufferRange(Space.ARENA, 0, 0, size)),
            Copy(
                BufferRange(Space.ARENA, 0, 0, size),
                BufferRange(Space.RESULT, 1, 0, size),
            ),
        ),
        inputs=(whole_type, whole_type),
        results=(ResultSpec(whole_type), ResultSpec(TensorType((count,), dtype))),
        arena_bytes=size,
    )
    executable = Executable(device, program)
    data = np.arange(whole_type.size).astype(dtype.numpy)
    under = np.full(whole_type.size, 99).astype(dtype.numpy)
    results, _ = executable.call([device.upload(data), device.upload(under)])
    first, second = (fetch(device, result, dtype.numpy) for result in results)
    part = data[start : start + count]
    assert np.array_equal(second, part)
    assert np.array_equal(first[1 : count + 1], part)
    assert first[0] == 99 and np.all(first[count + 1 :] == 99)
    executable.close()


# --- slots and witnesses ----------------------------------------------------


def test_slots_are_written_each_call(device: Device) -> None:
    executable = Executable(device, checked_program(device.info))
    a = device.upload(np.float32([1]))
    kept = [executable.call([a, None], [n])[0][0] for n in range(10)]
    assert [fetch(device, result)[0] for result in kept] == [n + 1 for n in range(10)]
    executable.close()


def test_slots_of_all_dtypes() -> None:
    types = [bool_, int32, float16, bfloat16, float32]
    slots = [SlotSpec(n, TensorType((), t), 16 * n) for n, t in enumerate(types)]
    values = [True, -5, 1e6, 3.140625, 1e300]
    for some in (slots, slots[:3] + slots[4:], slots[::-1]):
        given = [values[slot.input_index] for slot in some]
        target = np.zeros(80, np.uint8)
        make_packer(some)(memoryview(target), given)
        for slot, value in zip(some, given, strict=True):
            dtype = slot.type.dtype.numpy
            raw = target[slot.offset : slot.offset + dtype.itemsize]
            with np.errstate(over="ignore"):
                assert raw.tobytes() == np.asarray(value).astype(dtype).tobytes()


def test_a_witness_raises_at_the_first_blocking_use(device: Device) -> None:
    executable = Executable(device, checked_program(device.info))
    good, bad = (device.upload(np.float32([n])) for n in (1, 13))
    (first,), completion = executable.call([good, None], [0])
    (poisoned,), failed = executable.call([bad, None], [0])
    completion.check()
    assert fetch(device, first).tolist() == [1]
    for _ in range(2):
        with pytest.raises(CheckError, match=r"a was 13 \(demo.py:7\)"):
            failed.check()
        with pytest.raises(CheckError, match="a was 13"):
            device.wait(poisoned)
    executable.close()


def test_a_failed_check_poisons_what_depends_on_it(device: Device) -> None:
    checked = Executable(device, checked_program(device.info))
    add = Executable(device, add_program(device.info, 1))
    good, bad = (device.upload(np.float32([n])) for n in (1, 13))
    (poisoned,), _ = checked.call([bad, None], [0])
    (fine,), _ = checked.call([good, None], [0])
    (sum_,), _ = add.call([poisoned, fine])
    (again,), _ = checked.call([sum_, None], [0])
    (clean,), _ = add.call([fine, fine])
    # The context of the failed call serves others before anyone looks.
    for _ in range(10):
        checked.call([good, None], [0])
    with pytest.raises(CheckError, match="a was 13"):
        fetch(device, again)
    with pytest.raises(CheckError, match="a was 13"):
        fetch(device, sum_)
    assert fetch(device, clean).tolist() == [2]
    checked.close()
    with pytest.raises(CheckError, match="a was 13"):
        fetch(device, poisoned)
    add.close()


def test_a_long_chain_of_checked_calls_keeps_no_history(device: Device) -> None:
    executable = Executable(device, checked_program(device.info))
    value = device.upload(np.float32([20]))
    for _ in range(300):
        (value,), completion = executable.call([value, None], [1])
    depth, seen = 0, completion
    while seen.parents:
        depth, seen = depth + 1, seen.parents[0]
    assert depth <= 8
    assert fetch(device, value).tolist() == [320]
    executable.close()


# --- asynchrony and driver calls --------------------------------------------


def test_driver_calls_from_the_second_call_on(device: Device) -> None:
    executable = Executable(device, add_program(device.info, 16))
    a = device.upload(np.ones(16, np.float32))
    executable.call([a, a])[1].wait()
    with CallCounter(device.functions) as counter:
        (total,), completion = executable.call([a, a])
    assert dict(counter.calls) == {"vkQueueSubmit": 1}
    completion.wait()
    assert fetch(device, total).tolist() == [2] * 16
    executable.close()


def test_a_call_returns_before_its_work_has_ended(device: Device) -> None:
    count = 1 << 12
    program = count_up_program(device.info, count, 8, slow=True)
    executable = Executable(device, program)
    state = device.upload(np.zeros(count, np.float32))
    (state,), completion = executable.call([state])
    completion.wait()
    begin = time.perf_counter()
    (state,), completion = executable.call([state])
    returned = time.perf_counter() - begin
    assert not completion.done() and not device.is_ready(state)
    completion.wait()
    took = time.perf_counter() - begin
    assert returned < took / 4
    # An odd number of sign changes would show: the loop is there and is even.
    assert np.all(fetch(device, state) == 16)
    executable.close()


def test_calls_wait_only_for_a_free_context(device: Device) -> None:
    executable = Executable(device, add_program(device.info, 16))
    a = device.upload(np.ones(16, np.float32))
    results = [executable.call([a, a])[0][0] for _ in range(50)]
    assert all(fetch(device, result).tolist() == [2] * 16 for result in results)
    executable.close()


def test_threads_share_an_executable(device: Device) -> None:
    executable = Executable(device, add_program(device.info, 64))
    own = [Executable(device, chain_program(device.info, 64, 3)) for _ in range(4)]
    wrong: list[str] = []

    def work(number: int) -> None:
        mine = device.upload(np.full(64, number, np.float32))
        for step in range(60):
            other = device.upload(np.full(64, step, np.float32))
            (total,), _ = executable.call([mine, other])
            (scaled,), _ = own[number % 4].call([total])
            found = fetch(device, scaled)
            if not np.all(found == 8 * (number + step)):
                wrong.append(f"thread {number} step {step}: {found[:4]}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    for one in (executable, *own):
        one.close()


# --- refusals and ends ------------------------------------------------------


def test_direct_operands_cannot_change_place(device: Device) -> None:
    program = count_up_program(device.info, 4, 1)
    node = program.dispatches[0]
    kernel = increment_kernel(device.info, indirect=False)
    body = (replace(node, kernel=kernel),)
    with pytest.raises(LoweringError, match="must be indirect"):
        Executable(device, replace(program, body=body))


def test_wrong_buffers_are_refused(device: Device) -> None:
    executable = Executable(device, add_program(device.info, 100))
    right, small = (device.upload(np.zeros(n, np.float32)) for n in (100, 50))
    with pytest.raises(LoweringError, match=r"input 1 \(f32\[100\]\) needs 400 bytes"):
        executable.call([right, small])
    with pytest.raises(LoweringError, match=r"input 0 .* no buffer"):
        executable.call([None, right])
    gone = device.upload(np.zeros(100, np.float32))
    gone.close()
    with pytest.raises(DeletedArrayError, match="input 0"):
        executable.call([gone, right])
    executable.close()
    with pytest.raises(DeviceError, match="closed"):
        executable.call([right, right])


def test_nothing_is_left_of_closed_and_collected_executables(device: Device) -> None:
    a = device.upload(np.ones(16, np.float32))
    with CallCounter(device.functions) as counter:
        before = device.memory_statistics()
        for _ in range(3):
            executable = Executable(device, chain_program(device.info, 16, 5))
            executable.call([a])
            executable.close()
            executable = Executable(device, chain_program(device.info, 16, 5))
            (result,), completion = executable.call([a])
            completion.wait()
            del executable, result, completion
            gc.collect()
            device.collect()
        after = device.memory_statistics()
    assert counter.calls["vkCreateCommandPool"] == 6
    # Pipelines and their layouts stay for the next user.
    kept = {"Pipeline", "PipelineLayout"}
    assert {kind: n for kind, n in counter.live.items() if kind not in kept} == {}
    assert (before.in_use_bytes, before.buffers) == (after.in_use_bytes, after.buffers)


def test_a_failed_start_leaves_nothing(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = device.memory_statistics()
    program = chain_program(device.info, 16, 5)
    with CallCounter(device.functions) as counter:
        monkeypatch.setattr(
            device.functions, "vkEndCommandBuffer", lambda command_buffer: -1
        )
        with pytest.raises(MemoryError, match="vkEndCommandBuffer"):
            Executable(device, program)
        device.collect()
    monkeypatch.undo()
    live = {k: n for k, n in counter.live.items() if not k.startswith("Pipeline")}
    assert live == {}
    assert device.memory_statistics().buffers == before.buffers
