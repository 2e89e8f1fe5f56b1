"""Traps of running: order of launches, limits, threads, loss; data/traps.txt."""

from __future__ import annotations

import functools
import itertools
import operator
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot.core.errors import DeviceLost, LimitError
from poot.interpreters.backend import backend, use_backend
from poot.interpreters.backend_vulkan import VulkanBackend
from poot.lowering.device_info import DeviceInfo, DeviceKind
from poot.lowering.kernels.contraction_schedule import Extent, choose
from poot.lowering.kernels.contraction_tile import Tile
from poot.lowering.spirv.builder import KernelBuilder
from poot.lowering.spirv.types import F32
from poot.vulkan.binding import CallCounter
from poot.vulkan.device import Device
from tests import trap_executors, vulkan_programs
from tests.kernel_harness import assert_exact
from tests.trap_executors import by_kernels, check, f32, i32, run_loaded

on_device = trap_executors.on_device
own_device = vulkan_programs.own_device
pytestmark = pytest.mark.usefixtures("on_device")

X = np.arange(3, dtype=np.float32)


def add_ones(count: int) -> Any:
    def chain(x: Any) -> Any:
        for _ in range(count):
            x = x + 1
        return x

    return chain


# --- order ------------------------------------------------------------------


@pytest.mark.parametrize("count", [3, 50])
def test_read_after_write_between_dispatches(count: int) -> None:
    chain = add_ones(count)
    check(chain, X, right=X + count)
    graph = poot.make_graph(chain)(X)
    executable = backend().load(graph, generic=False)
    assert len(executable.program.dispatches) == count
    for _ in range(3):
        assert run_loaded(executable, graph, [X])[0].tolist() == (X + count).tolist()


def test_write_after_read_of_a_donated_array() -> None:
    """What is returned of the old state is not what the new one overwrote it with."""

    def step(x: Any) -> Any:
        return x + 1, x * 2, x[::-1]

    donating = poot.jit(step, donate_argnums=0)
    x = poot.device_put(X)
    for number in range(3):
        x, double, turned = donating(x)
        assert np.asarray(double).tolist() == ((X + number) * 2).tolist()
        assert np.asarray(turned).tolist() == (X + number)[::-1].tolist()
    assert np.asarray(x).tolist() == (X + 3).tolist()
    graph = donating.trace(X).graph
    for found in (by_kernels(graph, [X]), poot.evaluate(graph, X)):
        for one, wanted in zip(found, step(X), strict=True):
            np.testing.assert_array_equal(one, wanted)


