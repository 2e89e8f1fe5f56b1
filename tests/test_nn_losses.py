"""Losses against their definitions in f64, with SciPy's care where it matters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import poot
import poot.nn
from poot.core.errors import DTypeError, ShapeError
from tests import trap_executors
from tests.nn_against_jax import dispatches, normal
from tests.numerics import Array, assert_close, rng_of
from tests.trap_executors import INF, NAN, check, f32, i32, leaves

on_device = trap_executors.on_device
pytestmark = pytest.mark.usefixtures("on_device")

nn = poot.nn
ROWS, CLASSES = 6, 5
LIMIT = 8.0


def log_softmax(x: Array, axis: Any = -1) -> Array:
    wide = x.astype(np.float64)
    return wide - np.log(np.exp(wide).sum(axis, keepdims=True))


def log_sigmoid(x: Array) -> Array:
    return -np.logaddexp(0, -x.astype(np.float64))


def shares(name: str, *shape: int) -> Array:
    """Distributions over the last axis, with zeros in them."""
    drawn = rng_of(name).random(shape) * (rng_of(name + "0").random(shape) < 0.7)
    drawn[..., 0] += 0.1
    return (drawn / drawn.sum(-1, keepdims=True)).astype(np.float32)


LOGITS, OTHERS = normal("logits", ROWS, CLASSES, scale=2), normal("o", ROWS, CLASSES)
LABELS = rng_of("labels").integers(-CLASSES, CLASSES, ROWS).astype(np.int32)
SHARES = shares("shares", ROWS, CLASSES)
SIGNS = np.sign(OTHERS)
WIDE, DIFFERENCE = LOGITS.astype(np.float64), LOGITS.astype(np.float64) - OTHERS
LOGS = np.log(np.where(SHARES == 0, 1, SHARES.astype(np.float64)))


def unit(x: Array) -> Array:
    return x / np.sqrt((x.astype(np.float64) ** 2).sum(-1, keepdims=True))


# Function, operands, what f64 gives.
CASES: dict[str, tuple[Callable[..., Any], tuple[Array, ...], Array]] = {
    "cross entropy": (
        nn.softmax_cross_entropy,
        (LOGITS, SHARES),
        -(SHARES * log_softmax(LOGITS)).sum(-1),
    ),
    "cross entropy over two axes": (
        lambda x, y: nn.softmax_cross_entropy(x, y, (0, 1)),
        (LOGITS, SHARES),
        -(SHARES * log_softmax(LOGITS, (0, 1))).sum(),
    ),
    "safe cross entropy": (
        nn.safe_softmax_cross_entropy,
        (LOGITS, SHARES),
        -(SHARES * log_softmax(LOGITS)).sum(-1),
    ),
    "cross entropy of integers": (
        nn.softmax_cross_entropy_with_integer_labels,
        (LOGITS, LABELS),
        -np.take_along_axis(log_softmax(LOGITS), LABELS[:, None] % CLASSES, -1)[:, 0],
    ),
    "cross entropy of integers over the first axis": (
        lambda x, y: nn.softmax_cross_entropy_with_integer_labels(x, y, 0),
        (LOGITS, LABELS[:CLASSES]),
        -np.take_along_axis(log_softmax(LOGITS, 0), LABELS[None, :CLASSES] % ROWS, 0)[
            0
        ],
    ),
    "cross entropy of integers over two axes": (
        lambda x, y: nn.softmax_cross_entropy_with_integer_labels(x, y, (1, 0)),
        (LOGITS, np.int32(17)),
        -log_softmax(LOGITS, (0, 1)).T.reshape(-1)[17],
    ),
    "binary cross entropy": (
        nn.sigmoid_binary_cross_entropy,
        (LOGITS, SHARES),
        -SHARES * log_sigmoid(LOGITS) - (1 - WIDE * 0 - SHARES) * log_sigmoid(-LOGITS),
    ),
    "divergence": (
        nn.kl_divergence,
        (LOGITS, SHARES),
        (SHARES * (LOGS - WIDE)).sum(-1),
    ),
    "divergence of logarithms": (
        nn.kl_divergence_with_log_targets,
        (LOGITS, OTHERS),
        (np.exp(OTHERS.astype(np.float64)) * -DIFFERENCE).sum(-1),
    ),
    "hinge": (nn.hinge_loss, (LOGITS, SIGNS), np.maximum(0, 1 - WIDE * SIGNS)),
    "squared": (nn.squared_error, (LOGITS, OTHERS), DIFFERENCE**2),
    "squared from 0": (nn.squared_error, (LOGITS,), WIDE**2),
    "half squared": (nn.l2_loss, (LOGITS, OTHERS), DIFFERENCE**2 / 2),
    "huber": (
        lambda x, y: nn.huber_loss(x, y, delta=0.75),
        (LOGITS, OTHERS),
        np.where(
            abs(DIFFERENCE) < 0.75,
            DIFFERENCE**2 / 2,
            0.75 * (abs(DIFFERENCE) - 0.375),
        ),
    ),
    "log of cosh": (nn.log_cosh, (LOGITS, OTHERS), np.log(np.cosh(DIFFERENCE))),
    "cosine": (
        nn.cosine_similarity,
        (LOGITS, OTHERS),
        (unit(LOGITS) * unit(OTHERS)).sum(-1),
    ),
    "cosine distance": (
        nn.cosine_distance,
        (LOGITS, OTHERS),
        1 - (unit(LOGITS) * unit(OTHERS)).sum(-1),
    ),
}


def test_values() -> None:
    """All jitted at once, and each op by op."""
    jitted = poot.jit(lambda: [f(*operands) for f, operands, _ in CASES.values()])()
    for found, (name, case) in zip(jitted, CASES.items(), strict=True):
        function, operands, right = case
        for mode, one in (("jitted", found), ("eager", function(*operands))):
            where = f"{name}, {mode}"
            assert_close(one, np.float32(right), LIMIT, where, floor=1.0)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["f16", "bf16"])
def test_halves_are_rounded_once(dtype: Any) -> None:
    """What f32 gives for the same numbers, rounded to the half."""
    x, y = LOGITS.astype(dtype), SHARES.astype(dtype)

    def losses(x: Any, y: Any) -> list[Any]:
        return [
            nn.softmax_cross_entropy(x, y),
            nn.softmax_cross_entropy_with_integer_labels(x, LABELS),
            nn.sigmoid_binary_cross_entropy(x, y),
            nn.kl_divergence(x, y),
            nn.huber_loss(x, y),
            nn.cosine_similarity(x, y),
        ]

    wide = leaves(poot.jit(losses)(x.astype(np.float32), y.astype(np.float32)))
    for one, right in zip(poot.jit(losses)(x, y), wide, strict=True):
        assert_close(one, right.astype(dtype), 0)


def test_masks_of_classes_and_of_examples() -> None:
    mask = rng_of("mask").random((ROWS, CLASSES)) < 0.7
    mask[0] = False
    total = np.where(mask, np.exp(WIDE), 0).sum(-1, keepdims=True)
    logs = WIDE - np.log(np.where(total == 0, 1, total))
    right = -np.where(mask, SHARES * logs, 0).sum(-1)
    examples = mask[:, 1]
    whole = np.where(examples, -(SHARES * log_softmax(LOGITS)).sum(-1), 0)
    function = nn.softmax_cross_entropy
    for where, wanted in ((mask, right), (examples, whole)):
        for one in (
            function(LOGITS, SHARES, where=where),
            poot.jit(lambda x, y, w: function(x, y, where=w))(LOGITS, SHARES, where),
        ):
            assert_close(np.asarray(one) + 0, np.float32(wanted) + 0, LIMIT, floor=1.0)


def test_masks_of_integer_labels() -> None:
    """A label's own logit counts in the numerator, whether masked or not."""
    mask = rng_of("mask").random((ROWS, CLASSES)) < 0.6
    mask[0] = False
    total = np.where(mask, np.exp(WIDE), 0).sum(-1)
    chosen = np.take_along_axis(WIDE, LABELS[:, None] % CLASSES, -1)[:, 0]
    right = np.where(total == 0, 0, np.log(np.where(total == 0, 1, total)) - chosen)
    function = nn.softmax_cross_entropy_with_integer_labels
    found = poot.jit(lambda x, y, w: function(x, y, where=w))(LOGITS, LABELS, mask)
    assert_close(found, np.float32(right), LIMIT, floor=1.0)
    ones = np.full(ROWS, True)
    found = poot.jit(lambda x, y, w: function(x, y, where=w))(LOGITS, LABELS, ones)
    assert_close(found, np.asarray(function(LOGITS, LABELS)), 0)


