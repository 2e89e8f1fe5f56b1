"""`poot.tune`: every candidate computes the same; what wins is kept and used."""

from __future__ import annotations

import functools
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import lax, slots
from poot.core.errors import ArgumentError, CapabilityError, LoweringError
from poot.inspection import _tune
from poot.interpreters.backend import use_backend
from poot.interpreters.backend_oracle import OracleBackend
from poot.interpreters.backend_vulkan import VulkanBackend
from poot.lowering.compile import lower, plan
from poot.lowering.device_info import DeviceInfo, DeviceKind
from poot.lowering.tuned import Tuned, digest
from poot.vulkan.device import open_device
from poot.vulkan.program_store import ProgramStore
from poot.vulkan.tuning_store import TuningStore
from tests.backends import device_backend

GPU = DeviceInfo(
    name="made-up GPU",
    kind=DeviceKind.DISCRETE,
    subgroup_size=32,
    max_shared_bytes=49152,
    max_loop_trips=None,
    compute_units=8,
    unified_memory=False,
)


def whole(*shape: int, seed: int = 0) -> Any:
    """Small whole numbers, whose sums are exact in any order."""
    rng = np.random.default_rng(seed)
    return rng.integers(-3, 4, shape).astype(np.float32)


def softmax(x: Any) -> Any:
    e = jnp.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def attention(q: Any, k: Any, v: Any) -> Any:
    mask = np.tri(q.shape[0], k.shape[0], k.shape[0] - q.shape[0], dtype=bool)
    return softmax(jnp.where(mask, q @ k.T / 4, -jnp.inf)) @ v


def heads(rows: int, keys: int) -> tuple[Any, ...]:
    return whole(rows, 16), whole(keys, 16, seed=1), whole(keys, 16, seed=2)


# A function, its arguments, and how far candidates may be apart.
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], float]] = {
    "one row": (lambda x, w: x @ w, (whole(1, 96), whole(96, 80, seed=1)), 0),
    "rows": (lambda x, w: x @ w, (whole(7, 65), whole(65, 47, seed=1)), 0),
    "many": (lambda x, w: x @ w, (whole(256, 256), whole(256, 256, seed=1)), 0),
    "gated": (
        lambda x, w, v: (x @ w) * jnp.maximum(x @ v + 1, 0),
        (whole(7, 64), whole(64, 48, seed=1), whole(64, 48, seed=2)),
        0,
    ),
    "normed": (
        lambda x, w: (x / jnp.sum(x * x, axis=-1, keepdims=True)) @ w.T,
        (whole(1, 256), whole(48, 256, seed=1)),
        1e-5,
    ),
    "softmax": (softmax, (whole(5, 90),), 1e-5),
    "row sums": (lambda x: x.sum(axis=-1), (whole(6, 100),), 0),
    "prefill": (attention, heads(40, 40), 1e-5),
    "decode": (attention, heads(1, 700), 1e-5),
}


def choices(graph: Any, info: DeviceInfo) -> dict[str, list[str]]:
    seen: dict[str, list[str]] = {}
    plan(graph, info.masked(tuned=Tuned({}, seen)))
    return seen


@pytest.fixture
def device_found() -> Iterator[VulkanBackend]:
    found = device_backend()
    if not isinstance(found, VulkanBackend):
        pytest.skip("no Vulkan device")
    use_backend(found)
    yield found
    use_backend(None)


@pytest.mark.parametrize("name", CASES)
def test_all_candidates_compute_the_same(
    device_found: VulkanBackend, name: str
) -> None:
    function, arguments, tolerance = CASES[name]
    graph = lower(poot.make_graph(function)(*arguments), device_found.info).graph
    buffers = [device_found.upload(x) for x in arguments]
    (type,) = graph.result_types
    usual, seen = None, choices(graph, device_found.info)
    assert seen
    for key, names in seen.items():
        assert len(names) == len(set(names)) >= 1
        for candidate in names:
            tuned = Tuned({key: candidate})
            executable = device_found.load_tuned(graph, tuned)
            (result,), _ = executable.call(buffers)
            found = device_found.download(result, type)
            usual = found if usual is None else usual
            np.testing.assert_allclose(found, usual, rtol=tolerance, atol=tolerance)
            executable.close()


