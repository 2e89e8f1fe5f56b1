"""Cross-entropy with indices gives JAX's values and gradients, wherever they point."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import jax
import jax.nn
import numpy as np
import pytest

import poot
from tests.cross_entropies import CLAMPED, FORMS, POOT
from tests.nn_against_jax import jax_jit

CLASSES = 200
random = np.random.default_rng(0)
LOGITS = random.standard_normal((4, 6, CLASSES)).astype(np.float32)
FROM_END = random.integers(0, CLASSES, (4, 6)).astype(np.int32)
OUTSIDE, IGNORED = FROM_END.copy(), FROM_END.copy()
FROM_END[0, :3] = -1, -CLASSES, 1 - CLASSES
OUTSIDE[:, 2] = CLASSES, -CLASSES - 1, np.iinfo(np.int32).max, np.iinfo(np.int32).min
IGNORED[1] = -100


@cache
def by_jax() -> Any:
    """The values and gradients of all forms, compiled at once."""
    m = SimpleNamespace(np=jax.numpy, nn=jax.nn, vmap=jax.vmap)

    return jax_jit(
        lambda *args: [jax.value_and_grad(form, 1)(m, *args) for form in FORMS]
    )


@pytest.mark.parametrize("form", FORMS)
def test_values_and_gradients_are_those_of_jax(form: Callable[..., Any]) -> None:
    mine = poot.jit(poot.value_and_grad(lambda x, labels: form(POOT, x, labels)))
    for labels in (FROM_END, IGNORED, OUTSIDE):
        value, gradient = mine(LOGITS, labels)
        wanted, slope = by_jax()(LOGITS, labels)[FORMS.index(form)]
        np.testing.assert_allclose(np.asarray(value), wanted, rtol=2e-5)
        if labels is not OUTSIDE or form not in CLAMPED:
            np.testing.assert_allclose(np.asarray(gradient), slope, 2e-5, 1e-6)
