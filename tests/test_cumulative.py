"""Scans along an axis: kernels on many shapes and devices, and their functions."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import lax
from poot.core.errors import ArgumentError, DTypeError, ShapeError
from poot.core.graph import Graph
from poot.core.ops.cumulative import Cumulative, CumulativeOp
from poot.lowering.device_info import DeviceInfo, DeviceKind
from poot.lowering.kernels import column_look_back, reduce, scan_program
from poot.lowering.kernels.scan_program import (
    choose_look_back,
    choose_scan_schedule,
    part_tiles,
)
from poot.vulkan.executable import Executable
from tests.backends import device_backend
from tests.kernel_harness import (
    assert_exact,
    device,
    one_op,
    oracle,
    plan_graph,
    run_graph,
    same_bits,
)
from tests.numerics import assert_close, rng_of
from tests.numpy_cases import (
    Case,
    case,
    check,
    one_backend,  # noqa: F401 (a fixture)
)

on_device = pytest.mark.skipif(device_backend() is None, reason="no Vulkan device")
_C = CumulativeOp
F32 = np.float32

# Sizes around chunks, subgroups, tiles and several tiles, along each axis.
SHAPES = [
    ((2,), 0),
    ((31,), 0),
    ((129,), 0),
    ((5, 64), 1),
    ((3, 257), 1),
    ((64, 5), 0),
    ((7, 3, 12), 1),
    ((2, 2053), 1),
    ((1, 5000, 1), 1),
]
# Devices whose kernels differ: no shuffles, other subgroups, more shared memory.
PROFILES: dict[str, dict[str, Any]] = {
    "no shuffles": {"subgroup_shuffle": False},
    "one workgroup a row": {"is_gpu": True},
}


def whole(name: str, shape: tuple[int, ...], dtype: Any) -> Any:
    return rng_of(name).integers(-5, 6, shape).astype(dtype)


def info_of(profile: str) -> DeviceInfo:
    """The device under test as another one whose kernels it can run."""
    changes = dict(PROFILES[profile])
    if changes.pop("is_gpu", False):
        changes["kind"] = type(device().info.kind).DISCRETE
    return device().info.masked(**changes)


@on_device
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
def test_profiles(profile: str, shape: tuple[int, ...], axis: int) -> None:
    for op, dtype, reverse in (
        (_C.SUM, F32, False),
        (_C.SUM, np.int8, True),
        (_C.MAX, np.float16, False),
    ):
        x = whole(f"{shape}{axis}", shape, dtype)
        graph = one_op(Cumulative(op, axis, reverse), x)
        assert_exact(graph, [x], info_of(profile))


@on_device
@pytest.mark.parametrize("profile", PROFILES)
def test_pairs_of_carriers(profile: str) -> None:
    """logsumexp carries two numbers through shuffles and shared memory."""
    x = rng_of("pairs").uniform(1, 9, (3, 2053)).astype(F32)
    for axis in (0, 1):
        graph = one_op(Cumulative(_C.LOGSUMEXP, axis), x)
        (found,) = run_graph(graph, [x], info_of(profile))
        assert_close(found, oracle(graph, [x])[0], 8)


@on_device
@pytest.mark.parametrize("generic", [False, True], ids=["static", "generic"])
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("count", [1 << 17, (1 << 17) + 3])
def test_long_rows_go_in_stages(count: int, reverse: bool, generic: bool) -> None:
    for op, dtype in ((_C.SUM, F32), (_C.MIN, np.int16)):
        x = whole(f"{count}", (2, count), dtype)
        graph = one_op(Cumulative(op, 1, reverse), x)
        info = device().info.masked(forward_progress=False)
        assert len(plan_graph(graph, info, generic).dispatches) >= 3
        assert_exact(graph, [x], info, generic)


@on_device
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
def test_long_columns_go_in_stages(reverse: bool) -> None:
    x = whole("columns", (40001, 3), F32)
    graph = one_op(Cumulative(_C.SUM, 0, reverse), x)
    assert len(plan_graph(graph).dispatches) >= 3
    assert_exact(graph, [x])


@on_device
@pytest.mark.parametrize("generic", [False, True], ids=["static", "generic"])
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
def test_columns_on_gpus_load_several_elements_at_a_time(
    reverse: bool, generic: bool
) -> None:
    gpu = {"kind": DeviceKind.DISCRETE}
    for shape in ((5, 12), (300, 33)):
        x = whole("ahead", shape, F32)
        graph = one_op(Cumulative(_C.SUM, 0, reverse), x)
        assert "8 at a time" in plan_graph(graph, gpu).dispatches[0].kernel.schedule
        assert_exact(graph, [x], gpu, generic)


@on_device
def test_many_ones_are_counted_exactly() -> None:
    """Up to 2^24 a sum of ones is a float; beyond, within an ulp."""
    count = (1 << 24) + 3
    ones = np.ones(count, F32)
    graph = one_op(Cumulative(_C.SUM, 0), ones)
    (found,) = run_graph(graph, [ones])
    np.testing.assert_array_equal(found[: 1 << 24], np.arange(1, (1 << 24) + 1))
    assert np.abs(found[1 << 24 :] - (1 << 24)).max() <= 4


@on_device
def test_sums_of_halves_round_once() -> None:
    x = rng_of("halves").uniform(-1, 1, (2, 1500)).astype(np.float16)
    graph = one_op(Cumulative(_C.SUM, 1), x)
    (found,) = run_graph(graph, [x])
    assert_close(found, oracle(graph, [x])[0], 1)


@on_device
def test_specials() -> None:
    nan, inf = np.nan, np.inf
    rows = [
        [-0.0, -0.0, 1.0, -1.0, -0.0],
        [1.0, nan, 2.0, -inf, inf],
        [-inf, -inf, inf, 3.0, nan],
        [-inf, -inf, -inf, 0.0, -inf],
        [0.0, -0.0, 0.0, -0.0, 0.0],
    ]
    x = np.array(rows, F32)
    for reverse in (False, True):
        for op in (_C.SUM, _C.PROD, _C.MAX, _C.MIN):
            assert_exact(one_op(Cumulative(op, 1, reverse), x), [x])
        graph = one_op(Cumulative(_C.LOGSUMEXP, 1, reverse), x)
        (found,), (right,) = run_graph(graph, [x]), oracle(graph, [x])
        assert_close(found, right, 4)
        assert np.isneginf(found[3]).sum() >= 1


@on_device
def test_any_layout_is_read() -> None:
    """Jitted, the operand is a view; eager, a copy: the sums are the same bits."""
    x = poot.device_put(rng_of("layout").normal(size=(37, 50)).astype(F32))

    def f(x: Any) -> Any:
        turned = x.T[::2]
        return lax.cumsum(turned, 0), lax.cumsum(turned, 1, reverse=True)

    for mine, other in zip(poot.jit(f)(x), f(x), strict=True):
        assert same_bits(np.asarray(mine), np.asarray(other))


@on_device
def test_donated_operands() -> None:
    x = np.arange(5000, dtype=F32)
    scan = poot.jit(lambda x: lax.cumsum(x, reverse=True), donate_argnums=0)
    found = scan(poot.device_put(x))
    np.testing.assert_array_equal(np.asarray(found), np.cumsum(x[::-1])[::-1])


def test_what_is_combined_with_what_hangs_on_the_shape_only() -> None:
    info = DeviceInfo(max_loop_trips=1000)
    schedule = choose_scan_schedule(info, 4, 1 << 26)
    tiles = part_tiles(info, schedule, 5, 1 << 26)
    assert 0 < tiles <= 500
    assert part_tiles(info, schedule, 1 << 10, 1 << 10) == 0


# --- one pass ---------------------------------------------------------------

LOOKS = {"waits": None, "never waits": 0}


@pytest.fixture
def progress(monkeypatch: pytest.MonkeyPatch) -> DeviceInfo:
    """The device as one with forward progress, of small tiles."""
    info = device().info.masked(forward_progress=True)
    teams = ((0, 2 * info.subgroup_size),)
    monkeypatch.setattr(scan_program, "_LOOK_BACK_TEAMS", teams)
    monkeypatch.setattr(scan_program, "_LOOK_BACK_ROUNDS", 2)
    monkeypatch.setattr(scan_program, "_LONG_ROW", 1 << 12)
    return info


@pytest.fixture(params=LOOKS, ids=str)
def patience(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether to wait for others, or to compute what they would give."""
    looks = LOOKS[request.param]
    if looks is not None:
        monkeypatch.setattr(scan_program, "_LOOKS", looks)


