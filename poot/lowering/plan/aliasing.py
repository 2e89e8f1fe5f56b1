"""Kernels whose launch writes over what it reads.

The builder says of an operand that is only read that its memory is never written, and
of one that is only written that it is never read. Where both are one buffer this is not
so: a compiler that believes it may move a load behind the store that spoils it.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from dataclasses import replace

from poot.lowering.program import BufferRange, Kernel
from poot.lowering.spirv.opcodes import Decoration, Op

_HEADER_WORDS = 5
_PROMISES = frozenset({Decoration.NonWritable, Decoration.NonReadable})


def overwrites(kernel: Kernel, ranges: Sequence[BufferRange]) -> bool:
    """Whether an operand that is read and another that is written overlap."""
    pairs = list(zip(kernel.operands, ranges, strict=True))
    read = [(n, where) for n, (o, where) in enumerate(pairs) if o.access.reads]
    written = [(n, where) for n, (o, where) in enumerate(pairs) if o.access.writes]
    return any(m != n and a.overlaps(b) for m, a in read for n, b in written)


@functools.lru_cache(256)
def aliased(kernel: Kernel) -> Kernel:
    """The same kernel without promises about its operands."""
    words = struct.unpack(f"<{len(kernel.words) // 4}I", kernel.words)
    kept = list(words[:_HEADER_WORDS])
    at = _HEADER_WORDS
    while at < len(words):
        size = words[at] >> 16
        instruction = words[at : at + size]
        if not _is_promise(instruction):
            kept += instruction
        at += size
    packed = struct.pack(f"<{len(kept)}I", *kept)
    return replace(kernel, name=f"{kernel.name}_aliased", words=packed)


def _is_promise(instruction: Sequence[int]) -> bool:
    """A decoration of a block's member that says who accesses it."""
    opcode = instruction[0] & 0xFFFF
    return opcode == Op.MemberDecorate and instruction[3] in _PROMISES
