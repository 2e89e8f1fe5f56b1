"""What users get wrong, and what others got wrong, with transformations."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import lax
from poot.core.errors import (
    ArgumentError,
    CheckError,
    DTypeError,
    PootError,
    TraceLeak,
    TypeMismatchError,
)
from poot.core.interpreter import current
from poot.interpreters.eager import EAGER
from tests import backends

oracle_backend = backends.oracle_backend
pytestmark = pytest.mark.usefixtures("oracle_backend")


def identity_jvp() -> Any:
    return poot.custom_jvp(lambda x: x)


def identity_vjp() -> Any:
    return poot.custom_vjp(lambda x: x)


# --- functions that are kept ------------------------------------------------


def test_a_jitted_function_is_kept_by_the_named_batches_around_it() -> None:
    share = poot.jit(lambda x: x / lax.psum(1, "i") + lax.psum(x, "i"))
    for size in (3, 4):
        x = np.arange(size, dtype=np.float32)
        found = poot.vmap(share, axis_name="i")(x)
        np.testing.assert_allclose(found, x / size + x.sum(), rtol=1e-6)
    with pytest.raises(ArgumentError, match="no batch is called 'i' here"):
        poot.vmap(share, axis_name="j")(jnp.arange(3.0))


@pytest.mark.parametrize("around", [np.ones(3, np.float32), 2.0], ids=["array", "x"])
def test_a_jitted_function_is_traced_once_for_all_gradients(around: Any) -> None:
    traced = []
    held = jnp.asarray(around)

    @poot.jit
    def f(x: Any) -> Any:
        traced.append(x)
        return (x * held * around).sum()

    for _ in range(3):
        np.testing.assert_allclose(poot.grad(f)(jnp.ones(3)), held * around)
    poot.vmap(f)(jnp.ones((2, 3)))
    assert len(traced) == 1


def test_a_kept_function_does_not_hold_the_values_of_a_call() -> None:
    f = poot.custom_vjp(lambda x, y: x * y)
    f.defvjp(lambda x, y: (x * y, y), lambda y, ct: (ct * y, None))

    def loss(x: Any, y: Any) -> Any:
        step = lambda c, _: (f(c, y), None)  # noqa: E731
        return lax.scan(step, x, None, length=2)[0].sum()

    x, y = jnp.ones(3), jnp.full(3, 2.0)
    held = [weakref.ref(x), weakref.ref(y)]
    np.testing.assert_array_equal(poot.grad(loss)(x, y), [4, 4, 4])
    del x, y
    gc.collect()
    assert [ref() for ref in held] == [None, None]


# --- values that leak -------------------------------------------------------


@pytest.mark.parametrize(
    "run",
    [
        lambda f: poot.grad(f)(1.0),
        lambda f: poot.jvp(f, (1.0,), (1.0,)),
        lambda f: poot.vmap(f)(jnp.ones(2)),
        lambda f: poot.jit(f)(1.0),
        lambda f: lax.scan(lambda c, x: (f(c), x), 0.0, jnp.ones(2)),
    ],
    ids=["grad", "jvp", "vmap", "jit", "scan"],
)
def test_a_function_that_raised_has_ended(run: Callable[[Any], Any]) -> None:
    left = []

    def raises(x: Any) -> Any:
        left.append(x * 2)
        raise KeyError("of the user")

    with pytest.raises(KeyError, match="of the user"):
        run(raises)
    assert current() is EAGER
    with pytest.raises(TraceLeak, match=r"after `.*` had returned"):
        left[0] + 1


@pytest.mark.parametrize(
    ("run", "kind"),
    [
        (lambda f: poot.grad(f)(X), "jvp"),
        (lambda f: poot.vmap(f)(X), "vmap"),
        (lambda f: poot.grad(lambda x: poot.vmap(f)(x).sum())(X), "vmap"),
    ],
    ids=["grad", "vmap", "vmap in grad"],
)
def test_a_leaked_value_names_the_line_that_made_it(run: Any, kind: str) -> None:
    left = []

    def leaks(x: Any) -> Any:
        left.append(jnp.sin(x))
        return jnp.sum(left[0])

    line = leaks.__code__.co_firstlineno + 1
    run(leaks)
    with pytest.raises(TraceLeak) as caught:
        left[0] + 1
    made = rf"made by `sin` at {__file__}:{line} (leaks), while {kind} ran `leaks`"
    assert made in str(caught.value)


# --- weak types -------------------------------------------------------------


def test_derivatives_of_weakly_typed_values_are_weakly_typed() -> None:
    half = jnp.ones(2, np.float16)
    pull = poot.vjp(jnp.sin, 3.0)[1]
    for slope in (
        poot.grad(lambda x: x * jnp.float32(2))(3.0),
        poot.jit(poot.grad(jnp.sin))(3.0),
        poot.grad(poot.checkpoint(jnp.sin))(3.0),
        *poot.jvp(jnp.sin, (3.0,), (jnp.float32(1),)),
        pull(1.0)[0],
    ):
        assert (slope.dtype, (slope * half).dtype) == (np.float32, np.float16)
    strong = poot.grad(jnp.sin)(jnp.float32(3))
    assert (strong * half).dtype == np.float32


def test_the_number_of_a_counted_loop_does_not_widen_the_carry() -> None:
    for dtype in (np.int8, np.uint8, np.float16):
        start = jnp.asarray(0, dtype)
        counted = lax.fori_loop(0, 5, lambda i, c: c + i, start)
        traced = poot.jit(lambda n, c: lax.fori_loop(0, n, lambda i, c: c + i, c))
        for found in (counted, traced(5, start)):
            assert (found.dtype, int(found)) == (dtype, 10)


# --- eager calls see what transformed ones see ------------------------------


def test_wrapped_functions_get_arrays_eagerly_too() -> None:
    ones = np.ones(3, np.float32)
    for wrap in (poot.checkpoint, poot.custom_jvp):
        wrapped = wrap(lambda x: x.at[0].set(5.0))
        if wrap is poot.custom_jvp:
            wrapped.defjvp(lambda primals, tangents: (primals[0], tangents[0]))
        np.testing.assert_array_equal(wrapped(ones), [5, 1, 1])
    assert poot.checkpoint(lambda x: x.sum())(3.0).dtype == np.float32


def test_cond_and_switch_take_the_operand_by_name() -> None:
    assert float(lax.cond(True, lambda _: 1.0, lambda _: 2.0, operand=None)) == 1
    assert float(lax.switch(1, [jnp.sin, lambda x: x * 3], operand=2.0)) == 6
    with pytest.raises(ArgumentError, match="by position and as operand"):
        lax.cond(True, jnp.sin, jnp.cos, 1.0, operand=2.0)


# --- checkpoint of what is known in part ------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        lambda x: lax.fori_loop(0, 3, lambda i, c: jnp.sin(c) * x[0] + i, x[1]),
        lambda x: lax.scan(lambda c, _: (c * x[0], c), x[1], None, length=3)[1].sum(),
        lambda x: lax.cond(x[0] > 0, lambda x: jnp.sin(x[0]) * x[1], lambda x: x[0], x),
        lambda x: poot.checkpoint(lambda y: jnp.sin(y[0]) * y[1])(x) * x[0],
    ],
    ids=["carry", "ys", "cond", "checkpoint"],
)
@pytest.mark.parametrize("keeps", [None, lambda *_: True], ids=["nothing", "all"])
def test_checkpoint_gives_the_values_of_loops_and_branches(
    body: Callable[[Any], Any], keeps: Any
) -> None:
    x = jnp.array([0.7, 1.3])
    wanted = poot.value_and_grad(body)(x)
    wrapped = poot.checkpoint(body, policy=keeps)
    for transform in (poot.value_and_grad, lambda f: poot.jit(poot.value_and_grad(f))):
        for found, right in zip(transform(wrapped)(x), wanted, strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-6)


# --- checks -----------------------------------------------------------------


def _last_of(x: Any) -> Any:
    places = jnp.array([1, 9])
    return lax.scan(lambda c, i: (c + x[i], None), 0.0, places)[0]


@pytest.mark.parametrize(
    "function",
    [_last_of, poot.jit(_last_of), poot.checkpoint(_last_of)],
    ids=["scan", "jit", "checkpoint"],
)
def test_a_check_that_fails_spoils_derivatives_alone(function: Any) -> None:
    x = jnp.arange(4.0)
    with poot.config.override(check_bounds=True):
        with pytest.raises(CheckError, match="out of bounds"):
            np.asarray(poot.grad(function)(x))
        with pytest.raises(CheckError, match="out of bounds"):
            np.asarray(poot.jvp(function, (x,), (x,))[1])


# --- rules ------------------------------------------------------------------


def test_rules_give_results_of_their_functions_types() -> None:
    f = identity_jvp()
    f.defjvp(lambda primals, tangents: (jnp.ones(3), jnp.ones(3)))
    with pytest.raises(TypeMismatchError, match=r"gave result as f32\[3\]"):
        poot.grad(f)(1.0)
    g = identity_vjp()
    g.defvjp(lambda x: (x.astype(np.float16), None), lambda _, ct: (ct,))
    with pytest.raises(TypeMismatchError, match=r"fwd gave result as f16\[\]"):
        poot.grad(g)(jnp.float32(1))


@pytest.mark.parametrize(
    ("result", "flag"),
    [
        (lambda x: jnp.ones(4), True),
        (lambda x: jnp.float32(1), True),
        (lambda x: x, False),
        (lambda x: x.astype(np.float16), True),
    ],
    ids=["other size", "no batch", "not told", "dtype"],
)
def test_rules_of_batches_give_what_they_say(result: Any, flag: bool) -> None:
    f = poot.custom_vmap(lambda x: x * 2)
    f.def_vmap(lambda size, batched, x: (result(x), flag))
    with pytest.raises(TypeMismatchError, match="the custom_vmap rule of"):
        poot.vmap(f)(jnp.ones(3))


# --- wrong arguments --------------------------------------------------------

X = np.arange(3.0, dtype=np.float32)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: poot.grad(jnp.sin, argnums="x")(1.0), ArgumentError, "argnums is 'x'"),
        (lambda: poot.grad(jnp.add, (0, 0))(1.0, 1.0), ArgumentError, "twice"),
        (lambda: poot.vmap(jnp.sin, out_axes="a")(X), ArgumentError, "'a' is no axis"),
        (lambda: poot.vmap(jnp.sin, out_axes=True)(X), ArgumentError, "True is no"),
        (lambda: poot.vmap(jnp.sin, axis_size="3")(X), ArgumentError, "axis_size is"),
        (
            lambda: poot.vmap(lambda x: lax.psum(x, 0), axis_name="i")(X),
            ArgumentError,
            "axis_name is 0",
        ),
        (lambda: poot.jacrev(jnp.sin)(3), DTypeError, r"args\[0\] is i32\[\]"),
        (lambda: poot.jacfwd(lambda x: x > 0)(3.0), DTypeError, "returned bool"),
        (
            lambda: lax.associative_scan(lambda a, b: a.sum(), jnp.asarray(X)),
            TypeMismatchError,
            "elems goes in as",
        ),
        (lambda: lax.map(jnp.sin, X, batch_size=0), ArgumentError, "batch_size is 0"),
        (
            lambda: poot.checkpoint(jnp.sin, policy="dots"),
            ArgumentError,
            "takes a function",
        ),
        (lambda: poot.grad(lambda x: "text")(1.0), ArgumentError, "it is a str"),
    ],
)
def test_wrong_arguments_are_named(
    call: Callable[[], Any], error: type[PootError], words: str
) -> None:
    with pytest.raises(error, match=words):
        call()
