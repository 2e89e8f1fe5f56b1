"""Derivatives of poot.nn's functions: jax.nn's, or those of the definitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.nn
import jax.numpy
import numpy as np
import pytest

import poot
import poot.nn
import poot.numpy as jnp
from tests import trap_executors
from tests.nn_against_jax import Function, jax_jit, normal
from tests.numerics import Array, assert_close, rng_of
from tests.test_nn_activations import ACTIVATIONS
from tests.test_nn_attention import CASES as ATTENTIONS
from tests.test_nn_attention import operands as attention_operands
from tests.test_nn_losses import LABELS, LOGITS, OTHERS, SHARES
from tests.trap_executors import INF, NAN, f32, leaves

on_device = trap_executors.on_device
pytestmark = pytest.mark.usefixtures("on_device")

nn = poot.nn
# Corners, ties and numbers at which what happens on the way overflows.
POINTS = f32(*np.linspace(-11, 11, 45), 0, -0.0, 1, -1, 3, -3, 6, 88, -88, 1e3, -1e3)
EDGES = f32(INF, -INF, NAN)
# In ulps of 1. JAX's tanh is some off below 1, and these slopes multiply its distance
# from 1 by powers of x.
LIMITS = {"gelu": 128.0, "mish": 32.0}


def same(found: Any, wanted: Any, limit: float, where: str = "") -> None:
    """Within ulps of 1 or more; zeros of either sign are one."""
    pairs = zip(leaves(found), jax.tree.leaves(wanted), strict=True)
    for number, (one, other) in enumerate(pairs):
        right = np.asarray(other, one.dtype) + 0
        assert_close(one + 0, right, limit, f"{where}, result {number}", floor=1.0)


def slopes(module: Any, function: Function, order: int = 1) -> Function:
    """The derivative of an elementwise function, by reverse mode."""
    for _ in range(order):
        function = module.grad(lambda x, f=function: f(x).sum())
    return function


def pulled(module: Any, function: Function) -> Function:
    """The cotangents of operands for those of the results, which come last."""

    def pull(operands: Any, cotangents: Any) -> Any:
        return module.vjp(function, *operands)[1](cotangents)

    return pull


def compare(
    function: Function, *operands: Array, limit: float, where: str = ""
) -> None:
    """What poot and JAX pull back of random cotangents."""
    results = jax.eval_shape(lambda *xs: function(jax.nn, *xs), *operands)
    cotangents = jax.tree.map(lambda x: normal(str(x.shape), *x.shape), results)
    right = jax_jit(pulled(jax, lambda *xs: function(jax.nn, *xs)))(
        operands, cotangents
    )
    found = poot.jit(pulled(poot, lambda *xs: function(nn, *xs)))(operands, cotangents)
    same(found, right, limit, where)


# --- activations ------------------------------------------------------------


def test_slopes_of_activations() -> None:
    def all_of(module: Any, nn: Any) -> Function:
        return lambda x: [
            slopes(module, lambda x, f=f: f(nn, x))(x) for f in ACTIVATIONS.values()
        ]

    x = np.concatenate([POINTS, EDGES])
    found = poot.jit(all_of(poot, nn))(x)
    wanted = jax_jit(all_of(jax, jax.nn))(x)
    for name, one, right in zip(ACTIVATIONS, found, wanted, strict=True):
        count = len(POINTS) if name == "gelu" else len(x)
        same(one[:count], right[:count], LIMITS.get(name, 4.0), name)


def test_gelu_far_out() -> None:
    """The cube overflows, and 0 times its derivative is NaN in JAX."""
    for dtype, most in ((np.float32, 3e38), (np.float16, 6e4)):
        x = np.array([-13.25, -100, -most, 20.625, most], dtype)
        same(slopes(poot, nn.gelu)(x), [np.array([0, 0, 0, 1, 1])], 0)


def test_second_derivatives() -> None:
    smooth = {
        "log_sigmoid": lambda nn, x: nn.log_sigmoid(x),
        "silu": lambda nn, x: nn.silu(x),
        "gelu": lambda nn, x: nn.gelu(x, approximate=False),
        "squareplus": lambda nn, x: nn.squareplus(x),
        "relu": lambda nn, x: nn.relu(x) ** 2,
    }
    x = f32(-1000, -20, -3, -0.5, 0, 0.25, 1, 4, 30, 1000)

    def all_of(module: Any, nn: Any) -> Function:
        return lambda x: [
            slopes(module, lambda x, f=f: f(nn, x), 2)(x) for f in smooth.values()
        ]

    found = poot.jit(all_of(poot, nn))(x)
    wanted = jax_jit(all_of(jax, jax.nn))(x)
    for name, one, right in zip(smooth, found, wanted, strict=True):
        same(one, right, 8, name)


def test_forward_mode() -> None:
    names = ("relu", "softplus", "silu", "log1mexp", "softmax", "logsumexp")

    def pushed(module: Any, nn: Any) -> Function:
        return lambda x, dx: [
            module.jvp(getattr(nn, name), (x,), (dx,)) for name in names
        ]

    operands = f32(0.5, 1, 2), f32(1, -2, 3)
    same(
        poot.jit(pushed(poot, nn))(*operands),
        jax_jit(pushed(jax, jax.nn))(*operands),
        4,
    )


# --- rows -------------------------------------------------------------------


def test_softmax_and_its_kin() -> None:
    x, b = normal("x", 3, 4, 5, scale=3), normal("b", 3, 4, 5)
    mask = rng_of("mask").random(x.shape) < 0.7
    mask[1, 2] = False

    def kin(nn: Any, x: Any, b: Any) -> list[Any]:
        return [
            nn.softmax(x),
            nn.softmax(x, (0, 2)),
            nn.softmax(x, 1, where=mask),
            nn.log_softmax(x),
            nn.log_softmax(x, None),
            nn.logsumexp(x, -1),
            nn.logsumexp(x, (0, 1), where=mask),
            nn.logsumexp(x, 1, b=b, return_sign=True)[0],
            nn.logmeanexp(x),
            nn.standardize(x, algorithm="stable"),
            nn.standardize(x, 0),
            nn.glu(x, 1),
        ]

    compare(kin, x, b, limit=64)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_rows_without_anything_that_counts(name: str) -> None:
    """0 or NaN where JAX gives them."""
    x, mask = normal("masked", 2, 3), np.array([[False] * 3, [True, False, True]])
    compare(lambda nn, x: getattr(nn, name)(x, where=mask), x, limit=8)
    rows = f32(-INF, 0, 0, -INF, -INF, -INF, 3e38, 3e38, 0).reshape(3, 3)
    compare(lambda nn, x: getattr(nn, name)(x), rows, limit=8)


def test_normalizations() -> None:
    x, scale, bias = normal("x", 6, 8, scale=2), normal("s", 8), normal("b", 8)

    def norms(module: Any, x: Any, scale: Any, bias: Any) -> list[Any]:
        if module is nn:
            return [nn.layer_norm(x, scale, bias), nn.rms_norm(x, scale)]
        centred = x - x.mean(-1, keepdims=True)
        root = jax.numpy.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        length = jax.numpy.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
        return [centred / root * scale + bias, x / length * scale]

    compare(norms, x, scale, bias, limit=32)


# --- attention --------------------------------------------------------------


@pytest.mark.parametrize("case", ["shared bias", "everything"])
def test_attention(case: str) -> None:
    options = dict(ATTENTIONS[case])
    bias = options.pop("bias", np.zeros((1, 1, 1, 1), np.float32))

    def attention(nn: Any, q: Any, k: Any, v: Any, bias: Any) -> Any:
        return nn.dot_product_attention(q, k, v, bias, **options)

    compare(attention, *attention_operands(), bias, limit=64, where=case)


def test_attention_of_a_batch_is_a_map_of_attentions() -> None:
    q, k, v = attention_operands()

    def attention(q: Any, k: Any, v: Any) -> Any:
        return nn.dot_product_attention(q, k, v, is_causal=True)

    found = poot.jit(poot.vmap(attention))(q, k, v)
    same(found, np.asarray(attention(q, k, v)), 4)


def test_rope_pulls_by_turning_back() -> None:
    x, ct = normal("x", 5, 2, 8), normal("ct", 5, 2, 8)
    places = np.int32([0, 1, 4, 9, 30])
    for interleaved in (False, True):

        def turn(x: Any, sign: int = 1, interleaved: bool = interleaved) -> Any:
            return nn.rope(x, sign * places, interleaved=interleaved, dimensions=6)

        found = poot.jit(lambda x, ct, f=turn: poot.vjp(f, x)[1](ct))(x, ct)
        same(found, np.asarray(turn(ct, -1)), 4)


# --- losses -----------------------------------------------------------------

ERRORS = LOGITS - OTHERS
CHANCES = np.exp(LOGITS) / np.exp(LOGITS).sum(-1, keepdims=True)
ONE_HOT = np.eye(LOGITS.shape[1], dtype=np.float32)[LABELS]
SLOPES: dict[str, tuple[Callable[[Any], Any], Array]] = {
    "cross entropy": (
        lambda x: nn.softmax_cross_entropy(x, SHARES),
        CHANCES - SHARES,
    ),
    "safe cross entropy": (
        lambda x: nn.safe_softmax_cross_entropy(x, SHARES),
        CHANCES - SHARES,
    ),
    "cross entropy of integers": (
        lambda x: nn.softmax_cross_entropy_with_integer_labels(x, LABELS),
        CHANCES - ONE_HOT,
    ),
    "binary cross entropy": (
        lambda x: nn.sigmoid_binary_cross_entropy(x, SHARES),
        1 / (1 + np.exp(-LOGITS)) - SHARES,
    ),
    "divergence": (lambda x: nn.kl_divergence(x, SHARES), -SHARES),
    "half squared": (lambda x: nn.l2_loss(x, OTHERS), ERRORS),
    "huber": (
        lambda x: nn.huber_loss(x, OTHERS, delta=0.5),
        np.clip(ERRORS, -0.5, 0.5),
    ),
    "log of cosh": (lambda x: nn.log_cosh(x, OTHERS), np.tanh(ERRORS)),
}


def test_slopes_of_losses() -> None:
    found = poot.jit(lambda x: [slopes(poot, f)(x) for f, _ in SLOPES.values()])(LOGITS)
    for (name, (_, right)), one in zip(SLOPES.items(), found, strict=True):
        same(one, right, 8, name)


def test_slopes_of_losses_at_their_corners() -> None:
    found = slopes(poot, lambda x: nn.huber_loss(x, f32(0, 0, 0)))(f32(0, 1, -1))
    same(found, f32(0, 1, -1), 0)
    x = f32(0, 0, -INF)
    found = slopes(poot, lambda x: nn.safe_softmax_cross_entropy(x, f32(0, 1, 0)))(x)
    same(found, f32(0.5, -0.5, 0), 2)
    found = slopes(poot, lambda x: nn.sigmoid_binary_cross_entropy(x, f32(0, 1)))
    same(found(f32(1000, -1000)), f32(1, -1), 0)
    found = slopes(poot, lambda x: nn.log_cosh(x))(f32(0, 1000, -1000))
    same(found, f32(0, 1, -1), 0)


def test_cosines_do_not_change_along_the_vectors() -> None:
    x, y = normal("x", 4, 6), normal("y", 4, 6)
    pull = poot.grad(lambda x: nn.cosine_similarity(x, y).sum())
    same(jnp.sum(pull(x) * x, -1), np.zeros(4), 4)
    wide, other = x.astype(np.float64), y.astype(np.float64)
    one = wide / np.linalg.norm(wide, axis=-1, keepdims=True)
    two = other / np.linalg.norm(other, axis=-1, keepdims=True)
    cosine = (one * two).sum(-1, keepdims=True)
    right = (two - cosine * one) / np.linalg.norm(wide, axis=-1, keepdims=True)
    same(pull(x), right, 8)


# --- second order -----------------------------------------------------------


def _norms(x: Any, scale: Any, bias: Any) -> Any:
    normal = nn.layer_norm(x, scale, bias), nn.rms_norm(x, scale, axis=0)
    grouped = nn.group_norm(x, 2, bias), nn.batch_norm(x, *nn.batch_statistics(x))
    return normal, grouped


def _losses(x: Any, y: Any) -> Any:
    shares = nn.softmax(y)
    return (
        nn.softmax_cross_entropy(x, shares),
        nn.softmax_cross_entropy_with_integer_labels(x, np.int32([0, 1, -1, 2])),
        nn.sigmoid_binary_cross_entropy(x, shares),
        nn.kl_divergence(x, shares),
        nn.log_cosh(x, y),
        nn.cosine_similarity(x, y),
    )


def _attention(q: Any, k: Any, v: Any, bias: Any) -> Any:
    turned = nn.rope(q, dimensions=2), nn.rope(k, interleaved=True)
    return nn.dot_product_attention(*turned, v, bias, is_causal=True)


def test_second_order() -> None:
    """Forward and reverse, against finite differences of f64."""
    square = normal("square", 4, 4), normal("scale", 4), normal("bias", 4)
    poot.testing.check_grads(_norms, square, order=2)
    rows = normal("rows", 4, 3), normal("others", 4, 3)
    poot.testing.check_grads(_losses, rows, order=2)
    heads = normal("q", 3, 2, 4), normal("k", 3, 1, 4), normal("v", 3, 1, 4)
    poot.testing.check_grads(_attention, (*heads, normal("b", 2, 3, 3)), order=2)
