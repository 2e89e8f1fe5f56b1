"""Launches that write over what they read use kernels that promise nothing of it."""

from __future__ import annotations

import struct

import numpy as np

from poot.core.graph import Graph
from poot.lowering.compile import lower, plan
from poot.lowering.plan.aliasing import aliased
from poot.lowering.program import Kernel
from poot.lowering.spirv.opcodes import Decoration, Op
from tests.graph_runs import run_all
from tests.kernel_harness import device

PROMISES = (Decoration.NonWritable, Decoration.NonReadable)
SWAP = """graph {
  state %0: u64[4,8]
  state %1: u64[4,8]
  device %2: u64[4,8]
  %3: u64[4,8] = binary[op=max](%0, %2)
  %4: u64[4,8] = binary[op=min](%1, %2)
  result %3
  result %4
  next %0 = %4
  next %1 = %3
}"""


def promises(kernel: Kernel) -> int:
    """How many members of blocks are said to be read only or written only."""
    words = struct.unpack(f"<{len(kernel.words) // 4}I", kernel.words)
    at, count = 5, 0
    while at < len(words):
        if words[at] & 0xFFFF == Op.MemberDecorate and words[at + 3] in PROMISES:
            count += 1
        at += words[at] >> 16
    return count


def test_states_that_change_places_in_one_launch() -> None:
    info = device().info
    lowered = lower(Graph.parse(SWAP), info).graph
    program = plan(lowered, info)
    (launch,) = program.dispatches
    assert launch.kernel.name.endswith("_aliased")
    assert promises(launch.kernel) == 0
    rng = np.random.default_rng(0)
    a, b, x = (rng.integers(0, 9, (4, 8)).astype(np.uint64) for _ in range(3))
    results = run_all(lowered, program, [a, b, x])
    np.testing.assert_array_equal(results[0], np.maximum(a, x))
    np.testing.assert_array_equal(results[1], np.minimum(b, x))


def test_other_launches_keep_their_promises() -> None:
    info = device().info
    text = """graph {
      device %0: f32[8]
      device %1: f32[8]
      %2: f32[8] = binary[op=add](%0, %1)
      result %2
    }"""
    (launch,) = plan(Graph.parse(text), info).dispatches
    assert promises(launch.kernel) == 3
    bare = aliased(launch.kernel)
    assert promises(bare) == 0
    assert len(bare.words) == len(launch.kernel.words) - 3 * 16
