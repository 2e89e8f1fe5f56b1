"""Attention is found in 30 spellings, and declined where it is none."""

from __future__ import annotations

import numpy as np
import pytest

import poot
from poot.core.graph import Graph
from poot.core.ops.attention import Attention
from poot.core.oracle.evaluate import evaluate_all
from poot.lowering.compile import PASSES
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.attention import FIND_ATTENTION
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
