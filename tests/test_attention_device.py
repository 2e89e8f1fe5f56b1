"""Attention on the device: what its kernels give, against the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import poot
from poot.core.oracle.evaluate import evaluate_all
from poot.interpreters.backend import use_backend
from tests.attention_spellings import SPELLINGS, Spelling
from tests.backends import device_backend

pytestmark = pytest.mark.skipif(device_backend() is None, reason="no Vulkan device")


def run(function: Any, *arguments: Any) -> tuple[Any, Any]:
    """What a function gives on the device, and what its graph means."""
    use_backend(device_backend())
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
