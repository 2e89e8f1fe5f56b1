"""Threefry-2x32-20 on words in registers."""

from __future__ import annotations

from poot.lowering.spirv.builder import KernelBuilder, Value

_PARITY = 0x1BD11BDA
# Of the four rounds before an even and before an odd addition of the key.
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry2x32(
    k: KernelBuilder, key: tuple[Value, Value], counter: tuple[Value, Value]
) -> tuple[Value, Value]:
    """The two random words of a counter under a key."""
    parity = k.xor(k.xor(key[0], key[1]), _PARITY)
    schedule = (*key, parity)
    x, y = k.add(counter[0], key[0]), k.add(counter[1], key[1])
    for group in range(5):
        for places in _ROTATIONS[group % 2]:
            x = k.add(x, y)
            rotated = k.or_(k.shl(y, places), k.shr(y, 32 - places))
            y = k.xor(rotated, x)
        x = k.add(x, schedule[(group + 1) % 3])
        y = k.add(k.add(y, schedule[(group + 2) % 3]), group + 1)
    return x, y