def test_labels_out_of_range_and_logits_of_inf() -> None:
    x = f32(1, 2, -INF, 1, 2, -INF, 3e38, -3e38, 0, 5, 5, 5).reshape(4, 3)
    check(
        nn.softmax_cross_entropy_with_integer_labels,
        x,
        i32(2, 3, 0, -4),
        right=f32(INF, NAN, 0, NAN),
    )
    check(
        nn.softmax_cross_entropy_with_integer_labels,
        x,
        i32(0, 1, 1, -1),
        right=f32(np.log1p(np.e), np.log1p(1 / np.e), INF, np.log(3)),
        ulps=2,
    )
    certain = f32(0, 1, 0)
    check(
        nn.safe_softmax_cross_entropy,
        f32(0, 0, -INF),
        certain,
        right=f32(np.log(2))[0],
        ulps=1,
    )
    check(
        nn.sigmoid_binary_cross_entropy,
        f32(1000, -1000),
        f32(0, 1),
        right=f32(1e3, 1e3),
    )
    check(nn.log_cosh, f32(1000), right=f32(1000 - np.log(2)))


def test_vectors_of_0_have_an_angle_only_by_an_epsilon() -> None:
    x, zero = f32(3, 4), f32(0, 0)
    assert np.isnan(nn.cosine_similarity(x, zero))
    assert float(nn.cosine_similarity(x, zero, epsilon=1e-6)) == 0
    half = nn.cosine_similarity(x, x, epsilon=50.0)
    assert_close(half, np.float32(0.5), 2)


