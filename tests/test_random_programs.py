"""Random programs, each equation judged on the operands that it had.

`pytest --programs 10000 -k random_programs` runs so many, in runs of a hundred with a
seed each, from `--programs-seed` on. A failure shrinks to the text of a small graph.
"""

from __future__ import annotations

import gc
import random

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, find, given, seed, settings
from hypothesis import strategies as st

import poot
from poot.core.graph import Graph
from poot.core.op import PrimitiveKey
from poot.core.ops.elementwise import Unary, UnaryOp
from poot.core.oracle import impl
from poot.core.oracle.table import Arithmetic, Array
from tests.backends import device_backend
from tests.error_bounds import ACCUMULATING
from tests.program_runs import assert_program
from tests.random_programs import Program, RandomProgram, random_programs

pytestmark = pytest.mark.skipif(device_backend() is None, reason="no Vulkan device")

RUN = 100


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "programs" in metafunc.fixturenames:
        count = metafunc.config.getoption("--programs")
        first = metafunc.config.getoption("--programs-seed")
        runs = [
            (first + number, min(RUN, count - start))
            for number, start in enumerate(range(0, count, RUN))
        ]
        metafunc.parametrize(("run_seed", "programs"), runs)


@pytest.mark.timeout(3600)
def test_random_programs(run_seed: int, programs: int) -> None:
    @seed(run_seed)
    @settings(
        max_examples=programs,
        derandomize=False,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(random_programs(), st.integers(0, 1 << 20))
    def check(program: Program, arguments: int) -> None:
        assert_program(program.graph, arguments)

    try:
        check()
    finally:
        # Thousands of programs have tens of thousands of kernels.
        poot.clear_caches()
        gc.collect()


def test_programs_have_every_primitive_that_adds_up() -> None:
    """The bounds of sums are told for all that a program can hold."""
    seen: set[PrimitiveKey] = set()
    for number in range(300):
        program = RandomProgram(random.Random(number)).grow(30)
        seen |= {eqn.op.key for eqn in program.graph.eqns}
        assert len(program.graph.eqns) >= 30
    assert seen >= ACCUMULATING


def test_a_failure_is_the_text_of_a_small_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fault in one primitive shrinks to little more than that primitive."""
    key = Unary[UnaryOp.CBRT]

    def wrong(op: Unary, _: Arithmetic, x: Array) -> Array:
        return np.full_like(x, 7)

    def has_it(program: Program) -> bool:
        graph = program.graph
        return any(e.op.key == key and graph.type(e.out).size for e in graph.eqns)

    once = settings(
        max_examples=2000,
        database=None,
        derandomize=True,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    program = find(random_programs(), has_it, settings=once)
    assert len(program.graph.eqns) <= 10
    reproduced = Graph.parse(repr(program))
    assert reproduced == program.graph
    assert_program(reproduced, 0)
    monkeypatch.setattr(impl, "_rules", {**impl._rules, key: wrong})
    with pytest.raises(AssertionError, match=r"equation \d+ \(Unary\[CBRT\]\) of\n"):
        assert_program(reproduced, 0)
