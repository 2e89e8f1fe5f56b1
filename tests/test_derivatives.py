"""The functions that differentiate: their trees, their errors, and what they keep."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import poot
import poot.nn
import poot.numpy as jnp
from poot import lax
from poot.core.errors import (
    ArgumentError,
    DTypeError,
    NotLinearError,
    ShapeError,
)
from poot.interpreters.derivatives import _Linearized
from tests import backends
from tests.transform_programs import Modules, agree

oracle_backend = backends.oracle_backend
pytestmark = pytest.mark.usefixtures("oracle_backend")

X = np.linspace(-1, 2, 6, dtype=np.float32).reshape(2, 3)
W = np.array([[0.5, -1, 2], [1, 0.3, 0], [-0.7, 1, 1]], np.float32)
ONE = np.ones((), np.float32)


# --- against JAX ------------------------------------------------------------


def of_trees(m: Modules, p: Any, y: Any) -> Any:
    return {"u": m.np.sin(p["a"]) @ y, "v": [p["b"] * m.np.sum(p["a"])]}


def tree(m: Modules, x: Any) -> Any:
    return {"b": m.np.float32(2), "a": x}


CASES: dict[str, Callable[..., Any]] = {
    "argnums": lambda m, x, w: [
        m.top.grad(lambda x, w: m.np.sum((x @ w) ** 2), n)(x, w)
        for n in (0, 1, -1, (0, 1), (1,))
    ],
    "has_aux": lambda m, x, w: [
        m.top.grad(lambda x: (m.np.sum(x * x), {"k": x @ w}), has_aux=True)(x),
        m.top.value_and_grad(lambda x: (m.np.sum(x), x), has_aux=True)(x),
        m.top.jvp(lambda x: (m.np.sin(x), x * 3), (x,), (x,), has_aux=True),
        m.top.jacfwd(lambda x: (m.np.sin(x), x.sum()), has_aux=True)(x),
        m.top.jacrev(lambda x: (m.np.sin(x), x.sum()), has_aux=True)(x),
        m.top.vjp(lambda x: (m.np.sin(x), x.sum()), x, has_aux=True)[2],
        m.top.linearize(lambda x: (m.np.sin(x), x.sum()), x, has_aux=True)[2],
    ],
    "keywords": lambda m, x, w: m.top.grad(lambda x, *, w: m.np.sum(x @ w))(x, w=w),
    "jacobians of trees": lambda m, x, w: [
        transform(lambda p, y: of_trees(m, p, y), n)(tree(m, x), w[0])
        for transform in (m.top.jacfwd, m.top.jacrev)
        for n in (0, (0, 1))
    ],
    "hessian": lambda m, x, w: m.top.hessian(
        lambda p: m.np.sum(m.np.sin(p["a"]) * p["b"])
    )(tree(m, x)),
    "linearize": lambda m, x, w: (lambda y, push: [y, push(x), push(2 * x)])(
        *m.top.linearize(lambda x: m.np.tanh(x @ w), x)
    ),
    "linear_transpose": lambda m, x, w: m.top.linear_transpose(
        lambda x: 2 * (x @ w)[:, ::-1], x
    )(x),
    "constant": lambda m, x, w: [
        m.top.grad(lambda x: m.np.sum(w))(x),
        m.top.jvp(lambda x: w, (x,), (x,)),
    ],
    "twice used": lambda m, x, w: m.top.grad(lambda x: m.np.sum(x * x * x + x))(x),
    "higher orders": lambda m, x, w: m.top.grad(
        m.top.grad(m.top.grad(lambda s: m.np.exp(2 * s) * s**3))
    )(x[0, 0]),
    "integers beside": lambda m, x, w: m.top.grad(lambda x, i: m.np.sum(x[i].T * i))(
        x, m.np.array([1, 0])
    ),
    "stop_gradient": lambda m, x, w: m.top.grad(
        lambda x: m.np.sum(m.lax.stop_gradient(x) * x)
    )(x),
}


@pytest.mark.parametrize("name", CASES)
def test_results_are_jaxs(name: str) -> None:
    agree(CASES[name], X, W)


def test_integers_have_float0() -> None:
    i = np.array([1, 2], np.int32)
    found = poot.grad(lambda i, x: jnp.sum(x * i), (0, 1), allow_int=True)(i, X[0, :2])
    assert found[0].dtype == poot.float0 and found[0].shape == (2,)
    np.testing.assert_array_equal(found[1], i)
    zero = np.zeros(2, poot.float0)
    out, moved = poot.jvp(lambda i, x: (i + 1, x * i), (i, X[0, :2]), (zero, X[0, :2]))
    assert moved[0].dtype == poot.float0 and moved[1].dtype == np.float32
    _, pull = poot.vjp(lambda i, x: (i, x * i), i, X[0, :2])
    assert pull((zero, X[0, :2]))[0].dtype == poot.float0
    assert out[0].tolist() == [2, 3]


# --- errors -----------------------------------------------------------------


def double(x: Any) -> Any:
    return jnp.sum(x * 2)


def rows(x: Any) -> Any:
    return x * 2


ERRORS: list[tuple[type[Exception], str, Callable[[], Any]]] = [
    (
        ShapeError,
        r"grad of `rows`.*f32\[2,3\]",
        lambda: poot.grad(rows)(X),
    ),
    (DTypeError, r"args\[0\] is i32\[\], .*allow_int", lambda: poot.grad(double)(3)),
    (
        DTypeError,
        r"args\[0\]\['a'\] is bool\[\]",
        lambda: poot.grad(double)({"a": True}),
    ),
    (
        DTypeError,
        "returned i32.*cast it to a float",
        lambda: poot.grad(lambda x: jnp.sum(x).astype(int))(X),
    ),
    (ArgumentError, "no argument number 1", lambda: poot.grad(double, 1)(X)),
    (ArgumentError, "no argument number -2", lambda: poot.jacfwd(double, -2)(X)),
    (ArgumentError, "takes a function, given a int", lambda: poot.grad(3)),  # type: ignore[arg-type]
    (ArgumentError, "has_aux=True", lambda: poot.grad(double, has_aux=True)(X)),
    (DTypeError, "complex", lambda: poot.grad(double, holomorphic=True)),
    (ArgumentError, "no argument number 0", lambda: poot.grad(double)(x=X)),
    (ArgumentError, "`rows`.*is a str", lambda: poot.vjp(rows, "x")),
    (
        ArgumentError,
        "result.*is a str",
        lambda: poot.vjp(lambda x: (x, "no"), X),
    ),
    (ArgumentError, "primals is a ndarray", lambda: poot.jvp(rows, X, X)),
    (ArgumentError, "tangents: given the tree", lambda: poot.jvp(rows, (X,), (X, X))),
    (ShapeError, r"tangents\[0\] is f32\[3\]", lambda: poot.jvp(rows, (X,), (X[0],))),
    (
        DTypeError,
        r"tangents\[0\] is i32\[2,3\].*same dtype",
        lambda: poot.jvp(rows, (X,), (X.astype(int),)),
    ),
    (DTypeError, "float0", lambda: poot.jvp(rows, (1,), (1,))),
    (ArgumentError, "cotangent: given", lambda: poot.vjp(rows, X)[1]((X, X))),
    (ShapeError, r"f32\[2,3\]", lambda: poot.vjp(rows, X)[1](X[0])),
    (ArgumentError, "tangents", lambda: poot.linearize(rows, X)[1](X, X)),
    (ShapeError, r"f32\[3\]", lambda: poot.linearize(rows, X)[1](X[0])),
    (NotLinearError, "linear", lambda: poot.linear_transpose(jnp.sin, X)(X)),
    (
        NotLinearError,
        "both factors",
        lambda: poot.linear_transpose(lambda x: x * x, X)(X),
    ),
    (ShapeError, "a cotangent is", lambda: poot.linear_transpose(rows, X)(X[0])),
    (DTypeError, r"jacobian of `rows`: args\[0\] is i32", lambda: poot.jacfwd(rows)(1)),
    (DTypeError, "jacrev of .*i32", lambda: poot.jacrev(lambda x: x.astype(int))(X)),
    (
        NotLinearError,
        "while",
        lambda: poot.grad(
            lambda x: lax.while_loop(lambda c: c < 9, lambda c: c * 2, jnp.sum(x * x))
        )(X),
    ),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors_say_what_and_where(number: int) -> None:
    kind, message, call = ERRORS[number]
    with pytest.raises(kind, match=message) as caught:
        call()
    assert type(caught.value) is kind


# --- what is kept and computed ----------------------------------------------


def residuals(function: Callable[[Any], Any], x: Any = X) -> int:
    return len(_Linearized("vjp", function, (x,), False).linear.residuals)


def test_reverse_mode_keeps_nothing_that_is_not_needed() -> None:
    linear: list[Callable[[Any], Any]] = [
        lambda x: x * 2 + 1,
        jnp.sum,
        lambda x: jnp.pad(x.T[::-1], 1) - 3,
        lambda x: jnp.cumsum(x, 1)[:, 1],
        lambda x: (jnp.sin(x), x * 2)[1],
        lambda x: x + jnp.exp(lax.stop_gradient(x)),
    ]
    assert [residuals(function) for function in linear] == [0] * len(linear)
    one: list[Any] = [
        jnp.tanh,
        jnp.exp,
        jnp.sin,
        lambda x: x * x,
        poot.nn.relu,
        poot.nn.sigmoid,
    ]
    assert [residuals(function) for function in one] == [1] * len(one)
    assert residuals(lambda x: x @ jnp.asarray(W)) == 1
    assert residuals(poot.checkpoint(lambda x: jnp.sin(jnp.sin(jnp.sin(x))))) == 1


def ops(function: Callable[..., Any], *args: Any) -> str:
    return str(poot.jit(function).lower(*args).graph)


def test_nothing_is_computed_twice_but_by_checkpoint() -> None:
    def loss(x: Any) -> Any:
        e = jnp.exp(x - jnp.max(x))
        return jnp.sum((e / jnp.sum(e)) ** 2)

    def count(function: Callable[..., Any]) -> int:
        return str(poot.make_graph(function)(X[0])).count("op=exp")

    assert count(loss) == 1
    assert count(poot.value_and_grad(loss)) == 1
    assert count(poot.grad(poot.jit(loss))) == 1
    assert count(lambda x: poot.jvp(loss, (x,), (x,))) == 1
    again = poot.jit(poot.value_and_grad(poot.checkpoint(loss))).trace(X[0]).lower()
    assert str(again.graph).count("op=exp") == 2


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "dense": lambda w, x: jnp.sum(jnp.tanh(x @ w) ** 2),
    "softmax": lambda w, x: -jnp.sum(poot.nn.log_softmax(x @ w)[:, 0]),
    "relu": lambda w, x: jnp.sum(poot.nn.relu(x @ w)),
    "gather": lambda w, x: jnp.sum(w[np.array([0, 2])] * x[0]),
    "scan": lambda w, x: jnp.sum(
        lax.scan(lambda h, a: (jnp.tanh(h @ w + a), h), x[0], x)[1]
    ),
    "cond": lambda w, x: lax.cond(
        jnp.sum(x) > 0, lambda w: jnp.sum(jnp.sin(w)), lambda w: jnp.sum(w * w), w
    ),
    "jit inside": lambda w, x: jnp.sum(poot.jit(lambda a: jnp.exp(a))(w @ w)),
    "checkpoint": lambda w, x: poot.checkpoint(lambda w: jnp.sum(jnp.sin(w) * w))(w),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_grad_of_jit_and_jit_of_grad_are_one_program(name: str) -> None:
    function = FUNCTIONS[name]
    inside = poot.grad(poot.jit(function))
    assert ops(inside, W, X) == ops(poot.grad(function), W, X)
    graphs = [poot.make_graph(f)(W, X) for f in (inside, poot.grad(function))]
    assert str(graphs[0]) == str(graphs[1])


def chain(count: int) -> Callable[[Any], Any]:
    def chained(x: Any) -> Any:
        for _ in range(count):
            x = x * 1.0001 + 0.1
        return x

    return chained


def test_4000_chained_ops_do_not_recurse() -> None:
    function = chain(2000)
    right = 1.0001**2000
    graph = poot.make_graph(poot.grad(function))(ONE)
    np.testing.assert_allclose(poot.evaluate(graph, ONE)[0], right, 1e-3)
    assert len(poot.make_graph(poot.vmap(function))(X[0]).eqns) == 4000
    checkpointed = poot.make_graph(poot.grad(poot.checkpoint(function)))(ONE)
    np.testing.assert_allclose(poot.evaluate(checkpointed, ONE)[0], right, 1e-3)


def test_tracing_and_transforming_1000_equations_is_timed() -> None:
    """It prints how long each takes, which
    should be at most 0.5 s if nothing else runs.

    How busy the machine is decides nothing here; that each op is traced once does.
    """
    function = chain(500)
    for name, transformed, most in (
        ("trace", function, 1000),
        ("grad", poot.grad(function), 1600),
        ("jvp", lambda x: poot.jvp(function, (x,), (x,)), 1600),
        ("vmap", lambda x: poot.vmap(function)(x[None]), 1010),
    ):
        start = time.process_time()
        graph = poot.make_graph(transformed)(ONE)
        print(f"{name} of 1000 equations: {time.process_time() - start:.3f} s")
        assert len(graph.eqns) <= most
