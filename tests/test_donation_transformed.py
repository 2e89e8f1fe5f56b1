"""Donation by calls under transformations and in other functions: as in JAX.

Each row runs in both. JAX refuses derivatives for which it has kept the very array that
it deleted; poot keeps the memory for them, and the array is as deleted.
"""

from __future__ import annotations

import functools
import gc
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot.core.errors import DeletedArrayError, DonationError, ShapeError
from poot.interpreters.backend import backend
from tests.backends import device_backend

X = np.arange(1, 7, dtype=np.float32)


class Functions:
    """Donating functions of one library."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.jnp = library.numpy
        self.lax = library.lax
        donating = functools.partial(library.jit, donate_argnums=0)
        self.double = donating(lambda x: x * 2)
        self.sin = donating(lambda x: self.jnp.sin(x))
        self.square = donating(lambda x: x * x)
        self.same = donating(lambda x: x)
        self.sum_of_sines = donating(lambda x: self.jnp.sin(x).sum())
        self.tripled_sum = donating(lambda x: (x * 3).sum())
        self.as_ints = donating(lambda x: x.astype(np.int32))
        self.as_halves = donating(lambda x: x.astype(np.float16))
        self.unread = donating(lambda x: self.jnp.ones(x.shape, np.float32) * 2)
        self.times = donating(lambda x, y: x * y)


# How a function of (functions, array) uses a donating one, and whether it deletes the
# array: in JAX and in poot.
Use = Callable[[Any, Any], Any]
ALIKE: dict[str, tuple[Use, bool]] = {
    "call": (lambda f, x: f.double(x), True),
    "vmap": (lambda f, x: f.library.vmap(f.double)(x), True),
    "vmap of vmap": (
        lambda f, x: f.library.vmap(f.library.vmap(f.double))(x.reshape(2, 3)),
        False,
    ),
    "vmap, returned": (lambda f, x: f.library.vmap(f.same)(x), True),
    "vmap, of the same size": (lambda f, x: f.library.vmap(f.as_ints)(x), True),
    "vmap, narrower": (lambda f, x: f.library.vmap(f.as_halves)(x), False),
    "vmap, not read": (lambda f, x: f.library.vmap(f.unread)(x), False),
    "vmap, from around": (
        lambda f, x: f.library.vmap(lambda y: f.double(x) + y)(f.jnp.ones(2)),
        True,
    ),
    "vmap, a value within": (lambda f, x: f.library.vmap(_within(f))(x), False),
    "vmap, a copy": (
        lambda f, x: f.library.vmap(lambda x: f.double(f.jnp.copy(x)) + x)(x),
        False,
    ),
    "jvp": (lambda f, x: f.library.jvp(f.sin, (x,), (f.jnp.ones(6),)), True),
    "jvp, a value within": (
        lambda f, x: f.library.jvp(_within(f), (x,), (f.jnp.ones(6),)),
        False,
    ),
    "jacfwd": (lambda f, x: f.library.jacfwd(f.sin)(x), True),
    "vjp": (lambda f, x: f.library.vjp(f.sin, x)[1](f.jnp.ones(6)), True),
    "linearize": (lambda f, x: f.library.linearize(f.sin, x)[1](f.jnp.ones(6)), True),
    "grad": (lambda f, x: f.library.grad(lambda x: f.sin(x).sum())(x), True),
    "grad, for the derivative": (lambda f, x: f.library.grad(f.sum_of_sines)(x), True),
    "grad, not read": (lambda f, x: f.library.grad(lambda x: f.unread(x)[0])(x), False),
    "value_and_grad": (
        lambda f, x: f.library.value_and_grad(lambda x: f.double(x).sum())(x),
        True,
    ),
    "grad by another": (
        lambda f, x: f.library.grad(lambda y: (f.double(x) * y).sum())(f.jnp.ones(6)),
        True,
    ),
    "jacrev": (lambda f, x: f.library.jacrev(f.sin)(x), True),
    "hessian": (lambda f, x: f.library.hessian(lambda x: f.sin(x).sum())(x), True),
    "vmap of grad": (lambda f, x: f.library.vmap(f.library.grad(f.sin))(x), True),
    "grad of vmap": (
        lambda f, x: f.library.grad(lambda x: f.library.vmap(f.sin)(x).sum())(x),
        True,
    ),
    "checkpoint": (lambda f, x: f.library.checkpoint(f.double)(x), True),
    "jit": (lambda f, x: f.library.jit(lambda x: f.double(x) + x)(x), False),
    "jit, from around": (lambda f, x: f.library.jit(lambda: f.double(x))(), False),
    "jit that donates": (
        lambda f, x: f.library.jit(lambda x: f.square(x) + 1, donate_argnums=0)(x),
        True,
    ),
    "jit of vmap": (lambda f, x: f.library.jit(f.library.vmap(f.double))(x), False),
    "jit of grad": (
        lambda f, x: f.library.jit(f.library.grad(f.sum_of_sines))(x),
        False,
    ),
    "vmap of jit": (
        lambda f, x: f.library.vmap(f.library.jit(lambda x: f.double(x)))(x),
        False,
    ),
    "grad of jit": (
        lambda f, x: f.library.grad(f.library.jit(lambda x: f.sin(x).sum()))(x),
        False,
    ),
    "scan": (
        lambda f, x: f.lax.scan(lambda c, _: (f.double(c), None), x, None, 2)[0],
        False,
    ),
    "vmap of scan": (
        lambda f, x: f.library.vmap(
            lambda x: f.lax.scan(lambda c, _: (f.double(c), None), x, None, 2)[0]
        )(x),
        False,
    ),
    "scan of vmap": (
        lambda f, x: f.lax.scan(
            lambda c, _: (f.library.vmap(f.double)(c), None), x, None, 2
        )[0],
        False,
    ),
    "map": (lambda f, x: f.lax.map(f.double, x), False),
    "cond": (lambda f, x: f.lax.cond(True, f.double, f.square, x), False),
    "eval_shape": (lambda f, x: f.library.eval_shape(f.double, x).shape, False),
}


def _within(f: Functions) -> Callable[[Any], Any]:
    return lambda x: f.double(x + 1) + x


@pytest.fixture(scope="module")
def both() -> tuple[Functions, Functions]:
    return Functions(poot), Functions(jax)


@pytest.mark.parametrize("use", ALIKE)
def test_what_is_deleted_in_jax_is_here(both: Any, use: str) -> None:
    run, is_deleted = ALIKE[use]
    results = []
    for functions in both:
        x = functions.library.device_put(X)
        results.append(functions.library.tree.leaves(run(functions, x)))
        assert x.is_deleted() is is_deleted, functions.library.__name__
    for own, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(own, theirs, rtol=1e-5)


# Their derivative needs the array itself: JAX deletes it and then looks for it.
NEEDED: dict[str, tuple[Use, Any]] = {
    "grad": (lambda f, x: f.library.grad(lambda x: f.square(x).sum())(x), X * 2),
    "vjp": (lambda f, x: f.library.vjp(f.square, x)[1](f.jnp.ones(6))[0], X * 2),
    "jacrev": (lambda f, x: f.library.jacrev(f.square)(x), np.diag(X * 2)),
    "vmap of grad": (lambda f, x: f.library.vmap(f.library.grad(f.square))(x), X * 2),
    "the other factor": (
        lambda f, x: f.library.grad(lambda y: f.times(x, y).sum())(f.jnp.ones(6)),
        X,
    ),
}


@pytest.mark.parametrize("use", NEEDED)
def test_a_derivative_keeps_the_memory_that_it_needs(both: Any, use: str) -> None:
    run, right = NEEDED[use]
    own, theirs = both
    x = theirs.library.device_put(X)
    with pytest.raises(RuntimeError, match="deleted"):
        run(theirs, x)
    assert x.is_deleted()
    x = own.library.device_put(X)
    np.testing.assert_allclose(run(own, x), right, rtol=1e-6)
    assert x.is_deleted()


# Where the array goes, and where it stays, otherwise than in JAX.
UNLIKE: dict[str, tuple[Use, bool]] = {
    # Their functions are traced, by which nothing is donated.
    "grad of checkpoint": (
        lambda f, x: f.library.grad(lambda x: f.library.checkpoint(f.double)(x).sum())(
            x
        ),
        False,
    ),
    # The derivative of x*x is made of x at once, and so can take its memory.
    "grad of a sum of squares": (
        lambda f, x: f.library.grad(
            f.library.jit(lambda x: (x * x).sum(), donate_argnums=0)
        )(x),
        True,
    ),
}


@pytest.mark.parametrize("use", UNLIKE)
def test_where_jax_differs(both: Any, use: str) -> None:
    run, is_deleted = UNLIKE[use]
    for functions, deletes in zip(both, (is_deleted, not is_deleted), strict=True):
        x = functions.library.device_put(X)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Some donated buffers")
            run(functions, x)
        assert x.is_deleted() is deletes, functions.library.__name__


def test_tangents_stay(both: Any) -> None:
    # JAX deletes them with their values; here others may have the same ones.
    own, theirs = both
    for functions in both:
        x, t = functions.library.device_put((X, X + 1))
        functions.library.jvp(functions.sin, (x,), (t,))
        assert t.is_deleted() is (functions is theirs)
    x, t = poot.device_put((X, X + 1))
    found = poot.jvp(lambda x: own.double(x + 1) + x, (x,), (t,))
    np.testing.assert_array_equal(found[1], 3 * (X + 1))
    assert not x.is_deleted()


# --- errors -----------------------------------------------------------------

LATER: dict[str, Callable[[Any, Any], Any]] = {
    "vmap, after it": lambda f, x: poot.vmap(lambda x: f.double(x) + x)(x),
    "vmap, twice": lambda f, x: poot.vmap(lambda x: f.double(x) + f.double(x))(x),
    "grad, after it": lambda f, x: poot.grad(lambda x: (f.double(x) * x).sum())(x),
    "grad, twice": lambda f, x: poot.grad(lambda x: (f.sin(x) + f.sin(x)).sum())(x),
    "vmap, later": lambda f, x: (poot.vmap(f.double)(x), x + 1),
    "vmap, once more": lambda f, x: (poot.vmap(f.double)(x), poot.vmap(f.double)(x)),
}


@pytest.mark.parametrize("use", LATER)
def test_no_use_after_donation(both: Any, use: str) -> None:
    x = poot.device_put(X)
    with pytest.raises(DeletedArrayError, match="was donated to `<lambda>` as x"):
        LATER[use](both[0], x)
    assert x.is_deleted()


def test_one_array_at_two_places(both: Any) -> None:
    f = both[0]
    x = poot.device_put(X)
    given_twice = r"`<lambda>`: the array donated as x is given as y too"
    with pytest.raises(DonationError, match=given_twice):
        poot.vmap(f.times)(x, x)
    with pytest.raises(DonationError, match=given_twice):
        poot.grad(lambda x: f.times(x, x).sum())(x)
    with pytest.raises(DonationError, match="given as the tangent of x too"):
        poot.jvp(f.sin, (x,), (x,))
    assert not x.is_deleted()


def _fails_late(x: Any) -> Any:
    poot.debug.callback(lambda y: 1 / 0, x)
    return x + 1


def test_a_call_that_fails_leaves_the_array(both: Any) -> None:
    x, gone = poot.device_put((X, X))
    both[0].double(gone)
    refused = poot.jit(lambda x: x.reshape(7), donate_argnums=0)
    pair = poot.jit(lambda x, y: (x + y, x - y), donate_argnums=(0, 1))
    with pytest.raises(ShapeError):
        poot.vmap(refused)(x)
    with pytest.raises(ZeroDivisionError):
        poot.vmap(poot.jit(_fails_late, donate_argnums=0))(x)
    with pytest.raises(DeletedArrayError, match="argument y of `<lambda>`"):
        poot.vmap(lambda x: pair(x, gone))(x)
    with (
        poot.config.override(debug_nans=True),
        pytest.raises(FloatingPointError),
    ):
        poot.vmap(poot.jit(lambda x: jnp.log(x - 9), donate_argnums=0))(x)
    np.testing.assert_array_equal(x, X)
    # Whoever had its memory for a while does not write to it when it is donated.
    with pytest.warns(UserWarning, match="the array stays"):
        linear = poot.vjp(poot.jit(lambda x: x[0] * x[1], donate_argnums=0), x)[1]
    assert not x.is_deleted()
    both[0].double(x)
    np.testing.assert_array_equal(linear(jnp.float32(1))[0][:2], X[1::-1])


def test_donation_that_nothing_can_use_warns_once(both: Any) -> None:
    f = poot.jit(lambda t: t["a"].sum(), donate_argnums=0)
    x = poot.device_put(X)
    told = r"`<lambda>`: no result .* the argument `t\['a'\]` \(f32\[6\]\)"
    with pytest.warns(UserWarning, match=told) as caught:
        poot.grad(f)({"a": x})
    assert caught[0].filename == __file__
    for _ in range(2):
        poot.grad(f)({"a": x})
    for functions, message in zip(both, ("the array stays", "not usable"), strict=True):
        x, rows = functions.library.device_put((X, np.ones((6, 6), np.float32)))
        with pytest.warns(UserWarning, match=message):
            functions.library.vmap(functions.times, (None, 0))(x, rows)
        assert not x.is_deleted()
    # Numbers and NumPy arrays have nothing to give.
    poot.vmap(both[0].times, (0, None))(X, 2.0)


# --- memory -----------------------------------------------------------------


def _in_use() -> int:
    gc.collect()
    return backend().device.memory_statistics().in_use_bytes  # type: ignore[attr-defined]


@pytest.mark.skipif(device_backend() is None, reason="no Vulkan device")
@pytest.mark.parametrize(
    "use",
    [
        lambda f, x: f.library.vmap(f.double)(x),
        lambda f, x: f.library.grad(lambda x: f.double(x).sum())(x),
        lambda f, x: f.as_ints(x),
        lambda f, x: f.library.jit(lambda x: x.reshape(4, -1) + 1, donate_argnums=0)(x),
    ],
)
def test_the_memory_is_free_afterwards(both: Any, use: Any) -> None:
    x = poot.device_put(np.ones(1 << 20, np.float32))
    before = _in_use()
    result = use(both[0], x)
    assert _in_use() < before + 4096
    assert x.is_deleted() and result.size == 1 << 20
