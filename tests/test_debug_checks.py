"""`check`, `eval_shape`, `named_scope`, and the user's line in errors."""

from __future__ import annotations

import traceback
from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import ShapeDtypeStruct, lax
from poot.core.errors import (
    ArgumentError,
    CheckError,
    DTypeError,
    ShapeError,
)
from tests.backends import each_backend  # noqa: F401

uses_each_backend = pytest.mark.usefixtures("each_backend")


def positive(x: Any) -> Any:
    poot.check(x > 0, "x must be positive")
    return jnp.log(x)


@uses_each_backend
def test_check_raises_at_once_in_eager_code() -> None:
    positive(jnp.array([1.0, 2.0]))
    with pytest.raises(CheckError, match=r"x must be positive .*test_debug_checks.py"):
        positive(jnp.array([1.0, -2.0]))


@uses_each_backend
def test_check_in_a_jitted_function_raises_where_a_result_is_awaited() -> None:
    jitted = poot.jit(positive)
    np.testing.assert_allclose(jitted(jnp.ones(3)), np.zeros(3))
    failed = jitted(jnp.array([1.0, 0.0, 3.0]))
    with pytest.raises(CheckError, match=r"x must be positive .*\(positive\)"):
        failed.block_until_ready()
    # The next call starts anew.
    np.testing.assert_allclose(jitted(jnp.ones(3)), np.zeros(3))


@uses_each_backend
@pytest.mark.parametrize("transform", [poot.vmap, poot.grad], ids=["vmap", "grad"])
def test_check_under_transformations(transform: Any) -> None:
    def f(x: Any) -> Any:
        poot.check(x < 3, "x too large")
        return x * x

    of_each = transform(f)
    good, bad = jnp.array([1.0, 2.0]), jnp.array([1.0, 5.0])
    if transform is poot.grad:
        good, bad = good[1], bad[1]
    of_each(good)
    with pytest.raises(CheckError, match="x too large"):
        of_each(bad)
    with pytest.raises(CheckError, match="x too large"):
        poot.jit(of_each)(bad).block_until_ready()


@uses_each_backend
@pytest.mark.parametrize("loop", ["scan", "while"])
@pytest.mark.parametrize("jitted", [False, True])
def test_check_in_a_loop_names_the_iteration(loop: str, jitted: bool) -> None:
    def step(i: Any, total: Any) -> Any:
        poot.check(i != 3, "{set} i was 3")
        return total + i

    def run(n: Any) -> Any:
        if loop == "scan":
            return lax.scan(lambda c, i: (step(i, c), None), n * 0, jnp.arange(5))[0]
        return lax.while_loop(
            lambda c: c[0] < n, lambda c: (c[0] + 1, step(c[0], c[1])), (n * 0, n * 0)
        )[1]

    function = poot.jit(run) if jitted else run
    with pytest.raises(CheckError, match=r"\{set\} i was 3 \(first in iteration 3\)"):
        function(jnp.int32(5)).block_until_ready()


@uses_each_backend
def test_a_bounds_check_in_a_scan_names_the_iteration() -> None:
    def pick(x: Any, indices: Any) -> Any:
        return lax.scan(lambda c, i: (c, x[i]), 0, indices)[1]

    with poot.config.override(check_bounds=True):
        found = poot.jit(pick)(jnp.arange(4.0), jnp.array([0, 3, 7, 9]))
        with pytest.raises(CheckError, match=r"\(first in iteration 2\)"):
            found.block_until_ready()


def test_the_oracle_names_the_iteration_too() -> None:
    def run(xs: Any) -> Any:
        def body(c: Any, x: Any) -> Any:
            poot.check(x > 0, "not positive")
            return c + x, None

        return lax.scan(body, jnp.float32(0), xs)[0]

    xs = np.array([1, 1, -1, -1], np.float32)
    graph = poot.make_graph(run)(xs)
    with pytest.raises(CheckError, match="iteration 2"):
        poot.evaluate(graph, xs)


