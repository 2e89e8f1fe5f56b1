"""Attention of few queries on GPUs: teams of lanes, on made-up devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot.core import dtypes
from poot.core.dtypes import DType
from poot.core.graph import Graph
from poot.core.oracle.evaluate import evaluate_all
from poot.lowering.compile import lower
from poot.lowering.device_info import DeviceInfo
from poot.lowering.kernels import attention_program, attention_teams
from poot.lowering.program import Kernel
from poot.lowering.spirv.opcodes import MemoryAccess, Op
from poot.lowering.tuned import Tuned
from poot.nn import softmax
from tests.kernel_harness import device, plan_graph, run_program
from tests.op_table import graph_of
from tests.spirv_words import read
from tests.test_attention_kernels import (
    GPU,
    LEAST,
    WIDE_GPU,
    arguments,
    case_of,
    check,
    kernels,
    on_device,
)

pytestmark = on_device


def is_by_teams(found: list[tuple[str, str]]) -> bool:
    return found[0][0] == "attention_teams"


@pytest.mark.parametrize(
    "sizes",
    [
        ((2,), (1,), 1, 32, 32),
        ((2,), (4,), 40, 32, 32),
        ((2,), (8,), 130, 64, 32),
        ((1,), (2, 2), 33, 40, 24),
        ((), (3,), 9, 33, 35),
        ((2, 2), (2,), 65, 96, 72),
    ],
)
def test_sizes(sizes: Any) -> None:
    """Around teams, keys that are loaded at once, and heads of no whole chunks."""
    assert is_by_teams(check(case_of(*sizes), GPU))


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16])
@pytest.mark.parametrize("head", [64, 72, 76])
def test_narrow_dtypes(head: int, dtype: DType) -> None:
    assert is_by_teams(check(case_of((2,), (3,), 21, head, head, dtype=dtype), GPU))


@pytest.mark.parametrize("masked", [-np.inf, LEAST])
@pytest.mark.parametrize("keys", [128, 300])
def test_splits_are_merged(
    keys: int, masked: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention_program, "_UNSPLIT_KEYS", 64)
    monkeypatch.setattr(attention_program, "_SHORTEST_SPLIT", 32)
    case = case_of((2,), (4,), keys, 32, 32, masked=masked, bias=True)
    found = check(case, GPU | {"compute_units": 8})
    assert is_by_teams(found)
    assert len(found) == 2


@pytest.mark.parametrize(("values", "splits"), [(8, 20), (136, 3), (300, 6)])
def test_rows_are_merged_by_one_workgroup_or_several(
    values: int, splits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of fewer invocations than splits, or than a row has elements."""
    monkeypatch.setattr(attention_program, "_UNSPLIT_KEYS", 64)
    monkeypatch.setattr(attention_program, "_SHORTEST_SPLIT", 32)
    case = case_of((2,), (3,), 32 * splits, 32, values)
    found = check(case, GPU | {"compute_units": 6 * splits})
    workgroup = min(max(values, device().info.subgroup_size), 128)
    assert found[1:] == [
        ("attention_merge", f"{splits} splits, {workgroup} invocations")
    ]


@pytest.mark.parametrize("keys", [20, 300])
@pytest.mark.parametrize("masked", [-np.inf, LEAST])
def test_rows_that_see_nothing(masked: float, keys: int) -> None:
    case = case_of((2,), (2,), keys, 32, 32, bias=True, masked=masked)
    args = arguments(graph_of(case))
    args[3][:] = masked
    assert is_by_teams(check(case, GPU, args))


@pytest.mark.parametrize("masked", [-np.inf, LEAST])
def test_keys_that_no_row_sees_are_not_read(masked: float) -> None:
    case = case_of((2,), (2,), 40, 32, 32, masked=masked)
    graph = graph_of(case)
    args = arguments(graph)
    for x in args[1:3]:
        x[:, 8:] = np.nan
    program = plan_graph(graph, GPU)
    assert is_by_teams(kernels(program))
    (found,) = run_program(graph, program, args)
    args[1][:, 8:] = args[2][:, 8:] = 0
    (wanted,) = evaluate_all(graph, *args).results
    np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=2e-6)


KEYS, HEADS = 300, 4


