"""How far the device's functions are from the true values, over their whole domains.

`--sweep-points 4194304 -rP` sweeps densely and prints the largest errors.
"""

from __future__ import annotations

import numpy as np
import pytest

from poot.core import dtypes
from poot.core.ops.elementwise import Binary, Unary, UnaryOp
from tests.kernel_harness import device, one_op, run_graph
from tests.math_sweep import (
    BINARY,
    UNARY,
    Function,
    errors,
    flushed32,
    pairs,
    points,
    quick,
)

# In a chunk each, so that a dense sweep needs little memory.
_CHUNK = 1 << 20


@pytest.fixture(scope="module")
def count(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--sweep-points"))


@np.errstate(all="ignore")
def worst_error(function: Function, name: str, count: int) -> tuple[float, float]:
    """The largest error in ulps, and the first operand that it was found at."""
    keeps = device().info.keeps_subnormals32
    op = function.op
    if isinstance(op, UnaryOp):
        xs = [points(name, dtypes.float32, count, function.domain)]
        graph = one_op(Unary(op), *xs)
    else:
        xs = list(pairs(name, dtypes.float32, count, function.domain))
        graph = one_op(Binary(op), *xs)
    (got,) = run_graph(graph, xs)
    wide = [flushed32(x, dtypes.float32, keeps).astype(np.float64) for x in xs]
    exact = np.asarray(function.reference(*wide), np.float64)
    distance = errors(got, exact, dtypes.float32, keeps, function.floor)
    worst = int(np.argmax(distance))
    return float(distance[worst]), float(xs[0][worst])


@pytest.mark.parametrize("function", UNARY + BINARY, ids=str)
def test_single_precision(function: Function, count: int) -> None:
    function = quick(function)
    found = [
        worst_error(function, f"sweep {function} {start}", min(_CHUNK, count - start))
        for start in range(0, count, _CHUNK)
    ]
    worst, where = max(found)
    print(f"{function}: at most {worst:.3f} ulp over {count} points, at {where!r}")
    assert worst <= function.ulps32
