"""Tables: what depends on no input is computed once, before the first call."""

from __future__ import annotations

from typing import Any

import numpy as np

import poot
import poot.numpy as jnp
from poot import lax
from poot.core.graph import Graph
from poot.core.ops.composite import Table
from poot.core.oracle import evaluate
from poot.core.types import Storage
from poot.lowering.passes import tables
from poot.lowering.passes.dce import dce
from poot.lowering.passes.driver import Log, Reason, run_passes
from poot.lowering.passes.tables import MAKE_TABLE, make_tables
from poot.vulkan.program_store import decode, encode
from tests.kernel_harness import device
from tests.pass_harness import assert_same_meaning, graph_of

X = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)


def run(text: str) -> tuple[Graph, Log]:
    before = graph_of(text)
    after, (record, _) = run_passes((make_tables, dce), before, device().info)
    assert_same_meaning(before, after)
    return after, record.log


def bodies(graph: Graph) -> list[int]:
    """How many equations each table of a graph has."""
    return [len(e.op.body.eqns) for e in graph.eqns if isinstance(e.op, Table)]


def reason_of(log: Log) -> tuple[Reason | None, str]:
    """Why the only table was declined, and the values concerned."""
    (entry,) = log.entries
    return entry.reason, entry.detail


FREQUENCIES = """
    device %0: f32[8]
    %1: f32[8] = iota[dtype=f32, shape=(8), axis=0]()
    %2: f32[8] = binary[op=pow](0.5:f32, %1)
"""


def test_what_costs_more_than_reading_becomes_a_table():
    graph, log = run(
        f"""{FREQUENCIES}
        %3: f32[8] = binary[op=mul](%0, %2)
        result %3
        """
    )
    assert len(log.fired(MAKE_TABLE)) == 1
    assert bodies(graph) == [2] and len(graph.eqns) == 2
    (table,) = (e.out for e in graph.eqns if isinstance(e.op, Table))
    assert graph.values[table].storage is Storage.COMPUTED
    assert Graph.parse(str(graph)) == graph


def test_cheap_arithmetic_after_it_stays_in_its_readers():
    graph, _ = run(
        f"""{FREQUENCIES}
        %3: f32[8] = binary[op=add](%2, 1.0:f32)
        %4: f32[2,8] = broadcast[shape=(2, 8)](%3)
        %5: f32[2,8] = broadcast[shape=(2, 8)](%0)
        %6: f32[2,8] = binary[op=mul](%5, %4)
        result %6
        """
    )
    assert bodies(graph) == [2] and len(graph.eqns) == 5


def test_the_last_costly_value_of_a_chain_is_the_table():
    graph, _ = run(
        f"""{FREQUENCIES}
        %3: f32[8] = unary[op=sin](%2)
        %4: f32[8] = binary[op=mul](%0, %3)
        result %4
        """
    )
    assert bodies(graph) == [3]


def test_each_result_of_an_equation_that_is_read_is_one():
    key = "%1: u32[4] = iota[dtype=u32, shape=(4), axis=0]()"
    graph, _ = run(
        f"""
        device %0: u32[4]
        {key}
        %2: u32[4], %3: u32[4] = threefry2x32(1:u32, 2:u32, %1, %1)
        %4: u32[4] = binary[op=xor](%0, %2)
        %5: u32[4] = binary[op=xor](%4, %3)
        result %5
        """
    )
    assert bodies(graph) == [2, 2]


INDEX = """
    device %0: i32[8]
    %1: i32[8] = iota[dtype=i32, shape=(8), axis=0]()
    %2: i32[8] = binary[op=rem](%1, 3:i32)
    %3: bool[8] = compare[op=lt](%2, %0)
    %4: i32[8] = select(%3, %0, %2)
    result %4
"""


def test_arithmetic_of_indices_is_left_to_kernels():
    graph, log = run(INDEX)
    assert not log.entries and len(graph.eqns) == 4


def test_what_depends_on_an_input_is_none():
    _, log = run(
        """
        device %0: f32[8]
        %1: f32[8] = unary[op=exp](%0)
        %2: f32[8] = binary[op=mul](%0, %1)
        result %2
        """
    )
    assert not log.entries


def test_what_nobody_but_outputs_reads_is_none():
    _, log = run(f"{FREQUENCIES} result %2")
    assert not log.entries


def test_an_output_that_is_read_too_is_one():
    graph, _ = run(
        f"""{FREQUENCIES}
        %3: f32[8] = binary[op=mul](%0, %2)
        result %3
        result %2
        """
    )
    assert bodies(graph) == [2]


def test_a_large_table_is_declined():
    count = tables._MOST_BYTES // 4
    for size, fires in ((count, True), (count + 1, False)):
        before = graph_of(
            f"""
            device %0: f32[{size}]
            %1: f32[{size}] = iota[dtype=f32, shape=({size}), axis=0]()
            %2: f32[{size}] = unary[op=sin](%1)
            %3: f32[{size}] = binary[op=mul](%0, %2)
            result %3
            """
        )
        after, (record,) = run_passes((make_tables,), before, device().info)
        assert bool(bodies(after)) == fires
    detail = (
        f"f32[{count + 1}] has {4 * count + 4} B beside 0 B of others, tables at most "
        f"{4 * count}"
    )
    assert reason_of(record.log) == (Reason.LARGE_TABLE, detail)


