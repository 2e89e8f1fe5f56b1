"""Read a SPIR-V module back, for tests that look at what was emitted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from poot.lowering.program import Kernel
from poot.lowering.spirv.opcodes import Capability, Glsl, Op

_HEADER_WORDS = 5
_CAPABILITIES = {number: name for name, number in vars(Capability).items()}


@dataclass(frozen=True)
class Instruction:
    opcode: int
    words: tuple[int, ...]


def read(kernel: Kernel) -> list[Instruction]:
    """Every instruction of the module, in order."""
    words = np.frombuffer(kernel.words, "<u4").tolist()
    found = []
    at = _HEADER_WORDS
    while at < len(words):
        length, opcode = words[at] >> 16, words[at] & 0xFFFF
        found.append(Instruction(opcode, tuple(words[at + 1 : at + length])))
        at += length
    assert at == len(words)
    return found


def count(kernel: Kernel, opcode: int) -> int:
    return sum(one.opcode == opcode for one in read(kernel))


def count_glsl(kernel: Kernel, number: int) -> int:
    """Uses of one instruction of GLSL.std.450."""
    uses = [one for one in read(kernel) if one.opcode == Op.ExtInst]
    return sum(one.words[3] == number for one in uses)


def clamps(kernel: Kernel) -> int:
    return count_glsl(kernel, Glsl.UMin)


def operands(kernel: Kernel, opcode: int) -> list[tuple[int, ...]]:
    """The words of every instruction of that opcode."""
    return [one.words for one in read(kernel) if one.opcode == opcode]


def capabilities(kernel: Kernel) -> set[str]:
    """The names of what the module requests; its first instructions say it."""
    words = memoryview(kernel.words).cast("I")
    numbers, at = [], _HEADER_WORDS
    while words[at] & 0xFFFF == Op.Capability:
        numbers.append(words[at + 1])
        at += words[at] >> 16
    return {_CAPABILITIES[number] for number in numbers}
