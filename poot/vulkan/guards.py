"""The kernels that switch launches on and off, by writing the grids that they read."""

from __future__ import annotations

import enum
import functools

from poot.lowering.device_info import DeviceInfo
from poot.lowering.program import Access, Kernel
from poot.lowering.spirv.builder import KernelBuilder
from poot.lowering.spirv.types import U32, vector

LANES = 64
# Grids that one guard writes: a workgroup does it alone, and loops are bounded.
MOST_GRIDS = LANES * 4096
# A grid with the number of its case, as four words.
GRID_BYTES = 16


class Test(enum.Enum):
    """When a guard lets the launches of a case run."""

    # If what is around it runs.
    ENTER = "enter"
    # If what is around it runs, and the word is the number of the case.
    CASE = "case"
    # If they ran before, and the word is not zero.
    WHILE = "while"


@functools.lru_cache(maxsize=64)
def guard_kernel(
    info: DeviceInfo, test: Test, *, outer: bool, from_table: bool
) -> Kernel:
    """Write `target`: each of the grids where its case runs, zeros elsewhere.

    The first word of `target` says whether the first case runs, its grid being 1. The
    operands are the grids, the word that says whether what is around it runs (if there
    is one, `outer`), the word to test (but for ENTER), and `target`; the metadata is
    the number of grids.
    """
    k = KernelBuilder(f"guard_{test.value}", info, (LANES, 1, 1))
    grid_type = vector(U32, 4)
    grids = k.operand("grids", Access.READ)
    runs = k.bool_(True)
    if outer:
        around = k.operand("around", Access.READ)
        runs = k.ne(k.load(around, U32, 0, 1), 0)
    word = None
    if test is not Test.ENTER:
        tested = k.operand("tested", Access.READ, indirect=from_table)
        word = k.load(tested, U32, 0, 1)
    access = Access.UPDATE if test is Test.WHILE else Access.WRITE
    target = k.operand("target", access)
    if test is Test.WHILE:
        assert word is not None
        ran = k.ne(k.load(target, U32, 0, 1), 0)
        runs = k.logical_and(ran, k.ne(word, 0))
        # All have read the word that the first of them writes.
        k.barrier(buffers=True)
    count = k.metadata(0, limit=MOST_GRIDS + 1)
    rounds = k.index_div(count + (LANES - 1), LANES)
    with k.loop(rounds, max_trips=MOST_GRIDS // LANES) as turn:
        number = turn * LANES + k.local_index()
        with k.when(number < count):
            grid = k.load(grids, grid_type, number, count)
            here = runs
            if test is Test.CASE:
                assert word is not None
                here = k.logical_and(runs, k.eq(k.extract(grid, 3), word))
            factor = k.select(here, k.u32(1), k.u32(0))
            k.store(target, grid_type, number, grid * k.splat(factor, 4), count)
    return k.finish(schedule="one workgroup, a grid an invocation")
