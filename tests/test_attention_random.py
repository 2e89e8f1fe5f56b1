"""Attention over operands in any order of axes, with masks and softmaxes mixed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot.core.oracle.evaluate import evaluate_all
from poot.lowering.compile import PASSES
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.driver import run_passes
from tests.backends import device_backend
from tests.kernel_harness import plan_graph, run_program
from tests.test_attention_pass import attentions

SIZES = {"b": 2, "k": 2, "g": 3, "t": 5, "s": 7, "d": 4, "e": 6}
# Letters of q, k, v, and of the scores; the result has those of the rows and e.
FORMS = (
    ("btd", "bsd", "bse", "bts"),
    ("bktd", "bksd", "bkse", "bkts"),
    ("bkgtd", "bksd", "bkse", "bkgts"),
    ("bktd", "bsd", "bse", "bkts"),
    ("gtd", "sd", "se", "gts"),
    ("kgd", "ksd", "kse", "kgs"),
)


def shuffled(random: np.random.Generator, letters: str) -> str:
    return "".join(random.permutation(list(letters)))


def along(letters: str, letter: str) -> Any:
    """The place along an axis, in a shape that broadcasts to all of them."""
    shape = tuple(SIZES[x] if x == letter else 1 for x in letters)
    return jnp.arange(SIZES[letter]).reshape(shape)


def softmaxed(scores: Any, axis: int, form: int, weigh: Callable[[Any], Any]) -> Any:
    """The rows of values weighted by a softmax in one of three spellings."""
    if form == 0:
        return weigh(poot.nn.softmax(scores, axis))
    powers = jnp.exp(scores - scores.max(axis, keepdims=True))
    total = powers.sum(axis, keepdims=True)
    return weigh(powers / total if form == 1 else powers * (1 / total))


def made_up(seed: int) -> tuple[Callable[..., Any], list[Any]]:
    """A function that is attention, and its arguments."""
    random = np.random.default_rng(seed)
    form = FORMS[seed % len(FORMS)]
    q, k, v, s = (shuffled(random, letters) for letters in form)
    rows = s.replace("s", "")
    out = shuffled(random, rows + "e")
    masks = random.random(4) < 0.4
    fill = [-np.inf, -1e30, float(np.finfo(np.float32).min)][int(random.integers(3))]
    spelling = int(random.integers(3))

    def function(x, y, z, bias):
        scores = jnp.einsum(f"{q},{k}->{s}", x, y) * 0.5
        axis = s.index("s")
        if masks[0]:
            scores = 3 * jnp.tanh(scores / 3)
        if masks[1]:
            shape = tuple(SIZES[x] if x == "s" else 1 for x in s)
            scores = scores + bias.reshape(shape)
        if masks[2] and "t" in s:
            scores = jnp.where(along(s, "s") <= along(s, "t"), scores, fill)
        if masks[3]:
            scores = jnp.where(along(s, "s") > 4, fill, scores)
        return softmaxed(
            scores, axis, spelling, lambda w: jnp.einsum(f"{s},{v}->{out}", w, z)
        )

    shapes = [tuple(SIZES[x] for x in letters) for letters in (q, k, v)]
    given = [random.standard_normal(shape, np.float32) for shape in (*shapes, (7,))]
    return function, given


@pytest.mark.parametrize("seed", range(36))
def test_any_order_of_axes(seed: int) -> None:
    """Found, and of the same meaning; every seventh runs on the device too."""
    function, given = made_up(seed)
    graph = poot.jit(function).trace(*given).graph
    after = run_passes(PASSES, graph, DeviceInfo())[0]
    assert len(attentions(after)) == 1, str(after)
    (wanted,) = evaluate_all(graph, *given).results
    (found,) = evaluate_all(after, *given).results
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)
    if seed % 7 == 0 and device_backend() is not None:
        (found,) = run_program(after, plan_graph(after), given)
        np.testing.assert_allclose(found, wanted, rtol=3e-6, atol=3e-6)
