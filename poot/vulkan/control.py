"""Branches and whiles made launches that a guard switches on and off.

No command of Vulkan's core runs other commands or not by what stands in memory, but a
launch may read its grid there, and one of zero workgroups does nothing. So a guard, a
launch that always runs, writes the grids of all launches of a branch's bodies: their
own where the selector picks the body, else zeros. One inside another also asks whether
what is around it runs, since its selector is stale where that does not.

A while has two guards. The first, before it, switches predicate and body on. The second
stands between them and switches both off once the flag is zero, so that iterations past
the end do nothing; the host asks for a batch of them at a time, and then looks whether
they are off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from poot.core.dtypes import uint32
from poot.core.errors import LimitError, LoweringError
from poot.core.types import TensorType
from poot.lowering.device_info import DeviceInfo
from poot.lowering.program import (
    TABLE_SPACES,
    Branch,
    BufferRange,
    Dispatch,
    Loop,
    Node,
    Program,
    Space,
    While,
)
from poot.vulkan.addresses import aligned
from poot.vulkan.commands import IndirectDispatch
from poot.vulkan.copies import lower_copies
from poot.vulkan.guards import GRID_BYTES, MOST_GRIDS, Test, guard_kernel

_WORD_BYTES = 4
_GRID_WORDS_BYTES = 12


@dataclass(frozen=True, slots=True)
class Lowered:
    """A program without branches, and with whiles that do nothing past their ends.

    Those have no predicate any more. `grids` is the content of one constant more, the
    last. The host looks at the words from `polls_offset` of the witness packet on.
    """

    program: Program
    grids: np.ndarray[Any, np.dtype[np.uint32]]
    polls_offset: int


def lower_control(program: Program, info: DeviceInfo) -> Lowered:
    """Make launches of all branches, of the tests of whiles, and of some copies."""
    lowering = _Lowering(program, info)
    body = lowering.nodes(lower_copies(program, info), None)
    grids = np.array(lowering.grids, dtype=np.uint32).reshape(-1, 4)
    consts = (*program.consts, TensorType(grids.shape, uint32))
    made = replace(program, body=body, consts=consts, arena_bytes=lowering.arena_bytes)
    packet = max((w.offset + _WORD_BYTES for w in program.witnesses), default=0)
    return Lowered(made, grids, packet)


class _Scope:
    """Launches that one guard switches, in cases of which at most one runs."""

    def __init__(self, grids: BufferRange, target: BufferRange) -> None:
        self.grids = grids
        self.target = target
        self.written: list[tuple[int, int, int, int]] = []

    def switched(self, grid: tuple[int, int, int], case: int) -> BufferRange:
        """The words of the next grid."""
        offset = self.target.offset + GRID_BYTES * len(self.written)
        self.written.append((*grid, case))
        return replace(self.target, offset=offset, size=_GRID_WORDS_BYTES)


@dataclass(frozen=True, slots=True)
class _Case:
    """What launches run under: a case of a scope, and the word that says if it runs."""

    scope: _Scope
    number: int
    runs: BufferRange


class _Lowering:
    """Lowers nodes; `grids` has four words a switched launch, `arena_bytes` grows."""

    def __init__(self, program: Program, info: DeviceInfo) -> None:
        self._info = info
        self._grids_index = len(program.consts)
        self.grids: list[tuple[int, int, int, int]] = []
        self.arena_bytes = program.arena_bytes

    def nodes(self, nodes: Sequence[Node], case: _Case | None) -> tuple[Node, ...]:
        return tuple(made for node in nodes for made in self._node(node, case))

    def _node(self, node: Node, case: _Case | None) -> Iterator[Node]:
        if isinstance(node, Branch):
            yield from self._branch(node, case)
        elif isinstance(node, While):
            yield from self._while(node, case)
        elif isinstance(node, Loop):
            yield replace(node, body=self.nodes(node.body, case))
        elif case is None:
            yield node
        else:
            assert isinstance(node, Dispatch)
            yield _indirect(node, case.scope.switched(node.grid, case.number))

    def _branch(self, branch: Branch, around: _Case | None) -> Iterator[Node]:
        _check_word("selector of a branch", branch.selector)
        launches = _switched(node for body in branch.bodies for node in body)
        scope = self._scope(len(branch.bodies) + launches)
        cases = self._cases(scope, len(branch.bodies))
        bodies = [
            self.nodes(body, case)
            for body, case in zip(branch.bodies, cases, strict=True)
        ]
        self._close(scope)
        yield self._guard(scope, Test.CASE, around, branch.selector)
        for body in bodies:
            yield from body

    def _while(self, loop: While, around: _Case | None) -> Iterator[Node]:
        _check_word("flag of a while", loop.flag)
        scope = self._scope(1 + _switched((*loop.predicate, *loop.body)))
        (case,) = self._cases(scope, 1)
        predicate, body = self.nodes(loop.predicate, case), self.nodes(loop.body, case)
        self._close(scope)
        yield self._guard(scope, Test.ENTER, around, None)
        guard = self._guard(scope, Test.WHILE, None, loop.flag)
        yield While((), case.runs, (*predicate, guard, *body))

    def _scope(self, count: int) -> _Scope:
        """Room for the grids of a guard."""
        if count > MOST_GRIDS:
            raise LimitError(
                f"a branch or while has {count} launches and cases; at most "
                f"{MOST_GRIDS} can be switched together. Split it"
            )
        first, size = GRID_BYTES * len(self.grids), GRID_BYTES * count
        self.grids += [(0, 0, 0, 0)] * count
        start = aligned(self.arena_bytes)
        self.arena_bytes = start + size
        return _Scope(
            BufferRange(Space.CONST, self._grids_index, first, size),
            BufferRange(Space.ARENA, 0, start, size),
        )

    def _cases(self, scope: _Scope, count: int) -> list[_Case]:
        """The cases of a scope; the word of each is the first of a grid of 1."""
        words = [scope.switched((1, 1, 1), number) for number in range(count)]
        return [
            _Case(scope, number, replace(word, size=_WORD_BYTES))
            for number, word in enumerate(words)
        ]

    def _close(self, scope: _Scope) -> None:
        first = scope.grids.offset // GRID_BYTES
        assert len(scope.written) * GRID_BYTES == scope.grids.size
        self.grids[first : first + len(scope.written)] = scope.written

    def _guard(
        self,
        scope: _Scope,
        test: Test,
        around: _Case | None,
        tested: BufferRange | None,
    ) -> Dispatch:
        read = [scope.grids]
        if around is not None:
            read.append(around.runs)
        if tested is not None:
            read.append(tested)
        kernel = guard_kernel(
            self._info,
            test,
            outer=around is not None,
            from_table=tested is not None and tested.space in TABLE_SPACES,
        )
        own = (scope.target,) if test is Test.WHILE else ()
        return Dispatch(
            kernel=kernel,
            operands=(*read, scope.target),
            grid=(1, 1, 1),
            metadata=(len(scope.written),),
            reads=(*read, *own),
            writes=(scope.target,),
            label=kernel.name,
        )


def _switched(nodes: Iterator[Node] | Sequence[Node]) -> int:
    """How many launches a guard switches: not those that have a guard of their own."""
    count = 0
    for node in nodes:
        if isinstance(node, Loop):
            count += _switched(node.body)
        elif isinstance(node, Dispatch):
            count += 1
    return count


def _indirect(node: Dispatch, arguments: BufferRange) -> IndirectDispatch:
    given = {field.name: getattr(node, field.name) for field in fields(Dispatch)}
    given["reads"] = (*node.reads, arguments)
    return IndirectDispatch(**given, arguments=arguments)


def _check_word(what: str, word: BufferRange) -> None:
    if word.size != _WORD_BYTES or word.offset % _WORD_BYTES:
        raise LoweringError(
            f"the {what} is {word}; it must be {_WORD_BYTES} bytes at a multiple of "
            f"{_WORD_BYTES}"
        )