def decode(window: int | None, masked: float) -> Callable[..., Any]:
    """One step: keys up to a position, the last `window` of them."""

    def function(q, k, v, position):
        place = jnp.arange(KEYS)
        seen = place <= position
        if window is not None:
            seen = seen & (place > position - window)
        scores = jnp.einsum("hgd,shd->hgs", q, k) * 0.3
        return jnp.einsum("hgs,shd->hgd", softmax(jnp.where(seen, scores, masked)), v)

    return function


def planned(function: Any, *arguments: Any) -> tuple[Any, Any]:
    info = device().info.masked(**GPU)
    graph = lower(poot.jit(function).trace(*arguments).graph, info).graph
    return graph, plan_graph(graph, info)


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("masked", [-np.inf, LEAST])
@pytest.mark.parametrize("window", [None, 1, 40, 200])
def test_decode(window: int | None, masked: float, rows: int) -> None:
    """Around trips of 128 keys; what is not seen may be anything."""
    random = np.random.default_rng(1)
    shapes = (HEADS, rows, 32), (KEYS, HEADS, 32), (KEYS, HEADS, 24)
    q, *others = (random.standard_normal(shape, np.float32) for shape in shapes)
    graph, program = planned(decode(window, masked), q, *others, 0)
    assert kernels(program)[0] == (
        "attention_teams",
        "64 teams of 8, 1 rows, 2 keys of 4 ahead",
    )
    for position in (0, 127, 128, KEYS - 1):
        k, v = (x.copy() for x in others)
        first = 0 if window is None else max(position - window + 1, 0)
        for x in k, v:
            x[:first] = x[position + 1 :] = np.nan
        (found,) = run_program(graph, program, (q, k, v, position))
        for x in k, v:
            x[:first] = x[position + 1 :] = 0
        (wanted,) = evaluate_all(graph, q, k, v, position).results
        np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=2e-6)


def loads(kernel: Kernel) -> list[int | str]:
    """The bytes of each load in order of emission, and where loops begin.

    But for the addresses of operands, 8 bytes each.
    """
    found: list[int | str] = []
    for one in read(kernel):
        if one.opcode == Op.LoopMerge:
            found.append("loop")
        elif one.opcode == Op.Load and one.words[3:4] == (MemoryAccess.Aligned,):
            found += [size for size in one.words[4:] if size != 8]
    return found


def test_nothing_waits_before_all_is_asked_for() -> None:
    """Queries and the first keys and values, then the position; later in each trip."""
    shapes = (HEADS, 1, 32), (KEYS, HEADS, 32), (KEYS, HEADS, 32)
    arguments = [np.ones(shape, np.float32) for shape in shapes]
    _, program = planned(decode(None, -np.inf), *arguments, 0)
    found = loads(program.dispatches[0].kernel)
    assert found[:7] == [16] * 5 + [4, "loop"]
    assert found.count(16) == 9
    # Of a window the position tells where it begins.
    _, program = planned(decode(40, -np.inf), *arguments, 0)
    assert loads(program.dispatches[0].kernel)[:7] == [16, 4, *[16] * 4, "loop"]


def test_keys_of_one_trip_are_loaded_once() -> None:
    case = case_of((2,), (1,), 128, 32, 32)
    found = loads(plan_graph(graph_of(case), GPU).dispatches[0].kernel)
    assert found.count(16) == 5