def test_tables_have_so_much_memory_in_all():
    half = tables._MOST_BYTES // 8
    lines = [f"device %0: f32[{half}]"]
    for number, op in enumerate(("sin", "cos", "tan")):
        first = 3 * number + 1
        before = 3 * number if number else 0
        lines += [
            f"%{first}: f32[{half}] = iota[dtype=f32, shape=({half}), axis=0]()",
            f"%{first + 1}: f32[{half}] = unary[op={op}](%{first})",
            f"%{first + 2}: f32[{half}] = binary[op=mul](%{before}, %{first + 1})",
        ]
    graph = graph_of("\n".join([*lines, "result %9"]))
    after, (record,) = run_passes((make_tables,), graph, device().info)
    assert bodies(after) == [2, 2]
    (declined,) = record.log.declined(MAKE_TABLE)
    assert declined.reason is Reason.LARGE_TABLE
    assert f"has {4 * half} B beside {8 * half} B of others" in declined.detail


def test_so_many_tables_and_no_more():
    def chained(x: Any) -> Any:
        step = jnp.arange(8.0)
        for _ in range(17):
            step = jnp.sin(step)
            x = x + step
        return x

    jitted = poot.jit(chained)
    assert jitted.lower(X).report().count("there are 16 tables already") == 1
    program = jitted.lower(X).compile().program
    # What they share is computed once; a launch has fewer results than that.
    assert len(program.setup.results) == 16 and len(program.setup.dispatches) == 2
    (right,) = evaluate(jitted.trace(X).graph, X)
    np.testing.assert_allclose(np.asarray(jitted(X)), right, rtol=1e-6)


def test_a_long_chain_is_declined():
    for length, fires in ((tables._MOST_EQUATIONS, True), (65, False)):
        lines = ["device %0: f32[2]", "%1: f32[2] = broadcast[shape=(2)](0.5:f32)"]
        lines += [
            f"%{n}: f32[2] = unary[op=sin](%{n - 1})" for n in range(2, length + 1)
        ]
        last = length + 1
        lines += [f"%{last}: f32[2] = binary[op=add](%{last - 1}, %0)"]
        graph, log = run("\n".join([*lines, f"result %{last}"]))
        assert bodies(graph) == ([length] if fires else [])
    assert reason_of(log) == (Reason.SIZE_LIMIT, "more than 64 equations compute it")


def test_what_the_host_is_called_for_is_none():
    def noted(x: Any) -> Any:
        told = poot.pure_callback(np.sin, np.zeros(8, np.float32), jnp.ones(8))
        return x * told

    compiled = poot.jit(noted).lower(X).compile()
    assert "make_table" not in compiled.report()


def test_loops_read_tables_and_have_none_of_their_own():

    def looped(x: Any) -> Any:
        start = jnp.sin(jnp.arange(8.0))

        def step(carry: Any, _: Any) -> tuple[Any, None]:
            return carry * jnp.exp(jnp.arange(8.0) / -300), None

        return x * lax.scan(step, start, None, length=300)[0]

    lowered = poot.jit(looped).lower(X)
    assert bodies(lowered.graph) == [2] and str(lowered.graph).count("table[") == 1
    right = np.sin(np.arange(8.0)) * np.exp(-np.arange(8.0))
    np.testing.assert_allclose(np.asarray(poot.jit(looped)(X)), X * right, rtol=1e-4)


# --- whole functions ---------------------------------------------------------


def turned(x: Any, position: Any) -> Any:
    steps = 10000.0 ** (-jnp.arange(8, dtype=jnp.float32) / 8)
    return x * jnp.cos(position * steps)


def test_a_program_computes_its_tables_once():
    jitted = poot.jit(turned)
    compiled = jitted.lower(X, np.float32(3)).compile()
    program = compiled.program
    assert len(program.dispatches) == 1 and len(program.setup.dispatches) == 1
    assert [str(type) for type in program.consts] == ["f32[8]"]
    for position in (0.0, 3.0, 70.0):
        args = X, np.float32(position)
        (right,) = evaluate(jitted.trace(*args).graph, *args)
        assert np.abs(np.asarray(jitted(*args)) - right).max() < 2e-6
    report = compiled.report()
    told = "constants from 0 on, f32[8], are computed once by\n  0: pointwise_"
    assert told in report
    assert decode(encode(program)) == program


def test_explain_and_draw_show_tables():
    text = poot.explain(turned)(X, np.float32(3)).text
    assert "constants\n  0: f32[8], computed" in text
    assert "Table(" in poot.draw(turned)(X, np.float32(3)).svg


def given_away(x: Any) -> Any:
    table = jnp.exp(jnp.arange(8, dtype=jnp.float32))
    return table, x + table, table.at[2].set(x[0])


def test_a_table_that_is_returned_is_not_written_to():
    jitted = poot.jit(given_away)
    right = np.exp(np.arange(8, dtype=np.float32))
    for x in X:
        table, total, changed = jitted(x)
        doubled = poot.jit(lambda y: y * 2, donate_argnums=0)(table)
        np.testing.assert_allclose(np.asarray(doubled), 2 * right, rtol=1e-6)
        np.testing.assert_allclose(np.asarray(total), x + right, rtol=1e-6)
        right_of_changed = right.copy()
        right_of_changed[2] = x[0]
        np.testing.assert_allclose(np.asarray(changed), right_of_changed, rtol=1e-6)


def test_reductions_products_and_random_numbers_are_tables():
    def mixed(x: Any) -> Any:
        grid = jnp.arange(64, dtype=jnp.float32).reshape(8, 8) / 64
        noise = poot.random.normal(poot.random.key(3), (8,))
        return x + (grid @ grid).sum(axis=0) + noise

    jitted = poot.jit(mixed)
    program = jitted.lower(X).compile().program
    assert len(program.dispatches) == 1 and len(program.setup.results) == 2
    (right,) = evaluate(jitted.trace(X).graph, X)
    np.testing.assert_allclose(np.asarray(jitted(X)), right, rtol=1e-5)
