"""The operands that kernels of regions declare: what is read, what is written."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Protocol

from poot.lowering.kernels.region import Region
from poot.lowering.program import Access
from poot.lowering.spirv.builder import KernelBuilder, Pointer


class Target(Protocol):
    """A place of results, as the programs of kernels describe it."""

    @property
    def indirect(self) -> bool:
        """Whether its address comes by the address table."""


class Operands(Protocol):
    """What operands are declared to: a kernel, or `SharedOperands` of one."""

    def operand(
        self, name: str, access: Access, *, indirect: bool = False
    ) -> Pointer: ...


class SharedOperands:
    """Declares operands of a kernel, those that are one buffer once.

    The kernel asks for them by `firsts` numbers, in order: see `first_of_each`.
    """

    def __init__(self, k: KernelBuilder, firsts: Sequence[int]) -> None:
        self._k = k
        self._firsts = firsts
        self._asked: list[Pointer] = []

    def operand(self, name: str, access: Access, *, indirect: bool = False) -> Pointer:
        number = len(self._asked)
        first = self._firsts[number] if self._firsts else number
        pointer = (
            self._asked[first]
            if first < number
            else self._k.operand(name, access, indirect=indirect)
        )
        self._asked.append(pointer)
        return pointer


def first_of_each(operands: Iterable[Hashable]) -> tuple[int, ...]:
    """For each operand the number of the first that equals it."""
    found: dict[Hashable, int] = {}
    return tuple(
        found.setdefault(operand, number) for number, operand in enumerate(operands)
    )


def source_operands(k: Operands, region: Region) -> list[Pointer]:
    """The buffers that a region reads, in its order."""
    return [
        k.operand(f"x{number}", Access.READ, indirect=indirect)
        for number, indirect in enumerate(region.pointers)
    ]


def target_operands(k: Operands, targets: Iterable[Target]) -> list[Pointer]:
    """The buffers that results go to."""
    return [
        k.operand(f"y{number}", Access.WRITE, indirect=target.indirect)
        for number, target in enumerate(targets)
    ]
