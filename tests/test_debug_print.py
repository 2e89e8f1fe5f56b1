"""`debug.print` and `debug.callback`: eager, jitted, in loops, transformed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import debug, lax
from poot.core.errors import ArgumentError, BatchingError, CheckError, NotLinearError
from poot.core.graph import Graph
from poot.interpreters.eager import _executable
from tests.backends import each_backend  # noqa: F401

pytestmark = pytest.mark.usefixtures("each_backend")

Printed = Callable[[], list[str]]
each_way = pytest.mark.parametrize(
    "way", [lambda f: f, poot.jit], ids=["eager", "jitted"]
)


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    """The lines printed since the last call."""
    return lambda: capsys.readouterr().out.splitlines()


@each_way
def test_values_are_printed_in_the_order_of_the_statements(
    way: Any, printed: Printed
) -> None:
    def f(x: Any, n: Any) -> Any:
        debug.print("x {} and {total:.2f} of {}", x, n, total=jnp.sum(x))
        # Equal statements are no twins to be merged, and nobody needs their operand.
        debug.print("twice {}", x[0])
        debug.print("twice {}", x[0])
        debug.print("{who}", who="nobody")
        return x * 2

    found = way(f)(jnp.arange(3.0), 7)
    np.testing.assert_array_equal(found, [0, 2, 4])
    lines = ["x [0. 1. 2.] and 3.00 of 7", "twice 0.0", "twice 0.0", "nobody"]
    assert printed() == lines
    way(f)(jnp.arange(3.0) + 1, 8)
    assert printed()[0] == "x [1. 2. 3.] and 6.00 of 8"


@each_way
def test_in_scans_within_scans(way: Any, printed: Printed) -> None:
    def inner(c: Any, x: Any) -> Any:
        debug.print("  {} {}", c, x)
        return c + x, None

    def outer(c: Any, x: Any) -> Any:
        c, _ = lax.scan(inner, c, jnp.stack([x, -x]))
        debug.print("{}", c)
        return c, c

    way(lambda c: lax.scan(outer, c, jnp.array([1, 2]), reverse=True))(jnp.int32(0))
    assert printed() == ["  0 2", "  2 -2", "0", "  0 1", "  1 -1", "0"]


@each_way
def test_in_the_condition_and_the_body_of_a_while_loop(
    way: Any, printed: Printed
) -> None:
    def condition(carry: Any) -> Any:
        debug.print("{} < 2?", carry[0])
        return carry[0] < 2

    def body(carry: Any) -> Any:
        debug.print("{}", carry[1])
        return carry[0] + 1, carry[1] * 2

    found = way(lambda x: lax.while_loop(condition, body, (0, x)))(jnp.float32(1.5))
    assert printed() == ["0 < 2?", "1.5", "1 < 2?", "3.0", "2 < 2?"]
    assert [float(x) for x in found] == [2, 6]


@pytest.mark.parametrize("bad", [0, 2])
def test_checks_beside_records_in_a_loop_name_their_iteration(
    bad: int, printed: Printed
) -> None:
    def condition(i: Any) -> Any:
        debug.print("{}", i)
        poot.check(i != bad, "bad in the condition")
        return i < 4

    def body(i: Any) -> Any:
        poot.check(i != 3, "bad in the body")
        return i + 1

    loop = poot.jit(lambda n: lax.while_loop(condition, body, n))
    failed = loop(jnp.int32(0))
    # What was recorded is printed though a check failed.
    assert printed() == ["0", "1", "2", "3", "4"]
    with pytest.raises(CheckError, match=rf"in the condition .*iteration {bad}\)"):
        failed.block_until_ready()
    with pytest.raises(CheckError, match=r"bad in the body .*iteration 0\)"):
        loop(jnp.int32(3)).block_until_ready()


@each_way
def test_in_branches(way: Any, printed: Printed) -> None:
    def negative(x: Any) -> Any:
        debug.print("{} is negative", x)
        return -x

    root = way(lambda x: lax.cond(x < 0, negative, lambda x: x, x))
    root(jnp.float32(-2))
    root(jnp.float32(3))
    assert printed() == ["-2.0 is negative"]


@each_way
def test_under_vmap_each_example_prints(way: Any, printed: Printed) -> None:
    def f(x: Any, y: Any) -> Any:
        debug.print("{} {}", x, y)
        debug.print("{}", y)
        return x + y

    way(poot.vmap(f, (0, None)))(jnp.array([1, 2]), jnp.int32(5))
    assert printed() == ["1 5", "2 5", "5"]
    way(poot.vmap(poot.vmap(f, (0, None)), (1, 0)))(
        jnp.array([[1, 2], [3, 4]]), jnp.array([5, 6])
    )
    assert printed() == ["1 5", "3 5", "2 6", "4 6", "5", "6"]


@each_way
def test_a_derivative_prints_the_values_once(way: Any, printed: Printed) -> None:
    def f(x: Any) -> Any:
        debug.print("{}", x)
        return x * x

    def summed(x: Any) -> Any:
        return lax.scan(lambda c, y: (c + f(y * x), None), 0.0, jnp.arange(2.0))[0]

    assert float(way(poot.grad(f))(jnp.float32(3))) == 6
    assert printed() == ["3.0"]
    assert float(way(poot.grad(summed))(jnp.float32(3))) == 6
    assert printed() == ["0.0", "3.0"]
    way(lambda x: poot.jvp(f, (x,), (x,)))(jnp.float32(2))
    assert printed() == ["2.0"]
    # What is computed again for the derivative is not printed again.
    way(poot.grad(poot.checkpoint(f)))(jnp.float32(4))
    assert printed() == ["4.0"]


def test_tangents_have_no_values_in_reverse_mode(printed: Printed) -> None:
    @poot.custom_jvp
    def f(x: Any) -> Any:
        return x * 2

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        debug.print("tangent {}", tangents[0])
        return f(primals[0]), tangents[0] * 2

    poot.jvp(f, (jnp.float32(1),), (jnp.float32(5),))
    assert printed() == ["tangent 5.0"]
    with pytest.raises(NotLinearError, match=r"debug.print .*is given tangents"):
        poot.grad(f)(jnp.float32(1))


def test_every_dtype_comes_as_it_is() -> None:
    with poot.config.override(enable_x64=True):
        values = [
            np.array([True, False, True]),
            np.array([-1, 127], np.int8),
            np.array([[255]], np.uint8),
            np.array([-1, 300], np.int16),
            np.array(-(2**31), np.int32),
            np.array(2**32 - 1, np.uint32),
            np.array([-(2**62), 5], np.int64),
            np.array([0.1, -np.inf], np.float16),
            np.array([0.1, np.nan], ml_dtypes.bfloat16),
            np.array([1e-40, -0.0], np.float32),
            np.array([0.1, np.pi], np.float64),
            np.zeros((0, 3), np.float32),
        ]
        seen: list[Any] = []
        poot.jit(lambda xs: debug.callback(seen.extend, xs))(
            [jnp.asarray(x) for x in values]
        )
    assert len(seen) == len(values)
    for found, value in zip(seen, values, strict=True):
        assert (found.dtype, found.shape) == (value.dtype, value.shape)
        assert found.tobytes() == value.tobytes()


@each_way
def test_a_callback_gets_trees_and_what_is_no_array(way: Any) -> None:
    seen: list[Any] = []

    def note(tree: Any, *, name: str, n: Any) -> None:
        seen.append((tree["x"].tolist(), tree["none"], name, int(n)))

    def f(x: Any) -> None:
        debug.callback(note, {"x": x, "none": None}, name="here", n=4)

    way(f)(jnp.arange(2.0))
    assert seen == [([0.0, 1.0], None, "here", 4)]


def test_a_full_ring_says_how_many_were_lost(
    monkeypatch: pytest.MonkeyPatch, printed: Printed
) -> None:
    monkeypatch.setattr("poot.lowering.records._RING_WORDS", 32)

    def body(i: Any) -> Any:
        debug.print("{}", i)
        return i + 1

    count = poot.jit(lambda n: lax.while_loop(lambda i: i < n, body, 0))
    with pytest.warns(RuntimeWarning, match="the first 4 of 20 records"):
        count(20)
    assert printed() == [str(n) for n in range(4, 20)]
    count(3)
    assert printed() == ["0", "1", "2"]


def test_equal_statements_are_compiled_once(printed: Printed) -> None:
    def f(x: Any) -> Any:
        def body(c: Any, i: Any) -> Any:
            debug.print("{}", c)
            return c + i, None

        return lax.scan(body, x, jnp.arange(2))[0]

    f(jnp.int32(0))
    misses = _executable.cache_info().misses
    f(jnp.int32(1))
    assert _executable.cache_info().misses == misses
    assert printed() == ["0", "0", "1", "1"]


def test_donated_arguments_and_numbers_in_slots(printed: Printed) -> None:
    def f(x: Any, n: Any) -> Any:
        debug.print("{} {}", x, n)
        y = x + n
        debug.print("{}", y)
        return y

    step = poot.jit(f, donate_argnums=0)
    x = step(step(jnp.arange(2.0), 1), 2.5)
    np.testing.assert_array_equal(x, [3.5, 4.5])
    assert printed() == ["[0. 1.] 1", "[1. 2.]", "[1. 2.] 2.5", "[3.5 4.5]"]


def test_ordered_goes_with_all_but_vmap(printed: Printed) -> None:
    def f(x: Any) -> Any:
        debug.print("{}", x, ordered=True)
        return x

    poot.jit(f)(1)
    assert printed() == ["1"]
    with pytest.raises(BatchingError, match="ordered=True does not go with vmap"):
        poot.vmap(f)(jnp.arange(2))


@pytest.mark.parametrize(
    "fmt, args, kwargs, message",
    [
        ("{} {}", (1,), {}, "IndexError"),
        ("{x}", (1,), {}, "KeyError: 'x'"),
        ("{", (), {}, "ValueError"),
        ("three", (3,), {}, "does not show argument 0"),
        ("{}", (3,), {"y": 1}, "does not show argument y"),
        (3, (), {}, "the format is a int"),
    ],
)
def test_a_format_that_does_not_go(
    fmt: Any, args: Any, kwargs: Any, message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        debug.print(fmt, *args, **kwargs)


def test_a_record_in_the_text_of_a_graph_and_in_reports(printed: Printed) -> None:
    def f(x: Any) -> Any:
        debug.print("x is {x.shape} {}", x, x=x)
        return x

    x = np.arange(2, dtype=np.float32)
    traced = poot.jit(f).trace(x)
    text = str(traced.graph)
    assert "record[site=" in text and "witness" in text
    assert str(Graph.parse(text)) == text
    assert "1 records of debug.print" in traced.lower().report()
    poot.jit(f)(x)
    assert printed() == ["x is (2,) [0. 1.]"]


def test_without_jit_functions_print_too(printed: Printed) -> None:
    def f(x: Any) -> Any:
        debug.print("{}", x)
        return x

    with poot.disable_jit():
        poot.jit(f)(jnp.int32(1))
    poot.effects_barrier()
    assert printed() == ["1"]


@each_way
def test_the_rules_of_a_custom_vjp_print(way: Any, printed: Printed) -> None:
    @poot.custom_vjp
    def f(x: Any) -> Any:
        return x * x

    def forward(x: Any) -> Any:
        debug.print("forward {}", x)
        return x * x, x

    def backward(x: Any, cotangent: Any) -> Any:
        debug.print("backward {} {}", x, cotangent)
        return (2 * x * cotangent,)

    f.defvjp(forward, backward)
    assert float(way(poot.grad(lambda x: f(x) * 3))(jnp.float32(2))) == 12
    assert printed() == ["forward 2.0", "backward 2.0 3.0"]
