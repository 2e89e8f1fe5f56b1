"""Errors of loops and branches, and what derivatives of them keep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import lax
from poot.core.errors import ArgumentError, ShapeError, TypeMismatchError
from poot.core.ops.control import Scan
from poot.testing import check_grads
from tests import backends

oracle_backend = backends.oracle_backend
pytestmark = pytest.mark.usefixtures("oracle_backend")

X = np.linspace(-1, 2, 6, dtype=np.float32).reshape(2, 3)


def step(c: Any, x: Any) -> Any:
    return c + x, c


def none(f: Any) -> Any:
    return lax.scan(f, X[0], X)


ERRORS: list[tuple[type[Exception], str, Callable[[], Any]]] = [
    (ArgumentError, "scan takes a function", lambda: lax.scan(1, X, X)),  # type: ignore[arg-type]
    (ArgumentError, "scan of `step`: there are no xs", lambda: lax.scan(step, X[0])),
    (ShapeError, r"sizes|one size", lambda: lax.scan(step, X[0], (X, X[:1]))),
    (ShapeError, r"one size", lambda: lax.scan(step, X[0], X, 5)),
    (ShapeError, r"an x is f32\[\]", lambda: lax.scan(step, X[0], np.float32(1))),
    (ArgumentError, "returned a Array|a pair", lambda: none(lambda c, x: c + x)),
    (
        ArgumentError,
        "carry returned: given the tree",
        lambda: none(lambda c, x: ((c, c), x)),
    ),
    (
        TypeMismatchError,
        r"carry goes in as f32\[3\] and comes out as f16\[3\]",
        lambda: none(lambda c, x: (c.astype(np.float16), x)),
    ),
    (
        TypeMismatchError,
        r"carry goes in as f32\[3\] and comes out as f32\[\]",
        lambda: none(lambda c, x: (jnp.sum(c), x)),
    ),
    (
        TypeMismatchError,
        r"carry\['a'\] goes in",
        lambda: lax.scan(lambda c, x: ({"a": c["a"] > 0}, x), {"a": X[0]}, X),
    ),
    (ArgumentError, "result.*is a str", lambda: none(lambda c, x: (c, "y"))),
    (
        TypeMismatchError,
        r"cond_fun gives \(f32\[3\]\), takes a bool scalar",
        lambda: lax.while_loop(lambda c: c, lambda c: c + 1, X[0]),
    ),
    (
        TypeMismatchError,
        r"carry goes in as f32\[3\] and comes out as f32\[2\]",
        lambda: lax.while_loop(lambda c: c[0] > 0, lambda c: c[:2], X[0]),
    ),
    (
        ArgumentError,
        "val returned",
        lambda: lax.while_loop(lambda c: True, lambda c: (c, c), X[0]),
    ),
    (
        TypeMismatchError,
        r"a bound is f32\[\]",
        lambda: poot.jit(lambda n: lax.fori_loop(0, n, lambda i, v: v, X))(1.5),
    ),
    (
        TypeMismatchError,
        r"cond: pred is f32\[3\].*poot\.numpy\.where",
        lambda: lax.cond(X[0], jnp.sin, jnp.cos, X),
    ),
    (ArgumentError, "cond takes a function", lambda: lax.cond(True, jnp.sin, 3, X)),  # type: ignore[arg-type]
    (
        ArgumentError,
        "branch `<lambda>`, result: given the tree",
        lambda: lax.cond(True, lambda x: x, lambda x: (x, x), X),
    ),
    (
        TypeMismatchError,
        r"cond: result of the branches is f32\[3\] and f32\[2,3\]",
        lambda: lax.cond(True, lambda x: x, lambda x: x[0], X),
    ),
    (
        TypeMismatchError,
        r"switch: result\[0\] of the branches is f32\[2,3\] and i32\[2,3\]",
        lambda: lax.switch(0, [lambda x: (x,), lambda x: (x.astype(int),)], X),
    ),
    (ArgumentError, "no branches", lambda: lax.switch(0, [], X)),
    (TypeMismatchError, r"index is f32\[\]", lambda: lax.switch(0.5, [jnp.sin], X)),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors_say_what_and_where(number: int) -> None:
    kind, message, call = ERRORS[number]
    for run in (call, poot.jit(call)):
        with pytest.raises(kind, match=message) as caught:
            run()
        assert type(caught.value) is kind


def cell(w: Any, h: Any, x: Any) -> Any:
    def step(h: Any, a: Any) -> Any:
        h = jnp.tanh(h @ w + a)
        return h, jnp.sum(h)

    last, sums = lax.scan(step, h, x)
    return jnp.sum(last) + jnp.sum(sums**2)


W = np.linspace(-0.5, 0.7, 9, dtype=np.float32).reshape(3, 3)


def test_derivatives_of_a_scan_are_right_to_order_2() -> None:
    check_grads(cell, (W, X[0], X), 2)
    both = poot.checkpoint(lambda w: cell(w, jnp.asarray(X[0]), jnp.asarray(X)))
    check_grads(both, (W,), 2)


def test_derivatives_of_branches_and_loops_are_right() -> None:
    def branches(x: Any) -> Any:
        inner = lax.cond(x[0] > 0, jnp.sin, lambda x: x * x, x)
        return lax.switch(1, [jnp.cos, lambda x: x * inner, jnp.tanh], x)

    check_grads(branches, (X[0],), 2)
    check_grads(lambda x: lax.fori_loop(0, 3, lambda i, v: jnp.sin(v) * x + i, x), X, 2)
    check_grads(
        lambda x: lax.while_loop(
            lambda c: c[1] < 3, lambda c: (c[0] * x, c[1] + 1), (x, 0)
        )[0],
        (X[0],),
        2,
        ["fwd"],
    )


def test_a_loop_keeps_an_array_for_each_residual_of_its_body() -> None:
    """One tanh an iteration, whose result is saved; its weights are saved once."""
    graph = poot.make_graph(poot.grad(cell))(W, X[0], X)
    forward, backward = [e.op for e in graph.eqns if isinstance(e.op, Scan)]
    assert str(forward.body).count("op=tanh") == 1
    assert "tanh" not in str(backward.body)
    plain = 2
    assert len(forward.body.results) - plain <= 2
    assert backward.reverse and backward.length == 2


def test_a_branch_saves_only_in_slots_that_are_shared() -> None:
    def branches(x: Any, i: Any) -> Any:
        return jnp.sum(lax.switch(i, [jnp.sin, jnp.tanh, jnp.exp], x))

    graph = poot.make_graph(poot.grad(branches))(X, np.array(1, np.int32))
    first = next(e for e in graph.eqns if e.op.name == "cond")
    assert len(first.outs) <= 2