@pytest.mark.parametrize("what", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("unsplit", [64, 2048])
def test_no_numbers(unsplit: int, what: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no number in what all rows see goes where the composition has it."""
    monkeypatch.setattr(attention_program, "_UNSPLIT_KEYS", unsplit)
    monkeypatch.setattr(attention_program, "_SHORTEST_SPLIT", 32)
    case = case_of((2,), (4,), 140, 32, 32)
    for place in (0, 1, 2):
        args = arguments(graph_of(case))
        args[place][1, 0, 2] = what
        found = check(case, GPU | {"compute_units": 8}, args)
        assert ("4 rows" in found[0][1]) == (unsplit == 64)


@pytest.mark.parametrize(("keys", "values"), [(100, 8), (141, 40), (300, 33)])
def test_many_subgroups_are_put_together_by_a_loop(
    keys: int, values: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention_teams, "_UNROLLED", 4)
    case = case_of((2,), (2,), keys, 40, values)
    program = plan_graph(graph_of(case), GPU)
    assert loads(program.dispatches[0].kernel).count("loop") > 2
    assert is_by_teams(check(case, GPU))


def test_an_infinite_last_value_is_taken_once() -> None:
    """Lanes without a key of their own load the last one."""
    case = case_of((1,), (1,), 1, 32, 32)
    args = arguments(graph_of(case))
    args[2][:, -1, 0] = np.inf
    assert is_by_teams(check(case, GPU, args))


@pytest.mark.parametrize("head", [32, 64, 80, 128, 256])
@pytest.mark.parametrize("keys", [1, 1024, 8192])
def test_heads_of_models_are_planned_for_wide_devices(head: int, keys: int) -> None:
    case = case_of((8,), (4,), keys, head, head, dtype=dtypes.bfloat16)
    program = plan_graph(graph_of(case), WIDE_GPU)
    assert is_by_teams(kernels(program))
    assert len(program.dispatches) == (2 if keys > 2048 else 1)


# --- tuning -------------------------------------------------------------------


def candidates(graph: Graph, info: DeviceInfo) -> Iterator[tuple[str, Any]]:
    """The schedules of the one attention that tuning tries, and their programs."""
    seen: dict[str, list[str]] = {}
    plan_graph(graph, info.masked(tuned=Tuned({}, seen)))
    ((key, names),) = seen.items()
    for name in names:
        yield name, plan_graph(graph, info.masked(tuned=Tuned({key: name})))


WHOLE = [
    "64 teams of 8, 1 rows, 2 keys of 4 ahead",
    "64 teams of 8, 1 rows, 2 keys of 4 ahead, 2 splits",
    "64 teams of 8, 1 rows, 2 keys of 4 ahead, 4 splits",
    "32 teams of 8, 1 rows, 2 keys of 4 ahead",
    "128 teams of 8, 1 rows, 2 keys of 4 ahead",
    "64 teams of 8, 1 rows, 1 keys of 4 ahead",
    "64 teams of 8, 1 rows, 4 keys of 4 ahead",
]
SPLIT = [
    "32 teams of 8, 4 rows, 2 keys of 4 ahead, 8 splits",
    "32 teams of 8, 4 rows, 2 keys of 4 ahead",
    "32 teams of 8, 4 rows, 2 keys of 4 ahead, 2 splits",
    "32 teams of 8, 4 rows, 2 keys of 4 ahead, 4 splits",
    "16 teams of 8, 4 rows, 2 keys of 4 ahead, 8 splits",
    "32 teams of 8, 4 rows, 1 keys of 4 ahead, 8 splits",
    "32 teams of 8, 4 rows, 4 keys of 4 ahead, 8 splits",
    "32 teams of 8, 2 rows, 2 keys of 4 ahead, 8 splits",
    "32 teams of 8, 1 rows, 2 keys of 4 ahead, 8 splits",
]


@pytest.mark.parametrize(("unsplit", "names"), [(2048, WHOLE), (64, SPLIT)])
@pytest.mark.parametrize("masked", [-np.inf, LEAST])
def test_all_candidates_compute_the_same(
    masked: float, unsplit: int, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The usual one first; each of the others differs in one thing."""
    monkeypatch.setattr(attention_program, "_UNSPLIT_KEYS", unsplit)
    monkeypatch.setattr(attention_program, "_SHORTEST_SPLIT", 32)
    graph = graph_of(case_of((2,), (4,), 270, 32, 24, masked=masked, bias=True))
    args = arguments(graph)
    (wanted,) = evaluate_all(graph, *args).results
    tried = []
    info = device().info.masked(**GPU, compute_units=16)
    for name, program in candidates(graph, info):
        tried.append(name)
        assert kernels(program)[0] == ("attention_teams", name)
        (found,) = run_program(graph, program, args)
        np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=2e-6)
    assert tried == names


@pytest.mark.parametrize("head", [64, 80, 256, 512])
@pytest.mark.parametrize("keys", [1, 128, 1024, 8192, 131072])
def test_candidates_are_few_and_within_limits(head: int, keys: int) -> None:
    graph = graph_of(case_of((8,), (4,), keys, head, head, dtype=dtypes.bfloat16))
    found = list(candidates(graph, WIDE_GPU))
    assert len(found) <= 13
    for _, program in found:
        kernel = program.dispatches[0].kernel
        assert kernel.shared_bytes <= WIDE_GPU.max_shared_bytes // 2
        assert kernel.workgroup[0] <= WIDE_GPU.max_workgroup_invocations