def test_dtypes_meet() -> None:
    half = LOGITS.astype(np.float16)
    assert nn.squared_error(half, OTHERS).dtype == np.float32
    assert nn.squared_error(half, 0.5).dtype == np.float16
    assert nn.sigmoid_binary_cross_entropy(half, OTHERS).dtype == np.float16
    assert nn.softmax_cross_entropy(half, LABELS[:CLASSES]).dtype == np.float16


def test_one_kernel_each() -> None:
    x, y = normal("x", 32, 48), shares("y", 32, 48)
    labels = np.zeros(32, np.int32)
    assert dispatches(nn.softmax_cross_entropy, x, y) == 1
    assert dispatches(nn.softmax_cross_entropy_with_integer_labels, x, labels) == 1
    assert dispatches(nn.sigmoid_binary_cross_entropy, x, y) == 1
    assert dispatches(nn.kl_divergence, x, y) == 1
    assert dispatches(nn.cosine_similarity, x, y) == 1


def test_refusals() -> None:
    with pytest.raises(DTypeError, match="takes floats, given i32"):
        nn.softmax_cross_entropy(LABELS, SHARES)
    with pytest.raises(DTypeError, match="labels are f32"):
        nn.softmax_cross_entropy_with_integer_labels(LOGITS, SHARES[:, 0])
    with pytest.raises(ShapeError, match=r"labels have shape \(5,\)"):
        nn.softmax_cross_entropy_with_integer_labels(LOGITS, LABELS[:5])
    with pytest.raises(DTypeError, match="takes floats, given i32"):
        nn.squared_error(LABELS)
