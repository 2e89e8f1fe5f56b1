"""What is computed early and read late is computed again, where this saves memory."""

from __future__ import annotations

import re

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
FILLING = 80


def far_apart(early: str, late: str) -> str:
    """The lines, with many equations of little memory between the two parts.

    Inputs come first, and all values are numbered anew.
    """
    filling = [
        f"%{901 + n}: f32[4,4] = matmul[out=none](%{900 + n}, %900)"
        for n in range(FILLING)
    ]
    parts = [early, *filling, late, f"result %{900 + FILLING}"]
    lines = [line.strip() for part in parts for line in part.splitlines()]
    is_input = re.compile("device|state")
    inputs = [*filter(is_input.match, lines), "device %900: f32[4,4]"]
    lines = inputs + [line for line in lines if line and not is_input.match(line)]
    made = re.findall(r"%(\d+):", "\n".join(lines))
    numbers = {old: str(new) for new, old in enumerate(made)}
    return re.sub(r"%(\d+)", lambda m: "%" + numbers[m[1]], "\n".join(lines))


# t = %3 and `second` are read by the last equations, %2 only by the first.
EARLY = """\
  device %0: f32[{n},{n}]
  device %1: f32[{n},{n}]
  %2: f32[{n},{n}] = matmul[out=none](%0, %1)
  %3: f32[{n},{n}] = unary[op=tanh](%2)
  %4: f32[{n},{n}] = {second}
  %5: f32[{n},{n}] = matmul[out=none](%3, %4)
"""
LATE = """\
  %200: f32[{n},{n}] = matmul[out=none](%5, %5)
  %201: f32[{n},{n}] = binary[op=add](%200, %3)
  %202: f32[{n},{n}] = binary[op=add](%201, %4)
  result %202
"""


def kept(second: str, side: int = SIDE) -> str:
    return far_apart(EARLY.format(n=side, second=second), LATE.format(n=side))


def run(text: str) -> tuple[Graph, Log]:
    graph = graph_of(text)
    log = Log()
    return rematerialize.run(graph, DeviceInfo(), log), log


def test_the_smaller_set_is_kept() -> None:
    """%5 is computed again of %4, which is read late anyway."""
    after, log = run(kept("binary[op=mul](%3, %3)"))
    assert fired(log, COMPUTE_AGAIN) == ["%5"]
    ops = [str(eqn.op) for eqn in after.eqns]
    assert ops[-3:] == ["Binary[ADD]", "Binary[MUL]", "Binary[ADD]"]
    assert ops.count("Binary[MUL]") == 2


def test_contractions_are_not_repeated() -> None:
    """Both values that are read late are kept: the cut has nothing cheaper."""
    _, log = run(kept("matmul[out=none](%3, %3)"))
    assert list(declined(log, COMPUTE_AGAIN).values()) == [Reason.SMALL_GAIN]
    assert not fired(log, COMPUTE_AGAIN)


def test_small_programs_are_left_alone() -> None:
    text = kept("binary[op=mul](%3, %3)", 64)
    after, log = run(text)
    assert str(after) == str(graph_of(text))
    assert not log.entries


def test_what_is_an_output_is_kept() -> None:
    text = far_apart(
        EARLY.format(n=SIDE, second="binary[op=mul](%3, %3)"),
        LATE.format(n=SIDE) + "result %4",
    )
    _, log = run(text)
    assert not fired(log, COMPUTE_AGAIN)


def test_what_is_kept_anyway_is_computed_with() -> None:
    """%6 is computed again of a product that is read late too."""
    early = """\
      device %0: f32[2048,2048]
      device %1: f32[2048,2048]
      %2: f32[2048,2048] = matmul[out=none](%0, %1)
      %3: f32[2048,2048] = unary[op=tanh](%2)
      %4: f32[2048,2048] = matmul[out=none](%3, %3)
    """
    late = """\
      %201: f32[2048,2048] = binary[op=add](%4, %2)
      %202: f32[2048,2048] = binary[op=add](%201, %3)
      result %202
    """
    _, log = run(far_apart(early, late))
    assert fired(log, COMPUTE_AGAIN) == ["%4"]


