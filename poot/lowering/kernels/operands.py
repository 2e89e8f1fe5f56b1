"""The operands that kernels of regions declare: what is read, what is written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from poot.lowering.kernels.region import Region
from poot.lowering.program import Access
from poot.lowering.spirv.builder import KernelBuilder, Pointer


class Target(Protocol):
    """A place of results, as the programs of kernels describe it."""

    @property
    def indirect(self) -> bool:
        """Whether its address comes by the address table."""


def source_operands(k: KernelBuilder, region: Region) -> list[Pointer]:
    """The buffers that a region reads, in its order."""
    return [
        k.operand(f"x{number}", Access.READ, indirect=indirect)
        for number, indirect in enumerate(region.pointers)
    ]


def target_operands(k: KernelBuilder, targets: Iterable[Target]) -> list[Pointer]:
    """The buffers that results go to."""
    return [
        k.operand(f"y{number}", Access.WRITE, indirect=target.indirect)
        for number, target in enumerate(targets)
    ]
