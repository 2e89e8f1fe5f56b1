"""Regions that read operands across the order of their results: by tiles."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import poot
import poot.numpy as pnp
from poot import nn
from poot.core.graph import Graph
from poot.lowering.compile import lower, plan
from poot.lowering.device_info import DeviceInfo, DeviceKind
from poot.lowering.kernels import tile_plan
from poot.lowering.plan import layout
from poot.lowering.program import Dispatch
from tests.graph_runs import run_all
from tests.kernel_harness import Array, assert_exact, device, evaluate
from tests.pass_harness import graph_of
from tests.pointwise_programs import random_arrays, random_region
from tests.spirv_val import fault

GPU = DeviceInfo(name="gpu").masked(
    kind=DeviceKind.DISCRETE,
    subgroup_size=32,
    max_loop_trips=None,
    max_shared_bytes=48 << 10,
    max_workgroup_count=((1 << 31) - 1, 65535, 65535),
    compute_units=132,
)
BF16 = np.dtype(ml_dtypes.bfloat16)
F32 = np.dtype(np.float32)


@pytest.fixture
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small tensors go by tiles too."""
    monkeypatch.setattr(tile_plan, "_LEAST_ELEMENTS", 2)
    monkeypatch.setattr(tile_plan, "_LEAST_WORKGROUP", 1)


def numbers(*shape: int, dtype: Any = F32, seed: int = 0) -> Array:
    """Numbers that every dtype holds."""
    random = np.random.default_rng(seed)
    return random.integers(0, 100, shape).astype(dtype)


def planned(
    function: Callable[..., Any], *args: Array, info: DeviceInfo = GPU
) -> list[Dispatch]:
    graph = poot.jit(function).trace(*args).graph
    return list(plan(lower(graph, info).graph, info).dispatches)


def is_tiled(dispatch: Dispatch) -> bool:
    return "tiles of" in dispatch.kernel.schedule


def takes_tiles(
    function: Callable[..., Any], *args: Array, info: DeviceInfo = GPU
) -> bool:
    return any(map(is_tiled, planned(function, *args, info=info)))


def assert_tiled(graph: Graph, args: list[Array], generic: bool = False) -> None:
    """By tiles, the device gives what the oracle says."""
    info = device().info.masked(kind=DeviceKind.DISCRETE)
    program = plan(lower(graph, info).graph, info, generic=generic)
    if generic:
        assert all(kernel.uses_metadata for kernel in program.kernels.values())
    assert any(map(is_tiled, program.dispatches)), graph
    for kernel in program.kernels.values():
        assert fault(kernel.words) is None
    wanted = evaluate(graph, *args)
    for mine, right in zip(
        run_all(lower(graph, info).graph, program, args), wanted, strict=True
    ):
        np.testing.assert_array_equal(mine, np.asarray(right), strict=True)


def right_by_tiles(
    function: Callable[..., Any], *args: Array, generic: bool = False
) -> None:
    assert_tiled(poot.jit(function).trace(*args).graph, list(args), generic)


# --- what they compute ------------------------------------------------------


