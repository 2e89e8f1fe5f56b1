"""Traps of derivatives and batches; data/traps.txt has the list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import poot
import poot.nn
import poot.numpy as jnp
from poot import lax
from poot.core import dtypes
from poot.core.dtypes import DType
from poot.core.errors import (
    ArgumentError,
    ConcretizationError,
    DTypeError,
    ShapeError,
    TraceLeak,
)
from poot.core.interpreter import current
from poot.interpreters.eager import EAGER
from tests import trap_executors
from tests.trap_executors import INF, NAN, array, check, f32, i32

on_device = trap_executors.on_device
pytestmark = pytest.mark.usefixtures("on_device")

each_wide = pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16], ids=str)


def slope(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The derivative of a function of one element, at each element."""
    return poot.grad(lambda x: function(x).sum())


@each_wide
def test_where_sqrt_at_0_derivatives(dtype: DType) -> None:
    """0 * inf by the chain rule is NaN; a second where keeps the infinity out."""
    zero, one = array([0.0], dtype), array([1.0], dtype)
    check(
        lambda x: (
            slope(lambda x: jnp.where(x < 1, x, jnp.sqrt(x)))(x),
            slope(lambda x: jnp.where(x < 1, x, jnp.sqrt(jnp.where(x < 1, 1, x))))(x),
        ),
        zero,
        right=(array([NAN], dtype), one),
    )
    nan = array([NAN], dtype)
    check(slope(lambda x: jnp.where(x > 0, 0, x * INF)), one, right=nan)


@each_wide
def test_ties_of_max_relu_abs(dtype: DType) -> None:
    """Equal operands share evenly; abs has slope 1 at 0, relu and relu6 have 0."""
    zero = array([0.0, -0.0], dtype)
    nn = poot.nn
    check(
        lambda x: tuple(
            slope(f)(x)
            for f in (
                lambda x: jnp.maximum(x, 0),
                lambda x: jnp.where(x > 0, x, 0),
                jnp.abs,
                nn.relu,
                nn.relu6,
            )
        ),
        zero,
        right=tuple(array([v, v], dtype) for v in (0.5, 0, 1, 0, 0)),
    )
    a = array([3, 1, 3], dtype)
    halves = array([0.5] * 3, dtype)
    check(
        lambda a, b: (
            *poot.grad(lambda a, b: jnp.maximum(a, b).sum(), (0, 1))(a, b),
            *poot.grad(lambda a, b: jnp.minimum(a, b).sum(), (0, 1))(a, b),
            poot.grad(jnp.max)(a),
            slope(nn.relu6)(a + 3),
        ),
        a,
        a.copy(),
        right=(*[halves] * 4, array([0.5, 0, 0.5], dtype), array([0, 1, 0], dtype)),
    )


def test_x_0_and_x_n_at_0_derivatives() -> None:
    """The power may be static, a traced int or a float, and written in three ways."""
    zero = f32(0)
    for k, wanted in enumerate((0, 1, 0, 0)):
        check(
            lambda x, n, r, k=k: (
                slope(lambda x: x**k)(x),
                slope(lambda x: jnp.power(x, k))(x),
                slope(lambda x: lax.integer_pow(x, k))(x),
                slope(lambda x: x**n)(x),
                slope(lambda x: x**r)(x),
            ),
            zero,
            i32(k)[0][...],
            f32(k)[0][...],
            right=(f32(wanted),) * 5,
        )


def test_slopes_where_functions_are_put_together() -> None:
    """Where pieces meet, and where one of them is infinite or stands at a tie."""
    nn = poot.nn
    x = f32(0, -0.0)
    cases: list[tuple[Callable[[Any], Any], float]] = [
        (nn.softplus, 0.5),
        (nn.log_sigmoid, 0.5),
        (nn.sigmoid, 0.25),
        (nn.silu, 0.5),
        (lambda x: jnp.logaddexp(x, x), 1),
        (lambda x: jnp.logaddexp2(0.0, x), 0.5),
        (jnp.sinc, 0),
        (lambda x: jnp.modf(x)[0], 1),
        (lambda x: x % 0.5, 1),
        (lambda x: x % -0.5, 1),
        (lambda x: jnp.fmod(x, 0.5), 1),
    ]
    slopes = tuple(f32(right, right) for _, right in cases)

    def all_slopes(x: Any) -> Any:
        return tuple(jnp.abs(slope(f)(x)) for f, _ in cases)

    check(all_slopes, x, right=slopes, ulps=1)
    curved = slope(slope(jnp.sinc))
    check(curved, x, right=f32(*[-(np.pi**2) / 3] * 2), ulps=2)
    far = f32(-1000, -200, 200, 1000)
    check(
        lambda x: tuple(slope(f)(x) for f in (nn.sigmoid, nn.silu, nn.softplus)),
        far,
        right=(f32(0, 0, 0, 0), f32(0, 0, 1, 1), f32(0, 0, 1, 1)),
    )


