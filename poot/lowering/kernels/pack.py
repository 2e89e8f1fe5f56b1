"""Packs: the values of all lanes of a chunk."""

from __future__ import annotations

from poot.lowering.spirv.builder import Value

# One Value that holds for all lanes, or one a lane.
Pack = tuple[Value, ...]


def lane_of(pack: Pack, lane: int) -> Value:
    """The value of one lane."""
    return pack[0] if len(pack) == 1 else pack[lane]