@pytest.mark.parametrize(
    "dtype", [np.float32, BF16, np.int8, np.bool_, np.float64, np.uint16]
)
@pytest.mark.parametrize(
    "shape", [(128, 256), (100, 72), (67, 131), (5, 300), (258, 66)]
)
@pytest.mark.usefixtures("any_size")
def test_transposes_of_every_width(dtype: Any, shape: tuple[int, ...]) -> None:
    with poot.config.override(enable_x64=True):
        right_by_tiles(lambda x: x.T, numbers(*shape, dtype=dtype))


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Array, ...]]] = {
    "another operand": (lambda x, y: x.T + y, (numbers(96, 64), numbers(64, 96))),
    "a cast": (
        lambda x, y: x.T.astype(F32) + y,
        (numbers(96, 64, dtype=BF16), numbers(64, 96)),
    ),
    "two operands of two dtypes": (
        lambda x, y: (x.T + y.T).astype(BF16),
        (numbers(96, 64, dtype=np.int8), numbers(96, 64, dtype=BF16)),
    ),
    "both orders of one operand": (
        lambda x: x + x.T,
        (numbers(67, 67, dtype=BF16),),
    ),
    "a batch and a row": (
        lambda x, b: x.transpose(0, 3, 1, 2) * b,
        (numbers(3, 6, 40, 24), numbers(40)),
    ),
    "axes walked as one": (
        lambda x, b: x.transpose(1, 2, 0) * b[:, None],
        (numbers(16, 20, 30), numbers(30)),
    ),
    "all axes turned": (
        lambda x: (x.transpose(3, 2, 1, 0) * 2).astype(np.int8),
        (numbers(5, 6, 7, 8, dtype=np.int8),),
    ),
    "parts of a whole": (
        lambda x, y: pnp.concatenate([x.T, x.T * 2, y], axis=1),
        (numbers(64, 96), numbers(96, 32)),
    ),
    "borders": (lambda x: pnp.pad(x.T, ((1, 2), (3, 4))), (numbers(96, 64),)),
    "rows that are no units": (lambda x: x[3:, 5:].T, (numbers(96, 64),)),
    "every second column": (lambda x: x[:, ::2].T, (numbers(96, 64),)),
    "two places of one operand": (
        lambda x: (x[1:] - x[:-1]).T,
        (numbers(97, 64),),
    ),
    "what is computed before": (
        lambda x: pnp.abs(x).reshape(8, 12, 64).transpose(2, 0, 1) * 3,
        (numbers(96, 64),),
    ),
    "several results": (
        lambda x: (x.T > 7, (x.T + 1).astype(np.int32)),
        (numbers(96, 64),),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.usefixtures("any_size")
def test_regions(name: str) -> None:
    function, args = PROGRAMS[name]
    right_by_tiles(function, *args)


@pytest.mark.parametrize("dtype", [np.float32, BF16, np.int8, np.float64])
@pytest.mark.parametrize(
    "shape", [(128, 256), (67, 131), (6, 33, 72), (3, 4, 20, 40), (100, 34)]
)
@pytest.mark.usefixtures("any_size")
def test_one_kernel_for_shapes_of_a_kind(dtype: Any, shape: tuple[int, ...]) -> None:
    perm = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    with poot.config.override(enable_x64=True):
        x = numbers(*shape, dtype=dtype)
        right_by_tiles(lambda x: x.transpose(perm), x, generic=True)


@pytest.mark.usefixtures("any_size")
def test_kernels_for_all_shapes_know_sources_only() -> None:
    """Of loads at two places of one operand they could not tell the crossing one."""
    x = numbers(67, 67)
    right_by_tiles(lambda x, y: x.T * y, x, numbers(67, seed=1), generic=True)
    info = device().info.masked(kind=DeviceKind.DISCRETE)
    function = poot.jit(lambda x: x + pnp.abs(x).T)
    graph = lower(function.trace(x).graph, info).graph
    assert any(map(is_tiled, plan(graph, info).dispatches))
    program = plan(graph, info, generic=True)
    assert not any(map(is_tiled, program.dispatches))
    np.testing.assert_array_equal(run_all(graph, program, [x])[0], x + x.T)


def test_shapes_share_a_kernel() -> None:
    names = set()
    for shape in ((2048, 3072), (3072, 2048), (1536, 4096)):
        graph = poot.jit(lambda x: x.T).trace(numbers(*shape)).graph
        program = plan(lower(graph, GPU).graph, GPU, generic=True)
        names |= {dispatch.kernel.name for dispatch in program.dispatches}
    assert len(names) == 1


def test_long_regions_are_computed_in_a_loop(
    any_size: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tile_plan, "_SHORT_REGION", 2)
    monkeypatch.setattr(tile_plan, "_TILES_PER_UNIT", 0)
    args = numbers(130, 140), numbers(140, 130)
    (dispatch,) = planned(lambda x, y: x.T * y + 1, *args)
    assert dispatch.kernel.loop_trips > 0
    right_by_tiles(lambda x, y: x.T * y + 1, *args)


def test_random_regions_by_tiles(
    any_size: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tile_plan, "_LEAST_EXTENT", 2)
    monkeypatch.setattr(tile_plan, "SECTOR_BYTES", 8)
    info = device().info.masked(kind=DeviceKind.DISCRETE)
    tiled = 0
    for seed in range(300):
        graph = random_region(Random(seed))
        program = plan(graph, info)
        if any(map(is_tiled, program.dispatches)):
            args = random_arrays(graph, seed)
            assert_exact(graph, args, {"kind": DeviceKind.DISCRETE})
            tiled += 1
    assert tiled >= 5


# --- when they are chosen ---------------------------------------------------


def test_units_of_16_bytes_come_and_go() -> None:
    for dtype, lanes in ((F32, 4), (BF16, 8), (np.dtype(np.int8), 16)):
        (dispatch,) = planned(lambda x: x.T, numbers(1024, 2048, dtype=dtype))
        assert f"{lanes} lanes" in dispatch.kernel.schedule
        assert dispatch.kernel.shared_bytes <= 48 << 10
        # Nothing is left to be checked when it runs.
        labels = sum(
            word & 0xFFFF == 248 and word >> 16 == 2 for word in _heads(dispatch)
        )
        assert labels == 1


def _heads(dispatch: Dispatch) -> list[int]:
    words = np.frombuffer(dispatch.kernel.words, np.uint32)
    heads, at = [], 5
    while at < len(words):
        heads.append(int(words[at]))
        at += int(words[at]) >> 16
    return heads


def test_small_tensors_keep_the_plain_kernel() -> None:
    assert not takes_tiles(lambda x: x.T, numbers(128, 256))
    assert takes_tiles(lambda x: x.T, numbers(256, 256))


def test_the_order_of_results_needs_no_tiles() -> None:
    heads = numbers(16, 64, 8, 32)
    assert not takes_tiles(lambda x: x.transpose(0, 2, 1, 3), heads)
    assert not takes_tiles(lambda x, y: x + y, numbers(512, 512), numbers(512, 1))
    assert takes_tiles(lambda x: x.transpose(0, 2, 3, 1), heads)


def test_narrow_axes_need_no_tiles() -> None:
    assert not takes_tiles(lambda x: x.T, numbers(3, 1 << 16))
    assert not takes_tiles(lambda x: x.T, numbers(1 << 16, 3))
    assert takes_tiles(lambda x: x.T, numbers(1 << 16, 8))


def test_neighbours_in_a_sector_need_no_tiles() -> None:
    # Eight bytes from one to the next.
    assert not takes_tiles(lambda x: x[:, ::2] * 2, numbers(512, 512))


def test_cpus_have_no_use_for_tiles() -> None:
    info = GPU.masked(kind=DeviceKind.CPU)
    assert not takes_tiles(lambda x: x.T, numbers(512, 512), info=info)


def test_words_that_rows_share_need_storage_of_single_elements() -> None:
    bytes_only = GPU.masked(storage16=False, int16=False)
    odd, even = numbers(513, 512, dtype=BF16), numbers(512, 514, dtype=BF16)
    assert takes_tiles(lambda x: x.T, odd)
    assert not takes_tiles(lambda x: x.T, odd, info=bytes_only)
    assert takes_tiles(lambda x: x.T, even, info=bytes_only)


def test_tiles_fit_the_device() -> None:
    x = numbers(1024, 1024)
    for limits in (
        {"max_shared_bytes": 4096},
        {"max_workgroup_invocations": 64, "max_workgroup_size": (64, 64, 64)},
        {"max_workgroup_count": (7, 5, 300)},
    ):
        (dispatch,) = planned(lambda x: x.T, x, info=GPU.masked(**limits))
        assert is_tiled(dispatch)
        kernel = dispatch.kernel
        assert kernel.shared_bytes <= limits.get("max_shared_bytes", 48 << 10)
        assert kernel.workgroup[0] <= limits.get("max_workgroup_invocations", 256)
        assert fault(kernel.words) is None
    tiny = GPU.masked(max_workgroup_invocations=32, max_workgroup_size=(32, 32, 32))
    assert not takes_tiles(lambda x: x.T, x, info=tiny)


@pytest.mark.usefixtures("any_size")
def test_a_folded_grid_stores_nothing_twice() -> None:
    """In a folded grid the workgroups past the end must leave the results alone."""
    info = device().info.masked(
        kind=DeviceKind.DISCRETE, max_workgroup_count=(4, 3, 300)
    )
    graph = poot.jit(lambda x, y: x.T + y).trace(numbers(96, 70), numbers(70, 96)).graph
    program = plan(graph := lower(graph, info).graph, info)
    (dispatch,) = program.dispatches
    assert is_tiled(dispatch) and dispatch.grid[1] > 1
    args = [numbers(96, 70), numbers(70, 96, seed=1)]
    (found,) = run_all(graph, program, args)
    np.testing.assert_array_equal(found, args[0].T + args[1])


# --- what walks one axis ----------------------------------------------------


def walks(function: Callable[..., Any], *args: Array, info: DeviceInfo = GPU) -> str:
    """What the launches are, by the first word of their names."""
    names = [each.kernel.name for each in planned(function, *args, info=info)]
    return " ".join(name.split("_")[0] for name in names)


WALKS: dict[str, tuple[Callable[..., Any], Array, str]] = {
    "rows": (lambda x: nn.softmax(x.T, axis=-1), numbers(96, 130), "tiles row"),
    "rows that are rows there": (
        lambda x: pnp.sum(x.T, axis=0),
        numbers(96, 130),
        "row",
    ),
    "rows that are columns there": (
        lambda x: pnp.argmax(x.T, axis=1),
        numbers(96, 130),
        "columns",
    ),
    "an axis between": (
        lambda x: pnp.max(x.transpose(2, 1, 0), axis=1),
        numbers(6, 33, 70),
        "tiles columns",
    ),
    "a batch of columns": (
        lambda x: pnp.sum(x.transpose(0, 2, 1), axis=2, keepdims=True),
        numbers(6, 33, 70),
        "columns",
    ),
    "sums of all before": (
        lambda x: pnp.cumsum(x.T, axis=1),
        numbers(96, 130),
        "tiles scan",
    ),
}


@pytest.mark.parametrize("name", WALKS)
@pytest.mark.usefixtures("any_size")
def test_walks_follow_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are not read by elements that lie sectors apart."""
    function, x, wanted = WALKS[name]
    cpu = GPU.masked(kind=DeviceKind.CPU)
    assert "tiles" not in walks(function, x)
    monkeypatch.setattr(layout, "_LEAST_CROSSING", 2)
    assert walks(function, x) == wanted
    assert "tiles" not in walks(function, x, info=cpu)
    info = device().info.masked(kind=DeviceKind.DISCRETE)
    graph = poot.jit(function).trace(x).graph
    lowered = lower(graph, info).graph
    (found,) = run_all(lowered, plan(lowered, info), [x])
    (right,) = evaluate(graph, x)
    np.testing.assert_allclose(found, np.asarray(right), rtol=1e-5, atol=1e-6)


def test_a_reduction_given_twice_stays_a_row_body() -> None:
    """As a lone equation it would have one result."""
    x = numbers(96, 130)
    graph = graph_of("""
        device %0: f32[96,130]
        %1: f32[96,1], %2: f32[96,1] = fused_row[body=graph {
          device %0: f32[96,130]
          %1: f32[96,1] = reduce[op=max, axis=1, keepdim=true](%0)
          result %1
          result %1
        }](%0)
        result %1
        result %2
    """)
    first, second = run_all(graph, plan(graph, device().info), [x])
    np.testing.assert_array_equal(first, x.max(1, keepdims=True))
    np.testing.assert_array_equal(second, first)


def test_what_is_in_order_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_LEAST_CROSSING", 2)
    heads = numbers(3, 40, 5, 64)
    assert walks(lambda x: nn.softmax(x.transpose(0, 2, 1, 3)), heads) == "row"
    # A row that all share, columns a sector apart, few elements along the other axis.
    row = numbers(1, 130)
    assert walks(lambda x: pnp.cumsum(pnp.broadcast_to(x, (96, 130)), 1), row) == "scan"
    assert walks(lambda x: pnp.cumsum(x.T, 1), numbers(96, 4)) == "scan"
    assert walks(lambda x: pnp.cumsum(x.T, 1), numbers(96, 8)) != "scan"
    assert walks(lambda x: pnp.cumsum(x[:, ::8], 1), numbers(96, 130)) == "scan"
