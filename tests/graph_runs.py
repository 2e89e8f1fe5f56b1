"""Whole graphs, lowered and planned, on the device, with all that they give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from poot.core.graph import Graph
from poot.core.oracle.evaluate import evaluate_all
from poot.core.types import Storage
from poot.lowering.compile import lower, plan
from poot.lowering.program import Program
from poot.vulkan.executable import Executable
from poot.vulkan.races import check_races
from tests.kernel_harness import device
from tests.numerics import assert_close, is_nan
from tests.pass_harness import arguments_of

Array = np.ndarray[Any, Any]


def _bytes(array: Array) -> Array:
    return np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)


def run_all(
    graph: Graph, program: Program, args: Sequence[Array], calls: int = 1
) -> list[Array]:
    """Results, exports and next states after one call (each on the first arguments)."""
    where = device()
    consts = [where.upload(_bytes(graph.payloads[value])) for value in graph.consts]
    executable = Executable(where, program, consts)
    check_races(executable.commands)
    for _ in range(calls):
        found = _call(graph, program, executable, args)
    executable.close()
    return found


def _call(
    graph: Graph, program: Program, executable: Executable, args: Sequence[Array]
) -> list[Array]:
    where = device()
    kinds = [graph.values[value].storage for value in graph.arguments]
    buffers = [
        None if kind is Storage.SLOT else where.upload(_bytes(arg))
        for kind, arg in zip(kinds, args, strict=True)
    ]
    scalars = [
        arg.item()
        for kind, arg in zip(kinds, args, strict=True)
        if kind is Storage.SLOT
    ]
    results, completion = executable.call(buffers, scalars)
    # State that is no result is read where it was given, which nothing else waits for.
    completion.check()
    wanted = [
        (spec.type, result)
        for spec, result in zip(program.results, results, strict=True)
    ]
    for pair in graph.state:
        number = graph.arguments.index(pair.input)
        wanted.append((graph.type(pair.input), buffers[number]))
    arrays = []
    for type, buffer in wanted:
        raw = np.empty(type.size_bytes, np.uint8)
        where.download(buffer, raw)
        arrays.append(raw.view(type.dtype.numpy).reshape(type.shape))
    return arrays


def assert_right(
    graph: Graph,
    seed: int = 0,
    generic: bool = False,
    limits: Sequence[float] = (),
    args: Sequence[Array] | None = None,
) -> None:
    """Raw and lowered, the graph gives on the device what the oracle says.

    `limits` says how many ulps the first results may be off; all others are exact.
    Without `args` the arguments are small integers.
    """
    info = device().info
    args = arguments_of(graph, seed) if args is None else args
    flush = not info.keeps_subnormals32
    right = evaluate_all(graph, *args, flush=flush)
    wanted = [*right.results, *right.exports.values(), *right.state]
    for planned in (lower(graph, info).graph, graph):
        got = run_all(planned, plan(planned, info, generic=generic), args, calls=2)
        for number, (mine, correct) in enumerate(zip(got, wanted, strict=True)):
            where = f"value {number} of\n{planned}"
            if number < len(limits) and limits[number]:
                assert_close(mine, correct, limits[number], where, flush)
            else:
                assert mine.dtype == correct.dtype, where
                # Of sums it does not matter which zero they are.
                same = (mine == correct) | (is_nan(mine) & is_nan(correct))
                assert same.all(), where
