"""Row kernels come from their region: 200 random row programs, one dispatch each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from poot.core.ops.composite import FusedRow
from poot.core.ops.reduce import Reduce
from poot.lowering.compile import lower, plan
from tests.kernel_harness import device, oracle, run_program
from tests.row_programs import random_row_program

PROGRAMS = 200
PER_TEST = 10


def check_program(seed: int) -> None:
    """Half of them are of whole numbers, and equal; the others are close."""
    exact = seed % 2 == 0
    graph = random_row_program(seed, exact=exact)
    args = [operand(type, seed, exact) for type in graph.input_types]
    lowered = lower(graph, device().info)
    program = plan(lowered.graph, device().info)
    assert len(program.body) == 1, f"seed {seed}\n{graph}\n{lowered.report}"
    (eqn,) = (e for e in lowered.graph.eqns if isinstance(e.op, FusedRow))
    assert 1 <= sum(isinstance(e.op, Reduce) for e in eqn.op.body.eqns) <= 4
    got = run_program(lowered.graph, program, args)
    for mine, right in zip(got, oracle(graph, args), strict=True):
        scale = 0.0 if exact else max(1.0, float(np.abs(right).max(initial=0)))
        np.testing.assert_allclose(
            mine,
            right,
            rtol=0.0 if exact else 1e-4,
            atol=1e-5 * scale,
            err_msg=f"seed {seed}\n{graph}",
        )


def operand(type: Any, seed: int, exact: bool) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    if exact:
        return rng.integers(-3, 4, type.shape).astype(np.float32)
    return rng.standard_normal(type.shape).astype(np.float32)


@pytest.mark.parametrize("first", range(0, PROGRAMS, PER_TEST))
def test_random_row_programs_are_one_dispatch(first: int) -> None:
    for seed in range(first, first + PER_TEST):
        check_program(seed)


def test_the_programs_are_of_all_kinds() -> None:
    graphs = [random_row_program(s, exact=s % 2 == 0) for s in range(PROGRAMS)]
    reductions = [
        [eqn.op for eqn in graph.eqns if isinstance(eqn.op, Reduce)] for graph in graphs
    ]
    assert {len(each) for each in reductions} == {1, 2, 3, 4}
    kinds = {op.op.value for each in reductions for op in each}
    assert kinds == {"sum", "max", "min"}
    lengths = {graph.input_types[0].shape[-1] for graph in graphs}
    assert {1, 2, 70_000} <= lengths and len(lengths) >= 12
