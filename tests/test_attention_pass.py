"""Attention is found in 30 spellings, and declined where it is none."""

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
from tests.attention_near_misses import NEAR_MISSES, NearMiss
from tests.attention_spellings import SPELLINGS, Spelling


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


def test_masks_that_layers_share_are_computed_by_each() -> None:
    """Index arithmetic joins every kernel; other shared masks are read."""

    def layers(q, k, v, given):
        mask = jnp.arange(9)[:, None] >= jnp.arange(9)
        other = given[:, None] * given > 0
        for _ in range(2):
            scores = jnp.where(mask & other, q @ jnp.swapaxes(k, -1, -2), -jnp.inf)
            q = poot.nn.softmax(scores) @ v
        return q

    given = [np.ones((3, 9, 4), np.float32) for _ in range(3)]
    graph = poot.jit(layers).trace(*given, np.ones(9, np.float32)).graph
    after = lowered(graph)
    found = attentions(after)
    assert len(found) == 2
    for op in found:
        (_, *extras) = op.score.input_types
        assert [str(type) for type in extras] == ["bool[9,9]"]


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
