"""Tracing: leaks, concretization, constants, weak types, clean state after errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import lax
from poot.core.errors import (
    ConcretizationError,
    DTypeError,
    NonConcreteBooleanIndexError,
    TraceLeak,
)
from poot.core.interpreter import current
from poot.core.types import Named, SlotKey, Storage
from poot.interpreters.eager import EAGER

X = np.array([1.0, 2.0, 3.0], np.float32)


def here() -> str:
    return "test_tracing.py"


# --- graphs -----------------------------------------------------------------


def test_make_graph_records_primitives_with_names_and_literals() -> None:
    def f(x: Any, p: Any) -> Any:
        return (x * 2.0 + p["w"]).sum()

    graph = poot.make_graph(f)(X, {"w": 1.5})
    assert str(graph) == "\n".join(
        [
            "graph {",
            '  device %0: f32[3] named "x"',
            '  slot %1: f32[] kind "scalar" key "p[\'w\']"',
            "  %2: f32[3] = binary[op=mul](%0, 2.0:f32)",
            "  %3: f32[3] = binary[op=add](%2, %1)",
            "  %4: f32[] = reduce[op=sum, axis=0, keepdim=false](%3)",
            "  result %4",
            "}",
        ]
    )
    assert poot.Graph.parse(str(graph)) == graph
    assert graph.source(0).function == "f" and graph.source(0).file.endswith(here())
    (result,) = poot.evaluate(graph, X, 1.5)
    assert result == np.sum(X * 2 + 1.5)


def test_storage_of_arguments() -> None:
    graph = poot.make_graph(lambda *args: args)(X, 1, 2.5, True, np.int16(3), [X])
    metas = [graph.values[v] for v in graph.inputs]
    assert [m.storage for m in metas] == [
        Storage.DEVICE,
        *[Storage.SLOT] * 4,
        Storage.DEVICE,
    ]
    dtypes = [m.type.dtype.name for m in metas]
    assert dtypes == ["f32", "i32", "f32", "bool", "i16", "f32"]
    assert metas[0].identity == Named("args[0]")
    assert metas[1].identity == SlotKey("args[1]")
    assert metas[5].identity == Named("args[5][0]")


def test_closed_over_arrays_are_constants_by_identity() -> None:
    weights = poot.device_put(X)
    graph = poot.make_graph(lambda x: x * weights + weights)(X)
    assert len(graph.consts) == 1
    np.testing.assert_array_equal(poot.evaluate(graph, X)[0], X * X + X)


def test_closed_over_numpy_arrays_are_copied_at_trace() -> None:
    table = X.copy()
    graph = poot.make_graph(lambda x: x * table + table)(X)
    assert len(graph.consts) == 1
    table[:] = 0
    np.testing.assert_array_equal(poot.evaluate(graph, X)[0], X * X + X)

    def changes_it(x: Any) -> Any:
        y = x + table
        table[:] = 5
        return y + table

    graph = poot.make_graph(changes_it)(X)
    assert len(graph.consts) == 2
    payloads = [graph.payloads[value] for value in graph.consts]
    assert poot.Graph.parse(str(graph), payloads) == graph
    np.testing.assert_array_equal(poot.evaluate(graph, X)[0], X + 5)


def test_a_constant_outlives_the_deletion_of_its_array() -> None:
    weights = poot.device_put(X)
    graph = poot.make_graph(lambda x: x * weights)(X)
    weights.delete()
    np.testing.assert_array_equal(poot.evaluate(graph, X)[0], X * X)


def test_weak_types_come_out_as_in_eager_code() -> None:
    cases: list[Callable[[Any], Any]] = [
        lambda x: x * 0.1,
        lambda x: x + 1,
        lambda x: x / 2,
        lambda x: -x,
        lambda x: x.sum(),
        lambda x: x == 1,
    ]
    arguments = [2, 1.5, True, np.float32(1), np.int8(1), X, X.astype(np.float16)]
    for function in cases:
        for argument in arguments:
            if function is cases[3] and argument is True:
                continue
            eager = function(poot.device_put(argument))
            jitted = poot.jit(function)(argument)
            assert (jitted.dtype, jitted.weak_type) == (eager.dtype, eager.weak_type)
            np.testing.assert_array_equal(jitted, eager)


def test_traced_values_count_as_arrays() -> None:
    kinds = []
    poot.jit(lambda x: kinds.append(isinstance(x, poot.Array)) or x)(X)
    assert kinds == [True] and isinstance(poot.device_put(X), poot.Array)
    assert not isinstance(X, poot.Array)


def test_graphs_with_other_constants_differ() -> None:
    first, second = poot.device_put(X), poot.device_put(X)

    def graph_with(weights: Any) -> poot.Graph:
        return poot.make_graph(lambda x: x * weights)(X)

    assert graph_with(first) == graph_with(first) != graph_with(second)
    assert graph_with(X) == graph_with(X.copy()) != graph_with(X + 1)


def test_abstract_arguments_need_no_numbers() -> None:
    spec = poot.ShapeDtypeStruct((4, 3), np.float16)
    graph = poot.make_graph(lambda x: x.T @ x)(spec)
    assert [str(t) for t in graph.result_types] == ["f16[3,3]"]


# --- concretization ---------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (lambda x: x if x.sum() > 0 else -x, r"bool\(\).*poot.numpy.where"),
        (lambda x: x * float(x[0]), r"float\(\)"),
        (lambda x: x * int(x[0]), r"int\(\)"),
        (lambda x: np.asarray(x), "numpy.asarray.*poot.numpy"),
        (lambda x: np.sin(x), "NumPy function"),
        (lambda x: x[: x[0].astype(int)], "index or size.*static_argnums"),
        (lambda x: [1, 2][x[0].astype(int)], "index or size"),
        (lambda x: x.tolist(), "tolist"),
        (lambda x: x[0].item(), "item"),
        (lambda x: f"{x[0]:.3f}", r"the format '\.3f'"),
        (lambda x: 3 in x, r"bool\(\)"),
        (lambda x: x[x > 1], r"x\[mask\].*made by `gt`.*poot.numpy.where"),
    ],
)
def test_asking_for_numbers_is_an_error(function: Any, what: str) -> None:
    errors = (ConcretizationError, NonConcreteBooleanIndexError)
    with pytest.raises(errors, match=what) as caught:
        poot.jit(function)(X)
    text = str(caught.value)
    assert "`<lambda>` is being traced" in text
    assert text.count(here()) >= 1


def test_the_message_names_function_value_and_line() -> None:
    @poot.jit
    def step(x: Any) -> Any:
        total = x.sum()
        if total:
            return x
        return -x

    line = step.__wrapped__.__code__.co_firstlineno
    with pytest.raises(ConcretizationError) as caught:
        step(X)
    text = str(caught.value)
    assert "`step` is being traced" in text
    assert f"made by `sum` at {__file__}:{line + 2} (step)" in text
    assert f"{__file__}:{line + 3} (step)" in text
    with pytest.raises(ConcretizationError, match="is the argument `x`"):
        poot.jit(lambda x: bool(x))(1.0)


# --- leaks ------------------------------------------------------------------


def test_a_leaked_value_is_refused_wherever_it_is_used() -> None:
    kept: list[Any] = []

    @poot.jit
    def step(x: Any) -> Any:
        kept.append(x * 2)
        kept.append(x)
        return x

    line = step.__wrapped__.__code__.co_firstlineno
    step(X)
    made, argument = kept
    other = poot.jit(lambda x: x + made)
    uses: list[Callable[[], Any]] = [
        lambda: made + 1,
        lambda: 1 - made,
        lambda: made[0],
        lambda: bool(made),
        lambda: float(made),
        lambda: np.asarray(made),
        lambda: other(X),
        lambda: step(made),
        lambda: poot.device_put(X) * made,
        lambda: poot.make_graph(lambda: made)(),
    ]
    for use in uses:
        with pytest.raises(TraceLeak) as caught:
            use()
        text = str(caught.value)
        assert "was used after `step` had returned" in text
        assert f"made by `mul` at {__file__}:{line + 2} (step)" in text
        assert "return it" in text
    with pytest.raises(TraceLeak, match="the argument `x` while tracing `step`"):
        argument + 1


def test_a_value_of_an_outer_trace_is_refused_in_an_inner_graph() -> None:
    def outer(x: Any) -> Any:
        return poot.make_graph(lambda: x + 1)()

    with pytest.raises(TraceLeak, match="used outside of the trace of `outer`"):
        poot.jit(outer)(X)


def test_state_is_clean_after_an_exception_while_tracing() -> None:
    @poot.jit
    def fails(x: Any, how: Any) -> Any:
        y = x + 1
        if how.ndim == 1:
            raise KeyError("user")
        return y * how

    with pytest.raises(KeyError, match="user"):
        fails(X, X)
    assert current() is EAGER
    np.testing.assert_array_equal(fails(X, 2.0), (X + 1) * 2)
    np.testing.assert_array_equal(poot.device_put(X) + 1, X + 1)
    with pytest.raises(KeyError):
        fails(X, X)


def test_errors_of_types_come_while_tracing() -> None:
    with pytest.raises(ValueError, match=r"add: shapes \(3,\) and \(2,\)"):
        poot.jit(lambda x: x + np.ones(2, np.float32))(X)
    with pytest.raises(DTypeError, match="and: given f32"):
        poot.jit(lambda x: x & 1)(X)


# --- nesting ----------------------------------------------------------------


def test_nested_jit_is_inlined() -> None:
    @poot.jit
    def inner(x: Any, scale: Any) -> Any:
        return {"y": x * scale, "n": 3}

    @poot.jit
    def outer(x: Any) -> Any:
        return inner(x, 2.0)["y"] + inner(x, x)["y"] * inner(x, 1)["n"]

    graph = outer.trace(X).graph
    assert {eqn.op.name for eqn in graph.eqns} <= {"binary", "cast"}
    np.testing.assert_array_equal(outer(X), X * 2 + X * X * 3)


def test_arguments_of_a_nested_jit_are_traced_too() -> None:
    inner = poot.jit(lambda flag, x: x if flag else -x)
    with pytest.raises(ConcretizationError):
        poot.jit(lambda x: inner(True, x))(X)
    static = poot.jit(lambda flag, x: x if flag else -x, static_argnums=0)
    np.testing.assert_array_equal(poot.jit(lambda x: static(False, x))(X), -X)


def test_disable_jit_runs_op_by_op_on_concrete_arrays() -> None:
    @poot.jit
    def f(x: Any) -> Any:
        return x * 2 if x.sum() > 0 else x

    with poot.disable_jit():
        np.testing.assert_array_equal(f(X), X * 2)
        np.testing.assert_array_equal(f(X), X * 2)
        with poot.disable_jit(False), pytest.raises(ConcretizationError):
            f(X)
    with pytest.raises(ConcretizationError):
        f(X)


def test_disable_jit_stages_what_hangs_on_an_example() -> None:
    """As in JAX: the choice is made in Python only where the numbers are known."""

    def branches(x: Any) -> Any:
        y = lax.cond(x > 1, jnp.sin, lambda x: -x, x)
        return y + lax.switch(x.astype(int), [jnp.cos, jnp.tan, lambda x: x], x)

    def loops(x: Any) -> Any:
        up = lax.while_loop(lambda c: c < x, lambda c: 2 * c, 1.0)
        # The condition is known for the first iterations only.
        count, _ = lax.while_loop(
            lambda c: c[1] < 5, lambda c: (c[0] + 1, c[1] + c[0] * x), (0.0, 0.0)
        )
        return up + 10 * count

    x = jnp.array([0.5, 1.5, 2.5])
    for f in (branches, loops):
        right = [f(one) for one in x]
        with poot.disable_jit():
            np.testing.assert_allclose(poot.vmap(f)(x), right, rtol=1e-6)
            np.testing.assert_allclose([f(one) for one in x], right, rtol=1e-6)
        assert len(set(map(float, right))) == 3
    with poot.disable_jit():
        slope = poot.grad(branches)(x[1])
    np.testing.assert_allclose(slope, poot.grad(branches)(x[1]), rtol=1e-6)


def test_long_chains_and_trees_need_no_recursion() -> None:
    def chain(x: Any) -> Any:
        for _ in range(1000):
            x = x + 1
        return x

    def tree(x: Any) -> Any:
        values = [x + i for i in range(512)]
        while len(values) > 1:
            pairs = zip(values[::2], values[1::2], strict=True)
            values = [a + b for a, b in pairs]
        return values[0]

    for function, expected in ((chain, X + 1000), (tree, 512 * X + 511 * 256)):
        jitted = poot.jit(function)
        for _ in range(2):
            np.testing.assert_array_equal(jitted(X), expected)
