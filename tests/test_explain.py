"""`poot.explain`: a text with all that is known of how a function runs."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import lax, slots
from poot.vulkan.commands import Barrier, Counts
from tests.backends import each_backend as each_backend
from tests.test_driver_calls import device as device

X = np.ones((4, 8), np.float32)


def test_it_prints_the_report_and_returns_what_it_is_of(
    capsys: pytest.CaptureFixture[str],
) -> None:
    @functools.partial(poot.jit, donate_argnums=0, slots={"pos": slots.Pos(0, 3)})
    def step(cache: Any, row: Any, pos: Any, scale: Any) -> Any:
        return lax.dynamic_update_slice(cache, row * scale, (pos, 0)), cache.sum()

    found = poot.explain(step)(X, X[:1], 2, 0.5)
    text = capsys.readouterr().out
    assert text == f"{found.text}\n"
    for line in (
        "`step`",
        "  0: cache f32[4,8], donated",
        "  1: row f32[1,8]",
        "  2: pos i32[], a slot: pos 0..3",
        "  3: scale f32[], a slot",
        "  0: f32[4,8], in the memory of argument 0",
        "  1: f32[]",
    ):
        assert line in text.splitlines()
    program = found.compiled.program
    assert f"{len(program.dispatches)} dispatches of" in text
    for dispatch in program.dispatches:
        assert dispatch.kernel.name in text and dispatch.kernel.schedule in text
        assert f"{dispatch.bytes_moved} B, {dispatch.flops} flops" in text
    assert "state_order: " in text and f"arena {program.arena_bytes} B" in text
    # So that a user who prints it does not see all of this twice.
    assert repr(found) == str(found) == "<explanation of step>"


def test_nothing_runs_and_plain_functions_will_do(each_backend: Any) -> None:
    ran = []
    x = poot.device_put(X)
    weights = jnp.arange(8.0)

    def f(x: Any) -> Any:
        poot.debug.callback(lambda value: ran.append(value), x.sum())
        return x @ weights, x

    text = poot.explain(f)(x).text
    assert ran == [] and "constants\n  0: f32[8]\n  32 B in all" in text
    assert "  1: f32[4,8], argument 0 itself" in text
    shape = poot.ShapeDtypeStruct((4, 8), np.float32)
    assert poot.explain(f)(shape).text == text


def test_methods_and_functions_that_are_cut() -> None:
    class Layer:
        @functools.partial(poot.jit, static_argnums=0)
        def __call__(self, x: Any) -> Any:
            shape = poot.ShapeDtypeStruct((4, 8), np.float32)
            return poot.pure_callback(np.sin, shape, x) + 1

    text = poot.explain(Layer().__call__)(X).text
    assert "which no device can call" in text and "several programs" in text
    assert "a call: " in text


def test_lines_are_the_users_within_maps_over_trees() -> None:
    def f(tree: Any) -> Any:
        return poot.tree.map(poot.nn.relu, tree)

    graph = poot.jit(f).trace({"a": X}).graph
    files = {graph.source(number).file for number in range(len(graph.eqns))}
    assert files == {__file__}


# --- what a replay runs -----------------------------------------------------


def counts_of(f: Any, *args: Any) -> Counts:
    compiled = poot.jit(f).lower(*args).compile()
    counts = compiled._executable.commands.counts()
    assert str(counts) in compiled.report()
    return counts


def test_barriers_stand_where_one_launch_needs_another(device: Any) -> None:
    def products(x: Any) -> Any:
        y = x @ x.T
        return y @ x, x.T @ x

    counts = counts_of(products, X)
    assert counts == Counts(launches=3, openings=1, barriers=1, submissions=1)
    assert counts_of(lambda x: x, X) == Counts()


def test_loops_count_as_often_as_they_run(device: Any) -> None:
    def looped(trips: int) -> Any:
        def body(i: Any, x: Any) -> Any:
            return x @ jnp.ones((8, 8), np.float32) / 8

        return counts_of(lambda x: lax.fori_loop(0, trips, body, x), X)

    few, many = looped(10), looped(10_000)
    assert not few.polled and not many.polled
    # Each iteration is so many launches, behind as many barriers.
    each = (many.launches - few.launches) / 9990
    assert each >= 1 and each == int(each)
    assert many.barriers > 9000 and many.openings > 1


def test_a_while_says_that_it_goes_on(device: Any) -> None:
    counts = counts_of(
        lambda x: lax.while_loop(lambda c: c[0] < 9, lambda c: c + 1, x), jnp.zeros(3)
    )
    assert counts.polled and str(counts).startswith("a replay: at least ")


def test_counts_are_those_of_the_commands(device: Any) -> None:
    compiled = poot.jit(lambda x: (x.sum() + x, x.T @ x)).lower(X).compile()
    commands = compiled._executable.commands
    listed = [c for c in commands.commands if isinstance(c, Barrier) and not c.opening]
    counts = commands.counts()
    assert counts.barriers == len(listed)
    assert counts.launches == len(commands.launches)
