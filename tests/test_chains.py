"""Generated chains: one launch each, with the bits of the equations one by one."""

from __future__ import annotations

from random import Random

import pytest

from poot.core.dtypes import Scalar
from poot.core.graph import Graph
from poot.core.ops.composite import Fused
from poot.core.ops.elementwise import Binary, BinaryOp, Unary, UnaryOp
from poot.core.oracle import evaluate
from poot.lowering.compile import lower
from poot.lowering.program import Dispatch
from tests.kernel_harness import device, plan_graph, run_graph, run_program, same_bits
from tests.pointwise_programs import DTYPES, Region, random_arrays

CHAINS = 300
# In so many parts, so that a failure is near.
PARTS = 10
# One in so many runs on the device, the others in the oracle, which takes less time.
RUN = 4
# Of each part, the chains that also run equation by equation on the device.
ALONE = 1
# They have one right result for each element.
_STEPS = (UnaryOp.NEG, UnaryOp.ABS, UnaryOp.SIGN)


def chain(seed: int) -> Graph:
    """Elementwise ops with slices, pads, concatenations and other moves between."""
    random = Random(f"chain {seed}")
    region = Region(random)
    x = region.input(region.shape(), random.choice(DTYPES))
    for _ in range(random.randrange(3, 9)):
        x = region.step(x)
        if region.builder.type(x).size > 5000:
            break
        if random.random() < 0.4:
            x = region.emit(Unary(random.choice(_STEPS)), x)
    last = Scalar.of(3, region.builder.type(x).dtype)
    region.builder.result(region.emit(Binary(BinaryOp.SUB), x, last))
    return region.builder.finish()


@pytest.mark.parametrize("part", range(PARTS))
def test_a_chain_is_one_launch_with_the_same_bits(part: int) -> None:
    count = CHAINS // PARTS
    for seed in range(part * count, (part + 1) * count):
        graph = chain(seed)
        after = lower(graph, device().info).graph
        program = plan_graph(after)
        launches = [node for node in program.body if isinstance(node, Dispatch)]
        where = f"chain {seed}: {graph}\nbecomes {after}"
        assert len(launches) == 1 == len(program.body), where
        fused = [eqn for eqn in after.eqns if isinstance(eqn.op, Fused)]
        assert len(fused) == 1 or len(after.eqns) <= 2, where
        args = random_arrays(graph, seed)
        (wanted,) = evaluate(graph, *args)
        runs = seed % RUN == 0
        (got,) = run_program(after, program, args) if runs else evaluate(after, *args)
        assert same_bits(got, wanted), where
        if seed % count < ALONE:
            (alone,) = run_graph(graph, args)
            assert same_bits(alone, wanted), where


def test_the_chains_have_all_kinds_of_steps() -> None:
    ops = {str(eqn.op) for seed in range(CHAINS) for eqn in chain(seed).eqns}
    moves = {"Broadcast", "Concat", "DynamicSlice", "Gather", "Iota", "Pad"}
    moves |= {"Reshape", "Reverse", "Slice", "Transpose"}
    steps = {"Binary[ADD]", "Binary[MUL]", "Binary[SUB]", "Cast", "Select"}
    assert ops >= moves | steps | {"Unary[ABS]", "Unary[NEG]", "Unary[SIGN]"}
