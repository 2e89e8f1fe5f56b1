"""softmax and its kin, and one_hot, against jax.nn; the traps of rows without a sum."""

from __future__ import annotations

from typing import Any

import jax
import jax.nn
import ml_dtypes
import numpy as np
import pytest

import poot
import poot.nn
from poot.core.errors import DTypeError, ShapeError
from tests import trap_executors
from tests.nn_against_jax import Function, against_jax, dispatches, normal
from tests.numerics import assert_close, rng_of
from tests.trap_executors import INF, NAN, check, f32

on_device = trap_executors.on_device
pytestmark = pytest.mark.usefixtures("on_device")

SHAPE = (3, 4, 5)


def mask(name: str) -> Any:
    """Three of four elements, with one row of none."""
    some = rng_of(name).random(SHAPE) < 0.75
    some[1, 2] = False
    return some


def softmaxes(nn: Any, x: Any, where: Any = None) -> list[Any]:
    """Over each kind of axis that they take; of halves over two."""
    functions = nn.softmax, nn.log_softmax
    axes: tuple[Any, ...] = (-1, (0, 2), 0, None)
    chosen = axes if x.dtype.itemsize > 2 else axes[:2]
    return [f(x, axis, where) for f in functions for axis in chosen]


def sums(nn: Any, x: Any, b: Any, where: Any) -> list[Any]:
    """logsumexp and logmeanexp over each kind of axis, and with each argument."""
    return [
        nn.logsumexp(x),
        nn.logsumexp(x, -1, keepdims=True),
        nn.logsumexp(x, (0, 2), where=where),
        nn.logsumexp(x, 1, b=b),
        *nn.logsumexp(x, (0, 1), b=b, return_sign=True, where=where, keepdims=True),
        *nn.logsumexp(x, 0, return_sign=True),
        nn.logmeanexp(x, -1),
        nn.logmeanexp(x, (0, 1), where=where, keepdims=True),
        nn.logmeanexp(x),
    ]


# 8 ulps of 1: a row's logarithm is taken off numbers a few times as large as itself.
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16], ids=["f32", "bf16"])
def test_softmax_and_log_softmax(dtype: Any) -> None:
    x = normal("softmax", *SHAPE, dtype=dtype, scale=3)
    against_jax(softmaxes, x, ulps=8)
    against_jax(softmaxes, x, mask("softmax"), ulps=8, eager=dtype is np.float32)


def test_logsumexp_and_logmeanexp() -> None:
    x, b = normal("logsumexp", *SHAPE, scale=3), normal("weights", *SHAPE)
    b[0, 0] = 0
    against_jax(sums, x, b, mask("logsumexp"), ulps=8, eager=True)


def test_integers_and_weights_that_broadcast() -> None:
    x = np.int32([[1, 2, 3], [-4, 5, 600]])
    with np.errstate(invalid="ignore"):  # JAX casts -inf to an integer.
        against_jax(lambda nn, x: (nn.softmax(x), nn.log_softmax(x)), x, ulps=4)
    b = np.int32([[2], [0]])
    against_jax(lambda nn, x, b: nn.logsumexp(x, -1, b=b), x, b, ulps=4)
    against_jax(lambda nn, x, b: nn.logsumexp(x, b=b[:1, :1]), x, b, ulps=4)
    found = poot.nn.logsumexp(0.5), poot.nn.logsumexp(2, b=3.0)
    for one, right in zip(found, (0.5, 2 + np.log(3)), strict=True):
        assert_close(one, np.float32(right), 1)


def test_logsumexp_and_softmax_with_inf() -> None:
    """The trap's rows, and those of one kind only, on every executor."""
    rows = f32(*[-INF] * 3, 0, -INF, 0, INF, 0, -INF, NAN, 1, 2).reshape(4, 3)
    nn = poot.nn
    half = f32(0.5)[0]
    check(
        lambda x: (nn.softmax(x), nn.log_softmax(x), nn.logsumexp(x, -1)),
        rows,
        right=(
            f32(*[NAN] * 3, half, 0, half, *[NAN] * 6).reshape(4, 3),
            f32(*[NAN] * 3, np.log(half), -INF, np.log(half), *[NAN] * 6).reshape(4, 3),
            f32(-INF, np.log(2), INF, NAN),
        ),
        ulps=1,
    )


