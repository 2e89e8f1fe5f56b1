"""Programs on disk: planned by one process, run by another."""

from __future__ import annotations

import pickle
import subprocess
from pathlib import Path

import numpy as np
import pytest

import models
import poot
from poot.core.graph import Graph
from poot.interpreters.backend import backend, use_backend
from poot.interpreters.backend_vulkan import VulkanBackend
from poot.lowering.compile import lower, plan
from poot.lowering.device_info import DeviceInfo
from poot.lowering.program import Program
from poot.vulkan import program_store
from poot.vulkan.disk_cache import DiskCache
from poot.vulkan.program_store import ProgramStore, decode, encode

INFO = DeviceInfo()
SIZES = models.Llama(4, 64, 4, 2, 96, 64, 16)


def step(weights, caches, tokens, start):
    return models.llama_step(poot, SIZES, weights, caches, tokens, start)


def arguments() -> tuple:
    weights = models.random_weights(SIZES)
    return weights, models.empty_caches(poot, SIZES), np.array([3], np.int32), 2


def traced() -> Graph:
    return poot.jit(step).trace(*arguments()).graph


def looped(x, w):
    def body(carry, _):
        carry = poot.numpy.tanh(carry @ w)
        return carry, carry.sum()

    carry, sums = poot.lax.scan(body, x, None, length=5)
    bound = poot.lax.while_loop(lambda c: c.sum() < 3.0, lambda c: c + 1.0, carry)
    picked = poot.lax.cond(sums[0] > 0.0, poot.numpy.sin, poot.numpy.cos, bound)
    poot.check(sums[0] < 100.0, "a sum is large")
    return picked, sums


@pytest.fixture(scope="module")
def graph() -> Graph:
    return traced()


@pytest.fixture(scope="module")
def program(graph: Graph) -> Program:
    return plan(lower(graph, INFO).graph, INFO)


@pytest.fixture
def store(tmp_path: Path) -> ProgramStore:
    return ProgramStore(tmp_path / "pipelines", INFO)


def test_what_is_kept_comes_back(
    store: ProgramStore, graph: Graph, program: Program
) -> None:
    assert store.find(graph) is None
    store.keep(graph, program)
    assert store.find(graph) == program


def test_loops_branches_and_checks_come_back() -> None:
    x = np.ones((3, 3), np.float32)
    source = poot.jit(looped).trace(x, x).graph
    made = plan(lower(source, INFO).graph, INFO)
    assert {type(node).__name__ for node in made.body} >= {"Loop", "While", "Branch"}
    assert made.witnesses
    assert decode(encode(made)) == made


def test_small_graphs_are_not_kept(store: ProgramStore, tmp_path: Path) -> None:
    small = poot.jit(lambda x: x + 1).trace(np.ones(3, np.float32)).graph
    store.keep(small, plan(lower(small, INFO).graph, INFO))
    assert list(tmp_path.rglob("*")) == []


def test_another_device_or_graph_has_another_file(
    tmp_path: Path, graph: Graph, program: Program
) -> None:
    store = ProgramStore(tmp_path / "pipelines", INFO)
    store.keep(graph, program)
    other = ProgramStore(tmp_path / "pipelines", INFO.masked(subgroup_size=16))
    assert other.find(graph) is None
    doubled = poot.jit(lambda *args: step(*args)[0] * 2).trace(*arguments()).graph
    assert store.find(doubled) is None


def chain(x):
    for _ in range(250):
        x = poot.numpy.sin(x)
    return x


def same_chain_of_another_line(x):
    for _ in range(250):
        x = poot.numpy.sin(x)
    return x


def test_messages_name_the_lines_of_this_process(store: ProgramStore) -> None:
    x = np.ones(3, np.float32)
    one, other = (
        poot.jit(function).trace(x).graph
        for function in (chain, same_chain_of_another_line)
    )
    assert str(one) == str(other)
    store.keep(one, plan(lower(one, INFO).graph, INFO))
    assert store.find(one) is not None
    assert store.find(other) is None


def test_other_code_of_poot_plans_anew(
    store: ProgramStore,
    graph: Graph,
    program: Program,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store.keep(graph, program)
    monkeypatch.setattr(program_store, "_code_stamp", lambda: "changed")
    assert ProgramStore(tmp_path / "pipelines", INFO).find(graph) is None


def test_the_code_stamp_is_that_of_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    stamp = program_store._code_stamp()
    assert stamp == program_store._code_stamp()
    monkeypatch.setattr(Path, "rglob", lambda self, pattern: [Path(__file__)])
    assert program_store._code_stamp() != stamp


class _Evil:
    def __reduce__(self):
        return subprocess.call, (["true"],)


@pytest.mark.parametrize("content", [pickle.dumps(_Evil()), pickle.dumps(3), b"x"])
def test_nothing_but_programs_is_read(
    store: ProgramStore,
    graph: Graph,
    content: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subprocess, "call", lambda *_: pytest.fail("called"))
    with pytest.raises(pickle.UnpicklingError):
        decode(content)
    assert store._file(graph).store(content)
    assert store.find(graph) is None


def test_old_files_go(
    store: ProgramStore,
    graph: Graph,
    program: Program,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(program_store, "_MOST_FILES", 3)
    for number in range(5):
        assert DiskCache(tmp_path / "programs", bytes([number])).store(b"old")
    store.keep(graph, program)
    assert len(list((tmp_path / "programs").glob("*.bin"))) == 3
    assert store.find(graph) == program


def eager_only(graph: Graph, info: DeviceInfo, *, generic: bool = False) -> Program:
    """The planner of a process that is to plan nothing but eager operations."""
    assert generic
    return plan(graph, info, generic=generic)


def test_a_later_process_runs_what_an_earlier_one_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = backend()
    if not isinstance(before, VulkanBackend):
        pytest.skip("programs are kept for devices")
    monkeypatch.setattr(before.device, "cache_folder", tmp_path / "pipelines")
    found = []
    try:
        for planner in (plan, eager_only):
            use_backend(VulkanBackend(before.device))
            monkeypatch.setattr("poot.interpreters.backend_vulkan.plan", planner)
            compiled = poot.jit(step).trace(*arguments()).compile()
            token, caches = compiled(*arguments())
            found.append((np.asarray(token), np.asarray(caches[0][0])))
            assert "fuse_pointwise" in compiled.report()
    finally:
        use_backend(before)
    for first, second in zip(*found, strict=True):
        np.testing.assert_array_equal(first, second)