@pytest.mark.parametrize("name", CASES)
def test_all_candidates_are_planned_for_a_gpu(name: str) -> None:
    function, arguments, _ = CASES[name]
    graph = lower(poot.make_graph(function)(*arguments), GPU).graph
    programs, most = set(), 1
    for key, names in choices(graph, GPU).items():
        most = max(most, len(names))
        for candidate in names:
            program = plan(graph, GPU.masked(tuned=Tuned({key: candidate})))
            programs.add(tuple(d.kernel.name for d in program.dispatches))
    # Nearly every one is another program; some differ in the grid alone.
    assert len(programs) > most // 2


def test_what_is_picked() -> None:
    asked = []

    def others() -> list[str]:
        asked.append(1)
        return ["b", "a", "c"]

    def pick(tuned: Tuned) -> str:
        return tuned.pick("kind", lambda: "4x4", "a", others)

    assert pick(Tuned()) == "a" and not asked
    assert pick(Tuned({"kind 4x4": "c"})) == "c"
    # What no candidate has any more, and what is for something else.
    assert pick(Tuned({"kind 4x4": "z"})) == "a"
    assert pick(Tuned({"kind 5x5": "c"})) == "a"
    seen: dict[str, list[str]] = {}
    pick(Tuned({}, seen))
    assert seen == {"kind 4x4": ["a", "b", "c"]}
    assert (
        repr(Tuned())
        != repr(Tuned({"kind 4x4": "c"}))
        == repr(Tuned({"kind 4x4": "c"}))
    )
    assert digest((1, "x")) == digest((1, "x")) != digest((2, "x"))


# --- tuning -----------------------------------------------------------------