@on_device
@pytest.mark.parametrize("generic", [False, True], ids=["static", "generic"])
@pytest.mark.parametrize(
    ("op", "dtype", "reverse"),
    [
        (_C.SUM, F32, False),
        (_C.SUM, np.int64, True),
        (_C.MAX, np.float16, True),
        (_C.MIN, np.int8, False),
    ],
    ids=str,
)
@pytest.mark.usefixtures("patience")
def test_one_pass(
    progress: DeviceInfo, op: _C, dtype: Any, reverse: bool, generic: bool
) -> None:
    """Waiting or not, over two blocks and three groups of tiles, the last not full."""
    width = progress.subgroup_size
    lanes = max(16 // np.dtype(dtype).itemsize, 4)
    tiles = width * width + 2 * width + 3
    for shape in ((1, 4 * width * lanes * tiles - 5), (2, 5000)):
        x = whole(f"{shape}", shape, dtype)
        graph = one_op(Cumulative(op, 1, reverse), x)
        assert is_one_pass(graph, progress)
        assert_exact(graph, [x], progress, generic)


def is_one_pass(graph: Graph, info: DeviceInfo) -> bool:
    names = [node.kernel.name for node in plan_graph(graph, info).dispatches]
    return any(name.startswith("look_back") for name in names)


@on_device
def test_waiting_changes_no_bit(
    progress: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums that round are added in one order, whatever is there in time."""
    x = rng_of("waiting").normal(size=12_000).astype(F32)
    x[11_000] = np.nan
    for op, limit in ((_C.SUM, np.inf), (_C.LOGSUMEXP, 64)):
        graph = one_op(Cumulative(op, 0), x)
        found = [run_graph(graph, [x], progress, one)[0] for one in (False, True)]
        for looks in (0, 1):
            with monkeypatch.context() as patch:
                patch.setattr(scan_program, "_LOOKS", looks)
                found.append(run_graph(graph, [x], progress)[0])
        assert all(same_bits(other, found[0]) for other in found[1:])
        assert_close(found[0], oracle(graph, [x])[0], limit)
        assert np.isnan(found[0][11_000:]).all()


@on_device
def test_one_pass_can_be_run_again() -> None:
    """Each replay starts from flags that are 0."""
    x = np.arange(50_000, dtype=F32) % 7
    info = device().info.masked(forward_progress=True)
    graph = one_op(Cumulative(_C.SUM, 0), x)
    executable = Executable(device(), plan_graph(graph, info))
    given = device().upload(x.view(np.uint8))
    for _ in range(3):
        (result,), _ = executable.call([given])
        found = np.empty(x.nbytes, np.uint8)
        device().download(result, found)
        np.testing.assert_array_equal(found.view(F32), np.cumsum(x, dtype=F32))
    executable.close()


def test_one_pass_needs_progress_and_long_rows() -> None:
    info = DeviceInfo(forward_progress=True, subgroup_size=32)
    assert choose_look_back(info, 4, 1, 1 << 20) is not None
    assert choose_look_back(info, 4, 1, 1 << 10) is None
    assert choose_look_back(info, 4, 1 << 10, 1 << 20) is None
    for lacking in ("forward_progress", "subgroup_shuffle", "subgroup_ballot"):
        assert choose_look_back(info.masked(**{lacking: False}), 4, 1, 1 << 20) is None


# --- columns in one pass ----------------------------------------------------


@pytest.fixture
def column_progress(monkeypatch: pytest.MonkeyPatch) -> DeviceInfo:
    """The device as a GPU with forward progress, of tiles of 16 elements."""
    monkeypatch.setattr(column_look_back, "_HELD_BYTES", 1)
    monkeypatch.setattr(column_look_back, "_DOWN", 4)
    monkeypatch.setattr(reduce, "_PART", 8)
    return device().info.masked(
        forward_progress=True, kind=DeviceKind.DISCRETE, compute_units=132
    )


def is_column_pass(graph: Graph, info: DeviceInfo) -> bool:
    *_, last = plan_graph(graph, info).dispatches
    return last.kernel.name.startswith("column_look_back")


@on_device
@pytest.mark.parametrize(
    ("op", "dtype", "reverse", "shape", "generic"),
    [
        (_C.SUM, F32, True, (61, 264), False),
        (_C.MAX, np.float16, False, (35, 16), False),
        (_C.SUM, np.int64, False, (2, 35, 8), True),
    ],
    ids=str,
)
@pytest.mark.usefixtures("patience")
def test_columns_in_one_pass(
    column_progress: DeviceInfo,
    op: _C,
    dtype: Any,
    reverse: bool,
    shape: tuple[int, ...],
    generic: bool,
) -> None:
    """Waiting or not, over several groups of tiles, the last not full."""
    x = whole(f"{shape}", shape, dtype)
    graph = one_op(Cumulative(op, len(shape) - 2, reverse), x)
    assert is_column_pass(graph, column_progress)
    assert_exact(graph, [x], column_progress, generic)


@on_device
def test_waiting_for_columns_changes_no_bit(
    column_progress: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = rng_of("waiting").normal(size=(300, 8)).astype(F32)
    x[250, 3] = np.nan
    graph = one_op(Cumulative(_C.SUM, 0), x)
    assert is_column_pass(graph, column_progress)
    found = []
    for looks in (1 << 12, 0, 1):
        monkeypatch.setattr(scan_program, "_LOOKS", looks)
        found.append(run_graph(graph, [x], column_progress)[0])
    assert all(same_bits(other, found[0]) for other in found[1:])
    np.testing.assert_allclose(found[0], oracle(graph, [x])[0], rtol=1e-3, atol=1e-4)


def test_columns_in_one_pass_need_progress_and_whole_chunks() -> None:
    info = DeviceInfo(
        forward_progress=True, kind=DeviceKind.DISCRETE, compute_units=132
    )
    x = np.broadcast_to(np.float32(0), (65536, 4096))
    graph = one_op(Cumulative(_C.SUM, 0), x)
    assert is_column_pass(graph, info)
    # Besides the flags, the elements are read once and written once.
    *_, last = plan_graph(graph, info).dispatches
    assert "tiles of 256 x 64" in last.kernel.schedule
    for lacking in (
        {"forward_progress": False},
        {"subgroup_ballot": False},
        {"max_workgroup_invocations": 128},
    ):
        assert not is_column_pass(graph, info.masked(**lacking))
    odd = np.broadcast_to(np.float32(0), (65536, 4098))
    assert not is_column_pass(one_op(Cumulative(_C.SUM, 0), odd), info)
    many = np.broadcast_to(np.float32(0), (512, 1 << 20))
    assert not is_column_pass(one_op(Cumulative(_C.SUM, 0), many), info)


# --- functions --------------------------------------------------------------

T = rng_of("cumulative").uniform(-3, 3, (2, 3, 4)).astype(F32)
N = np.rint(T * 3).astype(np.int32)
HOLES = np.where(np.abs(T) > 2, np.nan, T).astype(F32)
MASK = T > 0


def scan_cases() -> list[Case]:
    cases = [
        case(f"m.{name}(a, {axis})", 4, sums=True, a=x)
        for name in ("cumsum", "cumprod", "nancumsum", "nancumprod")
        for axis, x in (("None", T), ("0", N), ("-1", HOLES), ("1", MASK))
    ]
    cases += [
        case("m.cumsum(a)", 1, sums=True, a=N.astype(np.int8), native=True),
        case("m.cumsum(a, 1)", 1, sums=True, a=T.astype(ml_dtypes.bfloat16)),
        case("m.cumsum(a, 1, dtype='float16')", 1, sums=True, a=N),
        case("m.cumsum(a)", a=F32(2)),
        case("m.cumsum(a, 0)", a=np.zeros((0, 3), F32)),
        case("m.asarray(a).cumsum(1)", 4, sums=True, a=T),
        case("m.asarray(a).cumprod(1)", 4, sums=True, a=T),
        case("m.cumulative_sum(a, axis=1)", 4, sums=True, a=T),
        case("m.cumulative_sum(a, axis=2, include_initial=True)", 4, sums=True, a=T),
        case("m.cumulative_prod(a, axis=0, include_initial=True)", a=N),
        case("m.cumulative_sum(a)", a=N.ravel()),
    ]
    return cases


@pytest.mark.parametrize("one", scan_cases(), ids=str)
def test_functions(one: Case) -> None:
    check(one)


def test_a_scan_of_truth_values_counts_them() -> None:
    found = jnp.cumsum(np.array([0, 2, -2, 0]), dtype=bool)
    np.testing.assert_array_equal(np.asarray(found), [False, True, True, True])
    assert found.dtype == np.bool_


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: jnp.cumulative_sum(T), ShapeError, "3 axes; takes one of one"),
        (lambda: jnp.cumulative_prod(F32(1)), ShapeError, "0 axes"),
        (lambda: jnp.cumsum(T, out=N), ArgumentError, "out"),
        (lambda: lax.cumsum(T, 3), ShapeError, "axis 3"),
        (lambda: lax.cumsum(MASK), DTypeError, "cumulative sum"),
        (lambda: lax.cumlogsumexp(N), DTypeError, "cumulative logsumexp"),
    ],
)
def test_refusals(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()
