"""The recorder's lists, and the race checker that judges them. No device."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poot.core.errors import LoweringError
from poot.lowering.device_info import DeviceInfo, DeviceKind
from poot.lowering.program import (
    Access,
    Branch,
    BufferRange,
    Copy,
    Dispatch,
    Kernel,
    KernelOperand,
    Space,
)
from poot.vulkan.commands import Barrier, Command, CommandList, in_order
from poot.vulkan.races import check_races, find_races
from poot.vulkan.recorder import WorkLimit, record, work_limit

NO_LIMIT = WorkLimit(1e18, 1 << 30, bytes_per_ns=1.0, flops_per_ns=1.0)
OPENING, BARRIER = Barrier(opening=True), Barrier()


def span(text: str) -> BufferRange:
    """`a0:8:16`: bytes 8 to 16 of arena 0 (a arena, r result, s state, x argument)."""
    space = {"a": Space.ARENA, "r": Space.RESULT, "s": Space.STATE}.get(
        text[0], Space.ARGUMENT
    )
    index, _, ends = text[1:].partition(":")
    low, high = map(int, (ends or "0:8").split(":"))
    return BufferRange(space, int(index), low, high - low)


def node(reads: str, writes: str, flops: int = 0) -> Dispatch:
    sources = tuple(map(span, reads.split()))
    targets = tuple(map(span, writes.split()))
    operands = [KernelOperand(f"r{n}", Access.READ) for n in range(len(sources))]
    operands += [KernelOperand(f"w{n}", Access.WRITE) for n in range(len(targets))]
    kernel = Kernel("k", b"", (1, 1, 1), tuple(operands))
    return Dispatch(
        kernel,
        sources + targets,
        (1, 1, 1),
        reads=sources,
        writes=targets,
        label=f"{reads} -> {writes}",
        flops=flops,
    )


def shape(commands: CommandList) -> str:
    """B opening, b barrier, . a command, | a cut."""
    letters = {OPENING: "B", BARRIER: "b"}
    return "|".join(
        "".join(letters.get(c, ".") if isinstance(c, Barrier) else "." for c in buffer)
        for buffer in commands.buffers
    )


@pytest.mark.parametrize(
    "nodes, expected",
    [
        ([node("x0", "a0"), node("a0", "r0")], "B.b."),
        ([node("x0", "a0:0:8"), node("x1", "a0:8:16")], "B.."),
        ([node("x0", "a0:0:9"), node("x1", "a0:8:16")], "B.b."),
        ([node("x0", "a0"), node("x0", "a1"), node("a0 a1", "r0")], "B..b."),
        ([node("s0", "r0"), node("x0", "s0")], "B.b."),
        ([node("x0", "r0"), node("x1", "r1"), node("x0", "r2")], "B..."),
        ([node("a0", "a1"), node("a1", "a0"), node("a0", "a1")], "B.b.b."),
        ([Copy(span("x0"), span("r0")), Copy(span("x1"), span("r0:4:12"))], "B.b."),
        ([node("x0", "a0:0:0"), node("a0", "r0")], "B.."),
        ([], ""),
    ],
)
def test_barriers_stand_where_ranges_meet(nodes: list[Dispatch], expected: str) -> None:
    commands = record(nodes, NO_LIMIT)
    assert shape(commands) == expected
    check_races(commands)


def test_lists_print() -> None:
    text = str(record([node("x0", "a0"), node("a0", "r0")], NO_LIMIT))
    assert text.splitlines() == [
        "command buffer 0 {",
        "  barrier (opening)",
        "  dispatch k grid 1x1x1 (argument0[0:8], arena0[0:8]) # x0 -> a0",
        "  barrier",
        "  dispatch k grid 1x1x1 (arena0[0:8], result0[0:8]) # a0 -> r0",
        "}",
        "submit 0",
    ]


def test_control_flow_must_have_been_lowered() -> None:
    branch = Branch(span("x0:0:4"), ((node("x0", "a0"),),))
    with pytest.raises(LoweringError, match="Branch"):
        record([branch], NO_LIMIT)


def test_cuts_by_estimated_work_and_by_number() -> None:
    chain = [node(f"a{n}", f"a{n + 1}", flops=10) for n in range(9)]
    by_work = record(chain, WorkLimit(70.0, 99, bytes_per_ns=1.0, flops_per_ns=1.0))
    assert shape(by_work) == "B.b.|B.b.|B.b.|B.b.|B."
    by_number = record(chain, WorkLimit(1e9, 4, bytes_per_ns=1.0, flops_per_ns=1.0))
    assert shape(by_number) == "B.b.|B.b.|B.b.|B.b.|B."
    for commands in (by_work, by_number):
        check_races(commands)


def test_limits_by_device() -> None:
    cpu, gpu = DeviceInfo(), DeviceInfo(kind=DeviceKind.DISCRETE, compute_units=100)
    big = node("x0:0:1000000000", "r0", flops=10**9)
    assert work_limit(gpu).estimate(big) < work_limit(cpu).estimate(big)
    # A gigabyte is far from what may reset a GPU, but a hundred are not.
    assert work_limit(gpu).estimate(big) < work_limit(gpu).nanoseconds
    assert 100 * work_limit(gpu).estimate(big) > work_limit(gpu).nanoseconds


# --- the race checker -------------------------------------------------------


def without(commands: CommandList, skipped: int, *instead: Command) -> CommandList:
    """The list without its command number `skipped`, or with others in its place."""
    buffers, number = [], 0
    for buffer in commands.buffers:
        kept: list[Command] = []
        for command in buffer:
            kept += instead if number == skipped else (command,)
            number += 1
        buffers.append(tuple(kept))
    return replace(commands, buffers=tuple(buffers))


def barriers(commands: CommandList) -> Iterator[int]:
    for number, command in enumerate(commands.commands):
        if isinstance(command, Barrier):
            yield number


@pytest.mark.parametrize(
    "nodes",
    [
        [node("x0", "r0")],
        [node("x0", "a0"), node("a0", "r0")],
        [node("x0", "a0"), node("x1", "a1"), node("a0 a1", "a2"), node("a2", "r0")],
        [node("s0", "s0"), node("s0", "s0"), node("s0", "s0")],
        [node("a0", "a1"), node("x0", "a0"), node("a1 a0", "r0 r1")],
        [node(f"a{n}", f"a{n + 1}") for n in range(40)],
    ],
)
def test_each_barrier_is_needed_and_missed(nodes: list[Dispatch]) -> None:
    limit = WorkLimit(1e9, 7, bytes_per_ns=1.0, flops_per_ns=1.0)
    commands = record(nodes, limit)
    check_races(commands)
    for number in barriers(commands):
        with pytest.raises(LoweringError, match="does not wait"):
            check_races(without(commands, number))


def test_races_across_replays() -> None:
    # The second command's read of the arena and the first one's write of it.
    nodes = (node("x0", "a0:0:8"), node("x0", "r0"), node("a0:8:16", "r1"))
    opened = in_order((OPENING, *nodes))
    assert find_races(opened) == []
    races = find_races(in_order(nodes))
    assert races and all(race.across_replays for race in races)
    # Results of one replay may lie where the next one's arguments do.
    assert any("result0" in str(race) for race in races)


def test_writes_that_nobody_may_make() -> None:
    for target in ("x0",):
        commands = in_order((OPENING, node("a0", target)))
        with pytest.raises(LoweringError, match="writes argument0"):
            check_races(commands)


def test_a_list_must_wait_for_other_programs() -> None:
    commands = in_order((node("x0", "r0"), BARRIER))
    with pytest.raises(LoweringError, match="other programs"):
        check_races(commands)


def random_nodes(seed: int) -> list[Dispatch]:
    rng = random.Random(seed)

    def ranges() -> str:
        names = [f"a{rng.randrange(2)}", f"s{rng.randrange(2)}"]
        picked = rng.sample(names, rng.randrange(1, 3))
        lows = [rng.randrange(0, 60) for _ in picked]
        return " ".join(
            f"{name}:{low}:{low + rng.randrange(1, 20)}"
            for name, low in zip(picked, lows, strict=True)
        )

    return [node(ranges(), ranges()) for _ in range(rng.randrange(2, 25))]


@given(st.integers(0, 1 << 32))
def test_random_programs_have_no_races_and_no_idle_barriers(seed: int) -> None:
    nodes = random_nodes(seed)
    commands = record(nodes, NO_LIMIT)
    check_races(commands)
    for number in barriers(commands):
        if commands.commands[number] == BARRIER:
            assert find_races(without(commands, number))
