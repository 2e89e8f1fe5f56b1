"""The row of the primitive that random bits are made of."""

from __future__ import annotations

import numpy as np

from poot.core import dtypes
from poot.core.ops.random import Threefry2x32
from tests.numerics import Array
from tests.op_row import OpRow
from tests.op_rows_elementwise import Shapes, applications

SHAPES: tuple[Shapes, ...] = (
    ((), (), (257,), (257,)),
    ((), (), (), ()),
    ((2, 1), (2, 1), (1, 5), (1, 5)),
    ((3,), (2, 3), (2, 1), ()),
    ((0,), (), (1,), (0,)),
)
_WORD = 1 << 32


def threefry(key: tuple[int, int], counter: tuple[int, int]) -> tuple[int, int]:
    """The block as the paper writes it: round by round, on Python's integers."""
    keys = (*key, key[0] ^ key[1] ^ 0x1BD11BDA)
    rotations = (13, 15, 26, 6, 17, 29, 16, 24)
    x = [(c + k) % _WORD for c, k in zip(counter, key, strict=True)]
    for number in range(20):
        x[0] = (x[0] + x[1]) % _WORD
        turned = x[1] << rotations[number % 8]
        x[1] = (turned % _WORD | turned >> 32) ^ x[0]
        if number % 4 == 3:
            injection = number // 4 + 1
            x[0] = (x[0] + keys[injection % 3]) % _WORD
            x[1] = (x[1] + keys[(injection + 1) % 3] + injection) % _WORD
    return x[0], x[1]


def _reference(op: Threefry2x32, *words: Array) -> tuple[Array, ...]:
    arrays = np.broadcast_arrays(*words)
    columns = (x.ravel().tolist() for x in arrays)
    blocks = [threefry(x[:2], x[2:]) for x in zip(*columns, strict=True)]
    made = np.array(blocks, np.uint32).reshape(-1, 2)
    return tuple(made[:, n].reshape(arrays[0].shape) for n in range(2))


ROWS = [
    OpRow(
        Threefry2x32().key,
        (dtypes.uint32,),
        applications(Threefry2x32(), SHAPES),
        _reference,
        ((0.0, 2.0**32 - 1),),
    )
]