@uses_each_backend
def test_check_takes_bools() -> None:
    poot.check(True, "holds")
    with pytest.raises(CheckError, match="does not"):
        poot.check(False, "does not")
    with pytest.raises(DTypeError, match=r"f32\[3\], takes bools"):
        poot.check(jnp.ones(3), "x")


# --- eval_shape -------------------------------------------------------------


def test_eval_shape_gives_the_tree_of_types() -> None:
    def f(params: Any, x: Any, *, scale: float) -> Any:
        y = x @ params["w"] + np.ones(4, np.float32)
        return {"y": y * scale, "parts": (jnp.sum(y), jnp.argmax(y, axis=1))}

    x = ShapeDtypeStruct((2, 3), np.float32)
    found = poot.eval_shape(f, {"w": ShapeDtypeStruct((3, 4), "float32")}, x, scale=2.0)
    assert found["y"] == ShapeDtypeStruct((2, 4), np.float32)
    assert found["parts"] == (
        ShapeDtypeStruct((), np.float32),
        ShapeDtypeStruct((2,), np.int32),
    )
    assert (found["y"].ndim, found["y"].size) == (2, 8)


def test_eval_shape_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Any:
        raise AssertionError("the device was asked for")

    monkeypatch.setattr("poot.interpreters.array.backend", refuse)
    monkeypatch.setattr("poot.interpreters.eager.backend", refuse)
    found = poot.eval_shape(
        lambda x: jnp.cumsum(x) + np.ones(1 << 20, np.float16),
        ShapeDtypeStruct((1 << 20,), "float16"),
    )
    assert found == ShapeDtypeStruct((1 << 20,), np.float16)


def test_eval_shape_within_a_trace_takes_traced_values() -> None:
    def f(x: Any) -> Any:
        inner = poot.eval_shape(lambda y: jnp.outer(y, x), x)
        return jnp.zeros(inner.shape, inner.dtype)

    assert poot.eval_shape(f, np.ones(3, np.float32)).shape == (3, 3)


def test_eval_shape_refuses_what_no_function_takes() -> None:
    with pytest.raises(ArgumentError, match="given a str"):
        poot.eval_shape(lambda x: x, "text")
    with pytest.raises(ShapeError):
        poot.eval_shape(
            jnp.matmul, ShapeDtypeStruct((2, 3), "float32"), np.ones((4, 5))
        )


# --- names ------------------------------------------------------------------


@poot.named_scope("attention")
def attention(x: Any) -> Any:
    return jnp.exp(x)


def test_scopes_show_in_sources_and_errors() -> None:
    def model(x: Any) -> Any:
        with poot.named_scope("encoder"):
            y = attention(x)
        return jnp.sin(y)

    graph = poot.make_graph(model)(np.ones(3, np.float32))
    inner, outer = graph.source(0), graph.source(1)
    assert (inner.scope, outer.scope) == ("encoder/attention", "")
    assert str(inner).endswith("(attention in encoder/attention)")
    with pytest.raises(TypeError, match="takes a string"), poot.named_scope(3):  # type: ignore[arg-type]
        pass


@uses_each_backend
def test_scopes_show_in_reports() -> None:
    compiled = poot.jit(attention).lower(np.ones(3, np.float32)).compile()
    assert "in attention" in compiled.report()


@uses_each_backend
def test_a_failed_check_names_its_scope() -> None:
    with (
        poot.named_scope("layer 3"),
        pytest.raises(CheckError, match="in layer 3"),
    ):
        poot.check(False, "no")


# --- tracebacks -------------------------------------------------------------


def test_a_traceback_ends_in_the_users_line() -> None:
    try:
        jnp.matmul(np.ones((2, 3)), np.ones((4, 5)))
    except ShapeError as error:
        last = traceback.format_exception(error)[-1].strip()
    assert last.startswith("in your code: ")
    assert __file__ in last and "ends_in_the_users_line" in last
