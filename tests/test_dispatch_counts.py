"""How many launches whole functions take, as users write them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import lax, nn
from poot.core.oracle import evaluate
from poot.lowering.program import Program
from tests.cross_entropies import FORMS, POOT, indexed, of_counted, taken

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


FLAT, DEEP = (X, LABELS), (X.reshape(4, 6, 200), LABELS.reshape(4, 6))
LOSSES = {
    **{loss.__name__: (loss, FLAT) for loss in (by_integers, by_one_hot, by_shares)},
    **{
        f"{form.__name__}-3d": (partial(form, POOT), DEEP)
        for form in FORMS
        if form is not of_counted
    },
}
for form in (taken, indexed):
    LOSSES |= {
        f"{form.__name__}-2d": (partial(form, POOT), FLAT),
        f"{form.__name__}-bf16": (partial(form, POOT), (X.astype(BF16), LABELS)),
        f"{form.__name__}-one": (partial(form, POOT), (X[:1], LABELS[:1])),
    }


@pytest.mark.parametrize(("loss", "args"), LOSSES.values(), ids=LOSSES)
def test_cross_entropy_with_its_gradient_takes_two(
    loss: Callable[..., Any], args: tuple[Any, ...]
):
    """One over the rows, gradient included, and the mean of their losses."""
    program = program_of(poot.value_and_grad(loss), *args)
    assert len(program.dispatches) <= 2 and len(program.body) <= 2


def test_a_share_of_right_answers_beside_the_loss_takes_no_more():
    def loss(logits: Any, labels: Any) -> Any:
        is_right = jnp.argmax(logits, axis=-1) == labels
        return taken(POOT, logits, labels), jnp.mean(is_right.astype(jnp.float32))

    program = program_of(poot.value_and_grad(loss, has_aux=True), *DEEP)
    assert len(program.dispatches) == len(program.body) == 2


def test_a_mean_over_some_of_the_rows_takes_three():
    """How many they are comes first, as the gradient is divided by it."""
    loss = poot.value_and_grad(partial(of_counted, POOT))
    program = program_of(loss, DEEP[0], np.where(DEEP[1] < 50, -100, DEEP[1]))
    assert len(program.dispatches) == len(program.body) == 3
    # Nothing as large as the logits is kept in between.
    assert program.arena_bytes < DEEP[0].nbytes


# --- a decoder --------------------------------------------------------------

WIDTH, HEADS, KV_HEADS, HEAD, HIDDEN, CAPACITY = 32, 4, 2, 8, 48, 16


def decoder_layer(x: Any, w: Any, cache: Any, pos: Any) -> tuple[Any, Any]:
    """One token through one layer, as Llama has it."""
    at = jnp.reshape(pos, (1,))
    h = nn.rms_norm(x, w["norm"])
    q = nn.rope((h @ w["q"]).reshape(1, 1, HEADS, HEAD), at)
    k = nn.rope((h @ w["k"]).reshape(1, 1, KV_HEADS, HEAD), at)
    v = (h @ w["v"]).reshape(1, 1, KV_HEADS, HEAD)
    keys, values = (
        lax.dynamic_update_slice(old, new, (0, pos, 0, 0))
        for old, new in zip(cache, (k, v), strict=True)
    )
    wide = [jnp.repeat(part, HEADS // KV_HEADS, axis=2) for part in (keys, values)]
    scores = jnp.einsum("bthd,bchd->bhtc", q, wide[0]) / np.sqrt(HEAD)
    scores = jnp.where(jnp.arange(CAPACITY) <= pos, scores, -jnp.inf)
    mixed = jnp.einsum("bhtc,bchd->bthd", nn.softmax(scores, axis=-1), wide[1])
    x = x + mixed.reshape(1, HEADS * HEAD) @ w["o"]
    h = nn.rms_norm(x, w["norm2"])
    x = x + (nn.silu(h @ w["gate"]) * (h @ w["up"])) @ w["down"]
    return x, (keys, values)


def decoder(caches: Any, weights: Any, x: Any, pos: Any) -> Any:
    new = []
    for cache, w in zip(caches, weights, strict=True):
        x, cache = decoder_layer(x, w, cache, pos)
        new.append(cache)
    return tuple(new), x


def decoder_program(layers: int) -> Program:
    rng = np.random.default_rng(0)
    sizes = {
        "norm": (WIDTH,),
        "norm2": (WIDTH,),
        "q": (WIDTH, HEADS * HEAD),
        "k": (WIDTH, KV_HEADS * HEAD),
        "v": (WIDTH, KV_HEADS * HEAD),
        "o": (HEADS * HEAD, WIDTH),
        "gate": (WIDTH, HIDDEN),
        "up": (WIDTH, HIDDEN),
        "down": (HIDDEN, WIDTH),
    }

    def made(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32) * 0.1

    weights = [{n: made(*s) for n, s in sizes.items()} for _ in range(layers)]
    shape = 1, CAPACITY, KV_HEADS, HEAD
    caches = tuple((made(*shape), made(*shape)) for _ in range(layers))
    step = poot.jit(
        decoder, donate_argnums=0, slots={"pos": poot.slots.Pos(0, CAPACITY - 1)}
    )
    return step.lower(caches, weights, made(1, WIDTH), 3).compile().program


def test_a_decoder_layer_takes_five():
    """Rope and both cache writes are in that of q, k and v; all share the angles."""
    one, three = decoder_program(1), decoder_program(3)
    assert len(one.body) == len(one.dispatches), (
        "no copies: caches are written in place"
    )
    assert len(three.dispatches) - len(one.dispatches) <= 2 * 5
    assert len(one.dispatches) <= 5 + 1
    labels = [dispatch.label for dispatch in one.dispatches]
    assert not any("DynamicUpdateSlice" in label for label in labels[2:])