def test_tanh_gelu_sigmoid_derivatives_at_large_arguments() -> None:
    x = f32(-13.24, -100, 20.625, 100)
    wanted = f32(0, 0, 1, 1)
    check(lambda x: jnp.abs(slope(poot.nn.gelu)(x)), x, right=wanted)
    check(lambda x: jnp.abs(slope(jnp.tanh)(x)), x, right=np.abs(f32(0, 0, 0, 0)))


def test_logsumexp_and_softmax_derivatives_with_inf() -> None:
    """Where all elements are -inf, what is put together gives NaN, as in JAX."""
    nn = poot.nn
    x = f32(-INF, 0, 0)
    quarter = f32(0, 0, 0, 0, 0.25, -0.25, 0, -0.25, 0.25).reshape(3, 3)
    for jacobian in (poot.jacrev, poot.jacfwd):
        check(
            lambda x, jacobian=jacobian: jacobian(nn.softmax)(x) + 0.0, x, right=quarter
        )
    check(
        lambda x: (poot.grad(nn.logsumexp)(x), slope(nn.logsumexp)(x[1:])),
        x,
        right=(f32(0, 0.5, 0.5), f32(0.5, 0.5)),
        ulps=1,
    )
    check(poot.grad(nn.logsumexp), f32(-INF, -INF), right=f32(NAN, NAN))


def test_size_0_prod_jvp() -> None:
    none = np.zeros((2, 0), np.float32)
    check(
        lambda x, dx: poot.jvp(lambda x: jnp.prod(x, 1), (x,), (dx,)),
        none,
        none.copy(),
        right=(f32(1, 1), f32(0, 0)),
    )
    check(
        lambda x: (poot.grad(lambda x: jnp.prod(x))(x), poot.jacrev(jnp.sum)(x)),
        none,
        right=(none, none),
    )


# --- batches ----------------------------------------------------------------


def test_vmap_of_elementwise_ops_aligns_batch_axes() -> None:
    vmap = poot.vmap
    s, ones = i32(0, 1, 2), np.ones((3, 2), np.float32)
    pairs = np.arange(6, dtype=np.int32).reshape(3, 2)
    scaled = np.array([[0, 0], [1, 1], [2, 2]], np.float32)
    check(
        lambda s, pairs, ones: (
            vmap(lambda s: 1 + s)(s),
            vmap(lambda v, s: v * s, (0, None))(pairs, s[2]),
            vmap(lambda s, v: s * v)(s, ones),
            vmap(lambda s, v: v * s, out_axes=1)(s, ones),
            vmap(lambda s, v: v * s, (0, 1), -1)(s, ones.T),
            vmap(lambda v: v + s, 1, 1)(pairs),
            vmap(vmap(lambda a, b: a - b, (None, 0)), (0, None))(s, s),
        ),
        s,
        pairs,
        ones,
        right=(
            i32(1, 2, 3),
            2 * pairs,
            scaled,
            scaled.T.copy(),
            scaled.T.copy(),
            pairs + s[:, None],
            s[:, None] - s,
        ),
    )


P = f32(1, 2, 3, 4)


def test_out_of_bounds_derivatives() -> None:
    """A gather and its transpose agree on what is out of bounds."""

    def taken(mode: str) -> Callable[[Any, Any], Any]:
        return poot.grad(lambda p, i: jnp.take(p, i, mode=mode).sum())

    check(
        lambda p, i, j: (
            taken("clip")(p, i),
            taken("fill")(p, j),
            poot.grad(lambda p: p[j].sum())(p),
            poot.grad(lambda p: p.at[j].get(mode="fill").sum())(p),
            poot.grad(lambda p: p.at[i].set(5.0).sum())(p),
            poot.grad(lambda v: p.at[j].add(v).sum())(p[:2]),
        ),
        P,
        i32(4, 4),
        i32(4, 0),
        right=(
            f32(0, 0, 0, 2),
            f32(1, 0, 0, 0),
            f32(1, 0, 0, 1),
            f32(1, 0, 0, 0),
            f32(1, 1, 1, 1),
            f32(0, 1),
        ),
    )


def test_jacrev_of_a_vmapped_index() -> None:
    def at(x: Any, i: Any) -> Any:
        return lax.dynamic_index_in_dim(x, i, 0, keepdims=False)

    over = poot.vmap(at, (None, 0))
    check(poot.jacrev(over), f32(5), i32(1), right=f32(1)[None])
    check(poot.jacfwd(over), f32(5), i32(1), right=f32(1)[None])
    rows = np.array([[0, 1, 0], [0, 0, 1]], np.float32)
    check(poot.jacrev(over), f32(5, 6, 7), i32(1, 9), right=rows)


