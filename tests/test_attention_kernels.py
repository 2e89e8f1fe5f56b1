"""The kernels of attention, by schedule, on real and made-up devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from poot.core import dtypes
from poot.core.dtypes import DType
from poot.core.errors import LimitError
from poot.core.graph import Graph
from poot.core.oracle.evaluate import evaluate_all
from poot.lowering.compile import plan
from poot.lowering.device_info import DeviceInfo, DeviceKind
from poot.lowering.kernels.attention_program import AttentionSchedule
from tests.backends import device_backend, on_cpu
from tests.kernel_harness import plan_graph, run_program
from tests.op_row import Case
from tests.op_rows_attention import attention_case
from tests.op_table import graph_of

on_device = pytest.mark.skipif(device_backend() is None, reason="no Vulkan device")

GPU = {"kind": DeviceKind.DISCRETE}
WIDE_GPU = DeviceInfo(
    name="made-up GPU",
    kind=DeviceKind.DISCRETE,
    subgroup_size=32,
    max_shared_bytes=49152,
    max_loop_trips=None,
    compute_units=132,
    fused_multiply_add32=True,
)
LEAST = float(np.finfo(np.float32).min)


def case_of(*sizes: Any, dtype: DType = dtypes.float32, **options: Any) -> Case:
    return attention_case(dtype, *sizes, **options)


def arguments(graph: Graph, seed: int = 0) -> list[Any]:
    random = np.random.default_rng(seed)
    return [
        random.standard_normal(graph.type(value).shape).astype(
            graph.type(value).dtype.numpy
        )
        for value in graph.inputs
    ]


def kernels(program: Any) -> list[tuple[str, str]]:
    return [
        (node.kernel.name.rsplit("_", 1)[0], node.kernel.schedule)
        for node in program.dispatches
    ]


def check(case: Case, info: Any = None, args: list[Any] | None = None) -> list[Any]:
    """Run a case on the device, planned for `info`; the kernels that ran."""
    graph = graph_of(case)
    program = plan_graph(graph, info)
    args = args or arguments(graph)
    (found,) = run_program(graph, program, args)
    (wanted,) = evaluate_all(graph, *args).results
    tolerance = 2e-6 if found.dtype == np.float32 else 2e-2
    np.testing.assert_allclose(
        found.astype(np.float32),
        wanted.astype(np.float32),
        rtol=tolerance,
        atol=tolerance,
    )
    return kernels(program)


# --- sizes --------------------------------------------------------------------


@on_device
@pytest.mark.parametrize(
    "sizes",
    [
        ((2,), (1,), 1, 4, 4),
        ((2,), (8,), 9, 5, 3),
        ((), (9,), 8, 4, 4),
        ((2,), (3, 6), 6, 12, 7),
        ((1,), (17,), 33, 1, 2),
        ((2, 2), (2, 2), 130, 32, 8),
    ],
)
def test_sizes(sizes: Any) -> None:
    """Around tiles of rows and keys, and heads that are no whole chunks."""
    check(case_of(*sizes))


@on_device
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16])
@pytest.mark.parametrize("sizes", [((2,), (3,), 9, 80, 5), ((1,), (20,), 21, 8, 12)])
def test_narrow_dtypes(sizes: Any, dtype: DType) -> None:
    check(case_of(*sizes, dtype=dtype))


@pytest.mark.parametrize("head", [32, 64, 96, 128, 256])
@pytest.mark.parametrize("info", [DeviceInfo(), WIDE_GPU], ids=["CPU", "GPU"])
@pytest.mark.parametrize("rows", [1, 64])
def test_heads_of_models_are_planned(head: int, info: DeviceInfo, rows: int) -> None:
    """Each within the limits of the device, in one launch or two."""
    case = case_of((4,), (rows,), 512, head, head, dtype=dtypes.float16)
    program = plan_graph(graph_of(case), info)
    assert 1 <= len(program.dispatches) <= 2
    for node in program.dispatches:
        assert node.kernel.shared_bytes <= info.max_shared_bytes
        assert node.kernel.loop_trips <= (info.max_loop_trips or 1 << 24)


def test_no_matrix_of_scores() -> None:
    program = plan_graph(graph_of(case_of((8,), (512,), 512, 64, 64)), DeviceInfo())
    assert program.arena_bytes == 0
    assert kernels(program) == [
        ("attention_rows", "rows 16, 8 keys, keys handed round")
    ]


# --- schedules ----------------------------------------------------------------


@on_cpu
def test_keys_are_split() -> None:
    """Few rows and many keys: parts of the keys, then their merger."""
    case = case_of((1,), (2,), 700, 6, 5, masked=LEAST)
    found = check(case, {"compute_units": 4})
    assert found == [
        ("attention_keys", "keys by 8, 2 rows, 4 splits"),
        ("attention_merge", "4 splits, 8 invocations"),
    ]
    # Where rows see but a few keys, most splits have none.
    check(case_of((1,), (2,), 700, 6, 5), {"compute_units": 4})
    assert len(check(case, {"compute_units": 1})) == 1


@on_cpu
def test_few_rows_of_many_keys() -> None:
    """Blocks of rows and parts of the keys fill a device that whole rows would not."""
    case = case_of((1,), (9,), 1030, 40, 4)
    found = check(case, {"compute_units": 8})
    assert found[0] == ("attention_keys", "keys by 8, 9 rows, 8 splits")
    ((name, _),) = check(case_of((8,), (9,), 60, 4, 4), {"compute_units": 8})
    assert name == "attention_rows"


@on_cpu
def test_rows_share_keys() -> None:
    """Query heads of one key head are rows of one kernel, as far as sums fit."""
    ((_, schedule),) = check(case_of((2,), (4, 2), 30, 8, 8))
    assert schedule == "keys by 8, 8 rows"
    ((_, schedule),) = kernels(
        plan_graph(graph_of(case_of((2,), (8,), 64, 128, 128)), DeviceInfo())
    )
    assert schedule == "keys by 8, 4 rows"


@on_cpu
@pytest.mark.parametrize("masked", [-np.inf, LEAST])
@pytest.mark.parametrize(
    ("info", "schedule"),
    [
        (GPU, "rows 1 by 8 parts, 8 keys"),
        (GPU | {"compute_units": 0}, "rows 4 by 8 parts, 8 keys"),
        ({"subgroup_shuffle": False}, "rows 8, 8 keys"),
        ({"subgroup_shuffle": False, "subgroup_arithmetic": False}, "rows 8, 8 keys"),
    ],
)
def test_other_devices(info: Any, schedule: str, masked: float) -> None:
    """Rows dealt out by features, and none handed round."""
    ((_, found),) = check(case_of((2,), (2, 6), 21, 32, 32, masked=masked), info)
    assert found == schedule


# --- masks --------------------------------------------------------------------

KINDS = {"keys": (2,), "rows": (2, 5)}


@on_device
@pytest.mark.parametrize("rows", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("masked", [-np.inf, LEAST])
def test_rows_that_see_nothing(rows: tuple[int, ...], masked: float) -> None:
    """NaN below -inf, the mean of all keys below a number, as composed."""
    case = case_of((2,), rows, 20, 4, 4, bias=True, masked=masked)
    graph = graph_of(case)
    args = arguments(graph)
    # The first rows see the first keys only, whose bias is what masks.
    args[3][:] = masked
    (wanted,) = evaluate_all(graph, *args).results
    assert np.isnan(wanted).any() == np.isinf(masked)
    if not np.isinf(masked):
        mean = np.broadcast_to(args[2].mean(1), (*wanted.shape[1:-2], 2, 4))
        first = np.moveaxis(wanted, 0, -2)[..., 0, :, :]
        np.testing.assert_allclose(first, mean, rtol=1e-5, atol=1e-6)
    check(case, args=args)


@on_cpu
def test_splits_that_see_nothing() -> None:
    """The first split sees to the keys that rows do not see but share in."""
    case = case_of((1,), (2,), 600, 4, 4, bias=True, masked=LEAST)
    args = arguments(graph_of(case))
    args[3][:] = LEAST
    found = check(case, {"compute_units": 4}, args)
    assert len(found) == 2


@on_device
@pytest.mark.parametrize("rows", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("masked", [-np.inf, LEAST])
def test_keys_that_no_row_sees_are_not_read(
    rows: tuple[int, ...], masked: float
) -> None:
    """There may be anything: as shares of 0 they would make NaN of it."""
    case = case_of((2,), rows, 40, 4, 4, masked=masked)
    graph = graph_of(case)
    args = arguments(graph)
    for x in args[1:3]:
        x[:, 8:] = np.nan
    (found,) = run_program(graph, plan_graph(graph), args)
    args[1][:, 8:] = args[2][:, 8:] = 0
    (wanted,) = evaluate_all(graph, *args).results
    np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=2e-6)


@on_cpu
@pytest.mark.parametrize("rows", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("what", [np.nan, np.inf, -np.inf])
def test_no_numbers(rows: tuple[int, ...], what: float) -> None:
    """What is no number in a key or a value goes where the composition has it."""
    graph = graph_of(case_of((2,), rows, 9, 4, 4))
    for place in (0, 1, 2):
        args = arguments(graph)
        args[place][1, ..., 1, 2] = what
        check(case_of((2,), rows, 9, 4, 4), args=args)


@on_device
@pytest.mark.parametrize("rows", KINDS.values(), ids=KINDS)
def test_large_scores(rows: tuple[int, ...]) -> None:
    """Nothing overflows that is below the largest."""
    graph = graph_of(case_of((2,), rows, 9, 4, 4))
    args = arguments(graph)
    args[0] *= 100
    args[1] *= 100
    check(case_of((2,), rows, 9, 4, 4), args=args)


# --- refusals -----------------------------------------------------------------


def undone(case: Case, info: DeviceInfo) -> str:
    """The notes of a program without attention."""
    program = plan(graph_of(case), info)
    assert not any("attention" in name for name, _ in kernels(program))
    return "\n".join(program.notes)


def test_refused_for_shared_memory() -> None:
    """Without subgroup operations invocations put sums together in shared memory."""
    info = DeviceInfo(
        subgroup_size=32,
        subgroup_arithmetic=False,
        subgroup_shuffle=False,
        max_shared_bytes=2048,
    )
    notes = undone(case_of((2,), (8,), 30, 4, 4, masked=LEAST), info)
    assert "keep_composite" in notes and "not device 1 times" in notes
    assert "shared" in notes and "2048" in notes, notes


def test_refused_for_large_heads() -> None:
    notes = undone(case_of((1,), (2,), 3, 1025, 4), DeviceInfo())
    assert "heads of 1025 elements; the most is 1024" in notes


def test_parts_that_are_refused_too_tell_why_they_are_apart() -> None:
    """Keys of large heads fit, the matrix of scores that the parts need does not."""
    graph = graph_of(case_of((1,), (2000,), 2000, 1025, 4))
    limit = 4 * 2000 * 1025
    info = DeviceInfo(max_allocation_bytes=limit, max_buffer_bytes=limit)
    with pytest.raises(LimitError, match=f"{limit} B") as e:
        plan(graph, info)
    assert any("heads of 1025 elements" in note for note in e.value.__notes__)


def test_refused_for_long_loops() -> None:
    case = case_of((1,), (20,), 300_000, 2, 2, masked=LEAST)
    notes = undone(case, DeviceInfo(max_loop_trips=65535))
    assert "loop iterations" in notes


def test_schedules_read_well() -> None:
    assert str(AttentionSchedule("rows", 32, 1, 8, 4)) == "rows 8 by 4 parts, 8 keys"
    assert str(AttentionSchedule("keys", 8, 4)) == "keys by 8, 4 rows"
