"""`poot.testing.check_grads`: what it accepts and what it finds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import lax
from poot.core.errors import ArgumentError, GradientError
from poot.testing import check_grads
from tests import backends
from tests.numerics import rng_of

oracle_backend = backends.oracle_backend
pytestmark = pytest.mark.usefixtures("oracle_backend")


def normal(name: str, *shape: int, dtype: Any = np.float32) -> Any:
    return rng_of(name).standard_normal(shape).astype(dtype)


X = normal("check_grads", 2, 3)


@poot.custom_jvp
def doubled_slope(x: Any) -> Any:
    """sin, with a slope that is twice too large at its second element."""
    return jnp.sin(x)


@doubled_slope.defjvp
def _doubled_slope_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (dx,) = primals, tangents
    factor = jnp.array([[1, 2, 1], [1, 1, 1]], x.dtype)
    return doubled_slope(x), factor * jnp.cos(x) * dx


@poot.custom_vjp
def lost_argument(x: Any, y: Any) -> Any:
    """x * y, whose rule says that y does not matter."""
    return x * y


lost_argument.defvjp(lambda x, y: (x * y, y), lambda y, ct: (ct * y, None))


@poot.custom_jvp
def other_value(x: Any) -> Any:
    return jnp.sin(x)


@other_value.defjvp
def _other_value_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (dx,) = primals, tangents
    return jnp.sin(x) + 1, jnp.cos(x) * dx


FUNCTIONS: dict[str, Any] = {
    "elementwise": (lambda x: jnp.tanh(x) * jnp.exp(-x * x), (X,)),
    "trees": (
        lambda p, y: {"u": jnp.sin(p["a"]) @ y, "v": [p["b"] * p["a"].sum()]},
        ({"a": X, "b": np.float32(2)}, normal("y", 3)),
    ),
    "integers": (lambda x, i: (x[i] * 2, i + 1), (X, np.array([1, 0], np.int32))),
    "scan": (
        lambda w, x: lax.scan(lambda h, a: (jnp.tanh(h @ w + a), h.sum()), x[0], x),
        (normal("w", 3, 3), X),
    ),
    "cond": (lambda x: lax.cond(x.sum() > 0, jnp.sin, lambda x: x * x, x), (X,)),
    "pinned": (lambda x: jnp.sin(x.astype(np.float32)) * x, (X,)),
    "half": (lambda x: jnp.sin(x) * x, (X.astype(np.float16),)),
    "pinned half": (lambda x: jnp.sin(x.astype(np.float16)), (X.astype(np.float16),)),
    "one argument": (jnp.sin, X),
    "python numbers": (lambda x, y: x**3 * y, (0.5, 2.0)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_right_derivatives_pass_to_order_2(name: str) -> None:
    function, args = FUNCTIONS[name]
    check_grads(function, args, order=1 if "pinned" in name else 2)


def test_wide_arguments_are_held_to_less() -> None:
    with poot.config.override(enable_x64=True):
        x = X.astype(np.float64)
        check_grads(lambda x: jnp.tanh(x).sum(0), (x,), 2)
        with pytest.raises(GradientError, match="1e-06"):
            check_grads(slightly_off, (x,), 1)
    check_grads(slightly_off, (X,), 1)


@poot.custom_jvp
def slightly_off(x: Any) -> Any:
    return jnp.sin(x)


@slightly_off.defjvp
def _slightly_off_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (dx,) = primals, tangents
    return jnp.sin(x), jnp.cos(x) * dx * 1.0001


def test_wrong_derivatives_are_found_and_named() -> None:
    with pytest.raises(GradientError) as caught:
        check_grads(doubled_slope, (X,), 1, ["fwd"])
    message = str(caught.value)
    assert "`doubled_slope`, fwd: the tangent of result is" in message
    assert " at [0, 1], by differences of step 1.52588e-05 in f64" in message
    with pytest.raises(GradientError, match=r"rev: the cotangent of args\[0\]"):
        check_grads(doubled_slope, (X,), 1, ["rev"])
    with pytest.raises(GradientError, match=r"rev: the cotangent of args\[1\]"):
        check_grads(lost_argument, (X, X + 1), 1, ["rev"])
    with pytest.raises(GradientError, match=r"the value result .*the function itself"):
        check_grads(other_value, (X,), 1)


def test_wrong_second_derivatives_are_found() -> None:
    """The first order is right: its fault is in what the rule itself calls."""

    @poot.custom_jvp
    def sine(x: Any) -> Any:
        return jnp.sin(x)

    @sine.defjvp
    def _rule(primals: Any, tangents: Any) -> Any:
        (x,), (dx,) = primals, tangents
        return sine(x), lax.stop_gradient(jnp.cos(x)) * dx

    check_grads(sine, (X,), 1)
    for modes, path in ((["fwd"], "fwd, then fwd"), (["rev"], "rev, then rev")):
        with pytest.raises(GradientError, match=path):
            check_grads(sine, (X,), 2, modes)


def test_kinks_and_infinities_are_no_derivatives() -> None:
    zero = np.zeros(1, np.float32)
    with pytest.raises(GradientError, match="the tangent of result"):
        check_grads(lambda x: jnp.where(x > 0, x / 2, 2 * x), (zero,), 1)
    with pytest.raises(GradientError, match="is inf"):
        check_grads(jnp.sqrt, (zero,), 1)


def test_tolerances_and_steps_are_the_callers() -> None:
    with pytest.raises(GradientError, match=r"step 0\.5 in f64"):
        check_grads(jnp.exp, (X,), 1, eps=0.5)
    check_grads(jnp.exp, (X,), 1, eps=0.5, rtol=0.1)
    check_grads(doubled_slope, (X,), 1, atol=2, rtol=0)


def test_arguments_are_checked() -> None:
    with pytest.raises(ArgumentError, match="'forward'"):
        check_grads(jnp.sin, (X,), 1, ["forward"])
    with pytest.raises(ArgumentError, match="order is 0"):
        check_grads(jnp.sin, (X,), 0)
    with pytest.raises(ArgumentError, match="no floats"):
        check_grads(jnp.sin, (3,), 1)
    with pytest.raises(ArgumentError, match="takes a function"):
        check_grads(X, (X,), 1)
    assert issubclass(GradientError, AssertionError)
