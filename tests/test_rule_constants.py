"""Rules of custom derivatives that use values from around them, in loops and branches.

What a rule uses is known only when the body that it stands in is transformed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import lax
from poot.core.errors import ForwardModeError
from tests import backends, trap_executors
from tests.transform_programs import Modules, agree

oracle_backend = backends.oracle_backend
on_device = trap_executors.on_device

X = np.array([0.3, -0.8, 1.1], np.float32)
WEIGHTS = np.array([1, 2, 3], np.float32)


def pushed(m: Modules, weights: Any) -> Any:
    """sin, whose slope is scaled by weights."""
    f = m.top.custom_jvp(lambda x: m.np.sin(x))
    f.defjvp(lambda p, t: (m.np.sin(p[0]), t[0] * m.np.cos(p[0]) * weights))
    return f


def pulled(m: Modules, weights: Any) -> Any:
    f = m.top.custom_vjp(lambda x: m.np.sin(x))
    f.defvjp(
        lambda x: (m.np.sin(x) + 0 * weights, x),
        lambda x, ct: (ct * m.np.cos(x) * weights,),
    )
    return f


RULES = {"custom_jvp": pushed, "custom_vjp": pulled}
# Functions that have the one given in their body.
AROUND: dict[str, Callable[[Modules, Any], Any]] = {
    "scan": lambda m, f: (
        lambda x: m.lax.scan(
            lambda c, w: (f(c) * w, f(c + w)), x, m.np.asarray(WEIGHTS)
        )
    ),
    "fori_loop": lambda m, f: lambda x: m.lax.fori_loop(0, 2, lambda i, c: f(c), x),
    "cond": lambda m, f: (
        lambda x: m.lax.cond(x[0] > 0, f, lambda x: f(2 * x) * f(x), x)
    ),
    "one branch": lambda m, f: (
        lambda x: m.lax.switch(m.np.argmax(x), [m.np.sin, m.np.cos, f], x)
    ),
    "checkpoint": lambda m, f: m.top.checkpoint(lambda x: f(f(x))),
    "nested": lambda m, f: (
        lambda x: m.lax.scan(
            lambda c, w: (m.lax.cond(w > 1, f, m.np.cos, c), w),
            x,
            m.np.asarray(WEIGHTS),
        )[0]
    ),
}


def transformed(m: Modules, f: Any, x: Any, *, forward: bool) -> list[Any]:
    """Derivatives of `f`, batches of it, and both."""

    def loss(x: Any) -> Any:
        return sum(m.np.sum(part) for part in m.top.tree.leaves(f(x)))

    batch = m.np.stack([x, 0.5 * x])
    found = [
        m.top.grad(loss)(x),
        m.top.vmap(m.top.grad(loss), -1, 1)(batch.T),
        m.top.grad(lambda b: m.np.sum(m.top.vmap(loss)(b)))(batch),
    ]
    if forward:
        found += m.top.tree.leaves(m.top.jvp(f, (x,), (x,)))
    return found


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("rule", RULES)
def test_arrays_that_rules_use(rule: str, around: str, oracle_backend: Any) -> None:
    def program(m: Modules, x: Any) -> Any:
        f = AROUND[around](m, RULES[rule](m, WEIGHTS))
        return transformed(m, f, x, forward=rule == "custom_jvp")

    agree(program, X)
    agree(program, X, jitted=True)


def test_batch_rules_that_use_arrays(oracle_backend: Any) -> None:
    f = poot.custom_vmap(jnp.sin)
    f.def_vmap(lambda size, batched, x: (jnp.sin(x) * WEIGHTS, True))
    batch = np.stack([X, 2 * X])
    for looped in (
        lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=2)[0],
        lambda x: lax.while_loop(lambda c: c[0] > 9, f, f(f(x))),
        lambda x: lax.cond(x[0] < 9, lambda x: f(f(x)), f, x),
    ):
        for run in (poot.vmap(looped), poot.jit(poot.vmap(looped))):
            expected = np.sin(np.sin(batch) * WEIGHTS) * WEIGHTS
            np.testing.assert_allclose(run(batch), expected, rtol=1e-5)


@pytest.mark.parametrize("around", ["scan", "cond", "checkpoint"])
@pytest.mark.parametrize("rule", RULES)
def test_traced_values_that_rules_use(
    rule: str, around: str, oracle_backend: Any
) -> None:
    """Of a jit, a derivative or a batch around: JAX refuses those, or gives zeros."""
    m = Modules(poot, jnp, lax)

    def slope(weights: Any) -> Any:
        f = AROUND[around](m, RULES[rule](m, weights))
        return poot.grad(lambda x: sum(map(jnp.sum, poot.tree.leaves(f(x)))))(X)

    right = np.asarray(slope(WEIGHTS))
    np.testing.assert_allclose(poot.jit(slope)(WEIGHTS), right, rtol=1e-6)
    batch = np.stack([WEIGHTS, 1 - WEIGHTS])
    found = poot.vmap(slope)(batch)
    np.testing.assert_allclose(found, [right, slope(batch[1])], rtol=1e-6)
    direction = np.array([0.2, -1, 0.5], np.float32)
    moved = poot.jvp(slope, (WEIGHTS,), (direction,))[1]
    ahead, behind = (slope(WEIGHTS + way * direction) for way in (1e-2, -1e-2))
    np.testing.assert_allclose(moved, (ahead - behind) / 2e-2, rtol=1e-3, atol=1e-3)


def test_arrays_that_rules_use_on_the_device(on_device: None) -> None:
    for around in ("scan", "one branch"):

        def program(m: Modules, x: Any, around: str = around) -> Any:
            f = AROUND[around](m, pulled(m, WEIGHTS))
            return transformed(m, f, x, forward=False)

        agree(program, X)
        agree(program, X, jitted=True)


def test_a_tangent_that_nobody_reads_is_no_error(oracle_backend: Any) -> None:
    """The forward rule calls the function; where its value has a slope, it counts."""
    f = poot.custom_vjp(jnp.sin)
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct * jnp.cos(x),))

    def curvature(loss: Any) -> Any:
        return lambda x: poot.jvp(poot.grad(loss), (x,), (1.0,))[1]

    found = poot.jit(curvature(lambda x: 2 * f(x)))(0.3)
    np.testing.assert_allclose(found, -2 * np.sin(0.3), rtol=1e-6)
    with pytest.raises(ForwardModeError, match="reverse mode only, and is pushed"):
        poot.jit(curvature(lambda x: x * f(x)))(0.3)
