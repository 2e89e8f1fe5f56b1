"""Loops, branches and whiles on a device: what they compute, and what calls cost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from poot.core.dtypes import uint32
from poot.core.errors import CheckError, DeviceError, DeviceLost, DeviceTimeout
from poot.core.types import TensorType
from poot.lowering.device_info import DeviceInfo
from poot.lowering.program import (
    Branch,
    BufferRange,
    Copy,
    Loop,
    Program,
    ResultSpec,
    SlotSpec,
    Space,
    WitnessSpec,
)
from poot.vulkan.binding import CallCounter
from poot.vulkan.device import Device
from poot.vulkan.executable import Executable
from poot.vulkan.recorder import WorkLimit
from tests import vulkan_programs
from tests.control_programs import (
    BELOW,
    BUMP,
    MOD,
    SET,
    Words,
    arena,
    call,
    held,
    random_program,
    run,
    simulate,
    state,
    words_of,
)
from tests.vulkan_programs import fetch, floats, increment_kernel, launch, whole

clean_validation = vulkan_programs.clean_validation
device = vulkan_programs.device
own_device = vulkan_programs.own_device
split_device = vulkan_programs.split_device


@pytest.fixture
def words(device: Device) -> Words:
    return Words(device.info)


def submits(device: Device, work: Callable[[], Any]) -> int:
    with CallCounter(device.functions) as counter:
        work()
    return counter.calls["vkQueueSubmit"]


# --- counted loops ----------------------------------------------------------


@pytest.mark.parametrize("trips", [0, 1, 2, 100, 1000, 100_000])
def test_a_loop_counts(device: Device, words: Words, trips: int) -> None:
    executable = Executable(device, words.program([Loop(trips, (words.bump(0),))]))
    if trips < 10_000:
        # One for the call, the others for what goes up and comes down.
        moves = 2 if device.info.unified_memory else 3
        assert submits(device, lambda: call(device, executable)) <= 1 + moves
    assert call(device, executable)[0][0] == trips
    assert len(executable.commands.commands) < 3000
    executable.close()


@pytest.mark.parametrize("trips", [(3, 5, 7), (40, 0, 3), (1, 30, 40), (0, 5, 5)])
def test_nested_loops_multiply(
    device: Device, words: Words, trips: tuple[int, int, int]
) -> None:
    a, b, c = trips
    inner = Loop(c, (words.bump(2),))
    program = words.program([Loop(a, (words.bump(0), Loop(b, (words.bump(1), inner))))])
    found, _ = run(device, program)
    assert found[:3] == [a, a * b, a * b * c]


def test_fibonacci_numbers_are_carried(device: Device, words: Words) -> None:
    # Arguments of the next iteration are copies of what this one made.
    body = (
        Copy(arena(1), arena(2), "keep"),
        words.add(2, 0),
        Copy(arena(1), arena(0), "a = b"),
        Copy(arena(2), arena(1), "b = a + b"),
    )
    for trips in (1, 10, 40, 200):
        numbers = [0, 1]
        while len(numbers) < trips + 2:
            numbers.append((numbers[-2] + numbers[-1]) & 0xFFFFFFFF)
        program = words.program([words.set(1, 1), Loop(trips, body)])
        assert run(device, program)[0][:2] == numbers[-2:]


def test_a_loop_is_one_submission(device: Device, words: Words) -> None:
    body = (words.bump(0), words.add(1, 0))
    executable = Executable(device, words.program([Loop(2000, body), words.bump(2)]))
    given = held(device)
    for _ in range(2):
        with CallCounter(device.functions) as counter:
            (result, given), completion = executable.call([given])
        completion.wait()
    assert dict(counter.calls) == {"vkQueueSubmit": 1}
    assert words_of(device, result)[:3] == [2000, 2000 * 2001 // 2, 1]
    executable.close()


def test_a_loop_returns_before_it_has_ended(device: Device, words: Words) -> None:
    executable = Executable(device, words.program([Loop(20_000, (words.bump(0),))]))
    call(device, executable)
    given = held(device)
    begin = time.perf_counter()
    (result, _), completion = executable.call([given])
    returned = time.perf_counter() - begin
    assert not completion.done()
    completion.wait()
    assert returned < (time.perf_counter() - begin) / 4
    assert words_of(device, result)[0] == 20_000
    executable.close()


def test_state_is_updated_in_place_in_a_loop(device: Device) -> None:
    count = 1000
    array = whole(Space.STATE, 0, floats(count))
    kernel = increment_kernel(device.info, indirect=True)
    step = launch(device.info, kernel, (array,), count, (count,))
    program = Program(
        body=(Loop(300, (step,)),),
        inputs=(floats(count),),
        results=(ResultSpec(floats(count), input_index=0),),
        donated=frozenset({0}),
    )
    executable = Executable(device, program)
    given = device.upload(np.arange(count, dtype=np.float32))
    for _ in range(3):
        (given,), _ = executable.call([given])
    assert np.array_equal(fetch(device, given), np.arange(count) + 900)
    executable.close()


def test_long_work_is_cut_into_submissions(
    device: Device, words: Words, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = WorkLimit(1e6, 4096, bytes_per_ns=1.0, flops_per_ns=1.0, launch_ns=1e3)
    monkeypatch.setattr("poot.vulkan.executable.work_limit", lambda info: limit)
    executable = Executable(device, words.program([Loop(5500, (words.bump(0),))]))
    given = held(device)
    calls: list[Any] = []
    # About a thousand launches each, so that a driver's watchdog sees short work.
    assert 6 <= submits(device, lambda: calls.append(executable.call([given]))) <= 12
    (((result, _), completion),) = calls
    assert completion.value == device.queue.submitted
    assert words_of(device, result)[0] == 5500
    executable.close()


def test_an_iteration_costs_its_launches(device: Device, words: Words) -> None:
    """(T(1000) - T(0)) / 1000 against the launches of a step, each as an empty one."""
    body = (words.bump(0), words.add(1, 0), words.add(2, 1))
    programs = {
        "0": words.program([Loop(0, body)]),
        "1000": words.program([Loop(1000, body)]),
        "empty": words.program([words.bump(0)] * 1000),
    }
    made = {name: Executable(device, program) for name, program in programs.items()}
    given = held(device)
    best = dict.fromkeys(made, float("inf"))
    # Best times only fall, so that on a busy machine more rounds tell more.
    for turn in range(60):
        for name, executable in made.items():
            begin = time.perf_counter()
            executable.call([given])[1].wait()
            best[name] = min(best[name], time.perf_counter() - begin)
        step = (best["1000"] - best["0"]) / 1000
        empty = (best["empty"] - best["0"]) / 1000
        ratio = step / (len(body) * empty)
        if turn >= 5 and ratio <= 1.2:
            break
    print(f"a step of 3 launches {step * 1e6:.2f} us, a launch {empty * 1e6:.2f} us")
    assert ratio <= 1.5, f"a step takes {ratio:.2f} times its launches"
    for executable in made.values():
        executable.close()


# --- branches ---------------------------------------------------------------


def choosing_program(info: DeviceInfo, count: int, spaces: Space) -> Program:
    """Adds 1, 2 or 3 to the elements of a state, as word 1 of an input picks."""
    words = TensorType((2,), uint32)
    held = whole(Space.STATE, 0, floats(count))
    step = launch(info, increment_kernel(info, indirect=True), (held,), count, (count,))
    selector = BufferRange(spaces, {Space.CONST: 0, Space.SLOT: 0}.get(spaces, 1), 4, 4)
    given = (floats(count), words)
    slots: tuple[SlotSpec, ...] = ()
    if spaces is Space.SLOT:
        slots = (SlotSpec(1, TensorType((), uint32), 4),)
    return Program(
        body=(Branch(selector, ((step,), (step,) * 2, (Loop(3, (step,)),))),),
        inputs=given[:1] if spaces is Space.CONST else given,
        results=(ResultSpec(floats(count), input_index=0),),
        donated=frozenset({0, 1} if spaces is Space.STATE else {0}),
        consts=(words,) if spaces is Space.CONST else (),
        slots=slots,
    )


@pytest.mark.parametrize(
    "space", [Space.ARGUMENT, Space.STATE, Space.SLOT, Space.CONST]
)
def test_selectors_may_stand_anywhere(device: Device, space: Space) -> None:
    # More workgroups than one, so that the right grid is launched.
    count = 1000
    program = choosing_program(device.info, count, space)
    for picked in range(3):
        word = device.upload(np.array([7, picked], np.uint32))
        consts = [word] if space is Space.CONST else []
        executable = Executable(device, program, consts)
        value = device.upload(np.arange(count, dtype=np.float32))
        given: list[Any] = [value] if space is Space.CONST else [value, word]
        scalars: list[int] = []
        if space is Space.SLOT:
            given[1], scalars = None, [picked]
        (result,), _ = executable.call(given, scalars)
        assert np.array_equal(fetch(device, result), np.arange(count) + picked + 1)
        executable.close()


def test_one_submission_whichever_way(device: Device) -> None:
    program = choosing_program(device.info, 100, Space.ARGUMENT)
    executable = Executable(device, program)
    value = device.upload(np.zeros(100, np.float32))
    for picked in (0, 1, 2, 1, 0, 2):
        word = device.upload(np.array([0, picked], np.uint32))
        assert submits(device, lambda: executable.call([value, word])) == 1  # noqa: B023
    assert np.all(fetch(device, value) == 12)
    executable.close()


def nested_choices(words: Words) -> Program:
    """Words 0 and 1 of the state pick; the inner selector is set on one way only."""
    inner = Branch(arena(9), ((words.bump(1),), (words.bump(2), words.bump(2))))
    outer = Branch(
        arena(8),
        (
            (words.bump(3), words.op(MOD, arena(9), 2, state(1)), inner),
            (words.bump(4), Branch(arena(9), ((words.bump(5),), (words.bump(6),)))),
            (),
        ),
    )
    picked = words.op(MOD, arena(8), 3, state(0))
    again = words.op(BUMP, state(0), 1)
    return words.program([Loop(5, (picked, outer, again)), inner])


@pytest.mark.parametrize("first", range(3))
@pytest.mark.parametrize("second", range(2))
def test_choices_in_choices_in_loops(
    device: Device, words: Words, first: int, second: int
) -> None:
    program, given = nested_choices(words), [first, second, 0, 0]
    assert run(device, program, given) == simulate(program, given)


def test_stale_selectors_switch_nothing_on(device: Device, words: Words) -> None:
    # The inner branch would run by its selector, and so would what is in it.
    inner = Branch(arena(9), ((words.bump(1), Branch(arena(9), ((words.bump(2),),))),))
    outer = Branch(arena(8), ((inner, Loop(3, (words.bump(3), inner))), ()))
    program = words.program([words.op(MOD, arena(8), 2, state(0)), outer])
    assert run(device, program, [1, 0])[0][1:4] == [0, 0, 0]
    assert run(device, program, [0, 0])[0][1:4] == [4, 4, 3]


# --- whiles -----------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, 1, 3, 4, 5, 12, 13, 1000])
def test_a_while_runs_as_often_as_it_says(
    device: Device, words: Words, limit: int
) -> None:
    loop = words.while_below(10, 11, limit, [words.add(1, 10), words.bump(2)])
    executable = Executable(device, words.program([loop, words.bump(3)]))
    for _ in range(3):
        found, _ = call(device, executable)
        assert found[1:4] == [limit * (limit - 1) // 2, limit, 1]
    # Few looks: batches grow, and a short loop's first one is enough.
    count = submits(device, lambda: executable.call([held(device)]))
    assert count <= (3 if limit < 4 else 12)
    executable.close()


def test_a_while_goes_on_from_what_it_was_given(device: Device, words: Words) -> None:
    test = words.op(BELOW, arena(11), 100, state(0))
    loop = words.while_below(10, 11, 0, [words.bump(1), words.op(BUMP, state(0), 7)])
    program = words.program([replace(loop, predicate=(test,))])
    for start in (0, 1, 93, 99, 100, 1000):
        assert run(device, program, [start]) == simulate(program, [start])


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_a_while_in_a_loop(device: Device, words: Words, trips: int) -> None:
    loop = words.while_below(10, 11, 6, [words.bump(1)])
    body = (words.set(10, 0), words.bump(2), loop, words.add(3, 1))
    program = words.program([Loop(trips, body), words.bump(4)])
    assert run(device, program) == simulate(program)


@pytest.mark.parametrize("picked", range(3))
def test_a_while_in_a_branch(device: Device, words: Words, picked: int) -> None:
    ways = [
        (words.bump(0), words.while_below(10, 11, 9, [words.bump(1)]), words.bump(2)),
        (words.while_below(12, 13, 2, [words.bump(3)]),),
        (words.bump(4),),
    ]
    choice = words.op(MOD, arena(8), 3, state(0))
    program = words.program([choice, Branch(arena(8), tuple(ways)), words.bump(5)])
    assert run(device, program, [picked] * 4) == simulate(program, [picked] * 4)


@pytest.mark.parametrize("limits", [(3, 4), (1, 0), (0, 5), (7, 1), (5, 20)])
def test_a_while_in_a_while(
    device: Device, words: Words, limits: tuple[int, int]
) -> None:
    inner = words.while_below(12, 13, limits[1], [words.bump(1), words.add(2, 10)])
    body = [words.set(12, 0), inner, words.bump(3)]
    program = words.program([words.while_below(10, 11, limits[0], body)])
    assert run(device, program) == simulate(program)


@pytest.mark.parametrize("start", range(0, 60, 12))
def test_random_nests(device: Device, start: int) -> None:
    for seed in range(start, start + 12):
        program = random_program(device.info, seed)
        given = [seed, 1, 2, 3]
        assert run(device, program, given) == simulate(program, given), str(program)


def test_random_nests_where_units_are_small(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("poot.vulkan.recorder._UNIT_COMMANDS", 3)
    limit = WorkLimit(2e3, 9, bytes_per_ns=1.0, flops_per_ns=1.0, launch_ns=1e2)
    monkeypatch.setattr("poot.vulkan.executable.work_limit", lambda info: limit)
    for seed in range(1000, 1012):
        program = random_program(device.info, seed)
        assert run(device, program) == simulate(program), str(program)


def test_nests_where_the_host_cannot_see_arrays(split_device: Device) -> None:
    for seed in range(6):
        program = random_program(split_device.info, seed)
        assert run(split_device, program) == simulate(program)


# --- many calls, threads, witnesses -----------------------------------------


def mixed_program(words: Words) -> Program:
    """A loop, a branch and a while, from the first word of the state."""
    choice = words.op(MOD, arena(8), 2, state(0))
    ways = ((words.bump(1, 10),), (words.bump(1, 20), words.bump(2)))
    loop = words.while_below(10, 11, 7, [words.add(3, 1)])
    body = (choice, Branch(arena(8), ways), words.op(BUMP, state(0), 1))
    return words.program([Loop(3, body), loop])


@pytest.mark.parametrize("make", [nested_choices, mixed_program])
def test_calls_that_overlap(
    device: Device, words: Words, make: Callable[[Words], Program]
) -> None:
    program = make(words)
    executable = Executable(device, program)
    kept = []
    for number in range(20):
        given = held(device, number, number // 3)
        kept.append(executable.call([given])[0])
    for number, results in enumerate(kept):
        found = tuple(words_of(device, result) for result in results)
        assert found == simulate(program, [number, number // 3, 0, 0])
    executable.close()


def test_threads_share_executables(device: Device, words: Words) -> None:
    programs = [mixed_program(words), nested_choices(words)]
    shared = [Executable(device, program) for program in programs]
    right = [
        {n: simulate(program, [n, 1, 0, 0]) for n in range(6)} for program in programs
    ]
    wrong: list[str] = []

    def work(number: int) -> None:
        for step in range(12):
            which, first = (number + step) % 2, step % 6
            found = call(device, shared[which], [first, 1, 0, 0])
            if found != right[which][first]:
                wrong.append(f"thread {number} step {step}: {found}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    for executable in shared:
        executable.close()


def checked_program(words: Words, body: Callable[[Any], list[Any]]) -> Program:
    """A witness that stands at byte 4, written by what the body puts in."""
    witness = BufferRange(Space.WITNESS, 0, 4, 4)
    program = words.program(body(witness))
    return replace(program, witnesses=(WitnessSpec(4, "13 was reached", "demo.py:7"),))


def test_witnesses_within_control_flow(device: Device, words: Words) -> None:
    def body(witness: BufferRange) -> list[Any]:
        failed = words.op(SET, witness, 1)
        is_13 = words.op(BELOW, arena(9), 14, state(0))
        is_less = words.op(BELOW, arena(8), 13, state(0))
        # 1 only for 13.
        only = [
            is_13,
            is_less,
            words.bump(9),
            Branch(arena(8), ((), (words.set(9, 1),))),
        ]
        hit = Branch(arena(9), ((), (), (failed,)))
        return [words.while_below(10, 11, 3, [*only, Loop(2, (hit,))])]

    executable = Executable(device, checked_program(words, body))

    def begin(value: int) -> tuple[Any, Any]:
        results, completion = executable.call([held(device, value)])
        return results[0], completion

    (good, _), (bad, failed), (fine, _) = begin(1), begin(13), begin(14)
    for _ in range(6):
        begin(2)
    with pytest.raises(CheckError, match=r"13 was reached \(demo.py:7\)"):
        failed.check()
    with pytest.raises(CheckError):
        device.wait(bad)
    assert words_of(device, good)[10] == words_of(device, fine)[10] == 3
    executable.close()


# --- what may go wrong ------------------------------------------------------


def endless(words: Words) -> Program:
    test = words.op(SET, arena(11), 1)
    loop = words.while_below(10, 11, 0, [words.bump(1)])
    return words.program([replace(loop, predicate=(test,))])


def test_a_device_lost_within_a_while(
    own_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable = Executable(own_device, endless(Words(own_device.info)))
    submit, left = own_device.functions.vkQueueSubmit, iter(range(5))
    monkeypatch.setattr(
        own_device.functions,
        "vkQueueSubmit",
        lambda *a: -4 if next(left, None) is None else submit(*a),
    )
    given = held(own_device)
    with pytest.raises(DeviceLost, match="vkQueueSubmit"):
        executable.call([given])
    with pytest.raises(DeviceLost, match="start the process anew"):
        executable.call([given])


def test_a_while_without_memory_can_be_called_again(
    own_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = Words(own_device.info)
    loop = words.while_below(10, 11, 300, [words.bump(1)])
    executable = Executable(own_device, words.program([loop]))
    given = held(own_device)
    submit, left = own_device.functions.vkQueueSubmit, iter(range(2))
    monkeypatch.setattr(
        own_device.functions,
        "vkQueueSubmit",
        lambda *a: -2 if next(left, None) is None else submit(*a),
    )
    with pytest.raises(MemoryError):
        executable.call([given])
    # What was submitted uses the buffers still.
    assert given.last_use == own_device.queue.submitted
    monkeypatch.undo()
    for _ in range(4):
        assert call(own_device, executable)[0][1] == 300


def test_a_standstill_within_a_while(
    own_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 1 << 13
    trips = vulkan_programs.slow_trips(own_device.info)
    info, words = own_device.info, Words(own_device.info)
    kernel = increment_kernel(info, indirect=True, trips=trips)
    slow = launch(
        info, kernel, (whole(Space.STATE, 0, floats(count)),), count, (count,)
    )
    loop = words.while_below(10, 11, 3, [slow])
    executable = Executable(own_device, words.program([loop], state_words=count))
    given = own_device.upload(np.zeros(count, np.float32))
    monkeypatch.setattr(own_device.queue, "timeout_s", 0.001)
    with pytest.raises(DeviceTimeout, match=r"running or waiting: .* launches"):
        executable.call([given])
    monkeypatch.undo()
    executable.call([given])[1].wait()
    own_device.synchronize()


def test_closing_waits_for_a_while(device: Device, words: Words) -> None:
    loop = words.while_below(10, 11, 20_000, [words.bump(1)])
    executable = Executable(device, words.program([loop]))
    call(device, executable)
    found: list[Any] = []
    given = held(device)
    thread = threading.Thread(target=lambda: found.append(executable.call([given])))
    before = device.queue.submitted
    thread.start()
    while device.queue.submitted < before + 2:
        time.sleep(0)
    executable.close()
    thread.join()
    (((result, _), _),) = found
    assert words_of(device, result)[1] == 20_000
    with pytest.raises(DeviceError, match="closed"):
        executable.call([given])
