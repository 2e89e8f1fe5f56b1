"""Launches touch what they declare, and the check that says so is no dupe."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from poot.core.graph import Graph
from poot.core.ops.composite import Table
from poot.lowering.compile import plan
from poot.lowering.plan.state import ELEMENTWISE
from poot.lowering.program import Branch, Dispatch, Loop, Program
from poot.vulkan.device import Device
from poot.vulkan.executable import Executable
from tests import vulkan_programs
from tests.control_programs import BUMP, MOD, Words, arena, simulate, state
from tests.op_row import OpRow
from tests.op_table import ROWS, graph_of
from tests.random_graphs import random_graph
from tests.table_runs import Applied, applications, few
from tests.vulkan_isolation import IsolationFault, run_isolated
from tests.vulkan_programs import (
    add_program,
    chain_program,
    checked_program,
    count_up_program,
    fetch,
)

clean_validation = vulkan_programs.clean_validation
device = vulkan_programs.device

# A table has no launch of its own.
LAUNCHED = [row for row in ROWS if row.key.op is not Table]


def floats_of(results: list[Any]) -> list[Any]:
    return [result.view(np.float32) for result in results]


def test_programs_step_to_their_results(device: Device) -> None:
    info, ones = device.info, np.ones(100, np.float32)
    for program, arguments, expected in (
        (add_program(info, 100), [ones, ones], 2),
        (chain_program(info, 100, 7), [ones], 128),
        (count_up_program(info, 100, 5), [ones], 6),
        (checked_program(info), [ones[:1], 4.0], 5),
    ):
        (result,) = floats_of(run_isolated(device, program, arguments))
        assert np.all(result == expected)


def shrunk(program: Program, field: str) -> Program:
    """The program with each launch's last declared range four bytes short."""

    def short(node: Dispatch) -> Dispatch:
        *others, last = getattr(node, field)
        return replace(node, **{field: (*others, replace(last, size=last.size - 4))})

    body = tuple(short(node) for node in program.dispatches)
    return replace(program, body=body)


def test_an_undeclared_write_is_caught(device: Device) -> None:
    ones = np.ones(101, np.float32)
    program = shrunk(add_program(device.info, 101), "writes")
    with pytest.raises(IsolationFault, match=r"operand c .* 4 bytes, .* at 400"):
        run_isolated(device, program, [ones, ones])


def test_an_undeclared_read_is_caught(device: Device) -> None:
    ones = np.ones(101, np.float32)
    program = shrunk(add_program(device.info, 101), "reads")
    with pytest.raises(IsolationFault, match=r"operand c .* declare to read: 4 bytes"):
        run_isolated(device, program, [ones, ones])


def test_a_write_past_the_buffer_hits_the_guard(device: Device) -> None:
    ones = np.ones(100, np.float32)
    program = add_program(device.info, 100)
    (node,) = program.dispatches
    # The kernel believes in 108 elements; the buffers have 100.
    body = (replace(node, metadata=(108,)),)
    with pytest.raises(IsolationFault, match="operand c"):
        run_isolated(device, replace(program, body=body), [ones, ones])


def test_loops_branches_and_whiles_are_stepped_through(device: Device) -> None:
    words = Words(device.info)
    choice = words.op(MOD, arena(8), 2, state(0))
    branch = Branch(arena(8), ((words.bump(1),), (words.bump(2), words.bump(2))))
    loop = words.while_below(10, 11, 2, [choice, branch, words.op(BUMP, state(0), 1)])
    program = words.program([Loop(2, (words.set(10, 0), loop))])
    given = np.uint32([3, 0, 0, 0])
    alone = [raw.view("<u4").tolist() for raw in run_isolated(device, program, [given])]
    assert tuple(alone) == simulate(program, given.tolist())


def arguments_of(graph: Graph, seed: int) -> list[Any]:
    """Whole numbers for each input, so that no order of sums matters."""
    rng = np.random.default_rng(seed)
    types = [graph.type(value) for value in graph.arguments]
    return [rng.integers(-4, 5, t.shape).astype(t.dtype.numpy) for t in types]


def replayed(
    device: Device, program: Program, arguments: list[Any], consts: list[Any]
) -> list[Any]:
    """The bytes of all results of an ordinary call."""
    held = [device.upload(np.ascontiguousarray(const)) for const in consts]
    executable = Executable(device, program, held)
    buffers = [device.upload(np.ascontiguousarray(array)) for array in arguments]
    results, _ = executable.call(buffers)
    found = [fetch(device, result, np.uint8) for result in results]
    executable.close()
    return found


@pytest.mark.parametrize("generic", [False, True], ids=["static", "generic"])
@pytest.mark.parametrize("seed", range(6))
def test_random_graphs_touch_what_they_declare(
    device: Device, seed: int, generic: bool
) -> None:
    graph = random_graph(seed if generic else 100 + seed, 12 if generic else 24)
    program = plan(graph, device.info, generic=generic)
    consts = [graph.payloads[value] for value in graph.consts]
    arguments = arguments_of(graph, seed)
    alone = run_isolated(device, program, arguments, consts)
    together = replayed(device, program, arguments, consts)
    for number, (first, second) in enumerate(zip(alone, together, strict=True)):
        assert np.array_equal(first, second), f"result {number} of\n{program}"


# The members of a family differ in what they compute; the first has all sizes.
FIRST = {row.key.op: row for row in reversed(LAUNCHED)}


def isolated_applications(row: OpRow) -> Iterator[Applied]:
    """Of one dtype of each size, as kernels reach for elements by their sizes."""
    dtypes = {dtype.itemsize: dtype for dtype in row.dtypes}
    if row is FIRST[row.key.op]:
        for dtype in dtypes.values():
            yield from few(applications(row, dtype))
        return
    found = few(applications(row, dtypes.get(4) or row.dtypes[0]))
    yield from found[:1] if row.key.op in ELEMENTWISE else found


@pytest.mark.parametrize("generic", [False, True], ids=["static", "generic"])
@pytest.mark.parametrize("row", LAUNCHED, ids=str)
def test_every_primitive_touches_what_it_declares(
    device: Device, row: OpRow, generic: bool
) -> None:
    for case, operands in isolated_applications(row):
        program = plan(graph_of(case), device.info, generic=generic)
        alone = run_isolated(device, program, operands)
        together = replayed(device, program, operands, [])
        for first, second in zip(alone, together, strict=True):
            assert np.array_equal(first, second), f"{case}\n{program}"
