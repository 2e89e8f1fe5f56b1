"""What is computed early and read late is computed again, where this saves memory."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import models
import poot
from memory import memory_bytes
from poot.core.graph import Graph
from poot.lowering.device_info import DeviceInfo
from poot.lowering.passes.driver import Log, Reason
from poot.lowering.passes.rematerialize import COMPUTE_AGAIN, rematerialize
from tests.pass_harness import apply, declined, fired, graph_of

SIDE = 2048
# Of %2: t and its square are read by the last equations, %2 only by the first.
KEPT = """\
  device %0: f32[{n},{n}]
  device %1: f32[{n},{n}]
  %2: f32[{n},{n}] = matmul[out=none](%0, %1)
  %3: f32[{n},{n}] = unary[op=tanh](%2)
  %4: f32[{n},{n}] = {second}
  %5: f32[{n},{n}] = matmul[out=none](%3, %4)
  %6: f32[{n},{n}] = matmul[out=none](%5, %5)
  %7: f32[{n},{n}] = binary[op=add](%6, %3)
  %8: f32[{n},{n}] = binary[op=add](%7, %4)
  result %8
"""


def run(text: str) -> tuple[Graph, Log]:
    graph = graph_of(text)
    log = Log()
    return rematerialize.run(graph, DeviceInfo(), log), log


def test_the_smaller_set_is_kept() -> None:
    """%4 is computed again of %3, which is read late anyway."""
    after, log = run(KEPT.format(n=SIDE, second="binary[op=mul](%3, %3)"))
    assert fired(log, COMPUTE_AGAIN) == ["%4"]
    ops = [str(eqn.op) for eqn in after.eqns]
    assert ops[-3:] == ["Binary[ADD]", "Binary[MUL]", "Binary[ADD]"]
    assert ops.count("Binary[MUL]") == 2


def test_contractions_are_not_repeated() -> None:
    """Both values that are read late are kept: the cut has nothing cheaper."""
    _, log = run(KEPT.format(n=SIDE, second="matmul[out=none](%3, %3)"))
    assert list(declined(log, COMPUTE_AGAIN).values()) == [Reason.SMALL_GAIN]
    assert not fired(log, COMPUTE_AGAIN)


def test_small_programs_are_left_alone() -> None:
    text = KEPT.format(n=64, second="binary[op=mul](%3, %3)")
    after, log = run(text)
    assert str(after) == str(graph_of(text))
    assert not log.entries


def test_what_is_an_output_is_kept() -> None:
    text = KEPT.format(n=SIDE, second="binary[op=mul](%3, %3)") + "  result %4\n"
    _, log = run(text)
    assert not fired(log, COMPUTE_AGAIN)


def test_old_state_is_not_read_later() -> None:
    """%4 is computed of state that is overwritten in between."""
    text = """\
      state %0: f32[2048,2048]
      device %1: f32[2048,2048]
      %2: f32[2048,2048] = unary[op=tanh](%0)
      %3: f32[2048,2048] = binary[op=mul](%2, %2)
      %4: f32[2048,2048] = matmul[out=none](%2, %3)
      %5: f32[2048,2048] = matmul[out=none](%4, %4)
      %6: f32[2048,2048] = binary[op=add](%5, %3)
      %7: f32[2048,2048] = binary[op=add](%6, %2)
      next %0 = %5
      result %7
    """
    after, log = run(text)
    assert fired(log, COMPUTE_AGAIN) == ["%3"]
    reads = [eqn for eqn in after.eqns if after.inputs[0] in eqn.inputs]
    assert len(reads) == 1


def test_the_meaning_stays() -> None:
    text = KEPT.format(n=1032, second="binary[op=mul](%3, %3)")
    apply(graph_of(text), rematerialize)


@pytest.mark.parametrize("gradient", [False, True])
def test_a_transformer_takes_no_more_memory_than_in_jax(gradient: bool) -> None:
    mine, theirs = memory_bytes(layers=3, gradient=gradient)
    assert mine <= 1.1 * theirs


def test_gradients_are_right() -> None:
    weights = [models.encoder_weights(64, 256, seed) for seed in range(2)]
    random = np.random.default_rng(3)
    x, y = (random.standard_normal((8, 128, 64), dtype=np.float32) for _ in range(2))

    def gradient(library):
        def loss(weights, x, y):
            return models.transformer_loss(library, 4, weights, x, y)

        return library.jit(library.grad(loss))

    lowered = gradient(poot).lower(weights, x, y)
    assert "compute_again" in lowered.report()
    mine = lowered.compile()(weights, x, y)
    theirs = gradient(jax)(weights, x, y)
    # The gradient of a bias of keys is 0 but for rounding.
    for got, right in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(np.asarray(got), right, atol=1e-6, rtol=1e-4)
