"""What loops, branches and whiles are recorded as, and the races in it. No device."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from poot.core.errors import CapabilityError, LimitError, LoweringError
from poot.lowering.device_info import DeviceInfo
from poot.lowering.program import (
    Branch,
    BufferRange,
    Copy,
    Dispatch,
    Loop,
    Program,
    Space,
    While,
)
from poot.vulkan.commands import (
    Barrier,
    CommandList,
    IndirectDispatch,
    Poll,
    Repeat,
    Step,
    Submit,
)
from poot.vulkan.control import lower_control
from poot.vulkan.guards import MOST_GRIDS
from poot.vulkan.races import check_races, find_races
from poot.vulkan.recorder import WorkLimit, record
from poot.vulkan.submissions import Piece, Polled, Repeated, submissions
from tests.control_programs import ADD, MOD, Words, arena, random_program
from tests.test_vulkan_recorder import NO_LIMIT, node, shape, span, without

INFO = DeviceInfo()
WORDS = Words(INFO)


def recorded(program: Program, limit: WorkLimit = NO_LIMIT) -> CommandList:
    lowered = lower_control(program, INFO)
    return record(lowered.program.body, limit, lowered.polls_offset)


def run_order(steps: Sequence[Step], polls: int = 3) -> Iterator[int]:
    """The command buffers in the order in which they run, if polls look so often."""
    for step in steps:
        if isinstance(step, Submit):
            yield from step.buffers
        elif isinstance(step, Repeat):
            for _ in range(step.trips):
                yield from run_order(step.steps, polls)
        else:
            last = len(step.batches) - 1
            for look in range(polls):
                yield from run_order(step.batches[min(look, last)], polls)


def launches_run(commands: CommandList) -> list[str]:
    """The labels of what runs, in order."""
    return [
        command.label
        for number in run_order(commands.steps)
        for command in commands.buffers[number]
        if not isinstance(command, Barrier)
    ]


def unrolled(nodes: Sequence[object]) -> Iterator[str]:
    for each in nodes:
        if isinstance(each, Loop):
            for _ in range(each.trips):
                yield from unrolled(each.body)
        else:
            assert isinstance(each, Dispatch | Copy)
            yield each.label


# --- counted loops ----------------------------------------------------------


@pytest.mark.parametrize(
    "nodes, expected",
    [
        # Each iteration reads what the one before wrote, or writes where that read.
        ([Loop(3, (node("a0", "a0"),))], "B.b.b."),
        ([Loop(2, (node("x0", "a0"), node("a0", "a1")))], "B.b.b.b."),
        ([Loop(2, (node("a0", "a1"), node("x0", "a2")))], "B..b.."),
        # Nothing that an iteration writes is touched by another.
        ([Loop(3, (node("x0", ""),))], "B..."),
        ([node("x0", "a0"), Loop(2, (node("a0 x1", ""),))], "B.b.."),
        ([Loop(0, (node("x0", "a0"),)), node("x0", "r0")], "B."),
        ([Loop(5, ()), Loop(3, (Loop(0, (node("x0", "a0"),)),))], ""),
        ([Loop(2, (Loop(2, (node("a0", "a0"),)), node("x0", "r0")))], "B.b..b.b.."),
    ],
)
def test_barriers_between_iterations(nodes: list[Loop], expected: str) -> None:
    commands = record(nodes, NO_LIMIT)
    assert shape(commands) == expected
    check_races(commands)


@pytest.mark.parametrize("trips", [0, 1, 2, 170, 171, 512, 513, 1000, 4321])
def test_loops_run_as_often_as_they_say(trips: int) -> None:
    nodes = [
        node("x0", "a0"),
        Loop(trips, (node("a0", "a1"), node("a1", "a0"), node("x0", "a2"))),
        node("a0", "r0"),
    ]
    commands = record(nodes, NO_LIMIT)
    check_races(commands)
    assert launches_run(commands) == list(unrolled(nodes))
    assert len(commands.submits) == 1


def test_random_nests_of_loops_run_as_often_as_they_say() -> None:
    rng = random.Random(5)

    def nest(depth: int) -> tuple[object, ...]:
        return tuple(
            Loop(rng.choice((0, 1, 2, 5, 9)), nest(depth - 1))
            if depth and rng.randrange(2)
            else node(f"a{rng.randrange(3)}", f"a{rng.randrange(3)}", flops=10)
            for _ in range(rng.randrange(1, 4))
        )

    # Small limits, so that there are many units, cuts and submissions.
    limits = [NO_LIMIT, WorkLimit(1e9, 7, 1.0, 1.0), WorkLimit(300.0, 9, 1.0, 1.0)]
    for _ in range(60):
        nodes = nest(3)
        for limit in limits:
            commands = record(nodes, limit)
            check_races(commands)
            assert launches_run(commands) == list(unrolled(nodes))


@pytest.mark.parametrize("trips", [10**6, 10**9])
def test_long_loops_take_little_room(trips: int) -> None:
    body = (node("a0", "a0"), node("a0", "a1"))
    limit = WorkLimit(1e8, 4096, 1.0, 1.0, launch_ns=1000.0)
    for nodes in ([Loop(trips, body)], [Loop(1000, (Loop(trips // 1000, body),))]):
        commands = record(nodes, limit)
        assert len(commands.commands) < 5000
        assert sum(len(submit.buffers) for submit in commands.submits) < 10_000
        check_races(commands)
        # No submission holds more work than the limit, so there are many.
        assert isinstance(commands.steps[0], Repeat)
        assert _work(commands, limit) == 2 * trips


def _work(commands: CommandList, limit: WorkLimit) -> int:
    """How many launches run; fails where a submission is too long."""

    def within(steps: Sequence[Step]) -> int:
        total = 0
        for step in steps:
            if isinstance(step, Submit):
                counts = [
                    sum(isinstance(c, Dispatch) for c in commands.buffers[n])
                    for n in step.buffers
                ]
                assert sum(counts) * limit.launch_ns <= limit.nanoseconds
                total += sum(counts)
            else:
                assert isinstance(step, Repeat)
                total += step.trips * within(step.steps)
        return total

    return within(commands.steps)


# --- submissions ------------------------------------------------------------


def flat(pieces: Sequence[Piece], polls: int = 3) -> Iterator[int]:
    for piece in pieces:
        if isinstance(piece, int):
            yield piece
        elif isinstance(piece, Repeated):
            for _ in range(piece.trips):
                yield from flat(piece.pieces, polls)
        else:
            raise AssertionError("polled pieces run as often as their words say")


def test_random_pieces_are_submitted_in_order() -> None:
    rng = random.Random(7)

    def nest(depth: int) -> tuple[Piece, ...]:
        return tuple(
            Repeated(rng.randrange(1, 7), nest(depth - 1))
            if depth and rng.randrange(2)
            else rng.randrange(5)
            for _ in range(rng.randrange(1, 4))
        )

    works = [1.0, 2.0, 3.0, 5.0, 40.0]
    for limit in (1e9, 17.0, 2.5):
        for _ in range(60):
            pieces = nest(3)
            steps = submissions(pieces, works, limit)
            assert list(run_order(steps)) == list(flat(pieces))
            for submit in CommandList((), steps).submits:
                work = sum(works[number] for number in submit.buffers)
                assert work <= limit or len(submit.buffers) == 1


def test_batches_of_a_while_grow() -> None:
    polled = Polled(8, (0, 1), 2)
    (poll,) = submissions((3, polled), [1.0, 1.0, 0.0, 1.0], 50.0)
    assert isinstance(poll, Poll) and poll.word == 8
    taken = [step.buffers for (step,) in poll.batches if isinstance(step, Submit)]
    assert taken == [
        (3, 0, 1, 2),
        *((0, 1) * count + (2,) for count in (2, 4, 8, 16)),
    ]
    # An iteration too long for a submission: all looks are after one of them.
    long = submissions((polled,), [30.0, 30.0, 0.0], 50.0)
    assert long == (Poll(8, ((Submit((0,)), Submit((1, 2))),)),)


# --- branches and whiles ----------------------------------------------------


def choice(*bodies: Sequence[Dispatch]) -> Program:
    """A remainder of word 0 picks the body."""
    pick = WORDS.op(MOD, arena(9), len(bodies), arena(0))
    return WORDS.program([pick, Branch(arena(9), tuple(map(tuple, bodies)))])


def test_a_branch_is_a_guard_and_indirect_launches() -> None:
    program = choice([WORDS.bump(1), WORDS.bump(2)], [], [WORDS.bump(3)])
    lowered = lower_control(program, INFO)
    assert lowered.grids.tolist() == [
        *([1, 1, 1, case] for case in range(3)),
        [1, 1, 1, 0],
        [1, 1, 1, 0],
        [1, 1, 1, 2],
    ]
    guard, *switched = lowered.program.body[-5:-1]
    assert isinstance(guard, Dispatch) and guard.label == "guard_case"
    arguments = [s.arguments for s in switched if isinstance(s, IndirectDispatch)]
    start = guard.writes[0].offset
    assert [a.offset - start for a in arguments] == [48, 64, 80]
    assert "if arena0[" in str(switched[0])
    assert lowered.program.arena_bytes >= start + 6 * 16


def test_whiles_keep_their_word_of_the_packet() -> None:
    loop = WORDS.while_below(10, 11, 5, [WORDS.while_below(12, 13, 2, [])])
    commands = recorded(WORDS.program([loop]))
    assert sorted(poll.word for poll in commands.polls) == [0, 4]
    text = str(commands)
    assert "until witness word 4 is 0 {" in text and "barrier (indirect)" in text


def control_programs() -> list[Program]:
    inner = Branch(arena(9), ((WORDS.bump(4),), (WORDS.add(5, 4), WORDS.bump(5))))
    pick = WORDS.op(MOD, arena(9), 2, arena(0))
    loop = Loop(40, (WORDS.bump(0), pick, inner, WORDS.add(1, 0)))
    state_words = BufferRange(Space.STATE, 0, 0, 4)
    made = [
        WORDS.program([Loop(300, (WORDS.bump(0), WORDS.add(1, 0)))]),
        WORDS.program([loop]),
        choice([WORDS.bump(1)], [WORDS.op(ADD, arena(2), source=state_words)]),
        WORDS.program([WORDS.while_below(10, 11, 5, [WORDS.add(1, 10)])]),
        WORDS.program([Loop(2, (WORDS.while_below(10, 11, 5, [loop]),))]),
        WORDS.program(
            [pick, Branch(arena(9), ((WORDS.while_below(10, 11, 5, []),), (loop,)))]
        ),
    ]
    return made + [random_program(INFO, seed) for seed in range(12)]


LIMITS = [NO_LIMIT, WorkLimit(1e18, 12, 1.0, 1.0)]


@pytest.mark.parametrize("limit", LIMITS, ids=["whole", "cut"])
@pytest.mark.parametrize("program", control_programs(), ids=range(18))
def test_each_barrier_is_needed_and_missed(
    program: Program, limit: WorkLimit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("poot.vulkan.recorder._UNIT_COMMANDS", 10)
    commands = recorded(program, limit)
    check_races(commands)
    for number, command in enumerate(commands.commands):
        if isinstance(command, Barrier):
            with pytest.raises(LoweringError, match="does not wait"):
                check_races(without(commands, number))
            if not command.opening:
                assert find_races(without(commands, number))
                if command.indirect:
                    assert find_races(without(commands, number, Barrier()))


def test_iterations_race_with_each_other() -> None:
    # Within one iteration all is well: only the next one touches the same bytes.
    opening = Barrier(opening=True)
    body = (node("a0", "a1"), node("x0", "a2"))
    again = (Repeat(2, (Submit((0,)),)),)
    assert find_races(CommandList(((opening, *body),), again)) == []
    bare = CommandList(((opening,), body), (Submit((0, 1)),))
    # The next replay opens with a barrier.
    assert find_races(bare) == []
    twice = replace(bare, steps=(Submit((0, 1, 1)),))
    assert {str(race.span) for race in find_races(twice)} == {
        "arena1[0:8]",
        "arena2[0:8]",
    }
    polled = replace(bare, steps=(Submit((0,)), Poll(0, ((Submit((1,)),),))))
    assert find_races(polled) == find_races(twice)


def test_grids_are_read_before_a_launch_begins() -> None:
    guard = node("x0", "a0:0:16")
    plain = node("x0 a0:0:12", "a1")
    given = {name: getattr(plain, name) for name in Dispatch.__slots__}
    switched = IndirectDispatch(**given, arguments=span("a0:0:12"))
    opening = Barrier(opening=True)

    def races(*commands: Barrier | Dispatch) -> bool:
        return bool(find_races(CommandList((commands,), (Submit((0,)),))))

    assert not races(opening, guard, Barrier(indirect=True), switched)
    assert races(opening, guard, Barrier(), switched)
    assert not races(opening, guard, Barrier(), plain)
    # Across replays the opening barrier must be one for grids too.
    assert races(opening, switched, Barrier(), guard)
    assert not races(Barrier(opening=True, indirect=True), switched, Barrier(), guard)


# --- what cannot be ---------------------------------------------------------


def test_words_that_are_none() -> None:
    for word in (
        BufferRange(Space.ARENA, 0, 36, 8),
        BufferRange(Space.ARENA, 0, 38, 4),
    ):
        for bad in (Branch(word, ((),)), While((), word, ())):
            with pytest.raises(LoweringError, match="4 bytes at a multiple of 4"):
                lower_control(WORDS.program([bad]), INFO)


def test_too_many_launches_for_a_guard() -> None:
    body = (WORDS.bump(1),) * MOST_GRIDS
    with pytest.raises(LimitError, match=str(MOST_GRIDS)):
        lower_control(WORDS.program([Branch(arena(9), (body,))]), INFO)


def test_copies_of_bytes_that_may_not_happen_need_8_bit_storage() -> None:
    low, high = (BufferRange(Space.ARENA, 0, start, 3) for start in (1, 9))
    program = WORDS.program([Branch(arena(9), ((Copy(low, high),),))])
    lower_control(program, INFO)
    with pytest.raises(CapabilityError, match="8-bit storage"):
        lower_control(program, INFO.masked(storage8=False, name="without bytes"))
