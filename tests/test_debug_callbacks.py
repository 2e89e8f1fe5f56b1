"""`pure_callback`: functions of the host's inside others, jitted, batched, in loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import ShapeDtypeStruct, debug, lax
from poot.core.errors import (
    ArgumentError,
    BatchingError,
    CapabilityError,
    CheckError,
    NoDerivativeError,
    TypeMismatchError,
)
from poot.interpreters.hosted import _Stretch
from tests.backends import each_backend  # noqa: F401

pytestmark = pytest.mark.usefixtures("each_backend")

F32 = ShapeDtypeStruct((), np.float32)
each_way = pytest.mark.parametrize(
    "way", [lambda f: f, poot.jit], ids=["eager", "jitted"]
)


def same(x: Any) -> ShapeDtypeStruct:
    return ShapeDtypeStruct(x.shape, x.dtype)


@each_way
def test_the_host_computes_in_the_middle(way: Any) -> None:
    def on_host(tree: Any, *, power: Any) -> Any:
        assert isinstance(tree["x"], np.ndarray)
        return {"y": tree["x"] ** power, "count": np.int32(tree["x"].size)}

    def f(x: Any) -> Any:
        wanted = {"count": ShapeDtypeStruct((), np.int32), "y": same(x)}
        found = poot.pure_callback(on_host, wanted, {"x": x + 1}, power=3)
        return jnp.sum(found["y"]) / found["count"]

    assert float(way(f)(jnp.arange(3.0))) == (1 + 8 + 27) / 3


@each_way
@pytest.mark.parametrize("method", ["sequential", "expand_dims", "broadcast_all"])
def test_vmap_calls_as_its_method_says(way: Any, method: str) -> None:
    shapes: list[Any] = []

    def on_host(x: Any, y: Any) -> Any:
        shapes.append((x.shape, y.shape))
        return x + y

    def f(x: Any, y: Any) -> Any:
        return poot.pure_callback(on_host, same(x), x, y, vmap_method=method)

    xs, y = jnp.arange(6.0).reshape(3, 2), jnp.ones(3)
    found = way(poot.vmap(f, (1, None), 1))(xs, y)
    np.testing.assert_array_equal(found, np.asarray(xs) + 1)
    assert (
        shapes
        == {
            "sequential": [((3,), (3,))] * 2,
            "expand_dims": [((2, 3), (1, 3))],
            "broadcast_all": [((2, 3), (2, 3))],
        }[method]
    )


def test_vmap_twice_and_over_nobody() -> None:
    def f(x: Any) -> Any:
        return poot.pure_callback(np.negative, same(x), x, vmap_method="sequential")

    xs = jnp.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(poot.vmap(poot.vmap(f))(xs), -np.asarray(xs))
    assert poot.vmap(f)(xs[:0]).shape == (0, 3)


@each_way
def test_in_loops_and_branches(way: Any) -> None:
    def root(x: Any) -> Any:
        return poot.pure_callback(np.sqrt, F32, x)

    def f(x: Any, xs: Any) -> Any:
        def body(c: Any, x: Any) -> Any:
            c = lax.cond(x > 0, root, lambda c: c * 4, c)
            return c, (c, x)

        last, ys = lax.scan(body, x, xs, reverse=True)
        n, last = lax.while_loop(
            lambda c: c[1] > 2, lambda c: (c[0] + 1, root(c[1])), (0, last)
        )
        return n, last, ys

    n, last, (cs, xs) = way(f)(jnp.float32(16), jnp.array([-1, -1, 1]))
    assert (int(n), float(last)) == (3, float(np.float32(64) ** 0.125))
    np.testing.assert_array_equal(cs, [64, 16, 4])
    np.testing.assert_array_equal(xs, [-1, -1, 1])


@each_way
def test_checks_and_records_beside_it(
    way: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def f(xs: Any) -> Any:
        def body(c: Any, x: Any) -> Any:
            debug.print("{}", c)
            poot.check(x != 3, "x was 3")
            return poot.pure_callback(np.add, F32, c, x), None

        return lax.scan(body, jnp.float32(0), xs)[0]

    assert float(way(f)(jnp.arange(3.0))) == 3
    assert capsys.readouterr().out.split() == ["0.0", "0.0", "1.0"]
    with pytest.raises(CheckError, match=r"x was 3 .*iteration 3"):
        way(f)(jnp.arange(5.0)).block_until_ready()


def test_donated_arguments_numbers_and_passed_on_results() -> None:
    @poot.jit
    def f(x: Any, n: Any) -> Any:
        return x, poot.pure_callback(np.multiply, same(x), x, jnp.float32(n))

    x: Any = jnp.arange(3.0)
    before, after = f(x, 2)
    np.testing.assert_array_equal(after, [0, 2, 4])
    before.delete()
    np.testing.assert_array_equal(x, [0, 1, 2])
    taking: Any = poot.jit(
        lambda x: poot.pure_callback(np.exp, same(x), x), donate_argnums=0
    )
    np.testing.assert_array_equal(taking(x), np.exp(np.arange(3, dtype=np.float32)))
    assert x.is_deleted()


def test_a_report_says_that_it_is_cut() -> None:
    f = poot.jit(lambda x: poot.pure_callback(np.exp, same(x), x))
    compiled = f.lower(jnp.ones(2)).compile()
    for text in (f.lower(jnp.ones(2)).report(), compiled.report(), str(compiled)):
        assert "such calls is a program" in text or "cut at calls" in text
    with pytest.raises(CapabilityError, match="is no single program"):
        compiled.spirv()


def test_derivatives_are_the_users() -> None:
    def f(x: Any) -> Any:
        return poot.pure_callback(np.sin, F32, x)

    with pytest.raises(NoDerivativeError, match=r"`sin`: .*custom_jvp"):
        poot.grad(f)(jnp.float32(0))
    smooth = poot.custom_jvp(f)
    smooth.defjvps(lambda t, out, x: t * jnp.cos(x))
    assert float(poot.jit(poot.grad(smooth))(jnp.float32(0))) == 1


@pytest.mark.parametrize(
    "returned, message",
    [
        (np.zeros(3, np.float32), r"returned f32\[3\], .* says f32\[2\]"),
        (np.zeros(2, int), r"returned i32\[2\]"),
        ((np.zeros(2, np.float32),) * 2, "returned the tree"),
    ],
)
def test_a_result_of_another_type(returned: Any, message: str) -> None:
    x = jnp.ones(2)
    with pytest.raises(TypeMismatchError, match=message):
        poot.pure_callback(lambda x: returned, same(x), x)


def test_what_it_refuses() -> None:
    x = jnp.ones(2)
    with pytest.raises(BatchingError, match="say by vmap_method"):
        poot.vmap(lambda x: poot.pure_callback(np.sin, F32, x))(x)
    with pytest.raises(ArgumentError, match="vmap_method is 'all', takes None or"):
        poot.pure_callback(np.sin, F32, x, vmap_method="all")
    with pytest.raises(ArgumentError, match="holds a str"):
        poot.pure_callback(np.sin, "f32", x)


def test_what_stands_between_calls_is_one_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[Any] = []

    def f(x: Any) -> Any:
        y = jnp.sin(x) * 2 + 1
        y = poot.pure_callback(np.negative, same(y), y)
        z = jnp.cos(y) * y - x
        return poot.pure_callback(np.sqrt, same(z), abs(z)), z

    jitted = poot.jit(f)
    x = jnp.arange(3.0)
    jitted(x)
    run = _Stretch.run

    def counted(stretch: _Stretch, known: Any) -> None:
        calls.append(stretch)
        run(stretch, known)

    monkeypatch.setattr(_Stretch, "run", counted)
    found, z = jitted(x)
    assert len(calls) == 2
    y = -(np.sin(np.arange(3.0)) * 2 + 1)
    np.testing.assert_allclose(z, np.cos(y) * y - np.arange(3), rtol=1e-5)
    np.testing.assert_array_equal(found, np.sqrt(np.abs(z)))
