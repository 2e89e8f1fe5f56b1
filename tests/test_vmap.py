"""`vmap`: axes of trees, nesting, sizes of 0 and 1, and its errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import lax
from poot.core.errors import ArgumentError, ShapeError
from tests import backends
from tests.transform_programs import agree

oracle_backend = backends.oracle_backend
pytestmark = pytest.mark.usefixtures("oracle_backend")

X = np.linspace(-1, 2, 24, dtype=np.float32).reshape(2, 3, 4)

CASES: dict[str, Callable[..., Any]] = {
    "axes of trees": lambda m, x: m.top.vmap(
        lambda p, q: {"s": p["a"] * q[0], "t": (p["b"], q[1])},
        ({"a": 0, "b": None}, (1, -1)),
        {"s": 1, "t": (None, 0)},
    )({"a": x, "b": x}, (m.np.moveaxis(x, 0, 1), m.np.moveaxis(x, 0, 2))),
    "one axis for a tree": lambda m, x: m.top.vmap(
        lambda p: p["a"] @ p["b"], ({"a": 1, "b": -1},)
    )({"a": x, "b": m.np.moveaxis(x, 1, 2)[0].reshape(4, 1, 3)}),
    "keywords": lambda m, x: m.top.vmap(lambda a, *, b: a * b)(x, b=x[:, 0, 0]),
    "nested": lambda m, x: m.top.vmap(
        m.top.vmap(m.top.vmap(m.np.sin, 0, 0), 1, 1), 2, -1
    )(x),
    "outer products": lambda m, x: m.top.vmap(
        m.top.vmap(lambda a, b: a - b, (None, 0)), (0, None)
    )(x[0, 0], x[1, 1]),
    "matmul over both": lambda m, x: m.top.vmap(lambda a, b: a @ b.T, (0, None))(
        x, x[0]
    ),
    "axis_size": lambda m, x: m.top.vmap(lambda: x[0], axis_size=3)(),
    "one example": lambda m, x: m.top.vmap(lambda a: m.np.cumsum(a, 0))(x[:1]),
    "no example": lambda m, x: m.top.vmap(
        lambda a: [m.np.sort(a), a @ a.T, m.np.max(a, 0), a[1]]
    )(x[:0]),
    "constant result": lambda m, x: m.top.vmap(lambda a: x[0, 0])(x),
    "indices": lambda m, x: m.top.vmap(lambda a, i: a[i], (1, 0))(
        x, m.np.array([0, 1, 5])
    ),
    "updates": lambda m, x: m.top.vmap(lambda a, i: a.at[i].add(a[0]), (0, 0))(
        x, m.np.array([2, 1])
    ),
    "loops of different lengths": lambda m, x: m.top.vmap(
        lambda a: m.lax.while_loop(
            lambda c: m.np.sum(c[0]) < 30, lambda c: (c[0] * 2 + 1, c[1] + 1), (a, 0)
        )
    )(x),
    "branches": lambda m, x: m.top.vmap(
        lambda a, i: m.lax.switch(i, [m.np.sin, lambda a: a * a, m.np.abs], a)
    )(x, m.np.array([7, 0])),
    "scan over and in a batch": lambda m, x: m.top.vmap(
        lambda w, a: m.lax.scan(lambda c, r: (c * w + r, c), a[0], a), (None, 0)
    )(x[0, 0], x),
    "derivatives for each": lambda m, x: m.top.vmap(
        m.top.grad(lambda a, b: m.np.sum(m.np.tanh(a @ b.T))), (0, None)
    )(x, x[0]),
    "lax.map in batches": lambda m, x: [
        m.lax.map(m.np.sin, m.np.arange(5.0), batch_size=size) for size in (2, 5, 7)
    ],
}


@pytest.mark.parametrize("name", CASES)
def test_results_are_jaxs(name: str) -> None:
    agree(CASES[name], X)


def add(a: Any, b: Any) -> Any:
    return a + b


ERRORS: list[tuple[type[Exception], str, Callable[[], Any]]] = [
    (ArgumentError, "vmap takes a function", lambda: poot.vmap(3)),  # type: ignore[arg-type]
    (ArgumentError, "`add`: in_axes is a str", lambda: poot.vmap(add, "0")(X, X)),
    (ArgumentError, "in_axes has 1 entries, 2", lambda: poot.vmap(add, (0,))(X, X)),
    (ArgumentError, "1.5 is no axis", lambda: poot.vmap(add, (1.5, 0))(X, X)),
    (ArgumentError, "in_axes", lambda: poot.vmap(add, ({"a": 0}, 0))(X, X)),
    (
        ShapeError,
        r"args\[1\] is f32\[\], which has no axis 0; give None",
        lambda: poot.vmap(add)(X, np.float32(1)),
    ),
    (ShapeError, "no axis -4", lambda: poot.vmap(add, -4)(X, X)),
    (
        ShapeError,
        r"different sizes \(args\[0\]: 2, args\[1\]: 3\)",
        lambda: poot.vmap(add, (0, 1))(X, X),
    ),
    (ShapeError, "axis_size: 5", lambda: poot.vmap(add, axis_size=5)(X, X)),
    (ArgumentError, "no argument has a batch", lambda: poot.vmap(add, None)(X, X)),
    (
        ArgumentError,
        r"out_axes is None .*f32\[3,4\]",
        lambda: poot.vmap(add, out_axes=None)(X, X),
    ),
    (ShapeError, "out_axes 3 .*takes -3..2", lambda: poot.vmap(add, 0, 3)(X, X)),
    (ArgumentError, "is a str", lambda: poot.vmap(add)(X, "x")),
    (ArgumentError, "result.* is a str", lambda: poot.vmap(lambda x: "no")(X)),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors_say_what_and_where(number: int) -> None:
    kind, message, call = ERRORS[number]
    with pytest.raises(kind, match=message) as caught:
        call()
    assert type(caught.value) is kind


def test_what_no_example_needs_is_computed_once() -> None:
    graph = poot.make_graph(poot.vmap(lambda a: a * jnp.exp(jnp.asarray(X[0]))))(X)
    (made,) = [e for e in graph.eqns if "EXP" in str(e.op)]
    assert graph.type(made.outs[0]).shape == (3, 4)
    text = str(
        poot.make_graph(poot.vmap(lambda a: lax.cond(True, jnp.sin, jnp.cos, a)))(X)
    )
    assert "select" not in text