def test_what_is_read_first_is_computed_again_of_what_is_read_later() -> None:
    early = """\
      device %0: f32[2048,2048]
      %1: f32[2048,2048] = unary[op=tanh](%0)
      %2: f32[2048,2048] = unary[op=exp](%1)
      %3: f32[2048,2048] = matmul[out=none](%1, %2)
    """
    late = """\
      %201: f32[2048,2048] = binary[op=add](%3, %2)
      %202: f32[2048,2048] = binary[op=mul](%201, %1)
      result %202
    """
    after, log = run(far_apart(early, late))
    assert fired(log, COMPUTE_AGAIN) == ["%2", "%3"]
    ops = [str(eqn.op) for eqn in after.eqns]
    assert ops[-4:] == ["Unary[TANH]", "Unary[EXP]", "Binary[ADD]", "Binary[MUL]"]
    assert after.eqns[-3].inputs == after.eqns[-4].outs


def test_what_elementwise_equations_hand_on_takes_no_memory() -> None:
    """At most three are kept: two that are read late, and a product read near by."""
    early = """\
      device %0: f32[2048,2048]
      %1: f32[2048,2048] = matmul[out=none](%0, %0)
      %2: f32[2048,2048] = unary[op=exp](%1)
      %3: f32[2048,2048] = matmul[out=none](%2, %2)
    """
    late = """\
      %200: f32[2048,2048] = matmul[out=none](%2, %3)
      %201: f32[2048,2048] = unary[op=tanh](%200)
      %202: f32[2048,2048] = unary[op=exp](%201)
      %203: f32[2048,2048] = binary[op=add](%202, %2)
      %204: f32[2048,2048] = binary[op=add](%203, %3)
      result %204
    """
    _, log = run(far_apart(early, late))
    (entry,) = log.declined(COMPUTE_AGAIN)
    kept = 3 * 4 * SIDE**2
    assert entry.detail == f"{kept} B are kept there, 0 B could be saved"


def test_a_view_of_an_output_is_kept_with_it() -> None:
    early = """\
      device %0: f32[2048,2048]
      %1: f32[2048,2048] = unary[op=tanh](%0)
      %2: f32[4096,1024] = reshape[shape=(4096, 1024)](%1)
      %3: f32[2048,2048] = matmul[out=none](%1, %1)
      %4: f32[2048,2048] = matmul[out=none](%3, %3)
    """
    late = """\
      %201: f32[4096,1024] = unary[op=exp](%2)
      result %1
      result %4
      result %201
    """
    _, log = run(far_apart(early, late))
    assert not log.entries


def test_old_state_is_not_read_later() -> None:
    """%4 is computed of state that is overwritten in between."""
    early = """\
      state %0: f32[2048,2048]
      device %1: f32[2048,2048]
      %2: f32[2048,2048] = unary[op=tanh](%0)
      %3: f32[2048,2048] = binary[op=mul](%2, %2)
      %4: f32[2048,2048] = matmul[out=none](%2, %3)
      %5: f32[2048,2048] = matmul[out=none](%4, %4)
    """
    late = """\
      %206: f32[2048,2048] = binary[op=add](%5, %3)
      %207: f32[2048,2048] = binary[op=add](%206, %2)
      next %0 = %5
      result %207
    """
    text = far_apart(early, late)
    after, log = run(text)
    assert fired(log, COMPUTE_AGAIN) == ["%4"]
    reads = [eqn for eqn in after.eqns if after.inputs[0] in eqn.inputs]
    assert len(reads) == 1


def test_what_one_kernel_computes_is_stored_nowhere() -> None:
    """A chain of large values that are read near by: nothing is there to be saved."""
    given = poot.ShapeDtypeStruct((1 << 22,), np.float32)

    def function(x):
        return poot.numpy.tanh(x * 1.5 + 0.5) * poot.numpy.exp(-(x * x)) + x

    lowered = poot.jit(function).lower(given)
    assert "compute_again" not in lowered.report()
    assert len(lowered.compile().program.dispatches) == 1


def test_the_meaning_stays() -> None:
    text = kept("binary[op=mul](%3, %3)", 1032)
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
