"""standardize against jax.nn's, and the other normalizations against f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import poot
import poot.nn
from poot.core.errors import ArgumentError, ShapeError
from tests import trap_executors
from tests.nn_against_jax import Function, against_jax, dispatches, each_float, normal
from tests.numerics import Array, assert_close
from tests.trap_executors import check, f32, leaves

on_device = trap_executors.on_device
pytestmark = pytest.mark.usefixtures("on_device")

SHAPE = (3, 4, 6)
LIMIT = 8.0


def by_statistics(
    x: Array, axes: tuple[int, ...], epsilon: float, centred: bool = True
) -> Array:
    """x in f64, less its mean, over the root of the mean of squares."""
    wide = x.astype(np.float64)
    if centred:
        wide = wide - wide.mean(axes, keepdims=True)
    return wide / np.sqrt((wide * wide).mean(axes, keepdims=True) + epsilon)


def both_ways(function: Function, *operands: Array) -> list[Array]:
    """Jitted results, and of operands that are no halves eager ones as well."""
    eager = leaves(function(*operands)) if operands[0].itemsize > 2 else []
    return [*eager, *leaves(poot.jit(function)(*operands))]


def agree(function: Function, *operands: Array, right: Array) -> None:
    """Within ulps of what f64 gives, in the dtype of the first operand."""
    for found in both_ways(function, *operands):
        assert_close(found, right.astype(operands[0].dtype), LIMIT, floor=1.0)


def test_standardize() -> None:
    x = normal("standardize", *SHAPE, scale=2)

    def kinds(nn: Any, x: Any) -> list[Any]:
        return [
            nn.standardize(x),
            nn.standardize(x, (0, 2), algorithm="stable"),
            nn.standardize(x, None, epsilon=0.5),
            nn.standardize(x, 0, where=x > -1, algorithm="stable"),
            nn.standardize(x, -1, mean=x[:, :, :1], variance=x[:, :, 1:2] ** 2),
        ]

    # The mean of squares, less the square of the mean, keeps fewer digits.
    against_jax(kinds, x, ulps=32)


@each_float
def test_layer_norm(dtype: Any) -> None:
    x = normal("layer norm", *SHAPE, dtype=dtype, scale=2)
    scale, bias = normal("scale", 6), normal("bias", 6)
    nn = poot.nn
    agree(nn.layer_norm, x, right=by_statistics(x, (2,), 1e-5))
    right = by_statistics(x, (2,), 1e-5) * scale + bias
    agree(nn.layer_norm, x, scale, bias, right=right)


@each_float
def test_rms_norm(dtype: Any) -> None:
    x = normal("rms norm", *SHAPE, dtype=dtype, scale=2)
    scale = normal("scale", 6)
    right = by_statistics(x, (2,), 1e-6, centred=False) * scale
    agree(poot.nn.rms_norm, x, scale, right=right)


def test_over_other_axes() -> None:
    x = normal("axes", *SHAPE)
    scale = normal("scales", 4, 3)
    right = by_statistics(x, (0, 1), 1e-2) * scale.T[:, :, None]

    def function(x: Any, scale: Any) -> Any:
        return poot.nn.layer_norm(x, scale, axis=(1, 0), epsilon=1e-2)

    agree(function, x, scale, right=right)


def test_group_norm() -> None:
    x, scale, bias = normal("groups", 2, 3, 5, 6), normal("scale", 6), normal("bias", 6)
    apart = x.reshape(2, 15, 3, 2)
    standard = by_statistics(apart, (1, 3), 1e-5).reshape(x.shape)
    agree(
        lambda x, s, b: poot.nn.group_norm(x, 3, s, b),
        x,
        scale,
        bias,
        right=standard * scale + bias,
    )
    first = np.ascontiguousarray(np.moveaxis(x, 3, 1))
    agree(
        lambda x: poot.nn.group_norm(x, 3, feature_axis=1),
        first,
        right=np.moveaxis(standard, 3, 1),
    )


def test_batch_norm() -> None:
    x, scale, bias = normal("batch", 5, 4, 3), normal("scale", 3), normal("bias", 3)
    wide = x.astype(np.float64)
    for mean in both_ways(lambda x: poot.nn.batch_statistics(x)[0], x):
        assert_close(mean, np.float32(wide.mean((0, 1))), LIMIT, floor=1.0)
    for variance in both_ways(lambda x: poot.nn.batch_statistics(x)[1], x):
        assert_close(variance, np.float32(wide.var((0, 1))), LIMIT, floor=1.0)

    def function(x: Any, scale: Any, bias: Any) -> Any:
        return poot.nn.batch_norm(x, *poot.nn.batch_statistics(x), scale, bias)

    right = by_statistics(x, (0, 1), 1e-5) * scale + bias
    agree(function, x, scale, bias, right=right)


def test_means_far_from_0() -> None:
    """Distances are taken before squares, so that a large mean cancels nothing."""
    x = f32(4096, 4097, 4098, 4099)
    right = f32(-1.5, -0.5, 0.5, 1.5) / np.float32(1.25**0.5)

    def function(x: Any) -> Any:
        return poot.nn.layer_norm(x, epsilon=0.0)

    check(function, x, right=right, ulps=2)


def test_sums_of_halves_do_not_overflow() -> None:
    x = np.full((2, 4096), 200, np.float16)
    for found in both_ways(lambda x: poot.nn.rms_norm(x, epsilon=0.0), x):
        assert_close(found, np.ones_like(x), 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=["f32", "f16"])
def test_one_kernel_each(dtype: Any) -> None:
    x = normal("kernels", 8, 16, 32, dtype=dtype)
    scale = normal("scale", 32)
    assert dispatches(poot.nn.rms_norm, x, scale) == 1
    assert dispatches(poot.nn.layer_norm, x, scale, scale) == 1
    assert dispatches(lambda x: poot.nn.layer_norm(x, axis=(1, 2)), x) == 1
    assert dispatches(poot.nn.standardize, x) == 1


def test_refusals() -> None:
    x = normal("refusals", 4, 6)
    with pytest.raises(ShapeError, match=r"shape \(4,\) for axes \(1,\)"):
        poot.nn.layer_norm(x, x[:, 0])
    with pytest.raises(ShapeError, match="4 groups of axis 1"):
        poot.nn.group_norm(x, 4)
    with pytest.raises(ArgumentError, match="algorithm is 'quick'"):
        poot.nn.standardize(x, algorithm="quick")