def test_size_0_batches_loops_and_gradients() -> None:
    none = np.zeros((0, 3), np.float32)
    check(
        lambda x: (
            poot.vmap(jnp.sum)(x),
            poot.vmap(jnp.sum, 1)(x),
            poot.vmap(lambda r: r[:, None] * r, out_axes=2)(x),
            poot.grad(jnp.sum)(x),
            poot.jacrev(lambda x: x.T)(x),
            *lax.scan(lambda c, r: (c + r, c * 2), jnp.ones(3), x),
        ),
        none,
        right=(
            f32(),
            f32(0, 0, 0),
            np.zeros((3, 3, 0), np.float32),
            none,
            np.zeros((3, 0, 0, 3), np.float32),
            f32(1, 1, 1),
            none,
        ),
    )
    check(
        poot.grad(lambda c, x: lax.scan(lambda c, x: (c * x, x), c, x)[0]),
        f32(3)[0][...],
        f32(),
        right=f32(1)[0][...],
    )


# --- trees, tracing ---------------------------------------------------------


def test_derivatives_and_batches_of_trees() -> None:
    tree = {"b": None, "a": f32(3)[0], "c": [(), {}]}
    for transform in (lambda f: f, poot.jit):
        found = transform(poot.grad(lambda p: p["a"] ** 2))(tree)
        assert list(found) == ["a", "b", "c"]
        assert found["b"] is None and found["c"] == [(), {}]
        assert np.asarray(found["a"]) == 6
        batched = transform(poot.vmap(lambda t, x: [t, {"x": x}]))([None, {}], P)
        assert batched[0] == [None, {}]
        np.testing.assert_array_equal(batched[1]["x"], P)
        with pytest.raises(DTypeError, match=r"args\[0\] is i32\[\]"):
            transform(poot.grad(lambda x: x * 2.0))(3)
        with pytest.raises(ShapeError, match=r"returned \(f32\[4\]\)"):
            transform(poot.grad(lambda x: x * 2.0))(P)
    with pytest.raises(ArgumentError, match="no argument has a batch axis"):
        poot.vmap(lambda t: t)([None, {}])


TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "vmap": lambda f: poot.vmap(f)(P),
    "grad": lambda f: poot.grad(f)(P[0]),
    "jvp": lambda f: poot.jvp(f, (P[0],), (P[0],)),
    "vjp": lambda f: poot.vjp(f, P[0])[1](P[0]),
    "linearize": lambda f: poot.linearize(f, P[0])[1](P[0]),
    "jacfwd": lambda f: poot.jacfwd(f)(P[0]),
    "while_loop": lambda f: lax.while_loop(lambda c: c < 0, f, P[0]),
    "cond": lambda f: lax.cond(P[0] > 2, f, f, P[0]),
    "checkpoint": lambda f: poot.grad(poot.checkpoint(f))(P[0]),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_values_do_not_leak_from_transformations(name: str) -> None:
    """Wherever a value escapes to, its use names the function and the line."""
    run = TRANSFORMS[name]
    for transform in (lambda f: f, poot.jit):
        escaped: list[Any] = []

        def leaks(x: Any, escaped: list[Any] = escaped) -> Any:
            escaped.append(jnp.sin(x))
            return x * 2

        transform(lambda leaks=leaks: run(leaks))()
        for use in (lambda x: x + 1, jnp.sin, float, bool, np.asarray):
            with pytest.raises(TraceLeak, match=r"while .*`leaks`") as caught:
                use(escaped[0])
            assert "test_traps_derivatives.py" in str(caught.value)
        assert current() is EAGER


@pytest.mark.parametrize("name", TRANSFORMS)
def test_exceptions_in_transformations_leave_nothing_behind(name: str) -> None:
    def raises(x: Any) -> Any:
        raise ZeroDivisionError

    for transform in (lambda f: f, poot.jit):
        with pytest.raises(ZeroDivisionError):
            transform(lambda: TRANSFORMS[name](raises))()
        assert current() is EAGER
    TRANSFORMS[name](jnp.sin)


@pytest.mark.parametrize("name", ["vmap", "while_loop", "cond"])
def test_numbers_of_transformed_values_cannot_be_asked_for(name: str) -> None:
    for request in (float, np.asarray, lambda x: x if x > 0 else -x):
        with pytest.raises(ConcretizationError):
            TRANSFORMS[name](lambda x, request=request: request(x) + x)
        assert current() is EAGER
