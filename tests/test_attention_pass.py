"""Attention is found in many spellings, and declined where it is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot.core.graph import Graph
from poot.core.ops.attention import Attention
from poot.core.ops.shape import Transpose
from poot.core.oracle.evaluate import evaluate_all
from poot.lowering.compile import PASSES
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.attention import FIND_ATTENTION, find_attention
from poot.lowering.passes.driver import run_passes
from tests.attention_log_near_misses import NEAR_MISSES
from tests.attention_near_misses import NearMiss
from tests.attention_spellings import SPELLINGS, Spelling, products, softmax


def lowered(graph: Graph) -> Graph:
    return run_passes(PASSES, graph, DeviceInfo())[0]


def attentions(graph: Graph) -> list[Attention]:
    return [eqn.op for eqn in graph.eqns if isinstance(eqn.op, Attention)]


@pytest.mark.parametrize("spelling", SPELLINGS, ids=str)
def test_found(spelling: Spelling) -> None:
    """One equation, of the same meaning, whose text parses back."""
    arguments = spelling.arguments()
    graph = poot.jit(spelling.function).trace(*arguments).graph
    after = lowered(graph)
    assert len(attentions(after)) == 1, str(after)
    assert Graph.parse(str(after)) == after
    given = [x if isinstance(x, int) else np.asarray(x) for x in arguments]
    (wanted,) = evaluate_all(graph, *given).results
    (found,) = evaluate_all(after, *given).results
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(
        found.astype(np.float32), wanted.astype(np.float32), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("miss", NEAR_MISSES, ids=str)
def test_declined(miss: NearMiss) -> None:
    """Once, for the reason, and the values concerned are named."""
    arguments = [np.ones(shape, np.float32) for shape in miss.shapes]
    graph = poot.jit(miss.function).trace(*arguments).graph
    after, records = run_passes(PASSES, graph, DeviceInfo())
    assert not attentions(after)
    (found,) = [e for r in records for e in r.log.declined(FIND_ATTENTION)]
    assert found.reason is miss.reason
    assert miss.detail in found.detail
    # Of rows is spoken only where the scores are masked by what chooses the shares.
    masked = miss.function.__name__ == "rows_of_no_key_are_zero"
    assert ("the kernel has NaN" in found.detail) == masked


def finite_softmax(scores: Any) -> Any:
    largest = scores.max(-1, keepdims=True)
    powers = jnp.exp(scores - jnp.where(jnp.isfinite(largest), largest, 0))
    return powers / powers.sum(-1, keepdims=True)


def below_logsumexp(scores: Any) -> Any:
    return jnp.exp(scores - poot.nn.logsumexp(scores, -1, keepdims=True))


def exp_log_softmax(scores: Any) -> Any:
    return jnp.exp(poot.nn.log_softmax(scores))


@pytest.mark.parametrize(
    "shares_of",
    [softmax, finite_softmax, below_logsumexp, exp_log_softmax],
    ids=lambda function: function.__name__,
)
def test_rows_without_a_share(shares_of: Any) -> None:
    """Nothing but -inf, an inf and a NaN make a row NaN, however shares are spelled."""
    q, k, v = (np.random.default_rng(n).standard_normal((9, 4)) for n in range(3))
    bias = np.zeros((9, 9))
    bias[0], bias[1, 2], bias[2, 3], bias[3, 1:] = -np.inf, np.inf, np.nan, -np.inf
    bias[4, 5] = bias[5, 4] = 1000.0
    given = [x.astype(np.float32) for x in (q, k, v, bias)]

    def means(q, k, v, bias):
        return shares_of(products(q, k) + bias) @ v

    before = poot.jit(means).trace(*given).graph
    after = lowered(before)
    assert len(attentions(after)) == 1
    for graph in (before, after):
        (found,) = evaluate_all(graph, *given).results
        assert np.isnan(found[:3]).all()
        wanted = given[2][[0, 5, 4]]
        np.testing.assert_allclose(found[3:6], wanted, rtol=1e-6, atol=1e-6)
        assert np.isfinite(found[6:]).all()


def test_a_transpose_of_the_means_joins() -> None:
    """The kernel writes in the order that is wanted, unless both are."""

    def means(q, k, v):
        return poot.nn.softmax(q @ jnp.swapaxes(k, -1, -2)) @ v

    def turned(q, k, v):
        return jnp.swapaxes(means(q, k, v), 0, 1)

    def both(q, k, v):
        found = means(q, k, v)
        return found, jnp.swapaxes(found, 0, 1)

    given = [np.ones((3, 9, 4), np.float32) for _ in range(3)]
    for function, order, ops in (
        (turned, (1, 0, 2), [Attention]),
        (both, (0, 1, 2), [Attention, Transpose]),
    ):
        after = lowered(poot.jit(function).trace(*given).graph)
        (op,) = attentions(after)
        assert op.order == order
        assert [type(eqn.op) for eqn in after.eqns] == ops, str(after)


def operands_of(function: Any, *given: Any) -> list[list[str]]:
    """The types of the operands of each attention that a function becomes."""
    after = lowered(poot.jit(function).trace(*given).graph)
    return [
        [str(after.type(operand)) for operand in eqn.inputs]
        for eqn in after.eqns
        if isinstance(eqn.op, Attention)
    ]


def square(sizes: tuple[int, ...] = (3, 9, 4)) -> list[Any]:
    return [np.ones(sizes, np.float32) for _ in range(3)]


def attend(q: Any, k: Any, v: Any, mask: Any) -> Any:
    scores = jnp.where(mask, q @ jnp.swapaxes(k, -1, -2), -jnp.inf)
    return poot.nn.softmax(scores) @ v


MARKS = np.ones(9, np.float32)
ROUND = np.int32(3)
EXTRAS: dict[str, tuple[Any, list[Any], list[str], int]] = {
    "index arithmetic that layers share": (
        lambda q, k, v: attend(
            attend(q, k, v, jnp.arange(9)[:, None] >= jnp.arange(9)),
            k,
            v,
            jnp.arange(9)[:, None] >= jnp.arange(9),
        ),
        [],
        [],
        2,
    ),
    "with a number": (
        lambda q, k, v, n: attend(
            attend(q, k, v, jnp.arange(9) <= n + 1), k, v, jnp.arange(9) <= n + 1
        ),
        [ROUND],
        ["i32[]"],
        2,
    ),
    "too much of it": (
        lambda q, k, v: attend(
            attend(q, k, v, much_index_arithmetic()), k, v, much_index_arithmetic()
        ),
        [],
        ["bool[9]"],
        2,
    ),
    "other arithmetic that layers share": (
        lambda q, k, v, m: attend(attend(q, k, v, m > 0), k, v, m > 0),
        [MARKS],
        ["bool[9]"],
        2,
    ),
    "other arithmetic of one layer": (
        lambda q, k, v, m: attend(q, k, v, m * m > 0),
        [MARKS],
        ["f32[9]"],
        1,
    ),
    "arithmetic that is returned": (
        lambda q, k, v, m: (attend(q, k, v, m > 0), m > 0),
        [MARKS],
        ["bool[9]"],
        1,
    ),
    "a sum": (
        lambda q, k, v, m: attend(q, k, v, jnp.cumsum(m) > 2),
        [MARKS],
        ["f32[9]"],
        1,
    ),
    "what is taken by an index": (
        lambda q, k, v, m: attend(q, k, v, jnp.take(m, jnp.arange(9) // 2) > 2),
        [MARKS],
        ["f32[9]"],
        1,
    ),
    "index arithmetic taken by an index": (
        lambda q, k, v, n: attend(
            q, k, v, jnp.take(jnp.arange(9) > n, jnp.arange(9) // 2)
        ),
        [ROUND],
        ["bool[9]"],
        1,
    ),
    "random bits": (
        lambda q, k, v: attend(
            q, k, v, poot.random.bernoulli(poot.random.key(1), 0.5, (9, 9))
        ),
        [],
        ["u32[9,9]"] * 2,
        1,
    ),
}


def much_index_arithmetic() -> Any:
    place = jnp.arange(9)
    for number in range(40):
        place = place * 3 - number
    return place > 2


@pytest.mark.parametrize("name", EXTRAS)
def test_extras(name: str) -> None:
    """What the kernel computes for itself beside the products, and what it reads."""
    function, more, extras, count = EXTRAS[name]
    found = operands_of(function, *square(), *more)
    assert [types[3:] for types in found] == [extras] * count


def test_repeats_are_not_read() -> None:
    """Operands are what heads are repeated from, by axes inside or in front."""

    def leading(q, k, v):
        k, v = (jnp.broadcast_to(x, (1, 3, 9, 4)) for x in (k, v))
        return softmax(products(q[None], k)) @ v

    given = [np.ones(shape, np.float32) for shape in ((3, 9, 4), (9, 4), (9, 4))]
    assert operands_of(leading, *given) == [["f32[3,9,4]", "f32[9,4]", "f32[9,4]"]]
    by_name = {str(spelling): spelling for spelling in SPELLINGS}
    for name in ("repeated_heads", "broadcast_heads", "library_call"):
        spelling = by_name[name]
        ((_, k, v, *_),) = operands_of(spelling.function, *spelling.arguments())
        assert k == v == "f32[2,2,9,8]"


def test_casts() -> None:
    """Operands are read in the dtype that a cast only widened."""

    def cast(given: Any, wide: Any) -> Any:
        def function(q, k, v):
            q, k, v = (x.astype(given) for x in (q, k, v))
            return softmax(products(q.astype(wide), k.astype(wide))) @ v.astype(wide)

        return function

    for given, wide, dtype in (
        (jnp.bfloat16, jnp.float32, "bf16"),
        (jnp.float16, jnp.float32, "f16"),
        (jnp.float16, jnp.bfloat16, "bf16"),
        (jnp.int32, jnp.float32, "f32"),
    ):
        found = operands_of(cast(given, wide), *square())
        assert found == [[f"{dtype}[3,9,4]"] * 3]

    def apart(q, k, v):
        q, k = q.astype(jnp.bfloat16), k.astype(jnp.float16)
        return softmax(products(q.astype(jnp.float32), k.astype(jnp.float32))) @ v

    assert operands_of(apart, *square()) == [["f32[3,9,4]"] * 3]

    def one(q, k, v):
        k = jnp.broadcast_to(k.astype(jnp.bfloat16).astype(jnp.float32), (3, 9, 4))
        return softmax(products(q, k)) @ v

    given = [np.ones(shape, np.float32) for shape in ((3, 9, 4), (9, 4), (3, 9, 4))]
    ((q, k, _),) = operands_of(one, *given)
    assert (q, k) == ("f32[3,9,4]", "f32[3,9,4]")


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: poot.nn.softmax(x @ w),
        lambda x, w: (poot.nn.softmax(x @ w) * x).sum(-1),
        lambda x, w: (1 / (1 + jnp.exp(-x))) @ w,
        lambda x, w: jnp.exp(x - w) @ w,
        lambda x, w: jnp.exp(x @ w) * w,
    ],
    ids=["alone", "summed", "sigmoid", "difference", "exponentials"],
)
def test_no_candidates(function: Any) -> None:
    """Exponentials that are in no softmax before a contraction are not looked at."""
    given = [np.ones((9, 9), np.float32) for _ in range(2)]
    graph = poot.jit(function).trace(*given).graph
    _, records = run_passes(PASSES, graph, DeviceInfo())
    (log,) = (r.log for r in records if r.made_by is find_attention)
    assert log.entries == []