def test_rows_of_nothing() -> None:
    """Softmax of no element, and of none that counts."""
    empty = np.zeros((2, 0), np.float32)
    nn = poot.nn
    check(
        lambda x: (nn.softmax(x), nn.log_softmax(x), nn.logsumexp(x, -1)),
        empty,
        right=(empty, empty, f32(-INF, -INF)),
        fused=False,
    )
    none = np.zeros((2, 3), bool)
    ones = np.ones((2, 3), np.float32)
    check(
        lambda x, where: (
            nn.softmax(x, where=where),
            nn.log_softmax(x, where=where),
            nn.logsumexp(x, -1, where=where),
        ),
        ones,
        none,
        right=(0 * ones, -INF * ones, f32(-INF, -INF)),
    )


def test_large_elements_do_not_overflow() -> None:
    x = f32(3e38, 3e38, -3e38, 1e30)
    half = np.float32(0.5)
    check(
        lambda x: (poot.nn.softmax(x), poot.nn.logsumexp(x)),
        x,
        right=(f32(half, half, 0, 0), f32(3e38)[0]),
    )


@pytest.mark.parametrize(
    "function",
    [
        poot.nn.softmax,
        poot.nn.log_softmax,
        lambda x: poot.nn.softmax(x, (1, 2)),
        lambda x: poot.nn.logsumexp(x, -1),
        lambda x: poot.nn.logsumexp(x, -1, b=x),
        lambda x: poot.nn.softmax(x, where=x > 0),
    ],
)
def test_one_kernel_each(function: Function) -> None:
    assert dispatches(function, normal("kernels", 3, 8, 16)) == 1


# --- one_hot ----------------------------------------------------------------


def test_one_hot() -> None:
    x = np.int32([[0, 2, -1], [3, 4, 5]])

    def vectors(nn: Any, x: Any) -> list[Any]:
        return [
            nn.one_hot(x, 4),
            nn.one_hot(x, 4, axis=0),
            nn.one_hot(x, 5, axis=-2, dtype=np.int32),
            nn.one_hot(x, 1, dtype=bool),
            nn.one_hot(x, 0),
        ]

    against_jax(vectors, x, ulps=0, eager=True)
    against_jax(vectors, x.astype(np.uint8), ulps=0)
    wanted = np.asarray(jax.nn.one_hot(2, 3))
    assert_close(poot.nn.one_hot(2, 3), wanted, 0)
    assert_close(poot.nn.one_hot([2], 3), wanted[None], 0)


def test_one_hot_along_a_mapped_axis() -> None:
    x = np.int32([0, 2, 1, 7])

    def vectors(x: Any) -> Any:
        return poot.nn.one_hot(x, 3, axis="classes")

    mapped = poot.vmap(vectors, None, -1, axis_name="classes", axis_size=3)
    assert_close(mapped(x), np.asarray(jax.nn.one_hot(x, 3)), 0)
    wide = poot.vmap(vectors, None, axis_name="classes", axis_size=4)
    with pytest.raises(ShapeError, match="3 classes along axis 'classes'"):
        wide(x)


def test_narrow_integers_name_no_class_twice() -> None:
    found = np.asarray(poot.nn.one_hot(np.int8([0, 127, -1]), 300))
    assert np.argwhere(found).tolist() == [[0, 0], [1, 127]]


def test_refusals() -> None:
    with pytest.raises(DTypeError, match="takes integers, given f32"):
        poot.nn.one_hot(f32(1, 2), 3)
    with pytest.raises(ShapeError, match="num_classes is -1"):
        poot.nn.one_hot(np.int32([1]), -1)
    with pytest.raises(ShapeError, match="axis 2 is out of range"):
        poot.nn.softmax(np.ones((2, 2), np.float32), 2)