@pytest.fixture
def tunable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Opens backends that keep what they find in a folder of the test."""
    monkeypatch.setattr("poot.vulkan.device.TuningStore", TuningStore)
    if device_backend() is None:
        pytest.skip("no Vulkan device")
    opened = []

    def open() -> VulkanBackend:
        found = VulkanBackend(open_device(cache_folder=tmp_path / "pipelines"))
        opened.append(found.device)
        poot.clear_caches()
        use_backend(found)
        return found

    yield open
    poot.clear_caches()
    use_backend(None)
    for device in opened:
        device.close()


def let_win(monkeypatch: pytest.MonkeyPatch, wanted: str) -> None:
    """Let the candidate of that name be fast, and others slow."""

    def times(self: Any, winners: Any) -> Any:
        (name,) = [name for key, name in winners.items() if key.startswith("contr")]
        self._backend.load_tuned(self._graph, Tuned(winners)).close()
        return {(name, "matmul"): 1.0 if name == wanted else 100.0}

    monkeypatch.setattr(_tune._Tuner, "_times", times)


def kernel_of(f: Any, *args: Any) -> Any:
    (dispatch,) = f.lower(*args).compile().program.dispatches
    return dispatch.kernel


def test_a_winner_is_kept_and_used(
    tunable: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tunable()
    f = poot.jit(lambda x, w: x @ w)
    x, w = whole(4, 64), whole(64, 32, seed=1)
    f(x, w)
    before = kernel_of(f, x, w)
    let_win(monkeypatch, "dot")
    tuning = poot.tune(f)(x, w)
    (schedule,) = tuning.schedules
    assert schedule.winner == "dot" != schedule.usual
    assert schedule.times_us["dot"] == 1e-3
    assert list(tuning.winners.values()) == ["dot"]
    assert "-> dot" in str(tuning) and "1 of 1 schedules have changed" in str(tuning)
    # The function plans anew, other sizes go by what planning chooses.
    assert f.cache_size == 0
    np.testing.assert_array_equal(f(x, w), x @ w)
    assert kernel_of(f, x, w).name.startswith("matmul_dot") and before.name != "dot"
    assert (
        kernel_of(f, whole(5, 64), w).name
        == kernel_of(poot.jit(lambda x, w: x @ w), whole(5, 64), w).name
    )
    # So does a later process.
    (file,) = (tmp_path / "tuning").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    tunable()
    g = poot.jit(lambda x, w: x @ w)
    assert kernel_of(g, x, w).name.startswith("matmul_dot")
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    assert tunable().info.tuned.winners == {}


def test_small_gains_change_nothing(
    tunable: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tunable()
    f = poot.jit(lambda x, w: x @ w)
    x, w = whole(4, 64), whole(64, 32, seed=1)

    def times(self: Any, winners: Any) -> Any:
        (name,) = winners.values()
        return {(name, "matmul"): 98.0 if name == "dot" else 100.0}

    monkeypatch.setattr(_tune._Tuner, "_times", times)
    assert poot.tune(f)(x, w).winners == {}


def test_what_the_device_refuses_is_told(
    tunable: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tunable()

    def times(self: Any, winners: Any) -> Any:
        (name,) = winners.values()
        if name == "dot":
            raise LoweringError("not here")
        return {(name, "matmul"): 100.0}

    monkeypatch.setattr(_tune._Tuner, "_times", times)
    tuning = poot.tune(lambda x, w: x @ w)(whole(4, 64), whole(64, 32, seed=1))
    assert tuning.schedules[0].times_us["dot"] is None
    assert "dot " in str(tuning) and "refused" in str(tuning)


def test_real_times_slots_and_donated_state(tunable: Any) -> None:
    tunable()

    @functools.partial(poot.jit, donate_argnums=0, slots={"pos": slots.Pos(0, 7)})
    def step(cache: Any, x: Any, pos: Any) -> Any:
        cache = lax.dynamic_update_slice(cache, x[None], (pos, 0))
        return cache, softmax(cache @ x)

    cache, x = poot.device_put(whole(8, 32)), whole(32, seed=1)
    tuning = poot.tune(step)(cache, x, 3)
    assert not cache.is_deleted()
    np.testing.assert_array_equal(cache, whole(8, 32))
    for schedule in tuning.schedules:
        timed = [t for t in schedule.times_us.values() if t is not None]
        assert len(timed) > 1 and all(t >= 0 for t in timed)
    after, _ = step(cache, x, 3)
    right = whole(8, 32)
    right[3] = x
    np.testing.assert_array_equal(after, right)
    assert cache.is_deleted()


def test_who_cannot_be_tuned(device_found: VulkanBackend) -> None:
    def prints(x: Any) -> Any:
        poot.debug.print("{}", x.sum())
        return x @ x

    with pytest.raises(ArgumentError, match="`prints` calls the host"):
        poot.tune(prints)(whole(4, 4))
    use_backend(OracleBackend())
    with pytest.raises(CapabilityError, match="takes a Vulkan device"):
        poot.tune(jnp.sin)(whole(4, 4))


@pytest.mark.parametrize("transform", [poot.jit, poot.grad, poot.vmap])
def test_nothing_is_tuned_within_a_trace(transform: Callable[..., Any]) -> None:
    def step(x: Any) -> Any:
        poot.tune(jnp.sin)(x)
        return x.sum()

    wanted = r"`step` is being traced or transformed.*outside of `step`, with arrays"
    with pytest.raises(ArgumentError, match=wanted):
        transform(step)(whole(4))


def test_kept_programs_depend_on_what_was_tuned(tmp_path: Path) -> None:
    graph = poot.make_graph(lambda x: x @ x)(whole(4, 4))
    infos = GPU, GPU.masked(tuned=Tuned({"contraction": "dot"}))
    files = {ProgramStore(tmp_path / "p", info)._file(graph).path for info in infos}
    assert len(files) == 2 and infos[0] == infos[1]
