"""`custom_jvp`, `custom_vjp`, `checkpoint`, `closure_convert`: results and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot.core.errors import ArgumentError, ForwardModeError, TypeMismatchError
from poot.testing import check_grads
from tests import backends, trap_executors
from tests.transform_programs import Modules, agree

oracle_backend = backends.oracle_backend
on_device = trap_executors.on_device

X = np.linspace(-1, 2, 6, dtype=np.float32).reshape(2, 3)


def forward(m: Modules) -> Any:
    """sin(x) y by a rule whose first slope is 10 times too large."""

    def body(x: Any, y: Any) -> Any:
        return {"o": m.np.sin(x) * y}

    f = m.top.custom_jvp(body)

    def rule(primals: Any, tangents: Any) -> Any:
        (x, y), (dx, dy) = primals, tangents
        return f(x, y), {"o": 10 * m.np.cos(x) * dx * y + m.np.sin(x) * dy}

    f.defjvp(rule)
    return lambda x, y: f(x, y)["o"]


def reverse(m: Modules) -> Any:
    f = m.top.custom_vjp(lambda x, y: m.np.sin(x) * y)

    def fwd(x: Any, y: Any) -> Any:
        return f(x, y), (m.np.cos(x), y, m.np.sin(x))

    f.defvjp(fwd, lambda r, ct: (10 * ct * r[0] * r[1], m.np.sum(ct * r[2])))
    return f


def static(m: Modules) -> Any:
    """With arguments that are not differentiated, a function and a number."""

    def power(g: Any, n: int, x: Any) -> Any:
        return g(x) ** n

    f = m.top.custom_vjp(power, nondiff_argnums=(0, 1))
    f.defvjp(lambda g, n, x: (power(g, n, x), x), lambda g, n, x, ct: (n * ct * x,))
    h = m.top.custom_jvp(power, nondiff_argnums=(0, 1))
    h.defjvp(lambda g, n, p, t: (h(g, n, *p), n * t[0]))
    return lambda x, y: f(m.np.sin, 3, x) * y + h(m.np.cos, 2, x)


def static_by_name(m: Modules) -> Any:
    """With arguments by name that are not differentiated, one of them by number."""

    def power(g: Any, x: Any, n: int) -> Any:
        return g(x) ** n

    f = m.top.custom_vjp(power, nondiff_argnames=("n", "g"))
    f.defvjp(lambda g, x, n: (power(g, x, n), x), lambda g, n, x, ct: (n * ct * x,))
    h = m.top.custom_jvp(power, nondiff_argnums=(0,), nondiff_argnames=("n",))
    h.defjvp(lambda g, n, p, t: (h(g, *p, n), n * t[0]))
    return lambda x, y: f(m.np.sin, x, n=3) * y + h(m.np.cos, x, 2)


def by_parts(m: Modules) -> Any:
    f = m.top.custom_jvp(lambda x, y: x * y)
    f.defjvps(lambda dx, out, x, y: 5 * dx * y, None)
    return f


RULES = {
    "jvp": forward,
    "vjp": reverse,
    "static": static,
    "static by name": static_by_name,
    "by parts": by_parts,
}


def uses(m: Modules, f: Any, x: Any) -> Any:
    y = m.np.asarray(3.0, np.float32)

    def loss(x: Any, y: Any) -> Any:
        return m.np.sum(f(x, y) ** 2)

    def in_a_scan(x: Any) -> Any:
        row = x[0]
        return m.np.sum(m.lax.scan(lambda c, r: (f(c, y) + r, c), row, x)[0])

    return [
        f(x, y),
        m.top.grad(loss, (0, 1))(x, y),
        m.top.grad(lambda x: m.np.sum(m.top.jit(f)(x, y)))(x),
        m.top.vmap(m.top.grad(loss, (0, 1)), (0, None))(x, y),
        m.top.grad(lambda x, y: m.np.sum(m.top.vmap(f, (0, None))(x, y)), (0, 1))(x, y),
        m.top.grad(in_a_scan)(x),
        m.top.grad(lambda x: m.np.sum(m.top.grad(loss)(x, y)))(x),
        m.top.grad(lambda x: m.np.sum(m.top.checkpoint(f)(x, y)))(x),
    ]


@pytest.mark.parametrize("rule", RULES)
def test_results_are_jaxs(rule: str, oracle_backend: Any) -> None:
    agree(lambda m, x: uses(m, RULES[rule](m), x), X)


def test_results_are_jaxs_on_the_device(on_device: None) -> None:
    agree(lambda m, x: uses(m, forward(m), x)[1:4], X, jitted=True)
    agree(lambda m, x: uses(m, reverse(m), x)[1:4], X, jitted=True)


def test_forward_rules_serve_forward_mode(oracle_backend: Any) -> None:
    def pushed(m: Modules, x: Any) -> Any:
        f = forward(m)
        two = m.np.asarray(2.0, np.float32)
        return [
            m.top.jvp(f, (x, two), (x, two)),
            m.top.jacfwd(f)(x, two),
            m.top.hessian(lambda x: m.np.sum(f(x, two)))(x),
        ]

    agree(pushed, X)


def test_closures_are_converted(oracle_backend: Any) -> None:
    def converted(m: Modules, x: Any) -> Any:
        def slope(s: Any) -> Any:
            f, taken = m.top.closure_convert(lambda y: m.np.sum(y * s), x)
            assert len(taken) == 1
            return f(x, *taken)

        return m.top.grad(slope)(x[0, 0])

    agree(converted, X)


def test_checkpoint_computes_again_what_its_policy_does_not_keep(
    oracle_backend: Any,
) -> None:
    def function(x: Any) -> Any:
        return jnp.sum(jnp.sin(jnp.exp(x) * x))

    def exps(policy: Any) -> int:
        kept = poot.checkpoint(function, policy=policy)
        lowered = poot.jit(poot.value_and_grad(kept)).lower(X)
        return str(lowered.graph).count("op=exp")

    assert exps(None) == 2
    assert exps(lambda op, *types: "EXP" in str(op)) == 1
    check_grads(poot.checkpoint(function), (X,), 2)
    named = poot.checkpoint(lambda x, n: x**n, static_argnums=1)
    np.testing.assert_allclose(poot.grad(lambda x: jnp.sum(named(x, 3)))(X), 3 * X**2)


def test_checkpointed_loops_and_branches_give_values_beside_gradients(
    oracle_backend: Any,
) -> None:
    def both(m: Modules, x: Any) -> Any:
        def loss(x: Any) -> Any:
            rows = m.lax.scan(lambda c, r: (m.np.sin(c) + r, c * r), x[0], x)
            kept = m.lax.cond(x[0, 0] > 0, m.np.cos, lambda x: x * x, x)
            return m.np.sum(rows[0]) + m.np.sum(rows[1] * kept)

        return [
            m.top.value_and_grad(m.top.checkpoint(loss))(x),
            m.top.linearize(m.top.checkpoint(loss), x)[0],
        ]

    agree(both, X)


# --- errors -----------------------------------------------------------------


def identity(x: Any) -> Any:
    return x * 1


def with_jvp(rule: Any, **options: Any) -> Any:
    f = poot.custom_jvp(identity, **options)
    f.defjvp(rule)
    return f


def with_vjp(fwd: Any, bwd: Any) -> Any:
    f = poot.custom_vjp(identity)
    f.defvjp(fwd, bwd)
    return f


def keep(x: Any) -> Any:
    return x, x


def slope(f: Any) -> Any:
    return poot.grad(lambda x: jnp.sum(f(x)))(X)


def around(s: Any) -> Any:
    f = poot.custom_jvp(lambda x: x * s)
    f.defjvp(lambda p, t: (p[0] * 2, t[0]))
    return jnp.sum(f(X))


ERRORS: list[tuple[type[Exception], str, Callable[[], Any]]] = [
    (ArgumentError, "without a rule", lambda: poot.custom_jvp(identity)(X)),
    (ArgumentError, "without rules", lambda: poot.custom_vjp(identity)(X)),
    (ArgumentError, "takes a function", lambda: poot.custom_jvp(3)),  # type: ignore[arg-type]
    (
        ArgumentError,
        "rule of `identity` gave a Array|rule of `identity` gave a",
        lambda: slope(with_jvp(lambda p, t: t[0])),
    ),
    (
        ArgumentError,
        "a tangent of the tree",
        lambda: slope(with_jvp(lambda p, t: (p[0], (t[0],)))),
    ),
    (
        ArgumentError,
        "a result of the tree",
        lambda: slope(with_jvp(lambda p, t: (p, t[0]))),
    ),
    (
        TypeMismatchError,
        r"gave tangent as f32\[3\], its value is f32\[2,3\]",
        lambda: slope(with_jvp(lambda p, t: (p[0], t[0][0]))),
    ),
    (
        TypeMismatchError,
        r"gave tangent as f16\[2,3\]",
        lambda: slope(with_jvp(lambda p, t: (p[0], t[0].astype(np.float16)))),
    ),
    (
        ArgumentError,
        "fwd gave a",
        lambda: slope(with_vjp(lambda x: x, lambda r, c: (c,))),
    ),
    (
        ArgumentError,
        "bwd gave 2 cotangents, takes 1",
        lambda: slope(with_vjp(keep, lambda r, c: (c, c))),
    ),
    (
        ArgumentError,
        "bwd gave a .*takes a tuple",
        lambda: slope(with_vjp(keep, lambda r, c: c)),
    ),
    (
        TypeMismatchError,
        r"cotangent as f32\[3\], its value is f32\[2,3\]",
        lambda: slope(with_vjp(keep, lambda r, c: (c[0],))),
    ),
    (
        ForwardModeError,
        "`identity` has a custom_vjp rule, which gives reverse mode only",
        lambda: poot.jvp(with_vjp(keep, lambda r, c: (c,)), (X,), (X,)),
    ),
    (
        ForwardModeError,
        "uses a value from around it",
        lambda: poot.grad(around)(np.float32(2)),
    ),
    (
        ArgumentError,
        "symbolic_zeros",
        lambda: poot.custom_jvp(identity).defjvp(identity, symbolic_zeros=True),
    ),
    (
        ArgumentError,
        "custom_jvp: `identity` has no argument 'y' by position; it has x",
        lambda: poot.custom_jvp(identity, nondiff_argnames="y"),
    ),
    (ArgumentError, "checkpoint takes a function", lambda: poot.checkpoint(3)),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors_say_what_and_where(number: int, oracle_backend: Any) -> None:
    kind, message, call = ERRORS[number]
    with pytest.raises(kind, match=message) as caught:
        call()
    assert type(caught.value) is kind
