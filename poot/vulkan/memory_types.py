"""Which of a device's memory types serves which purpose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from poot.core.errors import CapabilityError
from poot.vulkan.declarations import (
    VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
    VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
    VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
    VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT,
)

DEVICE_LOCAL = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT
VISIBLE = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT
COHERENT = VK_MEMORY_PROPERTY_HOST_COHERENT_BIT
CACHED = VK_MEMORY_PROPERTY_HOST_CACHED_BIT
UNIFIED = DEVICE_LOCAL | VISIBLE | COHERENT | CACHED


@dataclass(frozen=True, slots=True)
class MemoryType:
    """One memory type of a device, by its number in the driver's list."""

    number: int
    flags: int
    heap: int
    heap_bytes: int

    @property
    def visible(self) -> bool:
        return bool(self.flags & VISIBLE)

    @property
    def coherent(self) -> bool:
        return bool(self.flags & COHERENT)


@dataclass(frozen=True, slots=True)
class MemoryLayout:
    """The memory type of each purpose.

    `arrays`: what kernels work on. `tables`: small, written by the host a call and read
    by kernels. `readback`: written by the device, read by the host.
    """

    arrays: MemoryType
    tables: MemoryType
    readback: MemoryType


def choose_layout(types: Sequence[MemoryType], *, unified: bool) -> MemoryLayout:
    """Pick the type of each purpose from all that the device has."""
    direct = VISIBLE | COHERENT | CACHED
    return MemoryLayout(
        # On a discrete GPU memory that the host maps may be slow or scarce.
        arrays=choose_type(
            types,
            required=DEVICE_LOCAL,
            preferred=direct if unified else 0,
            avoided=0 if unified else VISIBLE,
        ),
        tables=choose_type(
            types, required=VISIBLE | COHERENT, preferred=DEVICE_LOCAL, avoided=0
        ),
        # The host reads uncached memory a hundred times slower.
        readback=choose_type(
            types,
            required=VISIBLE,
            preferred=CACHED | COHERENT,
            avoided=0 if unified else DEVICE_LOCAL,
        ),
    )


def choose_type(
    types: Sequence[MemoryType], *, required: int, preferred: int, avoided: int
) -> MemoryType:
    """The type with all of `required`, most of `preferred`, least of `avoided`.

    Among equals the one in the largest heap, then the first.
    """
    fitting = [t for t in types if t.flags & required == required]
    if not fitting:
        raise CapabilityError(
            f"no memory type has the property flags {required:#x}; the device offers "
            f"{[hex(t.flags) for t in types]}"
        )

    def rank(kind: MemoryType) -> tuple[int, int, int]:
        wanted = (kind.flags & preferred).bit_count()
        unwanted = (kind.flags & avoided).bit_count()
        return wanted - unwanted, kind.heap_bytes, -kind.number

    return max(fitting, key=rank)
