"""Attention on the device: what its kernels give, against the oracle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import poot
from poot.core.oracle.evaluate import evaluate_all
from poot.interpreters.backend import use_backend
from tests.attention_spellings import SPELLINGS, Spelling
from tests.backends import device_backend, on_cpu

pytestmark = pytest.mark.skipif(device_backend() is None, reason="no Vulkan device")


@pytest.fixture(autouse=True)
def on_the_device() -> Iterator[None]:
    use_backend(device_backend())
    poot.clear_caches()
    try:
        yield
    finally:
        poot.clear_caches()
        use_backend(None)


def run(function: Any, *arguments: Any) -> tuple[Any, Any]:
    """What a function gives on the device, and what its graph means."""
    jitted = poot.jit(function)
    graph = jitted.trace(*arguments).graph
    given = [x if isinstance(x, int) else np.asarray(x) for x in arguments]
    (wanted,) = evaluate_all(graph, *given).results
    found = np.asarray(jitted(*arguments))
    return found.astype(np.float32), wanted.astype(np.float32)


@pytest.mark.parametrize("spelling", SPELLINGS, ids=str)
def test_spellings(spelling: Spelling) -> None:
    """In one launch, or two where others make an operand or take the result."""
    arguments = spelling.arguments()
    found, wanted = run(spelling.function, *arguments)
    tolerance = 2e-6 if spelling.dtype is np.float32 else 3e-2
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


def test_one_launch_serves_every_position() -> None:
    """Of a cache no more is read than is filled; the rest may be anything."""
    (spelling,) = (s for s in SPELLINGS if str(s) == "decode_step")
    q, k, v, _ = spelling.arguments()
    jitted = poot.jit(spelling.function)
    for position in (0, 8, 39):
        keys, values = (np.array(x) for x in (k, v))
        keys[:, position + 1 :] = values[:, position + 1 :] = np.nan
        found = np.asarray(jitted(q, keys, values, position))
        keys[:, position + 1 :] = values[:, position + 1 :] = 0
        graph = jitted.trace(q, keys, values, position).graph
        given = (np.asarray(q), keys, values, position)
        (wanted,) = evaluate_all(graph, *given).results
        np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=2e-6)
    program = jitted.lower(q, k, v, 0).compile().program
    assert [node.kernel.name[:10] for node in program.dispatches] == ["attention_"]


@on_cpu
def test_report() -> None:
    """Fired or not, and why, and with which kernel: for people to read."""

    def both(q, k, v):
        shares = poot.nn.softmax(q @ k.T)
        return poot.nn.softmax(q @ v.T / 2) @ v, shares @ v, shares

    q, k, v = (np.ones((9, 4), np.float32) for _ in range(3))
    report = str(poot.jit(both).lower(q, k, v).compile().report())
    assert "find_attention (reassociating: softmax(score(q kᵀ)) v" in report
    assert "fired 1 times" in report
    assert "not shares-used 1 times (the exponentials or shares are read" in report
    assert "the shares, is an output" in report
    assert "rows 16, 8 keys, keys handed round" in report
