"""Activations against jax.nn: values, dtypes, large arguments, refusals."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.nn
import numpy as np
import pytest

import poot
import poot.nn
from poot.core.errors import DTypeError, ShapeError
from tests import trap_executors
from tests.nn_against_jax import Function, against_jax, dispatches, jax_jit, normal
from tests.numerics import assert_close, assert_same_bits
from tests.trap_executors import INF, NAN, check, f32, leaves

on_device = trap_executors.on_device
pytestmark = pytest.mark.usefixtures("on_device")

# fmt: off
PLAIN = [
    "identity", "relu", "relu6", "leaky_relu", "elu", "celu", "selu", "sigmoid",
    "log_sigmoid", "silu", "swish", "hard_sigmoid", "hard_silu", "hard_swish",
    "sparse_sigmoid", "tanh", "hard_tanh", "soft_sign", "softplus", "sparse_plus",
    "squareplus", "mish", "gelu", "log1mexp",
]
# fmt: on
ACTIVATIONS: dict[str, Function] = {
    name: lambda nn, x, name=name: getattr(nn, name)(x) for name in PLAIN
} | {
    "leaky_relu of a slope": lambda nn, x: nn.leaky_relu(x, 0.3),
    "elu of an alpha": lambda nn, x: nn.elu(x, 0.7),
    "celu of an alpha": lambda nn, x: nn.celu(x, 0.7),
    "squareplus of a b": lambda nn, x: nn.squareplus(x, 0.5),
    "gelu by erfc": lambda nn, x: nn.gelu(x, approximate=False),
}
# Where terms cancel both lose digits, so that results below 1 count in ulps of 1.
# JAX's tanh is -1 from -8 on, which gelu multiplies by half of such an x.
LIMIT = 4.0
FLOORS = {"gelu": 2.0}
SPECIAL = [0.0, -0.0, 1, -1, 3, -3, 6, 1e-3, 88, -88, 1e3, -1e3, INF, -INF, NAN]


def _all_of(nn: Any) -> Function:
    return lambda x: [function(nn, x) for function in ACTIVATIONS.values()]


@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=["f32", "f16"])
def test_values(dtype: Any) -> None:
    """All of them in one kernel; in f32 also op by op, to the same bits."""
    x = np.array([*np.linspace(-11, 11, 177), *SPECIAL], np.float32).astype(dtype)
    wanted = jax_jit(_all_of(jax.nn))(x)
    found = poot.jit(_all_of(poot.nn))(x)
    for name, one, right in zip(ACTIVATIONS, found, wanted, strict=True):
        assert_close(one, np.asarray(right), LIMIT, name, floor=FLOORS.get(name, 1.0))
        if dtype is np.float32:
            eager = np.asarray(ACTIVATIONS[name](poot.nn, x))
            assert_same_bits(one, eager, f"{name}, not eager")


def _traced(function: Function, x: Any) -> Any:
    """The traced value that a function gives."""
    found: list[Any] = []

    def traced() -> Any:
        found.append(function(poot.nn, x))
        return found[0]

    poot.jit(traced).trace()
    return found[0]


def test_dtypes_are_jaxs() -> None:
    operands = {
        "Python float": 0.5,
        "Python int": 2,
        "bool": np.array([True, False]),
        "i32": np.array([1, -2], np.int32),
        "u8": np.array([1, 2], np.uint8),
        "i64": np.array([1, 2]),
        "f64": np.array([0.5, 2.0]),
    }
    for name, function in ACTIVATIONS.items():
        for kind, x in operands.items():
            try:
                right = jax.eval_shape(lambda f=function, x=x: f(jax.nn, x))
            except TypeError:
                with pytest.raises(DTypeError):
                    _traced(function, x)
                continue
            found = _traced(function, x)
            both = (found.dtype, found.weak_type), (right.dtype, right.weak_type)
            assert both[0] == both[1], f"{name} of {kind}"


def test_large_arguments() -> None:
    """Every executor gives the limits, not NaN, where exp overflows on the way."""
    most = float(np.finfo(np.float32).max)
    x = f32(most, -most, 1000, -1000)
    nn = poot.nn
    check(
        lambda x: (nn.sigmoid(x), nn.softplus(x), nn.gelu(x), nn.elu(x)),
        x,
        right=(
            f32(1, 0, 1, 0),
            f32(most, 0, 1000, 0),
            f32(most, -0.0, 1000, -0.0),
            f32(most, -1, 1000, -1),
        ),
    )


def test_glu() -> None:
    x = normal("glu", 4, 6, 2, scale=3)
    for axis in (-1, 1):
        against_jax(lambda nn, x, axis=axis: nn.glu(x, axis), x, ulps=2)
    with pytest.raises(ShapeError, match="size 3, takes an even one"):
        poot.nn.glu(x[:, :3], 1)


def test_arrays_as_parameters() -> None:
    x, alpha = normal("alpha", 3, 4), np.float32([0.5, 1, 2, 3])
    against_jax(lambda nn, x, a: nn.elu(x, a), x, alpha, ulps=4)
    against_jax(lambda nn, x, a: nn.celu(x, a), x, alpha, ulps=4)
    against_jax(lambda nn, x, a: nn.leaky_relu(x, a), x, alpha, ulps=0)
    against_jax(lambda nn, x, b: nn.squareplus(x, b), x, alpha, ulps=2)


def test_one_kernel_each() -> None:
    x = normal("kernels", 8, 16)
    for name in ("gelu", "silu", "mish", "log_sigmoid", "selu", "glu"):
        assert dispatches(getattr(poot.nn, name), x) == 1, name


def test_refusals() -> None:
    for function in (poot.nn.relu, poot.nn.gelu, poot.nn.softplus):
        with pytest.raises(DTypeError, match="takes arrays and numbers, given list"):
            function([1.0, 2.0])
    with pytest.raises(DTypeError, match="takes floats, given i32"):
        poot.nn.silu(np.arange(3, dtype=np.int32))


def test_log1mexp_next_to_0_and_far_from_it() -> None:
    x = np.float32([1e-30, 1e-6, 0.5, math.log(2), 1, 20, 80, 0])
    right = [
        math.log(-math.expm1(-v)) if v < 0.7 else math.log1p(-math.exp(-v))
        for v in x[:-1].tolist()
    ]
    found = leaves((poot.nn.log1mexp(x), poot.jit(poot.nn.log1mexp)(x)))
    for one in found:
        assert_close(one[:-1], np.float32(right), 4)
        assert one[-1] == -INF