def test_uploads_and_results_without_a_wait_between() -> None:
    double = poot.jit(lambda x: x * 2)
    x = X.copy()
    results = []
    for number in range(30):
        x[:] = number
        results += [double(x), poot.device_put(x) * 2]
    for number, result in enumerate(results):
        assert np.asarray(result).tolist() == [number // 2 * 2] * 3


# --- sizes of kernels and graphs --------------------------------------------


@pytest.mark.parametrize("count", [40, 70])
def test_very_many_inputs_in_one_fused_kernel(count: int) -> None:
    inputs = [np.full(5, i, np.int32) for i in range(count)]
    total = count * (count - 1) // 2
    check(
        lambda *xs: functools.reduce(operator.add, xs),
        *inputs,
        right=np.full(5, total, np.int32),
    )
    rows = [x.astype(np.float32) for x in inputs]
    check(
        lambda *xs: jnp.sum(functools.reduce(operator.add, xs) * 2),
        *rows,
        right=np.array(10 * total, np.float32),
        fused=False,
    )
    add = poot.jit(lambda *xs: functools.reduce(operator.add, xs))
    assert int(add(*range(count))) == total


def test_very_many_outputs_of_one_fused_kernel() -> None:
    x = i32(1, 2, 3)

    def multiples(x: Any) -> Any:
        return tuple(itertools.accumulate([x] * 34))[1:]

    right = tuple(x * i for i in range(2, 35))
    check(multiples, x, right=right)


def test_big_graphs_and_bool_types() -> None:
    limit = sys.getrecursionlimit()

    def tree(x: Any) -> Any:
        level = [x + i for i in range(2000)]
        while len(level) > 1:
            pairs = zip(level[::2], level[1::2], strict=False)
            odd = level[-1:] if len(level) % 2 else []
            level = [a + b for a, b in pairs] + odd
        return level[0]

    x = i32(1, 2, 3)
    wanted = 2000 * x + 1999 * 1000
    graph = poot.make_graph(tree)(x)
    assert len(graph.eqns) == 3999
    np.testing.assert_array_equal(poot.evaluate(graph, x)[0], wanted)
    np.testing.assert_array_equal(tree(poot.device_put(x)), wanted)
    jitted = poot.jit(tree)
    for _ in range(2):
        np.testing.assert_array_equal(jitted(x), wanted)
    chain = add_ones(1000)
    graph = poot.make_graph(chain)(x)
    np.testing.assert_array_equal(poot.evaluate(graph, x)[0], x + 1000)
    jitted = poot.jit(chain)
    for _ in range(2):
        np.testing.assert_array_equal(jitted(x), x + 1000)
    assert sys.getrecursionlimit() == limit


def test_prefix_counts_of_a_mask() -> None:
    mask = np.arange(300) % 3 != 1
    right = np.cumsum(mask, dtype=np.int32)
    check(lambda m: jnp.cumsum(m), mask, right=right)
    check(lambda m: m.cumsum(0), np.ones(300, np.bool_), right=i32(*range(1, 301)))


def test_bools_are_stored_as_bytes() -> None:
    flags = np.array([[True, False, True], [False, False, True]])
    other = np.array([True, True, False])
    check(
        lambda a, b: (
            a + b,
            a * b,
            ~a,
            a ^ b,
            jnp.concatenate([a, a], 1)[:, ::2],
            jnp.where(b, a, ~a),
            jnp.any(a, 0),
            jnp.all(a, 1),
            jnp.sum(a),
            jnp.take(a, jnp.array([2, 0]), 1),
        ),
        flags,
        other,
        right=(
            flags | other,
            flags & other,
            ~flags,
            flags ^ other,
            np.concatenate([flags, flags], 1)[:, ::2],
            np.where(other, flags, ~flags),
            flags.any(0),
            flags.all(1),
            np.array(3, np.int32),
            flags[:, [2, 0]],
        ),
    )
    many = np.ones(300, np.bool_)
    check(lambda x: (jnp.sum(x), x + x), many, right=(np.array(300, np.int32), many))


# --- threads ----------------------------------------------------------------


def test_threads() -> None:
    """test_threads.py has the cases of jitted functions, 200 calls a thread."""

    @poot.jit
    def shared(x: Any, s: Any) -> Any:
        return x * s + 1

    def work(number: int) -> bool:
        scale = poot.jit(lambda x: x * number)
        right = True
        for step in range(20):
            x = X + step
            graph = poot.make_graph(lambda x, by=step: x * by)(x)
            right &= np.array_equal(scale(x), x * number)
            right &= np.array_equal(shared(x, float(number)), x * number + 1)
            found = poot.device_put(x) * number - step
            right &= np.array_equal(found, x * number - step)
            right &= np.array_equal(poot.evaluate(graph, x)[0], x * step)
        return right

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [True] * 8


# --- loss and long work -----------------------------------------------------


@pytest.fixture
def breakable(own_device: Device) -> Iterator[Device]:
    """The device that eager and jitted code run on, for one test, to break."""
    before = backend()
    poot.clear_caches()
    use_backend(VulkanBackend(own_device))
    try:
        yield own_device
    finally:
        poot.clear_caches()
        use_backend(before)


def test_device_lost_long_work(
    breakable: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    @poot.jit
    def doubled(x: Any) -> Any:
        return x * 2

    x = poot.device_put(X)
    assert np.asarray(doubled(x)).tolist() == [0, 2, 4]
    result = doubled(x)
    # As if that call had not ended when the device was lost.
    breakable.queue.completed = breakable.queue.submitted - 1
    for name in ("vkWaitSemaphores", "vkGetSemaphoreCounterValue"):
        monkeypatch.setattr(breakable.functions, name, lambda *a: -4)
    with pytest.raises(DeviceLost, match=r"DEVICE_LOST.*waiting: \[.*MUL.*doubled"):
        np.asarray(result)
    monkeypatch.undo()
    with CallCounter(breakable.functions) as counter:
        for use in (
            lambda: doubled(x),
            lambda: poot.device_put(X),
            lambda: np.asarray(result),
            lambda: result.block_until_ready(),
        ):
            with pytest.raises(DeviceLost, match="start the process anew"):
                use()
    # At once: the driver is not asked again.
    assert counter.calls == {}


def test_device_lost_at_a_submit(
    breakable: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = poot.device_put(X)
    add = poot.jit(lambda x: x + 1)
    add(x).block_until_ready()
    monkeypatch.setattr(breakable.functions, "vkQueueSubmit", lambda *a: -4)
    with pytest.raises(DeviceLost, match="vkQueueSubmit"):
        add(x)
    monkeypatch.undo()
    with pytest.raises(DeviceLost, match="start the process anew"):
        add(x)


def test_work_of_5000_dispatches_is_cut() -> None:
    graph = poot.make_graph(add_ones(5000))(X)
    executable = backend().load(graph, generic=False)
    assert len(executable.program.dispatches) == 5000
    assert len(executable.commands.buffers) > 1
    for found in (run_loaded(executable, graph, [X]), poot.evaluate(graph, X)):
        np.testing.assert_array_equal(found[0], X + 5000)


# --- limits -----------------------------------------------------------------


def test_shared_memory_and_workgroup_limits() -> None:
    info = DeviceInfo(name="lavapipe's limits")
    wish = Tile(128, 256, 64)
    assert wish.shared_bytes(4) == 98304
    with pytest.raises(LimitError, match=r"98304 B of shared memory.*has 32768"):
        KernelBuilder("tile", info).shared(F32, wish.shared_bytes(4) // 4)
    with pytest.raises(LimitError, match=r"workgroup.*2048.*1024"):
        KernelBuilder("wide", info, (2048, 1, 1))
    with pytest.raises(LimitError, match=r"2048 invocations.*1024"):
        KernelBuilder("square", info, (64, 32, 1))
    a = np.arange(70 * 33, dtype=np.float32).reshape(70, 33) % 7 - 3
    b = np.arange(33 * 90, dtype=np.float32).reshape(33, 90) % 5 - 2
    graph = poot.make_graph(jnp.matmul)(a, b)
    for most in (32768, 4096, 2048):
        profile = {"kind": DeviceKind.DISCRETE, "max_shared_bytes": most}
        limited = backend().info.masked(**profile)
        assert choose(Extent(4096, 4096), limited).tile.shared_bytes(4) <= most
        assert_exact(graph, [a, b], profile)
    few = {"max_workgroup_invocations": 32, "max_workgroup_size": (32, 32, 32)}
    assert_exact(graph, [a, b], few)
    assert_exact(poot.make_graph(lambda x: jnp.sum(x, 1))(a), [a], few)
    check(jnp.matmul, a, b, right=a @ b)
    check(lambda x: x * f32(2), a, right=a * 2)
