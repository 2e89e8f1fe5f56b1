"""How many launches whole functions take, as users write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import lax, nn
from poot.core.oracle import evaluate
from poot.lowering.program import Program

BF16 = np.dtype(ml_dtypes.bfloat16)
X = np.random.default_rng(0).standard_normal((24, 200)).astype(np.float32)
SCALE = np.random.default_rng(1).standard_normal(200).astype(np.float32)
SHIFT = np.random.default_rng(2).standard_normal(200).astype(np.float32)
LABELS = np.random.default_rng(3).integers(0, 200, 24).astype(np.int32)


def program_of(function: Callable[..., Any], *args: Any) -> Program:
    """The program, after its results were compared with the oracle's."""
    jitted = poot.jit(function)
    traced = jitted.trace(*args)
    got = poot.tree.leaves(jitted(*args))
    wanted = evaluate(traced.graph, *poot.tree.leaves(args))
    for mine, right in zip(got, wanted, strict=True):
        # Sums may be ordered otherwise, and bf16 rounds them to 8 bits.
        rough = right.dtype == BF16
        np.testing.assert_allclose(
            np.asarray(mine).astype(np.float64),
            right.astype(np.float64),
            rtol=2e-2 if rough else 2e-5,
            atol=1e-2 if rough else 1e-6,
        )
    return traced.lower().compile().program


def composed_softmax(x: Any) -> Any:
    e = jnp.exp(x - jnp.max(x, axis=-1, keepdims=True))
    return e / jnp.sum(e, axis=-1, keepdims=True)


def composed_rms_norm(x: Any, scale: Any) -> Any:
    mean = jnp.mean(jnp.square(x), axis=-1, keepdims=True)
    return x * lax.rsqrt(mean + 1e-6) * scale


def rms_norm_in_f32(x: Any, scale: Any) -> Any:
    wide = x.astype(jnp.float32)
    mean = jnp.mean(wide * wide, axis=-1, keepdims=True)
    return scale * (wide / jnp.sqrt(mean + 1e-6)).astype(x.dtype)


def composed_layer_norm(x: Any, scale: Any, shift: Any) -> Any:
    mean, variance = (f(x, axis=-1, keepdims=True) for f in (jnp.mean, jnp.var))
    return (x - mean) / jnp.sqrt(variance + 1e-5) * scale + shift


ONE = [
    (nn.softmax, (X,)),
    (nn.softmax, (X.astype(BF16),)),
    (composed_softmax, (X,)),
    (nn.log_softmax, (X,)),
    (nn.rms_norm, (X, SCALE)),
    (composed_rms_norm, (X, SCALE)),
    (rms_norm_in_f32, (X.astype(BF16), SCALE.astype(BF16))),
    (nn.layer_norm, (X, SCALE, SHIFT)),
    (composed_layer_norm, (X, SCALE, SHIFT)),
]


@pytest.mark.parametrize(
    ("function", "args"), ONE, ids=[case[0].__name__ for case in ONE]
)
def test_one_launch(function: Callable[..., Any], args: tuple[Any, ...]):
    program = program_of(function, *args)
    assert len(program.dispatches) == 1 and len(program.body) == 1


def by_integers(logits: Any, labels: Any) -> Any:
    losses = nn.softmax_cross_entropy_with_integer_labels(logits, labels)
    return jnp.mean(losses)


def by_one_hot(logits: Any, labels: Any) -> Any:
    hot = nn.one_hot(labels, logits.shape[-1])
    return -jnp.mean(jnp.sum(hot * nn.log_softmax(logits), axis=-1))


def by_shares(logits: Any, labels: Any) -> Any:
    shares = nn.one_hot(labels, logits.shape[-1]) * 0.9 + 0.1 / logits.shape[-1]
    return jnp.mean(nn.softmax_cross_entropy(logits, shares))


@pytest.mark.parametrize("loss", [by_integers, by_one_hot, by_shares])
def test_cross_entropy_with_its_gradient_takes_two(loss: Callable[..., Any]):
    """One over the rows, gradient included, and the mean of their losses."""
    program = program_of(poot.value_and_grad(loss), X, LABELS)
    assert len(program.dispatches) <= 2 and len(program.body) <= 2
