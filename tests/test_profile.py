"""`poot.profile`: what ran, how often and for how long, and nothing else changes."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poot
import poot.numpy as jnp
from poot import lax
from poot.core.errors import ArgumentError, CapabilityError, CheckError
from poot.interpreters.backend import use_backend
from poot.interpreters.backend_oracle import OracleBackend
from poot.vulkan.binding import CallCounter
from poot.vulkan.device import Device
from poot.vulkan.timestamps import Clock
from tests.test_driver_calls import device as device

X = np.random.default_rng(0).standard_normal((64, 64), dtype=np.float32)
pytestmark = pytest.mark.usefixtures("device")


def mixed(x: Any) -> Any:
    return poot.nn.softmax(x @ x, axis=-1) + x.sum()


def counted(profile: Any) -> dict[str, int]:
    return {row.kernel: row.calls for row in profile.rows}


def test_each_launch_of_each_call_is_timed() -> None:
    f = poot.jit(mixed)
    x = poot.device_put(X)
    expected = np.asarray(f(x))
    with poot.profile() as p:
        results = [f(x) for _ in range(3)]
    for result in results:
        np.testing.assert_array_equal(result, expected)
    program = f.lower(x).compile().program
    launches: dict[str, int] = {}
    for dispatch in program.dispatches:
        name = dispatch.kernel.name
        launches[name] = launches.get(name, 0) + 3
    assert counted(p) == launches
    rows = p.rows
    assert sum(row.share for row in rows) == pytest.approx(1)
    assert sum(row.total_us for row in rows) == pytest.approx(p.total_us)
    assert [row.total_us for row in rows] == sorted(
        (row.total_us for row in rows), reverse=True
    )
    for row in rows:
        moved = sum(
            d.bytes_moved for d in program.dispatches if d.kernel.name == row.kernel
        )
        each_us = row.total_us / 3
        assert row.gigabytes_per_s == pytest.approx(moved / each_us / 1e3)
    text = str(p)
    assert text.startswith("3 calls on Device(")
    assert all(name in text for name in launches)


def test_times_follow_one_another_within_their_calls() -> None:
    f = poot.jit(mixed)
    f(X)
    with poot.profile() as p:
        f(X).block_until_ready()
        f(X).block_until_ready()
    times = [t for c in p.commands for t in (c.begin_ns, c.end_ns)]
    assert times == sorted(times) and times[0] < times[-1]
    profiler = p._profiler
    first, second = profiler.calls
    offset = profiler.host_offset_ns
    half = len(times) // 2
    # What drivers and hosts call the same moment may be a little apart.
    slack_ns = 1e6
    for call, own in ((first, times[:half]), (second, times[half:])):
        assert call.begin_ns - slack_ns <= own[0] + offset
        assert own[-1] + offset <= call.end_ns + slack_ns


def test_the_next_call_is_as_before(device: Device) -> None:
    f = poot.jit(mixed)
    x = poot.device_put(X)
    f(x).block_until_ready()
    with poot.profile():
        f(x)
    with CallCounter(device.functions) as counter:
        y = f(x)
    assert dict(counter.calls) == {"vkQueueSubmit": 1}
    y.block_until_ready()
    assert device.profilers == ()


def test_operations_run_at_once_and_functions_made_inside() -> None:
    x = poot.device_put(X)
    with poot.profile() as p:
        y = jnp.sin(x) + 1
        poot.jit(lambda x: x @ x)(y)
    assert sum(counted(p).values()) == 3


def test_loops_are_timed_turn_by_turn() -> None:
    def body(i: Any, x: Any) -> Any:
        return x @ jnp.eye(64, dtype=np.float32) + i

    f = poot.jit(lambda x: lax.fori_loop(0, 700, body, x))
    compiled = f.lower(X).compile()
    counts = compiled._executable.commands.counts()
    assert counts.submissions >= 1 and counts.launches >= 700
    expected = np.asarray(f(X))
    with poot.profile() as p:
        result = f(X)
    np.testing.assert_array_equal(result, expected)
    assert len(p.commands) == counts.launches + counts.copies


def test_whiles_and_branches_have_no_rates() -> None:
    def f(x: Any) -> Any:
        x = lax.while_loop(lambda c: c.sum() < 500, lambda c: c @ c + 2, x)
        return lax.cond(x[0, 0] > 2, lambda x: x @ x + 1, lambda x: x * 2, x)

    jitted = poot.jit(f)
    x = poot.device_put(np.eye(8, dtype=np.float32))
    expected = np.asarray(jitted(x))
    with poot.profile() as p:
        result = jitted(x)
    np.testing.assert_array_equal(result, expected)
    switched = [row for row in p.rows if row.gigabytes_per_s is None]
    assert switched and any(row.kernel.startswith("guard") for row in p.rows)
    assert " - " in str(p)


def test_all_threads_and_nested_blocks() -> None:
    f = poot.jit(mixed)
    f(X)

    def work() -> None:
        for _ in range(5):
            f(X)

    with poot.profile() as outer:
        with poot.profile() as inner:
            threads = [threading.Thread(target=work) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        f(X)
    f(X)
    assert {n: 15 * calls // 15 for n, calls in counted(inner).items()} == counted(
        inner
    )
    assert all(calls % 15 == 0 for calls in counted(inner).values())
    assert all(calls % 16 == 0 for calls in counted(outer).values())
    assert repr(inner).startswith("<profile of 15 calls, ")


def test_an_error_ends_the_block_and_checks_are_told_as_ever(device: Device) -> None:
    @poot.jit
    def f(x: Any) -> Any:
        poot.check(x.sum() < 3, "small")
        return x + 1

    with pytest.raises(CheckError, match="small"), poot.profile():
        f(np.full(8, 2, np.float32)).block_until_ready()
    assert device.profilers == ()
    used = poot.profile()
    with used:
        f(np.zeros(8, np.float32))
    with pytest.raises(ArgumentError, match="make another"):
        used.__enter__()
    assert len(used.commands) >= 1


def test_a_trace_is_not_profiled_and_a_gradient_is() -> None:
    def step(x: Any) -> Any:
        with poot.profile() as p:
            y = (x * 2).sum()
        seen.append(p)
        return y

    seen: list[Any] = []
    poot.grad(step)(X)
    assert len(seen) == 1 and seen[0].commands
    for traced in (poot.jit(step), poot.jit(poot.grad(step))):
        with pytest.raises(ArgumentError, match="`step` is only being traced; put the"):
            traced(X)


def test_donated_state_is_updated_once() -> None:
    f = poot.jit(lambda x: x + 1, donate_argnums=0)
    x = poot.device_put(np.zeros(8, np.float32))
    for _ in range(2):
        x = f(x)
        with poot.profile():
            x = f(x)
    np.testing.assert_array_equal(x, np.full(8, 4))


def test_a_chrome_trace(tmp_path: Path) -> None:
    f = poot.jit(mixed)
    with poot.profile() as p:
        f(X)
    path = tmp_path / "trace.json"
    p.chrome_trace(path)
    events = json.loads(path.read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    kernels = [span for span in spans if "label" in span["args"]]
    assert [span["name"] for span in kernels] == [c.name for c in p.commands]
    assert len(spans) == len(kernels) + len(p._profiler.calls)
    assert all(span["dur"] >= 0 and span["ts"] > 0 for span in spans)
    assert any("x" in span["args"].get("grid", "") for span in kernels)
    names = {e["args"]["name"] for e in events if e["ph"] == "M"}
    assert {"host", "device", "MainThread"} <= names


def test_a_block_that_was_never_run(tmp_path: Path) -> None:
    p = poot.profile()
    assert str(p).startswith("nothing was profiled, as no block was run with this")
    with pytest.raises(ArgumentError, match=r"write `with poot.profile\(\) as p"):
        p.chrome_trace(tmp_path / "trace.json")
    assert not list(tmp_path.iterdir())


def test_where_no_clock_is(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(device, "clock", Clock(0, 1.0))
        with pytest.raises(CapabilityError, match="writes no timestamps"):
            poot.profile().__enter__()
    use_backend(OracleBackend())
    with pytest.raises(CapabilityError, match="takes a Vulkan device"):
        poot.profile().__enter__()


def test_a_clock_that_begins_anew() -> None:
    clock = Clock(8, 2.0)
    assert clock.nanoseconds([250, 255, 3]) == [500, 510, 518]
    # Read out of order, but not so far that it has begun anew.
    assert clock.nanoseconds([1, 200, 256 + 4]) == [514, 912, 1032]
