"""Programs with loops, branches and whiles over u32 words, and what they should do.

A program works on `WORDS` words of the arena, and on one donated array of words. Its
result is a copy of the arena's words at its end.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from poot.core.dtypes import uint32
from poot.core.types import TensorType
from poot.lowering.device_info import DeviceInfo
from poot.lowering.program import (
    Access,
    Branch,
    BufferRange,
    Copy,
    Dispatch,
    Kernel,
    Loop,
    Node,
    Program,
    ResultSpec,
    Space,
    While,
)
from poot.lowering.spirv.builder import KernelBuilder
from poot.lowering.spirv.types import U32
from poot.vulkan.device import Device
from poot.vulkan.executable import Executable
from poot.vulkan.memory import DeviceBuffer

WORDS = 24
# What a word becomes: a number; the sum with another, or with a number; the remainder
# of another by a number; whether another is below a number.
SET, ADD, BUMP, MOD, BELOW = range(5)
_MASK = (1 << 32) - 1


def arena(word: int) -> BufferRange:
    return BufferRange(Space.ARENA, 0, 4 * word, 4)


def state(word: int) -> BufferRange:
    return BufferRange(Space.STATE, 0, 4 * word, 4)


@functools.cache
def word_kernel(info: DeviceInfo, target_moves: bool, source_moves: bool) -> Kernel:
    k = KernelBuilder("word", info, (1, 1, 1))
    target = k.operand("target", Access.UPDATE, indirect=target_moves)
    source = k.operand("source", Access.READ, indirect=source_moves)
    op, number = k.metadata(0), k.metadata(1)
    t, s = k.load(target, U32, 0, 1), k.load(source, U32, 0, 1)
    below = k.select(k.lt(s, number), k.u32(1), k.u32(0))
    found = number
    for code, value in ((ADD, t + s), (BUMP, t + number), (BELOW, below)):
        found = k.select(k.eq(op, code), value, found)
    divisor = k.select(k.eq(number, 0), k.u32(1), number)
    found = k.select(k.eq(op, MOD), s % divisor, found)
    k.store(target, U32, 0, found, 1)
    return k.finish()


class Words:
    """Writes the nodes of programs."""

    def __init__(self, info: DeviceInfo) -> None:
        self._info = info

    def op(
        self, op: int, target: BufferRange, number: int = 0, source: Any = None
    ) -> Dispatch:
        """`source` is any other word where the op does not look at one."""
        if source is None:
            source = arena(WORDS)
        moves = target.space is Space.STATE, source.space is Space.STATE
        reads = (target, source) if op == ADD else (source,)
        if op in (SET, BUMP):
            reads = (target,)
        return Dispatch(
            kernel=word_kernel(self._info, *moves),
            operands=(target, source),
            grid=(1, 1, 1),
            metadata=(op, number),
            reads=reads,
            writes=(target,),
            label=f"{op}",
        )

    def set(self, word: int, number: int) -> Dispatch:
        return self.op(SET, arena(word), number)

    def bump(self, word: int, number: int = 1) -> Dispatch:
        return self.op(BUMP, arena(word), number)

    def add(self, word: int, source: int) -> Dispatch:
        return self.op(ADD, arena(word), source=arena(source))

    def while_below(
        self, counter: int, flag: int, limit: int, body: Sequence[Node]
    ) -> While:
        """A while that counts up to a limit itself."""
        test = self.op(BELOW, arena(flag), limit, arena(counter))
        return While((test,), arena(flag), (*body, self.bump(counter)))

    def program(self, body: Sequence[Node], state_words: int = 4) -> Program:
        """The body between the zeroing of all words and the copy of the result."""
        words, states = (TensorType((n,), uint32) for n in (WORDS, state_words))
        size = words.size_bytes
        zeroed = [self.set(word, 0) for word in range(WORDS)]
        last = Copy(
            BufferRange(Space.ARENA, 0, 0, size), BufferRange(Space.RESULT, 0, 0, size)
        )
        return Program(
            body=(*zeroed, *body, last),
            inputs=(states,),
            results=(ResultSpec(words), ResultSpec(states, input_index=0)),
            donated=frozenset({0}),
            # A word more, which ops that look at no other word are given.
            arena_bytes=size + 4,
        )


def simulate(
    program: Program, given: Sequence[int] = ()
) -> tuple[list[int], list[int]]:
    """The arena's words and those of the state at the end."""
    memory = {
        Space.ARENA: [0] * (WORDS + 1),
        Space.STATE: [*given, 0, 0, 0, 0][:4],
        Space.RESULT: [0] * WORDS,
    }

    def word(span: BufferRange) -> int:
        return memory[span.space][span.offset // 4]

    def launch(node: Dispatch) -> None:
        op, number = node.metadata
        t, s = (word(operand) for operand in node.operands)
        values = number, t + s, t + number, s % (number or 1), int(s < number)
        target = node.operands[0]
        memory[target.space][target.offset // 4] = values[op] & _MASK

    def run(nodes: Sequence[Node]) -> None:
        for node in nodes:
            if isinstance(node, Dispatch):
                launch(node)
            elif isinstance(node, Copy):
                count = node.source.size // 4
                low, to = node.source.offset // 4, node.target.offset // 4
                taken = memory[node.source.space][low : low + count]
                memory[node.target.space][to : to + count] = taken
            elif isinstance(node, Loop):
                for _ in range(node.trips):
                    run(node.body)
            elif isinstance(node, Branch):
                run(node.bodies[word(node.selector)])
            else:
                run(node.predicate)
                while word(node.flag):
                    run(node.body)
                    run(node.predicate)

    run(program.body)
    return memory[Space.RESULT], memory[Space.STATE]


def run(
    device: Device, program: Program, given: Sequence[int] = ()
) -> tuple[list[int], list[int]]:
    """What a device makes of a program, in the second of two calls."""
    executable = Executable(device, program)
    for _ in range(2):
        found = call(device, executable, given)
    executable.close()
    return found


def call(
    device: Device, executable: Executable, given: Sequence[int] = ()
) -> tuple[list[int], list[int]]:
    results, _ = executable.call([held(device, *given)])
    words, states = (words_of(device, result) for result in results)
    return words, states


def held(device: Device, *given: int) -> DeviceBuffer:
    """A state of four words that begins with those given."""
    return device.upload(np.array([*given, 0, 0, 0, 0][:4], np.uint32))


def words_of(device: Device, buffer: Any) -> list[int]:
    out = np.empty(buffer.size_bytes // 4, np.uint32)
    device.download(buffer, out)
    found: list[int] = out.tolist()
    return found


def random_program(info: DeviceInfo, seed: int, *, whiles: bool = True) -> Program:
    """A random nest; selectors may be stale, but are in range."""
    return _Random(info, seed, whiles).program()


class _Random:
    _DATA, _MOST_WORDS = 8, WORDS

    def __init__(self, info: DeviceInfo, seed: int, whiles: bool) -> None:
        self._rng = random.Random(seed)
        self._words = Words(info)
        self._whiles = whiles
        # Words that no random op writes: counters, flags and selectors.
        self._own = self._DATA

    def program(self) -> Program:
        rng = self._rng
        body: list[Node] = [self._words.set(w, rng.randrange(9)) for w in range(4)]
        return self._words.program(body + self._nodes(3, 1))

    def _nodes(self, depth: int, least: int = 0) -> list[Node]:
        return [
            node
            for _ in range(self._rng.randrange(least, 4))
            for node in self._node(depth)
        ]

    def _data(self) -> BufferRange:
        number = self._rng.randrange(self._DATA + 2)
        return arena(number) if number < self._DATA else state(number - self._DATA)

    def _take(self, count: int) -> list[int] | None:
        if self._own + count > WORDS:
            return None
        self._own += count
        return list(range(self._own - count, self._own))

    def _node(self, depth: int) -> list[Node]:
        rng, kind = self._rng, self._rng.randrange(7)
        if depth and kind == 0:
            return [Loop(rng.randrange(4), tuple(self._nodes(depth - 1)))]
        if depth and kind in (1, 2):
            return self._branch(depth)
        if depth and kind == 3 and self._whiles:
            return self._while(depth)
        source, target = self._data(), self._data()
        if kind == 4 and source != target:
            return [Copy(source, target, "copy")]
        if source == target:
            return [self._words.op(BUMP, target, 3)]
        return [self._words.op(rng.choice((ADD, MOD, BELOW)), target, 5, source)]

    def _branch(self, depth: int) -> list[Node]:
        found = self._take(1)
        if found is None:
            return []
        count = self._rng.randrange(1, 4)
        choice = self._words.op(MOD, arena(found[0]), count, self._data())
        branches = [
            Branch(
                arena(found[0]),
                tuple(tuple(self._nodes(depth - 1)) for _ in range(count)),
            )
            for _ in range(self._rng.randrange(1, 3))
        ]
        return [choice, *branches]

    def _while(self, depth: int) -> list[Node]:
        found = self._take(2)
        if found is None:
            return []
        body = self._nodes(depth - 1)
        limit = self._rng.choice((0, 1, 3, 6))
        loop = self._words.while_below(*found, limit, body)
        # Now and then the counter goes on from where it stood.
        fresh = [self._words.set(found[0], 0)] if self._rng.randrange(3) else []
        return [*fresh, loop]
