"""Second derivatives in f64 against differences of the first, on random programs.

Everything is run by the oracle. `--programs` says how many, `--programs-seed` which.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot.core import dtypes
from poot.core.graph import Graph
from poot.core.oracle.evaluate import evaluate
from tests import backends
from tests.numerics import Array
from tests.second_order_programs import (
    AROUND,
    SHAPE,
    STEPS,
    Step,
    function_of,
    random_steps,
)

oracle_backend = backends.oracle_backend
pytestmark = pytest.mark.usefixtures("oracle_backend")

STEP = 1e-4
# How far derivatives may be from differences, by the largest of them.
RELATIVE = 1e-6
POINTS = 3
WAYS = (
    "forward over reverse",
    "reverse over reverse",
    "forward over reverse, batched",
    "reverse over forward",
    "forward over forward",
)


def loss_of(steps: Sequence[Step]) -> Callable[..., Any]:
    function = function_of(steps)
    weights = np.random.default_rng(1).standard_normal(SHAPE)
    return lambda x, y: jnp.sum(function(x, y) * weights)


def first_order(loss: Callable[..., Any]) -> Callable[..., Any]:
    """The loss and its slope, x's part and y's as one array."""

    def derived(x: Any, y: Any) -> Any:
        value, slopes = poot.value_and_grad(loss, (0, 1))(x, y)
        return value, jnp.stack(slopes)

    return derived


def second_order(loss: Callable[..., Any], *, forward: bool) -> Callable[..., Any]:
    """The slope of the slope along (dx, dy) in each of WAYS.

    The last one is the product with (dx, dy) again. Without `forward` the last two are
    not there, which push through the loss itself.
    """
    slope = poot.grad(loss, (0, 1))

    def along(x: Any, y: Any, dx: Any, dy: Any) -> Any:
        return poot.jvp(slope, (x, y), (dx, dy))[1]

    def derived(x: Any, y: Any, dx: Any, dy: Any) -> Any:
        def by_reverse(x: Any, y: Any) -> Any:
            by_x, by_y = slope(x, y)
            return jnp.sum(by_x * dx) + jnp.sum(by_y * dy)

        def by_forward(x: Any, y: Any) -> Any:
            return poot.jvp(loss, (x, y), (dx, dy))[1]

        pairs = [jnp.stack([one, jnp.cos(one)], 1) for one in (x, y, dx, dy)]
        batched = poot.vmap(along, 1, -1)(*pairs)
        found = [
            along(x, y, dx, dy),
            poot.grad(by_reverse, (0, 1))(x, y),
            [part[..., 0] for part in batched],
        ]
        if not forward:
            return list(map(jnp.stack, found))
        found.append(poot.grad(by_forward, (0, 1))(x, y))
        twice = poot.jvp(by_forward, (x, y), (dx, dy))[1]
        return [*map(jnp.stack, found), twice]

    return derived


@dataclass(frozen=True)
class Differentiated:
    """The graphs of a program's derivatives."""

    first: Graph
    second: Graph

    @classmethod
    def of(cls, steps: Sequence[Step]) -> Differentiated:
        loss, x = loss_of(steps), np.zeros(SHAPE)
        forward = not any(step.is_reverse_only for step in steps)
        ways = second_order(loss, forward=forward)
        with poot.config.override(enable_x64=True):
            first = poot.make_graph(first_order(loss))(x, x)
            second = poot.make_graph(ways)(x, x, x, x)
        for graph in (first, second):
            types = [graph.type(out) for eqn in graph.eqns for out in eqn.outs]
            floats = {one.dtype for one in types if one.dtype.is_float}
            assert floats <= {dtypes.float64}
        return cls(first, second)

    def check(self, rng: np.random.Generator) -> bool:
        """Compare at a random point; False next to a kink, which differences tell."""
        point, direction = rng.standard_normal((2, 2, *SHAPE))
        value, slope = evaluate(self.first, *point)
        assert np.isfinite(value) and np.isfinite(slope).all()
        coarse, fine = (self._differences(point, direction, n) for n in (2, 1))
        scale = [abs(float(value)), np.abs(slope).max(), np.abs(fine[1]).max()]
        limit = RELATIVE * max(*scale, 1e-3)
        for one, other in zip(coarse, fine, strict=True):
            if not np.max(np.abs(one - other)) <= 30 * limit:
                return False
        near(np.sum(slope * direction), fine[0], limit, "reverse")
        results = evaluate(self.second, *point, *direction)
        for way, found in zip(WAYS, results, strict=False):
            if found.shape:
                near(found, fine[1], limit, way)
            else:
                near(found, np.sum(fine[1] * direction), 24 * limit, way)
        return True

    def _differences(
        self, point: Array, direction: Array, steps: int
    ) -> tuple[Array, Array]:
        """Of the loss and of its slope, by differences whose error is of order 4."""
        narrow, wide = (
            [
                (a - b) / (2 * width)
                for a, b in zip(
                    evaluate(self.first, *(point + width * direction)),
                    evaluate(self.first, *(point - width * direction)),
                    strict=True,
                )
            ]
            for width in (steps * STEP, 2 * steps * STEP)
        )
        value, slope = (a + (a - b) / 3 for a, b in zip(narrow, wide, strict=True))
        return value, slope


def near(found: Any, expected: Any, limit: float, way: str) -> None:
    np.testing.assert_allclose(found, expected, 0, limit, err_msg=way)


def judged(steps: Sequence[Step], seed: int) -> bool:
    """Whether one of a few points was away from kinks, and all was well there."""
    rng = np.random.default_rng(seed)
    derived = Differentiated.of(steps)
    return any(derived.check(rng) for _ in range(POINTS))


EACH = [
    *(Step(name, 0, 1) for name in STEPS),
    *(Step(name, 0, 1, (Step("mul", 1, 0), Step("sin", 2, 2))) for name in AROUND),
]


@pytest.mark.parametrize("step", EACH, ids=lambda step: step.name)
def test_second_derivatives_of_each_step(step: Step) -> None:
    assert judged([step], 0)


def test_second_derivatives_of_random_programs(request: pytest.FixtureRequest) -> None:
    count = request.config.getoption("--programs")
    first = 1000 * request.config.getoption("--programs-seed")
    at_kinks = 0
    for seed in range(first, first + count):
        steps = random_steps(random.Random(seed))
        try:
            at_kinks += not judged(steps, seed)
        except Exception as error:
            error.add_note(f"seed {seed}: {steps}")
            raise
    assert at_kinks <= 0.1 * count
